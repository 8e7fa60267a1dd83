//! Whose packet is it: the outer headers of a frame that came from the underlay. The XDP program (`bpf/`) answers the
//! same question before a frame gets here, by the same rules; `tests/steer.rs` compares the two.

use crate::tables::snapshot::Snapshot;
use crate::wire::drop::{DropReason, PuntReason};
use crate::wire::ethernet::{self, EtherType};
use crate::wire::{ipv4, ipv6, roce, udp, vxlan};

/// Outer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Source and destination.
    V4([u8; 4], [u8; 4]),
    /// Source and destination.
    V6([u8; 16], [u8; 16]),
}

/// A VXLAN packet to one of our encap IPs. Its lengths are not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// Source and destination.
    pub addresses: Addresses,
    /// TOS or traffic class.
    pub tos: u8,
    /// Offset of the IP header in bytes.
    pub l3: usize,
    /// Offset of the UDP header in bytes.
    pub l4: usize,
    /// Offset just behind the IP packet, as its length field says.
    pub end: usize,
    /// The UDP header.
    pub udp: udp::Header,
}

/// Whose packet it is.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// VXLAN for this host.
    Vxlan(Outer),
    /// RoCEv2 without a tunnel.
    Roce,
    /// VXLAN for this host, but unfit: the reason is already known.
    Drop(DropReason),
    /// The kernel's.
    Kernel(PuntReason),
}

/// Reads the outer headers of a frame on an uplink whose underlay has this VLAN tag.
#[inline]
#[must_use]
pub fn underlay(t: &Snapshot, vlan: Option<u16>, frame: &[u8]) -> Class {
    let Some((l3, ethertype)) = link_header(vlan, frame) else { return Class::Kernel(PuntReason::Vlan) };
    match ethertype {
        EtherType::IPV4 => underlay_v4(t, l3, frame),
        EtherType::IPV6 => underlay_v6(t, l3, frame),
        _ => Class::Kernel(PuntReason::NotIp),
    }
}

/// Whether a frame of an access port is RoCEv2, for ports that steer nothing else.
#[must_use]
pub fn is_roce(frame: &[u8]) -> bool {
    let Some(eth) = ethernet::Header::parse(frame) else { return false };
    let bytes = frame.get(ethernet::HEADER_LEN..).unwrap_or_default();
    let l4 = match eth.ethertype {
        EtherType::IPV4 => ipv4::Header::parse(bytes)
            .filter(|ip| ip.protocol == udp::PROTOCOL && ip.fragment_offset == 0)
            .map(|ip| ip.header_len),
        EtherType::IPV6 => ipv6::Header::parse(bytes)
            .and_then(|ip| ipv6::upper_layer(bytes, ip.next_header))
            .filter(|u| u.protocol == udp::PROTOCOL && !u.later_fragment)
            .map(|u| u.offset),
        _ => None,
    };
    l4.and_then(|l4| udp::Header::parse(bytes.get(l4..)?)).is_some_and(|udp| udp.dst == roce::PORT)
}

/// Offset of the layer 3 header and its EtherType; `None` when the tag is not the uplink's. VID 0 (a priority tag)
/// counts as untagged.
#[inline]
fn link_header(vlan: Option<u16>, frame: &[u8]) -> Option<(usize, EtherType)> {
    let eth = ethernet::Header::parse(frame)?;
    let tag = frame.get(ethernet::HEADER_LEN..).and_then(|b| b.first_chunk::<4>());
    match (vlan, matches!(eth.ethertype.0, 0x8100 | 0x88a8), tag) {
        (None, false, _) => Some((ethernet::HEADER_LEN, eth.ethertype)),
        (vlan, true, Some(&[t0, t1, e0, e1])) => {
            let id = u16::from_be_bytes([t0, t1]) & 0x0fff;
            let ethertype = EtherType(u16::from_be_bytes([e0, e1]));
            let ours = id == vlan.unwrap_or(0) && !ethertype.is_vlan();
            ours.then_some((ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN, ethertype))
        }
        _ => None,
    }
}

#[inline]
fn underlay_v4(t: &Snapshot, l3: usize, frame: &[u8]) -> Class {
    let bytes = frame.get(l3..).unwrap_or_default();
    let Some(ip) = ipv4::Header::parse(bytes) else { return Class::Kernel(PuntReason::Malformed) };
    if ip.fragment_offset != 0 {
        return Class::Kernel(PuntReason::Fragment);
    }
    if ip.protocol != udp::PROTOCOL {
        return Class::Kernel(PuntReason::NotUdp);
    }
    let l4 = l3 + ip.header_len;
    let local = t.is_encap_v4(ip.dst);
    let outer = |udp| Outer {
        addresses: Addresses::V4(ip.src, ip.dst),
        tos: ip.tos,
        l3,
        l4,
        end: l3 + usize::from(ip.total_len),
        udp,
    };
    by_port(frame, l4, local, ip.more_fragments, outer)
}

#[inline]
fn underlay_v6(t: &Snapshot, l3: usize, frame: &[u8]) -> Class {
    let bytes = frame.get(l3..).unwrap_or_default();
    let upper =
        ipv6::Header::parse(bytes).and_then(|ip| Some((ip, ipv6::upper_layer(bytes, ip.next_header)?)));
    let Some((ip, upper)) = upper else { return Class::Kernel(PuntReason::Malformed) };
    if upper.later_fragment {
        return Class::Kernel(PuntReason::Fragment);
    }
    if upper.protocol != udp::PROTOCOL {
        return Class::Kernel(PuntReason::NotUdp);
    }
    let l4 = l3 + upper.offset;
    let local = t.is_encap_v6(ip.dst);
    let outer = |udp| Outer {
        addresses: Addresses::V6(ip.src, ip.dst),
        tos: ip.traffic_class,
        l3,
        l4,
        end: l3 + ipv6::HEADER_LEN + usize::from(ip.payload_len),
        udp,
    };
    by_port(frame, l4, local, upper.first_fragment, outer)
}

#[inline]
fn by_port(
    frame: &[u8],
    l4: usize,
    local: bool,
    first_fragment: bool,
    outer: impl FnOnce(udp::Header) -> Outer,
) -> Class {
    let Some(udp) = frame.get(l4..).and_then(udp::Header::parse) else {
        return Class::Kernel(PuntReason::Malformed);
    };
    match udp.dst {
        vxlan::PORT if !local => Class::Kernel(PuntReason::NotLocal),
        vxlan::PORT if first_fragment => Class::Drop(DropReason::OuterFragment),
        vxlan::PORT => Class::Vxlan(outer(udp)),
        roce::PORT => Class::Roce,
        _ => Class::Kernel(PuntReason::OtherPort),
    }
}
