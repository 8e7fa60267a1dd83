//! Tenants, gateways, trunks, groups, addresses: what a right file means, and every message that a wrong one can give.

use std::time::Duration;

use crate::control::config::*;
use crate::ids::{NetworkId, PortId, RuleId};
use crate::tables::fib::Prefix;
use crate::wire::ecn::Dscp;
use crate::wire::ethernet::Mac;

use super::errors;

/// A right file; tests break one place at a time. Lines are counted from 1.
pub(super) const RIGHT: &str = r#"[[uplink]]
interface = "eth1"
encap_ips = ["192.0.2.1"]
[address_plan]
pattern = "10.{rack}.{rail}.{gpu}"
[routing]
icmp_unreachable = "drop"
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:0a:fe"
peers = ["h9"]
default = "deny"
[[tenant.route]]
prefix = "10.101.0.0/16"
peer = "h2"
encap_ip = "198.51.100.2"
[[tenant.route]]
prefix = "10.9.0.0/16"
leak = "storage"
[[tenant.route]]
prefix = "0.0.0.0/0"
blackhole = true
[[tenant.rule]]
name = "no-telnet"
action = "deny"
src = ["10.1.0.0/16", "10.2.0.0/16"]
protocol = "tcp"
dst_ports = [23, "2300-2399"]
[[tenant.rule]]
action = "count"
dst = ["fd00::/16"]
protocol = "udp"
roce_opcodes = [4, 0x81]
dest_qps = [17, "16-31"]
dscps = [26]
[[tenant]]
name = "storage"
router_mac = "02:00:00:00:0b:fe"
[[network]]
name = "red-a"
vni = 100
peers = ["h2"]
tenant = "red"
gateway = ["10.100.255.254/16", "fd00:100::1/64"]
gateway_mac = "02:00:00:00:0a:fd"
learning = true
ageing = "60s"
mac_limit = 100
snooping = true
[[network.group]]
address = "239.1.1.1"
ports = ["gpu0", "trunk0"]
peers = ["h2"]
[[network]]
name = "red-b"
vni = 101
tenant = "red"
gateway = ["10.110.0.1/24"]
[[network]]
name = "store"
vni = 102
tenant = "storage"
gateway = ["10.9.0.1/24"]
[[port]]
name = "gpu0"
interface = "vf0"
network = "red-a"
macs = ["02:00:00:00:01:01", "02:00:00:00:01:02"]
ips = ["10.100.0.1", "fd00:100::a1", "fe80::1"]
spoofing = "accept"
[[port]]
interface = "trunk0"
macs = ["02:00:00:00:01:03"]
ips = ["10.110.0.9", "10.100.0.9"]
[[port.vlan]]
network = "red-a"
[[port.vlan]]
network = "red-b"
id = 20
[[peer]]
name = "h2"
encap_ips = ["192.0.2.2", "198.51.100.2"]
router_mac = "02:00:00:00:02:fe"
[[peer.endpoint]]
network = "red-a"
mac = "02:00:00:00:02:01"
ips = ["10.100.0.2", "fd00:100::2", "fe80::1:2"]
[[peer]]
name = "h9"
encap_ips = ["192.0.2.9"]
"#;

fn config() -> Config {
    Config::parse(RIGHT, "host.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// The errors after one edit, without the file's name.
#[track_caller]
fn errors_after(from: &str, to: &str) -> Vec<String> {
    assert!(RIGHT.contains(from), "{from}");
    let errors = errors(&RIGHT.replacen(from, to, 1));
    errors.iter().map(|error| error.strip_prefix("host.toml:").unwrap().to_owned()).collect()
}

#[track_caller]
fn expect(cases: &[(&str, &str, &[&str])]) {
    for (from, to, messages) in cases {
        assert_eq!(errors_after(from, to), *messages, "{from} → {to}");
    }
}

fn prefix(addr: &str, len: u8) -> Prefix {
    Prefix::new(addr.parse().unwrap(), len).unwrap()
}

#[test]
fn a_tenant_means_what_it_says() {
    let config = config();
    assert!(!config.routing.icmp_unreachable);
    let position = config.address_plan.as_ref().unwrap().decode("10.3.1.5".parse().unwrap()).unwrap();
    assert_eq!(position.to_string(), "rack 3 rail 1 gpu 5");
    let [red, storage] = config.tenants.as_slice() else { panic!("{:?}", config.tenants) };
    assert_eq!((red.l3vni.unwrap().get(), red.router_mac), (5000, Some(Mac([2, 0, 0, 0, 0x0a, 0xfe]))));
    assert_eq!((red.peers.as_slice(), red.default), ([PeerId(1)].as_slice(), Action::Deny));
    assert_eq!((storage.l3vni, storage.default), (None, Action::Allow));
    let targets: Vec<_> = red.routes.iter().map(|route| (route.prefix, route.target)).collect();
    assert_eq!(
        targets,
        [
            (prefix("10.101.0.0", 16), RouteTarget::Peer { peer: PeerId(0), encap_ip: 1 }),
            (prefix("10.9.0.0", 16), RouteTarget::Leak(TenantId(1))),
            (prefix("0.0.0.0", 0), RouteTarget::Blackhole),
        ]
    );
    assert_eq!(red.rules[0].name.as_deref(), Some("no-telnet"));
    let telnet = Rule {
        action: Action::Deny,
        src: vec![prefix("10.1.0.0", 16), prefix("10.2.0.0", 16)],
        dst: vec![],
        protocol: Some(6),
        src_ports: vec![],
        dst_ports: vec![(23, 23), (2300, 2399)],
        roce_opcodes: vec![],
        dest_qps: vec![],
        dscps: vec![],
    };
    assert_eq!(red.rules[0].rule, telnet);
    let roce = Rule {
        action: Action::Count,
        src: vec![],
        dst: vec![prefix("fd00::", 16)],
        protocol: Some(17),
        dst_ports: vec![],
        roce_opcodes: vec![4, 0x81],
        dest_qps: vec![(17, 17), (16, 31)],
        dscps: vec![Dscp::new(26).unwrap()],
        ..telnet
    };
    assert_eq!(red.rules[1], TenantRule { name: None, rule: roce });
}

#[test]
fn rules_are_numbered_over_the_whole_file() {
    let text = format!("{RIGHT}[[tenant]]\nname = \"third\"\n[[tenant.rule]]\naction = \"allow\"\n");
    let config = Config::parse(&text, "").unwrap();
    let numbers: Vec<_> = config.rules().map(|(rule, tenant, _)| (rule, tenant)).collect();
    let expected = [(0, 0), (1, 0), (2, 2)].map(|(rule, tenant)| (RuleId(rule), TenantId(tenant)));
    assert_eq!(numbers, expected);
}

#[test]
fn a_network_of_a_tenant_means_what_it_says() {
    let config = config();
    let [red_a, red_b, store] = config.networks.as_slice() else { panic!("{:?}", config.networks) };
    let gateway = red_a.gateway.as_ref().unwrap();
    assert_eq!(gateway.mac, Mac([2, 0, 0, 0, 0x0a, 0xfd]));
    let shown: Vec<_> = gateway.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.100.255.254/16", "fd00:100::1/64"]);
    assert_eq!(gateway.addresses[0].subnet, prefix("10.100.0.0", 16));
    assert_eq!(red_a.learning, Some(Learning { ageing: Duration::from_secs(60), mac_limit: 100 }));
    assert!(red_a.snooping && !red_b.snooping && red_b.learning.is_none());
    let group = Group {
        address: "239.1.1.1".parse().unwrap(),
        ports: vec![PortId(1), PortId(2)],
        peers: vec![PeerId(0)],
    };
    assert_eq!(red_a.groups, [group]);
    // Unless given, the gateway's MAC is the tenant's router MAC.
    assert_eq!(red_b.gateway.as_ref().unwrap().mac, Mac([2, 0, 0, 0, 0x0a, 0xfe]));
    assert_eq!((red_b.tenant, store.tenant), (Some(TenantId(0)), Some(TenantId(1))));
}

#[test]
fn ports_and_endpoints_have_addresses() {
    let config = config();
    let [gpu, trunk] = config.ports.as_slice() else { panic!("{:?}", config.ports) };
    assert_eq!((gpu.spoofing, trunk.spoofing), (Admit::Accept, Admit::Drop));
    let vlan = |id, network| VlanMember { vlan: id, network: NetworkId(network) };
    assert_eq!(trunk.role, PortRole::Trunk(vec![vlan(None, 0), vlan(VlanId::new(20), 1)]));
    assert_eq!(config.homes(trunk, trunk.ips[0]), [NetworkId(1)]);
    assert_eq!(config.homes(trunk, trunk.ips[1]), [NetworkId(0)]);
    assert_eq!(config.homes(trunk, "fe80::9".parse().unwrap()), [NetworkId(0), NetworkId(1)]);
    let addresses: Vec<_> = config.peers[0].addresses().map(|(e, ip)| (e.mac, ip.to_string())).collect();
    let mac = Mac([2, 0, 0, 0, 2, 1]);
    let expected = ["10.100.0.2", "fd00:100::2", "fe80::1:2"].map(|ip| (mac, ip.to_owned()));
    assert_eq!(addresses, expected);
    assert_eq!(config.peers[0].router_mac, Some(Mac([2, 0, 0, 0, 2, 0xfe])));
}

#[test]
fn ports_keep_the_numbers_they_run_with_and_their_groups() {
    let mut running = config();
    running.ports.reverse();
    let mut new = config();
    new.number_ports_as(&running);
    assert_eq!(new.port_names().collect::<Vec<_>>(), ["eth1", "trunk0", "gpu0"]);
    assert_eq!(new.networks[0].groups[0].ports, [PortId(2), PortId(1)]);

    // What is gone keeps its number, closed; what is new comes last; what returns has its old place.
    let mut without = config();
    without.ports.remove(0);
    without.networks.iter_mut().for_each(|network| network.groups.clear());
    let mut added = without.ports[0].clone();
    added.name = "gpu9".to_owned();
    without.ports.insert(0, added);
    without.number_ports_as(&running);
    let open: Vec<_> = without.ports.iter().map(|port| (port.name.as_str(), port.is_open())).collect();
    assert_eq!(open, [("trunk0", true), ("gpu0", false), ("gpu9", true)]);
    let mut again = config();
    again.number_ports_as(&without);
    let open: Vec<_> = again.ports.iter().map(|port| (port.name.as_str(), port.is_open())).collect();
    assert_eq!(open, [("trunk0", true), ("gpu0", true), ("gpu9", false)]);
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let text = "[[uplink]]\ninterface = \"e\"\nencap_ips = [\"192.0.2.1\"]\n[[tenant]]\nname = \"t\"\n\
                [[network]]\nname = \"n\"\nvni = 1\nlearning = true\n[[port]]\ninterface = \"p\"\nnetwork = \"n\"\n";
    let config = Config::parse(text, "").unwrap();
    assert!(config.routing.icmp_unreachable && config.address_plan.is_none());
    assert_eq!(
        config.networks[0].learning,
        Some(Learning { ageing: Duration::from_secs(300), mac_limit: 4096 })
    );
    assert_eq!((config.networks[0].tenant, config.ports[0].spoofing), (None, Admit::Drop));
}

#[test]
fn a_tenant_must_be_complete_and_its_own() {
    expect(&[
        (
            "name = \"storage\"\nr",
            "name = \"red\"\nr",
            &[
                "20: tenant red, route 10.9.0.0/16: leak: no tenant is called storage",
                "38: tenant red: name red is already used by tenant red (line 9)",
                "63: network store: tenant: no tenant is called storage",
            ],
        ),
        (
            "l3vni = 5000",
            "l3vni = 16777216",
            &["10: tenant red: l3vni 16777216 does not fit in 24 bits (0..=16777215)"],
        ),
        (
            "l3vni = 5000",
            "l3vni = 101",
            &["10: tenant red: vni 101 is already used by network red-b (line 57)"],
        ),
        (
            "l3vni = 5000\nrouter_mac = \"02:00:00:00:0a:fe\"",
            "l3vni = 5000",
            &["8: tenant red: router_mac is missing: the tenant has an l3vni"],
        ),
        (
            "router_mac = \"02:00:00:00:0b:fe\"\n",
            "",
            &["37: tenant storage: router_mac is missing: network store has a gateway"],
        ),
        (
            "0a:fe",
            "02:fe",
            &["11: tenant red: router_mac 02:00:00:00:02:fe is also that of peer h2 (line 84), whose \
                 packets would be taken for our own"],
        ),
        (
            "0a:fe",
            "02",
            &["11: tenant red: router_mac \"02:00:00:00:02\" is not a MAC address; write six hex bytes \
                 with colons, like 02:00:00:00:0a:01"],
        ),
        ("[\"h9\"]", "[\"h9\", \"h9\"]", &["12: tenant red: peers lists h9 twice"]),
        ("[\"h9\"]", "[\"h8\"]", &["12: tenant red: peers: no peer is called h8; did you mean h2?"]),
        (
            "default = \"deny\"",
            "default = \"count\"",
            &["13: tenant red: default \"count\" is none of \"allow\", \"deny\""],
        ),
        (
            "default = \"deny\"",
            "defualt = \"deny\"",
            &["13: tenant red: unknown key defualt; did you mean default?"],
        ),
        (
            "[[tenant]]\nname = \"storage\"",
            "[[tenat]]\nname = \"storage\"",
            &[
                "20: tenant red, route 10.9.0.0/16: leak: no tenant is called storage",
                "37: unknown section [tenat]; did you mean tenant?",
                "63: network store: tenant: no tenant is called storage",
            ],
        ),
    ]);
}

#[test]
fn without_an_l3vni_nothing_goes_to_peers() {
    expect(&[(
        "l3vni = 5000\n",
        "",
        &[
            "11: tenant red: peers has an effect only with l3vni",
            "15: tenant red, route 10.101.0.0/16: peer has an effect only with l3vni",
        ],
    )]);
}

#[test]
fn a_route_leads_to_one_place() {
    expect(&[
        (
            "10.101.0.0/16",
            "10.101.0.1/16",
            &["15: tenant red, route: prefix 10.101.0.1/16 has bits beyond its length; write \
                 10.101.0.0/16"],
        ),
        (
            "10.101.0.0/16",
            "10.101.0.0",
            &["15: tenant red, route: prefix \"10.101.0.0\" is no prefix; write an address with its \
                 length, like \"10.0.0.0/24\" or \"fd00::/64\""],
        ),
        (
            "10.101.0.0/16",
            "10.101.0.0/33",
            &["15: tenant red, route: prefix \"10.101.0.0/33\" is no prefix; write an address with its \
                 length, like \"10.0.0.0/24\" or \"fd00::/64\""],
        ),
        (
            "10.101.0.0/16",
            "10.101.0.0/+8",
            &["15: tenant red, route: prefix \"10.101.0.0/+8\" is no prefix; write an address with its \
                 length, like \"10.0.0.0/24\" or \"fd00::/64\""],
        ),
        (
            "10.101.0.0/16",
            "239.0.0.0/8",
            &["15: tenant red, route: prefix 239.0.0.0/8 is multicast, which is not routed"],
        ),
        (
            "10.101.0.0/16",
            "fe80::/64",
            &["15: tenant red, route: prefix fe80::/64 is link-local, which is not routed"],
        ),
        (
            "10.101.0.0/16",
            "127.0.0.0/8",
            &["15: tenant red, route: prefix 127.0.0.0/8 is loopback, which is not routed"],
        ),
        (
            "10.101.0.0/16",
            "10.9.0.0/16",
            &["19: tenant red, route 10.9.0.0/16: prefix 10.9.0.0/16 is already used by another \
                 route of this tenant (line 15)"],
        ),
        (
            "10.101.0.0/16",
            "10.100.0.0/16",
            &["15: tenant red, route 10.100.0.0/16: prefix 10.100.0.0/16 is already used by the \
                 gateway of network red-a (line 45)"],
        ),
        (
            "10.101.0.0/16",
            "10.100.255.254/32",
            &["15: tenant red, route 10.100.255.254/32: prefix 10.100.255.254/32 is already used by \
                 the gateway of network red-a (line 45)"],
        ),
        ("prefix = \"10.101.0.0/16\"\n", "", &["14: tenant red, route: prefix is missing"]),
        (
            "peer = \"h2\"\nencap_ip = \"198.51.100.2\"\n",
            "",
            &["14: tenant red, route 10.101.0.0/16: give one of peer, leak and blackhole, not none"],
        ),
        (
            "peer = \"h2\"\nencap",
            "peer = \"h2\"\nblackhole = true\nencap",
            &["14: tenant red, route 10.101.0.0/16: give one of peer, leak and blackhole, not \
                 several"],
        ),
        (
            "peer = \"h2\"\nencap_ip",
            "leak = \"storage\"\nencap_ip",
            &["17: tenant red, route 10.101.0.0/16: encap_ip has an effect only with peer"],
        ),
        (
            "peer = \"h2\"\nencap_ip",
            "peer = \"h3\"\nencap_ip",
            &["16: tenant red, route 10.101.0.0/16: peer: no peer is called h3; did you mean h2?"],
        ),
        (
            "peer = \"h2\"\nencap_ip = \"198.51.100.2\"",
            "peer = \"h9\"",
            &["16: tenant red, route 10.101.0.0/16: peer h9 has no router_mac, which routed packets \
                 need"],
        ),
        (
            "encap_ip = \"198.51.100.2\"",
            "encap_ip = \"198.51.100.3\"",
            &["17: tenant red, route 10.101.0.0/16: encap_ip 198.51.100.3 is none of the peer's \
                 encap_ips"],
        ),
        (
            "leak = \"storage\"",
            "leak = \"red\"",
            &["20: tenant red, route 10.9.0.0/16: leak: a tenant cannot leak to itself"],
        ),
        (
            "leak = \"storage\"",
            "leak = \"storrage\"",
            &["20: tenant red, route 10.9.0.0/16: leak: no tenant is called storrage; did you mean \
                 storage?"],
        ),
        (
            "blackhole = true",
            "blackhole = false",
            &["23: tenant red, route 0.0.0.0/0: blackhole has an effect only with the value true"],
        ),
        (
            "blackhole = true",
            "blackhole = 1",
            &["23: tenant red, route 0.0.0.0/0: blackhole must be true or false, not an integer"],
        ),
        (
            "blackhole = true",
            "blackhole = true\nmetric = 1",
            &["24: tenant red, route 0.0.0.0/0: unknown key metric"],
        ),
        (
            "peers = [\"h2\"]\ntenant",
            "tenant",
            &[
                "16: tenant red, route 10.101.0.0/16: h2 is no member of the L3VNI: list it in the \
                 peers of tenant red or of one of its networks",
                "53: network red-a, group 239.1.1.1: peers: h2 is not in network red-a",
                "86: peer h2, endpoint 02:00:00:00:02:01: network red-a does not list h2 in its peers",
            ],
        ),
    ]);
}

#[test]
fn a_rule_can_match() {
    expect(&[
        ("action = \"deny\"\nsrc", "src", &["24: tenant red, rule no-telnet: action is missing"]),
        (
            "action = \"count\"",
            "action = \"log\"",
            &["31: tenant red, rule 2: action \"log\" is none of \"allow\", \"deny\", \"count\""],
        ),
        (
            "name = \"no-telnet\"",
            "name = \"no telnet\"",
            &["25: tenant red, rule 1: name \"no telnet\" must be 1 to 64 letters, digits, '.', '_' or \
                 '-'"],
        ),
        (
            "action = \"count\"",
            "name = \"no-telnet\"\naction = \"count\"",
            &["31: tenant red, rule no-telnet: name no-telnet is already used by another rule of \
                 this tenant (line 25)"],
        ),
        (
            "[\"10.1.0.0/16\", \"10.2.0.0/16\"]",
            "[]",
            &["27: tenant red, rule no-telnet: src must list at least one"],
        ),
        (
            "\"10.2.0.0/16\"]",
            "\"10.1.0.0/16\"]",
            &["27: tenant red, rule no-telnet: src lists 10.1.0.0/16 twice"],
        ),
        (
            "\"10.2.0.0/16\"]",
            "\"10.2.0.0\"]",
            &["27: tenant red, rule no-telnet: src \"10.2.0.0\" is no prefix; write an address with \
                 its length, like \"10.0.0.0/24\" or \"fd00::/64\""],
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"ftp\"",
            &["28: tenant red, rule no-telnet: protocol \"ftp\" is none of \"tcp\", \"udp\", \"icmp\", \
                 \"icmpv6\", \"sctp\", 0..=255"],
        ),
        (
            "protocol = \"tcp\"",
            "protocol = 256",
            &["28: tenant red, rule no-telnet: protocol 256 is not in 0..=255"],
        ),
        (
            "protocol = \"tcp\"",
            "protocol = true",
            &["28: tenant red, rule no-telnet: protocol must be a protocol's name or number, not a \
                 boolean"],
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"icmp\"",
            &["29: tenant red, rule no-telnet: dst_ports has an effect only with protocol tcp, udp \
                 or sctp"],
        ),
        (
            "protocol = \"udp\"",
            "protocol = \"tcp\"",
            &[
                "34: tenant red, rule 2: roce_opcodes has an effect only with protocol udp",
                "35: tenant red, rule 2: dest_qps has an effect only with protocol udp",
            ],
        ),
        (
            "dst_ports = [23,",
            "dst_ports = [65536,",
            &["29: tenant red, rule no-telnet: dst_ports 65536 is not in 0..=65535"],
        ),
        (
            "\"2300-2399\"",
            "\"2399-2300\"",
            &["29: tenant red, rule no-telnet: dst_ports \"2399-2300\" ends before it begins"],
        ),
        (
            "\"2300-2399\"",
            "\"2300-65536\"",
            &["29: tenant red, rule no-telnet: dst_ports 2300-65536 is not in 0..=65535"],
        ),
        (
            "\"2300-2399\"",
            "\"2300\"",
            &["29: tenant red, rule no-telnet: dst_ports \"2300\" is no number and no range like \
                 \"1000-2000\""],
        ),
        (
            "\"2300-2399\"",
            "\"2300-\"",
            &["29: tenant red, rule no-telnet: dst_ports \"2300-\" is no number and no range like \
                 \"1000-2000\""],
        ),
        (
            "\"2300-2399\"",
            "true",
            &["29: tenant red, rule no-telnet: dst_ports must be a number or a range like \
                 \"1000-2000\", not a boolean"],
        ),
        ("\"2300-2399\"", "\"23-23\"", &["29: tenant red, rule no-telnet: dst_ports lists 23 twice"]),
        ("[4, 0x81]", "[4, 256]", &["34: tenant red, rule 2: roce_opcodes 256 is not in 0..=255"]),
        (
            "[17, \"16-31\"]",
            "[16777216]",
            &["35: tenant red, rule 2: dest_qps 16777216 is not in 0..=16777215"],
        ),
        ("[26]", "[64]", &["36: tenant red, rule 2: dscps 64 is not in 0..=63"]),
        ("[26]", "26", &["36: tenant red, rule 2: dscps must be an array, not an integer"]),
        (
            "protocol = \"tcp\"",
            "dst = [\"fd00::/16\"]\nprotocol = \"tcp\"",
            &["24: tenant red, rule no-telnet: no packet can match: src and dst have no address \
                 family in common"],
        ),
    ]);
}

#[test]
fn a_gateway_has_a_subnet_and_a_tenant() {
    expect(&[
        (
            "10.100.255.254/16",
            "10.100.255.254",
            &["45: network red-a: gateway \"10.100.255.254\" is no gateway address; write it with the \
                 length of its subnet, like \"10.0.0.254/24\" or \"fd00::1/64\""],
        ),
        (
            "10.100.255.254/16",
            "10.100.0.0/16",
            &["45: network red-a: gateway 10.100.0.0 is the network address of 10.100.0.0/16; write \
                 the address that the gateway has in it"],
        ),
        (
            "10.100.255.254/16",
            "10.100.255.255/16",
            &["45: network red-a: gateway 10.100.255.255 is the broadcast address of 10.100.0.0/16; \
                 write the address that the gateway has in it"],
        ),
        (
            "10.100.255.254/16",
            "10.100.255.254/32",
            &["45: network red-a: gateway 10.100.255.254/32 is no subnet: its length must be 1..=31 \
                 for IPv4, 1..=127 for IPv6"],
        ),
        (
            "10.100.255.254/16",
            "169.254.0.1/16",
            &["45: network red-a: gateway 169.254.0.1 is a link-local address, which cannot be used \
                 here"],
        ),
        (
            "10.100.255.254/16",
            "239.0.0.1/16",
            &["45: network red-a: gateway 239.0.0.1 is a multicast address, which cannot be used \
                 here"],
        ),
        (
            "fd00:100::1/64",
            "fe80::1/64",
            &["45: network red-a: gateway fe80::1 is a link-local address, which cannot be used here"],
        ),
        (
            "\"fd00:100::1/64\"",
            "\"10.100.255.254/16\"",
            &["45: network red-a: gateway lists 10.100.255.254/16 twice"],
        ),
        (
            "gateway = [\"10.110.0.1/24\"]",
            "gateway = []",
            &["59: network red-b: gateway must list at least one"],
        ),
        (
            "gateway = [\"10.110.0.1/24\"]",
            "gateway = [\"10.110.0.1/24\", \"10.100.7.1/24\"]",
            &["59: network red-b: subnet 10.100.7.0/24 overlaps 10.100.0.0/16 of network red-a (line \
                 45), which belongs to the same tenant"],
        ),
        (
            "gateway = [\"10.110.0.1/24\"]",
            "gateway = [\"10.110.0.1/24\", \"10.0.0.1/8\"]",
            &[
                "59: network red-b: subnet 10.0.0.0/8 overlaps 10.100.0.0/16 of network red-a (line \
                 45), which belongs to the same tenant",
                "75: port trunk0: ip 10.100.0.9 could be in network red-a (10.100.0.0/16, \
                 fd00:100::/64), network red-b (10.110.0.0/24, 10.0.0.0/8): give all but one of them a \
                 gateway with other subnets",
            ],
        ),
        (
            "gateway = [\"10.9.0.1/24\"]",
            "gateway_mac = \"02:00:00:00:00:01\"",
            &["64: network store: gateway_mac has an effect only with gateway"],
        ),
        (
            "gateway_mac = \"02:00:00:00:0a:fd\"",
            "gateway_mac = \"02:00:00:00:01:02\"",
            &["69: port gpu0: mac 02:00:00:00:01:02 is already in network red-a: its gateway (line \
                 46)"],
        ),
        (
            "tenant = \"storage\"\n",
            "",
            &["63: network store: tenant is missing: a gateway leads into the VRF of a tenant"],
        ),
        (
            "tenant = \"storage\"",
            "tenant = \"stroage\"",
            &["63: network store: tenant: no tenant is called stroage; did you mean storage?"],
        ),
    ]);
}

#[test]
fn learning_and_snooping_are_in_range() {
    expect(&[
        (
            "learning = true\n",
            "",
            &[
                "47: network red-a: ageing has an effect only with learning = true",
                "48: network red-a: mac_limit has an effect only with learning = true",
            ],
        ),
        ("ageing = \"60s\"", "ageing = \"9s\"", &["48: network red-a: ageing 9s is not in 10s..=86400s"]),
        (
            "ageing = \"60s\"",
            "ageing = 60",
            &["48: network red-a: ageing \"60\" is no duration; write a whole number with ns, us, ms \
                 or s, like \"256us\""],
        ),
        ("mac_limit = 100", "mac_limit = 0", &["49: network red-a: mac_limit 0 is not in 1..=1048576"]),
        (
            "snooping = true",
            "snooping = \"yes\"",
            &["50: network red-a: snooping must be true or false, not a string"],
        ),
    ]);
}

#[test]
fn a_group_has_receivers_in_its_network() {
    expect(&[
        (
            "239.1.1.1",
            "224.0.0.5",
            &["52: network red-a, group: address 224.0.0.5 is for everyone on a link; it must be a \
                 multicast group that stations join, like \"239.1.1.1\" or \"ff0e::1\""],
        ),
        (
            "239.1.1.1",
            "10.0.0.1",
            &["52: network red-a, group: address 10.0.0.1 is no multicast address; it must be a \
                 multicast group that stations join, like \"239.1.1.1\" or \"ff0e::1\""],
        ),
        (
            "239.1.1.1",
            "ff02::1",
            &["52: network red-a, group: address ff02::1 is for everyone on a link; it must be a \
                 multicast group that stations join, like \"239.1.1.1\" or \"ff0e::1\""],
        ),
        (
            "239.1.1.1",
            "ff01::7",
            &["52: network red-a, group: address ff01::7 is for one interface; it must be a \
                 multicast group that stations join, like \"239.1.1.1\" or \"ff0e::1\""],
        ),
        (
            "239.1.1.1",
            "group",
            &["52: network red-a, group: address \"group\" is no IP address; write it without prefix \
                 length, like \"10.0.0.1\" or \"fd00::1\""],
        ),
        (
            "ports = [\"gpu0\", \"trunk0\"]\npeers = [\"h2\"]\n[[network]]",
            "[[network]]",
            &["51: network red-a, group 239.1.1.1: give ports, peers or both; an empty list means \
                 that nobody gets the group"],
        ),
        (
            "[\"gpu0\", \"trunk0\"]",
            "[\"gpu0\", \"gpu0\"]",
            &["53: network red-a, group 239.1.1.1: ports lists gpu0 twice"],
        ),
        (
            "[\"gpu0\", \"trunk0\"]",
            "[\"gpu1\"]",
            &["53: network red-a, group 239.1.1.1: ports: no access port is called gpu1; did you \
                 mean gpu0?"],
        ),
        (
            "[\"gpu0\", \"trunk0\"]",
            "[\"eth1\"]",
            &["53: network red-a, group 239.1.1.1: ports: no access port is called eth1"],
        ),
        (
            "[[network]]\nname = \"red-b\"",
            "[[network.group]]\naddress = \"ff0e::1\"\npeers = [\"h9\"]\n[[network]]\nname = \"red-b\"",
            &["57: network red-a, group ff0e::1: peers: h9 is not in network red-a"],
        ),
        (
            "[[network]]\nname = \"red-b\"",
            "[[network.group]]\naddress = \"239.1.1.1\"\nports = []\n[[network]]\nname = \"red-b\"",
            &["56: network red-a, group 239.1.1.1: address 239.1.1.1 is already used by another \
                 group of this network (line 52)"],
        ),
        (
            "tenant = \"storage\"\n",
            "tenant = \"storage\"\n[[network.group]]\naddress = \"239.1.1.2\"\nports = [\"gpu0\"]\n[[network]]\nname = \"more\"\nvni = 7\ntenant = \"storage\"\n",
            &["66: network store, group 239.1.1.2: ports: gpu0 is not in network store"],
        ),
    ]);
}

#[test]
fn a_trunk_has_each_tag_and_network_once() {
    expect(&[
        (
            "[[port.vlan]]\nnetwork = \"red-a\"\n",
            "[[port.vlan]]\nnetwork = \"red-a\"\nid = 20\n",
            &["81: port trunk0, vlan 20: id 20 is already used by another [[port.vlan]] of this port \
                 (line 78)"],
        ),
        (
            "id = 20\n",
            "",
            &["78: port trunk0, untagged vlan: id none (untagged) is already used by another \
                 [[port.vlan]] of this port (line 76)"],
        ),
        ("id = 20\n", "id = 4095\n", &["80: port trunk0, vlan: id 4095 is not in 1..=4094"]),
        (
            "id = 20\n",
            "id = 20\n[[port.vlan]]\nnetwork = \"red-b\"\nid = 21\n",
            &["82: port trunk0, vlan 21: network red-b is already used by another [[port.vlan]] of \
                 this port (line 79)"],
        ),
        (
            "network = \"red-b\"\nid",
            "network = \"red-c\"\nid",
            &["79: port trunk0, vlan 20: network: no network is called red-c; did you mean red-a?"],
        ),
        (
            "network = \"red-b\"\nid",
            "id",
            &[
                "75: port trunk0: ip 10.110.0.9 is in no subnet of network red-a (10.100.0.0/16, \
                 fd00:100::/64)",
                "78: port trunk0, vlan 20: network is missing",
            ],
        ),
        (
            "interface = \"trunk0\"",
            "interface = \"trunk0\"\nnetwork = \"red-a\"",
            &["77: port trunk0: give one of network (for VXLAN), [[port.vlan]] (for several \
                 networks) and native (for un-encapsulated RoCEv2), not two"],
        ),
        (
            "interface = \"trunk0\"",
            "interface = \"trunk0\"\nnetwork = \"red-a\"\nnative = \"eth1\"",
            &[
                "75: port trunk0: give one of network (for VXLAN), [[port.vlan]] (for several \
                 networks) and native (for un-encapsulated RoCEv2), not all three",
                "77: port trunk0: ips has an effect only with network or [[port.vlan]]",
            ],
        ),
        (
            "network = \"red-a\"\nmacs",
            "macs",
            &[
                "53: network red-a, group 239.1.1.1: ports: gpu0 is not in network red-a",
                "65: port gpu0: give one of network (for VXLAN), [[port.vlan]] (for several networks) \
                 and native (for un-encapsulated RoCEv2), not none",
            ],
        ),
    ]);
}

#[test]
fn an_address_is_one_stations_in_its_subnet() {
    expect(&[
        (
            "ips = [\"10.100.0.1\"",
            "ips = [\"10.101.0.1\"",
            &["70: port gpu0: ip 10.101.0.1 is in no subnet of network red-a (10.100.0.0/16, \
                 fd00:100::/64)"],
        ),
        (
            "\"10.110.0.9\", \"10.100.0.9\"",
            "\"10.111.0.9\"",
            &["75: port trunk0: ip 10.111.0.9 is in no subnet of network red-a (10.100.0.0/16, \
                 fd00:100::/64), network red-b (10.110.0.0/24)"],
        ),
        (
            "ips = [\"10.100.0.2\"",
            "ips = [\"10.101.0.2\"",
            &["87: peer h2, endpoint 02:00:00:00:02:01: ip 10.101.0.2 is in no subnet of network \
                 red-a (10.100.0.0/16, fd00:100::/64)"],
        ),
        (
            "ips = [\"10.100.0.1\"",
            "ips = [\"10.100.255.254\"",
            &["70: port gpu0: ip 10.100.255.254 is already used by the gateway of network red-a \
                 (line 45)"],
        ),
        (
            "ips = [\"10.100.0.1\"",
            "ips = [\"10.100.255.255\"",
            &["70: port gpu0: ip 10.100.255.255 is the broadcast address of subnet 10.100.0.0/16"],
        ),
        (
            "ips = [\"10.100.0.1\"",
            "ips = [\"10.100.0.0\"",
            &["70: port gpu0: ip 10.100.0.0 is the network address of subnet 10.100.0.0/16"],
        ),
        (
            "ips = [\"10.100.0.2\"",
            "ips = [\"10.100.0.1\"",
            &["87: peer h2, endpoint 02:00:00:00:02:01: ip 10.100.0.1 is already used by port gpu0 \
                 (line 70)"],
        ),
        (
            "ips = [\"10.100.0.2\"",
            "ips = [\"10.100.0.2\", \"10.100.0.2\"",
            &["88: peer h2, endpoint 02:00:00:00:02:01: ips lists 10.100.0.2 twice"],
        ),
        (
            "ips = [\"10.100.0.2\"",
            "ips = [\"10.100.0.2/16\"",
            &["88: peer h2, endpoint 02:00:00:00:02:01: ips \"10.100.0.2/16\" is no IP address; write \
                 it without prefix length, like \"10.0.0.1\" or \"fd00::1\""],
        ),
        (
            "\"fe80::1:2\"]",
            "\"fe80::1\"]",
            &["87: peer h2, endpoint 02:00:00:00:02:01: ip fe80::1 is already used by port gpu0 \
                 (line 70)"],
        ),
        (
            "\"0.0.0.0/0\"",
            "\"10.100.0.2/32\"",
            &["87: peer h2, endpoint 02:00:00:00:02:01: ip 10.100.0.2 is already used by a route of \
                 the tenant (line 22)"],
        ),
        ("macs = [\"02:00:00:00:01:03\"]\n", "", &["74: port trunk0: ips has an effect only with macs"]),
        (
            "macs = [\"02:00:00:00:01:01\", \"02:00:00:00:01:02\"]\nips = [\"10.100.0.1\", \"fd00:100::a1\", \"fe80::1\"]\n",
            "",
            &["69: port gpu0: spoofing has an effect only with macs"],
        ),
        (
            "network = \"red-a\"\nmacs",
            "native = \"eth1\"\nmacs",
            &[
                "53: network red-a, group 239.1.1.1: ports: gpu0 is not in network red-a",
                "70: port gpu0: ips has an effect only with network or [[port.vlan]]",
                "71: port gpu0: spoofing has an effect only with network or [[port.vlan]]",
            ],
        ),
        (
            "spoofing = \"accept\"",
            "spoofing = \"allow\"",
            &["71: port gpu0: spoofing \"allow\" is none of \"drop\", \"accept\""],
        ),
        (
            "02:00:00:00:02:01",
            "02:00:00:00:0a:fd",
            &["87: peer h2, endpoint 02:00:00:00:0a:fd: mac 02:00:00:00:0a:fd is already in network \
                 red-a: its gateway (line 46)"],
        ),
        (
            "02:00:00:00:02:01",
            "02:00:00:00:01:03",
            &["87: peer h2, endpoint 02:00:00:00:01:03: mac 02:00:00:00:01:03 is already in network \
                 red-a: port trunk0 (line 74)"],
        ),
        (
            "02:00:00:00:02:fe",
            "01:00:00:00:02:fe",
            &["84: peer h2: router_mac 01:00:00:00:02:fe is a multicast address; it must be one \
                 station's own address"],
        ),
    ]);
}

#[test]
fn settings_of_routing_are_legal() {
    expect(&[
        (
            "icmp_unreachable = \"drop\"",
            "icmp_unreachable = \"reject\"",
            &["7: routing: icmp_unreachable \"reject\" is none of \"send\", \"drop\""],
        ),
        (
            "\"10.{rack}.{rail}.{gpu}\"",
            "\"10.{rack}.{rail}\"",
            &["5: address_plan: pattern \"10.{rack}.{rail}\" describes 24 bits; an IPv4 address has 32"],
        ),
        ("\"10.{rack}.{rail}.{gpu}\"", "7", &["5: address_plan: pattern must be a string, not an integer"]),
        ("pattern = \"10.{rack}.{rail}.{gpu}\"\n", "", &["4: address_plan: pattern is missing"]),
    ]);
}

#[test]
fn an_address_of_a_trunk_needs_one_network_that_can_have_it() {
    let without = RIGHT.replacen("gateway = [\"10.110.0.1/24\"]\n", "snooping = false\n", 1);
    // The one without a gateway has what the others have not.
    let config = Config::parse(&without, "").unwrap();
    assert_eq!(config.homes(&config.ports[1], config.ports[1].ips[0]), [NetworkId(1)]);
    let two = without.replacen(
        "[[port.vlan]]\nnetwork = \"red-b\"",
        "[[port.vlan]]\nnetwork = \"plain\"\nid = 30\n[[port.vlan]]\nnetwork = \"red-b\"",
        1,
    );
    let two = format!("{two}[[network]]\nname = \"plain\"\nvni = 7\n");
    assert_eq!(
        errors(&two),
        [
            "host.toml:75: port trunk0: ip 10.110.0.9 could be in network plain, network red-b: give all but one of \
          them a gateway with other subnets"
        ]
    );
}

#[test]
fn addresses_are_unique_in_a_tenant_and_link_local_ones_in_a_network() {
    let more = |ip: &str, network: &str| {
        format!(
            "{RIGHT}[[port]]\ninterface = \"more\"\nnetwork = \"{network}\"\nmacs = [\"02:00:00:00:01:09\"]\n\
             ips = [\"{ip}\"]\n[[network]]\nname = \"bridged\"\nvni = 7\ntenant = \"red\"\n\
             [[network]]\nname = \"alone\"\nvni = 8\n"
        )
    };
    let line = RIGHT.lines().count() + 5;
    let taken = |ip| format!("host.toml:{line}: port more: ip {ip} is already used by port gpu0 (line 70)");
    // A network of the same tenant, one of nobody, and addresses of a link.
    assert_eq!(errors(&more("10.100.0.1", "bridged")), [taken("10.100.0.1")]);
    assert_eq!(errors(&more("fe80::1", "red-a")), [taken("fe80::1")]);
    for (ip, network) in [("10.100.0.1", "alone"), ("fe80::1", "bridged"), ("fe80::1", "red-b")] {
        Config::parse(&more(ip, network), "").unwrap_or_else(|errors| panic!("{ip} {network}: {errors}"));
    }
}

#[test]
fn a_family_without_subnets_is_not_held_to_them() {
    // The stations' IPv6 addresses are bridged only; an IPv4 address outside is still a slip.
    let text = RIGHT.replacen(", \"fd00:100::1/64\"]", "]", 1);
    let config = Config::parse(&text, "").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.homes(&config.ports[0], config.ports[0].ips[1]), [NetworkId(0)]);
    let text = text.replacen("10.100.0.2", "10.101.0.2", 1);
    assert_eq!(errors(&text).len(), 1, "{:?}", errors(&text));
}
