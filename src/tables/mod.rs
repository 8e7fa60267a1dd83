//! Read side of the forwarding state: pure data, looked up by `datapath`, built by `control`. No I/O, no locks.

pub mod fdb;
pub mod network;
pub mod snapshot;
pub mod vtep;
