//! Readers of single values: TOML value in, legal value or problem out.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use toml::de::DeValue;

use crate::wire::ecn::Dscp;
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

use super::error::ValueProblem;
use super::fields::{printable, text, type_name};
use super::model::{InterfaceName, VlanId};
use super::settings::EncapDscp;

type Result<T> = std::result::Result<T, ValueProblem>;

/// An integer within `min..=max`, as the type the bounds have.
pub(super) fn integer<T>(min: T, max: T) -> impl Fn(DeValue<'_>) -> Result<T>
where
    T: Copy + TryFrom<u64> + Into<u64>,
{
    move |value| {
        let (text, number) = integer_text(&value)?;
        number
            .filter(|n| (min.into()..=max.into()).contains(n))
            .and_then(|n| T::try_from(n).ok())
            .ok_or(ValueProblem::Range { value: text, min: min.into(), max: max.into() })
    }
}

/// A power of two within `min..=max`.
pub(super) fn power_of_two(min: u32, max: u32) -> impl Fn(DeValue<'_>) -> Result<u32> {
    let read = integer(min, max);
    move |value| {
        let number = read(value)?;
        if number.is_power_of_two() { Ok(number) } else { Err(ValueProblem::PowerOfTwo(number.into())) }
    }
}

/// An integer as written, and its value when that is not negative and fits.
pub(super) fn integer_text(value: &DeValue<'_>) -> Result<(String, Option<u64>)> {
    let DeValue::Integer(number) = value else {
        return Err(ValueProblem::Type { wanted: "an integer", found: type_name(value) });
    };
    let digits = number.as_str().replace('_', "");
    Ok((printable(&number.to_string()), u64::from_str_radix(&digits, number.radix()).ok()))
}

/// A core's number. The kernel supports at most 8192 (`CONFIG_NR_CPUS`).
pub(super) fn core(value: DeValue<'_>) -> Result<usize> {
    integer(0u16, 8191)(value).map(usize::from)
}

/// A VNI.
pub(super) fn vni(value: DeValue<'_>) -> Result<Vni> {
    let (text, number) = integer_text(&value)?;
    let vni = number.and_then(|n| u32::try_from(n).ok()).and_then(Vni::new);
    vni.ok_or(ValueProblem::Vni(text))
}

/// A VLAN number.
pub(super) fn vlan(value: DeValue<'_>) -> Result<VlanId> {
    let number = integer(1u16, 4094)(value)?;
    VlanId::new(number).ok_or(ValueProblem::Range { value: number.to_string(), min: 1, max: 4094 })
}

/// `true` or `false`.
pub(super) fn boolean(value: DeValue<'_>) -> Result<bool> {
    match value {
        DeValue::Boolean(on) => Ok(on),
        other => Err(ValueProblem::Type { wanted: "true or false", found: type_name(&other) }),
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(DeValue<'_>) -> Result<T> {
    move |value| {
        let word = text(value)?;
        let found = words.iter().find(|(known, _)| *known == word).map(|&(_, meaning)| meaning);
        found.ok_or_else(|| no_choice(&format!("\"{}\"", printable(&word)), words, None))
    }
}

/// DSCP of outer headers: `"copy"`, or a number.
pub(super) fn encap_dscp(value: DeValue<'_>) -> Result<EncapDscp> {
    const WORDS: &[(&str, EncapDscp)] = &[("copy", EncapDscp::Copy)];
    match value {
        DeValue::Integer(_) => {
            let number = integer(0u8, 63)(value)?;
            let range = ValueProblem::Range { value: number.to_string(), min: 0, max: 63 };
            Dscp::new(number).map(EncapDscp::Set).ok_or(range)
        }
        DeValue::String(_) => choice(WORDS)(value).map_err(|problem| match problem {
            ValueProblem::Choice { value, .. } => no_choice(&value, WORDS, Some(63)),
            other => other,
        }),
        other => Err(ValueProblem::Type { wanted: "\"copy\" or an integer", found: type_name(&other) }),
    }
}

pub(super) fn no_choice<T>(value: &str, words: &[(&str, T)], max: Option<u8>) -> ValueProblem {
    let words = words.iter().map(|(word, _)| format!("\"{word}\""));
    let number = max.map(|max| format!("0..={max}"));
    let choices = words.chain(number).collect::<Vec<_>>().join(", ");
    ValueProblem::Choice { value: value.to_owned(), choices }
}

/// A duration like `"256us"` within `min..=max`.
pub(super) fn duration(min: Duration, max: Duration) -> impl Fn(DeValue<'_>) -> Result<Duration> {
    move |value| {
        let word = match value {
            DeValue::String(word) => word,
            // A bare number is the likely slip, and its unit cannot be guessed.
            DeValue::Integer(number) => return Err(ValueProblem::Duration(printable(number.as_str()))),
            other => return Err(ValueProblem::Type { wanted: "a duration", found: type_name(&other) }),
        };
        let time = parse_duration(&word).ok_or_else(|| ValueProblem::Duration(printable(&word)))?;
        if (min..=max).contains(&time) {
            return Ok(time);
        }
        let [min, max] = [min, max].map(|d| DurationText(d).to_string());
        Err(ValueProblem::DurationRange { value: printable(&word), min, max })
    }
}

/// Reads a whole number with a unit; `None` when it is none or too large.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(split)?;
    let nanos_per_unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(nanos_per_unit).map(Duration::from_nanos)
}

/// Writes a duration the way it is configured: the largest unit that leaves a whole number.
#[derive(Clone, Copy, Debug)]
pub struct DurationText(pub Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
        let (unit, size) =
            units.into_iter().find(|&(_, size)| nanos.is_multiple_of(size)).unwrap_or(("ns", 1));
        write!(f, "{}{unit}", nanos / size)
    }
}

/// One station's MAC: neither group nor zero.
pub(super) fn station_mac(value: DeValue<'_>) -> Result<Mac> {
    let mac: Mac = text(value)?.parse()?;
    let what = if mac == Mac::BROADCAST {
        "the broadcast address"
    } else if mac.is_group() {
        "a multicast address"
    } else if mac.is_zero() {
        "all zero"
    } else {
        return Ok(mac);
    };
    Err(ValueProblem::MacKind { mac, what })
}

/// An address that a host can have.
pub(super) fn host_ip(value: DeValue<'_>) -> Result<IpAddr> {
    let word = text(value)?;
    let ip: IpAddr = word.parse().map_err(|_| ValueProblem::Ip(printable(&word)))?;
    match no_host(ip) {
        Some(what) => Err(ValueProblem::IpKind { ip, what }),
        None => Ok(ip),
    }
}

/// Why no host can have an address.
pub(super) fn no_host(ip: IpAddr) -> Option<&'static str> {
    let mapped = matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    let kinds = [
        (ip.is_unspecified(), "the unspecified address"),
        (ip.is_loopback(), "a loopback address"),
        (ip.is_multicast(), "a multicast address"),
        (broadcast, "the broadcast address"),
        (mapped, "an IPv4 address in IPv6 form"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}

/// An address that outer headers can carry: unlike a next hop's it must mean the same on every link.
pub(super) fn encap_ip(value: DeValue<'_>) -> Result<IpAddr> {
    let ip = host_ip(value)?;
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Err(ValueProblem::IpKind { ip, what: "a link-local address" })
        }
        _ => Ok(ip),
    }
}

/// A name for counters and commands.
pub(super) fn name(value: DeValue<'_>) -> Result<String> {
    let word = text(value)?;
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=64).contains(&word.len()) && word.bytes().all(legal) {
        return Ok(word.into_owned());
    }
    Err(ValueProblem::Name(printable(&word)))
}

/// The name of something defined elsewhere; whether it exists is found out later.
pub(super) fn reference(value: DeValue<'_>) -> Result<String> {
    text(value).map(std::borrow::Cow::into_owned)
}

/// A network device's name.
pub(super) fn interface(value: DeValue<'_>) -> Result<InterfaceName> {
    let word = text(value)?;
    InterfaceName::new(&word).ok_or_else(|| ValueProblem::Interface(printable(&word)))
}

/// Path of a Unix socket: absolute, and short enough for `sockaddr_un`.
pub(super) fn socket_path(value: DeValue<'_>) -> Result<std::path::PathBuf> {
    const MAX_LEN: usize = 107;
    let word = text(value)?;
    if word.starts_with('/') && word.len() <= MAX_LEN && !word.contains('\0') {
        return Ok(std::path::PathBuf::from(word.into_owned()));
    }
    Err(ValueProblem::SocketPath(printable(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(parse_duration("256us"), Some(Duration::from_micros(256)));
        assert_eq!(parse_duration("1s"), Some(Duration::from_secs(1)));
        for bad in
            ["", "1", "s", "1.5s", "-1s", "1 s", "1m", "99999999999999999999s", "18446744073709551615s"]
        {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_print_as_they_are_written() {
        for text in ["256us", "1s", "1500ms", "7ns", "0s"] {
            assert_eq!(DurationText(parse_duration(text).unwrap()).to_string(), text);
        }
    }
}
