//! Harness of the functional tests: namespaces, veth pairs, VTEPs of both kinds, traffic and its witnesses.
//!
//! Nothing outlives a test: namespaces, processes and files belong to values that remove them when dropped.

pub mod command;
pub mod fabric;
pub mod forwarder;
pub mod kernel;
pub mod netns;
pub mod packet;
pub mod stats;
pub mod tap;
pub mod topology;
pub mod traffic;
pub mod veth;
