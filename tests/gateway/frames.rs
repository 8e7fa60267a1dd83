//! Packets of stations, built by etherparse, and a short way to have them judged.

use etherparse::{
    ArpEthIpv4Packet, ArpOperation, IpHeaders, IpNumber, Ipv6Extensions, Ipv6FlowLabel, Ipv6Header,
    Ipv6RawExtHeader, PacketBuilder,
};
use flowrail::datapath::{Reply, Verdict};
use flowrail::ids::PortId;
use flowrail::wire::drop::DropReason;
use flowrail::wire::ethernet::Mac;

use crate::checks::gateway::{Input, Seen, judge, uncovered};
use crate::checks::site::mac;
use crate::checks::tenant::{GATEWAY, station};

pub const UNSPECIFIED: [u8; 16] = [0; 16];
pub const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A verdict, the packet without tunnel or tag, its VNI when it left by the uplink, and what was told.
pub struct Outcome {
    pub verdict: Verdict,
    pub vni: Option<u32>,
    pub frame: Vec<u8>,
    pub seen: Seen,
}

pub fn send(input: Input<'_>) -> Outcome {
    let mut seen = Seen::default();
    let (verdict, end) = judge(&input, &mut seen);
    let (vni, frame) = match verdict {
        Verdict::Reply(reply) => uncovered(reply.port, &end),
        _ => (None, end),
    };
    Outcome { verdict, vni, frame, seen }
}

pub fn on(port: PortId, frame: &[u8]) -> Outcome {
    send(Input::on(port, frame))
}

impl Outcome {
    /// The frame of a request that was answered.
    #[track_caller]
    pub fn answer(self) -> Vec<u8> {
        assert!(matches!(self.verdict, Verdict::Reply(Reply { refused: None, .. })), "{:?}", self.verdict);
        self.frame
    }

    /// The frame of an error.
    #[track_caller]
    pub fn error(self, reason: DropReason) -> Vec<u8> {
        let Verdict::Reply(reply) = self.verdict else { panic!("{:?}", self.verdict) };
        assert_eq!(reply.refused, Some(reason));
        self.frame
    }

    #[track_caller]
    pub fn dropped(self, reason: DropReason) -> Self {
        assert_eq!(self.verdict, Verdict::Drop(reason));
        self
    }

    #[track_caller]
    pub fn goes_on(self) -> Self {
        assert!(!matches!(self.verdict, Verdict::Drop(_) | Verdict::Reply(_)), "{:?}", self.verdict);
        self
    }
}

/// MAC of a port's station.
pub fn mac_of(port: PortId) -> Mac {
    mac(station(port).1)
}

pub fn solicited_node(addr: [u8; 16]) -> [u8; 16] {
    let mut group = ALL_NODES;
    group[11] = 1;
    group[12] = 0xff;
    group[13..].copy_from_slice(&addr[13..]);
    group
}

pub fn group_mac(group: [u8; 16]) -> Mac {
    Mac([0x33, 0x33, group[12], group[13], group[14], group[15]])
}

/// ARP of a station, to everyone.
#[derive(Clone, Copy, Debug)]
pub struct Arp {
    pub dst: Mac,
    pub src: Mac,
    pub operation: u16,
    pub sender: (Mac, [u8; 4]),
    pub target: [u8; 4],
}

impl Arp {
    pub fn request(src: Mac, ip: [u8; 4], target: [u8; 4]) -> Self {
        Self { dst: Mac::BROADCAST, src, operation: 1, sender: (src, ip), target }
    }

    pub fn frame(&self) -> Vec<u8> {
        let arp = ArpEthIpv4Packet {
            operation: ArpOperation(self.operation),
            sender_mac: self.sender.0.0,
            sender_ipv4: self.sender.1,
            target_mac: [0; 6],
            target_ipv4: self.target,
        };
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(self.src.0, self.dst.0).arp(arp.into()).write(&mut frame).unwrap();
        frame
    }
}

/// An ICMPv6 message of a station.
#[derive(Clone, Debug)]
pub struct Icmp6 {
    pub macs: (Mac, Mac),
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub hop_limit: u8,
    pub kind: u8,
    pub code: u8,
    pub rest: [u8; 4],
    pub body: Vec<u8>,
    pub extensions: Ipv6Extensions,
}

impl Icmp6 {
    /// A solicitation to the group of its target.
    pub fn solicitation(src: Mac, ip: [u8; 16], target: [u8; 16]) -> Self {
        let dst = solicited_node(target);
        let option = if ip == UNSPECIFIED { vec![] } else { option(1, src) };
        let body = [&target[..], &option].concat();
        Self::nd(135, (group_mac(dst), src), (ip, dst), body)
    }

    /// An unsolicited advertisement.
    pub fn advertisement(src: Mac, ip: [u8; 16], target: [u8; 16], mac: Mac) -> Self {
        let body = [&target[..], &option(2, mac)].concat();
        Self::nd(136, (group_mac(ALL_NODES), src), (ip, ALL_NODES), body)
    }

    pub fn nd(kind: u8, macs: (Mac, Mac), (src, dst): ([u8; 16], [u8; 16]), body: Vec<u8>) -> Self {
        let extensions = Ipv6Extensions::default();
        Self { macs, src, dst, hop_limit: 255, kind, code: 0, rest: [0; 4], body, extensions }
    }

    pub fn frame(&self) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: 0,
            next_header: IpNumber::IPV6_ICMP,
            hop_limit: self.hop_limit,
            source: self.src,
            destination: self.dst,
        };
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(self.macs.1.0, self.macs.0.0)
            .ip(IpHeaders::Ipv6(header, self.extensions.clone()))
            .icmpv6_raw(self.kind, self.code, self.rest)
            .write(&mut frame, &self.body)
            .unwrap();
        frame
    }
}

/// A link-layer address option.
pub fn option(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1], &mac.0[..]].concat()
}

/// An extension header with six bytes of padding.
pub fn padding() -> Ipv6RawExtHeader {
    Ipv6RawExtHeader::new_raw(IpNumber::IPV6_ICMP, &[1, 4, 0, 0, 0, 0]).unwrap()
}

/// UDP over IPv4 to the gateway's MAC.
pub fn udp4(src: Mac, from: [u8; 4], to: [u8; 4], ttl: u8, len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    PacketBuilder::ethernet2(src.0, GATEWAY.0)
        .ipv4(from, to, ttl)
        .udp(7, 9)
        .write(&mut frame, &payload)
        .unwrap();
    frame
}

/// UDP over IPv6 to the gateway's MAC.
pub fn udp6(src: Mac, from: [u8; 16], to: [u8; 16], ttl: u8, len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    PacketBuilder::ethernet2(src.0, GATEWAY.0)
        .ipv6(from, to, ttl)
        .udp(7, 9)
        .write(&mut frame, &payload)
        .unwrap();
    frame
}

/// Echo request to the gateway's MAC.
pub fn ping4(src: Mac, from: [u8; 4], to: [u8; 4], len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    let ip = PacketBuilder::ethernet2(src.0, GATEWAY.0).ipv4(from, to, 3);
    ip.icmpv4_echo_request(77, 5).write(&mut frame, &payload).unwrap();
    frame
}

/// Echo request to the gateway's MAC.
pub fn ping6(src: Mac, from: [u8; 16], to: [u8; 16], len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    let ip = PacketBuilder::ethernet2(src.0, GATEWAY.0).ipv6(from, to, 3);
    ip.icmpv6_echo_request(77, 5).write(&mut frame, &payload).unwrap();
    frame
}

/// The same frame with an 802.1Q tag.
pub fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// Writes the right checksum into an IPv4 header without options.
pub fn mend4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = crate::checks::oracle::sum(&[&frame[14..34]]);
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
}
