//! The one place that writes outer headers.

use super::inner::Inner;
use super::verdict::{Observer, Step, Verdict};
use crate::ids::VtepId;
use crate::tables::snapshot::{EncapDscp, Settings};
use crate::tables::vtep::{MAX_OUTER_LEN, NextHop, VtepRow};
use crate::wire::drop::DropReason;
use crate::wire::ecn::Ecn;
use crate::wire::packet::Packet;
use crate::wire::{udp, vxlan};

/// Outer header lengths: IPv4 or IPv6, without and with a VLAN tag.
const V4: usize = 50;
const V4_TAGGED: usize = 54;
const V6: usize = 70;
const V6_TAGGED: usize = MAX_OUTER_LEN;

/// Pushes the outer headers towards `row` in front of a tenant's frame.
///
/// ECN is copied (RFC 6040 section 4.1, normal mode), DSCP as configured; TTL 64, DF, ID 0; the source port is the
/// flow's entropy in 49152–65535 (RFC 7348 section 5). The UDP checksum is 0 over IPv4, computed over IPv6.
#[inline]
pub fn push<O: Observer>(
    o: &mut O,
    settings: &Settings,
    (id, row): (VtepId, &VtepRow),
    vni: vxlan::Vni,
    inner: &Inner,
    packet: &mut Packet<'_>,
) -> Verdict {
    match row.next_hop {
        NextHop::Resolved => {}
        NextHop::Unresolved => return Verdict::Unresolved(vni, id),
        NextHop::NoPath => return Verdict::Drop(DropReason::NoPath),
    }
    let len = match u16::try_from(packet.len()) {
        Ok(len) if len <= row.max_inner_len => len,
        _ => return Verdict::Drop(DropReason::EncapMtuExceeded),
    };
    let tos = match settings.encap_dscp {
        EncapDscp::Copy => inner.tos,
        EncapDscp::Set(dscp) => dscp.with(Ecn::of_tos(inner.tos)),
    };
    let flow = Flow {
        tos,
        src_port: udp::FIRST_DYNAMIC_PORT | u16::try_from(inner.entropy >> 50).unwrap_or(0),
        label: u32::try_from(inner.entropy >> 44).unwrap_or(0),
    };
    let pushed = match usize::from(row.header_len) {
        V4 => push_v4::<V4>(row, vni, len, flow, packet),
        V4_TAGGED => push_v4::<V4_TAGGED>(row, vni, len, flow, packet),
        V6 => push_v6::<V6>(row, vni, len, flow, packet),
        V6_TAGGED => push_v6::<V6_TAGGED>(row, vni, len, flow, packet),
        _ => Err(DropReason::NoPath),
    };
    match pushed {
        Ok(()) => {
            o.step(Step::Encap { dst: row.remote, vni, src_port: flow.src_port, tos, len: packet.len() });
            Verdict::Forward(row.uplink)
        }
        Err(reason) => Verdict::Drop(reason),
    }
}

/// Outer IPv4, UDP and VXLAN headers.
const V4_LEN: usize = 36;
/// Outer IPv6, UDP and VXLAN headers.
const V6_LEN: usize = 56;
/// UDP and VXLAN headers.
const UDP_OVERHEAD: u16 = 16;

#[inline]
fn push_v4<const N: usize>(
    row: &VtepRow,
    vni: vxlan::Vni,
    len: u16,
    flow: Flow,
    packet: &mut Packet<'_>,
) -> Result<(), DropReason> {
    let mut header = *row.header.first_chunk::<N>().ok_or(DropReason::NoPath)?;
    let l3 = header.last_chunk_mut::<V4_LEN>().ok_or(DropReason::NoPath)?;
    let total_len = len + UDP_OVERHEAD + 20;
    l3[1] = flow.tos;
    [l3[2], l3[3]] = total_len.to_be_bytes();
    [l3[10], l3[11]] = row.base_sum.word(u16::from(flow.tos)).word(total_len).finish();
    [l3[20], l3[21]] = flow.src_port.to_be_bytes();
    [l3[24], l3[25]] = (len + UDP_OVERHEAD).to_be_bytes();
    *l3.last_chunk_mut().ok_or(DropReason::NoPath)? = vxlan::encode(vni);
    packet.push_front(&header)
}

#[inline]
fn push_v6<const N: usize>(
    row: &VtepRow,
    vni: vxlan::Vni,
    len: u16,
    flow: Flow,
    packet: &mut Packet<'_>,
) -> Result<(), DropReason> {
    let mut header = *row.header.first_chunk::<N>().ok_or(DropReason::NoPath)?;
    let l3 = header.last_chunk_mut::<V6_LEN>().ok_or(DropReason::NoPath)?;
    let udp_len = len + UDP_OVERHEAD;
    let [_, l0, l1, l2] = flow.label.to_be_bytes();
    l3[0] = 0x60 | flow.tos >> 4;
    l3[1] = flow.tos << 4 | l0 & 0x0f;
    [l3[2], l3[3]] = [l1, l2];
    [l3[4], l3[5]] = udp_len.to_be_bytes();
    [l3[40], l3[41]] = flow.src_port.to_be_bytes();
    [l3[44], l3[45]] = udp_len.to_be_bytes();
    *l3.last_chunk_mut().ok_or(DropReason::NoPath)? = vxlan::encode(vni);
    let outer = l3.last_chunk::<16>().ok_or(DropReason::NoPath)?;
    let inner = packet.sum(0, usize::from(len)).ok_or(DropReason::FrameTooShort)?;
    let sum = row.base_sum.word(udp_len).bytes(outer).plus(inner);
    [l3[46], l3[47]] = sum.finish_udp();
    packet.push_front(&header)
}

/// What differs between the flows towards one VTEP.
#[derive(Clone, Copy)]
struct Flow {
    tos: u8,
    src_port: u16,
    /// Flow label, low 20 bits: the same entropy for fabrics that hash it (RFC 6438).
    label: u32,
}
