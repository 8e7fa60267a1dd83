//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type 1, code 1, checksum 2, 4 bytes that depend on the type. And where ICMPv6
//! is in a packet whose extension headers may hide it.

use super::checksum::Sum;
use super::ipv6;

/// IP protocol number of ICMP.
pub const PROTOCOL_V4: u8 = 1;
/// Next header of ICMPv6.
pub const PROTOCOL_V6: u8 = 58;
/// Length of an ICMP or ICMPv6 header.
pub const HEADER_LEN: usize = 8;

/// ICMP echo reply.
pub const ECHO_REPLY: u8 = 0;
/// ICMP destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// ICMP echo request.
pub const ECHO_REQUEST: u8 = 8;
/// ICMP time exceeded.
pub const TIME_EXCEEDED: u8 = 11;

/// ICMPv6 destination unreachable.
pub const UNREACHABLE_V6: u8 = 1;
/// ICMPv6 packet too big.
pub const TOO_BIG_V6: u8 = 2;
/// ICMPv6 time exceeded.
pub const TIME_EXCEEDED_V6: u8 = 3;
/// ICMPv6 echo request.
pub const ECHO_REQUEST_V6: u8 = 128;
/// ICMPv6 echo reply.
pub const ECHO_REPLY_V6: u8 = 129;

/// Whether an ICMP message is an error, about which no error is sent (RFC 1122 section 3.2.2).
#[must_use]
pub const fn is_error_v4(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Whether an ICMPv6 message is an error or a redirect, about which no error is sent (RFC 4443 section 2.4 e).
#[must_use]
pub const fn is_error_v6(kind: u8) -> bool {
    kind < 128 || kind == super::nd::REDIRECT
}

/// Makes a reply of an echo request: another type, and the checksum corrected by the difference (RFC 1624 equation 3),
/// as the data may continue elsewhere. Does nothing to a message that is cut.
pub fn set_kind(message: &mut [u8], kind: u8) {
    let [old, code, c0, c1, ..] = message else { return };
    let sum = Sum::ZERO.bytes(&[!*c0, !*c1]).without([*old, *code]).bytes(&[kind, *code]);
    // The difference cannot tell a message of zeros, whose checksum is 0xffff, from one that adds up to that, where 0xffff
    // is as right as 0.
    [*c0, *c1] = sum.finish_udp();
    *old = kind;
}

/// Header of a message whose data, and for ICMPv6 pseudo-header, has this sum.
#[must_use]
pub fn header(kind: u8, code: u8, rest: [u8; 4], data: Sum) -> [u8; HEADER_LEN] {
    let [r0, r1, r2, r3] = rest;
    let [c0, c1] = data.bytes(&[kind, code, 0, 0]).bytes(&rest).finish();
    [kind, code, c0, c1, r0, r1, r2, r3]
}

/// What an IPv6 packet carries, as far as ICMPv6 is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// An ICMPv6 message, or its first piece.
    Icmp {
        /// Its offset from the start of the fixed header.
        offset: usize,
        /// There is a fragment header in front of it, even one that makes no fragment of it.
        fragmented: bool,
    },
    /// A later piece of a packet, which has no upper-layer header.
    LaterFragment,
    /// Something else.
    Other,
    /// The chain of headers is cut, or longer than anybody needs.
    Unclear,
}

/// Extension headers that [`carried_v6`] walks.
const MAX_WALKED: usize = 16;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Walks every extension header that a host may skip, other than [`ipv6::upper_layer`], which stops where the datapath
/// needs no more. What hides behind them is what a filter must see (RFC 7113 section 3).
#[must_use]
pub fn carried_v6(l3: &[u8], next_header: u8) -> Carried {
    let (mut next, mut offset, mut fragmented) = (next_header, ipv6::HEADER_LEN, false);
    for walked in 0..=MAX_WALKED {
        let is_extension = matches!(
            next,
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6
        );
        if next == PROTOCOL_V6 {
            return Carried::Icmp { offset, fragmented };
        }
        if !is_extension {
            return Carried::Other;
        }
        let header = l3.get(offset..).and_then(|b| b.first_chunk::<8>()).filter(|_| walked < MAX_WALKED);
        let Some([following, len, f0, f1, ..]) = header else { return Carried::Unclear };
        let len = usize::from(*len);
        offset += match next {
            FRAGMENT if u16::from_be_bytes([*f0, *f1]) & 0xfff8 != 0 => return Carried::LaterFragment,
            FRAGMENT => 8,
            // In units of 4 bytes less 2 (RFC 4302 section 2.2).
            AUTHENTICATION => len * 4 + 8,
            _ => len * 8 + 8,
        };
        fragmented |= next == FRAGMENT;
        next = *following;
    }
    Carried::Unclear
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_gives_the_checksum_of_the_reply() {
        for (request, reply) in [(ECHO_REQUEST, ECHO_REPLY), (ECHO_REQUEST_V6, ECHO_REPLY_V6)] {
            for fill in 0..=255 {
                let data = Sum::ZERO.bytes(&[fill; 5]);
                let mut message = header(request, 0, [0, fill, 0, fill], data);
                set_kind(&mut message, reply);
                assert!(Sum::ZERO.bytes(&message).plus(data).is_valid(), "data {fill}");
                assert_eq!(message[0], reply);
            }
        }
    }

    fn packet(next: u8, headers: &[&[u8]]) -> Carried {
        let l3 = [&[0; 40], headers.concat().as_slice()].concat();
        carried_v6(&l3, next)
    }

    #[test]
    fn icmpv6_is_found_behind_any_extension_header() {
        let plain = |next: u8| [next, 0, 0, 0, 0, 0, 0, 0];
        for kind in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS, MOBILITY, HIP, SHIM6] {
            let found = packet(kind, &[&plain(PROTOCOL_V6)]);
            assert_eq!(found, Carried::Icmp { offset: 48, fragmented: false }, "{kind}");
        }
        let found = packet(FRAGMENT, &[&plain(ROUTING), &plain(PROTOCOL_V6)]);
        assert_eq!(found, Carried::Icmp { offset: 56, fragmented: true });
        assert_eq!(packet(17, &[]), Carried::Other);
        assert_eq!(packet(FRAGMENT, &[&[PROTOCOL_V6, 0, 0, 8, 0, 0, 0, 0]]), Carried::LaterFragment);
    }

    #[test]
    fn a_chain_that_is_cut_or_endless_is_unclear() {
        assert_eq!(packet(HOP_BY_HOP, &[&[PROTOCOL_V6, 0, 0]]), Carried::Unclear);
        assert_eq!(
            packet(DESTINATION_OPTIONS, &[&[DESTINATION_OPTIONS, 200, 0, 0, 0, 0, 0, 0]]),
            Carried::Unclear
        );
        assert_eq!(packet(HOP_BY_HOP, &[&[0; 1600]]), Carried::Unclear);
    }
}
