//! Decides what becomes of a packet, and rewrites it in place: pure functions over its bytes and a [`Snapshot`].
//! No system call, no clock, no log, no allocation. The worker runs it on live frames, `flowrail trace` on a file.

pub mod classify;
mod encap;
mod from_overlay;
mod from_underlay;
mod gateway;
pub mod hint;
mod icmp;
pub mod inner;
mod route;
mod security;
mod snoop;
pub mod verdict;

pub use from_overlay::from_overlay;
pub use from_underlay::from_underlay;
pub use verdict::{Answer, GroupChange, Learned, Observer, Replicate, Reply, Step, Verdict};

use crate::ids::{NetworkId, PortId};
use crate::tables::fdb::Dest;
use crate::tables::network::Network;
use crate::tables::policy::Policy;
use crate::tables::snapshot::{Role, Snapshot, VniTarget};
use crate::wire::drop::DropReason;
use crate::wire::ethernet::{self, Mac};
use crate::wire::packet::Packet;
use crate::wire::vxlan::Vni;

/// A frame that `port` received.
#[inline]
pub fn receive<O: Observer>(t: &Snapshot, o: &mut O, port: PortId, packet: &mut Packet<'_>) -> Verdict {
    let Some(row) = t.port(port) else { return Verdict::Drop(DropReason::TxFailed) };
    match row.role {
        Role::Uplink { vlan, native } => from_underlay(t, o, port, vlan, native, packet),
        Role::Access(id) => from_overlay(t, o, port, id, packet),
        Role::Trunk(id) => {
            let Some(trunk) = t.trunk(id) else { return Verdict::Drop(DropReason::TxFailed) };
            let tagged = ethernet::Header::parse(packet.head()).is_some_and(|eth| eth.ethertype.is_vlan());
            let vlan = if tagged { packet.pop_vlan() } else { None };
            let network = trunk.network(vlan);
            o.step(Step::Vlan(vlan, network));
            match network {
                Some(network) => from_overlay(t, o, port, network, packet),
                None => Verdict::Drop(DropReason::VlanNotInTrunk),
            }
        }
        Role::Closed => Verdict::Drop(DropReason::TxFailed),
        Role::Native(uplink) => {
            o.step(Step::Native(uplink));
            inner::complete(o, packet);
            to_port(t, uplink, packet)
        }
    }
}

/// Finishes a tenant's frame for one destination: a copy of a group packet, or one that waited for a MAC. The frame
/// was accepted by [`receive`] before; `from` gets nothing back. `vni` is a network's, or a VRF's for a routed packet.
pub fn deliver<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    vni: Vni,
    from: PortId,
    dest: Dest,
    packet: &mut Packet<'_>,
) -> Verdict {
    let Some(inner) = inner::reread(packet) else { return Verdict::Drop(DropReason::FrameTooShort) };
    match (t.target_of(vni), dest) {
        (None, _) | (Some(VniTarget::Vrf(_)), Dest::Port(_)) => Verdict::Drop(DropReason::UnknownVni),
        (Some(_), Dest::Vtep(id)) => match t.vteps.get(id) {
            Some(row) => encap::push(o, &t.settings, (id, row), vni, &inner, packet),
            None => Verdict::Drop(DropReason::NoPath),
        },
        (Some(VniTarget::Network(_)), Dest::Port(port)) if port == from => {
            Verdict::Drop(DropReason::SamePort)
        }
        (Some(VniTarget::Network(network)), Dest::Port(port)) => to_network_port(t, o, network, port, packet),
    }
}

/// A finished frame of `network` for one of its ports, which may be a trunk.
#[inline]
fn to_network_port<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    network: NetworkId,
    port: PortId,
    packet: &mut Packet<'_>,
) -> Verdict {
    let verdict = to_port(t, port, packet);
    let Some(Role::Trunk(id)) = t.port(port).map(|row| row.role) else { return verdict };
    match t.trunk(id).and_then(|trunk| trunk.tag(network)) {
        None => Verdict::Drop(DropReason::VlanNotInTrunk),
        Some(None) => verdict,
        Some(Some(vlan)) => {
            o.step(Step::Vlan(Some(vlan), Some(network)));
            packet.push_vlan(vlan).map_or_else(Verdict::Drop, |()| verdict)
        }
    }
}

/// A finished frame for a port. The MTU counts without Ethernet header and tags.
#[inline]
fn to_port(t: &Snapshot, port: PortId, packet: &Packet<'_>) -> Verdict {
    match t.port(port) {
        Some(out) if packet.len() <= usize::from(out.mtu) + ethernet::HEADER_LEN => Verdict::Forward(port),
        Some(_) => Verdict::Drop(DropReason::PortMtuExceeded),
        None => Verdict::Drop(DropReason::TxFailed),
    }
}

/// Whether a tenant's policy lets the packet pass. What is not IP is no policy's business; IP that cannot be read is denied,
/// as its receiver may read more extension headers than this host does.
#[inline]
fn policy_allows<O: Observer>(o: &mut O, policy: Option<&Policy>, packet: &Packet<'_>) -> bool {
    let Some(policy) = policy else { return true };
    let Some(fields) = inner::fields(packet.head()) else { return !inner::is_ip(packet.head()) };
    policy.allows(&fields, |rule| {
        o.rule(rule);
        o.step(Step::Rule(rule));
    })
}

/// Reports a station that the FDB does not have where it was seen.
#[inline]
fn learn<O: Observer>(o: &mut O, id: NetworkId, network: &Network, mac: Mac, at: Dest) {
    let own = network.gateway.as_ref().is_some_and(|gateway| gateway.mac == mac);
    if !own {
        o.learn(Learned { network: id, mac, at, known: network.fdb.get(mac), ip: None });
    }
}
