//! Peers, their endpoints, and which MAC is where: every MAC at one place in its network, every endpoint in a
//! network that its peer belongs to, every peer reachable through some uplink.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::ids::NetworkId;
use crate::wire::ethernet::Mac;

use super::document::{Errors, Offset};
use super::draft::{Draft, EndpointDraft, PeerDraft, culprit};
use super::error::Problem;
use super::finish::gateway_mac;
use super::model::{Endpoint, Peer, PeerId};
use super::read_network::PortDraft;
use super::resolve::{Index, unknown};

/// Checks of peers and endpoints.
pub(super) struct Members<'d> {
    draft: &'d Draft,
    index: &'d Index<'d>,
    /// Network of each name in [`Draft::endpoint_networks`].
    endpoint_networks: Vec<Option<NetworkId>>,
    members: HashSet<(NetworkId, PeerId)>,
    macs: HashSet<u64>,
}

impl<'d> Members<'d> {
    pub(super) fn new(draft: &'d Draft, index: &'d Index<'d>) -> Self {
        let known = |name: &String| index.networks.get(name.as_str()).copied();
        let mut members = HashSet::new();
        for (id, network) in (0..).map(NetworkId).zip(&draft.networks) {
            let peers = network.peers.iter().filter_map(|peer| index.peers.get(peer.value.as_str()));
            members.extend(peers.map(|&peer| (id, peer)));
        }
        let endpoint_networks = draft.endpoint_networks.list.iter().map(known).collect();
        Self { draft, index, endpoint_networks, members, macs: HashSet::new() }
    }

    /// Reports every problem, and gives the network of each name that endpoints use.
    pub(super) fn check(mut self, errors: &mut Errors<'_>) -> Vec<Option<NetworkId>> {
        self.claim_gateways();
        self.check_ports(errors);
        for (id, peer) in (0..).map(PeerId).zip(&self.draft.peers) {
            self.check_reachable(peer, errors);
            for endpoint in &peer.endpoints {
                self.check_endpoint(id, peer, endpoint, errors);
            }
        }
        self.endpoint_networks
    }

    /// A station with the MAC of its gateway would get the gateway's packets.
    fn claim_gateways(&mut self) {
        for (id, network) in (0..).map(NetworkId).zip(&self.draft.networks) {
            if let Some(mac) = gateway_mac(network, self.draft, self.index) {
                self.macs.insert(key(id, mac.value));
            }
        }
    }

    fn check_ports(&mut self, errors: &mut Errors<'_>) {
        for port in &self.draft.ports {
            for network in port_networks(port, self.index) {
                for mac in &port.macs {
                    self.claim(network, mac.value, mac.at, errors, || culprit("port", port.name.as_ref()));
                }
            }
        }
    }

    fn check_reachable(&self, peer: &PeerDraft, errors: &mut Errors<'_>) {
        let ours = || self.draft.uplinks.iter().flat_map(|uplink| &uplink.encap_ips);
        // An uplink without legal encap IPs is a problem of its own; who could be reached through it is unknown.
        if self.draft.uplinks.is_empty() || self.draft.uplinks.iter().any(|uplink| uplink.encap_ips.is_none())
        {
            return;
        }
        for ip in peer.encap_ips.iter().flat_map(|list| &list.value) {
            let same_family = |our: IpAddr| our.is_ipv4() == ip.value.is_ipv4();
            if !ours().flat_map(|list| &list.value).any(|our| same_family(our.value)) {
                let family = if ip.value.is_ipv4() { "IPv4" } else { "IPv6" };
                let problem = Problem::NoUplinkOfFamily { ip: ip.value, family };
                errors.push(ip.at, || culprit("peer", peer.name.as_ref()), problem);
            }
        }
    }

    fn check_endpoint(
        &mut self,
        id: PeerId,
        peer: &PeerDraft,
        endpoint: &EndpointDraft,
        errors: &mut Errors<'_>,
    ) {
        let number = usize::try_from(endpoint.network).unwrap_or(usize::MAX);
        let Some(name) = self.draft.endpoint_networks.list.get(number) else { return };
        let owner = || endpoint_culprit(peer, endpoint);
        let Some(network) = self.endpoint_networks.get(number).copied().flatten() else {
            if errors.is_full() {
                errors.push(endpoint.at, owner, Problem::Missing("network"));
            } else {
                let problem = unknown(&self.index.networks, "network", "network", name);
                errors.push(endpoint.at, owner, problem);
            }
            return;
        };
        if !self.members.contains(&(network, id)) {
            let peer = peer.name.as_ref().map_or_else(String::new, |name| name.value.clone());
            errors.push(endpoint.at, owner, Problem::PeerNotMember { network: name.clone(), peer });
        }
        self.claim(network, endpoint.mac, endpoint.at, errors, owner);
    }

    fn claim(
        &mut self,
        network: NetworkId,
        mac: Mac,
        at: Offset,
        errors: &mut Errors<'_>,
        owner: impl FnOnce() -> String,
    ) {
        if self.macs.insert(key(network, mac)) {
            return;
        }
        if errors.is_full() {
            errors.push(at, owner, Problem::Missing("mac"));
            return;
        }
        let (first, line) = self.first_owner(network, mac, errors);
        let networks = usize::try_from(network.0).ok().and_then(|i| self.draft.networks.get(i));
        let name = networks.and_then(|network| network.name.as_ref());
        let network = name.map_or_else(String::new, |name| name.value.clone());
        errors.push(at, owner, Problem::MacTwice { mac, network, owner: first, line });
    }

    /// Who claimed a MAC first, and where. Slow, but only problems need it.
    fn first_owner(&self, network: NetworkId, mac: Mac, errors: &Errors<'_>) -> (String, usize) {
        let draft = self.draft.networks.get(network.0 as usize);
        let gateway = draft.and_then(|draft| gateway_mac(draft, self.draft, self.index));
        if let Some(gateway) = gateway.filter(|gateway| gateway.value == mac) {
            return ("its gateway".to_owned(), errors.line(gateway.at));
        }
        for port in &self.draft.ports {
            let found = port.macs.iter().find(|candidate| candidate.value == mac);
            if let Some(found) = found
                && port_networks(port, self.index).contains(&network)
            {
                return (culprit("port", port.name.as_ref()), errors.line(found.at));
            }
        }
        let is_it = |endpoint: &&EndpointDraft| {
            let number = usize::try_from(endpoint.network).unwrap_or(usize::MAX);
            endpoint.mac == mac && self.endpoint_networks.get(number).copied().flatten() == Some(network)
        };
        let found = self.draft.peers.iter().find_map(|peer| Some((peer, peer.endpoints.iter().find(is_it)?)));
        found.map_or_else(Default::default, |(peer, endpoint)| {
            (culprit("peer", peer.name.as_ref()), errors.line(endpoint.at))
        })
    }
}

/// A MAC has 48 bits and a network's number 16 (`MAX_NETWORKS`): one word, half the memory of the pair.
fn key(network: NetworkId, mac: Mac) -> u64 {
    u64::from(network.0) << 48 | mac.to_u64()
}

/// The networks that a port is in, as far as they exist, each once.
pub(super) fn port_networks(port: &PortDraft, index: &Index<'_>) -> Vec<NetworkId> {
    let mut networks = Vec::new();
    let mut seen = HashSet::new();
    for name in port.networks() {
        let found = index.networks.get(name.value.as_str()).copied();
        networks.extend(found.filter(|id| seen.insert(*id)));
    }
    networks
}

pub(super) fn endpoint_culprit(peer: &PeerDraft, endpoint: &EndpointDraft) -> String {
    format!("{}, endpoint {}", culprit("peer", peer.name.as_ref()), endpoint.mac)
}

/// The peer with its endpoints' networks as numbers.
pub(super) fn finish_peer(draft: PeerDraft, endpoint_networks: &[Option<NetworkId>]) -> Option<Peer> {
    let finish = |endpoint: EndpointDraft| {
        let number = usize::try_from(endpoint.network).ok()?;
        let network = endpoint_networks.get(number).copied().flatten()?;
        Some(Endpoint { network, mac: endpoint.mac, encap_ip: endpoint.encap_ip })
    };
    let mut endpoints = Vec::with_capacity(draft.endpoints.len());
    endpoints.extend(draft.endpoints.into_iter().filter_map(finish));
    Some(Peer {
        name: draft.name?.value,
        encap_ips: draft.encap_ips?.value.into_iter().map(|ip| ip.value).collect(),
        router_mac: draft.router_mac.map(|mac| mac.value),
        endpoints,
        addresses_v4: draft.addresses_v4,
        addresses_v6: draft.addresses_v6,
    })
}
