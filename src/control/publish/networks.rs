//! Networks: FDB, neighbors, receivers of group packets, gateway.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::stations::{addresses, stations, vteps_of};
use super::vrfs::{self, Policies};
use crate::control::config::{self, Config, PeerId, TenantId};
use crate::ids::{NetworkId, PortId, VtepId};
use crate::tables::fdb::Fdb;
use crate::tables::network::{Gateway, Neighbors, Network};
use crate::tables::policy::Policy;
use crate::tables::snapshot::Snapshot;
use crate::tables::vtep::VtepTable;
use crate::wire::ethernet::Mac;

/// What is behind the `Arc`s of a network.
#[derive(Default)]
struct Parts {
    fdb: Fdb,
    neighbors: Neighbors,
    ports: Vec<PortId>,
}

/// All networks in the order of their ids.
pub(super) fn all(config: &Config, vteps: &VtepTable, policies: &Policies) -> Vec<Network> {
    let mut parts = parts(config, vteps);
    let networks = (0..).map(NetworkId).zip(&config.networks);
    let policy = |tenant: TenantId| policies.get(tenant.0 as usize)?.clone();
    networks
        .map(|(id, network)| {
            let parts = parts.remove(&id).unwrap_or_default();
            build(config, vteps, network, network.tenant.and_then(policy), parts)
        })
        .collect()
}

/// One network as the configuration has it, without what was learned, and with a policy of its own. `None` when there is
/// no such network. Looks at every station of the configuration.
#[must_use]
pub fn network(config: &Config, vteps: &VtepTable, id: NetworkId) -> Option<Network> {
    let network = config.network(id)?;
    let mut parts = Parts::default();
    for station in stations(config, vteps).filter(|station| station.network == id) {
        parts.fdb.insert(station.mac, station.at);
    }
    for address in addresses(config).filter(|address| address.network == id) {
        parts.neighbors.insert(address.ip, address.mac);
    }
    let inside = |port: &config::Port| port.role.networks().any(|network| network == id);
    parts.ports = config.access_ports().filter(|(_, port)| inside(port)).map(|(id, _)| id).collect();
    let policy = network.tenant.and_then(|tenant| vrfs::policy(config, tenant));
    Some(build(config, vteps, network, policy, parts))
}

/// Whether the configuration says where a MAC is, so that nothing is learned of it. `base` is the [`snapshot`] of the
/// configuration, which shares all but what changed since with the ones that followed.
///
/// [`snapshot`]: super::snapshot
#[must_use]
pub fn is_static(base: &Snapshot, id: NetworkId, mac: Mac) -> bool {
    let Some(network) = base.network(id) else { return false };
    network.fdb.get(mac).is_some() || network.gateway.as_ref().is_some_and(|gateway| gateway.mac == mac)
}

/// Configured receivers of a group: ports, and each peer's first VTEP.
#[must_use]
pub fn group_receivers(
    config: &Config,
    vteps: &VtepTable,
    id: NetworkId,
    address: IpAddr,
) -> (Vec<PortId>, Vec<VtepId>) {
    let groups = config.network(id).map(|network| network.groups.as_slice()).unwrap_or_default();
    let group = groups.iter().find(|group| group.address == address);
    group.map_or_else(Default::default, |group| {
        let first = group.peers.iter().filter_map(|peer| vteps_of(config, vteps, *peer).next());
        (group.ports.clone(), first.collect())
    })
}

/// The parts of all networks in one pass over the stations.
fn parts(config: &Config, vteps: &VtepTable) -> HashMap<NetworkId, Parts> {
    let mut counts: HashMap<NetworkId, usize> = HashMap::new();
    for endpoint in config.peers.iter().flat_map(|peer| &peer.endpoints) {
        *counts.entry(endpoint.network).or_default() += 1;
    }
    let sized = |count| Parts { fdb: Fdb::with_capacity(count), ..Parts::default() };
    let mut parts: HashMap<NetworkId, Parts> =
        counts.into_iter().map(|(network, count)| (network, sized(count))).collect();
    for (id, port) in config.access_ports() {
        for network in port.role.networks() {
            parts.entry(network).or_default().ports.push(id);
        }
    }
    for station in stations(config, vteps) {
        parts.entry(station.network).or_default().fdb.insert(station.mac, station.at);
    }
    for address in addresses(config) {
        parts.entry(address.network).or_default().neighbors.insert(address.ip, address.mac);
    }
    parts
}

fn build(
    config: &Config,
    vteps: &VtepTable,
    network: &config::Network,
    policy: Option<Arc<Policy>>,
    parts: Parts,
) -> Network {
    let first = |peers: &[PeerId]| -> Vec<VtepId> {
        peers.iter().filter_map(|peer| vteps_of(config, vteps, *peer).next()).collect()
    };
    let flood = first(&network.peers);
    let sources: Vec<VtepId> = network.peers.iter().flat_map(|peer| vteps_of(config, vteps, *peer)).collect();
    let mut built =
        Network::new(network.vni, parts.fdb, network.unknown_unicast, &parts.ports, &flood, &sources);
    built.learning = network.learning.is_some();
    built.vrf = network.tenant.map(TenantId::vrf);
    built.policy = policy;
    built.gateway = network.gateway.as_ref().map(|gateway| Arc::new(gateway_of(gateway)));
    built.neighbors = Arc::new(parts.neighbors);
    built.snooping = network.snooping;
    if network.snooping {
        Arc::make_mut(&mut built.flood).restrict_to_joined();
    }
    for group in &network.groups {
        Arc::make_mut(&mut built.flood).set_group(group.address, &group.ports, &first(&group.peers));
    }
    built
}

fn gateway_of(gateway: &config::Gateway) -> Gateway {
    let mut built = Gateway { mac: gateway.mac, v4: Vec::new(), v6: Vec::new() };
    for address in &gateway.addresses {
        match address.ip {
            IpAddr::V4(ip) => built.v4.push(ip),
            IpAddr::V6(ip) => built.v6.push(ip),
        }
    }
    built
}
