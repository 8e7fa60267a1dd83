//! A tenant's frame: the fields that a tunnel needs, the entropy for the outer source port, and the completion of
//! partial checksums.

use std::net::IpAddr;

use super::verdict::{Observer, Step};
use crate::tables::policy::Fields;
use crate::wire::checksum::pseudo_header;
use crate::wire::drop::{DropReason, Note};
use crate::wire::ecn::Dscp;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::packet::Packet;
use crate::wire::{igmp, ipv4, ipv6, roce, udp};

const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

/// IP protocol number of SCTP.
const PROTOCOL_SCTP: u8 = 132;

/// What the datapath knows of a tenant's frame.
#[derive(Clone, Copy, Debug)]
pub struct Inner {
    /// Destination MAC.
    pub dst: Mac,
    /// Source MAC.
    pub src: Mac,
    /// EtherType.
    pub ethertype: EtherType,
    /// TOS or traffic class byte; 0 when the frame is not IP.
    pub tos: u8,
    /// Hash of the flow: 5-tuple, for RoCEv2 with the destination QP, for other frames the MACs.
    pub entropy: u64,
}

/// Layer 4 of a whole, not fragmented packet. Offsets from the start of the frame, lengths in bytes.
struct Layer4 {
    protocol: u8,
    offset: usize,
    len: usize,
    /// Where source and destination address stand, one behind the other.
    addresses: usize,
    addresses_len: usize,
}

/// Reads a frame that a local port sent, and completes its TCP or UDP checksum when the sender left that to a NIC
/// which a virtual link does not have.
///
/// # Errors
/// `FrameTooShort`, `LinkLocalReservedMac`, `InnerSrcInvalid`, `InnerVlan`.
#[inline]
pub fn accept<O: Observer>(o: &mut O, packet: &mut Packet<'_>) -> Result<Inner, DropReason> {
    let eth = ethernet::Header::parse(packet.head()).ok_or(DropReason::FrameTooShort)?;
    o.step(Step::Inner { dst: eth.dst, src: eth.src, ethertype: eth.ethertype });
    check_ethernet(&eth)?;
    Ok(read_and_complete(o, &eth, packet))
}

/// Completes the checksum of a frame that no tunnel carries.
pub fn complete<O: Observer>(o: &mut O, packet: &mut Packet<'_>) {
    if let Some(eth) = ethernet::Header::parse(packet.head()) {
        read_and_complete(o, &eth, packet);
    }
}

#[inline(always)]
fn read_and_complete<O: Observer>(o: &mut O, eth: &ethernet::Header, packet: &mut Packet<'_>) -> Inner {
    let (inner, layer4) = read(eth, packet.head());
    if let Some(layer4) = layer4
        && complete_checksum(packet, &layer4)
    {
        o.note(Note::ChecksumCompleted);
    }
    inner
}

/// Reads a frame that was accepted before.
#[must_use]
pub fn reread(packet: &Packet<'_>) -> Option<Inner> {
    let eth = ethernet::Header::parse(packet.head())?;
    Some(read(&eth, packet.head()).0)
}

/// Whether a frame says that it carries IP.
#[must_use]
pub fn is_ip(head: &[u8]) -> bool {
    let eth = ethernet::Header::parse(head);
    eth.is_some_and(|eth| matches!(eth.ethertype, EtherType::IPV4 | EtherType::IPV6))
}

/// What a policy sees of an IP packet; `None` when it is none, or none that can be read.
#[must_use]
pub fn fields(head: &[u8]) -> Option<Fields> {
    let eth = ethernet::Header::parse(head)?;
    let l3 = head.get(ethernet::HEADER_LEN..)?;
    let (src, dst, protocol, tos, l4) = match eth.ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(l3)?;
            let l4 = (ip.fragment_offset == 0).then_some(ip.header_len);
            (ip.src.into(), ip.dst.into(), ip.protocol, ip.tos, l4)
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(l3)?;
            let upper = ipv6::upper_layer(l3, ip.next_header)?;
            let l4 = (!upper.later_fragment).then_some(upper.offset);
            (ip.src.into(), ip.dst.into(), upper.protocol, ip.traffic_class, l4)
        }
        _ => return None,
    };
    let l4 = l4.and_then(|l4| l3.get(l4..)).unwrap_or_default();
    let has_ports = matches!(protocol, udp::PROTOCOL | udp::PROTOCOL_TCP | PROTOCOL_SCTP);
    let ports = l4
        .first_chunk()
        .filter(|_| has_ports)
        .map(|[s0, s1, d0, d1]| (u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*d0, *d1])));
    let is_roce = protocol == udp::PROTOCOL && ports.is_some_and(|(_, dst)| dst == roce::PORT);
    let bth = l4.get(udp::HEADER_LEN..).filter(|_| is_roce).and_then(roce::Bth::parse);
    let bth = bth.map(|bth| (bth.opcode, bth.dest_qp));
    Some(Fields { src, dst, protocol, ports, bth, dscp: Dscp::of_tos(tos) })
}

/// Group address of an IP multicast packet; `None` for any other, and for groups that every station belongs to.
#[must_use]
pub fn group(head: &[u8], ethertype: EtherType) -> Option<IpAddr> {
    let l3 = head.get(ethernet::HEADER_LEN..)?;
    let dst = match ethertype {
        EtherType::IPV4 => ipv4::Header::parse(l3)?.dst.into(),
        EtherType::IPV6 => ipv6::Header::parse(l3)?.dst.into(),
        _ => return None,
    };
    Some(dst).filter(|dst| igmp::has_members(*dst))
}

/// What no tenant may send, nor a peer pass on.
#[inline]
pub fn check_ethernet(eth: &ethernet::Header) -> Result<(), DropReason> {
    if eth.dst.is_link_local_reserved() {
        return Err(DropReason::LinkLocalReservedMac);
    }
    if eth.src.is_group() {
        return Err(DropReason::InnerSrcInvalid);
    }
    if eth.ethertype.is_vlan() {
        return Err(DropReason::InnerVlan);
    }
    Ok(())
}

#[inline(always)]
fn read(eth: &ethernet::Header, head: &[u8]) -> (Inner, Option<Layer4>) {
    let l3 = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
    let parsed = match eth.ethertype {
        EtherType::IPV4 => read_v4(l3),
        EtherType::IPV6 => read_v6(l3),
        _ => None,
    };
    let (tos, flow, layer4) = parsed.unwrap_or_else(|| {
        (0, mix(eth.dst.to_u64(), eth.src.to_u64() ^ u64::from(eth.ethertype.0) << 48), None)
    });
    let inner = Inner { dst: eth.dst, src: eth.src, ethertype: eth.ethertype, tos, entropy: finish(flow) };
    (inner, layer4)
}

#[inline]
fn read_v4(l3: &[u8]) -> Option<(u8, u64, Option<Layer4>)> {
    let ip = ipv4::Header::parse(l3)?;
    let [a, b, c, d] = ip.src;
    let [e, f, g, h] = ip.dst;
    let addresses = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    // All fragments of a datagram hash alike: only the first has ports.
    if ip.is_fragment() {
        return Some((ip.tos, mix(addresses, u64::from(ip.protocol)), None));
    }
    let l4 = l3.get(ip.header_len..).unwrap_or_default();
    let entropy = mix(addresses, u64::from(ip.protocol) ^ flow_bits(ip.protocol, l4));
    let layer4 = usize::from(ip.total_len).checked_sub(ip.header_len).map(|len| Layer4 {
        protocol: ip.protocol,
        offset: ethernet::HEADER_LEN + ip.header_len,
        len,
        addresses: ethernet::HEADER_LEN + 12,
        addresses_len: 8,
    });
    Some((ip.tos, entropy, layer4))
}

#[inline]
fn read_v6(l3: &[u8]) -> Option<(u8, u64, Option<Layer4>)> {
    let ip = ipv6::Header::parse(l3)?;
    let halves = |addr: [u8; 16]| {
        let both = u128::from_be_bytes(addr);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a 128-bit number")]
        let mixed = mix((both >> 64) as u64, both as u64);
        mixed
    };
    let addresses = halves(ip.src) ^ halves(ip.dst).rotate_left(32);
    let upper = ipv6::upper_layer(l3, ip.next_header).filter(|u| !u.first_fragment && !u.later_fragment);
    let Some(upper) = upper else {
        return Some((ip.traffic_class, mix(addresses, u64::from(ip.next_header)), None));
    };
    let l4 = l3.get(upper.offset..).unwrap_or_default();
    let entropy = mix(addresses, u64::from(upper.protocol) ^ flow_bits(upper.protocol, l4));
    let layer4 =
        (usize::from(ip.payload_len) + ipv6::HEADER_LEN).checked_sub(upper.offset).map(|len| Layer4 {
            protocol: upper.protocol,
            offset: ethernet::HEADER_LEN + upper.offset,
            len,
            addresses: ethernet::HEADER_LEN + 8,
            addresses_len: 32,
        });
    Some((ip.traffic_class, entropy, layer4))
}

/// Ports in bits 8 to 39, the destination QP of RoCEv2 in bits 40 to 63.
#[inline]
fn flow_bits(protocol: u8, l4: &[u8]) -> u64 {
    if !matches!(protocol, udp::PROTOCOL | udp::PROTOCOL_TCP) {
        return 0;
    }
    let Some(ports) = l4.first_chunk::<4>() else { return 0 };
    let bits = u64::from(u32::from_be_bytes(*ports)) << 8;
    let [.., d0, d1] = *ports;
    if protocol == udp::PROTOCOL && u16::from_be_bytes([d0, d1]) == roce::PORT {
        let bth = l4.get(udp::HEADER_LEN..).and_then(roce::Bth::parse);
        return bits | u64::from(bth.map_or(0, |b| b.dest_qp)) << 40;
    }
    bits
}

/// Numbers in a row, like the QPs of a connection, come out of one multiplication in steps of one size, which for some
/// pairs of addresses is next to nothing; after the second they are strewn.
#[inline]
fn finish(flow: u64) -> u64 {
    mix(flow, 0)
}

/// 64 × 64 → 128-bit multiply, folded.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    #[expect(clippy::cast_possible_truncation, reason = "folds the two halves")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

/// A field that holds just the pseudo-header's sum is what a sender with checksum offload leaves. Completing writes
/// the checksum of what is there, so a packet whose right checksum happens to look partial is not changed.
#[inline]
fn complete_checksum(packet: &mut Packet<'_>, l4: &Layer4) -> bool {
    let field = match l4.protocol {
        udp::PROTOCOL => l4.offset + UDP_CHECKSUM,
        udp::PROTOCOL_TCP => l4.offset + TCP_CHECKSUM,
        _ => return false,
    };
    let Some(stored) = packet.head().get(field..).and_then(|b| b.first_chunk::<2>()).copied() else {
        return false;
    };
    if stored == [0, 0] {
        return false;
    }
    let addresses = packet.head().get(l4.addresses..l4.addresses + l4.addresses_len).unwrap_or_default();
    let pseudo = pseudo_header(addresses, &[], l4.protocol, u32::try_from(l4.len).unwrap_or(0));
    if u16::from_ne_bytes(stored) != pseudo.fold() {
        return false;
    }
    let Some(data) = packet.sum(l4.offset, l4.len) else { return false };
    let sum = data.without(stored).plus(pseudo);
    let complete = if l4.protocol == udp::PROTOCOL { sum.finish_udp() } else { sum.finish() };
    if let Some(bytes) = packet.head_mut().get_mut(field..).and_then(|b| b.first_chunk_mut::<2>()) {
        *bytes = complete;
    }
    complete != stored
}
