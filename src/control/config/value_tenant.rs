//! Readers of the values that tenants bring: prefixes, gateways, groups, the fields of rules.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use toml::de::DeValue;

use crate::control::plan::AddressPlan;
use crate::tables::fib::Prefix;

use super::error::ValueProblem;
use super::fields::{printable, text, type_name};
use super::tenant::{GatewayAddress, is_link_local};
use super::value::{choice, integer, no_choice, no_host};

type Result<T> = std::result::Result<T, ValueProblem>;

/// The pattern of an address plan.
pub(super) fn plan(value: DeValue<'_>) -> Result<AddressPlan> {
    let word = text(value)?;
    AddressPlan::parse(&word).map_err(|why| ValueProblem::AddressPlan(printable(&word), why))
}

/// A prefix whose bits beyond the length are zero.
pub(super) fn prefix(value: DeValue<'_>) -> Result<Prefix> {
    let word = text(value)?;
    let wrong = || ValueProblem::Prefix(printable(&word));
    let (addr, len) = split(&word).ok_or_else(wrong)?;
    let prefix = Prefix::new(addr, len).ok_or_else(wrong)?;
    if prefix.addr() == addr {
        Ok(prefix)
    } else {
        Err(ValueProblem::PrefixBits { written: printable(&word), prefix })
    }
}

/// A prefix that packets can be routed to.
pub(super) fn route_prefix(value: DeValue<'_>) -> Result<Prefix> {
    let prefix = prefix(value)?;
    // Shorter prefixes than these kinds' own, like a default route, only contain them.
    let what = match prefix.addr() {
        ip if ip.is_multicast() => "multicast",
        ip if ip.is_loopback() => "loopback",
        ip if is_link_local(ip) => "link-local",
        _ => return Ok(prefix),
    };
    Err(ValueProblem::PrefixKind { prefix, what })
}

/// Address and length of a text like `10.0.0.0/24`.
fn split(word: &str) -> Option<(IpAddr, u8)> {
    let (addr, len) = word.split_once('/')?;
    let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    Some((addr.parse().ok()?, len.parse().ok().filter(|_| digits)?))
}

/// A gateway's address with its subnet.
pub(super) fn gateway(value: DeValue<'_>) -> Result<GatewayAddress> {
    let word = text(value)?;
    let wrong = || ValueProblem::Gateway(printable(&word));
    let (ip, len) = split(&word).ok_or_else(wrong)?;
    let subnet = Prefix::new(ip, len).ok_or_else(wrong)?;
    if let Some(what) = no_host(ip) {
        return Err(ValueProblem::IpKind { ip, what });
    }
    if is_link_local(ip) {
        return Err(ValueProblem::IpKind { ip, what: "a link-local address" });
    }
    if len == 0 || subnet.is_host() {
        return Err(ValueProblem::SubnetLength(printable(&word)));
    }
    match edge(ip, subnet) {
        Some(what) => Err(ValueProblem::GatewayEdge { ip, what, subnet }),
        None => Ok(GatewayAddress { ip, subnet }),
    }
}

/// What else than a station's an address of a subnet is: its first (RFC 4291 section 2.6.1 for IPv6), or IPv4's last.
/// A subnet of two addresses has neither (RFC 3021, RFC 6164).
pub(super) fn edge(ip: IpAddr, subnet: Prefix) -> Option<&'static str> {
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    if subnet.len() + 1 >= bits || !subnet.contains(ip) {
        return None;
    }
    let last = match ip {
        IpAddr::V4(ip) => ip.to_bits() | u32::MAX >> subnet.len() == ip.to_bits(),
        IpAddr::V6(_) => false,
    };
    match ip {
        IpAddr::V4(_) if ip == subnet.addr() => Some("network"),
        IpAddr::V6(_) if ip == subnet.addr() => Some("subnet-router anycast"),
        _ if last => Some("broadcast"),
        _ => None,
    }
}

/// A multicast group that stations join.
pub(super) fn group(value: DeValue<'_>) -> Result<IpAddr> {
    let word = text(value)?;
    let ip: IpAddr = word.parse().map_err(|_| ValueProblem::Ip(printable(&word)))?;
    let what = match ip {
        _ if !ip.is_multicast() => "no multicast address",
        // RFC 4541 section 2.1.2: forwarded on every port.
        IpAddr::V4(v4) if v4.octets().starts_with(&[224, 0, 0]) => "for everyone on a link",
        IpAddr::V6(v6) if v6 == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) => "for everyone on a link",
        IpAddr::V6(v6) if v6.octets().get(1).is_some_and(|scope| scope & 0x0f <= 1) => "for one interface",
        _ => return Ok(ip),
    };
    Err(ValueProblem::Group { ip, what })
}

/// An IP protocol by name or number.
pub(super) fn protocol(value: DeValue<'_>) -> Result<u8> {
    const NAMES: &[(&str, u8)] = &[("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132)];
    match value {
        DeValue::Integer(_) => integer(0u8, u8::MAX)(value),
        DeValue::String(_) => choice(NAMES)(value).map_err(|problem| match problem {
            ValueProblem::Choice { value, .. } => no_choice(&value, NAMES, Some(u8::MAX)),
            other => other,
        }),
        other => Err(ValueProblem::Type { wanted: "a protocol's name or number", found: type_name(&other) }),
    }
}

/// First and last of consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NumberRange<T>(pub(super) T, pub(super) T);

impl<T: fmt::Display + PartialEq> fmt::Display for NumberRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { self.0.fmt(f) } else { write!(f, "{}-{}", self.0, self.1) }
    }
}

/// A number within `0..=max`, or a text like `"1000-2000"`.
pub(super) fn range<T>(max: T) -> impl Fn(DeValue<'_>) -> Result<NumberRange<T>>
where
    T: Copy + Default + PartialOrd + TryFrom<u64> + Into<u64>,
{
    move |value| {
        let word = match value {
            DeValue::String(word) => word,
            DeValue::Integer(_) => return integer(T::default(), max)(value).map(|n| NumberRange(n, n)),
            other => {
                let wanted = "a number or a range like \"1000-2000\"";
                return Err(ValueProblem::Type { wanted, found: type_name(&other) });
            }
        };
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| plain)
        };
        let ends = word.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?)));
        let (first, last) = ends.ok_or_else(|| ValueProblem::NumberRange(printable(&word)))?;
        let too_large = ValueProblem::Range { value: printable(&word), min: 0, max: max.into() };
        if last > max.into() {
            return Err(too_large);
        }
        match (T::try_from(first), T::try_from(last)) {
            (Ok(first), Ok(last)) if first <= last => Ok(NumberRange(first, last)),
            _ => Err(ValueProblem::EmptyRange(printable(&word))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_subnet_are_no_stations() {
        let edge = |ip: &str, subnet: &str| {
            let (addr, len) = split(subnet).unwrap();
            edge(ip.parse().unwrap(), Prefix::new(addr, len).unwrap())
        };
        assert_eq!(edge("10.0.0.0", "10.0.0.0/24"), Some("network"));
        assert_eq!(edge("10.0.0.255", "10.0.0.0/24"), Some("broadcast"));
        assert_eq!(edge("10.0.1.255", "10.0.0.0/16"), None);
        assert_eq!(edge("10.0.0.255", "10.0.1.0/24"), None);
        assert_eq!(edge("10.0.0.0", "10.0.0.0/31"), None);
        assert_eq!(edge("fd00::", "fd00::/64"), Some("subnet-router anycast"));
        assert_eq!(edge("fd00::ffff:ffff:ffff:ffff", "fd00::/64"), None);
        assert_eq!(edge("fd00::", "fd00::/127"), None);
    }
}
