//! The address plan: a pattern that says what the parts of an IPv4 address mean, like the rack, rail and GPU of a
//! station. It explains addresses to people and decides nothing.

use std::fmt;
use std::net::IpAddr;

/// A pattern over the 32 bits of an IPv4 address, read from the left. `10.{rack}.{rail}.{gpu}` names whole bytes;
/// `10.{rack:12}{rail:4}{gpu:8}` names as many bits as the number says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPlan {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A byte that must be as written.
    Literal(u8),
    /// A number of so many bits.
    Field { name: String, bits: u32 },
}

/// What an address says by the plan: names and numbers from left to right. Prints as `rack 3 rail 1 gpu 5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position<'p>(pub Vec<(&'p str, u32)>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{name} {value}")?;
        }
        Ok(())
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Neither a byte nor a name in braces.
    #[error("has {0:?} where a byte (0..=255) or a name in braces like {{rack}} or {{rack:12}} must be")]
    Part(String),
    /// A name that is too long or has other characters.
    #[error("names a part {0:?}; names have 1 to 32 letters, digits, '_' or '-'")]
    Name(String),
    /// A width that no part can have.
    #[error("gives {0} the width {1:?}, which is not in 1..=32")]
    Width(String, String),
    /// A name twice.
    #[error("names {0} twice")]
    Twice(String),
    /// A dot or a byte that does not stand between bytes.
    #[error("has a {what} at bit {bit}; one can only stand where a byte begins")]
    Unaligned {
        /// What stands there.
        what: &'static str,
        /// Where, from the left.
        bit: u32,
    },
    /// Too few or too many bits.
    #[error("describes {0} bits; an IPv4 address has 32")]
    Bits(u32),
    /// Nothing to decode.
    #[error("names no part")]
    NoField,
}

/// Longest name of a part.
const MAX_NAME: usize = 32;

impl AddressPlan {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it does not describe 32 bits with at least one named part, each name once.
    pub fn parse(pattern: &str) -> Result<Self, PlanError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut bit = 0u32;
        for (i, piece) in pattern.split('.').enumerate() {
            if i > 0 && !bit.is_multiple_of(8) {
                return Err(PlanError::Unaligned { what: "dot", bit });
            }
            let mut rest = piece;
            loop {
                let (part, after) = part(rest)?;
                if let Part::Field { name, .. } = &part
                    && parts.iter().any(|known| matches!(known, Part::Field { name: n, .. } if n == name))
                {
                    return Err(PlanError::Twice(name.clone()));
                }
                if matches!(part, Part::Literal(_)) && !bit.is_multiple_of(8) {
                    return Err(PlanError::Unaligned { what: "byte", bit });
                }
                bit = bit.saturating_add(part.bits());
                // Stops here, as a long text could name more parts than an address has bits.
                if bit > 32 {
                    return Err(PlanError::Bits(bit));
                }
                parts.push(part);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        if bit != 32 {
            return Err(PlanError::Bits(bit));
        }
        if !parts.iter().any(|part| matches!(part, Part::Field { .. })) {
            return Err(PlanError::NoField);
        }
        Ok(Self { parts })
    }

    /// What the parts of an address are. `None` when it is not of the plan: IPv6, or another byte than the pattern's.
    #[must_use]
    pub fn decode(&self, ip: IpAddr) -> Option<Position<'_>> {
        let IpAddr::V4(ip) = ip else { return None };
        // In the upper half, so that every shift is by less than the width.
        let mut rest = u64::from(ip.to_bits()) << 32;
        let mut found = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let value = u32::try_from(rest >> (64 - part.bits())).ok()?;
            rest <<= part.bits();
            match part {
                Part::Literal(byte) if u32::from(*byte) != value => return None,
                Part::Literal(_) => {}
                Part::Field { name, .. } => found.push((name.as_str(), value)),
            }
        }
        Some(Position(found))
    }
}

impl Part {
    fn bits(&self) -> u32 {
        match self {
            Self::Literal(_) => 8,
            Self::Field { bits, .. } => *bits,
        }
    }
}

/// The part that a text begins with, and the text behind it.
fn part(text: &str) -> Result<(Part, &str), PlanError> {
    let wrong = || PlanError::Part(text.chars().take(MAX_NAME).collect());
    let Some(inside) = text.strip_prefix('{') else {
        let end = text.find('{').unwrap_or(text.len());
        let (digits, rest) = text.split_at_checked(end).ok_or_else(wrong)?;
        // A byte and a name without a dot between them would read like one number.
        if !rest.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        return digits.parse().map(|byte| (Part::Literal(byte), rest)).map_err(|_| wrong());
    };
    let (field, rest) = inside.split_once('}').ok_or_else(wrong)?;
    let (name, width) = field.split_once(':').map_or((field, None), |(name, width)| (name, Some(width)));
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(legal) {
        return Err(PlanError::Name(name.chars().take(2 * MAX_NAME).collect()));
    }
    let bits = match width {
        None => 8,
        Some(width) => {
            let bits = Some(width).filter(|w| w.len() <= 2 && w.bytes().all(|b| b.is_ascii_digit()));
            let bits = bits.and_then(|w| w.parse().ok()).filter(|bits| (1..=32).contains(bits));
            bits.ok_or_else(|| PlanError::Width(name.to_owned(), width.chars().take(MAX_NAME).collect()))?
        }
    };
    Ok((Part::Field { name: name.to_owned(), bits }, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(pattern: &str, ip: &str) -> Option<String> {
        AddressPlan::parse(pattern).unwrap().decode(ip.parse().unwrap()).map(|position| position.to_string())
    }

    #[test]
    fn names_stand_for_bytes_or_for_bits() {
        assert_eq!(decoded("10.{rack}.{rail}.{gpu}", "10.3.1.5").as_deref(), Some("rack 3 rail 1 gpu 5"));
        let bits = "10.{rack:12}{rail:4}{gpu:8}";
        assert_eq!(decoded(bits, "10.171.205.7").as_deref(), Some("rack 2748 rail 13 gpu 7"));
        assert_eq!(decoded("{all:32}", "255.255.255.255").as_deref(), Some("all 4294967295"));
        assert_eq!(decoded("{a:1}{b:7}.0.0.{c}", "129.0.0.9").as_deref(), Some("a 1 b 1 c 9"));
    }

    #[test]
    fn another_byte_or_family_is_not_of_the_plan() {
        assert_eq!(decoded("10.{a}.{b}.{c}", "11.1.1.1"), None);
        assert_eq!(decoded("10.{a}.{b}.{c}", "fd00::1"), None);
    }

    #[test]
    fn every_wrong_pattern_says_why() {
        for (pattern, why) in [
            ("", "has \"\" where a byte (0..=255) or a name in braces like {rack} or {rack:12} must be"),
            ("10.{a}.{b}", "describes 24 bits; an IPv4 address has 32"),
            ("10.{a}.{b}.{c}.{d}", "describes 40 bits; an IPv4 address has 32"),
            ("10.1.2.3", "names no part"),
            ("256.{a}.{b}.{c}", "has \"256\" where"),
            ("10{a}.{b}.{c}", "has \"10{a}\" where"),
            ("{a}10.{b}.{c}", "describes"),
            ("10.{a:4}.{b:4}.{c}", "has a dot at bit 12; one can only stand where a byte begins"),
            ("{a:4}10.{b:4}{c:16}", "has a byte at bit 4; one can only stand where a byte begins"),
            ("10.{a}.{a}.{b}", "names a twice"),
            ("10.{a b}.{c}.{d}", "names a part \"a b\"; names have"),
            ("10.{}.{c}.{d}", "names a part \"\"; names have"),
            ("10.{a:0}{b:24}", "gives a the width \"0\", which is not in 1..=32"),
            ("{a:33}", "gives a the width \"33\""),
            ("{a:+8}.0.0.0", "gives a the width \"+8\""),
            ("10.{a.{b}.{c}", "has \"{a\" where"),
        ] {
            match AddressPlan::parse(pattern) {
                Err(error) => assert!(error.to_string().starts_with(why), "{pattern}: {error}"),
                Ok(plan) => assert_eq!(why, "describes", "{pattern}: {plan:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_pattern_makes_it_panic(pattern in "[0-9{}a-c:.]{0,24}", ip: [u8; 4]) {
            if let Ok(plan) = AddressPlan::parse(&pattern) {
                let _ = plan.decode(ip.into());
            }
        }

        #[test]
        fn the_numbers_are_the_bits_of_the_address(a in 1u32..31, ip: u32) {
            let plan = AddressPlan::parse(&format!("{{a:{a}}}{{b:{}}}", 32 - a)).unwrap();
            let position = plan.decode(IpAddr::V4(ip.into())).unwrap();
            prop_assert_eq!(position.0, [("a", ip >> (32 - a)), ("b", ip & (u32::MAX >> a))]);
        }
    }
}
