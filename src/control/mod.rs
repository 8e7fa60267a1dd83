//! Control plane.

pub mod config;
pub mod netlink;
pub mod publish;
