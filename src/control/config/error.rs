//! What can be wrong with a configuration file. Every error names the file, the line and the culprit.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::wire::ethernet::{Mac, MacParseError};
use crate::wire::vxlan::Vni;

use super::suggest::Hint;

/// Why a configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file was read and is wrong.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
}

/// Everything that is wrong with one file, by line. Never empty.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, as the user named it.
    pub file: String,
    /// The errors, by line.
    pub errors: Vec<ConfigError>,
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line in the file, from 1.
    pub line: usize,
    /// What it concerns, like `network blue`; empty for the file itself.
    pub culprit: String,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{}: {error}", self.file, error.line)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.culprit.is_empty() {
            return self.problem.fmt(f);
        }
        write!(f, "{}: {}", self.culprit, self.problem)
    }
}

/// What is wrong, without file, line and culprit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// More text than can be addressed.
    #[error("the file is larger than 4 GiB")]
    TooLarge,
    /// A section nobody reads.
    #[error("unknown section [{key}]{hint}")]
    UnknownSection {
        /// As written.
        key: String,
        /// The nearest legal one.
        hint: Hint,
    },
    /// A key nobody reads.
    #[error("unknown key {key}{hint}")]
    UnknownKey {
        /// As written.
        key: String,
        /// The nearest legal one.
        hint: Hint,
    },
    /// A key that must be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A key's value is not legal.
    #[error("{key} {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value's problem.
        problem: ValueProblem,
    },
    /// A section is not written as a table or an array of tables.
    #[error("write {0}, not a single value")]
    Shape(&'static str),
    /// A section that may appear once appears again.
    #[error("this section appears twice")]
    SectionTwice,
    /// An endpoint without a peer.
    #[error("[[peer.endpoint]] needs a [[peer]] above it")]
    EndpointWithoutPeer,
    /// Two things share what must be unique.
    #[error("{key} {value} is already used by {owner} (line {line})")]
    Duplicate {
        /// Which key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Who has it.
        owner: String,
        /// Where.
        line: usize,
    },
    /// A list names the same thing twice.
    #[error("{key} lists {value} twice")]
    ListedTwice {
        /// Which key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A reference to nothing.
    #[error("{key}: no {kind} is called {name}{hint}")]
    UnknownReference {
        /// Which key.
        key: &'static str,
        /// What it refers to.
        kind: &'static str,
        /// As written.
        name: String,
        /// The nearest one that exists.
        hint: Hint,
    },
    /// The rest of a long list of problems.
    #[error("and {0} more problems like these")]
    More(usize),
    /// Too many of something.
    #[error("there are {count} {what}, more than the {max} supported")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// An empty list where something must be.
    #[error("{0} must list at least one")]
    Empty(&'static str),
    /// No uplink at all.
    #[error("there is no [[uplink]]: flowrail needs one to reach its peers")]
    NoUplink,
    /// Both or none of two exclusive keys.
    #[error("give either network (for VXLAN) or native (for un-encapsulated RoCEv2), not {0}")]
    PortRole(&'static str),
    /// A key that belongs to another setting.
    #[error("{key} has an effect only with {needs}")]
    NoEffect {
        /// The key.
        key: &'static str,
        /// The setting it belongs to.
        needs: &'static str,
    },
    /// A descriptor budget that the kernel refuses.
    #[error("tx_budget {budget} is above ring_size {ring_size}, which the kernel refuses")]
    TxBudget {
        /// Configured budget.
        budget: u32,
        /// Configured ring.
        ring_size: u32,
    },
    /// An underlay too small for the outer headers.
    #[error("mtu {mtu} is below {min}: {why}")]
    Mtu {
        /// As written.
        mtu: u16,
        /// Least legal.
        min: u16,
        /// Reason of the limit.
        why: &'static str,
    },
    /// A remote encap IP that is ours.
    #[error("encap IP {ip} is our own (uplink {uplink})")]
    PeerIsUs {
        /// The address.
        ip: IpAddr,
        /// Where we have it.
        uplink: String,
    },
    /// No uplink can reach a peer's encap IP.
    #[error("encap IP {ip} is unreachable: no uplink has an {family} encap IP")]
    NoUplinkOfFamily {
        /// The address.
        ip: IpAddr,
        /// Its family.
        family: &'static str,
    },
    /// An endpoint in a network that its peer is no member of.
    #[error("network {network} does not list {peer} in its peers")]
    PeerNotMember {
        /// The network.
        network: String,
        /// The peer.
        peer: String,
    },
    /// A pin to an address that the peer hasn't got.
    #[error("encap_ip {ip} is none of the peer's encap_ips")]
    ForeignEncapIp {
        /// The address.
        ip: IpAddr,
    },
    /// A MAC twice in one network.
    #[error("mac {mac} is already in network {network}: {owner} (line {line})")]
    MacTwice {
        /// The address.
        mac: Mac,
        /// The network.
        network: String,
        /// Who has it.
        owner: String,
        /// Where.
        line: usize,
    },
}

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
}
