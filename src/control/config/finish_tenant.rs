//! Tenants from draft to configuration: router MACs, subnets that do not overlap, routes, rules.

use std::collections::{HashMap, HashSet};

use crate::ids::NetworkId;
use crate::tables::fib::Prefix;

use super::document::{At, Errors, Offset};
use super::draft::{Draft, PeerDraft, culprit};
use super::error::Problem;
use super::model::PeerId;
use super::read_network::NetworkDraft;
use super::read_tenant::{RouteDraft, TargetDraft, TenantDraft, route_culprit, rule_culprit};
use super::resolve::{Index, find, peer_list};
use super::tenant::{RouteTarget, Tenant, TenantId, TenantRoute, TenantRule};

/// All tenants, in the file's order.
pub(super) fn finish_tenants(draft: &Draft, index: &Index<'_>, errors: &mut Errors<'_>) -> Vec<Tenant> {
    let mut networks: Vec<Vec<NetworkId>> = vec![Vec::new(); draft.tenants.len()];
    for (id, network) in (0..).map(NetworkId).zip(&draft.networks) {
        let tenant = network.tenant.as_ref().and_then(|name| index.tenants.get(name.value.as_str()));
        if let Some(list) = tenant.and_then(|tenant| networks.get_mut(tenant.0 as usize)) {
            list.push(id);
        }
    }
    let own = |ids: Vec<NetworkId>| -> Vec<&NetworkDraft> {
        ids.into_iter().filter_map(|id| draft.networks.get(id.0 as usize)).collect()
    };
    (0..)
        .map(TenantId)
        .zip(&draft.tenants)
        .zip(networks)
        .filter_map(|((id, tenant), ids)| {
            Finish { draft, index, id, tenant, networks: own(ids) }.tenant(errors)
        })
        .collect()
}

/// One tenant and what belongs to it.
struct Finish<'d> {
    draft: &'d Draft,
    index: &'d Index<'d>,
    id: TenantId,
    tenant: &'d TenantDraft,
    networks: Vec<&'d NetworkDraft>,
}

impl Finish<'_> {
    fn tenant(&self, errors: &mut Errors<'_>) -> Option<Tenant> {
        let peers = peer_list(&self.tenant.peers, self.index, || self.culprit(), errors);
        let members = self.members(&peers);
        self.check_router_mac(&members, errors);
        self.check_subnets(errors);
        let routes = self.routes(&members, errors);
        let rules = self.rules(errors);
        Some(Tenant {
            name: self.tenant.name.as_ref()?.value.clone(),
            l3vni: self.tenant.l3vni.map(|vni| vni.value),
            router_mac: self.tenant.router_mac.map(|mac| mac.value),
            peers,
            default: self.tenant.default,
            routes,
            rules,
        })
    }

    fn culprit(&self) -> String {
        culprit("tenant", self.tenant.name.as_ref())
    }

    /// Who may send the L3VNI.
    fn members(&self, extra: &[PeerId]) -> HashSet<PeerId> {
        let names = self.networks.iter().flat_map(|network| &network.peers);
        let known = names.filter_map(|name| self.index.peers.get(name.value.as_str()).copied());
        known.chain(extra.iter().copied()).collect()
    }

    fn check_router_mac(&self, members: &HashSet<PeerId>, errors: &mut Errors<'_>) {
        let with_gateway = self.networks.iter().find(|network| network.gateway_at.is_some());
        if !self.tenant.has_router_mac {
            let why = match with_gateway {
                _ if self.tenant.has_l3vni => "the tenant has an l3vni".to_owned(),
                Some(network) => format!("{} has a gateway", culprit("network", network.name.as_ref())),
                None => return,
            };
            errors.push(self.tenant.at, || self.culprit(), Problem::Needed { key: "router_mac", why });
        }
        let Some(ours) = self.tenant.router_mac.filter(|_| self.tenant.has_l3vni) else { return };
        let peers = members.iter().filter_map(|id| self.draft.peers.get(id.0 as usize));
        let same = |peer: &PeerDraft| {
            let theirs = peer.router_mac.filter(|theirs| theirs.value == ours.value)?;
            Some((theirs.at, peer.name.as_ref().map_or_else(String::new, |name| name.value.clone())))
        };
        // The first one in the file, as the set has no order.
        if let Some((at, peer)) = peers.filter_map(same).min() {
            let problem = Problem::RouterMacOfPeer { mac: ours.value, peer, line: errors.line(at) };
            errors.push(ours.at, || self.culprit(), problem);
        }
    }

    /// Prefixes either contain each other or have nothing in common, so that in their order the ones around a prefix
    /// are a stack.
    fn check_subnets(&self, errors: &mut Errors<'_>) {
        let mut subnets: Vec<(Prefix, usize, Offset)> = Vec::new();
        for (i, network) in self.networks.iter().enumerate() {
            subnets.extend(network.gateway.iter().map(|address| (address.value.subnet, i, address.at)));
        }
        subnets.sort_unstable();
        let mut around: Vec<(Prefix, usize, Offset)> = Vec::new();
        for (subnet, network, at) in subnets {
            while around.last().is_some_and(|(outer, ..)| !outer.contains(subnet.addr())) {
                around.pop();
            }
            if let Some(&(other, its, its_at)) = around.last()
                && its != network
            {
                // The later one in the file is the culprit.
                let (subnet, network, at, other, its, its_at) = if at > its_at {
                    (subnet, network, at, other, its, its_at)
                } else {
                    (other, its, its_at, subnet, network, at)
                };
                let name = |i: usize| self.networks.get(i).and_then(|network| network.name.as_ref());
                let owner = culprit("network", name(its));
                let line = errors.line(its_at);
                let problem = Problem::SubnetOverlap { subnet, other, owner, line };
                errors.push(at, || culprit("network", name(network)), problem);
            }
            around.push((subnet, network, at));
        }
    }

    fn routes(&self, members: &HashSet<PeerId>, errors: &mut Errors<'_>) -> Vec<TenantRoute> {
        let owner = self.culprit();
        let mut first = self.connected();
        let mut routes = Vec::with_capacity(self.tenant.routes.len());
        for route in &self.tenant.routes {
            let culprit = || route_culprit(&owner, route.prefix);
            if let Some(prefix) = route.prefix {
                if let Some(&(network, at)) = first.get(&prefix.value) {
                    let value = prefix.value.to_string();
                    let line = errors.line(at);
                    let problem = Problem::Duplicate { key: "prefix", value, owner: taken_by(network), line };
                    errors.push(prefix.at, culprit, problem);
                }
                first.entry(prefix.value).or_insert((None, prefix.at));
            }
            let target = self.target(route, members, &culprit, errors);
            let (Some(prefix), Some(target)) = (route.prefix, target) else { continue };
            routes.push(TenantRoute { prefix: prefix.value, target });
        }
        routes
    }

    /// Subnets and addresses of the tenant's gateways, which are routes as well.
    fn connected(&self) -> HashMap<Prefix, (Option<&NetworkDraft>, Offset)> {
        let mut prefixes = HashMap::new();
        for network in &self.networks {
            for address in &network.gateway {
                let ip = address.value.ip;
                let host = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 });
                prefixes.entry(address.value.subnet).or_insert((Some(*network), address.at));
                host.map(|host| prefixes.insert(host, (Some(*network), address.at)));
            }
        }
        prefixes
    }

    fn target(
        &self,
        route: &RouteDraft,
        members: &HashSet<PeerId>,
        culprit: &impl Fn() -> String,
        errors: &mut Errors<'_>,
    ) -> Option<RouteTarget> {
        match route.target.as_ref()? {
            TargetDraft::Blackhole => Some(RouteTarget::Blackhole),
            TargetDraft::Leak(name) => {
                let other = find(&self.index.tenants, ("leak", "tenant"), name, culprit, errors)?;
                if other == self.id {
                    errors.push(name.at, culprit, Problem::LeakToSelf);
                }
                Some(RouteTarget::Leak(other))
            }
            TargetDraft::Peer(name, encap_ip) => {
                let id = find(&self.index.peers, ("peer", "peer"), name, culprit, errors)?;
                let peer = self.draft.peers.get(id.0 as usize)?;
                if !self.tenant.has_l3vni {
                    errors.push(name.at, culprit, Problem::NoEffect { key: "peer", needs: "l3vni" });
                } else if let Some(tenant) = &self.tenant.name
                    && !members.contains(&id)
                {
                    let (peer, tenant) = (name.value.clone(), tenant.value.clone());
                    errors.push(name.at, culprit, Problem::PeerNotInTenant { peer, tenant });
                }
                if !peer.has_router_mac {
                    errors.push(name.at, culprit, Problem::PeerWithoutRouterMac(name.value.clone()));
                }
                let known = &peer.encap_ips.as_ref()?.value;
                let Some(ip) = encap_ip else { return Some(RouteTarget::Peer { peer: id, encap_ip: 0 }) };
                let index = known.iter().position(|known| known.value == ip.value);
                if index.is_none() {
                    errors.push(ip.at, culprit, Problem::ForeignEncapIp { ip: ip.value });
                }
                Some(RouteTarget::Peer { peer: id, encap_ip: u8::try_from(index?).ok()? })
            }
        }
    }

    fn rules(&self, errors: &mut Errors<'_>) -> Vec<TenantRule> {
        let owner = self.culprit();
        let mut names: HashMap<&str, Offset> = HashMap::new();
        let mut rules = Vec::with_capacity(self.tenant.rules.len());
        for (number, draft) in (1..).zip(&self.tenant.rules) {
            if let Some(At { value, at }) = &draft.name {
                if let Some(&before) = names.get(value.as_str()) {
                    let line = errors.line(before);
                    let owner_of = "another rule of this tenant".to_owned();
                    let problem =
                        Problem::Duplicate { key: "name", value: value.clone(), owner: owner_of, line };
                    errors.push(*at, || rule_culprit(&owner, draft.name.as_ref(), number), problem);
                }
                names.entry(value).or_insert(*at);
            }
            let Some(rule) = draft.rule.clone() else { continue };
            rules.push(TenantRule { name: draft.name.as_ref().map(|name| name.value.clone()), rule });
        }
        rules
    }
}

fn taken_by(network: Option<&NetworkDraft>) -> String {
    match network {
        Some(network) => format!("the gateway of {}", culprit("network", network.name.as_ref())),
        None => "another route of this tenant".to_owned(),
    }
}
