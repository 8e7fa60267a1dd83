//! Readers of `[[tenant]]` with its routes and rules.

use std::net::IpAddr;

use crate::tables::fib::Prefix;
use crate::tables::policy::{Action, Rule};
use crate::wire::ecn::Dscp;
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

use super::document::{At, Errors, Offset};
use super::draft::{culprit, with_fresh};
use super::error::Problem;
use super::fields::Fields;
use super::tenant::MAX_RULE_VALUES;
use super::value;
use super::value_tenant::{NumberRange, prefix, protocol, range, route_prefix};

const DEFAULT: &[(&str, Action)] = &[("allow", Action::Allow), ("deny", Action::Deny)];
const ACTION: &[(&str, Action)] =
    &[("allow", Action::Allow), ("deny", Action::Deny), ("count", Action::Count)];

/// Largest queue pair number, 24 bits.
const MAX_QP: u32 = 0x00ff_ffff;

/// Protocols with ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// UDP.
const UDP: u8 = 17;

#[derive(Debug)]
pub(super) struct TenantDraft {
    pub(super) at: Offset,
    pub(super) name: Option<At<String>>,
    pub(super) l3vni: Option<At<Vni>>,
    /// Whether an L3VNI is written, right or wrong.
    pub(super) has_l3vni: bool,
    pub(super) router_mac: Option<At<Mac>>,
    /// Whether a router MAC is written, right or wrong.
    pub(super) has_router_mac: bool,
    pub(super) peers: Vec<At<String>>,
    pub(super) default: Action,
    pub(super) routes: Vec<RouteDraft>,
    pub(super) rules: Vec<RuleDraft>,
}

#[derive(Debug)]
pub(super) struct RouteDraft {
    pub(super) prefix: Option<At<Prefix>>,
    /// `None` when it is wrong, which is reported.
    pub(super) target: Option<TargetDraft>,
}

#[derive(Debug)]
pub(super) enum TargetDraft {
    Peer(At<String>, Option<At<IpAddr>>),
    Leak(At<String>),
    Blackhole,
}

#[derive(Debug)]
pub(super) struct RuleDraft {
    pub(super) name: Option<At<String>>,
    /// `None` when it is wrong, which is reported.
    pub(super) rule: Option<Rule>,
}

/// Reads tenants into `drafts`, and routes and rules into the tenant that they belong to.
pub(super) fn tenants(
    drafts: &mut Vec<TenantDraft>,
    tables: Vec<Fields<'_>>,
    continued: bool,
    errors: &mut Errors<'_>,
) {
    for (mut f, fresh) in with_fresh(tables, continued) {
        if fresh {
            drafts.push(tenant(&mut f));
        }
        let routes = f.tables("route", "[[tenant.route]]");
        let rules = f.tables("rule", "[[tenant.rule]]");
        let Some(target) = drafts.last_mut() else {
            f.orphans("tenant", "route", routes);
            f.orphans("tenant", "rule", rules);
            f.finish(errors, String::new);
            continue;
        };
        let owner = culprit("tenant", target.name.as_ref());
        target.routes.extend(routes.into_iter().map(|fields| route(fields, &owner, errors)));
        for fields in rules {
            let number = target.rules.len() + 1;
            target.rules.push(rule(fields, &owner, number, errors));
        }
        f.finish(errors, || owner.clone());
    }
}

fn tenant(f: &mut Fields<'_>) -> TenantDraft {
    let has_router_mac = f.has("router_mac");
    let has_l3vni = f.has("l3vni");
    let draft = TenantDraft {
        at: f.at,
        name: f.required("name", value::name),
        l3vni: f.optional("l3vni", value::vni),
        has_l3vni,
        router_mac: f.optional("router_mac", value::station_mac),
        has_router_mac,
        peers: f.list("peers", value::reference).map_or_else(Vec::new, |list| list.value),
        default: f.optional("default", value::choice(DEFAULT)).map_or(Action::Allow, |v| v.value),
        routes: Vec::new(),
        rules: Vec::new(),
    };
    if let Some(first) = draft.peers.first()
        && !has_l3vni
    {
        f.problem(first.at, Problem::NoEffect { key: "peers", needs: "l3vni" });
    }
    draft
}

fn route(mut f: Fields<'_>, owner: &str, errors: &mut Errors<'_>) -> RouteDraft {
    let prefix = f.required("prefix", route_prefix);
    let given = ["peer", "leak", "blackhole"].into_iter().filter(|key| f.has(key)).count();
    if given != 1 {
        f.problem(f.at, Problem::RouteTarget(if given == 0 { "none" } else { "several" }));
    }
    let peer = f.optional("peer", value::reference);
    let leak = f.optional("leak", value::reference);
    let blackhole = f.optional("blackhole", value::boolean);
    let has_peer = peer.is_some();
    let encap_ip = f.optional("encap_ip", value::encap_ip);
    if let Some(ip) = encap_ip
        && !has_peer
    {
        f.problem(ip.at, Problem::NoEffect { key: "encap_ip", needs: "peer" });
    }
    if let Some(no) = blackhole
        && !no.value
    {
        f.problem(no.at, Problem::NoEffect { key: "blackhole", needs: "the value true" });
    }
    f.finish(errors, || route_culprit(owner, prefix));
    let target = match (peer, leak, blackhole) {
        _ if given != 1 => None,
        (Some(peer), ..) => Some(TargetDraft::Peer(peer, encap_ip)),
        (_, Some(leak), _) => Some(TargetDraft::Leak(leak)),
        (_, _, Some(_)) => Some(TargetDraft::Blackhole),
        _ => None,
    };
    RouteDraft { prefix, target }
}

/// How messages call a route.
pub(super) fn route_culprit(owner: &str, prefix: Option<At<Prefix>>) -> String {
    prefix.map_or_else(|| format!("{owner}, route"), |prefix| format!("{owner}, route {}", prefix.value))
}

fn rule(mut f: Fields<'_>, owner: &str, number: usize, errors: &mut Errors<'_>) -> RuleDraft {
    let name = f.optional("name", value::name);
    let action = f.required("action", value::choice(ACTION));
    let src = f.set("src", MAX_RULE_VALUES, prefix);
    let dst = f.set("dst", MAX_RULE_VALUES, prefix);
    let protocol = f.optional("protocol", protocol);
    let src_ports = f.set("src_ports", MAX_RULE_VALUES, range(u16::MAX));
    let dst_ports = f.set("dst_ports", MAX_RULE_VALUES, range(u16::MAX));
    let opcodes = f.set("roce_opcodes", MAX_RULE_VALUES, value::integer(0u8, u8::MAX));
    let qps = f.set("dest_qps", MAX_RULE_VALUES, range(MAX_QP));
    let dscps = f.set("dscps", MAX_RULE_VALUES, value::integer(0u8, 63));

    let families = |list: &[At<Prefix>], v4| list.is_empty() || list.iter().any(|p| is_v4(p.value) == v4);
    let common = |v4| families(&src, v4) && families(&dst, v4);
    if !common(true) && !common(false) {
        f.problem(f.at, Problem::Unmatchable("src and dst have no address family in common"));
    }
    if let Some(protocol) = protocol {
        let at = |list: &[At<NumberRange<u16>>]| list.first().map(|first| first.at);
        let needs_ports = [("src_ports", at(&src_ports)), ("dst_ports", at(&dst_ports))];
        let needs_udp =
            [("roce_opcodes", opcodes.first().map(|v| v.at)), ("dest_qps", qps.first().map(|v| v.at))];
        if !WITH_PORTS.contains(&protocol.value) {
            no_effect(&mut f, needs_ports, "protocol tcp, udp or sctp");
        }
        if protocol.value != UDP {
            no_effect(&mut f, needs_udp, "protocol udp");
        }
    }
    f.finish(errors, || rule_culprit(owner, name.as_ref(), number));
    let values = |list: Vec<At<Prefix>>| list.into_iter().map(|v| v.value).collect();
    let ends = |list: Vec<At<NumberRange<u16>>>| list.into_iter().map(|v| (v.value.0, v.value.1)).collect();
    let rule = action.map(|action| Rule {
        action: action.value,
        src: values(src),
        dst: values(dst),
        protocol: protocol.map(|protocol| protocol.value),
        src_ports: ends(src_ports),
        dst_ports: ends(dst_ports),
        roce_opcodes: opcodes.into_iter().map(|v| v.value).collect(),
        dest_qps: qps.into_iter().map(|v| (v.value.0, v.value.1)).collect(),
        dscps: dscps.into_iter().filter_map(|v| Dscp::new(v.value)).collect(),
    });
    RuleDraft { name, rule }
}

fn no_effect(f: &mut Fields<'_>, keys: [(&'static str, Option<Offset>); 2], needs: &'static str) {
    for (key, at) in keys {
        at.into_iter().for_each(|at| f.problem(at, Problem::NoEffect { key, needs }));
    }
}

fn is_v4(prefix: Prefix) -> bool {
    prefix.addr().is_ipv4()
}

/// How messages call a rule: by name, else by its place in the tenant, from 1.
pub(super) fn rule_culprit(owner: &str, name: Option<&At<String>>, number: usize) -> String {
    name.map_or_else(|| format!("{owner}, rule {number}"), |name| format!("{owner}, rule {}", name.value))
}
