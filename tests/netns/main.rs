//! Functional tests on kernel devices: a flowrail between veth pairs in namespaces of its own.
//!
//! They need root, and they load the machine, so they take turns (see `Turn`). Every test that carries traffic ends
//! with the conservation sum: received = forwarded + replied + punted + drops.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test may fail loudly")]

#[path = "../common/mod.rs"]
mod common;

mod apply;
mod carriage;
mod exceptions;
mod gateway;
mod groups;
mod irb;
mod learning;
mod lifecycle;
mod local;
mod neighbors;
mod queues;
mod reference;
mod tap;
mod tenants;
mod trunk;
mod underlay;
mod vnis;
