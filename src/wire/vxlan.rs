//! VXLAN (RFC 7348 section 5): byte 0 flags `RRRRIRRR`, 24 reserved bits, 24-bit VNI, 8 reserved bits.

use std::fmt;

use super::drop::DropReason;

/// UDP destination port of VXLAN.
pub const PORT: u16 = 4789;
/// Length of a VXLAN header.
pub const HEADER_LEN: usize = 8;

const FLAG_VNI: u8 = 0x08;
/// The P bit of VXLAN-GPE: another payload than Ethernet follows (draft-ietf-nvo3-vxlan-gpe section 3.1).
const FLAG_GPE_NEXT_PROTOCOL: u8 = 0x04;

/// VXLAN network identifier, 24 bits. Zero is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vni(u32);

impl Vni {
    /// Largest VNI.
    pub const MAX: u32 = 0x00ff_ffff;

    /// `None` when the number does not fit in 24 bits.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a received VXLAN header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The network.
    pub vni: Vni,
    /// Whether any reserved bit was set. Ignored on receipt, but counted.
    pub reserved_bits: bool,
}

impl Header {
    /// Reads the header in front of `bytes`.
    ///
    /// # Errors
    /// `VxlanTruncated`, `VniFlagClear`, or `GpeNotSupported` when the P bit says that no Ethernet frame follows.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        let [flags, r0, r1, r2, v0, v1, v2, r3] =
            *bytes.first_chunk::<HEADER_LEN>().ok_or(DropReason::VxlanTruncated)?;
        if flags & FLAG_VNI == 0 {
            return Err(DropReason::VniFlagClear);
        }
        if flags & FLAG_GPE_NEXT_PROTOCOL != 0 {
            return Err(DropReason::GpeNotSupported);
        }
        let reserved_bits = (flags ^ FLAG_VNI) | r0 | r1 | r2 | r3 != 0;
        Ok(Self { vni: Vni(u32::from_be_bytes([0, v0, v1, v2])), reserved_bits })
    }
}

/// The header to send: I set, every reserved bit 0.
#[inline]
#[must_use]
pub const fn encode(vni: Vni) -> [u8; HEADER_LEN] {
    let [_, v0, v1, v2] = vni.0.to_be_bytes();
    [FLAG_VNI, 0, 0, 0, v0, v1, v2, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bits_are_ignored_on_receipt() {
        let header = Header::parse(&[0xfb, 1, 2, 3, 0x01, 0x00, 0x64, 0xff]).unwrap();
        assert_eq!(header, Header { vni: Vni(0x01_0064), reserved_bits: true });
    }

    #[test]
    fn encoded_header_parses_back_without_reserved_bits() {
        for number in [0, 100, Vni::MAX] {
            let vni = Vni::new(number).unwrap();
            assert_eq!(Header::parse(&encode(vni)), Ok(Header { vni, reserved_bits: false }));
        }
        assert_eq!(Vni::new(Vni::MAX + 1), None);
    }

    #[test]
    fn truncated_flagless_and_gpe_headers_are_refused() {
        assert_eq!(Header::parse(&[8; 7]), Err(DropReason::VxlanTruncated));
        assert_eq!(Header::parse(&[0, 0, 0, 0, 0, 0, 100, 0]), Err(DropReason::VniFlagClear));
        assert_eq!(Header::parse(&[0x0c, 0, 0, 1, 0, 0, 100, 0]), Err(DropReason::GpeNotSupported));
    }
}
