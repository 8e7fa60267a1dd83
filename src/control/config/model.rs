//! The validated configuration: only legal values, references as indices. Built by `config::resolve`, read by
//! `control` and by offline commands. Nothing here reads a file or asks the kernel.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::control::plan::AddressPlan;
use crate::ids::{NetworkId, PortId, RuleId};
pub use crate::tables::network::UnknownUnicast;
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

use super::settings::{Admit, Control, Neighbors, Routing, Vxlan, Workers, Xdp};
use super::tenant::{Gateway, Group, Learning, Tenant, TenantId, TenantRule, VlanMember, homes};

/// Most uplinks in one configuration.
pub const MAX_UPLINKS: usize = 64;
/// Most access ports in one configuration.
pub const MAX_PORTS: usize = 4096;
/// Most networks in one configuration.
pub const MAX_NETWORKS: usize = 65_536;
/// Most peers in one configuration.
pub const MAX_PEERS: usize = 65_536;
/// Most encap IPs of one uplink or of one peer.
pub const MAX_ENCAP_IPS: usize = 16;
/// Most endpoints of all peers together.
pub const MAX_ENDPOINTS: usize = 4_194_304;
/// Most static neighbors.
pub const MAX_STATIC_NEIGHBORS: usize = 65_536;

/// Index of an uplink in [`Config::uplinks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UplinkId(pub u16);

/// Index of a peer in [`Config::peers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// The whole static state of one flowrail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Worker threads and their memory.
    pub workers: Workers,
    /// How the steering program may attach.
    pub xdp: Xdp,
    /// Rules of encap and decap.
    pub vxlan: Vxlan,
    /// The control socket.
    pub control: Control,
    /// What happens while a next hop's MAC is unknown.
    pub neighbors: Neighbors,
    /// How packets are routed.
    pub routing: Routing,
    /// What addresses mean.
    pub address_plan: Option<AddressPlan>,
    /// Tenants, indexed by [`TenantId`].
    pub tenants: Vec<Tenant>,
    /// Underlay ports. Their [`PortId`]s come first.
    pub uplinks: Vec<Uplink>,
    /// Networks, indexed by [`NetworkId`].
    pub networks: Vec<Network>,
    /// Access ports. Their [`PortId`]s follow the uplinks'.
    pub ports: Vec<Port>,
    /// Remote chassis, indexed by [`PeerId`].
    pub peers: Vec<Peer>,
    /// Next-hop MACs that are configured rather than resolved.
    pub static_neighbors: Vec<StaticNeighbor>,
}

impl Config {
    /// Port number of an uplink.
    #[must_use]
    pub fn uplink_port(&self, uplink: UplinkId) -> PortId {
        PortId(uplink.0)
    }

    /// Access ports with their port numbers.
    pub fn access_ports(&self) -> impl Iterator<Item = (PortId, &Port)> {
        let first = u16::try_from(self.uplinks.len()).unwrap_or(u16::MAX);
        (first..).map(PortId).zip(&self.ports)
    }

    /// Names of all ports in the order of their [`PortId`]s.
    pub fn port_names(&self) -> impl Iterator<Item = &str> {
        let uplinks = self.uplinks.iter().map(|uplink| uplink.name.as_str());
        uplinks.chain(self.ports.iter().map(|port| port.name.as_str()))
    }

    /// Gives the access ports the numbers that they have in `running`, so that counters and sockets stay theirs. What is
    /// in `running` alone keeps its number, closed; what is new comes last.
    pub fn number_ports_as(&mut self, running: &Self) {
        let mut new: HashMap<String, (PortId, Port)> =
            self.access_ports().map(|(id, port)| (port.name.clone(), (id, port.clone()))).collect();
        let mut ports: Vec<(Option<PortId>, Port)> = Vec::with_capacity(self.ports.len());
        for was in &running.ports {
            ports.push(match new.remove(&was.name) {
                Some((id, port)) => (Some(id), port),
                None => (None, was.closed()),
            });
        }
        let mut added: Vec<(PortId, Port)> = new.into_values().collect();
        added.sort_by_key(|(id, _)| *id);
        ports.extend(added.into_iter().map(|(id, port)| (Some(id), port)));
        let first = u16::try_from(self.uplinks.len()).unwrap_or(u16::MAX);
        let ids = (first..).map(PortId).zip(&ports);
        let new_id: HashMap<PortId, PortId> = ids.filter_map(|(id, (was, _))| Some(((*was)?, id))).collect();
        for port in self.networks.iter_mut().flat_map(|n| &mut n.groups).flat_map(|g| &mut g.ports) {
            *port = new_id.get(port).copied().unwrap_or(*port);
        }
        self.ports = ports.into_iter().map(|(_, port)| port).collect();
    }

    /// The configured MACs of next hops.
    #[must_use]
    pub fn static_macs(&self) -> HashMap<(UplinkId, IpAddr), Mac> {
        self.static_neighbors.iter().map(|n| ((n.uplink, n.ip), n.mac)).collect()
    }

    /// Number of endpoints of all peers.
    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.peers.iter().map(|peer| peer.endpoints.len()).sum()
    }

    /// All rules with their tenant, numbered in the file's order.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, TenantId, &TenantRule)> {
        let tenants = (0..).map(TenantId).zip(&self.tenants);
        let rules = tenants.flat_map(|(id, tenant)| tenant.rules.iter().map(move |rule| (id, rule)));
        (0..).map(RuleId).zip(rules).map(|(number, (id, rule))| (number, id, rule))
    }

    /// A network by its number.
    #[must_use]
    pub fn network(&self, id: NetworkId) -> Option<&Network> {
        self.networks.get(id.0 as usize)
    }

    /// A tenant by its number.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(id.0 as usize)
    }

    /// A peer by its number.
    #[must_use]
    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)
    }

    /// The networks that an address of a port is in: one, or for a link-local address each of a trunk's.
    #[must_use]
    pub fn homes(&self, port: &Port, ip: IpAddr) -> Vec<NetworkId> {
        let has = |id| self.network(id)?.gateway.as_ref()?.reaches(ip);
        homes(ip, port.role.networks(), has)
    }
}

/// A network device's name: 1 to 15 bytes, no slash, no space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Bytes of the longest name (`IFNAMSIZ` less the final zero).
    pub const MAX_LEN: usize = 15;

    /// `None` when the kernel would refuse the name.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let legal = |b: u8| (b.is_ascii_graphic() || !b.is_ascii()) && b != b'/' && b != b':';
        let ok = !name.is_empty()
            && name.len() <= Self::MAX_LEN
            && name != "."
            && name != ".."
            && name.bytes().all(legal);
        ok.then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An 802.1Q VLAN number that may be on the wire, 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// `None` outside 1 to 4094.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number >= 1 && number <= 4094 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// An underlay port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Name in messages and counters.
    pub name: String,
    /// Network device.
    pub interface: InterfaceName,
    /// Our encap IPs on this uplink, at least one.
    pub encap_ips: Vec<IpAddr>,
    /// Source MAC; the interface's when absent.
    pub mac: Option<Mac>,
    /// IP MTU of the underlay; the interface's when absent.
    pub mtu: Option<u16>,
    /// Tag of the underlay frames.
    pub vlan: Option<VlanId>,
}

/// One VXLAN network: a broadcast domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name in messages and counters.
    pub name: String,
    /// Its number on the wire.
    pub vni: Vni,
    /// Members and flood list, in the file's order.
    pub peers: Vec<PeerId>,
    /// What happens to unicast whose MAC is in no table.
    pub unknown_unicast: UnknownUnicast,
    /// Whom it belongs to.
    pub tenant: Option<TenantId>,
    /// The way out of it; only with a tenant.
    pub gateway: Option<Gateway>,
    /// How it learns stations; `None`: every station is configured.
    pub learning: Option<Learning>,
    /// Whether receivers of multicast groups are learned from IGMP and MLD.
    pub snooping: bool,
    /// Multicast groups with receivers of their own.
    pub groups: Vec<Group>,
}

/// A port towards a guest or the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in messages and counters.
    pub name: String,
    /// Network device.
    pub interface: InterfaceName,
    /// What its frames belong to.
    pub role: PortRole,
    /// Which frames flowrail takes.
    pub steer: Steer,
    /// MACs behind the port.
    pub macs: Vec<Mac>,
    /// IP addresses of the first MAC.
    pub ips: Vec<IpAddr>,
    /// What happens to frames from other MACs and, where `ips` are given, other addresses. Without `macs` all are taken.
    pub spoofing: Admit,
    /// Largest IP packet sent to the port; the interface's MTU when absent.
    pub mtu: Option<u16>,
}

impl Port {
    /// Whether it is there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.role != PortRole::Closed
    }

    /// The same port, gone.
    fn closed(&self) -> Self {
        Self { role: PortRole::Closed, macs: Vec::new(), ips: Vec::new(), ..self.clone() }
    }
}

/// What an access port's frames belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// A VXLAN network.
    Network(NetworkId),
    /// Several, by VLAN tag. Each tag and each network once.
    Trunk(Vec<VlanMember>),
    /// The underlay itself: RoCEv2 passes between port and uplink without encap.
    Native(UplinkId),
    /// Nothing: a port that was removed while flowrail runs. No file has one.
    Closed,
}

impl PortRole {
    /// The port's networks.
    pub fn networks(&self) -> impl Iterator<Item = NetworkId> + Clone {
        let (one, many) = match self {
            Self::Network(id) => (Some(*id), &[][..]),
            Self::Trunk(members) => (None, members.as_slice()),
            Self::Native(_) | Self::Closed => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().map(|member| member.network))
    }
}

/// Which frames of an access port flowrail takes; the kernel keeps the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Every frame.
    All,
    /// RoCEv2 only.
    Roce,
}

/// A remote chassis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name in messages and counters.
    pub name: String,
    /// Its encap IPs, at least one.
    pub encap_ips: Vec<IpAddr>,
    /// Destination MAC of packets that are routed to it.
    pub router_mac: Option<Mac>,
    /// MACs behind it.
    pub endpoints: Vec<Endpoint>,
    /// IPv4 addresses of endpoints, each with the index of its endpoint, in ascending order. Beside the endpoints, as not
    /// all have one.
    pub addresses_v4: Vec<(u32, Ipv4Addr)>,
    /// IPv6 addresses of endpoints, alike.
    pub addresses_v6: Vec<(u32, Ipv6Addr)>,
}

impl Peer {
    /// Every address of an endpoint with its endpoint.
    pub fn addresses(&self) -> impl Iterator<Item = (&Endpoint, IpAddr)> {
        let v4 = self.addresses_v4.iter().map(|&(index, ip)| (index, IpAddr::V4(ip)));
        let v6 = self.addresses_v6.iter().map(|&(index, ip)| (index, IpAddr::V6(ip)));
        v4.chain(v6).filter_map(|(index, ip)| Some((self.endpoints.get(index as usize)?, ip)))
    }

    /// The encap IP that `endpoint` is pinned to, if any.
    #[must_use]
    pub fn pinned_encap_ip(&self, endpoint: &Endpoint) -> Option<IpAddr> {
        self.encap_ips.get(usize::from(endpoint.encap_ip?)).copied()
    }
}

/// A MAC behind a peer. Small, because there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Network it is in.
    pub network: NetworkId,
    /// Its address.
    pub mac: Mac,
    /// Index into the peer's encap IPs, when pinned to one.
    pub encap_ip: Option<u8>,
}

const _: () = assert!(size_of::<Endpoint>() == 12);

/// A next-hop MAC that is configured rather than resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    /// Uplink it is reached through.
    pub uplink: UplinkId,
    /// Next hop's address: a remote encap IP on the same link, or a gateway.
    pub ip: IpAddr,
    /// Its MAC.
    pub mac: Mac,
}
