//! The validated configuration of tenants: VRF, L3VNI, routes, rules, gateways. A part of `model`.

use std::net::IpAddr;
use std::time::Duration;

use crate::ids::{NetworkId, PortId, VrfId};
use crate::tables::fib::Prefix;
pub use crate::tables::policy::{Action, Rule};
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

use super::model::{PeerId, VlanId};

/// Most tenants in one configuration.
pub const MAX_TENANTS: usize = 16_384;
/// Most routes of all tenants together.
pub const MAX_ROUTES: usize = 262_144;
/// Most multicast groups of all networks together.
pub const MAX_GROUPS: usize = 65_536;
/// Most VLANs of all ports together.
pub const MAX_VLANS: usize = 65_536;
/// Most values of one kind that a rule may list.
pub const MAX_RULE_VALUES: usize = 256;
/// Most IP addresses of one port.
pub const MAX_PORT_IPS: usize = 256;
/// Most IP addresses of one endpoint.
pub const MAX_ENDPOINT_IPS: usize = 16;
/// Most addresses of one gateway.
pub const MAX_GATEWAY_IPS: usize = 16;

/// Index of a tenant in [`Config::tenants`](super::Config::tenants).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The tenant's VRF in the snapshot.
    #[must_use]
    pub const fn vrf(self) -> VrfId {
        VrfId(self.0)
    }
}

/// A tenant: one VRF and one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Name in messages and counters.
    pub name: String,
    /// VNI of routed packets between VTEPs; without it, routing stays on this host.
    pub l3vni: Option<Vni>,
    /// Our router MAC. Given when there is an L3VNI or a gateway.
    pub router_mac: Option<Mac>,
    /// Members of the L3VNI besides the peers of the tenant's networks.
    pub peers: Vec<PeerId>,
    /// What becomes of a packet that no rule decides: `Allow` or `Deny`.
    pub default: Action,
    /// Routes, each prefix once.
    pub routes: Vec<TenantRoute>,
    /// Rules in their order.
    pub rules: Vec<TenantRule>,
}

/// A configured route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantRoute {
    /// Destinations.
    pub prefix: Prefix,
    /// Where they are.
    pub target: RouteTarget,
}

/// Where a configured route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a member of the L3VNI that has a router MAC.
    Peer {
        /// The peer.
        peer: PeerId,
        /// Index into its encap IPs.
        encap_ip: u8,
    },
    /// Looked up in another tenant's VRF.
    Leak(TenantId),
    /// Dropped.
    Blackhole,
}

/// A rule and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRule {
    /// Name in messages and counters, unique in the tenant.
    pub name: Option<String>,
    /// What it matches and does.
    pub rule: Rule,
}

/// The anycast gateway of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its MAC.
    pub mac: Mac,
    /// Its addresses, at least one.
    pub addresses: Vec<GatewayAddress>,
}

impl Gateway {
    /// Whether one of its subnets has this address; `None` when it has no subnet of the address's family.
    #[must_use]
    pub fn reaches(&self, ip: IpAddr) -> Option<bool> {
        reaches(self.addresses.iter(), ip)
    }
}

/// An address of a gateway, and the subnet that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatewayAddress {
    /// The address.
    pub ip: IpAddr,
    /// Its subnet.
    pub subnet: Prefix,
}

impl std::fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.subnet.len())
    }
}

/// How a network learns stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// How long a station that is silent stays known.
    pub ageing: Duration,
    /// Most stations that are learned.
    pub mac_limit: u32,
}

/// A multicast group with receivers of its own. Without any, its packets are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub address: IpAddr,
    /// Receivers on this host.
    pub ports: Vec<PortId>,
    /// Receivers elsewhere.
    pub peers: Vec<PeerId>,
}

/// A network of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanMember {
    /// Tag of its frames; `None`: untagged.
    pub vlan: Option<VlanId>,
    /// The network.
    pub network: NetworkId,
}

/// Whether one of these subnets has an address; `None` when none is of its family.
pub(crate) fn reaches<'a>(
    mut subnets: impl Iterator<Item = &'a GatewayAddress> + Clone,
    ip: IpAddr,
) -> Option<bool> {
    let family = subnets.clone().any(|address| address.ip.is_ipv4() == ip.is_ipv4());
    family.then(|| subnets.any(|address| address.subnet.contains(ip)))
}

/// Whether an address means something on one link only. Such an address is no route, and needs no gateway.
#[must_use]
pub const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Those of a port's networks that an address of it is in. `has` says whether the subnets of a network's gateway have
/// the address, `None` when it has no gateway, or none of the address's family.
///
/// A link-local address is in each. Another one is in those whose subnets have it; else in those without subnets.
pub(crate) fn homes(
    ip: IpAddr,
    networks: impl Iterator<Item = NetworkId> + Clone,
    has: impl Fn(NetworkId) -> Option<bool>,
) -> Vec<NetworkId> {
    if is_link_local(ip) {
        return networks.collect();
    }
    let those = |wanted: Option<bool>| networks.clone().filter(|id| has(*id) == wanted).collect::<Vec<_>>();
    let inside = those(Some(true));
    if inside.is_empty() { those(None) } else { inside }
}
