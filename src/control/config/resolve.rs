//! From draft to configuration: references become indices, and what no single table can tell is checked here:
//! uniqueness and limits here; `finish` and `finish_tenant` do each kind of table, `members` MACs, `addresses` IPs.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;

use crate::ids::{NetworkId, PortId};
use crate::worker::counters::MAX_RULES;

use super::addresses::Addresses;
use super::document::{At, Errors, Offset};
use super::draft::{Draft, culprit};
use super::error::Problem;
use super::fields::printable;
use super::finish::{finish_network, finish_port, finish_uplink, static_neighbors};
use super::finish_tenant::finish_tenants;
use super::members::{Members, finish_peer};
use super::model::{
    Config, MAX_ENDPOINTS, MAX_NETWORKS, MAX_PEERS, MAX_PORTS, MAX_STATIC_NEIGHBORS, MAX_UPLINKS, PeerId,
    UplinkId,
};
use super::suggest::Hint;
use super::tenant::{MAX_GROUPS, MAX_ROUTES, MAX_TENANTS, MAX_VLANS, TenantId};

/// Checks the draft as a whole. The result has gaps when `errors` is not empty.
pub(super) fn resolve(draft: Draft, errors: &mut Errors<'_>) -> Config {
    let mut config = Config {
        workers: draft.workers.clone().unwrap_or_default(),
        xdp: draft.xdp.unwrap_or_default(),
        vxlan: draft.vxlan.unwrap_or_default(),
        control: draft.control.clone().unwrap_or_default(),
        neighbors: draft.neighbors.unwrap_or_default(),
        routing: draft.routing.unwrap_or_default(),
        address_plan: draft.address_plan.clone().flatten(),
        tenants: Vec::new(),
        uplinks: Vec::new(),
        networks: Vec::new(),
        ports: Vec::new(),
        peers: Vec::new(),
        static_neighbors: Vec::new(),
    };
    if !within_limits(&draft, errors) {
        return config;
    }
    let index = Index::build(&draft, errors);
    let uplinks = draft.uplinks.iter().filter_map(|uplink| finish_uplink(uplink, errors));
    config.uplinks = uplinks.collect();
    config.tenants = finish_tenants(&draft, &index, errors);
    let networks =
        draft.networks.iter().filter_map(|network| finish_network(network, &draft, &index, errors));
    config.networks = networks.collect();
    config.ports = draft.ports.iter().filter_map(|port| finish_port(port, &index, errors)).collect();
    config.static_neighbors = static_neighbors(&draft.static_neighbors, &index, errors);
    let endpoint_networks = Members::new(&draft, &index).check(errors);
    Addresses::new(&draft, &index, &endpoint_networks).check(errors);
    let peers = draft.peers.into_iter().filter_map(|peer| finish_peer(peer, &endpoint_networks));
    config.peers = peers.collect();
    config
}

fn within_limits(draft: &Draft, errors: &mut Errors<'_>) -> bool {
    if draft.uplinks.is_empty() {
        errors.push(Offset(0), String::new, Problem::NoUplink);
    }
    let endpoints = draft.peers.iter().map(|peer| peer.endpoints.len()).sum();
    let routes = draft.tenants.iter().map(|tenant| tenant.routes.len()).sum();
    let rules = draft.tenants.iter().map(|tenant| tenant.rules.len()).sum();
    let groups = draft.networks.iter().map(|network| network.groups.len()).sum();
    let vlans = draft.ports.iter().map(|port| port.vlans.len()).sum();
    let limits = [
        ("uplinks", draft.uplinks.len(), MAX_UPLINKS),
        ("networks", draft.networks.len(), MAX_NETWORKS),
        ("ports", draft.ports.len(), MAX_PORTS),
        ("peers", draft.peers.len(), MAX_PEERS),
        ("endpoints", endpoints, MAX_ENDPOINTS),
        ("tenants", draft.tenants.len(), MAX_TENANTS),
        ("routes", routes, MAX_ROUTES),
        ("rules", rules, MAX_RULES),
        ("multicast groups", groups, MAX_GROUPS),
        ("VLANs of ports", vlans, MAX_VLANS),
        ("static neighbors", draft.static_neighbors.len(), MAX_STATIC_NEIGHBORS),
    ];
    let mut within = true;
    for (what, count, max) in limits {
        if count > max {
            errors.push(Offset(0), String::new, Problem::TooMany { what, count, max });
            within = false;
        }
    }
    within
}

/// What each name and number in the file stands for.
pub(super) struct Index<'d> {
    pub(super) uplinks: HashMap<&'d str, UplinkId>,
    pub(super) tenants: HashMap<&'d str, TenantId>,
    pub(super) networks: HashMap<&'d str, NetworkId>,
    /// Access ports.
    pub(super) ports: HashMap<&'d str, PortId>,
    pub(super) peers: HashMap<&'d str, PeerId>,
}

impl<'d> Index<'d> {
    /// Numbers everything in the file's order, and reports whatever is not unique.
    fn build(draft: &'d Draft, errors: &mut Errors<'_>) -> Self {
        let mut port_names = Unique::new("name");
        let mut interfaces = Unique::new("interface");
        let mut ips = Unique::new("encap IP");
        let mut index = Self {
            uplinks: HashMap::new(),
            tenants: HashMap::new(),
            networks: HashMap::new(),
            ports: HashMap::new(),
            peers: HashMap::new(),
        };

        for (id, uplink) in (0..).map(UplinkId).zip(&draft.uplinks) {
            let owner = Owner { kind: "uplink", name: uplink.name.as_ref() };
            if let Some(name) = &uplink.name {
                port_names.claim(name.value.as_str(), name.at, owner, errors);
                index.uplinks.entry(&name.value).or_insert(id);
            }
            if let Some(interface) = &uplink.interface {
                interfaces.claim(interface.value.as_str(), interface.at, owner, errors);
            }
            ips.claim_list("encap_ips", uplink.encap_ips.as_ref(), owner, errors);
        }
        let first_port = u16::try_from(draft.uplinks.len()).unwrap_or(u16::MAX);
        for (id, port) in (first_port..).map(PortId).zip(&draft.ports) {
            let owner = Owner { kind: "port", name: port.name.as_ref() };
            if let Some(name) = &port.name {
                port_names.claim(name.value.as_str(), name.at, owner, errors);
                index.ports.entry(&name.value).or_insert(id);
            }
            if let Some(interface) = &port.interface {
                interfaces.claim(interface.value.as_str(), interface.at, owner, errors);
            }
        }
        index.number_vnis(draft, errors);
        let mut names = Unique::new("name");
        for (id, peer) in (0..).map(PeerId).zip(&draft.peers) {
            let owner = Owner { kind: "peer", name: peer.name.as_ref() };
            if let Some(name) = &peer.name {
                names.claim(name.value.as_str(), name.at, owner, errors);
                index.peers.entry(&name.value).or_insert(id);
            }
            ips.claim_list("encap_ips", peer.encap_ips.as_ref(), owner, errors);
        }
        index
    }

    fn number_vnis(&mut self, draft: &'d Draft, errors: &mut Errors<'_>) {
        let mut vnis = Unique::new("vni");
        let mut names = Unique::new("name");
        for (id, network) in (0..).map(NetworkId).zip(&draft.networks) {
            let owner = Owner { kind: "network", name: network.name.as_ref() };
            if let Some(name) = &network.name {
                names.claim(name.value.as_str(), name.at, owner, errors);
                self.networks.entry(&name.value).or_insert(id);
            }
            if let Some(vni) = &network.vni {
                vnis.claim(vni.value, vni.at, owner, errors);
            }
        }
        let mut names = Unique::new("name");
        for (id, tenant) in (0..).map(TenantId).zip(&draft.tenants) {
            let owner = Owner { kind: "tenant", name: tenant.name.as_ref() };
            if let Some(name) = &tenant.name {
                names.claim(name.value.as_str(), name.at, owner, errors);
                self.tenants.entry(&name.value).or_insert(id);
            }
            if let Some(vni) = &tenant.l3vni {
                vnis.claim(vni.value, vni.at, owner, errors);
            }
        }
    }
}

/// What a name or address belongs to, for messages.
#[derive(Clone, Copy)]
pub(super) struct Owner<'d> {
    pub(super) kind: &'static str,
    pub(super) name: Option<&'d At<String>>,
}

impl Owner<'_> {
    pub(super) fn culprit(self) -> String {
        culprit(self.kind, self.name)
    }
}

/// Values that may belong to one owner only.
struct Unique<'d, K> {
    key: &'static str,
    owners: HashMap<K, (Owner<'d>, Offset)>,
}

impl<'d, K: Copy + Eq + Hash + Display> Unique<'d, K> {
    fn new(key: &'static str) -> Self {
        Self { key, owners: HashMap::new() }
    }

    fn claim(&mut self, value: K, at: Offset, owner: Owner<'d>, errors: &mut Errors<'_>) {
        let Some((first, first_at)) = self.owners.get(&value) else {
            self.owners.insert(value, (owner, at));
            return;
        };
        let problem = Problem::Duplicate {
            key: self.key,
            value: value.to_string(),
            owner: first.culprit(),
            line: errors.line(*first_at),
        };
        errors.push(at, || owner.culprit(), problem);
    }

    /// Claims each value of a list. A value that the list has twice is a problem of the list.
    fn claim_list(
        &mut self,
        key: &'static str,
        list: Option<&At<Vec<At<K>>>>,
        owner: Owner<'d>,
        errors: &mut Errors<'_>,
    ) {
        let list = list.map_or(&[][..], |list| &list.value);
        for (i, value) in list.iter().enumerate() {
            if list.iter().take(i).any(|before| before.value == value.value) {
                let problem = Problem::ListedTwice { key, value: value.value.to_string() };
                errors.push(value.at, || owner.culprit(), problem);
            } else {
                self.claim(value.value, value.at, owner, errors);
            }
        }
    }
}

/// The thing that `reference` names, or a problem under `owner`.
pub(super) fn find<T: Copy>(
    things: &HashMap<&str, T>,
    (key, kind): (&'static str, &'static str),
    reference: &At<String>,
    culprit: impl FnOnce() -> String,
    errors: &mut Errors<'_>,
) -> Option<T> {
    let found = things.get(reference.value.as_str()).copied();
    if found.is_none() {
        errors.push(reference.at, culprit, unknown(things, key, kind, &reference.value));
    }
    found
}

/// The problem of a name that nothing has.
pub(super) fn unknown<T>(
    things: &HashMap<&str, T>,
    key: &'static str,
    kind: &'static str,
    name: &str,
) -> Problem {
    let hint = Hint::nearest(name, things.keys().copied());
    Problem::UnknownReference { key, kind, name: printable(name), hint }
}

/// The peers that a list names, each once.
pub(super) fn peer_list(
    list: &[At<String>],
    index: &Index<'_>,
    culprit: impl Fn() -> String,
    errors: &mut Errors<'_>,
) -> Vec<PeerId> {
    let mut seen = HashSet::with_capacity(list.len());
    let mut peers = Vec::with_capacity(list.len());
    for name in list {
        let peer = find(&index.peers, ("peers", "peer"), name, &culprit, errors);
        let Some(peer) = peer else { continue };
        if !seen.insert(peer) {
            let problem = Problem::ListedTwice { key: "peers", value: name.value.clone() };
            errors.push(name.at, &culprit, problem);
        }
        peers.push(peer);
    }
    peers
}
