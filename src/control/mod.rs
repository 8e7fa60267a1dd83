//! Control plane.

pub mod config;
