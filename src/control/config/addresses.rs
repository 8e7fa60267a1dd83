//! IP addresses of stations: inside the subnets of their network's gateway, and each at one place of its tenant.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::ids::NetworkId;

use super::document::{Errors, Offset};
use super::draft::{Draft, EndpointDraft, culprit};
use super::error::Problem;
use super::members::{endpoint_culprit, port_networks};
use super::read_network::NetworkDraft;
use super::resolve::Index;
use super::tenant::{homes, is_link_local, reaches};
use super::value_tenant::edge;

/// Where an address must be unique: a tenant's number, or a network's with this bit.
const OF_NETWORK: u32 = 1 << 31;

/// Checks of stations' addresses.
pub(super) struct Addresses<'d> {
    draft: &'d Draft,
    index: &'d Index<'d>,
    /// Network of each name in [`Draft::endpoint_networks`].
    endpoint_networks: &'d [Option<NetworkId>],
    /// Scope of the routable addresses of each network.
    scopes: Vec<u32>,
    /// Scope and address in one word, as there may be millions.
    v4: HashSet<u64>,
    v6: HashSet<(u32, u128)>,
}

impl<'d> Addresses<'d> {
    pub(super) fn new(
        draft: &'d Draft,
        index: &'d Index<'d>,
        endpoint_networks: &'d [Option<NetworkId>],
    ) -> Self {
        let tenant = |network: &NetworkDraft| {
            network.tenant.as_ref().and_then(|name| index.tenants.get(name.value.as_str())).map(|id| id.0)
        };
        let scopes =
            (0..).zip(&draft.networks).map(|(id, network)| tenant(network).unwrap_or(OF_NETWORK | id));
        Self {
            draft,
            index,
            endpoint_networks,
            scopes: scopes.collect(),
            v4: HashSet::new(),
            v6: HashSet::new(),
        }
    }

    /// Reports every problem.
    pub(super) fn check(mut self, errors: &mut Errors<'_>) {
        self.claim_routes();
        for port in &self.draft.ports {
            let networks = port_networks(port, self.index);
            // What is wrong with a network or its gateway is reported, and whether it would have the address is unknown.
            let named = port.networks().count();
            if networks.len() != named || networks.is_empty() || networks.iter().any(|id| self.is_vague(*id))
            {
                continue;
            }
            let owner = || culprit("port", port.name.as_ref());
            for ip in &port.ips {
                let homes = homes(ip.value, networks.iter().copied(), |id| self.has(id, ip.value));
                match homes.as_slice() {
                    [] => {
                        let networks = self.name_all(&networks);
                        errors.push(ip.at, owner, Problem::IpOutside { ip: ip.value, networks });
                    }
                    [_, _, ..] if !is_link_local(ip.value) => {
                        let networks = self.name_all(&homes);
                        errors.push(ip.at, owner, Problem::IpAmbiguous { ip: ip.value, networks });
                    }
                    homes => homes.iter().for_each(|id| self.claim(*id, ip.value, ip.at, errors, owner)),
                }
            }
        }
        for peer in &self.draft.peers {
            for (endpoint, ip) in peer.addresses() {
                let Some(id) = self.network_of(endpoint) else { continue };
                let owner = || endpoint_culprit(peer, endpoint);
                if self.has(id, ip) == Some(false) && !is_link_local(ip) {
                    let networks = if errors.is_full() { String::new() } else { self.name_all(&[id]) };
                    errors.push(endpoint.at, owner, Problem::IpOutside { ip, networks });
                } else {
                    self.claim(id, ip, endpoint.at, errors, owner);
                }
            }
        }
    }

    /// Gateways' addresses and host routes are nobody else's. Conflicts among them are reported by `finish_tenant`.
    fn claim_routes(&mut self) {
        for (id, network) in (0..).map(NetworkId).zip(&self.draft.networks) {
            for address in &network.gateway {
                self.insert(self.scope(id, address.value.ip), address.value.ip);
            }
        }
        for (scope, tenant) in (0..).zip(&self.draft.tenants) {
            let prefixes = tenant.routes.iter().filter_map(|route| route.prefix);
            for prefix in prefixes.filter(|prefix| prefix.value.is_host()) {
                self.insert(scope, prefix.value.addr());
            }
        }
    }

    /// Whether the gateway of a network reaches an address; `None` when there is none of its family.
    fn has(&self, id: NetworkId, ip: IpAddr) -> Option<bool> {
        let network = self.draft.networks.get(id.0 as usize)?;
        if self.is_vague(id) {
            return Some(true);
        }
        reaches(network.gateway.iter().map(|address| &address.value), ip)
    }

    /// Whether a network has a gateway that is wrong.
    fn is_vague(&self, id: NetworkId) -> bool {
        let network = self.draft.networks.get(id.0 as usize);
        network.is_some_and(|network| network.gateway_at.is_some() && network.gateway.is_empty())
    }

    fn scope(&self, id: NetworkId, ip: IpAddr) -> u32 {
        let own = OF_NETWORK | id.0;
        if is_link_local(ip) { own } else { self.scopes.get(id.0 as usize).copied().unwrap_or(own) }
    }

    fn insert(&mut self, scope: u32, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.v4.insert(u64::from(scope) << 32 | u64::from(ip.to_bits())),
            IpAddr::V6(ip) => self.v6.insert((scope, ip.to_bits())),
        }
    }

    fn claim(
        &mut self,
        id: NetworkId,
        ip: IpAddr,
        at: Offset,
        errors: &mut Errors<'_>,
        owner: impl Fn() -> String,
    ) {
        let network = self.draft.networks.get(id.0 as usize);
        let subnets = network.into_iter().flat_map(|network| &network.gateway);
        let mut edges = subnets.filter_map(|address| Some((edge(ip, address.value.subnet)?, address)));
        if let Some((what, address)) = edges.next() {
            let problem = Problem::SubnetEdge { ip, what, subnet: address.value.subnet };
            errors.push(at, &owner, problem);
        }
        let scope = self.scope(id, ip);
        if self.insert(scope, ip) {
            return;
        }
        let (first, line) =
            if errors.is_full() { <_>::default() } else { self.first_owner(scope, ip, errors) };
        let problem = Problem::Duplicate { key: "ip", value: ip.to_string(), owner: first, line };
        errors.push(at, owner, problem);
    }

    /// Who has an address first, and where. Slow, but only problems need it.
    fn first_owner(&self, scope: u32, wanted: IpAddr, errors: &Errors<'_>) -> (String, usize) {
        let is_it = |id: NetworkId, ip: IpAddr| ip == wanted && self.scope(id, ip) == scope;
        for (id, network) in (0..).map(NetworkId).zip(&self.draft.networks) {
            if let Some(found) = network.gateway.iter().find(|address| is_it(id, address.value.ip)) {
                let owner = format!("the gateway of {}", culprit("network", network.name.as_ref()));
                return (owner, errors.line(found.at));
            }
        }
        if let Some(tenant) = self.draft.tenants.get(scope as usize) {
            let mut prefixes = tenant.routes.iter().filter_map(|route| route.prefix);
            let found = prefixes.find(|prefix| prefix.value.is_host() && prefix.value.addr() == wanted);
            if let Some(found) = found {
                return ("a route of the tenant".to_owned(), errors.line(found.at));
            }
        }
        for port in &self.draft.ports {
            if let Some(found) = port.ips.iter().find(|ip| ip.value == wanted) {
                let networks = port_networks(port, self.index);
                let homes = homes(wanted, networks.into_iter(), |id| self.has(id, wanted));
                if homes.into_iter().any(|id| is_it(id, wanted)) {
                    return (culprit("port", port.name.as_ref()), errors.line(found.at));
                }
            }
        }
        for peer in &self.draft.peers {
            let mut found = peer.addresses().filter(|(_, ip)| *ip == wanted);
            let found =
                found.find(|(endpoint, ip)| self.network_of(endpoint).is_some_and(|id| is_it(id, *ip)));
            if let Some((endpoint, _)) = found {
                return (endpoint_culprit(peer, endpoint), errors.line(endpoint.at));
            }
        }
        <_>::default()
    }

    fn network_of(&self, endpoint: &EndpointDraft) -> Option<NetworkId> {
        self.endpoint_networks.get(usize::try_from(endpoint.network).ok()?).copied().flatten()
    }

    /// Networks with the subnets of their gateways, like `network red (10.0.0.0/16, fd00::/64)`.
    fn name_all(&self, ids: &[NetworkId]) -> String {
        const MOST: usize = 4;
        let one = |id: &NetworkId| {
            let network = self.draft.networks.get(id.0 as usize)?;
            let name = culprit("network", network.name.as_ref());
            let subnets: Vec<_> =
                network.gateway.iter().map(|address| address.value.subnet.to_string()).collect();
            Some(if subnets.is_empty() { name } else { format!("{name} ({})", subnets.join(", ")) })
        };
        let named: Vec<_> = ids.iter().take(MOST).filter_map(one).collect();
        let more = if ids.len() > MOST { " …" } else { "" };
        format!("{}{more}", named.join(", "))
    }
}
