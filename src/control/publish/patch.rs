//! The tables that change when a port moves to another network: two networks, their VRFs, the list of ports. All else,
//! however large, stays as it is.

use std::collections::BTreeSet;

use super::{Facts, networks, ports, vrfs};
use crate::control::config::{self, Config};
use crate::ids::{NetworkId, VrfId};
use crate::tables::network::Network;
use crate::tables::snapshot::{Port, Snapshot};
use crate::tables::vrf::Vrf;

/// Tables as the configuration has them, without what was learned.
#[derive(Clone, Debug)]
pub struct Patch {
    ports: Vec<Port>,
    networks: Vec<(NetworkId, Network)>,
    vrfs: Vec<(VrfId, Vrf)>,
}

impl Patch {
    /// For a configuration that differs from that of `tables` in ports of these networks alone.
    #[must_use]
    pub fn new(config: &Config, facts: &Facts, tables: &Snapshot, changed: &BTreeSet<NetworkId>) -> Self {
        let vteps = &tables.vteps;
        // Policies stay as they are: each is shared by its tenant.
        let network = |id: &NetworkId| {
            let policy = tables.network(*id)?.policy.clone();
            Some((*id, Network { policy, ..networks::network(config, vteps, *id)? }))
        };
        let tenants: BTreeSet<_> = changed.iter().filter_map(|id| config.network(*id)?.tenant).collect();
        let vrf = |id: config::TenantId| {
            let policy = tables.vrf(id.vrf())?.policy.clone();
            Some((id.vrf(), Vrf { policy, ..vrfs::vrf(config, vteps, id)? }))
        };
        Self {
            ports: ports::ports(config, facts),
            networks: changed.iter().filter_map(network).collect(),
            vrfs: tenants.into_iter().filter_map(vrf).collect(),
        }
    }

    /// Networks that are built anew.
    pub fn networks(&self) -> impl Iterator<Item = NetworkId> {
        self.networks.iter().map(|(id, _)| *id)
    }

    /// Whether a VRF is built anew.
    #[must_use]
    pub fn has_vrf(&self, id: VrfId) -> bool {
        self.vrfs.iter().any(|(vrf, _)| *vrf == id)
    }

    /// Puts them in.
    pub fn apply(self, tables: &mut Snapshot) {
        tables.set_ports(self.ports);
        for (id, network) in self.networks {
            if let Some(slot) = tables.network_mut(id) {
                *slot = network;
            }
        }
        for (id, vrf) in self.vrfs {
            if let Some(slot) = tables.vrf_mut(id) {
                *slot = vrf;
            }
        }
    }
}
