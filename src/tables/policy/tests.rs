//! The compiled policy against an interpreter that reads the rules one by one.

use proptest::prelude::*;

use super::*;
use crate::wire::ecn::Dscp;

/// What the documentation of [`Rule`] says, in its words.
fn matches(rule: &Rule, f: &Fields) -> bool {
    let in_prefixes =
        |prefixes: &[Prefix], addr| prefixes.is_empty() || prefixes.iter().any(|p| p.contains(addr));
    let in_ports = |ranges: &[(u16, u16)], port: Option<u16>| {
        ranges.is_empty()
            || port.is_some_and(|port| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)))
    };
    let in_qps = |qp: u32| rule.dest_qps.iter().any(|(first, last)| (*first..=*last).contains(&qp));
    in_prefixes(&rule.src, f.src)
        && in_prefixes(&rule.dst, f.dst)
        && rule.protocol.is_none_or(|protocol| protocol == f.protocol)
        && in_ports(&rule.src_ports, f.ports.map(|ports| ports.0))
        && in_ports(&rule.dst_ports, f.ports.map(|ports| ports.1))
        && (rule.roce_opcodes.is_empty()
            || f.bth.is_some_and(|(opcode, _)| rule.roce_opcodes.contains(&opcode)))
        && (rule.dest_qps.is_empty() || f.bth.is_some_and(|(_, qp)| in_qps(qp)))
        && (rule.dscps.is_empty() || rule.dscps.contains(&f.dscp))
}

fn interpret(rules: &[(RuleId, Rule)], default: Action, fields: &Fields) -> (bool, Vec<RuleId>) {
    let mut hits = Vec::new();
    for (id, rule) in rules.iter().filter(|(_, rule)| matches(rule, fields)) {
        hits.push(*id);
        if rule.action != Action::Count {
            return (rule.action == Action::Allow, hits);
        }
    }
    (default == Action::Allow, hits)
}

fn run(policy: &Policy, fields: &Fields) -> (bool, Vec<RuleId>) {
    let mut hits = Vec::new();
    (policy.allows(fields, |rule| hits.push(rule)), hits)
}

/// Few values, so that rules overlap and packets meet them; the ends of each field's range are among them.
fn addr() -> impl Strategy<Value = IpAddr> {
    let byte = || prop::sample::select(vec![0u8, 10, 127, 128, 255]);
    prop_oneof![
        prop::array::uniform4(byte()).prop_map(IpAddr::from),
        (byte(), byte(), byte())
            .prop_map(|(a, b, c)| [a, b, 0, 0, 0, 0, 0, c, 0, 0, 0, 0, 0, 0, 0, b].into()),
    ]
}

fn prefixes() -> impl Strategy<Value = Vec<Prefix>> {
    let prefix = (addr(), prop::sample::select(vec![0u8, 1, 8, 9, 16, 24, 31, 32, 64, 127, 128]));
    let prefix = prefix
        .prop_map(|(addr, len)| Prefix::new(addr, if addr.is_ipv4() { len.min(32) } else { len }).unwrap());
    prop_oneof![3 => Just(Vec::new()), 4 => prop::collection::vec(prefix, 1..4)]
}

fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![0u16, 1, 80, 443, 444, 4791, 49152, 65534, 65535])
}

fn port_ranges() -> impl Strategy<Value = Vec<(u16, u16)>> {
    // Ranges that end before they begin are among them: they match nothing.
    prop_oneof![5 => Just(Vec::new()), 2 => prop::collection::vec((port(), port()), 1..4)]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0u8, 1, 6, 17, 255])
}

fn qp() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0u32, 1, 2, 0x11, 0xff_fffe, 0xff_ffff])
}

fn dscp() -> impl Strategy<Value = Dscp> {
    prop::sample::select(vec![0u8, 1, 26, 46, 63]).prop_map(|value| Dscp::new(value).unwrap())
}

fn opcode() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0u8, 4, 0x81, 255])
}

prop_compose! {
    fn rule()(
        action in prop::sample::select(vec![Action::Allow, Action::Deny, Action::Count, Action::Count]),
        (src, dst) in (prefixes(), prefixes()),
        protocol in prop_oneof![2 => Just(None), 1 => protocol().prop_map(Some)],
        (src_ports, dst_ports) in (port_ranges(), port_ranges()),
        roce_opcodes in prop_oneof![5 => Just(Vec::new()), 1 => prop::collection::vec(opcode(), 1..3)],
        dest_qps in prop_oneof![5 => Just(Vec::new()), 1 => prop::collection::vec((qp(), qp()), 1..3)],
        dscps in prop_oneof![5 => Just(Vec::new()), 1 => prop::collection::vec(dscp(), 1..4)],
    ) -> Rule {
        Rule { action, src, dst, protocol, src_ports, dst_ports, roce_opcodes, dest_qps, dscps }
    }
}

prop_compose! {
    fn fields()(
        (src, dst) in (addr(), addr()),
        protocol in protocol(),
        ports in prop::option::of((port(), port())),
        bth in prop::option::of((opcode(), qp())),
        dscp in dscp(),
    ) -> Fields {
        Fields { src, dst, protocol, ports, bth, dscp }
    }
}

/// Ids that are not positions.
fn numbered(rules: Vec<Rule>) -> Vec<(RuleId, Rule)> {
    (0..).map(|n| RuleId(1000u32.wrapping_sub(n))).zip(rules).collect()
}

fn any() -> Rule {
    let (src, dst) = (Vec::new(), Vec::new());
    let (src_ports, dst_ports) = (Vec::new(), Vec::new());
    let (roce_opcodes, dest_qps, dscps) = (Vec::new(), Vec::new(), Vec::new());
    Rule {
        action: Action::Allow,
        src,
        dst,
        protocol: None,
        src_ports,
        dst_ports,
        roce_opcodes,
        dest_qps,
        dscps,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_policy_does_what_its_rules_say_one_by_one(
        rules in prop_oneof![prop::collection::vec(rule(), 0..6), prop::collection::vec(rule(), 0..301)],
        packets in prop::collection::vec(fields(), 40),
        default in prop::sample::select(vec![Action::Allow, Action::Deny]),
    ) {
        let rules = numbered(rules);
        let policy = Policy::new(rules.clone(), default);
        for packet in packets {
            prop_assert_eq!(run(&policy, &packet), interpret(&rules, default, &packet), "{:?}", packet);
        }
    }
}

/// More rules than one summary word covers.
#[test]
fn the_first_of_ten_thousand_rules_that_matches_decides() {
    let host = |n: u32| IpAddr::from(n.to_be_bytes());
    let rules = (0..10_000).map(|n| Rule { dst: vec![Prefix::new(host(n), 32).unwrap()], ..any() });
    let policy = Policy::new(numbered(rules.collect()), Action::Deny);
    let packet = |n| Fields {
        src: host(0),
        dst: host(n),
        protocol: 17,
        ports: None,
        bth: None,
        dscp: Dscp::new(0).unwrap(),
    };
    for n in [0u32, 63, 64, 4095, 4096, 9999] {
        let id = RuleId(1000u32.wrapping_sub(n));
        assert_eq!(run(&policy, &packet(n)), (true, vec![id]), "{n}");
    }
    assert_eq!(run(&policy, &packet(10_000)), (false, Vec::new()));
}
