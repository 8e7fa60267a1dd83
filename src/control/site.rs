//! What runs: the configuration, the tables made of it, what was learned, and who works with them. One lock around all
//! that changes; the workers never see it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::carry;
use super::config::{Config, UplinkId};
use super::groups::Groups;
use super::learn::{Learner, Notice, Present};
use super::netlink::{self, Remote, Resolver};
use super::ports::Ports;
use super::publish::{self, Facts, Patch, Path};
use super::quiesce::Crew;
use super::rules::RuleCounts;
use crate::datapath::{GroupChange, Learned};
use crate::ids::{IfIndex, Nanos, NetworkId};
use crate::tables::snapshot::Snapshot;
use crate::wire::ethernet::Mac;

/// How the kernel numbers our interfaces, at the start.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Of all ports, in the order of their numbers.
    pub ifindexes: Vec<IfIndex>,
    /// Of the device that resolves next hops, by uplink: its VLAN device when tagged.
    pub resolving: Vec<IfIndex>,
}

/// Everything that runs.
pub struct Site {
    /// The workers.
    pub crew: Crew,
    /// What is open.
    pub ports: Ports,
    /// Knows the next hops.
    pub resolver: Resolver,
    /// Devices of the uplinks.
    devices: Devices,
    /// One change of the configuration at a time.
    pub changing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    start: Instant,
}

/// What changes.
struct State {
    config: Arc<Config>,
    facts: Arc<Facts>,
    paths: HashMap<Remote, Path>,
    learner: Learner,
    rules: RuleCounts,
    groups: Groups,
    /// Groups whose receivers changed and are not published yet.
    regrouped: BTreeSet<(NetworkId, IpAddr)>,
    /// Former tables that a worker may still use: freeing them is not a worker's job.
    retired: Vec<Arc<Snapshot>>,
}

impl Site {
    /// A site whose workers have the tables of `config`.
    #[must_use]
    pub fn new(
        (config, facts): (Config, Facts),
        devices: Devices,
        crew: Crew,
        ports: Ports,
        resolver: Resolver,
    ) -> Self {
        let paths = resolve(&config, &devices, &resolver);
        let mut learner = Learner::default();
        carry::configure(&mut learner, &config, &crew.shared.tables.load());
        let (config, facts) = (Arc::new(config), Arc::new(facts));
        Self {
            crew,
            ports,
            resolver,
            devices,
            changing: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                config,
                facts,
                paths,
                learner,
                rules: RuleCounts::default(),
                groups: Groups::default(),
                regrouped: BTreeSet::new(),
                retired: Vec::new(),
            }),
            start: Instant::now(),
        }
    }

    /// The configuration that runs, and what the kernel says of its interfaces.
    #[must_use]
    pub fn current(&self) -> (Arc<Config>, Arc<Facts>) {
        let state = self.state();
        (Arc::clone(&state.config), Arc::clone(&state.facts))
    }

    /// The tables that are published.
    #[must_use]
    pub fn tables(&self) -> Arc<Snapshot> {
        self.crew.shared.tables.load_full()
    }

    /// Both of one moment.
    #[must_use]
    pub fn config_and_tables(&self) -> (Arc<Config>, Arc<Snapshot>) {
        let state = self.state();
        (Arc::clone(&state.config), self.tables())
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Asks what was learned.
    pub fn learned<T>(&self, ask: impl FnOnce(&Learner) -> T) -> T {
        ask(&self.state().learner)
    }

    /// Packets that each rule of the configuration decided or counted, in the order of [`Config::rules`].
    #[must_use]
    pub fn rule_counts(&self) -> Vec<u64> {
        let state = self.state();
        state.rules.of(&state.config, |number| self.crew.rule(number))
    }

    /// Publishes next hops that have another MAC.
    pub fn next_hops(&self, changes: &[netlink::Change]) {
        let mut state = self.state();
        let known: Vec<(Path, Option<Mac>)> = changes
            .iter()
            .filter_map(|change| Some((*state.paths.get(&change.remote)?, change.mac)))
            .collect();
        let next = publish::with_next_hops(&self.tables(), &state.config, &state.facts, &known);
        self.store(&mut state, next);
    }

    /// Packets wait for this remote encap IP.
    pub fn demand(&self, ip: IpAddr) {
        let state = self.state();
        let remotes: Vec<Remote> = state.paths.keys().filter(|remote| remote.ip == ip).copied().collect();
        drop(state);
        self.resolver.demand(&remotes);
    }

    /// Takes in what a worker saw, by the ids of a layout. What it changes waits for [`publish_learned`](Self::publish_learned).
    pub fn saw(&self, layout: u64, seen: &Learned) -> Option<Notice> {
        let mut state = self.state();
        let tables = self.tables();
        // A worker that has not seen the last configuration yet speaks of other networks by the same ids.
        let network = tables.network(seen.network).filter(|_| layout == tables.layout)?;
        let present =
            Present { at: network.fdb.get(seen.mac), mac: seen.ip.and_then(|ip| network.neighbors.get(ip)) };
        state.learner.saw(self.now(), seen, present)
    }

    /// Takes in that a station joined or left a multicast group. What it changes waits, too.
    pub fn joined(&self, layout: u64, change: &GroupChange) {
        let mut state = self.state();
        let tables = self.tables();
        let snoops = tables.network(change.network).is_some_and(|network| network.snooping);
        if layout == tables.layout
            && snoops
            && state.groups.change(change.network, change.group, change.at, change.joined)
        {
            state.regrouped.insert((change.network, change.group));
        }
    }

    /// Whether something learned is not published yet.
    #[must_use]
    pub fn has_learned(&self) -> bool {
        let state = self.state();
        state.learner.has_changes() || !state.regrouped.is_empty()
    }

    /// Publishes what was learned, and forgets what is too old. Copies the tables that change, and no other.
    pub fn publish_learned(&self) {
        let mut state = self.state();
        state.learner.expire(self.now());
        let changes = state.learner.take_changes();
        let regrouped = std::mem::take(&mut state.regrouped);
        if changes.is_empty() && regrouped.is_empty() {
            return self.retire(&mut state);
        }
        let mut next = Snapshot::clone(&self.tables());
        next.generation += 1;
        changes.iter().for_each(|change| carry::write(&mut next, change));
        next.recount();
        for (network, group) in regrouped {
            carry::write_group(&mut next, &state.config, &state.groups, network, group);
        }
        self.store(&mut state, next);
    }

    /// Replaces configuration and tables. Next hops that are resolved stay so, and learned entries that are legal in the
    /// new configuration stay. Returns the generation of the new tables.
    pub fn adopt(&self, config: Config, facts: Facts, built: Built) -> u64 {
        let mut guard = self.state();
        let state = &mut *guard;
        let (old, running) = (self.tables(), Arc::clone(&state.config));
        state.rules.renumber(&running, &config, |number| self.crew.rule(number));
        let State { learner, groups, paths, .. } = state;
        let mut next = match built {
            Built::All(mut tables) => {
                *paths = resolve(&config, &self.devices, &self.resolver);
                let known = known_next_hops(&self.resolver, paths);
                tables.generation = old.generation;
                let mut next = publish::with_next_hops(&tables, &config, &facts, &known);
                drop(tables);
                carry::renumber(learner, groups, (&running, &old), &config, &mut next);
                next
            }
            Built::Patch(patch) => {
                let mut next = Snapshot::clone(&old);
                next.generation += 1;
                // What waits to be published is not lost with the networks that stay.
                learner.take_changes().iter().for_each(|change| carry::write(&mut next, change));
                carry::patch(learner, groups, &config, patch, &mut next);
                next
            }
        };
        for (network, group) in std::mem::take(&mut state.regrouped) {
            if next.network(network).is_some_and(|network| network.snooping) {
                carry::write_group(&mut next, &config, &state.groups, network, group);
            }
        }
        next.layout = old.layout + 1;
        let generation = next.generation;
        self.store(state, next);
        (state.config, state.facts) = (Arc::new(config), Arc::new(facts));
        generation
    }

    /// Frees tables that no worker uses.
    pub fn tidy(&self) {
        let mut state = self.state();
        self.retire(&mut state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, state: &mut State, next: Snapshot) {
        let old = self.crew.publish(next);
        state.retired.push(old);
        self.retire(state);
    }

    fn retire(&self, state: &mut State) {
        let oldest = self.crew.oldest_generation();
        state.retired.retain(|tables| tables.generation >= oldest);
    }
}

/// Tables of a new configuration, without what was learned.
pub enum Built {
    /// All of them.
    All(Box<Snapshot>),
    /// Those that a moved port changes.
    Patch(Patch),
}

/// Paths whose next hop's MAC is known.
fn known_next_hops(resolver: &Resolver, paths: &HashMap<Remote, Path>) -> Vec<(Path, Option<Mac>)> {
    let hops = resolver.report().into_iter();
    hops.filter_map(|hop| Some((*paths.get(&hop.remote)?, Some(hop.mac?)))).collect()
}

/// Hands the resolver every remote encap IP and the configured MACs; returns which path each remote is.
fn resolve(config: &Config, devices: &Devices, resolver: &Resolver) -> HashMap<Remote, Path> {
    let device = |uplink: UplinkId| devices.resolving.get(usize::from(uplink.0)).copied();
    let fixed = config.static_neighbors.iter();
    resolver.set_static(fixed.filter_map(|n| Some((device(n.uplink)?, n.ip, n.mac))));
    let mut paths = HashMap::new();
    let mut routes = Vec::new();
    for path in publish::paths(config) {
        let Some((uplink, source)) = path.local else { continue };
        let Some(ifindex) = device(uplink) else { continue };
        let remote = Remote { ifindex, ip: path.remote };
        paths.insert(remote, path);
        routes.push(netlink::Route { remote, source: Some(source) });
    }
    resolver.set_routes(&routes);
    paths
}
