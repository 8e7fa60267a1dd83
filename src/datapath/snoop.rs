//! Multicast groups: who gets a packet to one, and who says that he joins or leaves (RFC 4541).

use std::net::IpAddr;

use super::inner;
use super::verdict::{GroupChange, Observer};
use crate::ids::NetworkId;
use crate::tables::fdb::Dest;
use crate::tables::network::Network;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::igmp;

/// The group whose receivers get a packet; `None`: everyone. Tells reports of a network that snoops. Reports, leaves and
/// queries go to everyone, though most are addressed to the group that they are about: the routers and the other VTEPs
/// must hear them all. `at` is where the packet came from, if known.
#[inline]
pub fn group_of<O: Observer>(
    o: &mut O,
    (id, network): (NetworkId, &Network),
    at: Option<Dest>,
    head: &[u8],
    ethertype: EtherType,
) -> Option<IpAddr> {
    if !network.snooping && !network.flood.has_groups() {
        return None;
    }
    let l3 = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
    let changes = match ethertype {
        EtherType::IPV4 => igmp::read_v4(l3),
        EtherType::IPV6 => igmp::read_v6(l3),
        _ => None,
    };
    let Some(changes) = changes else { return inner::group(head, ethertype) };
    if let Some(at) = at
        && network.snooping
    {
        for (group, joined) in changes.filter(|(group, _)| igmp::has_members(*group)) {
            o.group(GroupChange { network: id, group, at, joined });
        }
    }
    None
}
