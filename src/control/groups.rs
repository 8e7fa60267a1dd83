//! Multicast groups that stations joined by IGMP or MLD, per network. Pure: `lifecycle` feeds it what workers saw and
//! writes the receivers into the tables.
//!
//! A membership lasts until the station leaves, or its port or peer goes: without a querier nobody repeats a report, so
//! none ages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ids::NetworkId;
use crate::tables::fdb::Dest;

/// Most groups of one network; further ones are not followed and go nowhere.
pub const MAX_GROUPS: usize = 4096;

/// Who joined what.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    members: BTreeMap<(NetworkId, IpAddr), BTreeSet<Dest>>,
}

impl Groups {
    /// A station joined or left. Returns whether the group's receivers changed.
    pub fn change(&mut self, network: NetworkId, group: IpAddr, at: Dest, joined: bool) -> bool {
        if !joined {
            let Some(members) = self.members.get_mut(&(network, group)) else { return false };
            let changed = members.remove(&at);
            if members.is_empty() {
                self.members.remove(&(network, group));
            }
            return changed;
        }
        if !self.members.contains_key(&(network, group)) && self.of(network).count() >= MAX_GROUPS {
            return false;
        }
        self.members.entry((network, group)).or_default().insert(at)
    }

    fn of(&self, network: NetworkId) -> impl Iterator<Item = (IpAddr, &BTreeSet<Dest>)> {
        let first = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let last = IpAddr::V6(Ipv6Addr::from_bits(u128::MAX));
        let its = self.members.range((network, first)..=(network, last));
        its.map(|((_, group), members)| (*group, members))
    }

    /// Everything, as it is to be in the tables.
    pub fn all(&self) -> impl Iterator<Item = (NetworkId, IpAddr)> {
        self.members.keys().copied()
    }

    /// Places that joined a group.
    pub fn members(&self, network: NetworkId, group: IpAddr) -> impl Iterator<Item = Dest> {
        self.members.get(&(network, group)).into_iter().flatten().copied()
    }

    /// Takes the numbers of another configuration over. `place` tells where a member is in it, and `None` when it is no
    /// place of the network any more: its port moved, or its peer left.
    pub fn renumber(
        &mut self,
        network: impl Fn(NetworkId) -> Option<NetworkId>,
        place: impl Fn(NetworkId, Dest) -> Option<Dest>,
    ) {
        for ((id, group), members) in std::mem::take(&mut self.members) {
            let Some(id) = network(id) else { continue };
            let kept: BTreeSet<Dest> = members.into_iter().filter_map(|at| place(id, at)).collect();
            if !kept.is_empty() {
                self.members.insert((id, group), kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PortId;

    const RED: NetworkId = NetworkId(1);
    const BLUE: NetworkId = NetworkId(2);

    fn port(number: u16) -> Dest {
        Dest::Port(PortId(number))
    }

    fn group(number: u32) -> IpAddr {
        IpAddr::V4((0xef00_0000 + number).into())
    }

    #[test]
    fn a_group_is_there_from_the_first_join_to_the_last_leave() {
        let mut groups = Groups::default();
        assert!(groups.change(RED, group(1), port(1), true));
        assert!(!groups.change(RED, group(1), port(1), true), "a repeated report changes nothing");
        assert!(groups.change(RED, group(1), port(2), true));
        assert_eq!(groups.of(RED).map(|(_, members)| members.len()).collect::<Vec<_>>(), [2]);
        assert_eq!(groups.of(BLUE).count(), 0);
        assert!(groups.change(RED, group(1), port(1), false));
        assert!(!groups.change(RED, group(1), port(1), false));
        assert!(groups.change(RED, group(1), port(2), false));
        assert_eq!(groups.of(RED).count(), 0);
    }

    #[test]
    fn memberships_follow_their_ports_to_new_numbers_and_go_with_them() {
        let mut groups = Groups::default();
        groups.change(RED, group(1), port(1), true);
        groups.change(RED, group(2), port(2), true);
        groups.renumber(|_| Some(BLUE), |_, at| (at != port(1)).then_some(port(7)));
        assert_eq!(groups.all().collect::<Vec<_>>(), [(BLUE, group(2))]);
        assert_eq!(groups.members(BLUE, group(2)).collect::<Vec<_>>(), [port(7)]);
    }

    #[test]
    fn one_station_cannot_fill_the_memory() {
        let mut groups = Groups::default();
        let joined =
            (0..).take(2 * MAX_GROUPS).filter(|n| groups.change(RED, group(*n), port(1), true)).count();
        assert_eq!(joined, MAX_GROUPS);
        assert!(groups.change(BLUE, group(1), port(1), true), "another network has its own limit");
    }
}
