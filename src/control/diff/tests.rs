//! A difference reads well, and misses nothing.

use super::*;

const BASE: &str = r#"
[[uplink]]
interface = "u0"
encap_ips = ["10.0.0.1"]

[[peer]]
name = "h1"
encap_ips = ["10.0.0.2", "10.0.0.3"]
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0b:01"
[[peer.endpoint]]
network = "red"
mac = "02:00:00:00:0b:02"

[[network]]
name = "red"
vni = 100
peers = ["h1"]

[[network]]
name = "blue"
vni = 200
peers = ["h1"]

[[port]]
interface = "gpu0"
network = "red"
macs = ["02:00:00:00:0a:01"]

[[port]]
interface = "gpu1"
network = "blue"
"#;

fn config(text: &str) -> Config {
    Config::parse(text, "test").unwrap_or_else(|e| panic!("{e}"))
}

fn diff(changes: &[(&str, &str)]) -> Diff {
    let new = changes.iter().fold(BASE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    let (old, mut new) = (config(BASE), config(&new));
    new.number_ports_as(&old);
    Diff::between(&old, &new)
}

#[test]
fn the_same_is_no_change_whatever_the_order() {
    assert!(diff(&[]).is_empty());
    let gpu1 = "[[port]]\ninterface = \"gpu1\"\nnetwork = \"blue\"\n";
    assert!(diff(&[(gpu1, ""), ("[[peer]]", &format!("{gpu1}[[peer]]"))]).is_empty());
    // Networks have other numbers then, but are the same.
    let red = "[[network]]\nname = \"red\"\nvni = 100\npeers = [\"h1\"]\n";
    let gpu1 = "[[port]]\ninterface = \"gpu1\"";
    let reordered = diff(&[(red, ""), (gpu1, &format!("{red}{gpu1}"))]);
    assert_eq!(reordered.changes, ["~ the order of the file"]);
}

#[test]
fn groups_find_their_ports_in_another_order() {
    let group = "[[network.group]]\naddress = \"239.0.0.1\"\nports = [\"gpu1\"]\n";
    let blue = "vni = 200\npeers = [\"h1\"]\n";
    let with_group = BASE.replace(blue, &format!("{blue}{group}"));
    let gpu1 = "[[port]]\ninterface = \"gpu1\"\nnetwork = \"blue\"\n";
    let other = with_group.replace(gpu1, "").replace("[[peer]]", &format!("{gpu1}[[peer]]"));
    let (old, mut new) = (config(&with_group), config(&other));
    assert_ne!(old, new);
    new.number_ports_as(&old);
    assert_eq!(old, new);
}

#[test]
fn tenants_gateways_routes_and_rules_are_compared() {
    let tenant = "[[tenant]]\nname = \"acme\"\nl3vni = 9000\nrouter_mac = \"02:00:00:00:0f:01\"\n";
    let route = "[[tenant.route]]\nprefix = \"10.9.0.0/16\"\nblackhole = true\n";
    let base = BASE
        .replace("[[peer]]", &format!("{tenant}{route}[[peer]]"))
        .replace("vni = 100\n", "vni = 100\ntenant = \"acme\"\ngateway = [\"10.1.0.1/24\"]\n");
    let compare = |from: &str, to: &str| {
        assert!(base.contains(from), "{from}");
        Diff::between(&config(&base), &config(&base.replace(from, to))).changes
    };
    assert_eq!(Diff::between(&config(BASE), &config(&base)).changes[0], "+ tenant acme");
    assert_eq!(compare("9000", "9001"), ["~ tenant acme: l3vni 9000 → 9001"]);
    assert_eq!(
        compare(
            "blackhole = true\n",
            "blackhole = true\n[[tenant.route]]\nprefix = \"10.8.0.0/16\"\nblackhole = true\n"
        ),
        ["~ tenant acme: +1 routes"]
    );
    assert_eq!(compare("10.1.0.1/24", "10.1.0.2/24"), ["~ network red: +1 −1 gateway addresses"]);
    assert_eq!(
        compare(
            "tenant = \"acme\"\n",
            "tenant = \"acme\"\nlearning = true\nageing = \"30s\"\nmac_limit = 5\n"
        ),
        ["~ network red: learning none → 5 stations for 30 s"]
    );
    assert_eq!(
        compare("encap_ips = [\"10.0.0.2\"", "router_mac = \"02:00:00:00:0f:02\"\nencap_ips = [\"10.0.0.2\""),
        ["~ peer h1: router_mac none → 02:00:00:00:0f:02"]
    );
    assert_eq!(
        compare("mac = \"02:00:00:00:0b:02\"", "mac = \"02:00:00:00:0b:02\"\nips = [\"10.1.0.9\"]"),
        ["~ peer h1: ~1 endpoints"]
    );
}

#[test]
fn a_port_that_moves_is_one_line() {
    let moved = diff(&[("\"gpu0\"\nnetwork = \"red\"", "\"gpu0\"\nnetwork = \"blue\"")]);
    assert_eq!(moved, Diff { changes: vec!["~ port gpu0: network red → blue".to_owned()], refused: vec![] });
}

#[test]
fn things_come_go_and_change_by_name() {
    let new = diff(&[
        ("name = \"blue\"\nvni = 200", "name = \"green\"\nvni = 201"),
        ("network = \"blue\"", "network = \"green\""),
        ("vni = 100\npeers = [\"h1\"]", "vni = 101\nunknown_unicast = \"flood\"\npeers = [\"h1\"]"),
    ]);
    assert_eq!(
        new.changes,
        [
            "+ network green (VNI 201)",
            "- network blue (VNI 200)",
            "~ network red: VNI 100 → 101, unknown_unicast drop → flood",
            "~ port gpu1: network blue → green",
        ]
    );
}

#[test]
fn endpoints_are_counted() {
    let second = "[[peer.endpoint]]\nnetwork = \"red\"\nmac = \"02:00:00:00:0b:02\"\n";
    let three: String = (3..6)
        .map(|n| format!("[[peer.endpoint]]\nnetwork = \"blue\"\nmac = \"02:00:00:00:0b:0{n}\"\n"))
        .collect();
    assert_eq!(diff(&[(second, &three)]).changes, ["~ peer h1: +3 −1 endpoints"]);
    let pinned = format!("{second}encap_ip = \"10.0.0.3\"\n");
    assert_eq!(diff(&[(second, &pinned)]).changes, ["~ peer h1: ~1 endpoints"]);
}

#[test]
fn a_network_that_moves_in_the_file_moves_no_endpoint() {
    let first = "[[network]]\nname = \"aaa\"\nvni = 5\n";
    assert_eq!(diff(&[("[[peer]]", &format!("{first}[[peer]]"))]).changes, ["+ network aaa (VNI 5)"]);
}

#[test]
fn ports_that_come_and_go_are_told() {
    let file = [("interface = \"gpu1\"", "interface = \"gpu2\"")];
    assert_eq!(diff(&file).changes, ["+ port gpu2", "- port gpu1"]);
    assert!(diff(&file).refused.is_empty());
}

#[test]
fn what_cannot_change_is_named() {
    let refused = diff(&[
        (
            "[[uplink]]",
            "[workers]\nbatch = 32\n[xdp]\nrequire_native = true\n[control]\nsocket = \"/x\"\n[[uplink]]",
        ),
        ("encap_ips = [\"10.0.0.1\"]", "encap_ips = [\"10.0.0.9\"]\nvlan = 5"),
        ("interface = \"gpu0\"", "name = \"gpu0\"\nsteer = \"roce\"\ninterface = \"gpu9\""),
        ("interface = \"gpu1\"", "interface = \"gpu2\""),
    ])
    .refused;
    assert_eq!(
        refused,
        [
            "[workers]",
            "[xdp]",
            "[control] socket",
            "uplink u0: encap_ips",
            "uplink u0: vlan",
            "port gpu0: interface",
            "port gpu0: steer",
        ]
    );
    let two = "[[uplink]]\ninterface = \"u1\"\nencap_ips = [\"10.0.1.1\"]\n[[uplink]]";
    assert_eq!(diff(&[("[[uplink]]", two)]).refused, ["uplinks u0 → u1, u0"]);
}

#[test]
fn a_long_list_is_cut() {
    let many: String =
        (0..1500).map(|n| format!("[[network]]\nname = \"n{n}\"\nvni = {}\n", n + 1000)).collect();
    let changes = diff(&[("[[peer]]", &format!("{many}[[peer]]"))]).changes;
    assert_eq!((changes.len(), changes[1000].as_str()), (1001, "and 500 more changes"));
}
