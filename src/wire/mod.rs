//! Bytes and their meaning: header views, field edits and checksums. No I/O, no tables, no policy.
//! Called by `tables`, `datapath` and everything above them.

pub mod drop;
pub mod ethernet;
pub mod vxlan;
