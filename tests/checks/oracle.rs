//! What a frame is, read a second time and without the datapath: a tunnel's headers and payload, and, through
//! etherparse, whether its checksums are right.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// A VXLAN packet's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub checksum: Checksum,
    pub vni: u32,
    /// Offset of the inner frame.
    pub start: usize,
    /// The payload behind the VXLAN header, without what follows the UDP packet.
    pub inner: Vec<u8>,
}

/// What stands in the outer UDP header's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Zero,
    Right,
    /// The bare sum of the pseudo-header.
    Partial,
    Wrong,
}

/// Reads a frame that should be VXLAN; `None` when any header says otherwise.
pub fn tunnel(frame: &[u8], vlan: Option<u16>) -> Option<Tunnel> {
    let mut at = 14;
    let mut kind = word(frame, 12)?;
    let mut vid = 0;
    if kind == 0x8100 || kind == 0x88a8 {
        (vid, kind, at) = (word(frame, 14)? & 0xfff, word(frame, 16)?, 18);
    }
    if vid != vlan.unwrap_or(0) {
        return None;
    }
    let ip = frame.get(at..)?;
    let (addresses, tos, udp) = match kind {
        0x0800 => ipv4(ip)?,
        0x86dd => ipv6(ip)?,
        _ => return None,
    };
    let len = word(udp, 4)?;
    let vxlan = udp.get(8..usize::from(len))?;
    let pseudo = [addresses, &[0, 17], &len.to_be_bytes()].concat();
    let checksum = match u16::from_ne_bytes([udp[6], udp[7]]) {
        0 => Checksum::Zero,
        _ if sum(&[&pseudo, &udp[..usize::from(len)]]) == 0 => Checksum::Right,
        stored if stored == !sum(&[&pseudo]) => Checksum::Partial,
        _ => Checksum::Wrong,
    };
    let [flags, _, _, _, v0, v1, v2, _, ..] = *vxlan else { return None };
    (word(udp, 2)? == 4789 && flags & 0x0c == 8).then(|| Tunnel {
        src: ip_address(&addresses[..addresses.len() / 2]),
        dst: ip_address(&addresses[addresses.len() / 2..]),
        tos,
        checksum,
        vni: u32::from_be_bytes([0, v0, v1, v2]),
        // Slices of one frame: where `udp` begins is how far it is from the frame's begin.
        start: udp.as_ptr() as usize - frame.as_ptr() as usize + 16,
        inner: vxlan[8..].to_vec(),
    })
}

fn ip_address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => v4.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).unwrap().into(),
    }
}

/// Both addresses, the traffic class, and what follows the headers.
type Network<'a> = (&'a [u8], u8, &'a [u8]);

fn ipv4(ip: &[u8]) -> Option<Network<'_>> {
    let header = usize::from(ip.first()? & 15) * 4;
    let udp = ip.get(header..usize::from(word(ip, 2)?))?;
    let whole = word(ip, 6)? & 0x3fff == 0;
    let right = ip[0] >> 4 == 4 && ip[9] == 17 && whole && sum(&[&ip[..header]]) == 0;
    right.then_some((&ip[12..20], ip[1], udp))
}

fn ipv6(ip: &[u8]) -> Option<Network<'_>> {
    let fixed = ip.get(..40)?;
    let mut next = fixed[6];
    let mut rest = ip.get(40..40 + usize::from(word(ip, 4)?))?;
    while [0, 44, 60].contains(&next) {
        let len = if next == 44 { 8 } else { 8 * (1 + usize::from(*rest.get(1)?)) };
        // A fragment header that makes no fragment of it is as good as none.
        if next == 44 && word(rest, 2)? & 0xfff9 != 0 {
            return None;
        }
        (next, rest) = (rest[0], rest.get(len..)?);
    }
    (fixed[0] >> 4 == 6 && next == 17).then_some((&fixed[8..], fixed[0] << 4 | fixed[1] >> 4, rest))
}

/// What must hold for every packet that leaves an uplink encapsulated (RFC 7348 section 5): checksums, DF, TTL 64, a
/// source port in the dynamic range.
pub fn sound_outer(frame: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("no UDP: {sliced:?}") };
    assert!(udp.source_port() >= 49152 && udp.destination_port() == 4789);
    match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert!(header.dont_fragment && !header.more_fragments && header.fragment_offset.value() == 0);
            assert_eq!((header.time_to_live, udp.checksum()), (64, 0));
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(header.hop_limit, 64);
            let right = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
            assert!(udp.checksum() != 0 && udp.checksum() == right);
        }
        other => panic!("no IP: {other:?}"),
    }
}

/// The Internet checksum over pieces of even length (the last may be odd); 0 when they hold the right one.
pub fn sum(pieces: &[&[u8]]) -> u16 {
    pieces.iter().fold(Sum16BitWords::new(), |sum, piece| sum.add_slice(piece)).ones_complement()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
