//! Decides what becomes of a packet, and rewrites it in place: pure functions over its bytes and a [`Snapshot`].
//! No system call, no clock, no log, no allocation. The worker runs it on live frames, `flowrail trace` on a file.

pub mod classify;
mod encap;
mod from_overlay;
mod from_underlay;
pub mod hint;
pub mod inner;
pub mod verdict;

pub use from_overlay::from_overlay;
pub use from_underlay::from_underlay;
pub use verdict::{Observer, Replicate, Step, Verdict};

use crate::ids::PortId;
use crate::tables::fdb::Dest;
use crate::tables::network::Network;
use crate::tables::snapshot::{Role, Snapshot};
use crate::wire::drop::DropReason;
use crate::wire::ethernet;
use crate::wire::packet::Packet;
use crate::wire::vxlan::Vni;
use inner::Inner;

/// A frame that `port` received.
#[inline]
pub fn receive<O: Observer>(t: &Snapshot, o: &mut O, port: PortId, packet: &mut Packet<'_>) -> Verdict {
    match t.port(port).map(|p| p.role) {
        Some(Role::Uplink { vlan, native }) => from_underlay(t, o, port, vlan, native, packet),
        Some(Role::Access(id)) => match t.network(id) {
            Some(network) => from_overlay(t, o, port, network, packet),
            None => Verdict::Drop(DropReason::UnknownVni),
        },
        Some(Role::Native(uplink)) => {
            o.step(Step::Native(uplink));
            inner::complete(o, packet);
            to_port(t, uplink, packet)
        }
        None => Verdict::Drop(DropReason::TxFailed),
    }
}

/// Finishes a tenant's frame for one destination: a copy of a group packet, or one that waited for a MAC. The frame
/// was accepted by [`receive`] before; `from` gets nothing back.
pub fn deliver<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    vni: Vni,
    from: PortId,
    dest: Dest,
    packet: &mut Packet<'_>,
) -> Verdict {
    let Some(network) = t.network_of(vni) else { return Verdict::Drop(DropReason::UnknownVni) };
    match inner::reread(packet) {
        Some(inner) => to_dest(t, o, network, from, dest, &inner, packet),
        None => Verdict::Drop(DropReason::FrameTooShort),
    }
}

#[inline]
fn to_dest<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    network: &Network,
    from: PortId,
    dest: Dest,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Verdict {
    match dest {
        Dest::Vtep(id) => match t.vteps.get(id) {
            Some(row) => encap::push(o, &t.settings, (id, row), network.vni, inner, packet),
            None => Verdict::Drop(DropReason::NoPath),
        },
        Dest::Port(port) if port == from => Verdict::Drop(DropReason::SamePort),
        Dest::Port(port) => to_port(t, port, packet),
    }
}

#[inline]
fn to_port(t: &Snapshot, port: PortId, packet: &Packet<'_>) -> Verdict {
    match t.port(port) {
        Some(out) if packet.len() <= usize::from(out.mtu) + ethernet::HEADER_LEN => Verdict::Forward(port),
        Some(_) => Verdict::Drop(DropReason::PortMtuExceeded),
        None => Verdict::Drop(DropReason::TxFailed),
    }
}
