//! Configuration and kernel state → snapshot. Pure: the caller asked the kernel, the caller publishes.
//!
//! [`snapshot`] builds everything. [`network`], [`vrf`] and [`is_static`] serve single changes at run time.

mod facts;
mod networks;
mod patch;
mod ports;
mod stations;
mod vrfs;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use super::config::{self, Config, UplinkId};
use crate::tables::snapshot::{Settings, Snapshot};
use crate::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use crate::wire::ethernet::Mac;

pub use facts::{Facts, InterfaceFacts, MissingFact};
pub use networks::{group_receivers, is_static, network};
pub use patch::Patch;
pub use vrfs::vrf;

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
    let policies = vrfs::policies(config);
    let networks = networks::all(config, &vteps, &policies);
    let vrfs = vrfs::all(config, &vteps, &policies);
    let ports = ports::ports(config, facts);
    let mut snapshot =
        Snapshot::new(settings(config), ports, &encap_ips, vteps).with_trunks(ports::trunks(config));
    for network in networks {
        snapshot.push_network(network);
    }
    for vrf in vrfs {
        snapshot.push_vrf(vrf);
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

fn settings(config: &Config) -> Settings {
    let vxlan = &config.vxlan;
    Settings {
        accept_udp6_zero_checksum: vxlan.udp6_zero_checksum == config::Admit::Accept,
        accept_unknown_vtep: vxlan.unknown_vtep == config::Admit::Accept,
        encap_dscp: vxlan.encap_dscp,
        decap_dscp: vxlan.decap_dscp,
        icmp_unreachable: config.routing.icmp_unreachable,
    }
}
