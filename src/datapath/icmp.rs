//! ICMP and ICMPv6 errors: made of the packet that caused them, in place, and sent back the way it came.

use std::net::{IpAddr, Ipv6Addr};

use super::gateway::{self, TTL};
use super::route::Ingress;
use super::verdict::{Answer, Observer, Step, Verdict};
use crate::tables::network::link_local;
use crate::tables::snapshot::Snapshot;
use crate::wire::checksum::{Sum, pseudo_header};
use crate::wire::drop::{DropReason, Note};
use crate::wire::ethernet::{self, EtherType};
use crate::wire::icmp::{self, Carried};
use crate::wire::packet::Packet;
use crate::wire::{ipv4, ipv6};

/// What the source is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Type 11 code 0; ICMPv6 type 3 code 0.
    TimeExceeded,
    /// No route: type 3 code 0; ICMPv6 type 1 code 0.
    NetUnreachable,
    /// No such station: type 3 code 1; ICMPv6 type 1 code 3.
    HostUnreachable,
    /// Type 3 code 4; ICMPv6 type 2: the packet may have this many bytes. Said about an IPv4 packet without DF as well: a
    /// VTEP never fragments, so this is all that a tenant whose packets are too long ever hears.
    TooBig(u16),
}

/// Longest error, with its IP header: what any host takes in one piece (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 c).
const MAX_LEN_V4: usize = 576;
const MAX_LEN_V6: usize = 1280;

/// Headers of an error, Ethernet's included.
const HEADERS_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + icmp::HEADER_LEN;
const HEADERS_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + icmp::HEADER_LEN;

/// Precedence 6, internetwork control, as RFC 1812 section 4.3.2.5 asks of errors; the same in IPv6, which has no rule.
const TOS: u8 = 0xc0;

/// Drops the packet for `reason` and, as far as RFC 1122, RFC 4443 and the rate allow, tells its source.
pub fn error<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    error: Error,
    reason: DropReason,
    packet: &mut Packet<'_>,
) -> Verdict {
    let cause = cause(packet.head()).and_then(|cause| Some((cause, source(t, from, &cause)?)));
    let Some((cause, source)) = cause else { return Verdict::Drop(reason) };
    if !o.may_send_error() {
        o.note(Note::IcmpSuppressed);
        return Verdict::Drop(reason);
    }
    let made = match (source, cause.src) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => make_v4(error, (src.octets(), dst.octets()), cause.len, packet),
        (IpAddr::V6(src), IpAddr::V6(dst)) => make_v6(error, (src.octets(), dst.octets()), cause.len, packet),
        _ => None,
    };
    let sent = made.and_then(|()| gateway::send_back(t, o, from, cause.src, Some(reason), packet));
    let Some(verdict @ Verdict::Reply(_)) = sent else { return Verdict::Drop(reason) };
    o.note(Note::IcmpSent);
    o.step(Step::Answer(match error {
        Error::TimeExceeded => Answer::TimeExceeded,
        Error::NetUnreachable | Error::HostUnreachable => Answer::Unreachable,
        Error::TooBig(mtu) => Answer::TooBig(mtu),
    }));
    verdict
}

/// A packet that may be answered with an error.
#[derive(Clone, Copy)]
struct Cause {
    src: IpAddr,
    /// Length of the IP packet in bytes.
    len: usize,
}

/// RFC 1122 section 3.2.2, RFC 4443 section 2.4 e: never about an error, a later fragment, a packet to a group, or one whose
/// source is no single station.
fn cause(head: &[u8]) -> Option<Cause> {
    let eth = ethernet::Header::parse(head).filter(|eth| !eth.dst.is_group())?;
    let l3 = head.get(ethernet::HEADER_LEN..)?;
    match eth.ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(l3).filter(|ip| ip.fragment_offset == 0)?;
            if ip.protocol == icmp::PROTOCOL_V4 && icmp::is_error_v4(*l3.get(ip.header_len)?) {
                return None;
            }
            let stations = ipv4::is_valid_source(ip.src) && ipv4::is_valid_source(ip.dst);
            stations.then_some(Cause { src: ip.src.into(), len: usize::from(ip.total_len) })
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(l3)?;
            match icmp::carried_v6(l3, ip.next_header) {
                Carried::Icmp { offset, .. } if icmp::is_error_v6(*l3.get(offset)?) => return None,
                Carried::LaterFragment | Carried::Unclear => return None,
                Carried::Icmp { .. } | Carried::Other => {}
            }
            let stations = ipv6::is_valid_source(ip.src) && ipv6::is_valid_source(ip.dst);
            let len = ipv6::HEADER_LEN + usize::from(ip.payload_len);
            stations.then_some(Cause { src: ip.src.into(), len })
        }
        _ => None,
    }
}

/// Who says it: the gateway of the network that the packet came from, or the VRF's first gateway.
fn source(t: &Snapshot, from: Ingress, cause: &Cause) -> Option<IpAddr> {
    let Some(id) = from.network else {
        let [v4, v6] = t.vrf(from.vrf)?.own;
        return if cause.src.is_ipv4() { v4 } else { v6 };
    };
    let gateway = t.network(id)?.gateway.as_deref()?;
    match cause.src {
        IpAddr::V4(_) => gateway.v4.first().copied().map(IpAddr::V4),
        IpAddr::V6(_) => {
            let own = gateway.v6.first().copied();
            Some(own.unwrap_or(Ipv6Addr::from(link_local(gateway.mac))).into())
        }
    }
}

fn make_v4(error: Error, (src, dst): ([u8; 4], [u8; 4]), len: usize, packet: &mut Packet<'_>) -> Option<()> {
    let (kind, code, mtu) = match error {
        Error::TimeExceeded => (icmp::TIME_EXCEEDED, 0, 0),
        Error::NetUnreachable => (icmp::UNREACHABLE, 0, 0),
        Error::HostUnreachable => (icmp::UNREACHABLE, 1, 0),
        // RFC 1191 section 4: the MTU stands in the low half of what was unused.
        Error::TooBig(mtu) => (icmp::UNREACHABLE, 4, mtu),
    };
    let headers_len = HEADERS_V4 - ethernet::HEADER_LEN;
    let quoted = len.min(MAX_LEN_V4 - headers_len);
    let quote = packet.sum(ethernet::HEADER_LEN, quoted)?;
    let header = icmp::header(kind, code, u32::from(mtu).to_be_bytes(), quote);
    let total_len = u16::try_from(headers_len + quoted).ok()?;
    let ip = ipv4::encode(TOS, total_len, TTL, icmp::PROTOCOL_V4, src, dst);
    wrap::<HEADERS_V4>(&ip, &header, quoted, packet)
}

fn make_v6(
    error: Error,
    (src, dst): ([u8; 16], [u8; 16]),
    len: usize,
    packet: &mut Packet<'_>,
) -> Option<()> {
    let (kind, code, mtu) = match error {
        Error::TimeExceeded => (icmp::TIME_EXCEEDED_V6, 0, 0),
        Error::NetUnreachable => (icmp::UNREACHABLE_V6, 0, 0),
        Error::HostUnreachable => (icmp::UNREACHABLE_V6, 3, 0),
        Error::TooBig(mtu) => (icmp::TOO_BIG_V6, 0, mtu),
    };
    let quoted = len.min(MAX_LEN_V6 + ethernet::HEADER_LEN - HEADERS_V6);
    let quote: Sum = packet.sum(ethernet::HEADER_LEN, quoted)?;
    let payload_len = u16::try_from(icmp::HEADER_LEN + quoted).ok()?;
    let pseudo = pseudo_header(&src, &dst, icmp::PROTOCOL_V6, u32::from(payload_len));
    let header = icmp::header(kind, code, u32::from(mtu).to_be_bytes(), quote.plus(pseudo));
    let ip = ipv6::encode(TOS, payload_len, icmp::PROTOCOL_V6, TTL, src, dst);
    wrap::<HEADERS_V6>(&ip, &header, quoted, packet)
}

/// Puts the headers of an error between the Ethernet header and the first `quoted` bytes of the IP packet.
fn wrap<const N: usize>(ip: &[u8], icmp: &[u8], quoted: usize, packet: &mut Packet<'_>) -> Option<()> {
    let eth = *packet.head().first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let mut headers = [0; N];
    let bytes = eth.iter().chain(ip).chain(icmp);
    headers.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    packet.truncate(ethernet::HEADER_LEN + quoted);
    if !packet.pop_front(ethernet::HEADER_LEN) {
        return None;
    }
    packet.push_front(&headers).ok()
}
