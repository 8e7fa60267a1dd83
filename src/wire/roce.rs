//! RoCEv2 base transport header (IBTA volume 1 section 9.2), the 12 bytes behind UDP port 4791: opcode 0,
//! flags 1, P_Key 2–3, FECN/BECN 4, destination QP 5–7, A bit 8, PSN 9–11.

/// UDP destination port of RoCEv2.
pub const PORT: u16 = 4791;
/// Length of a BTH.
pub const HEADER_LEN: usize = 12;

/// A base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Opcode; 0x81 is a congestion notification packet.
    pub opcode: u8,
    /// Destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Reads the first 12 bytes; `None` when there are fewer.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [opcode, _, _, _, _, q0, q1, q2, _, p0, p1, p2] = *bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            opcode,
            dest_qp: u32::from_be_bytes([0, q0, q1, q2]),
            psn: u32::from_be_bytes([0, p0, p1, p2]),
        })
    }
}
