//! A tenant's rules, compiled so that a packet's cost hardly grows with their number.
//!
//! Each field is cut into intervals in which the same rules match, and each interval has a bit for every rule. A packet's
//! value is found by binary search; the AND of its fields' vectors has the rules that match, the first one lowest. A
//! summary, one bit for each word of 64 rules, says which words can have a bit at all, so that no others are read.

mod dimension;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use arrayvec::ArrayVec;

use self::dimension::{Dimension, Ranges, WORD, bits_of, with_summary};
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
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
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

/// Rules in order, compiled, and what becomes of a packet that none decides.
///
/// Memory: a field takes 5 to 20 bytes for each border between values of different rules, and 8 bytes for each 64 rules
/// for each different set of rules that an interval has. 1000 rules that each name a subnet and a port range take 300 kB,
/// 100 take 7 kB; 1000 whose subnets and ports all differ and overlap can take four times that. The cost of a packet grows
/// with the logarithm of the borders; words of rules that cannot match are not read.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Box<[(RuleId, Action)]>,
    /// The vector with every rule: what fields that no rule names would say.
    all: Box<[u64]>,
    src: Addresses,
    dst: Addresses,
    protocol: Option<Dimension<u8>>,
    src_port: Option<Dimension<u16>>,
    dst_port: Option<Dimension<u16>>,
    roce_opcode: Option<Dimension<u8>>,
    dest_qp: Option<Dimension<u32>>,
    dscp: Option<Dimension<u8>>,
    default: Action,
}

/// Fields that rules can name, and the vector with every rule.
const VECTORS: usize = 9;

impl Policy {
    /// Compiles rules. `default` is `Allow` or `Deny`. Rule ids index counters.
    #[must_use]
    pub fn new(rules: Vec<(RuleId, Rule)>, default: Action) -> Self {
        let src_ports = ranges(&rules, |rule| rule.src_ports.clone());
        let dst_ports = ranges(&rules, |rule| rule.dst_ports.clone());
        let same = |value: u8| (value, value);
        let opcodes = ranges(&rules, |rule| rule.roce_opcodes.iter().copied().map(same).collect());
        let dscps = ranges(&rules, |rule| rule.dscps.iter().map(|dscp| same(dscp.get())).collect());
        let protocols = ranges(&rules, |rule| rule.protocol.into_iter().map(same).collect());
        Self {
            all: with_summary(&bits_of(rules.iter().map(|_| true))).into(),
            src: Addresses::compile(&rules, |rule| &rule.src),
            dst: Addresses::compile(&rules, |rule| &rule.dst),
            protocol: Dimension::compile(&protocols),
            src_port: Dimension::compile(&src_ports),
            dst_port: Dimension::compile(&dst_ports),
            roce_opcode: Dimension::compile(&opcodes),
            dest_qp: Dimension::compile(&ranges(&rules, |rule| rule.dest_qps.clone())),
            dscp: Dimension::compile(&dscps),
            rules: rules.into_iter().map(|(id, rule)| (id, rule.action)).collect(),
            default,
        }
    }

    /// Whether the packet may pass. `hit` is told every rule that counts it and the one that decides.
    #[inline]
    #[must_use]
    pub fn allows(&self, fields: &Fields, mut hit: impl FnMut(RuleId)) -> bool {
        let vectors = self.vectors(fields);
        let and = |word: usize| vectors.iter().fold(!0, |bits, v| bits & v.get(word).copied().unwrap_or(0));
        let summaries = self.rules.len().div_ceil(WORD).div_ceil(WORD);
        for summary in 0..summaries {
            for word in ones(and(summary)).map(|bit| summary * WORD + bit) {
                for rule in ones(and(summaries + word)).map(|bit| word * WORD + bit) {
                    let Some((id, action)) = self.rules.get(rule) else { continue };
                    hit(*id);
                    if *action != Action::Count {
                        return *action == Action::Allow;
                    }
                }
            }
        }
        self.default == Action::Allow
    }

    /// Which rules each field leaves in the running.
    #[inline]
    fn vectors(&self, fields: &Fields) -> ArrayVec<&[u64], VECTORS> {
        let (src_port, dst_port) = fields.ports.unzip();
        let (opcode, qp) = fields.bth.unzip();
        let found = [
            self.src.find(fields.src),
            self.dst.find(fields.dst),
            self.protocol.as_ref().map(|d| d.find(Some(fields.protocol))),
            self.src_port.as_ref().map(|d| d.find(src_port)),
            self.dst_port.as_ref().map(|d| d.find(dst_port)),
            self.roce_opcode.as_ref().map(|d| d.find(opcode)),
            self.dest_qp.as_ref().map(|d| d.find(qp)),
            self.dscp.as_ref().map(|d| d.find(Some(fields.dscp.get()))),
        ];
        std::iter::once(&*self.all).chain(found.into_iter().flatten()).collect()
    }
}

/// Source or destination, of both families.
#[derive(Clone, Debug)]
struct Addresses {
    v4: Option<Dimension<u32>>,
    v6: Option<Dimension<u128>>,
}

impl Addresses {
    fn compile(rules: &[(RuleId, Rule)], prefixes: impl Fn(&Rule) -> &[Prefix]) -> Self {
        let (mut v4, mut v6): (Ranges<u32>, Ranges<u128>) = (Vec::new(), Vec::new());
        for (_, rule) in rules {
            // A rule with prefixes of one family names no address of the other, which is not the same as taking any.
            let is_named = !prefixes(rule).is_empty();
            let (mut ranges_v4, mut ranges_v6) = (Vec::new(), Vec::new());
            for prefix in prefixes(rule) {
                match (prefix.addr(), prefix.last()) {
                    (IpAddr::V4(first), IpAddr::V4(last)) => {
                        ranges_v4.push((first.to_bits(), last.to_bits()))
                    }
                    (IpAddr::V6(first), IpAddr::V6(last)) => {
                        ranges_v6.push((first.to_bits(), last.to_bits()))
                    }
                    _ => {}
                }
            }
            v4.push(is_named.then_some(ranges_v4));
            v6.push(is_named.then_some(ranges_v6));
        }
        Self { v4: Dimension::compile(&v4), v6: Dimension::compile(&v6) }
    }

    #[inline]
    fn find(&self, addr: IpAddr) -> Option<&[u64]> {
        match addr {
            IpAddr::V4(ip) => self.v4.as_ref().map(|d| d.find(Some(ip.to_bits()))),
            IpAddr::V6(ip) => self.v6.as_ref().map(|d| d.find(Some(ip.to_bits()))),
        }
    }
}

/// Offsets of the ones in a word, lowest first.
#[inline]
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then_some(word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// What each rule says of a field; an empty list is nothing.
fn ranges<T>(rules: &[(RuleId, Rule)], field: impl Fn(&Rule) -> Vec<(T, T)>) -> Ranges<T> {
    rules.iter().map(|(_, rule)| Some(field(rule)).filter(|named| !named.is_empty())).collect()
}
