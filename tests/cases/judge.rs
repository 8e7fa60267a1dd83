//! Compares what left the forwarder with what a case expects. Checksums are recomputed by etherparse, not by flowrail.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::manifest::{Case, ExpectedOut, bytes};

/// A packet that left, by port name.
#[derive(Clone, Debug)]
pub struct Out {
    pub port: String,
    pub bytes: Vec<u8>,
}

/// Every expected packet left, and nothing else.
pub fn outputs(expected: &[ExpectedOut], actual: &[Out]) -> Result<(), String> {
    let mut rest: Vec<&Out> = actual.iter().collect();
    for (index, want) in expected.iter().enumerate() {
        let mut why = String::from("no packet left this port");
        let found = rest.iter().position(|out| match matches(want, out) {
            Ok(()) => true,
            Err(reason) => {
                why = reason;
                false
            }
        });
        match found {
            Some(at) => drop(rest.remove(at)),
            None => return Err(format!("packet {index} for {} did not leave: {why}", want.port)),
        }
    }
    if let Some(extra) = rest.first() {
        return Err(format!("unexpected packet on {}: {}", extra.port, hex(&extra.bytes)));
    }
    across(expected, actual)
}

/// Whether leaving the packet to the kernel is as good as dropping it.
pub fn may_pass(case: &Case) -> bool {
    let text = format!("{} {}", case.expected.reason, case.expected.policy).to_lowercase();
    text.contains("kernel pass") || text.contains("xdp_pass")
}

/// The drop reason that a case asks for by name.
pub fn names_reason(case: &Case) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    Some(case.expected.reason.as_str()).filter(|reason| !reason.is_empty() && reason.chars().all(is_name))
}

fn matches(want: &ExpectedOut, out: &Out) -> Result<(), String> {
    if super::setup::port_name(&want.port) != out.port {
        return Err(format!("it left {}", out.port));
    }
    let mut expected = bytes(&want.hex);
    if want.port != "underlay" && expected.len() < 60 && out.bytes.len() == 60 {
        expected.resize(60, 0);
    }
    if expected.len() != out.bytes.len() {
        return Err(format!("{} bytes, not {}: {}", out.bytes.len(), expected.len(), hex(&out.bytes)));
    }
    let ignored = |i: usize| want.ignore.iter().any(|[at, len]| (*at..at + len).contains(&i));
    if let Some(i) = (0..expected.len()).find(|i| !ignored(*i) && expected[*i] != out.bytes[*i]) {
        return Err(format!(
            "byte {i} is {:02x}, not {:02x}: {}",
            out.bytes[i],
            expected[i],
            hex(&out.bytes)
        ));
    }
    want.rules.iter().try_for_each(|rule| obeys(rule, &out.bytes))
}

/// One rule of the manifest about one packet.
fn obeys(rule: &str, packet: &[u8]) -> Result<(), String> {
    let sliced = SlicedPacket::from_ethernet(packet).map_err(|e| format!("{rule}: {e}"))?;
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return Err(format!("{rule}: no UDP")) };
    let ok = match (rule, &sliced.net) {
        ("outer IPv4 header checksum valid", Some(NetSlice::Ipv4(ip))) => {
            ip.header().header_checksum() == ip.header().to_header().calc_header_checksum()
        }
        ("frag offset 0 and MF=0 (VTEP must not fragment)", Some(NetSlice::Ipv4(ip))) => {
            !ip.is_payload_fragmented() && ip.header().dont_fragment()
        }
        ("outer TTL>=1 (default 64)", Some(NetSlice::Ipv4(ip))) => ip.header().ttl() == 64,
        ("hop limit>=1 (default 64)", Some(NetSlice::Ipv6(ip))) => ip.header().hop_limit() == 64,
        ("UDP checksum 0 or correct", Some(NetSlice::Ipv4(ip))) => {
            let header = ip.header().to_header();
            let right = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
            udp.checksum() == 0 || udp.checksum() == right
        }
        ("UDP checksum non-zero and correct", Some(NetSlice::Ipv6(ip))) => {
            let header = ip.header().to_header();
            let right = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
            udp.checksum() != 0 && udp.checksum() == right
        }
        ("flow label free", _) => true,
        (rule, _) if rule.starts_with("UDP source port in 49152-65535") => udp.source_port() >= 49152,
        (rule, net) if rule.starts_with("outer TOS = ") || rule.starts_with("traffic class = ") => {
            let value = u8::from_str_radix(rule.rsplit("0x").next().unwrap(), 16).unwrap();
            match net {
                Some(NetSlice::Ipv4(ip)) => {
                    ip.header().dcp().value() << 2 | ip.header().ecn().value() == value
                }
                Some(NetSlice::Ipv6(ip)) => ip.header().traffic_class() == value,
                _ => false,
            }
        }
        // Rules about several packets; see `across`.
        (rule, _) if rule.contains("distinct outer source ports") || rule.starts_with("one inner flow") => {
            true
        }
        _ => return Err(format!("no such rule: {rule}")),
    };
    if ok { Ok(()) } else { Err(format!("breaks the rule {rule:?}: {}", hex(packet))) }
}

/// Rules about all packets of a case together.
fn across(expected: &[ExpectedOut], actual: &[Out]) -> Result<(), String> {
    let rules = || expected.iter().flat_map(|out| &out.rules);
    let mut ports: Vec<[u8; 2]> = actual
        .iter()
        .filter(|out| out.port == "underlay" && out.bytes[12] == 8)
        .map(|out| [out.bytes[34], out.bytes[35]])
        .collect();
    ports.sort_unstable();
    ports.dedup();
    if rules().any(|rule| rule.contains(">=32 distinct outer source ports")) && ports.len() < 32 {
        return Err(format!("only {} distinct outer source ports", ports.len()));
    }
    if rules().any(|rule| rule.contains("exactly one outer source port")) && ports.len() != 1 {
        return Err(format!("{} outer source ports for one flow", ports.len()));
    }
    Ok(())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
