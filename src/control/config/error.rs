//! What can be wrong with a configuration file. Every error names the file, the line and the culprit.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::tables::fib::Prefix;
use crate::wire::ethernet::Mac;

use super::suggest::Hint;
pub use super::value_problem::ValueProblem;

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
    /// More or fewer than one of the keys that say what a port is for.
    #[error(
        "give one of network (for VXLAN), [[port.vlan]] (for several networks) and native (for un-encapsulated \
         RoCEv2), not {0}"
    )]
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
    /// A nested table without the table that it belongs to.
    #[error("[[{parent}.{child}]] needs a [[{parent}]] above it")]
    Orphan {
        /// The table above.
        parent: &'static str,
        /// The nested table.
        child: &'static str,
    },
    /// What a tenant or network is cannot do without the key.
    #[error("{key} is missing: {why}")]
    Needed {
        /// The key.
        key: &'static str,
        /// What needs it.
        why: String,
    },
    /// More or fewer than one of the keys that say where a route leads.
    #[error("give one of peer, leak and blackhole, not {0}")]
    RouteTarget(&'static str),
    /// A route of a tenant back to itself.
    #[error("leak: a tenant cannot leak to itself")]
    LeakToSelf,
    /// A route to a peer that may not send the L3VNI.
    #[error(
        "{peer} is no member of the L3VNI: list it in the peers of tenant {tenant} or of one of its networks"
    )]
    PeerNotInTenant {
        /// The peer.
        peer: String,
        /// The tenant.
        tenant: String,
    },
    /// A route to a peer whose router MAC is unknown.
    #[error("peer {0} has no router_mac, which routed packets need")]
    PeerWithoutRouterMac(String),
    /// Our router MAC is a peer's too.
    #[error(
        "router_mac {mac} is also that of peer {peer} (line {line}), whose packets would be taken for our own"
    )]
    RouterMacOfPeer {
        /// The address.
        mac: Mac,
        /// The peer.
        peer: String,
        /// Where.
        line: usize,
    },
    /// Two networks of a tenant with common addresses.
    #[error("subnet {subnet} overlaps {other} of {owner} (line {line}), which belongs to the same tenant")]
    SubnetOverlap {
        /// The subnet.
        subnet: Prefix,
        /// The other.
        other: Prefix,
        /// Whose it is.
        owner: String,
        /// Where.
        line: usize,
    },
    /// A station's address that its network's gateway does not reach.
    #[error("ip {ip} is in no subnet of {networks}")]
    IpOutside {
        /// The address.
        ip: IpAddr,
        /// The networks and the subnets of their gateways.
        networks: String,
    },
    /// An address that a trunk cannot give to one of its networks.
    #[error("ip {ip} could be in {networks}: give all but one of them a gateway with other subnets")]
    IpAmbiguous {
        /// The address.
        ip: IpAddr,
        /// The networks.
        networks: String,
    },
    /// An address that no station of a subnet can have.
    #[error("ip {ip} is the {what} address of subnet {subnet}")]
    SubnetEdge {
        /// The address.
        ip: IpAddr,
        /// What it is.
        what: &'static str,
        /// The subnet.
        subnet: Prefix,
    },
    /// A receiver that is not part of the group's network.
    #[error("{key}: {name} is not in network {network}")]
    NotInNetwork {
        /// Which key.
        key: &'static str,
        /// The port or peer.
        name: String,
        /// The network.
        network: String,
    },
    /// A group that says nothing of its receivers.
    #[error("give ports, peers or both; an empty list means that nobody gets the group")]
    GroupWithoutReceivers,
    /// A rule that no packet can match.
    #[error("no packet can match: {0}")]
    Unmatchable(&'static str),
}
