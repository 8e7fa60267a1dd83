//! Neighbor discovery (RFC 4861), ICMPv6 types 133 to 137: solicitations and advertisements carry a target address at
//! offset 8, flags at 4, and options of 8-byte units; those of type 1 and 2 hold a MAC.

use super::checksum::pseudo_header;
use super::ethernet::Mac;
use super::{icmp, ipv6};

/// Router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// Router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Neighbor solicitation.
pub const SOLICITATION: u8 = 135;
/// Neighbor advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// Redirect.
pub const REDIRECT: u8 = 137;

/// Advertisement: the sender is a router.
pub const ROUTER: u8 = 0x80;
/// Advertisement: an answer to a solicitation.
pub const SOLICITED: u8 = 0x40;
/// Advertisement: overrides what the receiver has cached.
pub const OVERRIDE: u8 = 0x20;

/// `ff02::1`.
pub const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Hop limit of every message: no router forwarded it.
const HOP_LIMIT: u8 = 255;
/// Length of a solicitation or advertisement without options.
const NEIGHBOR_LEN: usize = 24;
/// Length of an advertisement with the target's MAC, and of its IPv6 packet.
const ADVERTISEMENT_LEN: u16 = 32;
/// Length of what [`advertisement`] makes.
pub const PACKET_LEN: usize = 72;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// ICMPv6 type.
    pub kind: u8,
    /// Flags of an advertisement.
    pub flags: u8,
    /// Target of a solicitation or advertisement; else `::`.
    pub target: [u8; 16],
    /// MAC of the link-layer address options.
    pub mac: Option<Mac>,
}

impl Message {
    /// Reads a whole message of one of the five types. `None` when it is cut, an option has no length (RFC 4861 section
    /// 4.6), or its link-layer addresses are no MACs or not one: receivers would differ about what it says.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let [kind, _, _, _, flags, ..] = *message else { return None };
        let fixed_len = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            SOLICITATION | ADVERTISEMENT => NEIGHBOR_LEN,
            REDIRECT => 40,
            _ => return None,
        };
        let (fixed, options) = message.split_at_checked(fixed_len)?;
        let target = match kind {
            SOLICITATION | ADVERTISEMENT => *fixed.get(8..)?.first_chunk()?,
            _ => [0; 16],
        };
        Some(Self { kind, flags, target, mac: link_layer_address(options)? })
    }

    /// A message that RFC 4861 sections 7.1.1 and 7.1.2 let a node process, with its IPv6 header. `None` for any other,
    /// for other types than solicitation and advertisement, and behind extension headers, which nobody sends.
    #[must_use]
    pub fn receive(l3: &[u8]) -> Option<(ipv6::Header, Self)> {
        let ip = ipv6::Header::parse(l3).filter(|ip| ip.next_header == icmp::PROTOCOL_V6)?;
        let bytes = l3.get(ipv6::HEADER_LEN..)?.get(..usize::from(ip.payload_len))?;
        let [kind, code, ..] = *bytes else { return None };
        if ip.hop_limit != HOP_LIMIT || code != 0 || !matches!(kind, SOLICITATION | ADVERTISEMENT) {
            return None;
        }
        let pseudo = pseudo_header(&ip.src, &ip.dst, icmp::PROTOCOL_V6, u32::from(ip.payload_len));
        if !pseudo.bytes(bytes).is_valid() {
            return None;
        }
        let message = Self::parse(bytes)?;
        let may_be = match kind {
            SOLICITATION => ip.src != [0; 16] || is_solicited_node(ip.dst) && message.mac.is_none(),
            _ => ip.dst[0] != 0xff || message.flags & SOLICITED == 0,
        };
        (may_be && message.target[0] != 0xff).then_some((ip, message))
    }
}

/// The MAC of link-layer address options; the outer `None` for options that are wrong.
fn link_layer_address(mut options: &[u8]) -> Option<Option<Mac>> {
    let mut mac = None;
    while let [kind, units, ..] = *options {
        if units == 0 {
            return None;
        }
        let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
        if matches!(kind, 1 | 2) {
            let [_, _, a, b, c, d, e, f] = *option else { return None };
            let this = Mac([a, b, c, d, e, f]);
            if *mac.get_or_insert(this) != this {
                return None;
            }
        }
        options = rest;
    }
    options.is_empty().then_some(mac)
}

/// The group that solicitations for an address go to (RFC 4291 section 2.7.1).
#[must_use]
pub const fn solicited_node(addr: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = addr;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

fn is_solicited_node(group: [u8; 16]) -> bool {
    group == solicited_node(group)
}

/// The Ethernet address of an IPv6 group (RFC 2464 section 7).
#[must_use]
pub const fn group_mac(group: [u8; 16]) -> Mac {
    let [.., a, b, c, d] = group;
    Mac([0x33, 0x33, a, b, c, d])
}

/// An IPv6 packet, 72 bytes, that tells `dst`: `target` is at `mac`.
#[must_use]
pub fn advertisement(dst: [u8; 16], target: [u8; 16], flags: u8, mac: Mac) -> [u8; PACKET_LEN] {
    let ip = ipv6::encode(0, ADVERTISEMENT_LEN, icmp::PROTOCOL_V6, HOP_LIMIT, target, dst);
    let [a, b, c, d, e, f] = mac.0;
    let option = [2, 1, a, b, c, d, e, f];
    let pseudo = pseudo_header(&target, &dst, icmp::PROTOCOL_V6, u32::from(ADVERTISEMENT_LEN));
    let header = icmp::header(ADVERTISEMENT, 0, [flags, 0, 0, 0], pseudo.bytes(&target).bytes(&option));
    let mut packet = [0; PACKET_LEN];
    let bytes = ip.into_iter().chain(header).chain(target).chain(option);
    packet.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const TARGET: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56];
    const OPTION: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 1];

    fn solicitation(options: &[u8]) -> Vec<u8> {
        [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0], &TARGET[..], options].concat()
    }

    #[test]
    fn an_advertisement_is_valid_by_its_own_rules() {
        let packet = advertisement(ALL_NODES, TARGET, ROUTER | OVERRIDE, MAC);
        let (ip, message) = Message::receive(&packet).unwrap();
        assert_eq!((ip.src, ip.dst, ip.hop_limit), (TARGET, ALL_NODES, 255));
        assert_eq!(message, Message { kind: ADVERTISEMENT, flags: 0xa0, target: TARGET, mac: Some(MAC) });
        // RFC 4861 section 7.1.2: to a group, S must be clear.
        assert_eq!(Message::receive(&advertisement(ALL_NODES, TARGET, SOLICITED, MAC)), None);
    }

    #[test]
    fn options_without_length_cut_or_at_odds_are_refused() {
        let mac = |options: &[u8]| Message::parse(&solicitation(options)).map(|m| m.mac);
        assert_eq!(mac(&[]), Some(None));
        assert_eq!(mac(&OPTION), Some(Some(MAC)));
        assert_eq!(mac(&[&[14, 1, 0, 0, 0, 0, 0, 0], &OPTION[..]].concat()), Some(Some(MAC)));
        let mut other = OPTION;
        other[7] = 9;
        assert_eq!(mac(&[OPTION, other].concat()), None, "two MACs");
        assert_eq!(mac(&[OPTION, OPTION].concat()), Some(Some(MAC)));
        assert_eq!(mac(&[14, 0, 0, 0, 0, 0, 0, 0]), None, "RFC 4861 section 4.6: length zero");
        assert_eq!(mac(&OPTION[..7]), None);
        assert_eq!(mac(&[1]), None);
        assert_eq!(mac(&[[1, 2, 2, 0, 0, 0, 0, 1], [0; 8]].concat()), None, "no MAC of 14 bytes");
    }

    #[test]
    fn groups_have_their_addresses() {
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56];
        assert_eq!(solicited_node(TARGET), group);
        assert_eq!(group_mac(group), Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        assert!(is_solicited_node(group) && !is_solicited_node(ALL_NODES));
    }
}
