//! The Internet checksum (RFC 1071), in the machine's byte order: a one's complement sum is the same in any byte
//! order as long as it is read and written in one, so no word is swapped.

/// A running one's complement sum of 16-bit words in native byte order. Not folded: 2^32 words fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// An empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds bytes that start at an even offset of the checksummed data; an odd last byte is padded with zero.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut total = self.0;
        for word in words {
            total += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        Self(total + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds bytes that start at an odd offset: their folded sum counts with its bytes swapped (RFC 1071 section 2B).
    #[must_use]
    pub fn bytes_at_odd(self, bytes: &[u8]) -> Self {
        Self(self.0 + u64::from(Self::ZERO.bytes(bytes).fold().swap_bytes()))
    }

    /// Adds one 16-bit field given in host order.
    #[inline]
    #[must_use]
    pub fn word(self, host: u16) -> Self {
        Self(self.0 + u64::from(host.to_be()))
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Takes one 16-bit field, given as it stands in memory, out of the sum (RFC 1624).
    #[inline]
    #[must_use]
    pub fn without(self, field: [u8; 2]) -> Self {
        Self(self.0 + u64::from(!u16::from_ne_bytes(field)))
    }

    /// Folds to 16 bits, native order, not complemented.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        let x = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let x = (x & 0xffff) + ((x >> 16) & 0xffff) + (x >> 32);
        let x = (x & 0xffff) + (x >> 16);
        let x = (x & 0xffff) + (x >> 16);
        #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits by the lines above")]
        let folded = x as u16;
        folded
    }

    /// The checksum field as it stands in memory.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// The checksum field of UDP, where 0 means "none" and is sent as 0xffff (RFC 768).
    #[inline]
    #[must_use]
    pub fn finish_udp(self) -> [u8; 2] {
        match self.finish() {
            [0, 0] => [0xff, 0xff],
            field => field,
        }
    }

    /// Whether a sum over data that includes its checksum field says that it is right.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// Pseudo-header sum of TCP or UDP: addresses (4 or 16 bytes each), protocol, length of the L4 packet in bytes.
#[inline]
#[must_use]
pub fn pseudo_header(src: &[u8], dst: &[u8], protocol: u8, length: u32) -> Sum {
    let [a, b, c, d] = length.to_be_bytes();
    Sum::ZERO.bytes(src).bytes(dst).bytes(&[a, b, c, d]).bytes(&[0, protocol])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 4.1, word by word in network order.
    fn reference(bytes: &[u8]) -> [u8; 2] {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!u16::try_from(sum).unwrap()).to_be_bytes()
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_reference_however_it_is_split(bytes: Vec<u8>, cut: proptest::sample::Index) {
            proptest::prop_assert_eq!(Sum::ZERO.bytes(&bytes).finish(), reference(&bytes));
            let (a, b) = bytes.split_at(cut.index(bytes.len() + 1));
            let sum = Sum::ZERO.bytes(a);
            let sum = if a.len() % 2 == 0 { sum.bytes(b) } else { sum.bytes_at_odd(b) };
            proptest::prop_assert_eq!(sum.finish(), reference(&bytes));
        }
    }

    #[test]
    fn all_ones_fold_without_overflow() {
        assert_eq!(Sum(u64::MAX).fold(), 0xffff);
        assert_eq!(Sum::ZERO.bytes(&[0xff; 9216]).finish(), [0, 0]);
        assert_eq!(Sum::ZERO.bytes(&[0xff; 9216]).finish_udp(), [0xff, 0xff]);
    }

    #[test]
    fn a_field_taken_out_and_put_back_changes_nothing() {
        let sum = Sum::ZERO.bytes(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(sum.without([3, 4]).word(0x0304).finish(), sum.finish());
    }
}
