//! A network: one VNI, its FDB, its members, its receivers of group packets, and its gateway into a VRF.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use hashbrown::HashMap;

use super::fdb::{Dest, Fdb};
use super::policy::Policy;
use crate::ids::{PortId, VrfId, VtepId};
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

/// What becomes of a unicast packet whose destination is in no FDB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownUnicast {
    /// Dropped and counted: right where every MAC is configured.
    Drop,
    /// Copied to every receiver, like a group packet.
    Flood,
}

/// One VNI of this host. Large parts are behind `Arc`s: a change of a clone copies what it touches.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its identifier on the wire.
    pub vni: Vni,
    /// MAC → port or VTEP.
    pub fdb: Fdb,
    /// Policy for destinations that are in no FDB entry.
    pub unknown_unicast: UnknownUnicast,
    /// Source MACs that the FDB does not have at that place are reported.
    pub learning: bool,
    /// IGMP and MLD reports are told.
    pub snooping: bool,
    /// VRF of its tenant.
    pub vrf: Option<VrfId>,
    /// The tenant's policy, for bridged packets.
    pub policy: Option<Arc<Policy>>,
    /// The way out of the network.
    pub gateway: Option<Arc<Gateway>>,
    /// IP address → MAC of stations that are known, for answers in their place and for routed packets.
    pub neighbors: Arc<Neighbors>,
    /// Receivers of group packets.
    pub flood: Arc<Flood>,
}

/// The anycast gateway of a network: the same addresses on every host that has the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// MAC of the gateway addresses, source of what is routed into the network.
    pub mac: Mac,
    /// IPv4 gateway addresses.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 gateway addresses. `fe80::` of the MAC's EUI-64 is answered for too.
    pub v6: Vec<Ipv6Addr>,
}

impl Gateway {
    /// All its addresses but the link-local one.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let v4 = self.v4.iter().copied().map(IpAddr::V4);
        v4.chain(self.v6.iter().copied().map(IpAddr::V6)).collect()
    }

    /// Whether this address is the gateway's.
    #[inline]
    #[must_use]
    pub fn has_v4(&self, ip: [u8; 4]) -> bool {
        self.v4.contains(&Ipv4Addr::from(ip))
    }

    /// Whether this address is the gateway's.
    #[inline]
    #[must_use]
    pub fn has_v6(&self, ip: [u8; 16]) -> bool {
        self.v6.contains(&Ipv6Addr::from(ip)) || ip == link_local(self.mac)
    }
}

/// The link-local address of a MAC by modified EUI-64 (RFC 4291 appendix A).
#[must_use]
pub const fn link_local(mac: Mac) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac.0;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Known stations of a network by IP address.
#[derive(Clone, Debug, Default)]
pub struct Neighbors {
    v4: HashMap<u32, Mac, foldhash::fast::RandomState>,
    v6: HashMap<u128, Mac, foldhash::fast::RandomState>,
}

impl Neighbors {
    /// MAC of the station with this address.
    #[inline]
    #[must_use]
    pub fn get(&self, ip: IpAddr) -> Option<Mac> {
        match ip {
            IpAddr::V4(ip) => self.v4.get(&ip.to_bits()).copied(),
            IpAddr::V6(ip) => self.v6.get(&ip.to_bits()).copied(),
        }
    }

    /// Adds or replaces an entry; returns the old MAC.
    pub fn insert(&mut self, ip: IpAddr, mac: Mac) -> Option<Mac> {
        match ip {
            IpAddr::V4(ip) => self.v4.insert(ip.to_bits(), mac),
            IpAddr::V6(ip) => self.v6.insert(ip.to_bits(), mac),
        }
    }

    /// Removes an entry; returns its MAC.
    pub fn remove(&mut self, ip: IpAddr) -> Option<Mac> {
        match ip {
            IpAddr::V4(ip) => self.v4.remove(&ip.to_bits()),
            IpAddr::V6(ip) => self.v6.remove(&ip.to_bits()),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Who gets copies of group packets, and which VTEPs belong to the network.
#[derive(Clone, Debug, Default)]
pub struct Flood {
    everyone: Receivers,
    groups: HashMap<IpAddr, Receivers, foldhash::fast::RandomState>,
    /// A group without receivers of its own goes to nobody, not to everyone.
    joined_only: bool,
    members: VtepSet,
}

/// Access ports first, then remote VTEPs.
#[derive(Clone, Debug, Default)]
struct Receivers {
    all: Vec<Dest>,
    local: usize,
}

impl Receivers {
    fn new(ports: &[PortId], vteps: &[VtepId]) -> Self {
        let ports_first = ports.iter().map(|p| Dest::Port(*p)).chain(vteps.iter().map(|v| Dest::Vtep(*v)));
        Self { all: ports_first.collect(), local: ports.len() }
    }

    fn of(&self, local_only: bool) -> &[Dest] {
        if local_only { self.all.get(..self.local).unwrap_or_default() } else { &self.all }
    }
}

impl Flood {
    /// Receivers of group packets, and the remote VTEPs that may send the network.
    #[must_use]
    pub fn new(ports: &[PortId], flood: &[VtepId], members: &[VtepId]) -> Self {
        Self {
            everyone: Receivers::new(ports, flood),
            groups: HashMap::default(),
            joined_only: false,
            members: members.iter().copied().collect(),
        }
    }

    /// Gives a multicast group (an IP address) receivers of its own; without any it is dropped.
    pub fn set_group(&mut self, group: IpAddr, ports: &[PortId], vteps: &[VtepId]) {
        self.groups.insert(group, Receivers::new(ports, vteps));
    }

    /// Groups that nobody joined go to nobody: right where joining is followed.
    pub fn restrict_to_joined(&mut self) {
        self.joined_only = true;
    }

    /// Lets a group go to everyone again.
    pub fn remove_group(&mut self, group: IpAddr) {
        self.groups.remove(&group);
    }

    /// Whether some group has receivers of its own.
    #[inline]
    #[must_use]
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Receivers of a group packet, the sender's own port included: those of `group` when it has its own, else everyone or,
    /// where joining is followed, nobody.
    /// From the underlay, `local_only`: access ports alone (split horizon).
    #[must_use]
    pub fn receivers(&self, group: Option<IpAddr>, local_only: bool) -> &[Dest] {
        match group.map(|group| self.groups.get(&group)) {
            Some(Some(joined)) => joined.of(local_only),
            Some(None) if self.joined_only => &[],
            _ => self.everyone.of(local_only),
        }
    }

    /// Whether `vtep` may send packets of this network.
    #[inline]
    #[must_use]
    pub fn has_member(&self, vtep: VtepId) -> bool {
        self.members.contains(vtep)
    }
}

/// A set of remote VTEPs, a bit for each: 8 kB for 64k of them.
#[derive(Clone, Debug, Default)]
pub struct VtepSet(Vec<u64>);

impl VtepSet {
    /// Whether it has this one.
    #[inline]
    #[must_use]
    pub fn contains(&self, vtep: VtepId) -> bool {
        let (word, bit) = bit_of(vtep);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

impl FromIterator<VtepId> for VtepSet {
    fn from_iter<I: IntoIterator<Item = VtepId>>(vteps: I) -> Self {
        let mut bits = Vec::new();
        for vtep in vteps {
            let (word, bit) = bit_of(vtep);
            bits.resize(bits.len().max(word + 1), 0u64);
            if let Some(word) = bits.get_mut(word) {
                *word |= bit;
            }
        }
        Self(bits)
    }
}

#[inline]
fn bit_of(vtep: VtepId) -> (usize, u64) {
    (vtep.0 as usize / 64, 1 << (vtep.0 % 64))
}

impl Network {
    /// A bridged network without gateway, neighbors, learning and snooping, with its access ports and the remote VTEPs that may
    /// send it (`members`), each member's first encap IP being in `flood`.
    #[must_use]
    pub fn new(
        vni: Vni,
        fdb: Fdb,
        unknown_unicast: UnknownUnicast,
        ports: &[PortId],
        flood: &[VtepId],
        members: &[VtepId],
    ) -> Self {
        Self {
            vni,
            fdb,
            unknown_unicast,
            learning: false,
            snooping: false,
            vrf: None,
            policy: None,
            gateway: None,
            neighbors: Arc::default(),
            flood: Arc::new(Flood::new(ports, flood, members)),
        }
    }
}
