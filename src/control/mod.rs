//! Control plane.

pub mod api;
pub mod config;
pub mod netlink;
pub mod publish;
pub mod stats;
