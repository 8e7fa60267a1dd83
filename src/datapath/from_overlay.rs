//! Access port → underlay or another access port: read the tenant's frame, look its destination up, encapsulate.

use super::inner;
use super::verdict::{Observer, Replicate, Step, Verdict};
use crate::ids::PortId;
use crate::tables::network::{Network, UnknownUnicast};
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::DropReason;
use crate::wire::packet::Packet;

/// A frame that a port of `network` received.
#[inline]
pub fn from_overlay<O: Observer>(
    t: &Snapshot,
    o: &mut O,
    port: PortId,
    network: &Network,
    packet: &mut Packet<'_>,
) -> Verdict {
    let inner = match inner::accept(o, packet) {
        Ok(inner) => inner,
        Err(reason) => return Verdict::Drop(reason),
    };
    let everyone = Verdict::Replicate(Replicate { vni: network.vni, from: port, local_only: false });
    if inner.dst.is_group() {
        return everyone;
    }
    let dest = network.fdb.get(inner.dst);
    o.step(Step::Fdb(inner.dst, dest));
    match (dest, network.unknown_unicast) {
        (Some(dest), _) => super::to_dest(t, o, network, port, dest, &inner, packet),
        (None, UnknownUnicast::Drop) => Verdict::Drop(DropReason::UnknownUnicast),
        (None, UnknownUnicast::Flood) => everyone,
    }
}
