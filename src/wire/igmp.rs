//! Reports and leaves of multicast groups: IGMP version 1 to 3 (RFC 1112, 2236, 3376), MLD version 1 and 2 (RFC 2710,
//! 3810). A source-specific membership counts as one of the group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::{Sum, pseudo_header};
use super::{icmp, ipv4, ipv6};

/// IP protocol number of IGMP.
pub const PROTOCOL: u8 = 2;

const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE_V2: u8 = 0x17;
const REPORT_V3: u8 = 0x22;
const MLD_QUERY: u8 = 130;
/// MLDv1 report.
pub const MLD_REPORT: u8 = 131;
/// MLDv1 done.
pub const MLD_DONE: u8 = 132;
/// MLDv2 report.
pub const MLD_REPORT_V2: u8 = 143;

/// Records of the two reports that have several start here, behind their number.
const RECORDS: usize = 8;

/// What a message changes, one group after the other. A query changes nothing, and so does a message that is cut, a
/// fragment, or wrong in checksum or IP header.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    single: Option<(IpAddr, bool)>,
    records: &'a [u8],
    left: u16,
    address_len: usize,
}

/// Reads an IPv4 packet; `None` when it is not IGMP.
#[must_use]
pub fn read_v4(l3: &[u8]) -> Option<Changes<'_>> {
    let ip = ipv4::Header::parse(l3).filter(|ip| ip.protocol == PROTOCOL)?;
    let message = l3.get(ip.header_len..usize::from(ip.total_len)).filter(|_| !ip.is_fragment());
    let message =
        message.filter(|m| ipv4::checksum_is_valid(l3, ip.header_len) && Sum::ZERO.bytes(m).is_valid());
    Some(message.and_then(igmp).unwrap_or(Changes::NONE))
}

fn igmp(message: &[u8]) -> Option<Changes<'_>> {
    let [kind, _, _, _, a, b, c, d, ..] = *message else { return None };
    let group = IpAddr::from([a, b, c, d]);
    match kind {
        REPORT_V1 | REPORT_V2 => Some(Changes::of(group, true)),
        LEAVE_V2 => Some(Changes::of(group, false)),
        REPORT_V3 => Changes::several(message, u16::from_be_bytes([c, d]), 4),
        _ => None,
    }
}

/// Reads an IPv6 packet; `None` when it is not MLD, which always has the router alert in a hop-by-hop header (RFC 3810
/// section 5).
#[must_use]
pub fn read_v6(l3: &[u8]) -> Option<Changes<'_>> {
    const HOP_BY_HOP: u8 = 0;
    let ip = ipv6::Header::parse(l3).filter(|ip| ip.next_header == HOP_BY_HOP)?;
    let upper = ipv6::upper_layer(l3, HOP_BY_HOP).filter(|upper| upper.protocol == icmp::PROTOCOL_V6)?;
    let message = l3.get(upper.offset..ipv6::HEADER_LEN + usize::from(ip.payload_len)).unwrap_or_default();
    let kind = *message.first()?;
    if upper.later_fragment || !matches!(kind, MLD_QUERY | MLD_REPORT | MLD_DONE | MLD_REPORT_V2) {
        return None;
    }
    let len = u32::try_from(message.len()).ok()?;
    let sum = pseudo_header(&ip.src, &ip.dst, icmp::PROTOCOL_V6, len).bytes(message);
    let src = Ipv6Addr::from(ip.src);
    // `::` until the sender has a link-local address (RFC 3590 section 4).
    let on_link = ip.hop_limit == 1 && (src.is_unicast_link_local() || src.is_unspecified());
    let right = on_link && !upper.first_fragment && sum.is_valid();
    Some(Some(message).filter(|_| right).and_then(mld).unwrap_or(Changes::NONE))
}

fn mld(message: &[u8]) -> Option<Changes<'_>> {
    let [kind, _, _, _, _, _, n0, n1, rest @ ..] = message else { return None };
    let group = || Some(IpAddr::from(*rest.first_chunk::<16>()?));
    match *kind {
        MLD_REPORT => Some(Changes::of(group()?, true)),
        MLD_DONE => Some(Changes::of(group()?, false)),
        MLD_REPORT_V2 => Changes::several(message, u16::from_be_bytes([*n0, *n1]), 16),
        _ => None,
    }
}

impl<'a> Changes<'a> {
    const NONE: Changes<'static> = Changes { single: None, records: &[], left: 0, address_len: 0 };

    fn of(group: IpAddr, joined: bool) -> Self {
        Self { single: Some((group, joined)), ..Changes::NONE }
    }

    fn several(message: &'a [u8], left: u16, address_len: usize) -> Option<Self> {
        Some(Self { single: None, records: message.get(RECORDS..)?, left, address_len })
    }

    /// Takes a record off: type 1, auxiliary words 1, number of sources 2, group, sources, auxiliary data. The outer `None`
    /// when it is cut; the inner one when it tells nothing about membership.
    fn record(&mut self) -> Option<Option<(IpAddr, bool)>> {
        let ([kind, auxiliary, s0, s1], rest) = self.records.split_first_chunk::<4>()?;
        let (group, rest) = rest.split_at_checked(self.address_len)?;
        let sources = usize::from(u16::from_be_bytes([*s0, *s1]));
        self.records = rest.get(sources * self.address_len + usize::from(*auxiliary) * 4..)?;
        let group = match group.first_chunk::<16>() {
            Some(group) => IpAddr::from(*group),
            None => IpAddr::from(*group.first_chunk::<4>()?),
        };
        // RFC 3376 section 4.2.12. Whether the last source is gone after a block (6), only the station knows: it goes on
        // to count until it leaves or falls silent.
        let joined = match (kind, sources) {
            (1 | 3, 0) => Some(false),
            (2 | 4, _) | (1 | 3 | 5, 1..) => Some(true),
            _ => None,
        };
        Some(joined.map(|joined| (group, joined)))
    }
}

/// A group, and whether the sender joined or left it.
impl Iterator for Changes<'_> {
    type Item = (IpAddr, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let is_group = |(group, _): &Self::Item| group.is_multicast();
        if let Some(single) = self.single.take() {
            return Some(single).filter(is_group);
        }
        while self.left > 0 {
            self.left -= 1;
            if let Some(change) = self.record()?.filter(is_group) {
                return Some(change);
            }
        }
        None
    }
}

/// Whether receivers of a group may be told apart: not for those that every station belongs to (224.0.0.0/24, RFC 4541
/// section 2.1.2; scopes up to link-local).
#[must_use]
pub const fn has_members(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(ip) => {
            ip.is_multicast() && ip.to_bits() >> 8 != Ipv4Addr::new(224, 0, 0, 0).to_bits() >> 8
        }
        IpAddr::V6(ip) => ip.is_multicast() && ip.to_bits() >> 112 & 0x0f > 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn v4(message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let sum = Sum::ZERO.bytes(&message).finish();
        message[2..4].copy_from_slice(&sum);
        // With the router alert option, as hosts send it.
        let len = u8::try_from(24 + message.len()).unwrap();
        let mut ip = vec![0x46, 0xc0, 0, len, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 5];
        ip.extend(GROUP.into_iter().chain([0x94, 4, 0, 0]));
        let sum = Sum::ZERO.bytes(&ip).finish();
        ip[10..12].copy_from_slice(&sum);
        [ip, message].concat()
    }

    fn changes_v4(message: &[u8]) -> Vec<(IpAddr, bool)> {
        read_v4(&v4(message)).unwrap().collect()
    }

    fn v6(message: &[u8], src: [u8; 16]) -> Vec<u8> {
        let dst = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16];
        let len = u16::try_from(message.len()).unwrap();
        let pseudo = pseudo_header(&src, &dst, 58, u32::from(len));
        let mut message = message.to_vec();
        let sum = pseudo.bytes(&message).finish();
        message[2..4].copy_from_slice(&sum);
        let ip = ipv6::encode(0, 8 + len, 0, 1, src, dst);
        [&ip, &[58, 0, 5, 2, 0, 0, 1, 0][..], &message].concat()
    }

    const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    #[test]
    fn version_1_and_2_name_one_group() {
        let group = IpAddr::from(GROUP);
        for (kind, expected) in [
            (REPORT_V1, vec![(group, true)]),
            (REPORT_V2, vec![(group, true)]),
            (LEAVE_V2, vec![(group, false)]),
            (0x11, vec![]),
        ] {
            assert_eq!(changes_v4(&[kind, 0, 0, 0, 239, 1, 2, 3]), expected, "type {kind:#x}");
        }
        assert_eq!(changes_v4(&[REPORT_V2, 0, 0, 0, 10, 1, 2, 3]), [], "no group address");
    }

    #[test]
    fn version_3_records_follow_rfc_3376_section_4_2_12() {
        let record = |kind: u8, sources: u8, last: u8| {
            let mut bytes = vec![kind, 1, 0, sources, 239, 0, 0, last];
            bytes.extend([10, 0, 0, 9].repeat(sources.into()));
            bytes.extend([0xaa; 4]); // auxiliary data
            bytes
        };
        let records = [(1, 0), (1, 2), (2, 0), (3, 0), (3, 1), (4, 1), (5, 1), (6, 1), (9, 1), (5, 0)];
        let mut message = vec![REPORT_V3, 0, 0, 0, 0, 0, 0, u8::try_from(records.len()).unwrap()];
        for (last, (kind, sources)) in (0..).zip(records) {
            message.extend(record(kind, sources, last));
        }
        let expected = [(0, false), (1, true), (2, true), (3, false), (4, true), (5, true), (6, true)];
        let expected = expected.map(|(last, joined)| (IpAddr::from([239, 0, 0, last]), joined));
        assert_eq!(changes_v4(&message), expected);
        message.truncate(8 + 12 + 10);
        assert_eq!(changes_v4(&message), expected[..1], "the second record is cut");
    }

    #[test]
    fn mld_version_1_and_2_are_read_behind_the_router_alert() {
        let group: [u8; 16] = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3];
        let read = |message: &[u8], src| read_v6(&v6(message, src)).unwrap().collect::<Vec<_>>();
        for (kind, joined) in [(MLD_REPORT, true), (MLD_DONE, false)] {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0], &group[..]].concat();
            assert_eq!(read(&message, LINK_LOCAL), [(group.into(), joined)]);
            assert_eq!(read(&message, [0; 16]), [(group.into(), joined)], "RFC 3590 section 4");
            let mut global = LINK_LOCAL;
            global[0] = 0x20;
            assert_eq!(read(&message, global), [], "RFC 3810 section 5.2.13");
        }
        let records = [&[4, 0, 0, 0], &group[..], &[3, 0, 0, 0], &group[..]].concat();
        let message = [&[MLD_REPORT_V2, 0, 0, 0, 0, 0, 0, 2], &records[..]].concat();
        assert_eq!(read(&message, LINK_LOCAL), [(group.into(), true), (group.into(), false)]);
        let query = [&[MLD_QUERY, 0, 0, 0, 0, 0, 0, 0], &group[..]].concat();
        assert_eq!(read(&query, LINK_LOCAL), []);
        let mut routed = v6(&message, LINK_LOCAL);
        routed[7] = 64;
        assert_eq!(read_v6(&routed).unwrap().count(), 0, "RFC 3810 section 5: hop limit 1");
    }

    #[test]
    fn a_wrong_checksum_or_a_fragment_changes_nothing() {
        let report = v4(&[REPORT_V2, 0, 0, 0, 239, 1, 2, 3]);
        for (at, value) in [(24 + 7, 9), (20 - 1, 9), (6, 0x20)] {
            let mut broken = report.clone();
            broken[at] = value;
            assert_eq!(read_v4(&broken).unwrap().count(), 0, "byte {at}");
        }
        let mut udp = report;
        udp[9] = 17;
        assert!(read_v4(&udp).is_none());
    }

    #[test]
    fn groups_of_every_station_are_not_told_apart() {
        for (group, expected) in [
            ("224.0.0.251", false),
            ("224.0.1.1", true),
            ("239.1.1.1", true),
            ("10.0.0.1", false),
            ("ff02::16", false),
            ("ff01::1", false),
            ("ff05::1:3", true),
            ("ff1e::1", true),
            ("fd00::1", false),
        ] {
            assert_eq!(has_members(group.parse().unwrap()), expected, "{group}");
        }
    }
}
