//! Control plane: reads the configuration, opens ports, publishes tables, follows the kernel, answers questions.

pub mod api;
pub mod config;
mod inspect;
pub mod lifecycle;
pub mod netlink;
pub mod plan;
pub mod publish;
mod setup;
pub mod stats;
