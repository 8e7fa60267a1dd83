//! One immutable view of all forwarding state. `control` builds and publishes it; a worker loads it once per batch.
//! Sub-tables are `Arc`s, so that a change copies only the table it touches.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::network::Network;
use super::vtep::VtepTable;
use crate::ids::{NetworkId, PortId};
use crate::wire::ecn::Dscp;
use crate::wire::vxlan::Vni;

/// Entries from which on a look-up is likely to wait for memory: 256 kB of buckets.
const LARGE_FDB: usize = 16_384;

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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accept_udp6_zero_checksum: false,
            accept_unknown_vtep: false,
            encap_dscp: EncapDscp::Copy,
            decap_dscp: DecapDscp::Pipe,
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
    /// Access port whose frames leave an uplink as they are.
    Native(PortId),
}

/// A port of the forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is for.
    pub role: Role,
    /// IP MTU in bytes.
    pub mtu: u16,
}

/// All forwarding state.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts publications; a worker sees a new number and tries waiting packets again.
    pub generation: u64,
    /// Switches.
    pub settings: Settings,
    /// Remote VTEPs.
    pub vteps: Arc<VtepTable>,
    /// Some FDB is larger than a core's cache, so that hints pay (see `datapath::hint`).
    pub large: bool,
    ports: Arc<[Port]>,
    networks: Vec<Arc<Network>>,
    by_vni: HashMap<Vni, NetworkId, foldhash::fast::RandomState>,
    encap_v4: HashSet<u32, foldhash::fast::RandomState>,
    encap_v6: HashSet<u128, foldhash::fast::RandomState>,
}

impl Snapshot {
    /// A snapshot of generation 0. Ports are in the order of their ids.
    #[must_use]
    pub fn new(settings: Settings, ports: Vec<Port>, encap_ips: &[IpAddr], vteps: VtepTable) -> Self {
        let mut snapshot = Self {
            generation: 0,
            settings,
            vteps: Arc::new(vteps),
            large: false,
            ports: ports.into(),
            networks: Vec::new(),
            by_vni: HashMap::default(),
            encap_v4: HashSet::default(),
            encap_v6: HashSet::default(),
        };
        for ip in encap_ips {
            match ip {
                IpAddr::V4(ip) => snapshot.encap_v4.insert(ip.to_bits()),
                IpAddr::V6(ip) => snapshot.encap_v6.insert(ip.to_bits()),
            };
        }
        snapshot
    }

    /// Adds a network; ids are given in order from 0.
    pub fn push_network(&mut self, network: Network) -> NetworkId {
        let id = NetworkId(u32::try_from(self.networks.len()).unwrap_or(u32::MAX));
        self.by_vni.insert(network.vni, id);
        self.large |= network.fdb.len() > LARGE_FDB;
        self.networks.push(Arc::new(network));
        id
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
        self.network(*self.by_vni.get(&vni)?)
    }

    /// Whether an outer IPv4 destination is ours.
    #[inline]
    #[must_use]
    pub fn is_encap_v4(&self, addr: [u8; 4]) -> bool {
        self.encap_v4.contains(&u32::from_be_bytes(addr))
    }

    /// Whether an outer IPv6 destination is ours.
    #[inline]
    #[must_use]
    pub fn is_encap_v6(&self, addr: [u8; 16]) -> bool {
        self.encap_v6.contains(&u128::from_be_bytes(addr))
    }
}
