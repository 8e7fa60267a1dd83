//! Underlay → access port: check the outer headers, strip them, carry ECN inwards, look the tenant's MAC up.

use std::net::IpAddr;

use super::classify::{self, Addresses, Class, Outer};
use super::inner::{self, check_ethernet};
use super::route::{self, Ingress};
use super::verdict::{Observer, Replicate, Step, Verdict};
use super::{policy_allows, snoop, to_network_port};
use crate::ids::{NetworkId, PortId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::network::{Network, UnknownUnicast};
use crate::tables::snapshot::{DecapDscp, Snapshot, VniTarget};
use crate::wire::checksum::pseudo_header;
use crate::wire::drop::{DropReason, Note};
use crate::wire::ecn::{self, Decap, Dscp, Ecn};
use crate::wire::ethernet::{self, EtherType};
use crate::wire::packet::Packet;
use crate::wire::{ipv4, ipv6, udp, vxlan};

/// A frame that an uplink received.
#[inline]
pub fn from_underlay<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    port: PortId,
    vlan: Option<u16>,
    native: Option<PortId>,
    packet: &mut Packet<'_>,
) -> Verdict {
    match classify::underlay(t, vlan, packet.head()) {
        Class::Vxlan(outer) => decap(t, o, port, &outer, packet).unwrap_or_else(Verdict::Drop),
        Class::Roce => match native {
            Some(access) => {
                o.step(Step::Native(access));
                super::to_port(t, access, packet)
            }
            None => Verdict::Punt(crate::wire::drop::PuntReason::OtherPort),
        },
        Class::Drop(reason) => Verdict::Drop(reason),
        Class::Kernel(reason) => Verdict::Punt(reason),
    }
}

#[inline]
fn decap<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    port: PortId,
    outer: &Outer,
    packet: &mut Packet<'_>,
) -> Result<Verdict, DropReason> {
    let (src, dst) = ip_addresses(outer.addresses);
    o.step(Step::Outer { src, dst, src_port: outer.udp.src, ecn: Ecn::of_tos(outer.tos) });
    check_outer(t, o, outer, packet)?;
    let header = vxlan::Header::parse(payload(outer, packet.head()))?;
    if header.reserved_bits {
        o.note(Note::ReservedBits);
    }
    o.step(Step::Vxlan(header.vni));
    let target = t.target_of(header.vni).ok_or(DropReason::UnknownVni)?;
    let source = source(t, o, outer.addresses);
    match target {
        VniTarget::Network(id) => {
            let network = t.network(id).ok_or(DropReason::UnknownVni)?;
            admit(t, source, |vtep| network.flood.has_member(vtep))?;
            let eth = uncover(t, o, outer, packet)?;
            if let Some(vtep) = source
                && network.learning
            {
                super::learn(o, id, network, eth.src, Dest::Vtep(vtep));
            }
            bridge(t, o, (port, source), (id, network), &eth, packet)
        }
        VniTarget::Vrf(id) => {
            let vrf = t.vrf(id).ok_or(DropReason::UnknownVni)?;
            admit(t, source, |vtep| vrf.members.contains(vtep))?;
            let eth = uncover(t, o, outer, packet)?;
            if eth.src == vrf.router_mac {
                return Err(DropReason::InnerSrcIsLocalMac);
            }
            if eth.dst != vrf.router_mac {
                return Err(DropReason::L3vniWrongMac);
            }
            let inner = inner::reread(packet).ok_or(DropReason::InnerTooShort)?;
            Ok(route::route(t, o, Ingress { port, network: None, vrf: id }, &inner, packet))
        }
    }
}

/// Strips the outer headers and carries their marks inwards.
#[inline]
fn uncover<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    outer: &Outer,
    packet: &mut Packet<'_>,
) -> Result<ethernet::Header, DropReason> {
    strip(outer, packet)?;
    let eth = ethernet::Header::parse(packet.head()).ok_or(DropReason::InnerTooShort)?;
    o.step(Step::Inner { dst: eth.dst, src: eth.src, ethertype: eth.ethertype });
    check_ethernet(&eth)?;
    mark(t, o, outer.tos, eth.ethertype, packet)?;
    packet.pad_to_minimum();
    Ok(eth)
}

/// A frame of a bridged network, for its local ports.
#[inline]
fn bridge<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    (port, source): (PortId, Option<VtepId>),
    (id, network): (NetworkId, &Network),
    eth: &ethernet::Header,
    packet: &mut Packet<'_>,
) -> Result<Verdict, DropReason> {
    if let Some(gateway) = &network.gateway
        && let Some(vrf) = network.vrf
    {
        // Hosts that share an anycast MAC route for each other; the router MAC is this host's alone.
        if eth.src != gateway.mac && t.vrf(vrf).is_some_and(|vrf| vrf.router_mac == eth.src) {
            return Err(DropReason::InnerSrcIsLocalMac);
        }
        if eth.dst == gateway.mac {
            let inner = inner::reread(packet).ok_or(DropReason::InnerTooShort)?;
            return Ok(route::route(t, o, Ingress { port, network: None, vrf }, &inner, packet));
        }
    }
    if !policy_allows(o, network.policy.as_deref(), packet) {
        return Err(DropReason::PolicyDenied);
    }
    let is_group = eth.dst.is_group();
    let group = if is_group {
        snoop::group_of(o, (id, network), source.map(Dest::Vtep), packet.head(), eth.ethertype)
    } else {
        None
    };
    let local = Replicate { vni: network.vni, group, from: port, local_only: true };
    if is_group {
        return Ok(Verdict::Replicate(local));
    }
    let dest = network.fdb.get(eth.dst);
    o.step(Step::Fdb(eth.dst, dest));
    match (dest, network.unknown_unicast) {
        (Some(Dest::Port(access)), _) => Ok(to_network_port(t, o, id, access, packet)),
        (Some(Dest::Vtep(_)), _) => Err(DropReason::SplitHorizon),
        (None, UnknownUnicast::Drop) => Err(DropReason::UnknownUnicast),
        (None, UnknownUnicast::Flood) => Ok(Verdict::Replicate(local)),
    }
}

/// Lengths, addresses and checksums of the outer headers.
#[inline]
fn check_outer<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    outer: &Outer,
    packet: &Packet<'_>,
) -> Result<(), DropReason> {
    if outer.end > packet.len() || outer.end < outer.l4 + udp::HEADER_LEN {
        return Err(DropReason::IpLengthInvalid);
    }
    let udp_len = usize::from(outer.udp.len);
    if udp_len < udp::HEADER_LEN || outer.l4 + udp_len > outer.end {
        return Err(DropReason::UdpLengthInvalid);
    }
    let valid_source = match outer.addresses {
        Addresses::V4(src, _) => ipv4::is_valid_source(src) && !t.is_encap_v4(src),
        Addresses::V6(src, _) => ipv6::is_valid_source(src) && !t.is_encap_v6(src),
    };
    if !valid_source {
        return Err(DropReason::OuterSrcInvalid);
    }
    if let Addresses::V4(..) = outer.addresses {
        let ip = packet.head().get(outer.l3..).unwrap_or_default();
        if !ipv4::checksum_is_valid(ip, outer.l4 - outer.l3) {
            return Err(DropReason::IpHeaderInvalid);
        }
    }
    check_udp_checksum(t, o, outer, packet)
}

/// RFC 7348 section 4.1: zero is accepted over IPv4, anything else must be right. A bare pseudo-header sum is what a
/// kernel leaves on a virtual link, where no NIC completes it.
#[inline]
fn check_udp_checksum<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    outer: &Outer,
    packet: &Packet<'_>,
) -> Result<(), DropReason> {
    let stored = outer.udp.checksum;
    if stored == [0, 0] {
        return match outer.addresses {
            Addresses::V4(..) => Ok(()),
            Addresses::V6(..) if t.settings.accept_udp6_zero_checksum => {
                o.note(Note::Udp6ZeroAccepted);
                Ok(())
            }
            Addresses::V6(..) => Err(DropReason::Udp6ChecksumZero),
        };
    }
    let len = outer.udp.len;
    let pseudo = match &outer.addresses {
        Addresses::V4(src, dst) => pseudo_header(src, dst, udp::PROTOCOL, u32::from(len)),
        Addresses::V6(src, dst) => pseudo_header(src, dst, udp::PROTOCOL, u32::from(len)),
    };
    if u16::from_ne_bytes(stored) == pseudo.fold() {
        o.note(Note::PartialOuterChecksum);
        return Ok(());
    }
    let data = packet.sum(outer.l4, usize::from(len)).ok_or(DropReason::UdpLengthInvalid)?;
    if data.plus(pseudo).is_valid() { Ok(()) } else { Err(DropReason::UdpChecksumInvalid) }
}

/// Who sent the packet.
#[inline]
fn source<O: Observer>(t: &Snapshot, o: &mut O, addresses: Addresses) -> Option<VtepId> {
    let source = match addresses {
        Addresses::V4(src, _) => t.vteps.by_v4(src),
        Addresses::V6(src, _) => t.vteps.by_v6(src),
    };
    o.step(Step::Source(source));
    source
}

/// Only members of a network or VRF may send it.
#[inline]
fn admit(
    t: &Snapshot,
    source: Option<VtepId>,
    is_member: impl FnOnce(VtepId) -> bool,
) -> Result<(), DropReason> {
    match source {
        _ if t.settings.accept_unknown_vtep => Ok(()),
        None => Err(DropReason::UnknownSourceVtep),
        Some(vtep) if is_member(vtep) => Ok(()),
        Some(_) => Err(DropReason::SourceVtepNotInVni),
    }
}

/// Removes the outer headers and whatever follows the UDP payload.
#[inline]
fn strip(outer: &Outer, packet: &mut Packet<'_>) -> Result<(), DropReason> {
    packet.truncate(outer.l4 + usize::from(outer.udp.len));
    let overhead = outer.l4 + udp::HEADER_LEN + vxlan::HEADER_LEN;
    if packet.pop_front(overhead) { Ok(()) } else { Err(DropReason::VxlanTruncated) }
}

/// ECN goes inwards by RFC 6040, DSCP as configured. A frame that is not IP has neither, and passes.
#[inline]
fn mark<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    outer_tos: u8,
    ethertype: EtherType,
    packet: &mut Packet<'_>,
) -> Result<(), DropReason> {
    let outer = Ecn::of_tos(outer_tos);
    let uniform = t.settings.decap_dscp == DecapDscp::Uniform;
    let l3 = packet.head_mut().get_mut(ethernet::HEADER_LEN..).unwrap_or_default();
    let old_tos = match ethertype {
        EtherType::IPV4 => ipv4::Header::parse(l3).map(|ip| ip.tos),
        EtherType::IPV6 => ipv6::Header::parse(l3).map(|ip| ip.traffic_class),
        _ => return Ok(()),
    };
    let Some(old_tos) = old_tos else {
        // Without a header there is nowhere to put a mark; only a packet that carries none may go on.
        let loses_mark = matches!(outer, Ecn::Ce | Ecn::Ect1);
        return if loses_mark { Err(DropReason::InnerIpTruncated) } else { Ok(()) };
    };
    let inner = Ecn::of_tos(old_tos);
    let result = match ecn::decap(inner, outer) {
        Decap::Set(result) => result,
        Decap::SetUnexpected(result) => {
            o.note(Note::EcnUnexpected);
            result
        }
        Decap::Drop => return Err(DropReason::EcnCeOnNotEct),
    };
    o.step(Step::DecapEcn { inner, outer, result });
    let dscp = Dscp::of_tos(if uniform { outer_tos } else { old_tos });
    let tos = dscp.with(result);
    if tos != old_tos {
        match ethertype {
            EtherType::IPV4 => ipv4::set_tos(l3, tos),
            _ => ipv6::set_traffic_class(l3, tos),
        }
    }
    Ok(())
}

#[inline]
fn payload<'a>(outer: &Outer, head: &'a [u8]) -> &'a [u8] {
    let end = (outer.l4 + usize::from(outer.udp.len)).min(head.len());
    head.get(outer.l4 + udp::HEADER_LEN..end).unwrap_or_default()
}

#[inline]
fn ip_addresses(addresses: Addresses) -> (IpAddr, IpAddr) {
    match addresses {
        Addresses::V4(src, dst) => (src.into(), dst.into()),
        Addresses::V6(src, dst) => (src.into(), dst.into()),
    }
}
