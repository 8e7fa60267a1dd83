//! Control plane: reads the configuration, opens ports, publishes tables, follows the kernel, answers questions.

pub mod api;
mod apply;
mod carry;
pub mod config;
pub mod diff;
mod groups;
mod http;
mod inspect;
pub mod learn;
pub mod lifecycle;
mod listing;
mod moves;
pub mod netlink;
mod notices;
pub mod plan;
mod ports;
pub mod publish;
pub mod quiesce;
pub mod report;
mod rules;
mod setup;
mod site;
pub mod stats;
