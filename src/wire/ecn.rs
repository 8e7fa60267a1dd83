//! DSCP and ECN: the two halves of the IPv4 TOS byte and the IPv6 traffic class, and what a tunnel does with ECN
//! (RFC 6040, which RFC 9601 makes the rule for VXLAN).

/// Differentiated services code point, 6 bits (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// `None` above 63.
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// The code point in a traffic class byte.
    #[must_use]
    pub const fn of_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }

    /// The number, 0 to 63.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The traffic class byte of this code point and `ecn`.
    #[must_use]
    pub const fn with(self, ecn: Ecn) -> u8 {
        self.0 << 2 | ecn as u8
    }
}

/// Explicit congestion notification, 2 bits (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN capable.
    NotEct = 0,
    /// ECN capable, ECT(1).
    Ect1 = 1,
    /// ECN capable, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The low two bits of a traffic class byte.
    #[must_use]
    pub const fn of_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// What the inner field becomes at decapsulation (RFC 6040 figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decap {
    /// Forward with this inner ECN.
    Set(Ecn),
    /// Forward with this inner ECN; the combination is one that the RFC asks to log.
    SetUnexpected(Ecn),
    /// Drop: CE on a packet whose transport could not hear it.
    Drop,
}

/// RFC 6040 section 4.2. Losing CE here would silence DCQCN: a NIC sends CNPs for CE in the inner header only.
#[must_use]
pub const fn decap(inner: Ecn, outer: Ecn) -> Decap {
    use Decap::{Drop, Set, SetUnexpected};
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    match (inner, outer) {
        (NotEct, NotEct) => Set(NotEct),
        (NotEct, Ect0 | Ect1) => SetUnexpected(NotEct),
        (NotEct, Ce) => Drop,
        (Ect0, NotEct | Ect0) => Set(Ect0),
        (Ect0, Ect1) | (Ect1, NotEct | Ect1) => Set(Ect1),
        (Ect1, Ect0) => SetUnexpected(Ect1),
        (Ect0 | Ect1, Ce) | (Ce, NotEct | Ect0 | Ce) => Set(Ce),
        (Ce, Ect1) => SetUnexpected(Ce),
    }
}

#[cfg(test)]
mod tests {
    use super::Decap::{Drop, Set, SetUnexpected};
    use super::Ecn::{Ce, Ect0, Ect1, NotEct};
    use super::*;

    #[test]
    fn decap_follows_rfc_6040_figure_4() {
        // Rows: inner; columns: outer Not-ECT, ECT(0), ECT(1), CE.
        let table = [
            (NotEct, [Set(NotEct), SetUnexpected(NotEct), SetUnexpected(NotEct), Drop]),
            (Ect0, [Set(Ect0), Set(Ect0), Set(Ect1), Set(Ce)]),
            (Ect1, [Set(Ect1), SetUnexpected(Ect1), Set(Ect1), Set(Ce)]),
            (Ce, [Set(Ce), Set(Ce), SetUnexpected(Ce), Set(Ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                assert_eq!(decap(inner, outer), expected, "inner {inner:?} outer {outer:?}");
            }
        }
    }

    #[test]
    fn dscp_and_ecn_split_and_join_the_byte() {
        for tos in 0..=255u8 {
            assert_eq!(Dscp::of_tos(tos).with(Ecn::of_tos(tos)), tos);
        }
        assert_eq!(Dscp::new(64), None);
    }
}
