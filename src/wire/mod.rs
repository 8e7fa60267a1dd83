//! Bytes and their meaning: header views, field edits and checksums. No I/O, no tables, no policy.
//! Called by `tables`, `datapath` and everything above them.

pub mod arp;
pub mod checksum;
pub mod drop;
pub mod ecn;
pub mod ethernet;
pub mod icmp;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod nd;
pub mod packet;
pub mod roce;
pub mod udp;
pub mod vxlan;
