//! Remote VTEPs: one row for each (local encap IP, remote encap IP) in use, holding the outer headers ready to copy.
//! A row is two cache lines; 64k rows take 8 MB, and no tunnel device.

use std::net::IpAddr;

use std::sync::Arc;

use hashbrown::HashMap;

use super::chunked::Chunked;
use crate::ids::{PortId, VtepId};
use crate::wire::checksum::{Sum, pseudo_header};
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::{ipv4, ipv6, udp, vxlan};

/// Longest outer header: Ethernet 14, VLAN tag 4, IPv6 40, UDP 8, VXLAN 8.
pub const MAX_OUTER_LEN: usize =
    ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + vxlan::HEADER_LEN;

/// TTL and hop limit of outer headers.
const OUTER_TTL: u8 = 64;

/// Everything that fixes the outer headers towards one remote VTEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterSpec {
    /// Uplink that sends.
    pub uplink: PortId,
    /// MAC of the uplink.
    pub src_mac: Mac,
    /// MAC of the next hop.
    pub dst_mac: Mac,
    /// VLAN tag of the uplink.
    pub vlan: Option<u16>,
    /// Local encap IP.
    pub src: IpAddr,
    /// Remote encap IP, of the same family.
    pub dst: IpAddr,
    /// IP MTU of the underlay in bytes.
    pub mtu: u16,
}

/// What a row knows of its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Outer headers are complete.
    Resolved,
    /// The next hop's MAC is not known.
    Unresolved,
    /// No uplink has an encap IP of this family.
    NoPath,
}

/// Outer headers towards one remote VTEP, all but length, DSCP, entropy, VNI and checksum filled in.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct VtepRow {
    /// First `header_len` bytes: the outer headers in wire order.
    pub(crate) header: [u8; MAX_OUTER_LEN],
    pub(crate) header_len: u8,
    /// The next hop.
    pub next_hop: NextHop,
    /// Uplink that sends.
    pub uplink: PortId,
    /// Longest inner frame in bytes that fits the underlay MTU.
    pub max_inner_len: u16,
    /// IPv4: sum of the header without total length and TOS. IPv6: UDP pseudo-header without length.
    pub(crate) base_sum: Sum,
    /// Remote encap IP.
    pub remote: IpAddr,
}

impl VtepRow {
    /// A row with complete headers. `None` when the two addresses are of different families.
    #[must_use]
    pub fn resolved(spec: &OuterSpec) -> Option<Self> {
        let mut header = arrayvec::ArrayVec::<u8, MAX_OUTER_LEN>::new();
        header.extend(spec.dst_mac.0.into_iter().chain(spec.src_mac.0));
        if let Some(vlan) = spec.vlan {
            header.extend([0x81, 0x00].into_iter().chain(vlan.to_be_bytes()));
        }
        let (ethertype, ip, base_sum) = ip_header(spec.src, spec.dst)?;
        header.extend(ethertype.0.to_be_bytes());
        let l3 = header.len();
        header.extend(ip.iter().copied());
        header.extend([0, 0].into_iter().chain(vxlan::PORT.to_be_bytes()).chain([0; 4]));
        header.extend([0; vxlan::HEADER_LEN]);
        let overhead = header.len() - l3;
        let mut row = Self {
            header: [0; MAX_OUTER_LEN],
            header_len: u8::try_from(header.len()).ok()?,
            next_hop: NextHop::Resolved,
            uplink: spec.uplink,
            max_inner_len: spec.mtu.saturating_sub(u16::try_from(overhead).ok()?),
            base_sum,
            remote: spec.dst,
        };
        row.header.iter_mut().zip(header).for_each(|(to, from)| *to = from);
        Some(row)
    }

    /// A row that cannot send yet: packets wait (`Unresolved`) or are dropped (`NoPath`).
    #[must_use]
    pub fn unusable(remote: IpAddr, next_hop: NextHop) -> Self {
        Self {
            header: [0; MAX_OUTER_LEN],
            header_len: 0,
            next_hop,
            uplink: PortId(0),
            max_inner_len: u16::MAX,
            base_sum: Sum::ZERO,
            remote,
        }
    }
}

/// EtherType, IP header with length, DSCP and checksum zero, and the sum that does not change.
fn ip_header(src: IpAddr, dst: IpAddr) -> Option<(EtherType, arrayvec::ArrayVec<u8, 40>, Sum)> {
    let mut ip = arrayvec::ArrayVec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            // ID 0 with DF set is an atomic datagram (RFC 6864 section 4.1).
            ip.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, OUTER_TTL, udp::PROTOCOL, 0, 0]);
            ip.extend(src.octets().into_iter().chain(dst.octets()));
            let sum = Sum::ZERO.bytes(&ip);
            debug_assert_eq!(ip.len(), ipv4::HEADER_LEN);
            Some((EtherType::IPV4, ip, sum))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            ip.extend([0x60, 0, 0, 0, 0, 0, udp::PROTOCOL, OUTER_TTL]);
            ip.extend(src.octets().into_iter().chain(dst.octets()));
            let sum = pseudo_header(&src.octets(), &dst.octets(), udp::PROTOCOL, 0);
            Some((EtherType::IPV6, ip, sum))
        }
        _ => None,
    }
}

/// Rows that a change copies: 32 kB.
const CHUNK: usize = 256;

/// All rows, and the index by remote encap IP. A changed row of a clone copies its chunk alone.
#[derive(Clone, Debug, Default)]
pub struct VtepTable {
    rows: Chunked<VtepRow, CHUNK>,
    by_v4: Arc<HashMap<u32, VtepId, foldhash::fast::RandomState>>,
    by_v6: Arc<HashMap<u128, VtepId, foldhash::fast::RandomState>>,
}

impl VtepTable {
    /// Adds a row, or replaces the row of the same remote encap IP; an id stays with its address.
    pub fn insert(&mut self, row: VtepRow) -> VtepId {
        if let Some(id) = self.by_ip(row.remote) {
            if let Some(old) = self.rows.get_mut(id.0 as usize) {
                *old = row;
            }
            return id;
        }
        let id = VtepId(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        match row.remote {
            IpAddr::V4(ip) => Arc::make_mut(&mut self.by_v4).insert(ip.to_bits(), id),
            IpAddr::V6(ip) => Arc::make_mut(&mut self.by_v6).insert(ip.to_bits(), id),
        };
        self.rows.push(row);
        id
    }

    /// The row of an id.
    #[inline]
    #[must_use]
    pub fn get(&self, id: VtepId) -> Option<&VtepRow> {
        self.rows.get(id.0 as usize)
    }

    /// Who sends from this IPv4 address.
    #[inline]
    #[must_use]
    pub fn by_v4(&self, addr: [u8; 4]) -> Option<VtepId> {
        self.by_v4.get(&u32::from_be_bytes(addr)).copied()
    }

    /// Who sends from this IPv6 address.
    #[inline]
    #[must_use]
    pub fn by_v6(&self, addr: [u8; 16]) -> Option<VtepId> {
        self.by_v6.get(&u128::from_be_bytes(addr)).copied()
    }

    /// Who sends from this address.
    #[must_use]
    pub fn by_ip(&self, addr: IpAddr) -> Option<VtepId> {
        match addr {
            IpAddr::V4(ip) => self.by_v4(ip.octets()),
            IpAddr::V6(ip) => self.by_v6(ip.octets()),
        }
    }

    /// Every row with its id.
    pub fn iter(&self) -> impl Iterator<Item = (VtepId, &VtepRow)> {
        (0..).map(VtepId).zip(self.rows.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_two_cache_lines() {
        assert_eq!(size_of::<VtepRow>(), 128);
    }

    #[test]
    fn an_address_keeps_its_id() {
        let mut table = VtepTable::default();
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let id = table.insert(VtepRow::unusable(a, NextHop::Unresolved));
        assert_ne!(id, table.insert(VtepRow::unusable(b, NextHop::Unresolved)));
        assert_eq!(id, table.insert(VtepRow::unusable(a, NextHop::NoPath)));
        assert_eq!(table.get(id).unwrap().next_hop, NextHop::NoPath);
        assert_eq!(table.by_ip(a), Some(id));
    }

    #[test]
    fn the_overhead_is_36_bytes_of_ip_mtu_over_ipv4_and_56_over_ipv6() {
        let spec = |src: &str, dst: &str| OuterSpec {
            uplink: PortId(0),
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: Some(7),
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            mtu: 1500,
        };
        let v4 = VtepRow::resolved(&spec("192.0.2.1", "192.0.2.2")).unwrap();
        assert_eq!((v4.max_inner_len, v4.header_len), (1464, 54));
        let v6 = VtepRow::resolved(&spec("2001:db8::1", "2001:db8::2")).unwrap();
        assert_eq!((v6.max_inner_len, v6.header_len), (1444, 74));
        assert!(VtepRow::resolved(&spec("192.0.2.1", "2001:db8::2")).is_none());
    }
}
