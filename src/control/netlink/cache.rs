//! The kernel's neighbor table as last heard. Pure: events in, MACs out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use crate::ids::{IfIndex, Nanos};
use crate::wire::ethernet::Mac;

use super::event::Event;
use super::facts::{Neighbor, NeighborState};

/// Device and address: what identifies a neighbor.
pub(super) type Key = (IfIndex, IpAddr);

/// The neighbor table as last heard.
#[derive(Debug, Default)]
pub struct NeighborCache {
    entries: HashMap<Key, Known>,
}

/// A neighbor and since when it is in its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) neighbor: Neighbor,
    pub(super) since: Nanos,
}

impl NeighborCache {
    /// The MAC of a neighbor, when frames may be sent to it.
    #[must_use]
    pub fn mac(&self, ifindex: IfIndex, ip: IpAddr) -> Option<Mac> {
        self.get((ifindex, ip)).and_then(|known| known.neighbor.usable_mac())
    }

    pub(super) fn get(&self, key: Key) -> Option<&Known> {
        self.entries.get(&key)
    }

    /// Takes a change in, and says which neighbor is different, if any.
    pub fn apply(&mut self, event: &Event, now: Nanos) -> Option<(IfIndex, IpAddr)> {
        match *event {
            Event::Neighbor(neighbor) => self.insert(neighbor, now),
            Event::NeighborGone { ifindex, ip } => self.entries.remove(&(ifindex, ip)).map(|_| (ifindex, ip)),
            Event::Link(_) | Event::LinkGone(_) | Event::Route(_) | Event::Overrun => None,
        }
    }

    /// Takes the whole table in, and says which neighbors are different.
    pub fn replace(&mut self, table: &[Neighbor], now: Nanos) -> Vec<(IfIndex, IpAddr)> {
        let mut changed: Vec<_> = table.iter().filter_map(|&neighbor| self.insert(neighbor, now)).collect();
        let present: std::collections::HashSet<Key> = table.iter().map(|n| (n.ifindex, n.ip)).collect();
        self.entries.retain(|key, _| {
            let keep = present.contains(key);
            if !keep {
                changed.push(*key);
            }
            keep
        });
        changed
    }

    fn insert(&mut self, neighbor: Neighbor, now: Nanos) -> Option<Key> {
        let key = (neighbor.ifindex, neighbor.ip);
        let known = Known { neighbor, since: now };
        match self.entries.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(known);
                Some(key)
            }
            Entry::Occupied(mut entry) if entry.get().neighbor != neighbor => {
                entry.insert(known);
                Some(key)
            }
            Entry::Occupied(_) => None,
        }
    }
}

impl Known {
    pub(super) fn state(&self) -> NeighborState {
        self.neighbor.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: IfIndex = IfIndex(3);

    fn neighbor(last: u8, state: NeighborState) -> Neighbor {
        let mac = Some(Mac([2, 0, 0, 0, 0, last]));
        Neighbor { ifindex: DEVICE, ip: ip(last), mac, state }
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_mac_is_known_from_its_event_until_it_fails_or_goes() {
        let mut cache = NeighborCache::default();
        let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
        let now = Nanos(1);
        assert_eq!(cache.mac(DEVICE, ip(1)), None);
        let reachable = Event::Neighbor(neighbor(1, NeighborState::Reachable));
        assert_eq!(cache.apply(&reachable, now), Some((DEVICE, ip(1))));
        assert_eq!(cache.mac(DEVICE, ip(1)), mac);
        assert_eq!(cache.mac(IfIndex(4), ip(1)), None, "another device");
        assert_eq!(cache.apply(&reachable, now), None, "nothing new");
        // The kernel keeps the address of a failed entry; it must not be used.
        cache.apply(&Event::Neighbor(neighbor(1, NeighborState::Failed)), now);
        assert_eq!(cache.mac(DEVICE, ip(1)), None);
        cache.apply(&Event::Neighbor(neighbor(1, NeighborState::Stale)), now);
        assert_eq!(cache.mac(DEVICE, ip(1)), mac);
        let gone = Event::NeighborGone { ifindex: DEVICE, ip: ip(1) };
        assert_eq!(cache.apply(&gone, now), Some((DEVICE, ip(1))));
        assert_eq!(cache.apply(&gone, now), None);
        assert_eq!(cache.mac(DEVICE, ip(1)), None);
    }

    #[test]
    fn reading_the_table_anew_reports_only_differences() {
        let mut cache = NeighborCache::default();
        for last in 1..=3 {
            cache.apply(&Event::Neighbor(neighbor(last, NeighborState::Reachable)), Nanos(1));
        }
        // 1 stays, 2 changed state, 3 is gone, 4 is new.
        let table = [
            neighbor(1, NeighborState::Reachable),
            neighbor(2, NeighborState::Stale),
            neighbor(4, NeighborState::Permanent),
        ];
        let mut changed = cache.replace(&table, Nanos(9));
        changed.sort();
        assert_eq!(changed, [(DEVICE, ip(2)), (DEVICE, ip(3)), (DEVICE, ip(4))]);
        assert_eq!(cache.mac(DEVICE, ip(3)), None);
        assert_eq!(cache.get((DEVICE, ip(1))).unwrap().since, Nanos(1), "unchanged, so its age goes on");
        assert_eq!(cache.get((DEVICE, ip(2))).unwrap().since, Nanos(9));
    }

    #[test]
    fn a_state_without_an_address_has_none() {
        let mut cache = NeighborCache::default();
        let incomplete = Neighbor { mac: None, ..neighbor(1, NeighborState::Incomplete) };
        cache.apply(&Event::Neighbor(incomplete), Nanos(0));
        assert_eq!(cache.mac(DEVICE, ip(1)), None);
    }
}
