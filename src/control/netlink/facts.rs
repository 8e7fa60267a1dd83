//! What the kernel tells, in our own types, and the translation from netlink messages. Messages about other things
//! (bridge FDB entries, proxies, devices without Ethernet addresses) translate to nothing.

use std::net::IpAddr;

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use serde::{Deserialize, Serialize};

use crate::ids::IfIndex;
use crate::wire::ethernet::Mac;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub ifindex: IfIndex,
    /// Its name.
    pub name: String,
    /// Its Ethernet address, when it has one.
    pub mac: Option<Mac>,
    /// Largest payload of a frame.
    pub mtu: u32,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Kind of a virtual device: `veth`, `tun`, `vlan`, …
    pub kind: Option<String>,
    /// Device below (of a VLAN device) or at the other end (of a veth pair in the same namespace).
    pub lower: Option<IfIndex>,
    /// Number of a VLAN device.
    pub vlan: Option<u16>,
}

impl Link {
    /// `None` when the message lacks a name.
    pub(super) fn from_message(message: &LinkMessage) -> Option<Self> {
        let mut link = Self {
            ifindex: IfIndex(message.header.index),
            name: String::new(),
            mac: None,
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            carrier: message.header.flags.contains(LinkFlags::LowerUp),
            kind: None,
            lower: None,
            vlan: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(bytes) => link.mac = mac(bytes),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(lower) => link.lower = Some(IfIndex(*lower)),
                LinkAttribute::LinkInfo(infos) => link.read_infos(infos),
                _ => {}
            }
        }
        (!link.name.is_empty()).then_some(link)
    }

    fn read_infos(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            match info {
                LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
                LinkInfo::Data(InfoData::Vlan(vlan)) => {
                    self.vlan = vlan.iter().find_map(|attribute| match attribute {
                        InfoVlan::Id(id) => Some(*id),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
    }
}

/// An IP address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Device it is on.
    pub ifindex: IfIndex,
    /// The address.
    pub ip: IpAddr,
}

impl LocalAddress {
    pub(super) fn from_message(message: &AddressMessage) -> Option<Self> {
        let mut address = None;
        for attribute in &message.attributes {
            match attribute {
                // On a point-to-point link `Address` is the other end, and `Local` is ours.
                AddressAttribute::Local(ip) => address = Some(*ip),
                AddressAttribute::Address(ip) => address = address.or(Some(*ip)),
                _ => {}
            }
        }
        address.map(|ip| Self { ifindex: IfIndex(message.header.index), ip })
    }
}

/// State of a neighbor entry (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeighborState {
    /// Created, nothing done yet.
    None,
    /// Asked, no answer yet.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Not confirmed lately, probably still right.
    Stale,
    /// Stale and in use; asked soon.
    Delay,
    /// Being asked again; the old address is still used.
    Probe,
    /// No answer.
    Failed,
    /// Needs no resolution.
    NoArp,
    /// Configured in the kernel.
    Permanent,
}

impl NeighborState {
    /// Whether the entry's MAC may be used.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        match self {
            Self::Reachable | Self::Stale | Self::Delay | Self::Probe | Self::NoArp | Self::Permanent => true,
            Self::None | Self::Incomplete | Self::Failed => false,
        }
    }

    /// The kernel's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Failed => "failed",
            Self::NoArp => "noarp",
            Self::Permanent => "permanent",
        }
    }

    fn from_kernel(state: &NeighbourState) -> Self {
        match state {
            NeighbourState::Incomplete => Self::Incomplete,
            NeighbourState::Reachable => Self::Reachable,
            NeighbourState::Stale => Self::Stale,
            NeighbourState::Delay => Self::Delay,
            NeighbourState::Probe => Self::Probe,
            NeighbourState::Failed => Self::Failed,
            NeighbourState::Noarp => Self::NoArp,
            NeighbourState::Permanent => Self::Permanent,
            _ => Self::None,
        }
    }
}

/// An entry of the neighbor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Device it is on.
    pub ifindex: IfIndex,
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC as the kernel has it, right or outdated: see `state`.
    pub mac: Option<Mac>,
    /// What the kernel thinks of it.
    pub state: NeighborState,
}

impl Neighbor {
    /// The MAC, when frames may be sent to it.
    #[must_use]
    pub fn usable_mac(&self) -> Option<Mac> {
        self.mac.filter(|_| self.state.is_usable())
    }

    pub(super) fn from_message(message: &NeighbourMessage) -> Option<Self> {
        if message.header.flags.contains(NeighbourFlags::Proxy) {
            return None;
        }
        let mut ip = None;
        let mut lladdr = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
                NeighbourAttribute::LinkLayerAddress(bytes) => lladdr = mac(bytes),
                _ => {}
            }
        }
        Some(Self {
            ifindex: IfIndex(message.header.ifindex),
            ip: ip?,
            mac: lladdr,
            state: NeighborState::from_kernel(&message.header.state),
        })
    }
}

/// Destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// First address.
    pub ip: IpAddr,
    /// Leading bits that count.
    pub len: u8,
}

impl Prefix {
    /// Whether `ip` is in it.
    #[must_use]
    pub fn contains(self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let differ = net.to_bits() ^ ip.to_bits();
                differ.leading_zeros() >= u32::from(self.len)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let differ = net.to_bits() ^ ip.to_bits();
                differ.leading_zeros() >= u32::from(self.len)
            }
            _ => false,
        }
    }

    pub(super) fn from_message(message: &RouteMessage) -> Option<Self> {
        let unspecified = match message.header.address_family {
            AddressFamily::Inet => IpAddr::from([0; 4]),
            AddressFamily::Inet6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        let destination = message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        });
        let len = message.header.destination_prefix_length;
        Some(Self { ip: destination.unwrap_or(unspecified), len })
    }
}

/// The IP address in a route attribute.
pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::InfoKind;

    use super::*;

    #[test]
    fn prefixes_contain_their_addresses() {
        let prefix = |ip: &str, len| Prefix { ip: ip.parse().unwrap(), len };
        for (net, inside, outside) in [
            (prefix("10.1.0.0", 16), "10.1.255.255", "10.2.0.0"),
            (prefix("10.1.2.3", 32), "10.1.2.3", "10.1.2.2"),
            (prefix("0.0.0.0", 0), "255.1.1.1", "::1"),
            (prefix("fd00::", 64), "fd00::ffff", "fd00:0:0:1::"),
            (prefix("::", 0), "fe80::1", "10.0.0.1"),
        ] {
            assert!(net.contains(inside.parse().unwrap()), "{net:?} {inside}");
            assert!(!net.contains(outside.parse().unwrap()), "{net:?} {outside}");
        }
    }

    #[test]
    fn a_vlan_device_tells_its_number_and_what_is_below() {
        let mut message = LinkMessage::default();
        message.header.index = 9;
        message.header.flags = LinkFlags::Up;
        message.attributes = vec![
            LinkAttribute::IfName("eth1.100".to_owned()),
            LinkAttribute::Mtu(9000),
            LinkAttribute::Link(3),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vlan),
                LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(100)])),
            ]),
        ];
        let link = Link {
            ifindex: IfIndex(9),
            name: "eth1.100".to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            mtu: 9000,
            up: true,
            carrier: false,
            kind: Some("vlan".to_owned()),
            lower: Some(IfIndex(3)),
            vlan: Some(100),
        };
        assert_eq!(Link::from_message(&message), Some(link));
        message.attributes.clear();
        assert_eq!(Link::from_message(&message), None);
    }

    #[test]
    fn only_states_with_a_trusted_address_are_usable() {
        let usable = ["reachable", "stale", "delay", "probe", "noarp", "permanent"];
        for state in [
            NeighborState::None,
            NeighborState::Incomplete,
            NeighborState::Reachable,
            NeighborState::Stale,
            NeighborState::Delay,
            NeighborState::Probe,
            NeighborState::Failed,
            NeighborState::NoArp,
            NeighborState::Permanent,
        ] {
            assert_eq!(state.is_usable(), usable.contains(&state.name()));
        }
    }
}
