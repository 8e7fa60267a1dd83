//! What runs: the configuration, the tables made of it, what was learned, and who works with them. One lock around all
//! that changes; the workers never see it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::config::{Config, UplinkId};
use super::groups::Groups;
use super::learn::{self, Learner, Notice, Owner, Present};
use super::netlink::{self, Remote, Resolver};
use super::publish::{self, Facts, Path};
use super::quiesce::Crew;
use super::rules::RuleCounts;
use crate::datapath::{GroupChange, Learned};
use crate::ids::{IfIndex, Nanos, NetworkId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::fib::Prefix;
use crate::tables::network::Gateway;
use crate::tables::snapshot::{Role, Snapshot};
use crate::tables::vrf::Route;
use crate::wire::ethernet::Mac;

/// How the kernel numbers our interfaces.
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
    /// Knows the next hops.
    pub resolver: Resolver,
    /// Interfaces.
    pub devices: Devices,
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
    pub fn new(config: Config, facts: Facts, devices: Devices, crew: Crew, resolver: Resolver) -> Self {
        let paths = resolve(&config, &devices, &resolver);
        let mut learner = Learner::default();
        configure(&mut learner, &config, &crew.shared.tables.load());
        let (config, facts) = (Arc::new(config), Arc::new(facts));
        Self {
            crew,
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
        changes.iter().for_each(|change| write(&mut next, change));
        for (network, group) in regrouped {
            write_group(&mut next, &state.config, &state.groups, network, group);
        }
        self.store(&mut state, next);
    }

    /// Replaces configuration and tables. Next hops that are resolved stay so, and learned entries that are legal in the
    /// new configuration stay. Returns the generation of the new tables.
    pub fn adopt(&self, config: Config, facts: Facts, mut tables: Snapshot) -> u64 {
        let mut state = self.state();
        let old = self.tables();
        (tables.generation, tables.layout) = (old.generation, old.layout + 1);
        state.paths = resolve(&config, &self.devices, &self.resolver);
        let known: Vec<(Path, Option<Mac>)> = self
            .resolver
            .report()
            .into_iter()
            .filter_map(|hop| Some((*state.paths.get(&hop.remote)?, Some(hop.mac?))))
            .collect();
        let mut next = publish::with_next_hops(&tables, &config, &facts, &known);
        drop(tables);
        let running = Arc::clone(&state.config);
        state.rules.renumber(&running, &config, |number| self.crew.rule(number));
        let State { learner, groups, regrouped, .. } = &mut *state;
        carry_over(learner, groups, (&running, &old), (&config, &next));
        regrouped.clear();
        for (network, group) in groups.all() {
            write_group(&mut next, &config, groups, network, group);
        }
        configure(&mut state.learner, &config, &next);
        for change in state.learner.contents() {
            write(&mut next, &change);
        }
        let generation = next.generation;
        self.store(&mut state, next);
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

/// Gives the learner the learning networks of a configuration.
fn configure(learner: &mut Learner, config: &Config, tables: &Snapshot) {
    let settings = tables.networks().filter_map(|(id, network)| {
        let learning = config.network(id)?.learning?;
        let router = network.vrf.and_then(|vrf| tables.vrf(vrf)).map(|vrf| vrf.router_mac);
        let gateway = network.gateway.as_deref();
        let settings = learn::Settings {
            ageing: learning.ageing,
            macs: usize::try_from(learning.mac_limit).unwrap_or(usize::MAX),
            routers: router.into_iter().chain(gateway.map(|gateway| gateway.mac)).collect(),
            gateways: gateway.map(Gateway::addresses).unwrap_or_default(),
        };
        Some((id, settings))
    });
    learner.configure(settings.collect(), homes(config, tables));
}

/// First VTEP of the peer that each VTEP belongs to.
fn homes(config: &Config, tables: &Snapshot) -> Vec<VtepId> {
    let mut homes: Vec<VtepId> = tables.vteps.iter().map(|(id, _)| id).collect();
    for peer in &config.peers {
        let mut vteps = peer.encap_ips.iter().filter_map(|ip| tables.vteps.by_ip(*ip));
        let Some(first) = vteps.next() else { continue };
        for vtep in vteps {
            if let Some(home) = homes.get_mut(vtep.0 as usize) {
                *home = first;
            }
        }
    }
    homes
}

/// Renumbers what was learned, and drops what the new tables do not allow.
fn carry_over(
    learner: &mut Learner,
    groups: &mut Groups,
    old: (&Config, &Snapshot),
    new: (&Config, &Snapshot),
) {
    let ids = (0..).map(NetworkId).zip(&new.0.networks).map(|(id, network)| (network.name.as_str(), id));
    let by_name: HashMap<&str, NetworkId> = ids.collect();
    let tables = new.1;
    let network = |id: NetworkId| {
        let name = old.0.networks.get(id.0 as usize).map(|network| network.name.as_str());
        by_name.get(name?).copied()
    };
    let place = |id: NetworkId, at: Dest| {
        let network = tables.network(id)?;
        match at {
            Dest::Port(port) => {
                let carries = match tables.port(port)?.role {
                    Role::Access(of) => of == id,
                    Role::Trunk(trunk) => tables.trunk(trunk)?.tag(id).is_some(),
                    Role::Uplink { .. } | Role::Native(_) => false,
                };
                carries.then_some(at)
            }
            Dest::Vtep(vtep) => {
                let vtep = tables.vteps.by_ip(old.1.vteps.get(vtep)?.remote)?;
                let admitted = network.flood.has_member(vtep) || tables.settings.accept_unknown_vtep;
                admitted.then_some(Dest::Vtep(vtep))
            }
        }
    };
    let address = |id, ip, mac| {
        let network = tables.network(id).filter(|network| network.neighbors.get(ip).is_none())?;
        let is_static = network.fdb.get(mac).is_some();
        Some(if is_static { Owner::Configured } else { Owner::Learned })
    };
    let is_unset = |id, mac| tables.network(id).is_some_and(|network| network.fdb.get(mac).is_none());
    let learns = |id: NetworkId| network(id).filter(|id| tables.network(*id).is_some_and(|n| n.learning));
    let snoops = |id: NetworkId| network(id).filter(|id| tables.network(*id).is_some_and(|n| n.snooping));
    learner.renumber(learns, |id, mac, at| place(id, at).filter(|_| is_unset(id, mac)), address);
    groups.renumber(snoops, place);
}

/// Makes the tables say who gets a group: the configured receivers, and those that joined.
fn write_group(tables: &mut Snapshot, config: &Config, groups: &Groups, network: NetworkId, group: IpAddr) {
    let (mut ports, mut vteps) = publish::group_receivers(config, &tables.vteps, network, group);
    let is_configured = !ports.is_empty() || !vteps.is_empty();
    let mut joined = groups.members(network, group).peekable();
    let is_joined = joined.peek().is_some();
    for at in joined {
        match at {
            Dest::Port(port) if !ports.contains(&port) => ports.push(port),
            Dest::Vtep(vtep) if !vteps.contains(&vtep) => vteps.push(vtep),
            Dest::Port(_) | Dest::Vtep(_) => {}
        }
    }
    let Some(network) = tables.network_mut(network) else { return };
    let flood = Arc::make_mut(&mut network.flood);
    if is_configured || is_joined {
        flood.set_group(group, &ports, &vteps);
    } else {
        flood.remove_group(group);
    }
}

/// Makes the tables say what was learned.
fn write(tables: &mut Snapshot, change: &learn::Change) {
    match *change {
        learn::Change::Station { network, mac, at } => {
            let Some(network) = tables.network_mut(network) else { return };
            match at {
                Some(at) => network.fdb.insert(mac, at),
                None => network.fdb.remove(mac),
            };
        }
        learn::Change::Address { network: id, ip, mac } => {
            let Some(network) = tables.network_mut(id) else { return };
            let neighbors = Arc::make_mut(&mut network.neighbors);
            match mac {
                Some(mac) => neighbors.insert(ip, mac),
                None => neighbors.remove(ip),
            };
            write_host_route(tables, id, ip, mac);
        }
    }
}

/// A station of a subnet that the gateway is in has a host route. No other route to the address is touched.
fn write_host_route(tables: &mut Snapshot, id: NetworkId, ip: IpAddr, mac: Option<Mac>) {
    let Some(network) = tables.network(id) else { return };
    let (Some(vrf), Some(_)) = (network.vrf, &network.gateway) else { return };
    let Some(prefix) = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }) else { return };
    let Some(fib) = tables.vrf(vrf).map(|vrf| &vrf.fib) else { return };
    let present = match ip {
        IpAddr::V4(ip) => fib.get_v4(ip.octets()),
        IpAddr::V6(ip) => fib.get_v6(ip.octets()),
    };
    let is_ours = match present {
        Some(Route::Connected(of)) => of == id,
        Some(Route::Host { network, .. }) => network == id,
        _ => false,
    };
    let Some(vrf) = tables.vrf_mut(vrf).filter(|_| is_ours) else { return };
    match mac {
        Some(mac) => vrf.fib.insert(prefix, Route::Host { network: id, mac }),
        None => vrf.fib.remove(prefix),
    };
}
