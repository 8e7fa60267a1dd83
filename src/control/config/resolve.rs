//! From draft to configuration: references become indices, and what no single table can tell is checked here:
//! uniqueness, address families, limits. `members` does peers and endpoints.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;

use crate::ids::NetworkId;
use crate::wire::vxlan::Vni;

use super::document::{At, Errors, Offset};
use super::draft::{Draft, NeighborDraft, NetworkDraft, PortDraft, UplinkDraft, culprit, neighbor_culprit};
use super::error::Problem;
use super::fields::printable;
use super::members::{Members, finish_peer};
use super::model::{
    Config, MAX_ENDPOINTS, MAX_NETWORKS, MAX_PEERS, MAX_PORTS, MAX_STATIC_NEIGHBORS, MAX_UPLINKS, Network,
    PeerId, Port, PortRole, StaticNeighbor, Uplink, UplinkId,
};
use super::suggest::Hint;

/// Least underlay MTU with IPv6: an inner IPv6 packet of 1280 B with its Ethernet header and the outer headers.
const MIN_MTU_V6: u16 = 1280 + 70;

/// Checks the draft as a whole. The result has gaps when `errors` is not empty.
pub(super) fn resolve(draft: Draft, errors: &mut Errors<'_>) -> Config {
    let mut config = Config {
        workers: draft.workers.clone().unwrap_or_default(),
        xdp: draft.xdp.unwrap_or_default(),
        vxlan: draft.vxlan.unwrap_or_default(),
        control: draft.control.clone().unwrap_or_default(),
        neighbors: draft.neighbors.unwrap_or_default(),
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
    let networks = draft.networks.iter().filter_map(|network| finish_network(network, &index, errors));
    config.networks = networks.collect();
    config.ports = draft.ports.iter().filter_map(|port| finish_port(port, &index, errors)).collect();
    config.static_neighbors = static_neighbors(&draft.static_neighbors, &index, errors);
    let endpoint_networks = Members::new(&draft, &index).check(errors);
    let peers = draft.peers.into_iter().filter_map(|peer| finish_peer(peer, &endpoint_networks));
    config.peers = peers.collect();
    config
}

fn within_limits(draft: &Draft, errors: &mut Errors<'_>) -> bool {
    if draft.uplinks.is_empty() {
        errors.push(Offset(0), String::new, Problem::NoUplink);
    }
    let endpoints = draft.peers.iter().map(|peer| peer.endpoints.len()).sum();
    let limits = [
        ("uplinks", draft.uplinks.len(), MAX_UPLINKS),
        ("networks", draft.networks.len(), MAX_NETWORKS),
        ("ports", draft.ports.len(), MAX_PORTS),
        ("peers", draft.peers.len(), MAX_PEERS),
        ("endpoints", endpoints, MAX_ENDPOINTS),
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
    pub(super) networks: HashMap<&'d str, NetworkId>,
    pub(super) peers: HashMap<&'d str, PeerId>,
}

impl<'d> Index<'d> {
    /// Numbers everything in the file's order, and reports whatever is not unique.
    fn build(draft: &'d Draft, errors: &mut Errors<'_>) -> Self {
        let mut port_names = Unique::new("name");
        let mut interfaces = Unique::new("interface");
        let mut ips = Unique::new("encap IP");
        let mut index = Self { uplinks: HashMap::new(), networks: HashMap::new(), peers: HashMap::new() };

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
        for port in &draft.ports {
            let owner = Owner { kind: "port", name: port.name.as_ref() };
            if let Some(name) = &port.name {
                port_names.claim(name.value.as_str(), name.at, owner, errors);
            }
            if let Some(interface) = &port.interface {
                interfaces.claim(interface.value.as_str(), interface.at, owner, errors);
            }
        }
        index.number_networks(&draft.networks, errors);
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

    fn number_networks(&mut self, networks: &'d [NetworkDraft], errors: &mut Errors<'_>) {
        let mut names = Unique::new("name");
        let mut vnis = Unique::new("vni");
        for (id, network) in (0..).map(NetworkId).zip(networks) {
            let owner = Owner { kind: "network", name: network.name.as_ref() };
            if let Some(name) = &network.name {
                names.claim(name.value.as_str(), name.at, owner, errors);
                self.networks.entry(&name.value).or_insert(id);
            }
            if let Some(vni) = &network.vni {
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
fn find<T: Copy>(
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

fn finish_uplink(draft: &UplinkDraft, errors: &mut Errors<'_>) -> Option<Uplink> {
    let encap_ips: Vec<IpAddr> = draft.encap_ips.as_ref()?.value.iter().map(|ip| ip.value).collect();
    if let Some(mtu) = draft.mtu
        && mtu.value < MIN_MTU_V6
        && encap_ips.iter().any(IpAddr::is_ipv6)
    {
        let why = "an inner IPv6 packet of 1280 B must fit with its outer headers";
        let problem = Problem::Mtu { mtu: mtu.value, min: MIN_MTU_V6, why };
        errors.push(mtu.at, || culprit("uplink", draft.name.as_ref()), problem);
    }
    Some(Uplink {
        name: draft.name.as_ref()?.value.clone(),
        interface: draft.interface.as_ref()?.value.clone(),
        encap_ips,
        mac: draft.mac,
        mtu: draft.mtu.map(|mtu| mtu.value),
        vlan: draft.vlan,
    })
}

fn finish_network(draft: &NetworkDraft, index: &Index<'_>, errors: &mut Errors<'_>) -> Option<Network> {
    let owner = Owner { kind: "network", name: draft.name.as_ref() };
    let mut members = HashMap::with_capacity(draft.peers.len());
    let mut peers = Vec::with_capacity(draft.peers.len());
    for name in &draft.peers {
        let peer = find(&index.peers, ("peers", "peer"), name, || owner.culprit(), errors);
        let Some(peer) = peer else { continue };
        if members.insert(peer, ()).is_some() {
            let problem = Problem::ListedTwice { key: "peers", value: name.value.clone() };
            errors.push(name.at, || owner.culprit(), problem);
        }
        peers.push(peer);
    }
    let vni: Vni = draft.vni?.value;
    let name = draft.name.as_ref()?.value.clone();
    Some(Network { name, vni, peers, unknown_unicast: draft.unknown_unicast })
}

fn finish_port(draft: &PortDraft, index: &Index<'_>, errors: &mut Errors<'_>) -> Option<Port> {
    let culprit = || culprit("port", draft.name.as_ref());
    let role = match (&draft.network, &draft.native) {
        (Some(name), None) => {
            find(&index.networks, ("network", "network"), name, culprit, errors).map(PortRole::Network)
        }
        (None, Some(name)) => {
            find(&index.uplinks, ("native", "uplink"), name, culprit, errors).map(PortRole::Native)
        }
        (Some(_), Some(both)) => {
            errors.push(both.at, culprit, Problem::PortRole("both"));
            None
        }
        (None, None) => {
            errors.push(draft.at, culprit, Problem::PortRole("neither"));
            None
        }
    };
    Some(Port {
        name: draft.name.as_ref()?.value.clone(),
        interface: draft.interface.as_ref()?.value.clone(),
        role: role?,
        steer: draft.steer,
        macs: draft.macs.iter().map(|mac| mac.value).collect(),
        mtu: draft.mtu,
    })
}

fn static_neighbors(
    drafts: &[NeighborDraft],
    index: &Index<'_>,
    errors: &mut Errors<'_>,
) -> Vec<StaticNeighbor> {
    let mut first: HashMap<(UplinkId, IpAddr), Offset> = HashMap::new();
    let mut neighbors = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let culprit = || neighbor_culprit(draft);
        let uplink = draft
            .uplink
            .as_ref()
            .and_then(|name| find(&index.uplinks, ("uplink", "uplink"), name, culprit, errors));
        let (Some(uplink), Some(ip), Some(mac)) = (uplink, draft.ip, draft.mac) else { continue };
        if let Some(&before) = first.get(&(uplink, ip.value)) {
            let line = errors.line(before);
            let owner = "another [[neighbor]] of this uplink".to_owned();
            let problem = Problem::Duplicate { key: "ip", value: ip.value.to_string(), owner, line };
            errors.push(ip.at, culprit, problem);
        }
        first.entry((uplink, ip.value)).or_insert(ip.at);
        neighbors.push(StaticNeighbor { uplink, ip: ip.value, mac });
    }
    neighbors
}
