//! The invariant CRC of RoCEv2: CRC-32 over the packet with every field a router may rewrite masked to ones.
//!
//! Written from the InfiniBand architecture, annex A17, and on purpose without the crate's own `wire` module: the
//! probe judges what a forwarder did and must not share its mistakes.

/// CRC-32 (IEEE 802.3, reflected) by eight tables, so that a 4 kB frame costs about a microsecond.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[slice - 1][byte];
            tables[slice][byte] = (previous >> 8) ^ tables[0][(previous & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// Running CRC-32, not yet complemented.
#[derive(Clone, Copy)]
struct Crc(u32);

impl Crc {
    fn new() -> Self {
        Self(u32::MAX)
    }

    fn update(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let low = self.0 ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let [a, b, c, d] = low.to_le_bytes();
            self.0 = TABLES[7][a as usize]
                ^ TABLES[6][b as usize]
                ^ TABLES[5][c as usize]
                ^ TABLES[4][d as usize]
                ^ TABLES[3][word[4] as usize]
                ^ TABLES[2][word[5] as usize]
                ^ TABLES[1][word[6] as usize]
                ^ TABLES[0][word[7] as usize];
        }
        for &byte in rest {
            self.0 = (self.0 >> 8) ^ TABLES[0][((self.0 ^ u32::from(byte)) & 0xff) as usize];
        }
        self
    }

    fn finish(self) -> u32 {
        !self.0
    }
}

/// ICRC of the packet whose IP header is `ip` (options included), followed by `udp` and by `ib`: BTH to the end of
/// the payload, without the ICRC. `None` when a header is too short for what it claims to be. On the wire the
/// value is little-endian.
pub fn icrc(ip: &[u8], udp: &[u8; 8], ib: &[u8]) -> Option<u32> {
    let mut header = [0xff; 8 + 60];
    let masked = header.get_mut(8..8 + ip.len())?;
    masked.copy_from_slice(ip);
    match ip.first()? >> 4 {
        // TOS, TTL, header checksum.
        4 if ip.len() >= 20 => {
            masked[1] = 0xff;
            masked[8] = 0xff;
            masked[10..12].fill(0xff);
        }
        // Traffic class, flow label, hop limit.
        6 if ip.len() == 40 => {
            masked[0] |= 0x0f;
            masked[1..4].fill(0xff);
            masked[7] = 0xff;
        }
        _ => return None,
    }
    let mut udp = *udp;
    udp[6..8].fill(0xff);
    // BTH byte 4 carries FECN and BECN.
    let mut bth: [u8; 12] = *ib.first_chunk()?;
    bth[4] = 0xff;
    let crc = Crc::new().update(&header[..8 + ip.len()]).update(&udp).update(&bth).update(ib.get(12..)?);
    Some(crc.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string_is_the_published_one() {
        assert_eq!(Crc::new().update(b"123456789").finish(), 0xcbf4_3926);
        // Splitting the input anywhere changes nothing.
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = Crc::new().update(&bytes).finish();
        for cut in 0..bytes.len() {
            assert_eq!(Crc::new().update(&bytes[..cut]).update(&bytes[cut..]).finish(), whole);
        }
    }

    #[test]
    fn a_header_too_short_has_no_icrc() {
        let (udp, ib) = ([0; 8], [0; 16]);
        assert_eq!(icrc(&[0x45; 19], &udp, &ib), None);
        assert_eq!(icrc(&[0x60; 39], &udp, &ib), None);
        assert_eq!(icrc(&[], &udp, &ib), None);
        assert_eq!(icrc(&[0x45; 20], &udp, &ib[..11]), None);
        assert!(icrc(&[0x45; 20], &udp, &ib).is_some());
    }
}
