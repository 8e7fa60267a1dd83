//! The resolver's decisions: what to ask, when to ask again, which remotes have another MAC. No I/O and no clock.
//!
//! A remote has a route (the next hop towards it), a next hop has a neighbor entry. Routes are asked for at the start,
//! whenever a route or device changes, and now and then in case a change went unnoticed. Next hops are kept resolved:
//! the kernel sees none of the traffic, so without our asking their entries would go stale and be dropped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::ids::{IfIndex, Nanos};
use crate::wire::ethernet::Mac;

use super::super::cache::{Key, NeighborCache};
use super::super::event::Event;
use super::super::facts::{Link, Neighbor, NeighborState, Prefix};

/// Most route questions under way.
pub(super) const MAX_LOOKUPS: usize = 64;
/// Most next hops asked for in one turn.
const MAX_PROBES: usize = 64;
/// A stale next hop is confirmed this often.
const REFRESH: Duration = Duration::from_secs(30);
/// Demand for a remote lasts this long.
const DEMAND: Duration = Duration::from_secs(5);
/// Pause after the first failed attempt; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A route is asked for anew this often though nothing is known to have changed.
const ROUTE_REFRESH: Duration = Duration::from_secs(60);
/// The same where there was no route.
const ROUTE_RETRY: Duration = Duration::from_secs(5);
/// Pause between searches for overdue routes.
const SCAN: Duration = Duration::from_secs(1);
/// Route changes come in bursts; they are answered together after this pause.
const ROUTE_SETTLE: Duration = Duration::from_millis(50);
/// With more changed prefixes than this, every remote is looked up: comparing would cost more.
const MANY_PREFIXES: usize = 64;

/// A remote encap IP as reached through one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote {
    /// Device of the uplink (its VLAN device when tagged).
    pub ifindex: IfIndex,
    /// The remote encap IP.
    pub ip: IpAddr,
}

/// A remote to resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub remote: Remote,
    /// Our encap IP, which counts for routing rules.
    pub source: Option<IpAddr>,
}

/// A remote's next-hop MAC is another one, or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which remote.
    pub remote: Remote,
    /// Its next hop's MAC.
    pub mac: Option<Mac>,
}

/// What is known of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Which remote.
    pub remote: Remote,
    /// Its next hop: a gateway, or the remote itself when it is on the link.
    pub via: Option<IpAddr>,
    /// The next hop's MAC, when frames may be sent to it.
    pub mac: Option<Mac>,
    /// Whether the MAC is configured.
    pub is_static: bool,
    /// State of the kernel's neighbor entry.
    pub state: Option<NeighborState>,
    /// Time in that state.
    pub age: Option<Duration>,
    /// Why there is no next hop.
    pub failure: Option<String>,
}

/// What the task is to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) lookups: Vec<Route>,
    pub(super) probes: Vec<Key>,
    pub(super) changes: Vec<Change>,
    /// Whether more is due within a fraction of a second.
    pub(super) soon: bool,
}

#[derive(Debug)]
struct Entry {
    source: Option<IpAddr>,
    via: Option<Result<IpAddr, String>>,
    looked_up: Nanos,
    /// In the queue of lookups.
    queued: bool,
    published: Option<Mac>,
}

#[derive(Debug, Default)]
struct Hop {
    remotes: Vec<Remote>,
    probed: Option<Nanos>,
    /// Attempts since it last had a MAC.
    attempts: u32,
    demanded: Option<Nanos>,
}

/// State of the resolver.
#[derive(Debug, Default)]
pub(super) struct Core {
    entries: HashMap<Remote, Entry>,
    hops: HashMap<Key, Hop>,
    fixed: HashMap<Key, Mac>,
    cache: NeighborCache,
    links: HashMap<IfIndex, (bool, bool)>,
    queue: VecDeque<Remote>,
    changed_prefixes: HashSet<Prefix>,
    prefixes_changed_at: Option<Nanos>,
    changes: Vec<Change>,
    /// When overdue routes were last looked for.
    scanned: Nanos,
}

impl Core {
    pub(super) fn set_routes(&mut self, routes: &[Route]) {
        let wanted: HashMap<Remote, Option<IpAddr>> = routes.iter().map(|r| (r.remote, r.source)).collect();
        let dropped: Vec<Remote> =
            self.entries.keys().filter(|remote| !wanted.contains_key(remote)).copied().collect();
        for remote in dropped {
            self.leave_hop(remote);
            self.entries.remove(&remote);
        }
        for (remote, source) in wanted {
            let fresh = match self.entries.get_mut(&remote) {
                Some(entry) => std::mem::replace(&mut entry.source, source) != source,
                None => {
                    let entry =
                        Entry { source, via: None, looked_up: Nanos(0), queued: false, published: None };
                    self.entries.insert(remote, entry);
                    true
                }
            };
            if fresh {
                self.enqueue(remote);
            }
            self.publish(remote);
        }
    }

    pub(super) fn set_static(&mut self, hops: impl IntoIterator<Item = (IfIndex, IpAddr, Mac)>) {
        self.fixed = hops.into_iter().map(|(ifindex, ip, mac)| ((ifindex, ip), mac)).collect();
        let remotes: Vec<Remote> = self.entries.keys().copied().collect();
        for remote in remotes {
            self.publish(remote);
        }
    }

    pub(super) fn demand(&mut self, remotes: &[Remote], now: Nanos) {
        for remote in remotes {
            let via = self.entries.get(remote).and_then(Entry::via);
            if let Some(hop) = via.and_then(|via| self.hops.get_mut(&(remote.ifindex, via))) {
                hop.demanded = Some(now);
            }
        }
    }

    /// The kernel's answer to a lookup.
    pub(super) fn answered(&mut self, route: Route, via: Result<IpAddr, String>, now: Nanos) {
        let remote = route.remote;
        let Some(entry) = self.entries.get_mut(&remote).filter(|entry| entry.source == route.source) else {
            return;
        };
        entry.looked_up = now;
        if entry.via.as_ref() != Some(&via) {
            if let Err(reason) = &via {
                tracing::warn!(remote = %remote.ip, %reason, "no next hop");
            }
            self.leave_hop(remote);
            if let Ok(via) = via {
                self.hops.entry((remote.ifindex, via)).or_default().remotes.push(remote);
            }
            if let Some(entry) = self.entries.get_mut(&remote) {
                entry.via = Some(via);
            }
        }
        self.publish(remote);
    }

    pub(super) fn event(&mut self, event: &Event, now: Nanos) {
        if let Some(key) = self.cache.apply(event, now) {
            self.neighbor_changed(key);
        }
        match event {
            Event::Link(link) => self.link_changed(link.ifindex, (link.up, link.carrier)),
            Event::LinkGone(ifindex) => self.link_changed(*ifindex, (false, false)),
            Event::Route(prefix) => {
                self.prefixes_changed_at.get_or_insert(now);
                if self.changed_prefixes.len() <= MANY_PREFIXES {
                    self.changed_prefixes.insert(*prefix);
                }
            }
            Event::Neighbor(_) | Event::NeighborGone { .. } | Event::Overrun => {}
        }
    }

    /// Takes everything in, at the start and after lost events. Routes may have changed as well.
    pub(super) fn resync(&mut self, neighbors: &[Neighbor], links: &[Link], now: Nanos) {
        for key in self.cache.replace(neighbors, now) {
            self.neighbor_changed(key);
        }
        for link in links {
            self.link_changed(link.ifindex, (link.up, link.carrier));
        }
        self.enqueue_where(|_| true);
    }

    /// What is to be done, with at most `lookups` questions about routes.
    pub(super) fn poll(&mut self, lookups: usize, now: Nanos) -> Work {
        self.settle_prefixes(now);
        if now.since(self.scanned).0 >= nanos(SCAN) {
            self.scanned = now;
            self.enqueue_overdue(now);
        }
        let mut work = Work { changes: std::mem::take(&mut self.changes), ..Work::default() };
        while work.lookups.len() < lookups {
            let Some(remote) = self.queue.pop_front() else { break };
            if let Some(entry) = self.entries.get_mut(&remote) {
                entry.queued = false;
                // Counts as looked up from the question on, so that a slow answer is not asked for twice.
                entry.looked_up = now;
                work.lookups.push(Route { remote, source: entry.source });
            }
        }
        for (key, hop) in &mut self.hops {
            if work.probes.len() == MAX_PROBES {
                work.soon = true;
                break;
            }
            let state = self.cache.get(*key).map(|known| known.state());
            if !self.fixed.contains_key(key) && hop.is_due(state, now) {
                hop.probed = Some(now);
                hop.attempts = hop.attempts.saturating_add(1);
                work.probes.push(*key);
            }
        }
        work.soon |= self.prefixes_changed_at.is_some();
        work
    }

    pub(super) fn report(&self, now: Nanos) -> Vec<NextHop> {
        let row = |(&remote, entry): (&Remote, &Entry)| {
            let via = entry.via();
            let known = via.and_then(|via| self.cache.get((remote.ifindex, via)));
            NextHop {
                remote,
                via,
                mac: entry.published,
                is_static: self.fixed_mac(remote, via).is_some(),
                state: known.map(|known| known.state()),
                age: known.map(|known| Duration::from_nanos(now.since(known.since).0)),
                failure: entry.via.as_ref().and_then(|via| via.as_ref().err().cloned()),
            }
        };
        let mut rows: Vec<_> = self.entries.iter().map(row).collect();
        rows.sort_by_key(|row| row.remote);
        rows
    }

    fn fixed_mac(&self, remote: Remote, via: Option<IpAddr>) -> Option<Mac> {
        let of = |ip| self.fixed.get(&(remote.ifindex, ip)).copied();
        of(remote.ip).or_else(|| via.and_then(of))
    }

    /// Notes a change when the remote's MAC is another one than was passed on.
    fn publish(&mut self, remote: Remote) {
        let Some(entry) = self.entries.get(&remote) else { return };
        let via = entry.via();
        let learned = || via.and_then(|via| self.cache.mac(remote.ifindex, via));
        let mac = self.fixed_mac(remote, via).or_else(learned);
        if let Some(entry) = self.entries.get_mut(&remote)
            && entry.published != mac
        {
            entry.published = mac;
            self.changes.push(Change { remote, mac });
        }
    }

    fn neighbor_changed(&mut self, key: Key) {
        let Some(hop) = self.hops.get_mut(&key) else { return };
        if self.cache.mac(key.0, key.1).is_some() {
            hop.attempts = 0;
        }
        for remote in hop.remotes.clone() {
            self.publish(remote);
        }
    }

    /// A device that went up or down has other routes, and its next hops deserve a fresh start.
    fn link_changed(&mut self, ifindex: IfIndex, state: (bool, bool)) {
        let before = self.links.insert(ifindex, state);
        if before.is_none_or(|before| before == state) {
            return;
        }
        for (_, hop) in self.hops.iter_mut().filter(|(key, _)| key.0 == ifindex) {
            hop.attempts = 0;
        }
        self.enqueue_where(|remote| remote.ifindex == ifindex);
    }

    fn settle_prefixes(&mut self, now: Nanos) {
        let settled = |at| now.since(at).0 >= nanos(ROUTE_SETTLE);
        if !self.prefixes_changed_at.is_some_and(settled) {
            return;
        }
        self.prefixes_changed_at = None;
        let prefixes = std::mem::take(&mut self.changed_prefixes);
        let many = prefixes.len() > MANY_PREFIXES;
        self.enqueue_where(|remote| many || prefixes.iter().any(|prefix| prefix.contains(remote.ip)));
    }

    fn enqueue_overdue(&mut self, now: Nanos) {
        let overdue = |entry: &Entry| {
            let pause = match entry.via {
                // The first answer is on its way.
                None => return false,
                Some(Ok(_)) => ROUTE_REFRESH,
                Some(Err(_)) => ROUTE_RETRY,
            };
            now.since(entry.looked_up).0 >= nanos(pause)
        };
        let due = self.entries.iter().filter(|(_, entry)| overdue(entry)).map(|(remote, _)| *remote);
        for remote in due.collect::<Vec<_>>() {
            self.enqueue(remote);
        }
    }

    fn enqueue_where(&mut self, wanted: impl Fn(&Remote) -> bool) {
        for remote in self.entries.keys().filter(|remote| wanted(remote)).copied().collect::<Vec<_>>() {
            self.enqueue(remote);
        }
    }

    fn enqueue(&mut self, remote: Remote) {
        if let Some(entry) = self.entries.get_mut(&remote)
            && !std::mem::replace(&mut entry.queued, true)
        {
            self.queue.push_back(remote);
        }
    }

    fn leave_hop(&mut self, remote: Remote) {
        let Some(via) = self.entries.get(&remote).and_then(Entry::via) else { return };
        let key = (remote.ifindex, via);
        if let Some(hop) = self.hops.get_mut(&key) {
            hop.remotes.retain(|other| *other != remote);
            if hop.remotes.is_empty() {
                self.hops.remove(&key);
            }
        }
    }
}

impl Entry {
    fn via(&self) -> Option<IpAddr> {
        self.via.as_ref().and_then(|via| via.as_ref().ok().copied())
    }
}

impl Hop {
    /// Whether to ask for it, given the kernel's entry.
    fn is_due(&self, state: Option<NeighborState>, now: Nanos) -> bool {
        let quiet_for = |pause| self.probed.is_none_or(|at| now.since(at).0 >= nanos(pause));
        match state {
            // Right, or being asked for already.
            Some(
                NeighborState::Reachable
                | NeighborState::Delay
                | NeighborState::Probe
                | NeighborState::NoArp
                | NeighborState::Permanent
                | NeighborState::Incomplete,
            ) => false,
            Some(NeighborState::Stale) => quiet_for(REFRESH),
            None | Some(NeighborState::None | NeighborState::Failed) => {
                let demanded = self.demanded.is_some_and(|at| now.since(at).0 <= nanos(DEMAND));
                self.attempts == 0 || demanded && quiet_for(pause_after(self.attempts))
            }
        }
    }
}

/// Pause after this many attempts in vain.
fn pause_after(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
