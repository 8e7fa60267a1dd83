//! Which memory a packet's look-ups will touch, told ahead so that the caller can have it fetched. Worth it only with
//! tables larger than the cache ([`Snapshot::large`]): it parses part of the packet twice.

use crate::ids::PortId;
use crate::tables::fdb::Dest;
use crate::tables::network::Network;
use crate::tables::snapshot::{Role, Snapshot};
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

/// Offset of the VNI behind untagged Ethernet, IPv4 without options, UDP: the common case, and a wrong guess costs
/// nothing but a useless fetch.
const VNI: usize = 46;
/// Offset of the inner frame in the same case.
const INNER: usize = 50;

/// The FDB line that a frame's destination MAC is looked up in.
#[inline]
#[must_use]
pub fn fdb_line<'t>(t: &'t Snapshot, port: PortId, head: &[u8]) -> &'t [u8] {
    look_up(t, port, head).map(|(network, mac)| network.fdb.home(mac)).unwrap_or_default()
}

/// The lines of the VTEP row that the frame will be encapsulated with. Reads the FDB, whose line should be near by then.
#[inline]
#[must_use]
pub fn vtep_lines<'t>(t: &'t Snapshot, port: PortId, head: &[u8]) -> Option<[&'t [u8]; 2]> {
    let (network, mac) = look_up(t, port, head)?;
    match network.fdb.get(mac)? {
        Dest::Vtep(id) => Some(t.vteps.get(id)?.lines()),
        Dest::Port(_) => None,
    }
}

/// The network and destination MAC of a frame, as far as its first bytes tell.
#[inline]
fn look_up<'t>(t: &'t Snapshot, port: PortId, head: &[u8]) -> Option<(&'t Network, Mac)> {
    match t.port(port)?.role {
        Role::Access(id) => Some((t.network(id)?, Mac(*head.first_chunk()?))),
        Role::Uplink { .. } => {
            let [a, b, c] = *head.get(VNI..)?.first_chunk()?;
            let network = t.network_of(Vni::new(u32::from_be_bytes([0, a, b, c]))?)?;
            Some((network, Mac(*head.get(INNER..)?.first_chunk()?)))
        }
        Role::Trunk(_) | Role::Native(_) => None,
    }
}
