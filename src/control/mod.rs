//! Control plane.

pub mod config;
pub mod publish;
