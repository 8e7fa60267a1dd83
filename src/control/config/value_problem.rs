//! What can be wrong with one value of a configuration file.

use std::net::IpAddr;

use crate::control::plan::PlanError;
use crate::tables::fib::Prefix;
use crate::wire::ethernet::{Mac, MacParseError};
use crate::wire::vxlan::Vni;

/// What is wrong with one value; read after the key's name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// Another type.
    #[error("must be {wanted}, not {found}")]
    Type {
        /// What it must be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// Out of range.
    #[error("{value} is not in {min}..={max}")]
    Range {
        /// As written.
        value: String,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Not a power of two.
    #[error("{0} is not a power of two")]
    PowerOfTwo(u64),
    /// A VNI above 24 bits, or negative.
    #[error("{0} does not fit in 24 bits (0..={max})", max = Vni::MAX)]
    Vni(String),
    /// None of a few words or numbers.
    #[error("{value} is none of {choices}")]
    Choice {
        /// As written.
        value: String,
        /// What it may be.
        choices: String,
    },
    /// No duration.
    #[error("{0:?} is no duration; write a whole number with ns, us, ms or s, like \"256us\"")]
    Duration(String),
    /// A duration out of range.
    #[error("{value} is not in {min}..={max}")]
    DurationRange {
        /// As written.
        value: String,
        /// Least.
        min: String,
        /// Most.
        max: String,
    },
    /// No MAC address.
    #[error(transparent)]
    Mac(#[from] MacParseError),
    /// A group or zero MAC where one station's must be.
    #[error("{mac} is {what}; it must be one station's own address")]
    MacKind {
        /// The address.
        mac: Mac,
        /// What it is.
        what: &'static str,
    },
    /// No IP address.
    #[error("{0:?} is no IP address; write it without prefix length, like \"10.0.0.1\" or \"fd00::1\"")]
    Ip(String),
    /// An IP address that no host can have.
    #[error("{ip} is {what}, which cannot be used here")]
    IpKind {
        /// The address.
        ip: IpAddr,
        /// What it is.
        what: &'static str,
    },
    /// A name with characters that counters and commands cannot carry.
    #[error("{0:?} must be 1 to 64 letters, digits, '.', '_' or '-'")]
    Name(String),
    /// A name that no network device can have.
    #[error("{0:?} cannot be a network device: 1 to 15 characters, no space, no '/' and no ':'")]
    Interface(String),
    /// A relative or over-long socket path.
    #[error("{0:?} must be an absolute path of at most 107 bytes")]
    SocketPath(String),
    /// No prefix.
    #[error("{0:?} is no prefix; write an address with its length, like \"10.0.0.0/24\" or \"fd00::/64\"")]
    Prefix(String),
    /// A prefix with bits that do not count.
    #[error("{written} has bits beyond its length; write {prefix}")]
    PrefixBits {
        /// As written.
        written: String,
        /// What it stands for.
        prefix: Prefix,
    },
    /// A prefix that cannot be routed to.
    #[error("{prefix} is {what}, which is not routed")]
    PrefixKind {
        /// The prefix.
        prefix: Prefix,
        /// What it is.
        what: &'static str,
    },
    /// No gateway address.
    #[error(
        "{0:?} is no gateway address; write it with the length of its subnet, like \"10.0.0.254/24\" or \
         \"fd00::1/64\""
    )]
    Gateway(String),
    /// A gateway address that is not a host's in its subnet.
    #[error("{ip} is the {what} address of {subnet}; write the address that the gateway has in it")]
    GatewayEdge {
        /// The address.
        ip: IpAddr,
        /// What it is.
        what: &'static str,
        /// The subnet.
        subnet: Prefix,
    },
    /// A subnet without room, or all addresses there are.
    #[error("{0} is no subnet: its length must be 1..=31 for IPv4, 1..=127 for IPv6")]
    SubnetLength(String),
    /// No multicast group that could have receivers of its own.
    #[error(
        "{ip} is {what}; it must be a multicast group that stations join, like \"239.1.1.1\" or \"ff0e::1\""
    )]
    Group {
        /// The address.
        ip: IpAddr,
        /// What it is.
        what: &'static str,
    },
    /// A range that is none.
    #[error("{0:?} is no number and no range like \"1000-2000\"")]
    NumberRange(String),
    /// A range that ends before it begins.
    #[error("{0:?} ends before it begins")]
    EmptyRange(String),
    /// No address plan.
    #[error("{0:?} {1}")]
    AddressPlan(String, PlanError),
}
