//! A network: one VNI, its FDB, its members and its receivers of group packets.

use super::fdb::{Dest, Fdb};
use crate::ids::{PortId, VtepId};
use crate::wire::vxlan::Vni;

/// What becomes of a unicast packet whose destination is in no FDB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownUnicast {
    /// Dropped and counted: right where every MAC is configured.
    Drop,
    /// Copied to every receiver, like a group packet.
    Flood,
}

/// One VNI of this host.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its identifier on the wire.
    pub vni: Vni,
    /// MAC → port or VTEP.
    pub fdb: Fdb,
    /// Policy for destinations that are in no FDB entry.
    pub unknown_unicast: UnknownUnicast,
    /// Access ports first, then remote VTEPs: receivers of group packets.
    receivers: Vec<Dest>,
    local_receivers: usize,
    /// A bit for each VTEP: 8 kB for 64k of them.
    members: Vec<u64>,
}

impl Network {
    /// A network with its access ports and the remote VTEPs that may send it (`members`), each member's first encap
    /// IP being in `flood`.
    #[must_use]
    pub fn new(
        vni: Vni,
        fdb: Fdb,
        unknown_unicast: UnknownUnicast,
        ports: &[PortId],
        flood: &[VtepId],
        members: &[VtepId],
    ) -> Self {
        let mut bits = Vec::new();
        for member in members {
            let (word, bit) = bit_of(*member);
            bits.resize(bits.len().max(word + 1), 0u64);
            if let Some(word) = bits.get_mut(word) {
                *word |= bit;
            }
        }
        let ports_first = ports.iter().map(|p| Dest::Port(*p)).chain(flood.iter().map(|v| Dest::Vtep(*v)));
        Self {
            vni,
            fdb,
            unknown_unicast,
            receivers: ports_first.collect(),
            local_receivers: ports.len(),
            members: bits,
        }
    }

    /// Whether `vtep` may send packets of this network.
    #[inline]
    #[must_use]
    pub fn has_member(&self, vtep: VtepId) -> bool {
        let (word, bit) = bit_of(vtep);
        self.members.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Receivers of a group packet of a local port: head-end replication, the sender's own port included.
    #[must_use]
    pub fn receivers(&self) -> &[Dest] {
        &self.receivers
    }

    /// Receivers of a group packet from the underlay: local ports only (split horizon).
    #[must_use]
    pub fn local_receivers(&self) -> &[Dest] {
        self.receivers.get(..self.local_receivers).unwrap_or_default()
    }
}

#[inline]
fn bit_of(vtep: VtepId) -> (usize, u64) {
    (vtep.0 as usize / 64, 1 << (vtep.0 % 64))
}
