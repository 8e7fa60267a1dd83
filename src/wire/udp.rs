//! UDP header (RFC 768): source port, destination port, length, checksum, 2 bytes each.

/// Length of a UDP header.
pub const HEADER_LEN: usize = 8;
/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTOCOL: u8 = 17;
/// First port of the dynamic range, from which the outer source port is taken (RFC 7348 section 5).
pub const FIRST_DYNAMIC_PORT: u16 = 49152;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Length of header and payload in bytes, not checked against anything.
    pub len: u16,
    /// Checksum as it stands in memory; zero means none.
    pub checksum: [u8; 2],
}

impl Header {
    /// Reads the first 8 bytes; `None` when there are fewer.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            src: u16::from_be_bytes([s0, s1]),
            dst: u16::from_be_bytes([d0, d1]),
            len: u16::from_be_bytes([l0, l1]),
            checksum: [c0, c1],
        })
    }
}
