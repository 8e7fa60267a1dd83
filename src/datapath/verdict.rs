//! What the datapath decides, and what it lets an observer see on the way.

use std::net::IpAddr;

use crate::ids::{NetworkId, PortId, RuleId, VrfId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::vrf::Route;
use crate::wire::drop::{DropReason, Note, PuntReason};
use crate::wire::ecn::Ecn;
use crate::wire::ethernet::{EtherType, Mac};
use crate::wire::vxlan::Vni;

/// The fate of a packet.
#[must_use = "every packet ends in exactly one verdict"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is as it should leave this port.
    Forward(PortId),
    /// A group packet: a copy for each receiver, each finished by [`super::deliver`].
    Replicate(Replicate),
    /// The packet became an answer to its source, as it should leave this port.
    Reply(Reply),
    /// The next hop of this VTEP has no MAC yet. The packet is the inner frame; [`super::deliver`] finishes it later.
    Unresolved(Vni, VtepId),
    /// The packet belongs to the kernel.
    Punt(PuntReason),
    /// The packet stops here.
    Drop(DropReason),
}

/// An answer, and what became of the packet that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Port that the answer leaves.
    pub port: PortId,
    /// The answer is an ICMP error: why the packet was dropped. Else it was a request, and counts as replied.
    pub refused: Option<DropReason>,
}

/// Who gets copies of a group packet. The packet is the inner frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicate {
    /// Network of the packet.
    pub vni: Vni,
    /// Multicast group of an IP packet.
    pub group: Option<IpAddr>,
    /// Port it came from, which gets no copy.
    pub from: PortId,
    /// It came from the underlay, so no copy goes back there.
    pub local_only: bool,
}

impl From<DropReason> for Verdict {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// One step of a packet's way, as `flowrail trace` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The outer headers are VXLAN to one of our encap IPs.
    Outer {
        /// Outer source.
        src: IpAddr,
        /// Outer destination.
        dst: IpAddr,
        /// Outer UDP source port.
        src_port: u16,
        /// Outer ECN.
        ecn: Ecn,
    },
    /// The VXLAN header was read.
    Vxlan(Vni),
    /// The sender was looked up.
    Source(Option<VtepId>),
    /// The tenant's Ethernet header was read.
    Inner {
        /// Destination MAC.
        dst: Mac,
        /// Source MAC.
        src: Mac,
        /// EtherType.
        ethertype: EtherType,
    },
    /// RFC 6040 combined the ECN fields.
    DecapEcn {
        /// Inner before.
        inner: Ecn,
        /// Outer.
        outer: Ecn,
        /// Inner after.
        result: Ecn,
    },
    /// The FDB was asked.
    Fdb(Mac, Option<Dest>),
    /// The outer headers were pushed.
    Encap {
        /// Remote encap IP.
        dst: IpAddr,
        /// Network.
        vni: Vni,
        /// Entropy.
        src_port: u16,
        /// Outer TOS or traffic class.
        tos: u8,
        /// Length of the packet in bytes.
        len: usize,
    },
    /// A native RoCEv2 packet passes without a tunnel.
    Native(PortId),
    /// A VLAN tag chose the network.
    Vlan(Option<u16>, Option<NetworkId>),
    /// The VRF was asked for a route.
    Route(VrfId, IpAddr, Option<Route>),
    /// A rule of the tenant's policy matched.
    Rule(RuleId),
    /// The packet was routed: MACs rewritten, TTL one less.
    Routed {
        /// New destination MAC.
        dst: Mac,
        /// New source MAC.
        src: Mac,
        /// New TTL or hop limit.
        ttl: u8,
    },
    /// An answer was made of the packet.
    Answer(Answer),
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// ARP reply for this address.
    Arp(IpAddr),
    /// Neighbor advertisement for this address.
    Nd(IpAddr),
    /// Echo reply of the gateway.
    Echo,
    /// ICMP time exceeded.
    TimeExceeded,
    /// ICMP destination unreachable.
    Unreachable,
    /// ICMP fragmentation needed or packet too big, with this MTU in bytes.
    TooBig(u16),
}

/// A station of a learning network, as seen in a frame; or an address binding seen in ARP or ND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The network.
    pub network: NetworkId,
    /// The station.
    pub mac: Mac,
    /// Where it is.
    pub at: Dest,
    /// Where the FDB has it.
    pub known: Option<Dest>,
    /// An address that it says it has.
    pub ip: Option<IpAddr>,
}

/// A station joined or left a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// The network.
    pub network: NetworkId,
    /// IP address of the group.
    pub group: IpAddr,
    /// Where the station is.
    pub at: Dest,
    /// Joined, or confirmed that it still is a member; else left. Others at the same place may still be members.
    pub joined: bool,
}

/// Sees the steps and notes of packets. The worker counts notes and ignores steps; `trace` keeps both.
pub trait Observer {
    /// A step was taken.
    #[inline]
    fn step(&mut self, _step: Step) {}
    /// Something odd was seen.
    fn note(&mut self, note: Note);
    /// A station of a learning network was seen.
    #[inline]
    fn learn(&mut self, _seen: Learned) {}
    /// A membership report of a network that snoops was seen.
    #[inline]
    fn group(&mut self, _change: GroupChange) {}
    /// A rule of a tenant's policy counted or decided a packet.
    #[inline]
    fn rule(&mut self, _rule: RuleId) {}
    /// Whether the rate of ICMP errors has room for one more; takes it.
    #[inline]
    fn may_send_error(&mut self) -> bool {
        true
    }
}

/// Sees nothing.
impl Observer for () {
    #[inline]
    fn note(&mut self, _note: Note) {}
}
