//! Symmetric IRB (RFC 9135, 9136): a packet to a router MAC is looked up in its VRF, gets new MACs and one TTL less, and
//! leaves by a port of this host or by the L3VNI.

use std::net::IpAddr;

use super::icmp::{self, Error};
use super::inner::Inner;
use super::verdict::{Observer, Step, Verdict};
use super::{encap, gateway, to_network_port};
use crate::ids::{NetworkId, PortId, VrfId};
use crate::tables::fdb::Dest;
use crate::tables::snapshot::Snapshot;
use crate::tables::vrf::{Route, Vrf};
use crate::wire::drop::DropReason;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::packet::Packet;
use crate::wire::{ipv4, ipv6};

/// Where a packet to be routed came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Port that received it.
    pub port: PortId,
    /// Access network; `None`: by the L3VNI.
    pub network: Option<NetworkId>,
    /// VRF it is looked up in.
    pub vrf: VrfId,
}

/// The fields of an IP header that routing needs. Addresses are numbers rather than an enum, which would be put together in
/// memory in parts and read back whole.
#[derive(Clone, Copy, Debug)]
pub struct Ip {
    /// IPv6 rather than IPv4.
    v6: bool,
    src: u128,
    dst: u128,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Header and payload, in bytes.
    pub len: usize,
}

impl Ip {
    /// Source.
    #[must_use]
    pub fn src(&self) -> IpAddr {
        address(self.v6, self.src)
    }

    /// Destination.
    #[must_use]
    pub fn dst(&self) -> IpAddr {
        address(self.v6, self.dst)
    }

    /// Whether source or destination are of one link (RFC 4291 section 2.5.6, RFC 3927 section 7).
    #[inline]
    fn is_link_local(&self) -> [bool; 2] {
        [self.src, self.dst].map(|ip| if self.v6 { ip >> 118 == 0x3fa } else { ip >> 16 == 0xa9fe })
    }
}

fn address(v6: bool, number: u128) -> IpAddr {
    match u32::try_from(number) {
        Ok(number) if !v6 => IpAddr::V4(number.into()),
        _ => IpAddr::V6(number.into()),
    }
}

/// Routes a packet whose Ethernet destination is the VRF's router MAC or a gateway's.
pub fn route<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Verdict {
    let Some(vrf) = t.vrf(from.vrf) else { return Verdict::Drop(DropReason::NoRouteInVrf) };
    let Some(ip) = read(inner.ethertype, packet) else { return Verdict::Drop(DropReason::NotRoutable) };
    if !super::policy_allows(o, vrf.policy.as_deref(), packet) {
        return Verdict::Drop(DropReason::PolicyDenied);
    }
    // Link-local addresses are of one network, not of the VRF.
    let link_local = ip.is_link_local();
    if let Some(id) = from.network
        && link_local[1]
        && is_gateway(t, id, ip.dst())
    {
        return gateway::to_us(t, o, from, &ip, packet);
    }
    let (vrf, route) = match look_up_number(o, from.vrf, vrf, ip.v6, ip.dst) {
        Some(Route::Leak(other)) => match leak(t, o, other, &ip, packet) {
            Ok(found) => found,
            Err(reason) => return Verdict::Drop(reason),
        },
        found => (vrf, found),
    };
    if let Some(Route::Gateway(_)) = route {
        return gateway::to_us(t, o, from, &ip, packet);
    }
    // Never forwarded.
    if link_local[0] || link_local[1] {
        return Verdict::Drop(DropReason::NotRoutable);
    }
    match ip.ttl {
        // Nobody may send it (RFC 1122 section 3.2.1.7), and nobody gets an answer.
        0 => return Verdict::Drop(DropReason::TtlExpired),
        1 => return icmp::error(t, o, from, Error::TimeExceeded, DropReason::TtlExpired, packet),
        _ => {}
    }
    match route {
        Some(Route::Host { network, mac }) => to_host(t, o, from, (network, mac), &ip, inner, packet),
        Some(Route::Vtep { .. }) if from.network.is_none() => Verdict::Drop(DropReason::SplitHorizon),
        Some(Route::Vtep { vtep, router_mac }) => {
            let Some(vni) = vrf.l3vni else { return Verdict::Drop(DropReason::L3vniMissing) };
            let Some(row) = t.vteps.get(vtep) else { return Verdict::Drop(DropReason::NoPath) };
            if packet.len() > usize::from(row.max_inner_len) {
                let mtu = row.max_inner_len.saturating_sub(14);
                let error = Error::TooBig(mtu);
                return icmp::error(t, o, from, error, DropReason::EncapMtuExceeded, packet);
            }
            forward(o, (router_mac, vrf.router_mac), &ip, packet);
            encap::push(o, &t.settings, (vtep, row), vni, inner, packet)
        }
        Some(Route::NoRouterMac) => Verdict::Drop(DropReason::RouterMacMissing),
        Some(Route::Connected(_)) => {
            unreachable_or_drop(t, o, from, Error::HostUnreachable, DropReason::NeighborUnknown, packet)
        }
        Some(Route::Blackhole) => Verdict::Drop(DropReason::Blackhole),
        Some(Route::Leak(_)) => Verdict::Drop(DropReason::LeakLoop),
        Some(Route::Gateway(_)) | None => {
            unreachable_or_drop(t, o, from, Error::NetUnreachable, DropReason::NoRouteInVrf, packet)
        }
    }
}

/// To a station of a network of this host: behind one of its ports, or, bridged, behind a remote VTEP.
fn to_host<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    (id, mac): (NetworkId, Mac),
    ip: &Ip,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Verdict {
    let Some(network) = t.network(id) else { return Verdict::Drop(DropReason::NoRouteInVrf) };
    let dest = network.fdb.get(mac);
    o.step(Step::Fdb(mac, dest));
    let Some(dest) = dest else {
        return unreachable_or_drop(t, o, from, Error::HostUnreachable, DropReason::NeighborUnknown, packet);
    };
    let source = network.gateway.as_ref().map_or(Mac::default(), |gateway| gateway.mac);
    match dest {
        Dest::Port(port) => {
            let mtu = t.port(port).map_or(0, |out| out.mtu);
            if packet.len() > usize::from(mtu) + ethernet::HEADER_LEN {
                return icmp::error(t, o, from, Error::TooBig(mtu), DropReason::PortMtuExceeded, packet);
            }
            forward(o, (mac, source), ip, packet);
            to_network_port(t, o, id, port, packet)
        }
        Dest::Vtep(_) if from.network.is_none() => Verdict::Drop(DropReason::SplitHorizon),
        Dest::Vtep(vtep) => {
            let Some(row) = t.vteps.get(vtep) else { return Verdict::Drop(DropReason::NoPath) };
            if packet.len() > usize::from(row.max_inner_len) {
                let error = Error::TooBig(row.max_inner_len.saturating_sub(14));
                return icmp::error(t, o, from, error, DropReason::EncapMtuExceeded, packet);
            }
            forward(o, (mac, source), ip, packet);
            encap::push(o, &t.settings, (vtep, row), network.vni, inner, packet)
        }
    }
}

fn unreachable_or_drop<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    from: Ingress,
    error: Error,
    reason: DropReason,
    packet: &mut Packet<'_>,
) -> Verdict {
    if t.settings.icmp_unreachable {
        icmp::error(t, o, from, error, reason, packet)
    } else {
        Verdict::Drop(reason)
    }
}

/// Continues in another tenant's VRF: its policy applies as well, and it leaks no further.
fn leak<'t, O: Observer>(
    t: &'t Snapshot,
    o: &mut O,
    id: VrfId,
    ip: &Ip,
    packet: &Packet<'_>,
) -> Result<(&'t Vrf, Option<Route>), DropReason> {
    let vrf = t.vrf(id).ok_or(DropReason::NoRouteInVrf)?;
    if !super::policy_allows(o, vrf.policy.as_deref(), packet) {
        return Err(DropReason::PolicyDenied);
    }
    Ok((vrf, look_up_number(o, id, vrf, ip.v6, ip.dst)))
}

/// Asks a VRF for a route.
pub(super) fn look_up<O: Observer>(o: &mut O, id: VrfId, vrf: &Vrf, dst: IpAddr) -> Option<Route> {
    match dst {
        IpAddr::V4(ip) => look_up_number(o, id, vrf, false, ip.to_bits().into()),
        IpAddr::V6(ip) => look_up_number(o, id, vrf, true, ip.to_bits()),
    }
}

#[inline]
fn look_up_number<O: Observer>(o: &mut O, id: VrfId, vrf: &Vrf, v6: bool, dst: u128) -> Option<Route> {
    let route = match u32::try_from(dst) {
        Ok(dst) if !v6 => vrf.fib.get_v4(dst.to_be_bytes()),
        _ => vrf.fib.get_v6(dst.to_be_bytes()),
    };
    o.step(Step::Route(id, address(v6, dst), route));
    route
}

/// Reads the IP header of a packet that may be routed; `None` when it is cut, wrong, or not from one station to another.
#[inline(always)]
fn read(ethertype: EtherType, packet: &Packet<'_>) -> Option<Ip> {
    let l3 = packet.head().get(ethernet::HEADER_LEN..)?;
    let ip = match ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(l3)?;
            let whole =
                ipv4::checksum_is_valid(l3, ip.header_len) && usize::from(ip.total_len) >= ip.header_len;
            let unicast = ipv4::is_valid_source(ip.src) && ipv4::is_valid_source(ip.dst);
            (whole && unicast).then(|| Ip {
                v6: false,
                src: u32::from_be_bytes(ip.src).into(),
                dst: u32::from_be_bytes(ip.dst).into(),
                ttl: ip.ttl,
                len: usize::from(ip.total_len),
            })?
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(l3)?;
            (ipv6::is_valid_source(ip.src) && ipv6::is_valid_source(ip.dst)).then(|| Ip {
                v6: true,
                src: u128::from_be_bytes(ip.src),
                dst: u128::from_be_bytes(ip.dst),
                ttl: ip.hop_limit,
                len: usize::from(ip.payload_len) + ipv6::HEADER_LEN,
            })?
        }
        _ => return None,
    };
    (ethernet::HEADER_LEN + ip.len <= packet.len()).then_some(ip)
}

fn is_gateway(t: &Snapshot, id: NetworkId, addr: IpAddr) -> bool {
    t.network(id).and_then(|network| network.gateway.as_ref()).is_some_and(|gateway| match addr {
        IpAddr::V4(ip) => gateway.has_v4(ip.octets()),
        IpAddr::V6(ip) => gateway.has_v6(ip.octets()),
    })
}

/// New MACs, one TTL less.
#[inline]
fn forward<O: Observer>(o: &mut O, (dst, src): (Mac, Mac), ip: &Ip, packet: &mut Packet<'_>) {
    let head = packet.head_mut();
    ethernet::set_macs(head, dst, src);
    let l3 = head.get_mut(ethernet::HEADER_LEN..).unwrap_or_default();
    if ip.v6 {
        ipv6::decrement_hop_limit(l3)
    } else {
        ipv4::decrement_ttl(l3)
    }
    o.step(Step::Routed { dst, src, ttl: ip.ttl - 1 });
}
