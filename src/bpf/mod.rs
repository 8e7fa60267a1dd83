//! The steering program in the kernel: loads it for one port, hands it the port's AF_XDP sockets, attaches it, reads its
//! counters. What it decides is in `bpf/steer.bpf.c`; this side only settles and counts. Called by `control`.
//!
//! Order at start-up: [`Steering::load`], bind the sockets, [`Steering::insert_socket`] for every queue,
//! [`Steering::attach`]. A frame of ours that meets a queue without a socket is dropped and counted.

mod abi;
mod capabilities;
mod error;
mod loader;
mod netlink;
mod vlan_offload;

pub use abi::{Outcome, OutcomeCount};
pub use capabilities::MissingCapabilities;
pub use error::{BpfError, OtherProgram};
pub use loader::{AttachMode, AttachPolicy, SteerMode, Steering};
