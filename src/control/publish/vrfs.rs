//! VRFs: policies, members of L3VNIs, routes.

use std::net::IpAddr;
use std::sync::Arc;

use super::stations::{Address, addresses, vtep_of, vteps_of};
use crate::control::config::{Action, Config, RouteTarget, Tenant, TenantId, TenantRoute, is_link_local};
use crate::ids::{NetworkId, RuleId};
use crate::tables::fib::{Fib, Prefix};
use crate::tables::policy::{Policy, Rule};
use crate::tables::vrf::{Route, Vrf};
use crate::tables::vtep::VtepTable;

/// Compiled policies by tenant; `None` where everything may pass.
pub(super) type Policies = Vec<Option<Arc<Policy>>>;

/// Policies of all tenants.
pub(super) fn policies(config: &Config) -> Policies {
    let mut rules: Vec<Vec<(RuleId, Rule)>> = vec![Vec::new(); config.tenants.len()];
    for (number, tenant, rule) in config.rules() {
        if let Some(list) = rules.get_mut(tenant.0 as usize) {
            list.push((number, rule.rule.clone()));
        }
    }
    config.tenants.iter().zip(rules).map(|(tenant, rules)| compile(tenant, rules)).collect()
}

/// The policy of one tenant.
pub(super) fn policy(config: &Config, id: TenantId) -> Option<Arc<Policy>> {
    let own = config.rules().filter(|(_, tenant, _)| *tenant == id);
    compile(config.tenant(id)?, own.map(|(number, _, rule)| (number, rule.rule.clone())).collect())
}

fn compile(tenant: &Tenant, rules: Vec<(RuleId, Rule)>) -> Option<Arc<Policy>> {
    let decides = !rules.is_empty() || tenant.default == Action::Deny;
    decides.then(|| Arc::new(Policy::new(rules, tenant.default)))
}

/// All VRFs in the order of their ids.
pub(super) fn all(config: &Config, vteps: &VtepTable, policies: &Policies) -> Vec<Vrf> {
    let mut networks: Vec<Vec<NetworkId>> = vec![Vec::new(); config.tenants.len()];
    for (id, network) in (0..).map(NetworkId).zip(&config.networks) {
        if let Some(list) = network.tenant.and_then(|tenant| networks.get_mut(tenant.0 as usize)) {
            list.push(id);
        }
    }
    let tenants = config.tenants.iter().zip(networks).zip(policies);
    let mut vrfs: Vec<Vrf> = tenants
        .map(|((tenant, networks), policy)| build(config, vteps, tenant, &networks, policy.clone()))
        .collect();
    for (tenant, prefix, route) in addresses(config).filter_map(|a| station_route(config, vteps, &a)) {
        if let Some(vrf) = vrfs.get_mut(tenant.0 as usize) {
            vrf.fib.insert(prefix, route);
        }
    }
    vrfs
}

/// One VRF as the configuration has it, without what was learned, and with a policy of its own. `None` when there is no
/// such tenant. Looks at every station of the configuration.
#[must_use]
pub fn vrf(config: &Config, vteps: &VtepTable, id: TenantId) -> Option<Vrf> {
    let tenant = config.tenant(id)?;
    let ids = (0..).map(NetworkId).zip(&config.networks);
    let networks: Vec<NetworkId> =
        ids.filter(|(_, network)| network.tenant == Some(id)).map(|(id, _)| id).collect();
    let mut vrf = build(config, vteps, tenant, &networks, policy(config, id));
    let routes = addresses(config).filter_map(|address| station_route(config, vteps, &address));
    for (_, prefix, route) in routes.filter(|(tenant, ..)| *tenant == id) {
        vrf.fib.insert(prefix, route);
    }
    Some(vrf)
}

/// A VRF without its stations.
fn build(
    config: &Config,
    vteps: &VtepTable,
    tenant: &Tenant,
    networks: &[NetworkId],
    policy: Option<Arc<Policy>>,
) -> Vrf {
    let own = || networks.iter().filter_map(|id| Some((*id, config.network(*id)?)));
    let peers = own().flat_map(|(_, network)| &network.peers).chain(&tenant.peers);
    let members = peers.flat_map(|peer| vteps_of(config, vteps, *peer)).collect();
    let mut fib = Fib::default();
    let mut first = [None, None];
    for (id, network) in own() {
        for address in network.gateway.iter().flat_map(|gateway| &gateway.addresses) {
            fib.insert(address.subnet, Route::Connected(id));
            host(address.ip).map(|prefix| fib.insert(prefix, Route::Gateway(id)));
            let [v4, v6] = &mut first;
            let of_family = if address.ip.is_ipv4() { v4 } else { v6 };
            of_family.get_or_insert(address.ip);
        }
    }
    for route in &tenant.routes {
        if let Some(target) = configured_route(config, vteps, route) {
            fib.insert(route.prefix, target);
        }
    }
    Vrf {
        l3vni: tenant.l3vni,
        router_mac: tenant.router_mac.unwrap_or_default(),
        members: Arc::new(members),
        fib,
        policy,
        own: first,
    }
}

fn configured_route(config: &Config, vteps: &VtepTable, route: &TenantRoute) -> Option<Route> {
    match route.target {
        RouteTarget::Leak(tenant) => Some(Route::Leak(tenant.vrf())),
        RouteTarget::Blackhole => Some(Route::Blackhole),
        RouteTarget::Peer { peer, encap_ip } => {
            let peer = config.peer(peer)?;
            let Some(router_mac) = peer.router_mac else { return Some(Route::NoRouterMac) };
            let vtep = vteps.by_ip(*peer.encap_ips.get(usize::from(encap_ip))?)?;
            Some(Route::Vtep { vtep, router_mac })
        }
    }
}

/// The route to a station. `None` when its network has no tenant, or nothing can be routed there: a link-local address,
/// or a network that no gateway of this host leads into with that family.
fn station_route(
    config: &Config,
    vteps: &VtepTable,
    address: &Address<'_>,
) -> Option<(TenantId, Prefix, Route)> {
    let network = config.network(address.network)?;
    let id = network.tenant?;
    if is_link_local(address.ip) {
        return None;
    }
    let bridged = Route::Host { network: address.network, mac: address.mac };
    let route = match (address.remote, config.tenant(id)?.l3vni) {
        (Some((peer, endpoint)), Some(_)) => match peer.router_mac {
            Some(router_mac) => Route::Vtep { vtep: vtep_of(peer, endpoint, vteps)?, router_mac },
            None => Route::NoRouterMac,
        },
        _ if network.gateway.as_ref()?.reaches(address.ip) == Some(true) => bridged,
        _ => return None,
    };
    Some((id, host(address.ip)?, route))
}

/// The prefix of one address.
fn host(ip: IpAddr) -> Option<Prefix> {
    Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 })
}
