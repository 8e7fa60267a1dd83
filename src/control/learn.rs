//! What is learned from the frames of stations: where a MAC is, and which addresses it has. Decides what the tables are
//! to say; time is an argument, and whoever calls publishes the [`Change`]s.
//!
//! What is configured is not in here: the caller says what the tables have, and what they have beyond this is static.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::datapath::Learned;
use crate::ids::{Nanos, NetworkId, VtepId};
use crate::tables::fdb::Dest;
use crate::wire::ethernet::Mac;

/// Moves of a MAC within [`MOVE_WINDOW`] that freeze it where it is (RFC 7432 section 15.1: N).
pub const MOVE_LIMIT: u8 = 5;
/// The time in which moves are counted (RFC 7432 section 15.1: M).
pub const MOVE_WINDOW: Duration = Duration::from_secs(180);
/// How long a frozen MAC stays where it is, whatever is seen.
pub const FREEZE: Duration = Duration::from_secs(180);
/// Learned addresses of a network for each MAC that it may learn: both families, link-local and another.
const ADDRESSES_PER_MAC: usize = 4;

/// How a network learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A station that is silent for this long is forgotten.
    pub ageing: Duration,
    /// Most stations.
    pub macs: usize,
    /// MACs of routers, ours and the gateway's: never a station's.
    pub routers: Vec<Mac>,
    /// The gateway's addresses.
    pub gateways: Vec<IpAddr>,
}

/// What is to change in the tables, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Where a station is; `None`: it is forgotten.
    Station {
        /// Its network.
        network: NetworkId,
        /// The station.
        mac: Mac,
        /// Its place.
        at: Option<Dest>,
    },
    /// Whose an address is; `None`: nobody's.
    Address {
        /// Its network.
        network: NetworkId,
        /// The address.
        ip: IpAddr,
        /// Its station.
        mac: Option<Mac>,
    },
}

/// Something that the operator may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A station moved.
    Moved {
        /// From here.
        from: Dest,
        /// To there.
        to: Dest,
    },
    /// A station moved once too often, and stays where it is.
    Frozen {
        /// There.
        at: Dest,
    },
    /// A station was seen where it is configured not to be.
    StationConflict {
        /// Where it is configured.
        configured: Dest,
        /// Where it was seen.
        seen: Dest,
    },
    /// A station says that it has another station's configured address.
    AddressConflict {
        /// The address.
        ip: IpAddr,
        /// Whose it is.
        configured: Mac,
    },
    /// The network has no room for another station or address.
    Full {
        /// Most stations.
        macs: usize,
    },
}

/// What the tables say of the station and the address that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The FDB entry of the MAC.
    pub at: Option<Dest>,
    /// The MAC of the address.
    pub mac: Option<Mac>,
}

/// Where the station of a learned address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is configured.
    Configured,
    /// It is not: without a learned station the address is nobody's.
    Learned,
}

/// A station that was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Where it is.
    pub at: Dest,
    /// When it was last seen.
    pub seen: Nanos,
    /// Until when no move of it counts.
    pub frozen_until: Option<Nanos>,
    moves: u8,
    moves_since: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    mac: Mac,
    seen: Nanos,
}

/// All that is learned.
#[derive(Debug, Default)]
pub struct Learner {
    networks: HashMap<NetworkId, Table>,
    /// First VTEP of the peer that each VTEP belongs to: a station is behind a peer, whichever encap IP it sends from.
    homes: Vec<VtepId>,
    changes: Vec<Change>,
    conflicts: u64,
}

#[derive(Debug)]
struct Table {
    settings: Settings,
    stations: HashMap<Mac, Station>,
    addresses: HashMap<IpAddr, Binding>,
    /// When each station and address may be due: all in order, as every one waits equally long.
    stations_due: VecDeque<(Nanos, Mac)>,
    addresses_due: VecDeque<(Nanos, IpAddr)>,
}

impl Learner {
    /// Forgets nothing that is learned, but the networks that are not in `settings`.
    pub fn configure(&mut self, settings: Vec<(NetworkId, Settings)>, homes: Vec<VtepId>) {
        let mut old = std::mem::take(&mut self.networks);
        self.homes = homes;
        for (id, settings) in settings {
            let mut table = old.remove(&id).unwrap_or_else(|| Table::new(settings.clone()));
            table.settings = settings;
            table.requeue();
            self.networks.insert(id, table);
        }
    }

    /// Takes in what a worker saw.
    pub fn saw(&mut self, now: Nanos, seen: &Learned, present: Present) -> Option<Notice> {
        let table = self.networks.get_mut(&seen.network)?;
        if seen.mac.is_group() || seen.mac.is_zero() || table.settings.routers.contains(&seen.mac) {
            return None;
        }
        let at = home(&self.homes, seen.at);
        let present_at = present.at.map(|at| home(&self.homes, at));
        let (placed, notice) = table.place(now, seen.mac, at, present_at, |at| {
            self.changes.push(Change::Station { network: seen.network, mac: seen.mac, at: Some(at) });
        });
        let refused = match seen.ip {
            Some(ip) if placed => table.bind(now, seen.mac, ip, present.mac, || {
                self.changes.push(Change::Address { network: seen.network, ip, mac: Some(seen.mac) });
            }),
            _ => None,
        };
        let notice = refused.or(notice);
        let conflict =
            matches!(notice, Some(Notice::StationConflict { .. } | Notice::AddressConflict { .. }));
        self.conflicts += u64::from(conflict);
        notice
    }

    /// Forgets whom nothing was heard of for too long.
    pub fn expire(&mut self, now: Nanos) {
        for (network, table) in &mut self.networks {
            table.expire(*network, now, &mut self.changes);
        }
    }

    /// What is to change in the tables since this was last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether there is something to publish.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Gives everything the ids of another configuration, and forgets what is not legal in it. `network` is a network's
    /// new id; `place` a station's new place, `None` where it is configured or cannot be; `address` whether an address
    /// may still be learned, and whether its station is a configured one. Changes that were not taken are lost: all that
    /// is left is in [`contents`](Self::contents). To be followed by [`configure`](Self::configure).
    pub fn renumber(
        &mut self,
        network: impl Fn(NetworkId) -> Option<NetworkId>,
        place: impl Fn(NetworkId, Mac, Dest) -> Option<Dest>,
        address: impl Fn(NetworkId, IpAddr, Mac) -> Option<Owner>,
    ) {
        self.changes.clear();
        let old = std::mem::take(&mut self.networks);
        for (id, mut table) in old {
            let Some(id) = network(id) else { continue };
            table.retain(|mac, at| place(id, mac, at), |ip, mac| address(id, ip, mac));
            self.networks.insert(id, table);
        }
    }

    /// Forgets what is not legal in a network any more; numbers stay. Changes of the network that were not taken are in
    /// its [`contents`](Self::contents), too.
    pub fn revise(
        &mut self,
        network: NetworkId,
        place: impl Fn(Mac, Dest) -> Option<Dest>,
        address: impl Fn(IpAddr, Mac) -> Option<Owner>,
    ) {
        if let Some(table) = self.networks.get_mut(&network) {
            table.retain(place, address);
            table.requeue();
        }
    }

    /// Changes that would make everything out of tables with what is configured alone.
    pub fn contents(&self) -> impl Iterator<Item = Change> {
        self.networks.iter().flat_map(|(&network, table)| {
            let stations = table.stations.iter();
            let stations =
                stations.map(move |(&mac, station)| Change::Station { network, mac, at: Some(station.at) });
            let addresses = table.addresses.iter();
            let addresses =
                addresses.map(move |(&ip, binding)| Change::Address { network, ip, mac: Some(binding.mac) });
            stations.chain(addresses)
        })
    }

    /// What is known of a learned station; `None` when it is not learned.
    #[must_use]
    pub fn station(&self, network: NetworkId, mac: Mac) -> Option<&Station> {
        self.networks.get(&network)?.stations.get(&mac)
    }

    /// When an address was last claimed; `None` when it is not learned.
    #[must_use]
    pub fn address(&self, network: NetworkId, ip: IpAddr) -> Option<Nanos> {
        self.networks.get(&network)?.addresses.get(&ip).map(|binding| binding.seen)
    }

    /// How a network learns, and how many stations and addresses it has learned; `None` when it does not learn.
    #[must_use]
    pub fn network(&self, network: NetworkId) -> Option<(&Settings, usize, usize)> {
        let table = self.networks.get(&network)?;
        Some((&table.settings, table.stations.len(), table.addresses.len()))
    }

    /// Times that something configured was contradicted.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }
}

impl Table {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            stations: HashMap::new(),
            addresses: HashMap::new(),
            stations_due: VecDeque::new(),
            addresses_due: VecDeque::new(),
        }
    }

    fn retain(
        &mut self,
        place: impl Fn(Mac, Dest) -> Option<Dest>,
        address: impl Fn(IpAddr, Mac) -> Option<Owner>,
    ) {
        self.stations.retain(|mac, station| match place(*mac, station.at) {
            Some(at) => {
                station.at = at;
                true
            }
            None => false,
        });
        let stations = &self.stations;
        self.addresses.retain(|ip, binding| match address(*ip, binding.mac) {
            Some(Owner::Configured) => true,
            Some(Owner::Learned) => stations.contains_key(&binding.mac),
            None => false,
        });
    }

    /// Puts everything in line anew.
    fn requeue(&mut self) {
        let ageing = self.settings.ageing;
        let stations = self.stations.iter().map(|(mac, station)| (later(station.seen, ageing), *mac));
        let addresses = self.addresses.iter().map(|(ip, binding)| (later(binding.seen, ageing), *ip));
        (self.stations_due, self.addresses_due) = (stations.collect(), addresses.collect());
        self.stations_due.make_contiguous().sort_unstable();
        self.addresses_due.make_contiguous().sort_unstable();
    }

    /// Whether the station is, or is put, where it was seen; `change` is told a new place.
    fn place(
        &mut self,
        now: Nanos,
        mac: Mac,
        at: Dest,
        present: Option<Dest>,
        mut change: impl FnMut(Dest),
    ) -> (bool, Option<Notice>) {
        if let Some(station) = self.stations.get_mut(&mac) {
            if station.at == at {
                station.seen = now;
                return (true, None);
            }
            if station.frozen_until.is_some_and(|until| now < until) {
                return (false, None);
            }
            let notice = station.move_to(now, at);
            change(at);
            return (true, Some(notice));
        }
        if let Some(configured) = present {
            let conflict = Notice::StationConflict { configured, seen: at };
            return if configured == at { (true, None) } else { (false, Some(conflict)) };
        }
        if self.stations.len() >= self.settings.macs {
            return (false, Some(Notice::Full { macs: self.settings.macs }));
        }
        let station = Station { at, seen: now, frozen_until: None, moves: 0, moves_since: now };
        self.stations.insert(mac, station);
        self.stations_due.push_back((later(now, self.settings.ageing), mac));
        change(at);
        (true, None)
    }

    /// Notes whose an address is; `change` is told when it is news.
    fn bind(
        &mut self,
        now: Nanos,
        mac: Mac,
        ip: IpAddr,
        present: Option<Mac>,
        mut change: impl FnMut(),
    ) -> Option<Notice> {
        if !is_station(ip) || self.settings.gateways.contains(&ip) {
            return None;
        }
        if let Some(binding) = self.addresses.get_mut(&ip) {
            binding.seen = now;
            if std::mem::replace(&mut binding.mac, mac) != mac {
                change();
            }
            return None;
        }
        if let Some(configured) = present {
            return (configured != mac).then_some(Notice::AddressConflict { ip, configured });
        }
        if self.addresses.len() >= self.settings.macs.saturating_mul(ADDRESSES_PER_MAC) {
            return Some(Notice::Full { macs: self.settings.macs });
        }
        self.addresses.insert(ip, Binding { mac, seen: now });
        self.addresses_due.push_back((later(now, self.settings.ageing), ip));
        change();
        None
    }

    /// Each entry is looked at once in an ageing time, not at every call. An address lives as long as its station.
    fn expire(&mut self, network: NetworkId, now: Nanos, changes: &mut Vec<Change>) {
        let ageing = self.settings.ageing;
        while let Some(mac) = pop_due(&mut self.stations_due, now) {
            let Some(station) = self.stations.get(&mac) else { continue };
            let due = later(station.seen, ageing);
            if due > now {
                self.stations_due.push_back((due, mac));
            } else {
                self.stations.remove(&mac);
                changes.push(Change::Station { network, mac, at: None });
            }
        }
        while let Some(ip) = pop_due(&mut self.addresses_due, now) {
            let Some(binding) = self.addresses.get(&ip) else { continue };
            let station = self.stations.get(&binding.mac).map_or(binding.seen, |station| station.seen);
            let due = later(binding.seen.max(station), ageing);
            if due > now {
                self.addresses_due.push_back((due, ip));
            } else {
                self.addresses.remove(&ip);
                changes.push(Change::Address { network, ip, mac: None });
            }
        }
    }
}

impl Station {
    fn move_to(&mut self, now: Nanos, to: Dest) -> Notice {
        if self.frozen_until.take().is_some() || now > later(self.moves_since, MOVE_WINDOW) {
            (self.moves, self.moves_since) = (0, now);
        }
        self.moves = self.moves.saturating_add(1);
        let from = std::mem::replace(&mut self.at, to);
        self.seen = now;
        if self.moves < MOVE_LIMIT {
            return Notice::Moved { from, to };
        }
        self.frozen_until = Some(later(now, FREEZE));
        Notice::Frozen { at: to }
    }
}

/// One place for all encap IPs of a peer.
fn home(homes: &[VtepId], at: Dest) -> Dest {
    match at {
        Dest::Vtep(vtep) => Dest::Vtep(homes.get(vtep.0 as usize).copied().unwrap_or(vtep)),
        port @ Dest::Port(_) => port,
    }
}

fn pop_due<T>(queue: &mut VecDeque<(Nanos, T)>, now: Nanos) -> Option<T> {
    if queue.front().is_none_or(|(due, _)| *due > now) {
        return None;
    }
    queue.pop_front().map(|(_, due)| due)
}

/// Whether one station can have the address.
fn is_station(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || broadcast)
}

fn later(at: Nanos, time: Duration) -> Nanos {
    Nanos(at.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PortId;

    const NET: NetworkId = NetworkId(7);
    const HERE: Dest = Dest::Port(PortId(1));
    const THERE: Dest = Dest::Port(PortId(2));
    const ABSENT: Present = Present { at: None, mac: None };
    const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0xfe]);

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn seen(mac: Mac, at: Dest) -> Learned {
        Learned { network: NET, mac, at, known: None, ip: None }
    }

    fn claim(mac: Mac, at: Dest, text: &str) -> Learned {
        Learned { ip: Some(ip(text)), ..seen(mac, at) }
    }

    fn settings(macs: usize) -> Settings {
        Settings {
            ageing: Duration::from_secs(300),
            macs,
            routers: vec![ROUTER],
            gateways: vec![ip("10.0.0.254")],
        }
    }

    fn learner(macs: usize) -> Learner {
        let mut learner = Learner::default();
        learner.configure(vec![(NET, settings(macs))], vec![VtepId(0), VtepId(1), VtepId(1)]);
        learner
    }

    fn station(mac: Mac, at: Option<Dest>) -> Change {
        Change::Station { network: NET, mac, at }
    }

    fn address(text: &str, mac: Option<Mac>) -> Change {
        Change::Address { network: NET, ip: ip(text), mac }
    }

    #[test]
    fn a_station_is_added_once_and_forgotten_when_it_was_silent_for_the_ageing_time() {
        let mut learner = learner(10);
        assert_eq!(learner.saw(at(0), &seen(mac(1), HERE), ABSENT), None);
        assert_eq!(learner.take_changes(), [station(mac(1), Some(HERE))]);
        learner.saw(at(200), &seen(mac(1), HERE), Present { at: Some(HERE), mac: None });
        for (now, changes) in
            [(300, vec![]), (499, vec![]), (500, vec![station(mac(1), None)]), (900, vec![])]
        {
            learner.expire(at(now));
            assert_eq!(learner.take_changes(), changes, "{now}");
        }
    }

    #[test]
    fn a_network_that_does_not_learn_learns_nothing() {
        let mut learner = learner(10);
        let elsewhere = Learned { network: NetworkId(8), ..seen(mac(1), HERE) };
        assert_eq!(learner.saw(at(0), &elsewhere, ABSENT), None);
        assert!(!learner.has_changes());
    }

    #[test]
    fn group_zero_and_router_macs_are_nobodys() {
        let mut learner = learner(10);
        for mac in [Mac::BROADCAST, Mac([1, 0, 0x5e, 0, 0, 1]), Mac::default(), ROUTER] {
            assert_eq!(learner.saw(at(0), &claim(mac, HERE, "10.0.0.1"), ABSENT), None);
        }
        assert!(!learner.has_changes());
    }

    #[test]
    fn the_fifth_move_in_three_minutes_freezes_a_station_where_it_is() {
        let mut learner = learner(10);
        learner.saw(at(0), &seen(mac(1), HERE), ABSENT);
        let places = [THERE, HERE, THERE, HERE, THERE];
        let mut notices = Vec::new();
        for (second, place) in (1..).zip(places) {
            notices.extend(learner.saw(at(second), &seen(mac(1), place), ABSENT));
        }
        assert!(matches!(notices[3], Notice::Moved { from: THERE, to: HERE }), "{notices:?}");
        assert_eq!(notices[4], Notice::Frozen { at: THERE });
        learner.take_changes();

        assert_eq!(learner.saw(at(6), &seen(mac(1), HERE), ABSENT), None);
        assert_eq!(learner.saw(at(184), &seen(mac(1), HERE), ABSENT), None);
        assert!(!learner.has_changes(), "frozen");
        // After that it starts anew.
        assert!(matches!(learner.saw(at(185), &seen(mac(1), HERE), ABSENT), Some(Notice::Moved { .. })));
        assert_eq!(learner.take_changes(), [station(mac(1), Some(HERE))]);
    }

    #[test]
    fn moves_that_are_far_between_freeze_nothing() {
        let mut learner = learner(10);
        learner.saw(at(0), &seen(mac(1), HERE), ABSENT);
        for n in 1..50 {
            let place = if n % 2 == 0 { HERE } else { THERE };
            let notice = learner.saw(at(n * 46), &seen(mac(1), place), ABSENT);
            assert!(matches!(notice, Some(Notice::Moved { .. })), "{n}");
        }
    }

    #[test]
    fn configured_stations_and_addresses_stay_and_contradictions_are_counted() {
        let mut learner = learner(10);
        let present = Present { at: Some(HERE), mac: None };
        let conflict = Notice::StationConflict { configured: HERE, seen: THERE };
        assert_eq!(learner.saw(at(0), &claim(mac(1), THERE, "10.0.0.1"), present), Some(conflict));
        assert_eq!(learner.saw(at(0), &seen(mac(1), HERE), present), None);
        assert!(!learner.has_changes(), "nor is the address of a station that is elsewhere believed");

        let taken = Present { at: Some(HERE), mac: Some(mac(2)) };
        let notice = learner.saw(at(0), &claim(mac(1), HERE, "10.0.0.2"), taken);
        assert_eq!(notice, Some(Notice::AddressConflict { ip: ip("10.0.0.2"), configured: mac(2) }));
        let own = Present { at: Some(HERE), mac: Some(mac(1)) };
        assert_eq!(learner.saw(at(0), &claim(mac(1), HERE, "10.0.0.1"), own), None);
        assert_eq!((learner.has_changes(), learner.conflicts()), (false, 2));
    }

    #[test]
    fn no_more_stations_than_the_limit_until_one_is_forgotten() {
        let mut learner = learner(2);
        for n in 1..=2 {
            assert_eq!(learner.saw(at(0), &seen(mac(n), HERE), ABSENT), None);
        }
        assert_eq!(
            learner.saw(at(1), &claim(mac(3), HERE, "10.0.0.3"), ABSENT),
            Some(Notice::Full { macs: 2 })
        );
        assert!(matches!(learner.saw(at(1), &seen(mac(1), THERE), ABSENT), Some(Notice::Moved { .. })));
        learner.take_changes();
        learner.expire(at(300));
        assert_eq!(learner.take_changes(), [station(mac(2), None)]);
        assert_eq!(learner.saw(at(301), &seen(mac(3), HERE), ABSENT), None);
        assert_eq!(learner.take_changes(), [station(mac(3), Some(HERE))]);
    }

    #[test]
    fn an_address_goes_to_who_claims_it_last_and_lives_as_long_as_its_station() {
        let mut learner = learner(10);
        learner.saw(at(0), &claim(mac(1), HERE, "10.0.0.1"), ABSENT);
        learner.saw(at(0), &claim(mac(2), THERE, "fd00::2"), ABSENT);
        learner.take_changes();
        learner.saw(at(1), &claim(mac(2), THERE, "10.0.0.1"), ABSENT);
        assert_eq!(learner.take_changes(), [address("10.0.0.1", Some(mac(2)))]);
        // Its station is heard of, though the address is not claimed again.
        learner.saw(at(250), &seen(mac(2), THERE), ABSENT);
        learner.expire(at(400));
        assert_eq!(learner.take_changes(), [station(mac(1), None)]);
        learner.expire(at(550));
        let mut changes = learner.take_changes();
        changes.sort_by_key(|change| format!("{change:?}"));
        assert_eq!(
            changes,
            [address("10.0.0.1", None), address("fd00::2", None), station(mac(2), None)],
            "in whatever order"
        );
    }

    #[test]
    fn addresses_that_no_station_can_have_are_not_learned() {
        let mut learner = learner(10);
        for bad in
            ["0.0.0.0", "255.255.255.255", "224.0.0.5", "127.0.0.1", "::", "ff02::1", "::1", "10.0.0.254"]
        {
            learner.saw(at(0), &claim(mac(1), HERE, bad), ABSENT);
        }
        assert_eq!(learner.take_changes(), [station(mac(1), Some(HERE))]);
    }

    #[test]
    fn a_peer_that_sends_from_several_encap_ips_is_one_place() {
        let mut learner = learner(10);
        learner.saw(at(0), &seen(mac(1), Dest::Vtep(VtepId(2))), ABSENT);
        assert_eq!(learner.saw(at(1), &seen(mac(1), Dest::Vtep(VtepId(1))), ABSENT), None);
        assert_eq!(learner.take_changes(), [station(mac(1), Some(Dest::Vtep(VtepId(1))))]);
        let configured = Present { at: Some(Dest::Vtep(VtepId(2))), mac: None };
        assert_eq!(learner.saw(at(1), &seen(mac(2), Dest::Vtep(VtepId(1))), configured), None);
    }

    #[test]
    fn a_new_configuration_keeps_what_is_still_legal_under_its_new_ids() {
        let mut learner = learner(10);
        learner.saw(at(0), &claim(mac(1), HERE, "10.0.0.1"), ABSENT);
        learner.saw(at(10), &claim(mac(2), THERE, "10.0.0.2"), ABSENT);
        learner.saw(at(20), &claim(mac(3), THERE, "10.0.0.3"), Present { at: Some(THERE), mac: None });
        let place = |_, _, at| (at == HERE).then_some(Dest::Port(PortId(9)));
        let owner = |_, _, m| Some(if m == mac(3) { Owner::Configured } else { Owner::Learned });
        learner.renumber(|id| (id == NET).then_some(NetworkId(1)), place, owner);
        learner.configure(
            vec![(NetworkId(1), Settings { ageing: Duration::from_secs(30), ..settings(10) })],
            Vec::new(),
        );
        assert_eq!(learner.contents().count(), 3);
        assert_eq!(learner.station(NetworkId(1), mac(1)).unwrap().at, Dest::Port(PortId(9)));
        assert!(learner.address(NetworkId(1), ip("10.0.0.2")).is_none(), "it went with its station");
        assert!(learner.address(NetworkId(1), ip("10.0.0.3")).is_some());
        // The new ageing holds for the old stations.
        learner.expire(at(30));
        assert_eq!(learner.take_changes().len(), 2);
    }
}
