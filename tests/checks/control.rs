//! The parsers of `wire` for ARP, ICMP, ND, IGMP and MLD, held against etherparse or against the rule written out a second
//! time.

use std::net::IpAddr;

use etherparse::{ArpPacketSlice, Icmpv6Slice, Ipv6HeaderSlice, checksum::Sum16BitWords};
use flowrail::wire::checksum::Sum;
use flowrail::wire::icmp::{self, Carried};
use flowrail::wire::ipv6;
use flowrail::wire::{arp, igmp, nd};

/// ARP messages.
pub fn arp(data: &[u8]) {
    let parsed = arp::Message::parse(data);
    let expected = ArpPacketSlice::from_slice(data).ok().and_then(|arp| {
        let is_ethernet = arp.slice()[..2] == [0, 1];
        arp.to_packet().try_eth_ipv4().ok().filter(|_| is_ethernet)
    });
    assert_eq!(parsed.is_some(), expected.is_some());
    let (Some(parsed), Some(expected)) = (parsed, expected) else { return };
    assert_eq!(parsed.operation, expected.operation.0);
    assert_eq!((parsed.sender_mac.0, parsed.target_mac.0), (expected.sender_mac, expected.target_mac));
    assert_eq!((parsed.sender_ip, parsed.target_ip), (expected.sender_ipv4, expected.target_ipv4));
    assert_eq!(parsed.encode(), data[..28]);
}

/// ICMP headers and the walk to ICMPv6. The data is an IPv6 packet, and an ICMP message.
pub fn icmp(data: &[u8]) {
    if let Some(next) = data.get(6) {
        assert_eq!(icmp::carried_v6(data, *next), carried(data, *next));
    }
    let Some(([kind, code, rest @ ..], body)) = data.split_first_chunk::<6>() else { return };
    let mut message = [&icmp::header(*kind, *code, *rest, Sum::ZERO.bytes(body)), body].concat();
    let sum = |message: &[u8]| Sum16BitWords::new().add_slice(message).ones_complement();
    assert_eq!(sum(&message), 0);
    icmp::set_kind(&mut message, !kind);
    assert_eq!((sum(&message), message[0], &message[4..8]), (0, !kind, &rest[..]));
}

/// RFC 8200 section 4, RFC 4302, 6275, 7401, 5533: every header in whose place another may stand.
fn carried(data: &[u8], first: u8) -> Carried {
    let (mut next, mut at, mut fragmented) = (first, 40, false);
    for walked in 0.. {
        match next {
            58 => return Carried::Icmp { offset: at, fragmented },
            0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => {}
            _ => return Carried::Other,
        }
        let Some(header) = data.get(at..at + 8).filter(|_| walked < 16) else { return Carried::Unclear };
        if next == 44 {
            if u16::from_be_bytes([header[2], header[3]]) >> 3 != 0 {
                return Carried::LaterFragment;
            }
            fragmented = true;
        }
        at += match next {
            44 => 8,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
    }
    unreachable!()
}

/// Neighbor discovery, as an ICMPv6 message and as an IPv6 packet.
pub fn nd(data: &[u8]) {
    if let Some(message) = nd::Message::parse(data) {
        assert!((133..=137).contains(&message.kind) && message.kind == data[0]);
        let options = &data[[8, 16, 24, 24, 40][usize::from(message.kind - 133)]..];
        assert!(options.len().is_multiple_of(8));
        assert_eq!(message.mac.is_some(), has_link_layer_address(options));
    }
    let Some((ip, message)) = nd::Message::receive(data) else { return };
    let expected = Ipv6HeaderSlice::from_slice(data).unwrap();
    let icmp = Icmpv6Slice::from_slice(&data[40..40 + usize::from(expected.payload_length())]).unwrap();
    assert_eq!((ip.src, ip.dst), (expected.source(), expected.destination()));
    assert!(icmp.is_checksum_valid(ip.src, ip.dst));
    assert_eq!((expected.hop_limit(), icmp.code_u8(), icmp.type_u8()), (255, 0, message.kind));
    assert_eq!(icmp.slice()[8..24], message.target);
    if let Some(mac) = message.mac {
        let made = nd::advertisement(ip.src, message.target, message.flags, mac);
        let icmp = Icmpv6Slice::from_slice(&made[40..]).unwrap();
        assert!(icmp.is_checksum_valid(message.target, ip.src));
    }
}

fn has_link_layer_address(mut options: &[u8]) -> bool {
    while let [kind, units, ..] = options {
        if matches!(kind, 1 | 2) {
            return true;
        }
        options = &options[usize::from(*units) * 8..];
    }
    false
}

/// Membership reports in an IP packet: only groups, and only of a packet whose checksum is right.
pub fn igmp(data: &[u8]) {
    if let Some(changes) = igmp::read_v4(data) {
        let changes: Vec<(IpAddr, bool)> = changes.collect();
        assert!(changes.iter().all(|(group, _)| group.is_ipv4() && group.is_multicast()));
        if !changes.is_empty() {
            let message =
                &data[usize::from(data[0] & 15) * 4..usize::from(u16::from_be_bytes([data[2], data[3]]))];
            assert_eq!(Sum16BitWords::new().add_slice(message).ones_complement(), 0);
            assert!(data[9] == 2 && [0x12, 0x16, 0x17, 0x22].contains(&message[0]));
        }
    }
    if let Some(changes) = igmp::read_v6(data) {
        let changes: Vec<(IpAddr, bool)> = changes.collect();
        assert!(changes.iter().all(|(group, _)| group.is_ipv6() && group.is_multicast()));
        if !changes.is_empty() {
            let ip = ipv6::Header::parse(data).unwrap();
            let upper = ipv6::upper_layer(data, ip.next_header).unwrap();
            let icmp =
                Icmpv6Slice::from_slice(&data[upper.offset..40 + usize::from(ip.payload_len)]).unwrap();
            assert!(icmp.is_checksum_valid(ip.src, ip.dst));
            assert!(ip.hop_limit == 1 && [131, 132, 143].contains(&icmp.type_u8()));
        }
    }
}
