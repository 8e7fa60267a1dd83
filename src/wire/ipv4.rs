//! IPv4 header (RFC 791): reads it, and edits the TOS byte with its checksum kept right.

use super::checksum::Sum;

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the TOS byte.
pub const TOS: usize = 1;
/// Offset of the TTL.
pub const TTL: usize = 8;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;

/// What the datapath needs of an IPv4 header. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Header length with options, 20 to 60.
    pub header_len: usize,
    /// TOS byte: DSCP and ECN.
    pub tos: u8,
    /// Total length field, not checked against anything.
    pub total_len: u16,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Fragment offset in units of 8 bytes.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: u8,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

impl Header {
    /// Reads the header in front of `bytes`; `None` when it is cut, or the version or header length is impossible.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        // Addresses are taken whole: put together of bytes, they would have to wait to be read as words.
        let (fixed, addresses) = bytes.first_chunk::<HEADER_LEN>()?.split_first_chunk::<12>()?;
        let (src, dst) = addresses.split_first_chunk::<4>()?;
        let [vihl, tos, l0, l1, _, _, f0, f1, ttl, protocol, _, _] = *fixed;
        let header_len = usize::from(vihl & 0x0f) * 4;
        if vihl >> 4 != 4 || header_len < HEADER_LEN || bytes.len() < header_len {
            return None;
        }
        let fragment = u16::from_be_bytes([f0, f1]);
        Some(Self {
            header_len,
            tos,
            total_len: u16::from_be_bytes([l0, l1]),
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: fragment & 0x1fff,
            ttl,
            protocol,
            src: *src,
            dst: *dst.first_chunk()?,
        })
    }

    /// Whether the packet is a piece of a larger one. A non-zero ID alone is not (RFC 6864).
    #[inline]
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }
}

/// A header without options, DF set and ID 0, which makes the packet atomic (RFC 6864 section 4.1), its checksum right.
#[must_use]
pub fn encode(
    tos: u8,
    total_len: u16,
    ttl: u8,
    protocol: u8,
    src: [u8; 4],
    dst: [u8; 4],
) -> [u8; HEADER_LEN] {
    let [l0, l1] = total_len.to_be_bytes();
    let [s0, s1, s2, s3] = src;
    let [d0, d1, d2, d3] = dst;
    let mut header = [0x45, tos, l0, l1, 0, 0, 0x40, 0, ttl, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
    write_checksum(&mut header);
    header
}

/// Writes the right checksum into a header without options.
pub fn write_checksum(header: &mut [u8; HEADER_LEN]) {
    header[CHECKSUM] = 0;
    header[CHECKSUM + 1] = 0;
    let [c0, c1] = Sum::ZERO.bytes(header).finish();
    header[CHECKSUM] = c0;
    header[CHECKSUM + 1] = c1;
}

/// Whether the checksum over the header of `header_len` bytes is right.
#[inline]
#[must_use]
pub fn checksum_is_valid(bytes: &[u8], header_len: usize) -> bool {
    bytes.get(..header_len).is_some_and(|header| Sum::ZERO.bytes(header).is_valid())
}

/// Writes the TOS byte and corrects the header checksum by the difference (RFC 1624 equation 3), so that a checksum
/// that was wrong stays wrong. Does nothing to a header that is cut.
#[inline]
pub fn set_tos(bytes: &mut [u8], tos: u8) {
    let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() else { return };
    let [vihl, old, ..] = *header;
    if old == tos {
        return;
    }
    let [.., c0, c1, _, _, _, _, _, _, _, _] = *header;
    let sum = Sum::ZERO.bytes(&[!c0, !c1]).without([vihl, old]).bytes(&[vihl, tos]);
    let [n0, n1] = sum.finish();
    header[TOS] = tos;
    header[CHECKSUM] = n0;
    header[CHECKSUM + 1] = n1;
}

/// Takes one off the TTL and corrects the header checksum by the difference (RFC 1624 equation 3). Does nothing to a
/// header that is cut or whose TTL is 0.
#[inline]
pub fn decrement_ttl(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() else { return };
    let [_, _, _, _, _, _, _, _, ttl, protocol, c0, c1, ..] = *header;
    let Some(less) = ttl.checked_sub(1) else { return };
    let sum = Sum::ZERO.bytes(&[!c0, !c1]).without([ttl, protocol]).bytes(&[less, protocol]);
    let [n0, n1] = sum.finish();
    header[TTL] = less;
    header[CHECKSUM] = n0;
    header[CHECKSUM + 1] = n1;
}

/// Swaps source and destination and writes a TTL, as an answer needs; only a header without options. Does nothing to one
/// that is cut.
pub fn turn(bytes: &mut [u8], ttl: u8) {
    let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() else { return };
    header[TTL] = ttl;
    let (_, addresses) = header.split_at_mut(HEADER_LEN - 8);
    addresses.rotate_left(4);
    write_checksum(header);
}

/// Whether an address can be the source of a unicast packet on a wire, or its destination: not zero, loopback, multicast
/// or broadcast.
#[must_use]
pub const fn is_valid_source(addr: [u8; 4]) -> bool {
    !matches!(addr, [0 | 127 | 224.., ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> [u8; 20] {
        let mut h = [0x45, 0x68, 0, 60, 7, 0x77, 0x40, 0, 64, 17, 0, 0, 10, 100, 0, 2, 10, 100, 0, 1];
        let sum = Sum::ZERO.bytes(&h).finish();
        h[10..12].copy_from_slice(&sum);
        h
    }

    #[test]
    fn every_tos_keeps_the_checksum_right() {
        for tos in 0..=255 {
            let mut h = sample();
            set_tos(&mut h, tos);
            assert!(checksum_is_valid(&h, 20), "tos {tos}");
            assert_eq!(h[1], tos);
        }
    }

    #[test]
    fn every_ttl_keeps_the_checksum_right_and_zero_does_not_wrap() {
        for ttl in 0..=255u8 {
            let mut h = sample();
            h[TTL] = ttl;
            h[CHECKSUM..CHECKSUM + 2].fill(0);
            let sum = Sum::ZERO.bytes(&h).finish();
            h[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum);
            decrement_ttl(&mut h);
            assert!(checksum_is_valid(&h, 20), "ttl {ttl}");
            assert_eq!(h[TTL], ttl.saturating_sub(1));
        }
    }

    #[test]
    fn a_turned_and_a_made_header_are_right() {
        let mut h = sample();
        turn(&mut h, 9);
        let ip = Header::parse(&h).unwrap();
        assert!(checksum_is_valid(&h, 20));
        assert_eq!((ip.src, ip.dst, ip.ttl, ip.tos), ([10, 100, 0, 1], [10, 100, 0, 2], 9, 0x68));
        let h = encode(0xc0, 48, 64, 1, [10, 0, 0, 1], [10, 0, 0, 2]);
        let ip = Header::parse(&h).unwrap();
        assert!(checksum_is_valid(&h, 20) && !ip.is_fragment());
        assert_eq!((ip.tos, ip.total_len, ip.ttl, ip.protocol), (0xc0, 48, 64, 1));
        assert_eq!((ip.src, ip.dst), ([10, 0, 0, 1], [10, 0, 0, 2]));
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut h = sample();
        h[10] ^= 0x40;
        set_tos(&mut h, 3);
        assert!(!checksum_is_valid(&h, 20));
    }

    #[test]
    fn short_ihl_wrong_version_and_cut_headers_are_refused() {
        let mut h = sample();
        assert!(Header::parse(&h).is_some());
        assert!(Header::parse(&h[..19]).is_none());
        for first in [0x40, 0x44, 0x65, 0x46] {
            h[0] = first;
            assert!(Header::parse(&h).is_none(), "{first:x}");
        }
    }

    #[test]
    fn an_id_without_fragment_bits_is_no_fragment() {
        let mut h = sample();
        h[6] = 0;
        assert!(!Header::parse(&h).unwrap().is_fragment());
        h[6] = 0x20;
        assert!(Header::parse(&h).unwrap().is_fragment());
    }
}
