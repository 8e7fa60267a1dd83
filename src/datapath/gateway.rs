//! What the anycast gateway answers itself: ARP and ND for its addresses and for known stations, and ping.

use super::inner::Inner;
use super::route::{Ingress, Ip};
use super::verdict::{Observer, Verdict};
use crate::ids::{NetworkId, PortId};
use crate::tables::network::Network;
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::DropReason;
use crate::wire::packet::Packet;

/// Answers an ARP request or neighbor solicitation of a local station; `None` when the frame is to go on.
#[inline]
pub fn answer<O: Observer>(
    _t: &Snapshot,
    _o: &mut O,
    (_port, _id): (PortId, NetworkId),
    _network: &Network,
    _inner: &Inner,
    _packet: &mut Packet<'_>,
) -> Option<Verdict> {
    None
}

/// A packet to an address of the gateway of `network`: ping is answered, nothing else is.
pub fn to_us<O: Observer>(
    _t: &Snapshot,
    _o: &mut O,
    _from: Ingress,
    _network: NetworkId,
    _ip: &Ip,
    _packet: &mut Packet<'_>,
) -> Verdict {
    Verdict::Drop(DropReason::ToGateway)
}
