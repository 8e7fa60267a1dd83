//! Access port → underlay or another access port: read the tenant's frame, check that the sender may send it, look its
//! destination up, encapsulate.

use super::route::{self, Ingress};
use super::verdict::{Observer, Replicate, Step, Verdict};
use super::{encap, gateway, inner, policy_allows, security, snoop, to_network_port};
use crate::ids::{NetworkId, PortId};
use crate::tables::fdb::Dest;
use crate::tables::network::UnknownUnicast;
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::DropReason;
use crate::wire::packet::Packet;

/// A frame that a port of network `id` received, without VLAN tag.
#[inline]
pub fn from_overlay<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    port: PortId,
    id: NetworkId,
    packet: &mut Packet<'_>,
) -> Verdict {
    let Some(network) = t.network(id) else { return Verdict::Drop(DropReason::UnknownVni) };
    let inner = match inner::accept(o, packet) {
        Ok(inner) => inner,
        Err(reason) => return Verdict::Drop(reason),
    };
    let guard = t.port(port).and_then(|row| row.guard.as_deref());
    if let Err(reason) = security::check(guard, network.gateway.as_deref(), &inner, packet.head()) {
        return Verdict::Drop(reason);
    }
    if network.learning {
        super::learn(o, id, network, inner.src, Dest::Port(port));
    }
    if let Some(verdict) = gateway::answer(t, o, (port, id), network, &inner, packet) {
        return verdict;
    }
    if let Some(gateway) = &network.gateway
        && inner.dst == gateway.mac
        && let Some(vrf) = network.vrf
    {
        return route::route(t, o, Ingress { port, network: Some(id), vrf }, &inner, packet);
    }
    if !policy_allows(o, network.policy.as_deref(), packet) {
        return Verdict::Drop(DropReason::PolicyDenied);
    }
    let group = if inner.dst.is_group() {
        snoop::group_of(o, (id, network), Some(Dest::Port(port)), packet.head(), inner.ethertype)
    } else {
        None
    };
    let everyone = Verdict::Replicate(Replicate { vni: network.vni, group, from: port, local_only: false });
    if inner.dst.is_group() {
        return everyone;
    }
    let dest = network.fdb.get(inner.dst);
    o.step(Step::Fdb(inner.dst, dest));
    match (dest, network.unknown_unicast) {
        (Some(Dest::Vtep(vtep)), _) => match t.vteps.get(vtep) {
            Some(row) => encap::push(o, &t.settings, (vtep, row), network.vni, &inner, packet),
            None => Verdict::Drop(DropReason::NoPath),
        },
        (Some(Dest::Port(out)), _) if out == port => Verdict::Drop(DropReason::SamePort),
        (Some(Dest::Port(out)), _) => to_network_port(t, o, id, out, packet),
        (None, UnknownUnicast::Drop) => Verdict::Drop(DropReason::UnknownUnicast),
        (None, UnknownUnicast::Flood) => everyone,
    }
}
