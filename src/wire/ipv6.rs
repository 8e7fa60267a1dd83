//! IPv6 header (RFC 8200): reads it, walks the extension headers a VTEP may meet, edits the traffic class.

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Extension headers walked before a packet is left to the kernel; the XDP program has the same bound.
pub const MAX_EXTENSION_HEADERS: usize = 6;

const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The fixed header. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Payload length field, not checked against anything.
    pub payload_len: u16,
    /// Next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

impl Header {
    /// Reads the header in front of `bytes`; `None` when it is cut or of another version.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (fixed, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let ([a, b, c, d, l0, l1, next_header, hop_limit], addresses) = fixed.split_first_chunk::<8>()?;
        if a >> 4 != 6 {
            return None;
        }
        let (src, dst) = addresses.split_first_chunk::<16>()?;
        Some(Self {
            traffic_class: a << 4 | b >> 4,
            flow_label: u32::from_be_bytes([0, b & 0x0f, *c, *d]),
            payload_len: u16::from_be_bytes([*l0, *l1]),
            next_header: *next_header,
            hop_limit: *hop_limit,
            src: *src,
            dst: *dst.first_chunk()?,
        })
    }
}

/// A fixed header, its flow label 0.
#[must_use]
pub fn encode(
    traffic_class: u8,
    payload_len: u16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
) -> [u8; HEADER_LEN] {
    let [l0, l1] = payload_len.to_be_bytes();
    let first = [0x60 | traffic_class >> 4, traffic_class << 4, 0, 0, l0, l1, next_header, hop_limit];
    let mut header = [0; HEADER_LEN];
    let bytes = first.into_iter().chain(src).chain(dst);
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    header
}

/// Where the upper layer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Protocol of the upper layer, or of the first extension header that is not walked.
    pub protocol: u8,
    /// Its offset from the start of the fixed header.
    pub offset: usize,
    /// A piece of a larger packet that begins with this upper layer; an atomic fragment is none (RFC 6946).
    pub first_fragment: bool,
    /// A later piece: what stands at `offset` is no header.
    pub later_fragment: bool,
}

/// Walks hop-by-hop options, destination options and fragment headers after the fixed header. `None` when one is cut
/// or there are more than [`MAX_EXTENSION_HEADERS`].
#[inline]
#[must_use]
pub fn upper_layer(bytes: &[u8], next_header: u8) -> Option<Upper> {
    let mut upper =
        Upper { protocol: next_header, offset: HEADER_LEN, first_fragment: false, later_fragment: false };
    for _ in 0..MAX_EXTENSION_HEADERS {
        if !matches!(upper.protocol, HOP_BY_HOP | DESTINATION_OPTIONS | FRAGMENT) {
            return Some(upper);
        }
        let [next, len, f0, f1, ..] = *bytes.get(upper.offset..)?.first_chunk::<8>()?;
        if upper.protocol == FRAGMENT {
            let field = u16::from_be_bytes([f0, f1]);
            upper.later_fragment = field & 0xfff8 != 0;
            upper.first_fragment |= field & 0xfff9 == 1;
            upper.offset += 8;
        } else {
            upper.offset += usize::from(len) * 8 + 8;
        }
        upper.protocol = next;
        if upper.later_fragment {
            return Some(upper);
        }
    }
    (!matches!(upper.protocol, HOP_BY_HOP | DESTINATION_OPTIONS | FRAGMENT)).then_some(upper)
}

/// Takes one off the hop limit. Does nothing to a header that is cut or whose hop limit is 0.
#[inline]
pub fn decrement_hop_limit(bytes: &mut [u8]) {
    if let [_, _, _, _, _, _, _, hop_limit, ..] = bytes {
        *hop_limit = hop_limit.saturating_sub(1);
    }
}

/// Swaps source and destination and writes a hop limit, as an answer needs. Does nothing to a header that is cut.
pub fn turn(bytes: &mut [u8], hop_limit: u8) {
    let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() else { return };
    header[7] = hop_limit;
    let (_, addresses) = header.split_at_mut(HEADER_LEN - 32);
    addresses.rotate_left(16);
}

/// Writes the traffic class, which straddles the first two bytes, and leaves version and flow label as they are.
/// Does nothing to a header that is cut.
#[inline]
pub fn set_traffic_class(bytes: &mut [u8], traffic_class: u8) {
    if let [a, b, ..] = bytes {
        *a = *a & 0xf0 | traffic_class >> 4;
        *b = *b & 0x0f | traffic_class << 4;
    }
}

/// Whether an address can be the source of a unicast packet on a wire: not `::`, `::1` or multicast.
#[must_use]
pub fn is_valid_source(addr: [u8; 16]) -> bool {
    addr[0] != 0xff && u128::from_be_bytes(addr) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_class_leaves_version_and_flow_label() {
        for class in 0..=255u8 {
            let mut h = [0u8; 40];
            h[..4].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf1]);
            set_traffic_class(&mut h, class);
            let parsed = Header::parse(&h).unwrap();
            assert_eq!((parsed.traffic_class, parsed.flow_label), (class, 0xcdef1));
        }
    }

    #[test]
    fn a_made_header_is_read_and_turned() {
        let (a, b) = ([1; 16], [2; 16]);
        let mut h = encode(0xb8, 7, 58, 255, a, b);
        let ip = Header::parse(&h).unwrap();
        assert_eq!((ip.traffic_class, ip.flow_label, ip.payload_len, ip.next_header), (0xb8, 0, 7, 58));
        turn(&mut h, 64);
        assert_eq!(Header::parse(&h), Some(Header { hop_limit: 64, src: b, dst: a, ..ip }));
    }

    #[test]
    fn extension_headers_are_walked_and_bounded() {
        let mut bytes = vec![0; 40];
        bytes.extend([60, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop, then destination options of 16 bytes
        bytes.extend([44, 1].into_iter().chain([0; 14]));
        bytes.extend([17, 0, 0, 0, 0, 0, 0, 9]); // atomic fragment
        let upper = upper_layer(&bytes, 0).unwrap();
        assert_eq!(upper, Upper { protocol: 17, offset: 72, first_fragment: false, later_fragment: false });
        assert_eq!(upper_layer(&bytes[..70], 0), None);
        let endless = [0u8; 400];
        assert_eq!(upper_layer(&endless, 0), None);
    }

    #[test]
    fn fragments_are_told_from_atomic_ones() {
        let fragment = |field: u16| {
            let mut bytes = vec![0; 40];
            bytes.extend([17, 0]);
            bytes.extend(field.to_be_bytes());
            bytes.extend([0; 4]);
            let upper = upper_layer(&bytes, 44).unwrap();
            (upper.first_fragment, upper.later_fragment)
        };
        assert_eq!(fragment(0x0000), (false, false));
        assert_eq!(fragment(0x0001), (true, false));
        assert_eq!(fragment(0x0008), (false, true));
        assert_eq!(fragment(0x0009), (false, true));
    }
}
