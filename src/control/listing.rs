//! Tables as the API lists them: FDB, routes, networks, tenants, with the names of the configuration they were made of.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::config::{self, Config, TenantId};
use super::report::{
    FdbReport, LearningReport, Listing, NetworkReport, RouteReport, RuleReport, Source, TenantReport,
};
use super::site::Site;
use crate::ids::{Nanos, NetworkId, PortId};
use crate::tables::fdb::Dest;
use crate::tables::fib::Prefix;
use crate::tables::network::Gateway;
use crate::tables::snapshot::{Role, Snapshot};
use crate::tables::vrf::Route;
use crate::wire::vxlan::Vni;

/// Tables and names of one moment.
struct View {
    site: Arc<Site>,
    config: Arc<Config>,
    tables: Arc<Snapshot>,
    /// Name of the peer of each remote encap IP.
    peers: HashMap<IpAddr, usize>,
}

impl View {
    fn new(site: &Arc<Site>) -> Self {
        let (config, tables) = site.config_and_tables();
        let ips = config.peers.iter().enumerate();
        let peers = ips.flat_map(|(index, peer)| peer.encap_ips.iter().map(move |ip| (*ip, index)));
        let peers = peers.collect();
        Self { site: Arc::clone(site), config, tables, peers }
    }

    fn network(&self, id: NetworkId) -> String {
        self.config.networks.get(id.0 as usize).map(|network| network.name.clone()).unwrap_or_default()
    }

    fn port(&self, id: PortId) -> String {
        self.config.port_names().nth(usize::from(id.0)).unwrap_or_default().to_owned()
    }

    fn peer(&self, ip: IpAddr) -> Option<String> {
        let peer = self.config.peers.get(*self.peers.get(&ip)?)?;
        Some(peer.name.clone())
    }

    fn stations(&self, id: NetworkId) -> Vec<FdbReport> {
        let Some(network) = self.tables.network(id) else { return Vec::new() };
        let (name, now) = (self.network(id), self.site.now());
        let mut entries: Vec<_> = network.fdb.iter().collect();
        entries.sort_unstable();
        let row = |(mac, dest)| {
            let learned = self.site.learned(|learner| learner.station(id, mac).copied());
            let learned = learned.filter(|_| network.learning);
            let (port, vtep) = match dest {
                Dest::Port(port) => (Some(self.port(port)), None),
                Dest::Vtep(vtep) => (None, self.tables.vteps.get(vtep).map(|row| row.remote)),
            };
            FdbReport {
                network: name.clone(),
                vni: network.vni.get(),
                mac: mac.to_string(),
                port,
                vtep,
                peer: vtep.and_then(|ip| self.peer(ip)),
                source: if learned.is_some() { Source::Learned } else { Source::Static },
                age_ms: learned.map(|station| age(now, station.seen)),
                frozen: learned.is_some_and(|station| station.frozen_until.is_some_and(|until| now < until)),
            }
        };
        entries.into_iter().map(row).collect()
    }

    fn routes(&self, id: TenantId) -> Vec<RouteReport> {
        let Some(vrf) = self.tables.vrf(id.vrf()) else { return Vec::new() };
        let mut all: Vec<(Prefix, Route)> = vrf.fib.iter().collect();
        all.sort_unstable_by_key(|(prefix, _)| *prefix);
        all.into_iter().map(|(prefix, route)| self.route(id, prefix, route)).collect()
    }

    fn route(&self, tenant: TenantId, prefix: Prefix, route: Route) -> RouteReport {
        let name = |id| self.config.tenant(id).map(|tenant| tenant.name.clone());
        let mut report = RouteReport {
            tenant: name(tenant).unwrap_or_default(),
            prefix: prefix.to_string(),
            kind: String::new(),
            network: None,
            vtep: None,
            mac: None,
            leak: None,
            source: Source::Static,
            age_ms: None,
        };
        let kind = match route {
            Route::Host { network, mac } => {
                let learned = self.site.learned(|learner| learner.address(network, prefix.addr()));
                if let Some(seen) = learned.filter(|_| prefix.is_host()) {
                    report.source = Source::Learned;
                    report.age_ms = Some(age(self.site.now(), seen));
                }
                (report.network, report.mac) = (Some(self.network(network)), Some(mac.to_string()));
                "host"
            }
            Route::Vtep { vtep, router_mac } => {
                report.vtep = self.tables.vteps.get(vtep).map(|row| row.remote);
                report.mac = Some(router_mac.to_string());
                "vtep"
            }
            Route::NoRouterMac => "no-router-mac",
            Route::Connected(network) => {
                report.network = Some(self.network(network));
                "connected"
            }
            Route::Gateway(network) => {
                report.network = Some(self.network(network));
                "gateway"
            }
            Route::Leak(vrf) => {
                report.leak = name(TenantId(vrf.0));
                "leak"
            }
            Route::Blackhole => "blackhole",
        };
        kind.clone_into(&mut report.kind);
        report
    }

    fn summary(&self, id: NetworkId) -> Option<NetworkReport> {
        let (configured, network) = (self.config.networks.get(id.0 as usize)?, self.tables.network(id)?);
        let carries = |port: &PortId| match self.tables.port(*port).map(|row| row.role) {
            Some(Role::Access(of)) => of == id,
            Some(Role::Trunk(trunk)) => self.tables.trunk(trunk).is_some_and(|trunk| trunk.tag(id).is_some()),
            _ => false,
        };
        let ports = self.config.access_ports().filter(|(port, _)| carries(port));
        let peers = configured.peers.iter().filter_map(|peer| self.config.peers.get(peer.0 as usize));
        let tenant = configured.tenant.and_then(|id| self.config.tenant(id));
        let learning = self.site.learned(|learner| {
            learner.network(id).map(|(settings, stations, addresses)| LearningReport {
                stations,
                limit: settings.macs,
                addresses,
                ageing_ms: millis(settings.ageing),
            })
        });
        Some(NetworkReport {
            network: configured.name.clone(),
            vni: network.vni.get(),
            tenant: tenant.map(|tenant| tenant.name.clone()),
            gateways: network.gateway.as_deref().map(Gateway::addresses).unwrap_or_default(),
            ports: ports.map(|(_, port)| port.name.clone()).collect(),
            peers: peers.map(|peer| peer.name.clone()).collect(),
            stations: network.fdb.len(),
            addresses: network.neighbors.len(),
            learning: learning.filter(|_| network.learning),
        })
    }
}

/// All stations, by network and MAC, or those of one network; `None` when there is no such network.
pub(super) fn fdb(site: &Arc<Site>, network: Option<&str>) -> Option<Listing<FdbReport>> {
    let view = View::new(site);
    let ids = (0..).map(NetworkId).zip(&view.config.networks);
    let wanted = ids.filter(|(_, of)| network.is_none_or(|name| of.name == name)).map(|(id, _)| id);
    let wanted: Vec<NetworkId> = wanted.collect();
    if wanted.is_empty() && network.is_some() {
        return None;
    }
    Some(Box::new(wanted.into_iter().flat_map(move |id| view.stations(id))))
}

/// All routes, by tenant and prefix, or those of one tenant; `None` when there is no such tenant.
pub(super) fn routes(site: &Arc<Site>, tenant: Option<&str>) -> Option<Listing<RouteReport>> {
    let view = View::new(site);
    let ids = (0..).map(TenantId).zip(&view.config.tenants);
    let wanted = ids.filter(|(_, of)| tenant.is_none_or(|name| of.name == name)).map(|(id, _)| id);
    let wanted: Vec<TenantId> = wanted.collect();
    if wanted.is_empty() && tenant.is_some() {
        return None;
    }
    Some(Box::new(wanted.into_iter().flat_map(move |id| view.routes(id))))
}

/// All networks in the configuration's order.
pub(super) fn networks(site: &Arc<Site>) -> Vec<NetworkReport> {
    let view = View::new(site);
    let ids = view.tables.networks().map(|(id, _)| id);
    ids.filter_map(|id| view.summary(id)).collect()
}

/// All tenants in the configuration's order.
pub(super) fn tenants(site: &Arc<Site>) -> Vec<TenantReport> {
    let view = View::new(site);
    let mut rules: Vec<Vec<RuleReport>> = vec![Vec::new(); view.config.tenants.len()];
    for (rule, count) in view.config.rules().zip(site.rule_counts()) {
        let (_, tenant, rule) = rule;
        if let Some(list) = rules.get_mut(tenant.0 as usize) {
            let number = (list.len() + 1).to_string();
            list.push(RuleReport {
                rule: rule.name.clone().unwrap_or(number),
                action: format!("{:?}", rule.rule.action).to_lowercase(),
                packets: count,
            });
        }
    }
    let tenants = (0..).map(TenantId).zip(&view.config.tenants).zip(rules);
    let report = |((id, tenant), rules): ((TenantId, &config::Tenant), Vec<RuleReport>)| {
        let own = view.config.networks.iter().filter(|network| network.tenant == Some(id));
        TenantReport {
            tenant: tenant.name.clone(),
            l3vni: tenant.l3vni.map(Vni::get),
            router_mac: tenant.router_mac.map(|mac| mac.to_string()),
            networks: own.map(|network| network.name.clone()).collect(),
            routes: view.tables.vrf(id.vrf()).map_or(0, |vrf| vrf.fib.len()),
            rules,
        }
    };
    tenants.map(report).collect()
}

fn age(now: Nanos, seen: Nanos) -> u64 {
    millis(Duration::from_nanos(now.since(seen).0))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
