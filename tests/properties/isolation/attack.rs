//! What tenants and VTEPs may send, honest or not: addresses of everyone, VXLAN within, tags, groups, frames of an L3VNI.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::PacketBuilder;
use flowrail::ids::PortId;
use flowrail::wire::ethernet::Mac;
use proptest::prelude::*;

use super::world::{
    GATEWAY, TENANTS, UPLINK, VTEPS, World, encap_ip, l3vni, leaked, port, router_mac, station_v4,
    station_v6, vni,
};
use crate::packets::{Checksum, Outer};

fn pick<T: Clone + std::fmt::Debug + 'static>(from: Vec<T>) -> impl Strategy<Value = T> {
    prop::sample::select(from)
}

fn mac(world: &World) -> impl Strategy<Value = Mac> + use<> {
    let stations = (0..TENANTS).flat_map(|t| (1..=6).map(move |s| (t, s))).map(|(t, s)| world.mac(t, s));
    let routers = (0..TENANTS).map(router_mac);
    let groups = [Mac::BROADCAST, Mac([1, 0, 0x5e, 1, 1, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])];
    prop_oneof![
        6 => pick(stations.collect()),
        4 => Just(GATEWAY),
        2 => pick(routers.collect()),
        2 => pick(groups.to_vec()),
        1 => any::<[u8; 6]>().prop_map(Mac),
    ]
}

fn ip() -> impl Strategy<Value = IpAddr> {
    let stations = (1..=7).flat_map(|s| [station_v4(s).into(), station_v6(s).into()]);
    let leaks = (0..TENANTS).flat_map(|t| (1..=4).map(move |last| leaked(t, last).into()));
    let gateways =
        ["10.0.0.254", "10.0.1.254", "2001:db8::fe", "fe80::5eff:fe00:101"].map(|a| a.parse().unwrap());
    let others =
        ["239.1.1.1", "255.255.255.255", "8.8.8.8", "ff02::1:ff00:fe", "ff05::1"].map(|a| a.parse().unwrap());
    prop_oneof![
        6 => pick(stations.collect()),
        5 => pick(leaks.collect()),
        2 => pick(gateways.to_vec()),
        1 => (1..=2 + VTEPS).prop_map(|host| encap_ip(host).into()),
        1 => pick(others.to_vec()),
    ]
}

#[derive(Clone, Debug)]
enum Body {
    Udp(u16),
    Tcp,
    Echo,
    /// Neighbor solicitation, or an ARP request when the addresses are IPv4.
    Resolve,
    /// UDP behind this many destination options headers; without any over IPv4.
    Extended(usize),
    /// A frame in VXLAN, for any VNI.
    Vxlan(u32),
    Junk(Vec<u8>),
}

fn any_vni() -> impl Strategy<Value = u32> {
    let known = (0..TENANTS).flat_map(|t| [vni(t, 0), vni(t, 1), l3vni(t)]);
    prop_oneof![12 => pick(known.collect()), 1 => 0u32..1 << 24]
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        4 => pick(vec![53u16, 4789, 4791]).prop_map(Body::Udp),
        1 => Just(Body::Tcp),
        1 => Just(Body::Echo),
        2 => Just(Body::Resolve),
        1 => (1usize..12).prop_map(Body::Extended),
        2 => any_vni().prop_map(Body::Vxlan),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Body::Junk),
    ]
}

/// A station's own address, of the same family as `to`.
fn own(station: u8, to: IpAddr) -> IpAddr {
    if to.is_ipv4() { station_v4(station).into() } else { station_v6(station).into() }
}

/// A frame without tag, of anybody.
fn untagged(world: &World) -> impl Strategy<Value = Vec<u8>> + use<> {
    let ttl = prop_oneof![6 => Just(64u8), 1 => 0u8..3];
    let len = prop_oneof![6 => Just(20usize), 1 => Just(1600), 1 => Just(9100)];
    (mac(world), mac(world), ip(), ip(), ttl, body(), len)
        .prop_map(|(dst, src, from, to, ttl, body, len)| frame(dst, src, from, to, ttl, &body, len))
}

fn frame(dst: Mac, src: Mac, from: IpAddr, to: IpAddr, ttl: u8, body: &Body, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let link = PacketBuilder::ethernet2(src.0, dst.0);
    let payload = vec![0x5a; len];
    let vxlan = |vni: u32| {
        let inner = frame(dst, src, to, from, 64, &Body::Udp(53), 20);
        [&[8, 0, 0, 0], &(vni << 8).to_be_bytes()[..], &inner].concat()
    };
    match (from, to, body) {
        (_, _, Body::Junk(bytes)) => return [&dst.0, &src.0, &bytes[..]].concat(),
        (IpAddr::V4(from), IpAddr::V4(to), Body::Resolve) => return arp(dst, src, from, to),
        (IpAddr::V4(from), IpAddr::V4(to), _) => {
            let ip = link.ipv4(from.octets(), to.octets(), ttl);
            match body {
                Body::Udp(port) => ip.udp(4000, *port).write(&mut out, &payload),
                Body::Tcp => ip.tcp(4000, 80, 7, 64).write(&mut out, &payload),
                Body::Extended(_) => ip.udp(4000, 53).write(&mut out, &payload),
                Body::Vxlan(vni) => ip.udp(4000, 4789).write(&mut out, &vxlan(*vni)),
                _ => ip.icmpv4_echo_request(1, 2).write(&mut out, &payload),
            }
            .unwrap();
        }
        (from, to, _) => {
            let v6 = |ip| match ip {
                IpAddr::V4(ip) => Ipv4Addr::to_ipv6_mapped(&ip).octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let ip = link.ipv6(v6(from), v6(to), if matches!(body, Body::Resolve) { 255 } else { ttl });
            match body {
                Body::Udp(port) => ip.udp(4000, *port).write(&mut out, &payload),
                Body::Tcp => ip.tcp(4000, 80, 7, 64).write(&mut out, &payload),
                Body::Vxlan(vni) => ip.udp(4000, 4789).write(&mut out, &vxlan(*vni)),
                Body::Extended(count) => {
                    let options =
                        (1..=*count).map(|n| [if n == *count { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
                    let udp = [15, 160, 0, 53, 0, 28, 0, 0];
                    let body = [options.flatten().collect(), udp.to_vec(), vec![0x5a; 20]].concat();
                    ip.write(&mut out, 60.into(), &body)
                }
                Body::Resolve => {
                    let option = [&v6(to)[..], &[1, 1], &src.0].concat();
                    ip.icmpv6_raw(135, 0, [0; 4]).write(&mut out, &option)
                }
                _ => ip.icmpv6_echo_request(1, 2).write(&mut out, &payload),
            }
            .unwrap();
        }
    }
    out
}

/// Who has `target`?
fn arp(dst: Mac, src: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let head = [&dst.0[..], &src.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &src.0, &sender.octets()].concat();
    [&head[..], &[0; 6], &target.octets(), &[0; 18]].concat()
}

/// A frame, and the port on which it arrives.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub port: PortId,
    pub frame: Vec<u8>,
}

/// What a station of an access port would send: its own sources, its network's tag; to anyone.
fn from_station(world: &World) -> impl Strategy<Value = Arrival> + use<> {
    let world = world.clone();
    let dst = prop_oneof![3 => Just(GATEWAY), 2 => mac(&world)];
    (0..TENANTS, 1u8..5, dst, ip(), body()).prop_map(move |(tenant, station, dst, to, body)| {
        let (src, from) = (world.mac(tenant, station), own(station, to));
        let frame = frame(dst, src, from, to, 64, &body, 20);
        let untagged = world.tenants[usize::from(tenant)].untagged;
        match station {
            1 | 2 => Arrival { port: port(tenant, station - 1), frame },
            3 if untagged => Arrival { port: port(tenant, 2), frame },
            3 => Arrival { port: port(tenant, 2), frame: tagged(&frame, 10) },
            _ => Arrival { port: port(tenant, 2), frame: tagged(&frame, 20) },
        }
    })
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// On an access port, with or without tags.
fn from_tenant(world: &World) -> impl Strategy<Value = Arrival> + use<> {
    let tags = prop_oneof![
        4 => Just(Vec::new()),
        4 => pick(vec![10u16, 20]).prop_map(|vlan| vec![vlan]),
        2 => prop::collection::vec(pick(vec![0u16, 10, 20, 30, 0x600a]), 1..3),
    ];
    (0..TENANTS, 0u8..3, tags, untagged(world)).prop_map(move |(tenant, number, tags, frame)| Arrival {
        port: port(tenant, number),
        frame: tags.iter().fold(frame, |frame, vlan| tagged(&frame, *vlan)),
    })
}

/// On the uplink, by a VTEP, or by nobody known; to us, or to others.
fn from_underlay(world: &World) -> impl Strategy<Value = Arrival> + use<> {
    let dst = prop_oneof![12 => Just(1u8), 1 => Just(2)];
    (2..=3 + VTEPS, dst, any_vni(), untagged(world))
        .prop_map(|(src, dst, vni, inner)| tunnelled(src, dst, vni, &inner))
}

/// What a peer routes to a tenant, or to another's addresses: by the L3VNI, to its router MAC.
fn routed(world: &World) -> impl Strategy<Value = Arrival> + use<> {
    let world = world.clone();
    (2..=1 + VTEPS, 0..TENANTS, ip(), body()).prop_map(move |(src, tenant, to, body)| {
        let inner = frame(router_mac(tenant), world.mac(tenant, 6), own(6, to), to, 64, &body, 20);
        tunnelled(src, 1, l3vni(tenant), &inner)
    })
}

fn tunnelled(src: u8, dst: u8, vni: u32, inner: &[u8]) -> Arrival {
    let outer = Outer { src, dst, v6: false, vlan: None, tos: 0, vni, checksum: Checksum::Right };
    Arrival { port: UPLINK, frame: outer.wrap(inner) }
}

/// Anything on any port.
pub fn arrival(world: &World) -> impl Strategy<Value = Arrival> + use<> {
    let bare = (prop::sample::select(vec![UPLINK, super::world::NATIVE]), untagged(world));
    prop_oneof![
        4 => from_station(world),
        4 => from_tenant(world),
        4 => from_underlay(world),
        2 => routed(world),
        1 => bare.prop_map(|(port, frame)| Arrival { port, frame }),
    ]
}

/// A UDP packet from one station to another.
pub fn udp(dst: Mac, src: Mac, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    frame(dst, src, from.into(), to.into(), 64, &Body::Udp(53), 20)
}
