//! Control plane: reads the configuration, opens ports, publishes tables, follows the kernel, answers questions.

pub mod api;
pub mod config;
pub mod diff;
mod inspect;
pub mod learn;
pub mod lifecycle;
pub mod netlink;
pub mod publish;
mod setup;
pub mod stats;
