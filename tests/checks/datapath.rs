//! The whole datapath on one frame: whatever arrives, on whatever port, however it is cut into UMEM frames, only bytes
//! of the packet change, and what leaves is what the tables and the RFCs allow.

use std::ops::Range;
use std::sync::LazyLock;

use flowrail::datapath::{self, Replicate, Verdict, hint};
use flowrail::ids::PortId;
use flowrail::tables::fdb::Dest;
use flowrail::tables::snapshot::Snapshot;
use flowrail::tables::vtep::NextHop;
use flowrail::wire::packet::Packet;

use super::oracle::{self, Checksum, Tunnel};
use super::site::{self, ACCESS_MTU, NATIVE, PORTS, Site, UPLINK};

/// Ethernet and the longest IPv4 header: what holds the traffic class of an inner frame.
const INNER_HEADERS: usize = 74;

/// Old data.
static OLD: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=255).cycle().skip(0x5a).take(512).collect());

/// A frame, how it lies in memory, and where it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub site: Site,
    pub port: PortId,
    /// Bytes free in front of the packet.
    pub headroom: usize,
    /// Bytes in the first UMEM frame.
    pub head_len: usize,
    /// Bytes in each further one.
    pub piece: usize,
    pub frame: &'a [u8],
}

impl<'a> Input<'a> {
    /// Two bytes of choices, two of memory layout, and the frame. `scripts/fuzz` writes the same for its first inputs.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let ([low, high, head, piece], frame) = data.split_first_chunk()?;
        let units = |byte: u8, default| if byte == 0 { default } else { usize::from(byte) * 16 };
        Some(Self {
            site: Site::from_bits(u16::from_le_bytes([*low, high & 1])),
            port: PortId(u16::from(high >> 1 & 7)),
            headroom: if high & 0x10 == 0 { 256 } else { usize::from(high >> 5) * 16 },
            head_len: units(*head, 3840).min(frame.len()),
            piece: units(*piece, 4096),
            frame,
        })
    }

    /// A frame on a port, as the kernel delivers it.
    pub fn whole(site: Site, port: PortId, frame: &'a [u8]) -> Self {
        Self { site, port, headroom: 256, head_len: frame.len(), piece: 4096, frame }
    }

    /// Whether the first UMEM frame holds the headers of the inner frame at `start`.
    fn has_headers_of(&self, start: usize) -> bool {
        self.head_len == self.frame.len() || self.head_len >= start + INNER_HEADERS
    }
}

/// A fuzz input, see [`Input::parse`].
pub fn check(data: &[u8]) {
    if let Some(input) = Input::parse(data) {
        let _ = judge(&input);
    }
}

/// Runs the datapath and checks all that is known of its answer. Returns the verdict and the packet after it.
pub fn judge(input: &Input<'_>) -> (Verdict, Vec<u8>) {
    let tables = input.site.tables();
    let head = &input.frame[..input.head_len];
    // A hint may be wrong, but it must come to an end.
    hint::fetch(&tables, input.port, std::iter::once(head), |_| {});
    let (verdict, end) = receive(&tables, input);
    let elsewhere = Input { piece: input.piece / 2 + 1, ..*input };
    assert_eq!(receive(&tables, &elsewhere), (verdict, end.clone()), "it matters where UMEM frames end");
    match input.port {
        UPLINK => from_underlay(input, verdict, &end),
        NATIVE if input.site.native => match verdict {
            Verdict::Forward(port) => {
                assert_eq!(port, UPLINK);
                completed(input.frame, &end);
            }
            end => assert!(matches!(end, Verdict::Drop(_)), "{end:?}"),
        },
        port if Site::vni(port).is_some() => from_overlay(&tables, input, verdict, &end),
        _ => assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}"),
    }
    (verdict, end)
}

fn receive(tables: &Snapshot, input: &Input<'_>) -> (Verdict, Vec<u8>) {
    run(input, |packet| datapath::receive(tables, &mut (), input.port, packet))
}

/// Lets `decide` work on a packet laid out as `input` says, and sees that it kept to the packet's bytes.
pub fn run(input: &Input<'_>, decide: impl FnOnce(&mut Packet<'_>) -> Verdict) -> (Verdict, Vec<u8>) {
    let (head, rest) = input.frame.split_at(input.head_len);
    let tail: Vec<&[u8]> = rest.chunks(input.piece).collect();
    // What an earlier packet left around this one.
    let (before, behind) = (&OLD[..input.headroom], &OLD[..128]);
    let mut buffer = [before, head, behind].concat();
    let mut packet = Packet::new(&mut buffer, input.headroom, head.len(), &tail);
    let verdict = decide(&mut packet);
    let layout = packet.layout();
    let range = layout.start..layout.start + layout.head_len;
    let untouched = range.start.min(before.len());
    assert_eq!(buffer[..untouched], before[..untouched], "bytes in front of the packet");
    let end = range.end.max(before.len() + head.len());
    let old = &behind[end - before.len() - head.len()..];
    // A packet that was padded and cut again leaves zeros.
    let left = buffer[end..].iter().zip(old).enumerate().filter(|(i, (now, _))| *i >= 60 || **now != 0);
    left.for_each(|(i, (now, then))| assert_eq!(now, then, "{i} bytes behind the packet"));
    (verdict, [&buffer[range], &rest[..layout.tail_len]].concat())
}

// From the underlay.

fn from_underlay(input: &Input<'_>, verdict: Verdict, end: &[u8]) {
    match verdict {
        Verdict::Forward(NATIVE) => {
            assert!(input.site.native && oracle::tunnel(input.frame, input.site.vlan).is_none());
            assert_eq!(end, input.frame);
        }
        Verdict::Forward(port) => {
            assert!(end.len() <= usize::from(ACCESS_MTU) + 14);
            decapsulated(input, Site::vni(port).unwrap(), end);
        }
        Verdict::Replicate(to) => {
            assert!(to.local_only && to.from == UPLINK);
            decapsulated(input, to.vni.get(), end);
        }
        Verdict::Unresolved(..) => panic!("a packet from the underlay waits to go back there"),
        Verdict::Reply(_) => panic!("nobody here answers"),
        Verdict::Punt(_) | Verdict::Drop(_) => {}
    }
}

/// `end` is the inner frame of what arrived, which this network may have.
fn decapsulated(input: &Input<'_>, vni: u32, end: &[u8]) {
    let tunnel = oracle::tunnel(input.frame, input.site.vlan).expect("no VXLAN, but forwarded");
    assert_eq!(tunnel.vni, vni, "another network's packet");
    may_send(&input.site, &tunnel);
    // A first UMEM frame holds more than any short packet, so that one which goes on in a second frame is never padded.
    let in_one_frame = tunnel.start + tunnel.inner.len() <= input.head_len;
    assert_eq!(end.len(), if in_one_frame { tunnel.inner.len().max(60) } else { tunnel.inner.len() });
    assert!(end[tunnel.inner.len()..].iter().all(|byte| *byte == 0), "padding shows old data");
    if input.has_headers_of(tunnel.start) {
        marked(&input.site, tunnel.tos, &tunnel.inner, &end[..tunnel.inner.len()]);
    }
}

fn may_send(site: &Site, tunnel: &Tunnel) {
    let ip = |host| if site.v6 { site::ip6(host) } else { site::ip4(host) };
    let ours = [site::ip4(1), site::ip6(1)];
    assert!(ours.contains(&tunnel.dst) && !ours.contains(&tunnel.src), "{} to {}", tunnel.src, tunnel.dst);
    match tunnel.checksum {
        Checksum::Right | Checksum::Partial => {}
        Checksum::Zero => assert!(tunnel.src.is_ipv4() || site.accept_udp6_zero_checksum),
        Checksum::Wrong => panic!("the outer UDP checksum is wrong"),
    }
    assert!(!tunnel.src.is_multicast() && !tunnel.src.is_unspecified() && !tunnel.src.is_loopback());
    let hosts: &[u8] = if tunnel.vni == site::BLUE_VNI { &[2, 3, 4] } else { &[2] };
    let member = hosts.iter().any(|host| ip(*host) == tunnel.src);
    assert!(member || site.accept_unknown_vtep, "{} may not send {}", tunnel.src, tunnel.vni);
}

/// The frame is the inner one with the traffic class that RFC 6040 and the configuration ask for, and a checksum that is
/// as right as before.
fn marked(site: &Site, outer_tos: u8, inner: &[u8], end: &[u8]) {
    let mut expected = inner.to_vec();
    if let Some(old) = traffic_class(inner) {
        let ecn = rfc_6040(old & 3, outer_tos & 3).expect("CE was lost");
        let tos = if site.uniform { outer_tos & 0xfc } else { old & 0xfc } | ecn;
        set_traffic_class(&mut expected, tos);
        if inner[12] == 8 && tos != old {
            let header = |frame: &[u8]| oracle::sum(&[&frame[14..14 + usize::from(frame[14] & 15) * 4]]);
            assert_eq!(header(inner) == 0, header(end) == 0, "the IPv4 checksum was repaired or broken");
            expected[24..26].copy_from_slice(&end[24..26]);
        }
    } else if matches!(inner[12..14], [8, 0] | [0x86, 0xdd]) {
        assert!(outer_tos & 1 == 0, "a mark was lost");
    }
    assert_eq!(end, expected);
}

/// RFC 6040 figure 4; 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE. `None` is a drop.
fn rfc_6040(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (0, 3) => None,
        (1 | 2, 3) => Some(3),
        (2, 1) => Some(1),
        (inner, _) => Some(inner),
    }
}

/// TOS byte or traffic class of a frame with a whole IP header.
fn traffic_class(frame: &[u8]) -> Option<u8> {
    match (frame.get(12..14)?, frame.get(14..)?) {
        ([8, 0], ip @ [first, tos, ..]) => {
            let len = usize::from(first & 15) * 4;
            (first >> 4 == 4 && len >= 20 && ip.len() >= len).then_some(*tos)
        }
        ([0x86, 0xdd], ip @ [first, second, ..]) => {
            (first >> 4 == 6 && ip.len() >= 40).then_some(first << 4 | second >> 4)
        }
        _ => None,
    }
}

fn set_traffic_class(frame: &mut [u8], tos: u8) {
    if frame[12] == 8 {
        frame[15] = tos;
    } else {
        frame[14] = frame[14] & 0xf0 | tos >> 4;
        frame[15] = frame[15] & 0x0f | tos << 4;
    }
}

// From an access port.

fn from_overlay(tables: &Snapshot, input: &Input<'_>, verdict: Verdict, end: &[u8]) {
    let vni = Site::vni(input.port).unwrap();
    match verdict {
        Verdict::Replicate(to @ Replicate { from, local_only, .. }) => {
            assert!(to.vni.get() == vni && from == input.port && !local_only);
            completed(input.frame, end);
            let receivers = tables.network_of(to.vni).unwrap().flood.receivers(None, false);
            for dest in receivers.iter().filter(|dest| **dest != Dest::Port(from)) {
                let copy = Input { frame: end, head_len: input.head_len.min(end.len()), ..*input };
                let (verdict, end) =
                    run(&copy, |packet| datapath::deliver(tables, &mut (), to.vni, from, *dest, packet));
                assert!(!matches!(verdict, Verdict::Replicate(_)), "a copy is copied");
                left(tables, &copy, verdict, &end);
            }
        }
        verdict => left(tables, input, verdict, end),
    }
}

/// A tenant's packet with one destination.
fn left(tables: &Snapshot, input: &Input<'_>, verdict: Verdict, end: &[u8]) {
    let vni = Site::vni(input.port).unwrap();
    match verdict {
        Verdict::Forward(UPLINK) => encapsulated(input, vni, end),
        Verdict::Forward(port) => {
            assert!(port != input.port && Site::vni(port) == Some(vni), "left by {port:?}");
            assert!(end.len() <= usize::from(ACCESS_MTU) + 14);
            completed(input.frame, end);
        }
        Verdict::Unresolved(of, vtep) => {
            assert_eq!(of.get(), vni);
            assert_eq!(tables.vteps.get(vtep).unwrap().next_hop, NextHop::Unresolved);
            completed(input.frame, end);
        }
        Verdict::Punt(reason) => panic!("a tenant's packet is the kernel's: {reason}"),
        Verdict::Reply(_) => panic!("nobody here answers"),
        Verdict::Replicate(_) => unreachable!("handled by the caller"),
        Verdict::Drop(_) => {}
    }
}

/// `end` is the tenant's packet behind sound outer headers of this network, and arrives as it was sent.
fn encapsulated(input: &Input<'_>, vni: u32, end: &[u8]) {
    let site = &input.site;
    let outer = site.outer_len();
    assert!(PORTS > input.port.0 && end.len() == outer + input.frame.len());
    assert!(end.len() - 14 - if site.vlan.is_some() { 4 } else { 0 } <= usize::from(site.mtu));
    completed(input.frame, &end[outer..]);
    oracle::sound_outer(end);
    let tunnel = oracle::tunnel(end, site.vlan).expect("what left is no VXLAN");
    assert_eq!(tunnel.vni, vni);
    let host = [2, 3].into_iter().find(|host| [site::ip4(*host), site::ip6(*host)].contains(&tunnel.dst));
    let host = host.expect("sent to a peer that does not exist");
    assert_eq!(tunnel.src, if site.v6 { site::ip6(1) } else { site::ip4(1) });
    if input.has_headers_of(0) {
        let inner_tos = traffic_class(input.frame).unwrap_or(0);
        let dscp = if site.set_dscp { site::SET_DSCP << 2 } else { inner_tos & 0xfc };
        assert_eq!(tunnel.tos, dscp | inner_tos & 3, "outer traffic class");
    }

    let peer = site.tables_of_peer(host);
    let (verdict, arrived) = receive(&peer, &Input::whole(*site, UPLINK, end));
    match verdict {
        Verdict::Forward(port) => assert_eq!(Site::vni(port), Some(vni)),
        Verdict::Replicate(to) => assert_eq!((to.vni.get(), to.local_only), (vni, true)),
        end => panic!("the peer does not take it: {end:?}"),
    }
    assert_eq!(arrived.len(), tunnel.inner.len().max(60));
    marked(site, tunnel.tos, &tunnel.inner, &arrived[..tunnel.inner.len()]);
}

/// `end` is what the tenant sent, but for a TCP or UDP checksum that was a bare pseudo-header sum and is right now.
fn completed(sent: &[u8], end: &[u8]) {
    assert_eq!(sent.len(), end.len());
    if sent == end {
        return;
    }
    let (l4, field, pseudo) = layer4(sent).expect("changed, without a checksum to complete");
    let different: Vec<usize> = (0..sent.len()).filter(|i| sent[*i] != end[*i]).collect();
    assert!(different.iter().all(|i| (field..field + 2).contains(i)), "changed: {different:?}");
    let pieces = [&pseudo[..], &end[l4.clone()]];
    assert_eq!(oracle::sum(&pieces), 0, "completed, and wrong");
    let bare = !u16::from_ne_bytes([sent[field], sent[field + 1]]);
    assert_eq!(oracle::sum(&[&pseudo]), bare, "completed, though it was not a pseudo-header sum");
}

/// TCP or UDP of a frame: its range, the offset of the checksum, and the pseudo-header.
fn layer4(frame: &[u8]) -> Option<(Range<usize>, usize, Vec<u8>)> {
    let ip = frame.get(14..)?;
    let (protocol, start, end, addresses) = if frame[12] == 8 {
        let end = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        (ip[9], usize::from(ip[0] & 15) * 4, end, &ip[12..20])
    } else {
        let (mut next, mut at) = (ip[6], 40);
        while [0, 44, 60].contains(&next) {
            let len = if next == 44 { 8 } else { 8 * (1 + usize::from(ip[at + 1])) };
            (next, at) = (ip[at], at + len);
        }
        (next, at, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])), &ip[8..40])
    };
    let field = match protocol {
        6 => 16,
        17 => 6,
        _ => return None,
    };
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, protocol]);
    pseudo.extend(u16::try_from(end - start).unwrap().to_be_bytes());
    Some((14 + start..14 + end, 14 + start + field, pseudo))
}
