//! What the anycast gateway answers itself: ARP and ND for its addresses and for known stations, and ping. And the way
//! back that an answer takes.

use std::net::IpAddr;

use super::inner::{self, Inner};
use super::route::{self, Ingress, Ip};
use super::verdict::{Answer, Learned, Observer, Reply, Step, Verdict};
use super::{encap, to_network_port};
use crate::ids::{NetworkId, PortId};
use crate::tables::fdb::Dest;
use crate::tables::network::Network;
use crate::tables::snapshot::Snapshot;
use crate::tables::vrf::Route;
use crate::wire::checksum::{Sum, pseudo_header};
use crate::wire::drop::DropReason;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::packet::Packet;
use crate::wire::{arp, icmp, ipv4, ipv6, nd};

/// Offset of the next header of an IPv6 frame.
const NEXT_HEADER: usize = ethernet::HEADER_LEN + 6;
/// TTL and hop limit of what the gateway sends.
pub(super) const TTL: u8 = 64;

/// Answers an ARP request or neighbor solicitation of a local station, and reports the addresses that it says it has;
/// `None` when the frame is to go on. What floods in from the underlay was answered by the host that it came from.
#[inline]
pub fn answer<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    (port, id): (PortId, NetworkId),
    network: &Network,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Option<Verdict> {
    let answered = match inner.ethertype {
        EtherType::ARP => answer_arp(o, (port, id), network, inner, packet),
        EtherType::IPV6 if packet.head().get(NEXT_HEADER) == Some(&icmp::PROTOCOL_V6) => {
            answer_nd(o, (port, id), network, inner, packet)
        }
        _ => None,
    }?;
    Some(answered.map_or_else(Verdict::Drop, |()| to_local(t, o, (port, id), None, packet)))
}

fn answer_arp<O: Observer>(
    o: &mut O,
    at: (PortId, NetworkId),
    network: &Network,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Option<Result<(), DropReason>> {
    let request = arp::Message::parse(packet.head().get(ethernet::HEADER_LEN..)?)?;
    // Somebody who speaks for another MAC than his own is neither believed nor answered.
    if request.sender_mac != inner.src {
        return None;
    }
    if ipv4::is_valid_source(request.sender_ip) {
        learn(o, at, network, inner.src, request.sender_ip.into());
    }
    if request.operation != arp::REQUEST || request.is_gratuitous() {
        return None;
    }
    let target = request.target_ip;
    let owns = network.gateway.as_ref().filter(|gateway| gateway.has_v4(target)).map(|gateway| gateway.mac);
    let mac = owner(network, inner, owns, target.into(), request.is_probe())?;
    let reply = arp::Message {
        operation: arp::REPLY,
        sender_mac: mac,
        sender_ip: target,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    o.step(Step::Answer(Answer::Arp(target.into())));
    Some(packet.rewrite(&framed::<{ ethernet::HEADER_LEN + arp::LEN }>(
        inner.src,
        mac,
        EtherType::ARP,
        &reply.encode(),
    )))
}

fn answer_nd<O: Observer>(
    o: &mut O,
    at: (PortId, NetworkId),
    network: &Network,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Option<Result<(), DropReason>> {
    let (ip, message) = nd::Message::receive(packet.head().get(ethernet::HEADER_LEN..)?)?;
    let names_another = message.mac.is_some_and(|mac| mac != inner.src);
    if names_another {
        return None;
    }
    let target = message.target;
    if message.kind == nd::ADVERTISEMENT {
        if message.mac.is_some() && ipv6::is_valid_source(target) {
            learn(o, at, network, inner.src, target.into());
        }
        return None;
    }
    if message.mac.is_some() && ipv6::is_valid_source(ip.src) {
        learn(o, at, network, inner.src, ip.src.into());
    }
    let probe = ip.src == [0; 16];
    let is_for_target = ip.dst == target || ip.dst == nd::solicited_node(target);
    if !is_for_target || !probe && !ipv6::is_valid_source(ip.src) {
        return None;
    }
    let owns = network.gateway.as_ref().filter(|gateway| gateway.has_v6(target)).map(|gateway| gateway.mac);
    let mac = owner(network, inner, owns, target.into(), probe)?;
    // RFC 4861 section 7.2.4: a proxy does not override what the station itself says.
    let flags = if owns.is_some() { nd::ROUTER | nd::OVERRIDE } else { 0 };
    let (to, dst, flags) = match probe {
        // The sender has no address yet: all nodes are told that this one is taken.
        true => (nd::group_mac(nd::ALL_NODES), nd::ALL_NODES, flags),
        false => (inner.src, ip.src, flags | nd::SOLICITED),
    };
    let reply = nd::advertisement(dst, target, flags, mac);
    o.step(Step::Answer(Answer::Nd(target.into())));
    Some(packet.rewrite(&framed::<{ ethernet::HEADER_LEN + nd::PACKET_LEN }>(
        to,
        mac,
        EtherType::IPV6,
        &reply,
    )))
}

/// The MAC to answer with, if this request is ours to answer: `owns` is the gateway's when it has the address.
fn owner(network: &Network, inner: &Inner, owns: Option<Mac>, target: IpAddr, probe: bool) -> Option<Mac> {
    let for_everyone = inner.dst.is_group();
    if owns.is_some() {
        return owns.filter(|mac| for_everyone || inner.dst == *mac);
    }
    // Only a station itself knows whether it is still there, which a unicast request asks, or still has an address that
    // another is about to take.
    if !for_everyone || probe {
        return None;
    }
    network.neighbors.get(target).filter(|mac| *mac != inner.src)
}

/// Reports an address of a station behind a port.
fn learn<O: Observer>(o: &mut O, (port, network): (PortId, NetworkId), row: &Network, mac: Mac, ip: IpAddr) {
    if row.learning {
        let known = row.fdb.get(mac);
        o.learn(Learned { network, mac, at: Dest::Port(port), known, ip: Some(ip) });
    }
}

/// An Ethernet header in front of a payload; together `N` bytes.
fn framed<const N: usize>(dst: Mac, src: Mac, ethertype: EtherType, payload: &[u8]) -> [u8; N] {
    let mut frame = [0; N];
    let header = dst.0.into_iter().chain(src.0).chain(ethertype.0.to_be_bytes());
    frame.iter_mut().zip(header.chain(payload.iter().copied())).for_each(|(to, from)| *to = from);
    frame
}

/// A packet to an address of a gateway: ping is answered, nothing else is.
pub fn to_us<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    ip: &Ip,
    packet: &mut Packet<'_>,
) -> Verdict {
    if make_echo_reply(ip, packet).is_none() {
        return Verdict::Drop(DropReason::ToGateway);
    }
    o.step(Step::Answer(Answer::Echo));
    send_back(t, o, from, ip.src(), None, packet).unwrap_or(Verdict::Drop(DropReason::ToGateway))
}

/// Turns an echo request into its reply. The data stays where it is, in however many frames. Fragments, options and
/// extension headers, whose answer would need more than a turn, are no ping to us.
fn make_echo_reply(ip: &Ip, packet: &mut Packet<'_>) -> Option<()> {
    let l3 = packet.head().get(ethernet::HEADER_LEN..)?;
    let (header_len, request, reply, pseudo) = match (ip.src(), ip.dst()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            let header = ipv4::Header::parse(l3)?;
            let plain = header.header_len == ipv4::HEADER_LEN && !header.is_fragment();
            let right = plain && header.protocol == icmp::PROTOCOL_V4;
            (right.then_some(ipv4::HEADER_LEN)?, icmp::ECHO_REQUEST, icmp::ECHO_REPLY, Sum::ZERO)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = ipv6::Header::parse(l3)?;
            let right = header.next_header == icmp::PROTOCOL_V6;
            let pseudo =
                pseudo_header(&src.octets(), &dst.octets(), icmp::PROTOCOL_V6, u32::from(header.payload_len));
            (right.then_some(ipv6::HEADER_LEN)?, icmp::ECHO_REQUEST_V6, icmp::ECHO_REPLY_V6, pseudo)
        }
        _ => return None,
    };
    let [kind, code, ..] = *l3.get(header_len..)?.first_chunk::<{ icmp::HEADER_LEN }>()?;
    let data = packet.sum(ethernet::HEADER_LEN + header_len, ip.len.checked_sub(header_len)?)?;
    if kind != request || code != 0 || !data.plus(pseudo).is_valid() {
        return None;
    }
    packet.truncate(ethernet::HEADER_LEN + ip.len);
    let l3 = packet.head_mut().get_mut(ethernet::HEADER_LEN..)?;
    // Swapped addresses leave every checksum as it is.
    match ip.src() {
        IpAddr::V4(_) => ipv4::turn(l3, TTL),
        IpAddr::V6(_) => ipv6::turn(l3, TTL),
    }
    icmp::set_kind(l3.get_mut(header_len..)?, reply);
    Some(())
}

/// Sends a packet that became an answer to `to`, where it came from. `None` when there is no way.
pub(super) fn send_back<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    to: IpAddr,
    refused: Option<DropReason>,
    packet: &mut Packet<'_>,
) -> Option<Verdict> {
    if let Some(id) = from.network {
        let eth = ethernet::Header::parse(packet.head())?;
        ethernet::set_macs(packet.head_mut(), eth.src, eth.dst);
        return Some(to_local(t, o, (from.port, id), refused, packet));
    }
    let vrf = t.vrf(from.vrf)?;
    let (vtep, vni, macs) = match route::look_up(o, from.vrf, vrf, to)? {
        Route::Vtep { vtep, router_mac } => (vtep, vrf.l3vni?, (router_mac, vrf.router_mac)),
        // A station of a network that the remote VTEP has too.
        Route::Host { network, mac } => {
            let network = t.network(network)?;
            let Some(Dest::Vtep(vtep)) = network.fdb.get(mac) else { return None };
            (vtep, network.vni, (mac, network.gateway.as_ref()?.mac))
        }
        _ => return None,
    };
    ethernet::set_macs(packet.head_mut(), macs.0, macs.1);
    let inner = inner::reread(packet)?;
    let row = t.vteps.get(vtep)?;
    let verdict = encap::push(o, &t.settings, (vtep, row), vni, &inner, packet);
    Some(replied(verdict, refused))
}

/// An answer to a station of this host.
fn to_local<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    (port, id): (PortId, NetworkId),
    refused: Option<DropReason>,
    packet: &mut Packet<'_>,
) -> Verdict {
    packet.pad_to_minimum();
    replied(to_network_port(t, o, id, port, packet), refused)
}

/// An answer that cannot leave at once: a reply waits or is dropped like any packet, an error is forgotten.
fn replied(verdict: Verdict, refused: Option<DropReason>) -> Verdict {
    match (verdict, refused) {
        (Verdict::Forward(port), _) => Verdict::Reply(Reply { port, refused }),
        (_, Some(reason)) => Verdict::Drop(reason),
        (other, None) => other,
    }
}
