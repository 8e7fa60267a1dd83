//! One immutable view of all forwarding state. `control` builds and publishes it; a worker loads it once per batch.
//! Sub-tables are `Arc`s, so that a change copies only the table it touches.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::chunked::Chunked;
use super::guard::Guard;
use super::network::Network;
use super::trunk::Trunk;
use super::vrf::Vrf;
use super::vtep::VtepTable;
use crate::ids::{NetworkId, PortId, TrunkId, VrfId};
use crate::wire::ecn::Dscp;
use crate::wire::vxlan::Vni;

/// FDB entries, or routes, of all networks together from which on a look-up is likely to wait for memory: 256 kB of
/// buckets.
const LARGE: usize = 16_384;

/// Outer DSCP at encapsulation (RFC 2983).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapDscp {
    /// The inner DSCP; 0 for a packet that is not IP.
    Copy,
    /// Always this one.
    Set(Dscp),
}

/// Inner DSCP at decapsulation (RFC 2983).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecapDscp {
    /// Stays as the sender set it.
    Pipe,
    /// Becomes the outer DSCP.
    Uniform,
}

/// Switches of the datapath that hold for all networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accept an outer UDP checksum of zero over IPv6 (RFC 6935).
    pub accept_udp6_zero_checksum: bool,
    /// Accept packets from VTEPs that are no configured peer, or not a member of the network.
    pub accept_unknown_vtep: bool,
    /// Outer DSCP.
    pub encap_dscp: EncapDscp,
    /// Inner DSCP.
    pub decap_dscp: DecapDscp,
    /// Answer packets without a route or station with ICMP unreachable.
    pub icmp_unreachable: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accept_udp6_zero_checksum: false,
            accept_unknown_vtep: false,
            encap_dscp: EncapDscp::Copy,
            decap_dscp: DecapDscp::Pipe,
            icmp_unreachable: true,
        }
    }
}

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Underlay: VXLAN to our encap IPs arrives here, with this VLAN tag; native RoCEv2 goes to `native`.
    Uplink {
        /// VLAN tag of the underlay; `None` means untagged.
        vlan: Option<u16>,
        /// Access port of un-encapsulated RoCEv2.
        native: Option<PortId>,
    },
    /// Access port of a network.
    Access(NetworkId),
    /// Access port of several networks, by VLAN tag.
    Trunk(TrunkId),
    /// Access port whose frames leave an uplink as they are.
    Native(PortId),
    /// A port that is gone; its number is kept for its return.
    Closed,
}

/// A port of the forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is for.
    pub role: Role,
    /// IP MTU in bytes.
    pub mtu: u16,
    /// What its station may claim to be; `None`: anything but a gateway.
    pub guard: Option<Arc<Guard>>,
}

/// What a VNI stands for on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VniTarget {
    /// A bridged network (L2VNI).
    Network(NetworkId),
    /// Routed packets of a VRF (L3VNI).
    Vrf(VrfId),
}

/// References that a change copies.
const CHUNK: usize = 64;

/// All forwarding state.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts publications; a worker sees a new number and tries waiting packets again.
    pub generation: u64,
    /// Counts configurations: ids of ports, networks and VTEPs mean the same in all snapshots of one layout.
    pub layout: u64,
    /// Switches.
    pub settings: Settings,
    /// Remote VTEPs.
    pub vteps: Arc<VtepTable>,
    /// The tables are larger than a core's cache, so that hints pay (see `datapath::hint`).
    pub large: bool,
    /// FDB entries and routes when they were added.
    entries: usize,
    ports: Arc<[Port]>,
    trunks: Arc<[Trunk]>,
    networks: Chunked<Arc<Network>, CHUNK>,
    vrfs: Chunked<Arc<Vrf>, CHUNK>,
    by_vni: Arc<HashMap<Vni, VniTarget, foldhash::fast::RandomState>>,
    encap_v4: Few<u32>,
    encap_v6: Few<u128>,
}

/// A set that is asked for every packet: a host has few encap IPs, and comparing with all of them is faster than hashing.
#[derive(Clone, Debug)]
struct Few<T> {
    list: Vec<T>,
    /// Used instead of a longer list.
    many: HashSet<T, foldhash::fast::RandomState>,
}

/// Members from which on hashing is faster.
const FEW: usize = 16;

impl<T: Copy + Eq + std::hash::Hash> Few<T> {
    fn new(members: impl Iterator<Item = T>) -> Self {
        let mut list: Vec<T> = members.collect();
        let many = if list.len() > FEW { list.drain(..).collect() } else { HashSet::default() };
        Self { list, many }
    }

    #[inline]
    fn contains(&self, member: T) -> bool {
        self.list.contains(&member) || (!self.many.is_empty() && self.many.contains(&member))
    }
}

impl Snapshot {
    /// A snapshot of generation 0. Ports are in the order of their ids.
    #[must_use]
    pub fn new(settings: Settings, ports: Vec<Port>, encap_ips: &[IpAddr], vteps: VtepTable) -> Self {
        let v4 = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => Some(ip.to_bits()),
            IpAddr::V6(_) => None,
        };
        let v6 = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip.to_bits()),
        };
        Self {
            generation: 0,
            layout: 0,
            settings,
            vteps: Arc::new(vteps),
            large: false,
            entries: 0,
            ports: ports.into(),
            trunks: Arc::default(),
            networks: Chunked::default(),
            vrfs: Chunked::default(),
            by_vni: Arc::default(),
            encap_v4: Few::new(encap_ips.iter().filter_map(v4)),
            encap_v6: Few::new(encap_ips.iter().filter_map(v6)),
        }
    }

    /// Sets the VLAN trunks, in the order of their ids.
    #[must_use]
    pub fn with_trunks(mut self, trunks: Vec<Trunk>) -> Self {
        self.trunks = trunks.into();
        self
    }

    /// Replaces the ports: as many, in the order of their ids.
    pub fn set_ports(&mut self, ports: Vec<Port>) {
        self.ports = ports.into();
    }

    /// Adds a network; ids are given in order from 0.
    pub fn push_network(&mut self, network: Network) -> NetworkId {
        let id = NetworkId(u32::try_from(self.networks.len()).unwrap_or(u32::MAX));
        Arc::make_mut(&mut self.by_vni).insert(network.vni, VniTarget::Network(id));
        self.count(network.fdb.len());
        self.networks.push(Arc::new(network));
        id
    }

    /// Adds a VRF; ids are given in order from 0.
    pub fn push_vrf(&mut self, vrf: Vrf) -> VrfId {
        let id = VrfId(u32::try_from(self.vrfs.len()).unwrap_or(u32::MAX));
        if let Some(vni) = vrf.l3vni {
            Arc::make_mut(&mut self.by_vni).insert(vni, VniTarget::Vrf(id));
        }
        self.count(vrf.fib.len());
        self.vrfs.push(Arc::new(vrf));
        id
    }

    /// Counts again what learning added and removed, for [`large`](Self::large).
    pub fn recount(&mut self) {
        let stations = self.networks.iter().map(|network| network.fdb.len());
        let routes = self.vrfs.iter().map(|vrf| vrf.fib.len());
        self.entries = stations.chain(routes).sum();
        self.large = self.entries > LARGE;
    }

    fn count(&mut self, entries: usize) {
        self.entries += entries;
        self.large |= self.entries > LARGE;
    }

    /// A network for a change: copied if another snapshot has it too, without its tables.
    pub fn network_mut(&mut self, id: NetworkId) -> Option<&mut Network> {
        self.networks.get_mut(id.0 as usize).map(Arc::make_mut)
    }

    /// A VRF for a change: copied if another snapshot has it too.
    pub fn vrf_mut(&mut self, id: VrfId) -> Option<&mut Vrf> {
        self.vrfs.get_mut(id.0 as usize).map(Arc::make_mut)
    }

    /// A port by id.
    #[inline]
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id.0))
    }

    /// A network by id.
    #[inline]
    #[must_use]
    pub fn network(&self, id: NetworkId) -> Option<&Network> {
        self.networks.get(id.0 as usize).map(AsRef::as_ref)
    }

    /// A network by its VNI.
    #[inline]
    #[must_use]
    pub fn network_of(&self, vni: Vni) -> Option<&Network> {
        match self.target_of(vni)? {
            VniTarget::Network(id) => self.network(id),
            VniTarget::Vrf(_) => None,
        }
    }

    /// What a VNI stands for.
    #[inline]
    #[must_use]
    pub fn target_of(&self, vni: Vni) -> Option<VniTarget> {
        self.by_vni.get(&vni).copied()
    }

    /// A VRF by id.
    #[inline]
    #[must_use]
    pub fn vrf(&self, id: VrfId) -> Option<&Vrf> {
        self.vrfs.get(id.0 as usize).map(AsRef::as_ref)
    }

    /// A VLAN trunk by id.
    #[inline]
    #[must_use]
    pub fn trunk(&self, id: TrunkId) -> Option<&Trunk> {
        self.trunks.get(usize::from(id.0))
    }

    /// All networks in the order of their ids.
    pub fn networks(&self) -> impl Iterator<Item = (NetworkId, &Network)> {
        (0..).map(NetworkId).zip(self.networks.iter().map(AsRef::as_ref))
    }

    /// All VRFs in the order of their ids.
    pub fn vrfs(&self) -> impl Iterator<Item = (VrfId, &Vrf)> {
        (0..).map(VrfId).zip(self.vrfs.iter().map(AsRef::as_ref))
    }

    /// Whether an outer IPv4 destination is ours.
    #[inline]
    #[must_use]
    pub fn is_encap_v4(&self, addr: [u8; 4]) -> bool {
        self.encap_v4.contains(u32::from_be_bytes(addr))
    }

    /// Whether an outer IPv6 destination is ours.
    #[inline]
    #[must_use]
    pub fn is_encap_v6(&self, addr: [u8; 16]) -> bool {
        self.encap_v6.contains(u128::from_be_bytes(addr))
    }
}
