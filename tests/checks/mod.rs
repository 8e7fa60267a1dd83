//! What must hold for any input, as plain functions that panic when it does not. `fuzz/` runs them on what libFuzzer
//! invents, `tests/properties` on the frames of the corpus, cut and changed, and on inputs that once failed.

pub mod config;
pub mod control;
pub mod datapath;
pub mod gateway;
pub mod oracle;
pub mod site;
pub mod tenant;
pub mod wire;

/// A check of one input.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target.
pub const ALL: &[(&str, Check)] = &[
    ("wire_arp", control::arp),
    ("wire_checksum", wire::checksum),
    ("wire_ethernet", wire::ethernet),
    ("wire_icmp", control::icmp),
    ("wire_igmp", control::igmp),
    ("wire_ipv4", wire::ipv4),
    ("wire_ipv6", wire::ipv6),
    ("wire_nd", control::nd),
    ("wire_packet", wire::packet),
    ("wire_roce", wire::roce),
    ("wire_udp", wire::udp),
    ("wire_vxlan", wire::vxlan),
    ("datapath", datapath::check),
    ("gateway", gateway::check),
    ("config", config::check),
];
