//! Ethernet II: MAC addresses, EtherTypes and the 14-byte header.

use std::fmt;
use std::str::FromStr;

/// Length of an Ethernet header without tags: destination 6, source 6, EtherType 2.
pub const HEADER_LEN: usize = 14;
/// Length of one 802.1Q tag.
pub const VLAN_TAG_LEN: usize = 4;
/// Smallest frame without FCS that a physical port may send (IEEE 802.3 section 3.2.8).
pub const MIN_FRAME_LEN: usize = 60;

/// A 48-bit MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Broadcast, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Group address (multicast or broadcast): lowest bit of the first byte.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// `00:00:00:00:00:00`.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// 01:80:c2:00:00:00 to :0f, which a bridge never forwards (IEEE 802.1Q table 8-1).
    #[must_use]
    pub const fn is_link_local_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
    }

    /// The address as the low 48 bits of an integer, first byte highest.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no MAC address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a MAC address; write six hex bytes with colons, like 02:00:00:00:0a:01")]
pub struct MacParseError(String);

impl FromStr for Mac {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, MacParseError> {
        let error = || MacParseError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            let part = part.ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        parts.next().is_none().then_some(Self(bytes)).ok_or_else(error)
    }
}

/// EtherType in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// ARP.
    pub const ARP: Self = Self(0x0806);

    /// 802.1Q, 802.1ad or the old QinQ tag.
    #[must_use]
    pub const fn is_vlan(self) -> bool {
        matches!(self.0, 0x8100 | 0x88a8 | 0x9100)
    }
}

/// An Ethernet header: destination, source, EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination MAC.
    pub dst: Mac,
    /// Source MAC.
    pub src: Mac,
    /// EtherType, or the TPID of a tag.
    pub ethertype: EtherType,
}

impl Header {
    /// Reads the first 14 bytes; `None` when there are fewer.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (dst, rest) = bytes.first_chunk::<HEADER_LEN>()?.split_first_chunk::<6>()?;
        let (src, ethertype) = rest.split_first_chunk::<6>()?;
        Some(Self {
            dst: Mac(*dst),
            src: Mac(*src),
            ethertype: EtherType(u16::from_be_bytes(*ethertype.first_chunk()?)),
        })
    }
}

/// Writes destination and source MAC of a frame. Does nothing to one that is cut.
#[inline]
pub fn set_macs(frame: &mut [u8], dst: Mac, src: Mac) {
    if let Some(macs) = frame.first_chunk_mut::<12>() {
        let (d, s) = macs.split_at_mut(6);
        d.copy_from_slice(&dst.0);
        s.copy_from_slice(&src.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_text_round_trips_and_refuses_the_rest() {
        let mac: Mac = "02:00:0a:FF:00:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:0a:ff:00:01");
        for bad in
            ["", "02:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02-00-00-00-00-00", "+2:00:00:00:00:00"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn reserved_group_is_sixteen_addresses() {
        assert!(Mac([1, 0x80, 0xc2, 0, 0, 1]).is_link_local_reserved());
        assert!(!Mac([1, 0x80, 0xc2, 0, 0, 0x10]).is_link_local_reserved());
    }
}
