//! Ports: roles, trunks, what their stations may claim to be.

use std::sync::Arc;

use super::Facts;
use crate::control::config::{self, Admit, Config, PortRole, UplinkId};
use crate::ids::TrunkId;
use crate::tables::guard::Guard;
use crate::tables::snapshot::{Port, Role};
use crate::tables::trunk::Trunk;

/// All ports in the order of their ids.
pub(super) fn ports(config: &Config, facts: &Facts) -> Vec<Port> {
    let native = |uplink: UplinkId| {
        config.access_ports().find(|(_, port)| port.role == PortRole::Native(uplink)).map(|(id, _)| id)
    };
    let uplinks = (0..).map(UplinkId).zip(&config.uplinks).map(|(id, uplink)| {
        let role = Role::Uplink { vlan: uplink.vlan.map(config::VlanId::get), native: native(id) };
        (role, None)
    });
    let mut trunks = (0..).map(TrunkId);
    let access = config.ports.iter().filter_map(|port| {
        let role = match port.role {
            PortRole::Network(network) => Role::Access(network),
            PortRole::Trunk(_) => Role::Trunk(trunks.next()?),
            PortRole::Native(uplink) => Role::Native(config.uplink_port(uplink)),
            PortRole::Closed => Role::Closed,
        };
        Some((role, guard(port)))
    });
    let mtus = facts.uplinks.iter().chain(&facts.ports).map(|known| known.mtu);
    uplinks.chain(access).zip(mtus).map(|((role, guard), mtu)| Port { role, mtu, guard }).collect()
}

/// VLAN trunks in the order of their ids, which is that of their ports.
pub(super) fn trunks(config: &Config) -> Vec<Trunk> {
    let members = config.ports.iter().filter_map(|port| match &port.role {
        PortRole::Trunk(members) => Some(members),
        _ => None,
    });
    let tag = |member: &config::VlanMember| (member.vlan.map(config::VlanId::get), member.network);
    members.map(|members| Trunk::new(members.iter().map(tag))).collect()
}

/// What the station of a port may claim to be. Without MACs nothing is known of it, so that it may be anything.
fn guard(port: &config::Port) -> Option<Arc<Guard>> {
    let holds = port.spoofing == Admit::Drop && !port.macs.is_empty();
    holds.then(|| Arc::new(Guard { macs: port.macs.clone(), ips: port.ips.clone() }))
}
