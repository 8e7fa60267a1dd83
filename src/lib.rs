//! flowrail: a software VTEP for GPU hosts and DPUs.
//!
//! A packet's way, and the module that owns each step:
//!
//! 1. `bpf` loads the XDP program that steers VXLAN (UDP 4789) and RoCEv2 (UDP 4791) frames into AF_XDP sockets;
//!    everything else stays with the kernel.
//! 2. `xsk` owns UMEM, rings and sockets: move-only frames, nothing about packets.
//! 3. `worker` takes a batch from the RX rings, hands each packet to `datapath`, and puts it on a TX ring.
//! 4. `datapath` decides and rewrites: pure functions over header bytes (`wire`) and a table snapshot (`tables`).
//! 5. `control` builds the snapshot from configuration and kernel state, publishes it, and answers questions.
//!
//! Imports go one way: `wire ← tables ← datapath ← worker → xsk`, `control → tables, worker, bpf`, `cli → control`.
//! `datapath` imports no socket, no clock, no logger and no allocator.
#![deny(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::allow_attributes,
    clippy::undocumented_unsafe_blocks
)]
pub mod bpf;
pub mod cli;
pub mod control;
pub mod datapath;
pub mod ids;
pub mod tables;
pub mod trace;
pub mod wire;
pub mod worker;
pub mod xsk;
