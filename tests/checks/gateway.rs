//! What a tenant's gateway answers, and what its ports let through: whatever arrives, an answer is a whole packet with right
//! checksums for whoever asked, and a guarded port's packet goes on only if all that it claims is the port's. Read a second
//! time here, by etherparse and by hand.

use std::net::IpAddr;

use etherparse::{Ipv6Extensions, Ipv6ExtensionsSlice, NetSlice, SlicedPacket, TransportSlice};
use flowrail::datapath::{self, Answer, GroupChange, Learned, Observer, Reply, Step, Verdict};
use flowrail::ids::PortId;
use flowrail::tables::network::link_local;
use flowrail::wire::drop::Note;
use flowrail::wire::ethernet::Mac;

use super::datapath::{Input as Cut, run};
use super::oracle;
use super::site::{Site, mac};
use super::tenant::{
    self, BLUE_VLAN, BOUND, GATEWAY, GREEN, PEER_ROUTER, PORTS, ROUTER, TRUNK, UPLINK, v4, v6,
};

/// A frame where it arrives; on the uplink, the frame inside VXLAN.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub port: PortId,
    /// VNI on the uplink.
    pub vni: u32,
    /// The underlay is IPv6.
    pub over_v6: bool,
    /// Bytes in the first UMEM frame.
    pub head_len: usize,
    pub frame: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn on(port: PortId, frame: &'a [u8]) -> Self {
        Self { port, vni: tenant::L3VNI, over_v6: false, head_len: usize::MAX, frame }
    }
}

/// What the datapath told, beside its verdict.
#[derive(Debug, Default)]
pub struct Seen {
    pub notes: Vec<Note>,
    pub answers: Vec<Answer>,
    pub learned: Vec<Learned>,
    pub groups: Vec<GroupChange>,
    pub silent: bool,
}

impl Observer for Seen {
    fn step(&mut self, step: Step) {
        if let Step::Answer(answer) = step {
            self.answers.push(answer);
        }
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
    fn learn(&mut self, seen: Learned) {
        self.learned.push(seen);
    }
    fn group(&mut self, change: GroupChange) {
        self.groups.push(change);
    }
    fn may_send_error(&mut self) -> bool {
        !self.silent
    }
}

/// A byte of choices, one for the memory layout, and a frame.
pub fn check(data: &[u8]) {
    let Some(([choice, cut], frame)) = data.split_first_chunk() else { return };
    let vni = if choice & 8 == 0 { tenant::L3VNI } else { tenant::BLUE_VNI };
    let head_len = if *cut == 0 { usize::MAX } else { usize::from(*cut) * 16 };
    let port = PortId(u16::from(choice & 7) % PORTS);
    let input = Input { vni, over_v6: choice & 0x10 != 0, head_len, ..Input::on(port, frame) };
    let _ = judge(&input, &mut Seen::default());
}

/// Runs the datapath and checks what it answers and lets through. Returns the verdict and the packet after it.
pub fn judge(input: &Input<'_>, seen: &mut Seen) -> (Verdict, Vec<u8>) {
    let tables = tenant::tables(input.over_v6);
    let arrives =
        if input.port == UPLINK { wrap(input.vni, input.over_v6, input.frame) } else { input.frame.to_vec() };
    let whole = Cut::whole(Site::from_bits(0), input.port, &arrives);
    let cut = Cut { head_len: input.head_len.min(arrives.len()), ..whole };
    let (verdict, end) = run(&cut, |packet| datapath::receive(&tables, seen, input.port, packet));
    match verdict {
        Verdict::Reply(reply) => answered(input, reply, &end, seen),
        _ => assert!(seen.answers.is_empty() || !matches!(verdict, Verdict::Forward(_))),
    }
    if !matches!(verdict, Verdict::Drop(_)) && matches!(input.port, BOUND | GREEN) {
        let (subnet, host) = tenant::station(input.port);
        claims(input.frame, subnet, host);
    }
    (verdict, end)
}

/// VXLAN as peer 2 sends it.
fn wrap(vni: u32, over_v6: bool, inner: &[u8]) -> Vec<u8> {
    let [_, v0, v1, v2] = vni.to_be_bytes();
    let payload = [&[8, 0, 0, 0, v0, v1, v2, 0], inner].concat();
    let link = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 2, 2], [2, 0, 0, 0, 1, 1]);
    let mut frame = Vec::new();
    let host = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let outer =
        if over_v6 { link.ipv6(host(2), host(1), 64) } else { link.ipv4([192, 0, 2, 2], [192, 0, 2, 1], 64) };
    outer.udp(50000, 4789).write(&mut frame, &payload).unwrap();
    frame
}

// Answers.

/// The answer without what the port adds: a tunnel or a VLAN tag.
pub fn uncovered(port: PortId, end: &[u8]) -> (Option<u32>, Vec<u8>) {
    match port {
        UPLINK => {
            oracle::sound_outer(end);
            let tunnel = oracle::tunnel(end, None).expect("no VXLAN");
            (Some(tunnel.vni), tunnel.inner)
        }
        TRUNK if end[12..14] == [0x81, 0] => {
            assert_eq!(end[14..16], BLUE_VLAN.to_be_bytes());
            (Some(tenant::BLUE_VNI), [&end[..12], &end[16..]].concat())
        }
        _ => (None, end.to_vec()),
    }
}

fn answered(input: &Input<'_>, reply: Reply, end: &[u8], seen: &Seen) {
    assert_eq!(reply.port, input.port, "the answer leaves where nobody asked");
    assert_eq!(seen.answers.len(), 1, "{:?}", seen.answers);
    assert_eq!(seen.notes.contains(&Note::IcmpSent), reply.refused.is_some());
    let (_, answer) = uncovered(reply.port, end);
    let asked = untagged(input.port, input.frame);
    let asker = Mac(asked[6..12].try_into().unwrap());
    let (dst, src) = (Mac(answer[..6].try_into().unwrap()), Mac(answer[6..12].try_into().unwrap()));
    let known = [GATEWAY, ROUTER, mac(5), mac(6), mac(7), mac(8), mac(4), mac(tenant::KNOWN)];
    assert!(known.contains(&src) && (src != asker || input.port == UPLINK), "from {src}");
    if input.port == UPLINK {
        assert!([PEER_ROUTER, mac(tenant::KNOWN)].contains(&dst), "to {dst}");
    } else {
        let everyone = Mac([0x33, 0x33, 0, 0, 0, 1]);
        assert!(dst == asker || dst == everyone && answer[38..54] == everyone_v6(), "to {dst}, not {asker}");
    }
    let padded = if input.port == UPLINK { 0 } else { 60 };
    assert_eq!(answer.len(), sound(&answer).max(padded), "the frame has another length than its packet");
    if let Some(Answer::TimeExceeded | Answer::Unreachable | Answer::TooBig(_)) = seen.answers.first() {
        quotes(&asked, &answer);
    }
}

fn everyone_v6() -> [u8; 16] {
    "ff02::1".parse::<std::net::Ipv6Addr>().unwrap().octets()
}

fn untagged(port: PortId, frame: &[u8]) -> Vec<u8> {
    let tagged = port == TRUNK && matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8] | [0x91, 0]);
    if tagged { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}

/// Every length and checksum is right. Returns the length of the frame up to the end of its packet.
pub fn sound(frame: &[u8]) -> usize {
    let sliced = SlicedPacket::from_ethernet(frame).expect("etherparse refuses it");
    let len = match sliced.net.as_ref().expect("no packet") {
        NetSlice::Arp(arp) => {
            assert_eq!(arp.slice()[..8], [0, 1, 8, 0, 6, 4, 0, 2], "no ARP reply");
            return 14 + 28;
        }
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(header.time_to_live, 64);
            usize::from(header.total_len)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            let hop_limit = if frame[54] == 136 { 255 } else { 64 };
            assert_eq!(header.hop_limit, hop_limit);
            40 + usize::from(header.payload_length)
        }
    };
    match (&sliced.net, &sliced.transport) {
        (_, Some(TransportSlice::Icmpv4(icmp))) => assert_eq!(oracle::sum(&[icmp.slice()]), 0),
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
            assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
        }
        other => panic!("no answer: {other:?}"),
    }
    14 + len
}

/// An error holds as much of the packet as may be (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 c).
fn quotes(asked: &[u8], answer: &[u8]) {
    let (headers, max, len) = match asked[12..14] {
        [8, 0] => (42, 14 + 576, usize::from(u16::from_be_bytes([asked[16], asked[17]]))),
        _ => (62, 14 + 1280, 40 + usize::from(u16::from_be_bytes([asked[18], asked[19]]))),
    };
    let quoted = len.min(max - headers);
    let mut quote = answer[headers..headers + quoted].to_vec();
    // A checksum that was left to a NIC was completed before anything else.
    for (i, byte) in quote.iter_mut().enumerate().filter(|(i, _)| *i >= 20) {
        *byte =
            if answer[headers + i] == asked[14 + i] || is_checksum(asked, i) { asked[14 + i] } else { *byte };
    }
    assert_eq!(quote, asked[14..14 + quoted]);
    assert!(answer.len() <= max);
}

/// Whether a byte of an IP packet is the checksum of TCP or UDP, in a packet without extension headers.
fn is_checksum(frame: &[u8], at: usize) -> bool {
    let (protocol, l4) = match frame[12..14] {
        [8, 0] => (frame[23], usize::from(frame[14] & 15) * 4),
        _ => (frame[20], 40),
    };
    match protocol {
        6 => (l4 + 16..l4 + 18).contains(&at),
        17 => (l4 + 6..l4 + 8).contains(&at),
        _ => false,
    }
}

// Claims.

/// All that the frame says of its sender is true of this station.
fn claims(frame: &[u8], subnet: u8, host: u8) {
    let own = mac(host);
    assert_eq!(frame[6..12], own.0, "source MAC");
    let l3 = &frame[14..];
    match frame[12..14] {
        [8, 0] => claims_v4(l3, v4(subnet, host)),
        [8, 6] => claims_arp(l3, own, v4(subnet, host), v4(subnet, 1)),
        [0x86, 0xdd] => {
            claims_v6(l3, own, [v6(subnet, host), link_local(own)], [v6(subnet, 1), link_local(GATEWAY)])
        }
        _ => {}
    }
}

fn claims_v4(l3: &[u8], own: [u8; 4]) {
    let ip = etherparse::Ipv4HeaderSlice::from_slice(l3);
    // A total length that is too short is a broken packet with a source all the same.
    let source: [u8; 4] = l3[12..16].try_into().unwrap();
    let dhcp = || {
        let ip = ip.unwrap();
        let ports = &l3[ip.slice().len()..][..4];
        ip.protocol().0 == 17 && !ip.is_fragmenting_payload() && ports == [0, 68, 0, 67]
    };
    assert!(source == own || source == [0; 4] && dhcp(), "source {source:?}");
}

fn claims_arp(l3: &[u8], own_mac: Mac, own: [u8; 4], gateway: [u8; 4]) {
    let arp = etherparse::ArpPacketSlice::from_slice(l3).unwrap().to_packet().try_eth_ipv4().unwrap();
    assert_eq!(arp.sender_mac, own_mac.0, "ARP sender MAC");
    let probe = arp.sender_ipv4 == [0; 4] && arp.operation.0 == 1;
    assert!(arp.sender_ipv4 == own || probe && [own, gateway].contains(&arp.target_ipv4), "{arp:?}");
}

fn claims_v6(l3: &[u8], own_mac: Mac, own: [[u8; 16]; 2], gateway: [[u8; 16]; 2]) {
    let ip = etherparse::Ipv6HeaderSlice::from_slice(l3).unwrap();
    let source = ip.source();
    let end = l3.len().min(40 + usize::from(ip.payload_length()));
    let is_own = |addr: [u8; 16]| own.contains(&addr);
    let first = ip.next_header();
    let icmp = match Ipv6ExtensionsSlice::from_slice(first, &l3[40..end]) {
        Ok((extensions, etherparse::IpNumber::IPV6_ICMP, rest)) => Some((extensions, rest)),
        _ => None,
    };
    let Some((extensions, icmp)) = icmp else {
        assert!(is_own(source), "source {}", IpAddr::from(source));
        return;
    };
    let fragment =
        Ipv6Extensions::from_slice(first, &l3[40..]).ok().and_then(|(headers, ..)| headers.fragment);
    if extensions.is_fragmenting_payload()
        && fragment.as_ref().is_some_and(|f| f.fragment_offset.value() != 0)
    {
        assert!(is_own(source));
        return;
    }
    let kind = icmp[0];
    if (133..=137).contains(&kind) {
        assert!(fragment.is_none(), "RFC 6980: neighbor discovery in a fragment");
    }
    let target = || <[u8; 16]>::try_from(&icmp[8..24]).unwrap();
    match kind {
        131 | 132 | 143 if source == [0; 16] => {}
        133 if source == [0; 16] => option_macs(&icmp[8..], own_mac),
        133 => option_macs(&icmp[8..], own_mac),
        135 if source == [0; 16] => {
            assert!(
                is_own(target()) || gateway.contains(&target()),
                "a probe for {}",
                IpAddr::from(target())
            );
            option_macs(&icmp[24..], own_mac);
            return;
        }
        135 => option_macs(&icmp[24..], own_mac),
        136 => {
            assert!(is_own(target()), "advertises {}", IpAddr::from(target()));
            option_macs(&icmp[24..], own_mac);
        }
        134 | 137 => panic!("a router behind a guarded port"),
        _ => {}
    }
    let nameless = source == [0; 16] && [131, 132, 133, 143].contains(&kind);
    assert!(is_own(source) || nameless, "source {}", IpAddr::from(source));
}

fn option_macs(mut options: &[u8], own: Mac) {
    while let [kind, units @ (1..=u8::MAX), ..] = options {
        if matches!(kind, 1 | 2) {
            assert_eq!(options[2..8], own.0, "link-layer address option");
        }
        options = &options[usize::from(*units) * 8..];
    }
    assert!(options.is_empty());
}
