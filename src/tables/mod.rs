//! Read side of the forwarding state: pure data, looked up by `datapath`, built by `control`. No I/O, no locks.

pub mod chunked;
pub mod fdb;
pub mod fib;
pub mod guard;
pub mod network;
pub mod policy;
pub mod snapshot;
pub mod trunk;
pub mod vrf;
pub mod vtep;
