//! What was learned, on its way into the tables: of the same configuration, of a new one, of one in which a port moved.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::config::Config;
use super::groups::Groups;
use super::learn::{self, Learner, Owner};
use super::publish::{self, Patch};
use crate::ids::{NetworkId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::fib::Prefix;
use crate::tables::network::Gateway;
use crate::tables::snapshot::{Role, Snapshot};
use crate::tables::vrf::Route;
use crate::wire::ethernet::Mac;

/// Gives the learner the learning networks of a configuration.
pub(super) fn configure(learner: &mut Learner, config: &Config, tables: &Snapshot) {
    let settings = tables.networks().filter_map(|(id, network)| {
        let learning = config.network(id)?.learning?;
        let router = network.vrf.and_then(|vrf| tables.vrf(vrf)).map(|vrf| vrf.router_mac);
        let gateway = network.gateway.as_deref();
        let settings = learn::Settings {
            ageing: learning.ageing,
            macs: usize::try_from(learning.mac_limit).unwrap_or(usize::MAX),
            routers: router.into_iter().chain(gateway.map(|gateway| gateway.mac)).collect(),
            gateways: gateway.map(Gateway::addresses).unwrap_or_default(),
        };
        Some((id, settings))
    });
    learner.configure(settings.collect(), homes(config, tables));
}

/// First VTEP of the peer that each VTEP belongs to.
fn homes(config: &Config, tables: &Snapshot) -> Vec<VtepId> {
    let mut homes: Vec<VtepId> = tables.vteps.iter().map(|(id, _)| id).collect();
    for peer in &config.peers {
        let mut vteps = peer.encap_ips.iter().filter_map(|ip| tables.vteps.by_ip(*ip));
        let Some(first) = vteps.next() else { continue };
        for vtep in vteps {
            if let Some(home) = homes.get_mut(vtep.0 as usize) {
                *home = first;
            }
        }
    }
    homes
}

/// What the new tables, which have only what is configured, allow of what was learned by the old ones.
struct Legal<'t> {
    old: &'t Snapshot,
    new: &'t Snapshot,
}

impl Legal<'_> {
    /// Where a member of a network is in the new tables.
    fn place(&self, id: NetworkId, at: Dest) -> Option<Dest> {
        let network = self.new.network(id)?;
        match at {
            Dest::Port(port) => {
                let carries = match self.new.port(port)?.role {
                    Role::Access(of) => of == id,
                    Role::Trunk(trunk) => self.new.trunk(trunk)?.tag(id).is_some(),
                    Role::Uplink { .. } | Role::Native(_) | Role::Closed => false,
                };
                carries.then_some(at)
            }
            Dest::Vtep(vtep) => {
                let vtep = self.new.vteps.by_ip(self.old.vteps.get(vtep)?.remote)?;
                let admitted = network.flood.has_member(vtep) || self.new.settings.accept_unknown_vtep;
                admitted.then_some(Dest::Vtep(vtep))
            }
        }
    }

    /// The same of a station, unless it is configured.
    fn station(&self, id: NetworkId, mac: Mac, at: Dest) -> Option<Dest> {
        self.new.network(id).filter(|network| network.fdb.get(mac).is_none())?;
        self.place(id, at)
    }

    fn owner(&self, id: NetworkId, ip: IpAddr, mac: Mac) -> Option<Owner> {
        let network = self.new.network(id).filter(|network| network.neighbors.get(ip).is_none())?;
        let is_static = network.fdb.get(mac).is_some();
        Some(if is_static { Owner::Configured } else { Owner::Learned })
    }
}

/// Gives what was learned the numbers of a new configuration, drops what it does not allow, and writes the rest into its
/// tables.
pub(super) fn renumber(
    learner: &mut Learner,
    groups: &mut Groups,
    old: (&Config, &Snapshot),
    config: &Config,
    tables: &mut Snapshot,
) {
    let ids = (0..).map(NetworkId).zip(&config.networks).map(|(id, network)| (network.name.as_str(), id));
    let by_name: HashMap<&str, NetworkId> = ids.collect();
    let network = |id| by_name.get(old.0.network(id)?.name.as_str()).copied();
    let legal = Legal { old: old.1, new: tables };
    let learns = |id| network(id).filter(|id| legal.new.network(*id).is_some_and(|n| n.learning));
    let snoops = |id| network(id).filter(|id| legal.new.network(*id).is_some_and(|n| n.snooping));
    learner.renumber(
        learns,
        |id, mac, at| legal.station(id, mac, at),
        |id, ip, mac| legal.owner(id, ip, mac),
    );
    groups.renumber(snoops, |id, at| legal.place(id, at));
    configure(learner, config, tables);
    for change in learner.contents() {
        write(tables, &change);
    }
    for (network, group) in groups.all() {
        write_group(tables, config, groups, network, group);
    }
}

/// Puts a patch into tables, drops what it does not allow of what was learned, and writes the rest into what the patch
/// built anew.
pub(super) fn patch(
    learner: &mut Learner,
    groups: &mut Groups,
    config: &Config,
    patch: Patch,
    tables: &mut Snapshot,
) {
    let old = tables.clone();
    let changed: Vec<NetworkId> = patch.networks().collect();
    let rerouted = |tables: &Snapshot, id| {
        tables.network(id).and_then(|network| network.vrf).is_some_and(|vrf| patch.has_vrf(vrf))
    };
    let touched: Vec<NetworkId> =
        tables.networks().map(|(id, _)| id).filter(|id| rerouted(tables, *id)).collect();
    patch.apply(tables);
    let legal = Legal { old: &old, new: tables };
    for id in &changed {
        learner.revise(*id, |mac, at| legal.station(*id, mac, at), |ip, mac| legal.owner(*id, ip, mac));
    }
    groups.renumber(Some, |id, at| legal.place(id, at));
    for change in learner.contents() {
        let (id, is_address) = match change {
            learn::Change::Station { network, .. } => (network, false),
            learn::Change::Address { network, .. } => (network, true),
        };
        if changed.contains(&id) || (is_address && touched.contains(&id)) {
            write(tables, &change);
        }
    }
    for (network, group) in groups.all().filter(|(network, _)| changed.contains(network)) {
        write_group(tables, config, groups, network, group);
    }
}

/// Makes the tables say who gets a group: the configured receivers, and those that joined.
pub(super) fn write_group(
    tables: &mut Snapshot,
    config: &Config,
    groups: &Groups,
    network: NetworkId,
    group: IpAddr,
) {
    let (mut ports, mut vteps) = publish::group_receivers(config, &tables.vteps, network, group);
    let is_configured = !ports.is_empty() || !vteps.is_empty();
    let mut joined = groups.members(network, group).peekable();
    let is_joined = joined.peek().is_some();
    for at in joined {
        match at {
            Dest::Port(port) if !ports.contains(&port) => ports.push(port),
            Dest::Vtep(vtep) if !vteps.contains(&vtep) => vteps.push(vtep),
            Dest::Port(_) | Dest::Vtep(_) => {}
        }
    }
    let Some(network) = tables.network_mut(network) else { return };
    let flood = Arc::make_mut(&mut network.flood);
    if is_configured || is_joined {
        flood.set_group(group, &ports, &vteps);
    } else {
        flood.remove_group(group);
    }
}

/// Makes the tables say what was learned.
pub(super) fn write(tables: &mut Snapshot, change: &learn::Change) {
    match *change {
        learn::Change::Station { network, mac, at } => {
            let Some(network) = tables.network_mut(network) else { return };
            match at {
                Some(at) => network.fdb.insert(mac, at),
                None => network.fdb.remove(mac),
            };
        }
        learn::Change::Address { network: id, ip, mac } => {
            let Some(network) = tables.network_mut(id) else { return };
            let neighbors = Arc::make_mut(&mut network.neighbors);
            match mac {
                Some(mac) => neighbors.insert(ip, mac),
                None => neighbors.remove(ip),
            };
            write_host_route(tables, id, ip, mac);
        }
    }
}

/// A station of a subnet that the gateway is in has a host route. No other route to the address is touched.
fn write_host_route(tables: &mut Snapshot, id: NetworkId, ip: IpAddr, mac: Option<Mac>) {
    let Some(network) = tables.network(id) else { return };
    let (Some(vrf), Some(_)) = (network.vrf, &network.gateway) else { return };
    let Some(prefix) = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }) else { return };
    let Some(fib) = tables.vrf(vrf).map(|vrf| &vrf.fib) else { return };
    let present = match ip {
        IpAddr::V4(ip) => fib.get_v4(ip.octets()),
        IpAddr::V6(ip) => fib.get_v6(ip.octets()),
    };
    let is_ours = match present {
        Some(Route::Connected(of)) => of == id,
        Some(Route::Host { network, .. }) => network == id,
        _ => false,
    };
    let Some(vrf) = tables.vrf_mut(vrf).filter(|_| is_ours) else { return };
    match mac {
        Some(mac) => vrf.fib.insert(prefix, Route::Host { network: id, mac }),
        None => vrf.fib.remove(prefix),
    };
}
