//! The steering rules once more, in Rust and written from their description, to hold the program against.

use flowrail::bpf::Outcome;

use crate::frame::{
    DESTINATION, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, OUR_IP4, OUR_IP6, SERVICE_VLAN, UDP, VLAN,
};

/// What a steered port is set to.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub underlay: bool,
    pub native_roce: bool,
    pub vlan: Option<u16>,
}

/// `Err` is a frame for the kernel.
pub fn outcome(rules: Rules, frame: &[u8]) -> Outcome {
    by_tag(rules, frame).unwrap_or_else(|pass| pass)
}

fn u16_at(frame: &[u8], at: usize) -> Result<u16, Outcome> {
    let bytes = frame.get(at..at + 2).ok_or(Outcome::Malformed)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn by_tag(rules: Rules, frame: &[u8]) -> Result<Outcome, Outcome> {
    let is_tag = |kind| kind == VLAN || kind == SERVICE_VLAN;
    let (mut kind, mut at) = (u16_at(frame, 12)?, 14);
    let mut vid = None;
    if is_tag(kind) {
        (vid, kind, at) = (Some(u16_at(frame, 14)? & 0xfff), u16_at(frame, 16)?, 18);
    }
    let expected = match (rules.underlay, rules.vlan, vid) {
        (false, _, vid) => vid.is_none(),
        (true, None, vid) => matches!(vid, None | Some(0)),
        (true, wanted, vid) => vid == wanted,
    };
    match kind {
        _ if !expected || is_tag(kind) => Err(Outcome::Vlan),
        IPV4 => by_ipv4(rules, frame, at),
        IPV6 => by_ipv6(rules, frame, at),
        _ => Err(Outcome::NotIp),
    }
}

fn by_ipv4(rules: Rules, frame: &[u8], at: usize) -> Result<Outcome, Outcome> {
    let header = frame.get(at..at + 20).ok_or(Outcome::Malformed)?;
    let length = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || length < 20 || frame.len() < at + length {
        return Err(Outcome::Malformed);
    }
    if u16_at(header, 6)? & 0x1fff != 0 {
        return Err(Outcome::Fragment);
    }
    by_port(rules, frame, at + length, header[9], header[16..20] == OUR_IP4)
}

fn by_ipv6(rules: Rules, frame: &[u8], at: usize) -> Result<Outcome, Outcome> {
    let header = frame.get(at..at + 40).ok_or(Outcome::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(Outcome::Malformed);
    }
    let (mut next, mut at, mut seen) = (header[6], at + 40, 0);
    while [HOP_BY_HOP, DESTINATION, FRAGMENT].contains(&next) {
        if seen == 6 {
            return Err(Outcome::ExtHeaders);
        }
        seen += 1;
        let words = if next == FRAGMENT { 1 } else { 1 + usize::from(u16_at(frame, at)? & 0xff) };
        if frame.len() < at + words * 8 {
            return Err(Outcome::Malformed);
        }
        if next == FRAGMENT && u16_at(frame, at + 2)? >> 3 != 0 {
            return Err(Outcome::Fragment);
        }
        (next, at) = (frame[at], at + words * 8);
    }
    by_port(rules, frame, at, next, header[24..40] == OUR_IP6)
}

fn by_port(rules: Rules, frame: &[u8], at: usize, protocol: u8, local: bool) -> Result<Outcome, Outcome> {
    if protocol != UDP {
        return Err(Outcome::NotUdp);
    }
    if frame.len() < at + 8 {
        return Err(Outcome::Malformed);
    }
    match u16_at(frame, at + 2)? {
        4789 if rules.underlay && local => Ok(Outcome::Vxlan),
        4789 if rules.underlay => Err(Outcome::NotLocal),
        4791 if !rules.underlay || rules.native_roce => Ok(Outcome::Roce),
        _ => Err(Outcome::Port),
    }
}
