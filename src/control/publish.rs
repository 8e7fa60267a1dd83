//! Configuration and kernel state → snapshot. Pure: the caller asked the kernel, the caller publishes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::config::{self, Config, PeerId, PortRole, UplinkId};
use crate::ids::{NetworkId, PortId, VtepId};
use crate::tables::fdb::{Dest, Fdb};
use crate::tables::network::Network;
use crate::tables::snapshot::{Port, Role, Settings, Snapshot};
use crate::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use crate::wire::ethernet::Mac;

/// What the kernel, or the configuration in its place, says of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its MAC.
    pub mac: Mac,
    /// IP MTU in bytes.
    pub mtu: u16,
}

/// Facts of all interfaces, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of uplinks.
    pub uplinks: Vec<InterfaceFacts>,
    /// Of access ports.
    pub ports: Vec<InterfaceFacts>,
}

/// A remote encap IP, and the local end that sends to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Remote encap IP.
    pub remote: IpAddr,
    /// Uplink and our encap IP on it, of the same family; `None` when no uplink has one.
    pub local: Option<(UplinkId, IpAddr)>,
}

/// Every remote encap IP of the configuration, each once, in its order. Uses the first uplink that has an encap IP of
/// the same family.
#[must_use]
pub fn paths(config: &Config) -> Vec<Path> {
    let local = |remote: &IpAddr| {
        (0..).map(UplinkId).zip(&config.uplinks).find_map(|(id, uplink)| {
            let ip = uplink.encap_ips.iter().find(|ip| ip.is_ipv4() == remote.is_ipv4())?;
            Some((id, *ip))
        })
    };
    let remotes = config.peers.iter().flat_map(|peer| &peer.encap_ips);
    remotes.map(|remote| Path { remote: *remote, local: local(remote) }).collect()
}

/// Builds all tables. Next hops have the MACs that are configured; others follow by [`with_next_hops`].
#[must_use]
pub fn snapshot(config: &Config, facts: &Facts) -> Snapshot {
    let macs = config.static_macs();
    let mut vteps = VtepTable::default();
    for path in paths(config) {
        let mac = path.local.and_then(|(uplink, _)| macs.get(&(uplink, path.remote)).copied());
        vteps.insert(row(config, facts, path, mac));
    }
    let encap_ips: Vec<IpAddr> = config.uplinks.iter().flat_map(|u| u.encap_ips.iter().copied()).collect();
    let networks = networks(config, &vteps);
    let mut snapshot = Snapshot::new(settings(&config.vxlan), ports(config, facts), &encap_ips, vteps);
    for network in networks {
        snapshot.push_network(network);
    }
    snapshot
}

/// The next snapshot after next hops of `changed` paths got or lost their MAC: copies the VTEP table alone.
#[must_use]
pub fn with_next_hops(
    old: &Snapshot,
    config: &Config,
    facts: &Facts,
    changed: &[(Path, Option<Mac>)],
) -> Snapshot {
    let mut next = old.clone();
    next.generation += 1;
    let vteps = Arc::make_mut(&mut next.vteps);
    for (path, mac) in changed {
        vteps.insert(row(config, facts, *path, *mac));
    }
    next
}

/// The VTEP row of a path whose next hop has this MAC.
fn row(config: &Config, facts: &Facts, path: Path, mac: Option<Mac>) -> VtepRow {
    let spec = path.local.and_then(|(id, src)| {
        let uplink = config.uplinks.get(usize::from(id.0))?;
        let known = facts.uplinks.get(usize::from(id.0))?;
        Some((id, src, uplink.vlan, known))
    });
    let Some((id, src, vlan, known)) = spec else { return VtepRow::unusable(path.remote, NextHop::NoPath) };
    let Some(dst_mac) = mac else { return VtepRow::unusable(path.remote, NextHop::Unresolved) };
    VtepRow::resolved(&OuterSpec {
        uplink: config.uplink_port(id),
        src_mac: known.mac,
        dst_mac,
        vlan: vlan.map(config::VlanId::get),
        src,
        dst: path.remote,
        mtu: known.mtu,
    })
    .unwrap_or_else(|| VtepRow::unusable(path.remote, NextHop::NoPath))
}

fn settings(vxlan: &config::Vxlan) -> Settings {
    Settings {
        accept_udp6_zero_checksum: vxlan.udp6_zero_checksum == config::Admit::Accept,
        accept_unknown_vtep: vxlan.unknown_vtep == config::Admit::Accept,
        encap_dscp: vxlan.encap_dscp,
        decap_dscp: vxlan.decap_dscp,
        icmp_unreachable: true,
    }
}

fn ports(config: &Config, facts: &Facts) -> Vec<Port> {
    let native = |uplink: UplinkId| {
        config.access_ports().find(|(_, port)| port.role == PortRole::Native(uplink)).map(|(id, _)| id)
    };
    let uplinks = (0..)
        .map(UplinkId)
        .zip(&config.uplinks)
        .map(|(id, uplink)| Role::Uplink { vlan: uplink.vlan.map(config::VlanId::get), native: native(id) });
    let access = config.ports.iter().map(|port| match port.role {
        PortRole::Network(network) => Role::Access(network),
        PortRole::Native(uplink) => Role::Native(config.uplink_port(uplink)),
    });
    let mtus = facts.uplinks.iter().chain(&facts.ports).map(|known| known.mtu);
    uplinks.chain(access).zip(mtus).map(|(role, mtu)| Port { role, mtu, guard: None }).collect()
}

fn networks(config: &Config, vteps: &VtepTable) -> Vec<Network> {
    let mut fdbs = fdbs(config, vteps);
    let mut members: HashMap<NetworkId, Vec<PortId>> = HashMap::new();
    for (id, port) in config.access_ports() {
        if let PortRole::Network(network) = port.role {
            members.entry(network).or_default().push(id);
        }
    }
    let vteps_of = |peer: &PeerId| {
        let peer = config.peers.get(peer.0 as usize);
        peer.into_iter().flat_map(|peer| &peer.encap_ips).filter_map(|ip| vteps.by_ip(*ip))
    };
    (0..)
        .map(NetworkId)
        .zip(&config.networks)
        .map(|(id, network)| {
            let flood: Vec<VtepId> = network.peers.iter().filter_map(|peer| vteps_of(peer).next()).collect();
            let sources: Vec<VtepId> = network.peers.iter().flat_map(vteps_of).collect();
            let fdb = fdbs.remove(&id).unwrap_or_default();
            let ports = members.get(&id).map(Vec::as_slice).unwrap_or_default();
            Network::new(network.vni, fdb, network.unknown_unicast, ports, &flood, &sources)
        })
        .collect()
}

fn fdbs(config: &Config, vteps: &VtepTable) -> HashMap<NetworkId, Fdb> {
    let mut counts: HashMap<NetworkId, usize> = HashMap::new();
    for endpoint in config.peers.iter().flat_map(|peer| &peer.endpoints) {
        *counts.entry(endpoint.network).or_default() += 1;
    }
    let mut fdbs: HashMap<NetworkId, Fdb> =
        counts.into_iter().map(|(network, count)| (network, Fdb::with_capacity(count))).collect();
    for (id, port) in config.access_ports() {
        if let PortRole::Network(network) = port.role {
            let fdb = fdbs.entry(network).or_default();
            for mac in &port.macs {
                fdb.insert(*mac, Dest::Port(id));
            }
        }
    }
    for peer in &config.peers {
        let default = peer.encap_ips.first().copied();
        for endpoint in &peer.endpoints {
            let ip = peer.pinned_encap_ip(endpoint).or(default);
            if let Some(vtep) = ip.and_then(|ip| vteps.by_ip(ip)) {
                fdbs.entry(endpoint.network).or_default().insert(endpoint.mac, Dest::Vtep(vtep));
            }
        }
    }
    fdbs
}

/// A port whose MAC or MTU neither the configuration nor an interface tells.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("uplink {name}: no interface {interface} here, so {missing} must be set in the configuration")]
pub struct MissingFact {
    name: String,
    interface: String,
    missing: &'static str,
}

impl Facts {
    /// Facts from the configuration alone. An access port without an MTU takes any length.
    ///
    /// # Errors
    /// Names the first uplink whose `mac` or `mtu` is not configured.
    pub fn offline(config: &Config) -> Result<Self, MissingFact> {
        let uplink = |uplink: &config::Uplink| {
            let missing = |missing| MissingFact {
                name: uplink.name.clone(),
                interface: uplink.interface.to_string(),
                missing,
            };
            let mac = uplink.mac.ok_or_else(|| missing("mac"))?;
            let mtu = uplink.mtu.ok_or_else(|| missing("mtu"))?;
            Ok(InterfaceFacts { mac, mtu })
        };
        let port =
            |port: &config::Port| InterfaceFacts { mac: Mac::default(), mtu: port.mtu.unwrap_or(u16::MAX) };
        Ok(Self {
            uplinks: config.uplinks.iter().map(uplink).collect::<Result<_, _>>()?,
            ports: config.ports.iter().map(port).collect(),
        })
    }
}
