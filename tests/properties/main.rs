//! What the datapath promises for any packet on any small configuration: tenants stay apart, a tunnel gives back what went
//! in, RoCEv2 stays intact, a flow keeps its path, and every input ends in a verdict. etherparse builds the packets and
//! judges their checksums.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests may fail loudly"
)]

#[path = "../checks/mod.rs"]
mod checks;
mod configs;
mod corpus;
mod documentation;
mod flows;
mod icrc;
mod isolation;
mod packets;
mod tenants;
mod tunnels;
