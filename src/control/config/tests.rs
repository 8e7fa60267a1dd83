//! What a right file means, and every message a wrong one can give.

mod tenants;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ids::NetworkId;
use crate::wire::ecn::Dscp;
use crate::wire::ethernet::Mac;

/// A right file, line by line; tests break one line at a time.
const RIGHT: &str = r#"[[uplink]]
interface = "eth1"
encap_ips = ["10.0.0.1", "fd00::1"]
[[network]]
name = "blue"
vni = 100
peers = ["host2"]
[[port]]
interface = "tap0"
network = "blue"
macs = ["02:00:00:00:01:01"]
[[peer]]
name = "host2"
encap_ips = ["10.0.0.2", "fd00::2"]
[[peer.endpoint]]
network = "blue"
mac = "02:00:00:00:02:01"
encap_ip = "fd00::2"
"#;

fn errors(text: &str) -> Vec<String> {
    let report = Config::parse(text, "host.toml").unwrap_err();
    report.to_string().lines().map(str::to_owned).collect()
}

/// The one error of the right file after one edit.
fn error_after(from: &str, to: &str) -> String {
    assert!(RIGHT.contains(from), "{from}");
    let errors = errors(&RIGHT.replacen(from, to, 1));
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.into_iter().next().unwrap()
}

/// The errors of the right file with `more` behind it; their lines count from 19.
fn errors_with(more: &str) -> Vec<String> {
    errors(&format!("{RIGHT}{more}"))
}

#[test]
fn a_right_file_means_what_it_says() {
    let config = Config::parse(RIGHT, "host.toml").unwrap();
    assert_eq!(config.workers, Workers::default());
    assert_eq!(config.control.socket, PathBuf::from("/run/flowrail/flowrail.sock"));
    let uplink = &config.uplinks[0];
    assert_eq!((uplink.name.as_str(), uplink.interface.as_str()), ("eth1", "eth1"));
    assert_eq!(uplink.encap_ips, ["10.0.0.1", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert_eq!(config.networks[0].vni.get(), 100);
    assert_eq!(config.networks[0].peers, [PeerId(0)]);
    assert_eq!(config.networks[0].unknown_unicast, UnknownUnicast::Drop);
    let (id, port) = config.access_ports().next().unwrap();
    assert_eq!((id.0, &port.role, port.steer), (1, &PortRole::Network(NetworkId(0)), Steer::All));
    let peer = &config.peers[0];
    assert_eq!(peer.endpoints[0].mac, Mac([2, 0, 0, 0, 2, 1]));
    assert_eq!(peer.pinned_encap_ip(&peer.endpoints[0]), Some("fd00::2".parse().unwrap()));
}

#[test]
fn every_setting_can_be_set() {
    let text = r#"
        [workers]
        cores = [3, 1]
        idle = "busy-poll"
        busy_poll_time = "64us"
        busy_poll_budget = 32
        batch = 256
        umem_frames = 65536
        frame_size = 2048
        ring_size = 4096
        huge_pages = "require"
        tx_budget = 1024
        [xdp]
        require_native = true
        require_zero_copy = true
        [vxlan]
        udp6_zero_checksum = "accept"
        unknown_vtep = "accept"
        encap_dscp = 26
        decap_dscp = "uniform"
        [control]
        socket = "/tmp/f.sock"
        [neighbors]
        pending_frames = 0
        pending_timeout = "250ms"
    "#;
    let config = Config::parse(&format!("{text}{RIGHT}"), "").unwrap();
    let idle = Idle::BusyPoll { time: Duration::from_micros(64), budget: 32 };
    let workers = Workers {
        cores: Cores::List(vec![3, 1]),
        idle,
        batch: 256,
        umem_frames: 65_536,
        frame_size: 2048,
        ring_size: 4096,
        huge_pages: HugePages::Require,
        tx_budget: 1024,
    };
    assert_eq!(config.workers, workers);
    assert_eq!(config.xdp, Xdp { require_native: true, require_zero_copy: true });
    let vxlan = Vxlan {
        udp6_zero_checksum: Admit::Accept,
        unknown_vtep: Admit::Accept,
        encap_dscp: EncapDscp::Set(Dscp::new(26).unwrap()),
        decap_dscp: DecapDscp::Uniform,
    };
    assert_eq!(config.vxlan, vxlan);
    assert_eq!(config.control.socket, PathBuf::from("/tmp/f.sock"));
    let timeout = Duration::from_millis(250);
    assert_eq!(config.neighbors, Neighbors { pending_frames: 0, pending_timeout: timeout });
}

#[test]
fn values_out_of_place_are_named() {
    for (from, to, message) in [
        ("100", "16777216", "6: network blue: vni 16777216 does not fit in 24 bits (0..=16777215)"),
        ("100", "-1", "6: network blue: vni -1 does not fit in 24 bits (0..=16777215)"),
        ("100", "\"100\"", "6: network blue: vni must be an integer, not a string"),
        (
            "\"blue\"\nvni",
            "\"blue sky\"\nvni",
            "5: network without a name: name \"blue sky\" must be 1 to 64 letters, digits, '.', '_' or '-'",
        ),
        (
            "\"tap0\"",
            "\"a/b\"",
            "9: port without a name: interface \"a/b\" cannot be a network device: 1 to 15 characters, \
             no space, no '/' and no ':'",
        ),
        (
            "10.0.0.2",
            "10.0.0.2/24",
            "14: peer host2: encap_ips \"10.0.0.2/24\" is no IP address; write it without prefix length, \
             like \"10.0.0.1\" or \"fd00::1\"",
        ),
        (
            "02:00:00:00:02:01",
            "2:1",
            "17: peer host2, endpoint: mac \"2:1\" is not a MAC address; write six hex bytes with colons, \
             like 02:00:00:00:0a:01",
        ),
        (
            "02:00:00:00:02:01",
            "03:00:00:00:02:01",
            "17: peer host2, endpoint: mac 03:00:00:00:02:01 is a multicast address; it must be one \
             station's own address",
        ),
        (
            "02:00:00:00:01:01",
            "ff:ff:ff:ff:ff:ff",
            "11: port tap0: macs ff:ff:ff:ff:ff:ff is the broadcast address; it must be one station's own \
             address",
        ),
        (
            "02:00:00:00:01:01",
            "00:00:00:00:00:00",
            "11: port tap0: macs 00:00:00:00:00:00 is all zero; it must be one station's own address",
        ),
        ("[\"10.0.0.1\", \"fd00::1\"]", "7", "3: uplink eth1: encap_ips must be an array, not an integer"),
        ("[\"10.0.0.1\", \"fd00::1\"]", "[]", "3: uplink eth1: encap_ips must list at least one"),
    ] {
        let broken = RIGHT.replacen(from, to, 1);
        let all = errors(&broken);
        assert_eq!(all[0], format!("host.toml:{message}"), "{all:#?}");
    }
}

#[test]
fn addresses_that_no_vtep_can_have_are_refused() {
    for (ip, what) in [
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        ("127.0.0.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("239.1.1.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("255.255.255.255", "the broadcast address"),
        ("::ffff:10.0.0.9", "an IPv4 address in IPv6 form"),
        ("fe80::1", "a link-local address"),
    ] {
        let expected =
            format!("host.toml:14: peer host2: encap_ips {ip} is {what}, which cannot be used here");
        let ip: IpAddr = ip.parse().unwrap();
        assert_eq!(error_after("10.0.0.2", &ip.to_string()), expected);
    }
}

#[test]
fn settings_out_of_range_are_named() {
    for (section, message) in [
        ("[workers]\nbatch = 0", "20: workers: batch 0 is not in 1..=256"),
        ("[workers]\nbatch = 257", "20: workers: batch 257 is not in 1..=256"),
        ("[workers]\nbatch = 0x101", "20: workers: batch 0x101 is not in 1..=256"),
        ("[workers]\nring_size = 1000", "20: workers: ring_size 1000 is not a power of two"),
        ("[workers]\nframe_size = 8192", "20: workers: frame_size 8192 is not in 2048..=4096"),
        (
            "[workers]\ntx_budget = 4096",
            "20: workers: tx_budget 4096 is above ring_size 2048, which the kernel refuses",
        ),
        ("[workers]\ncores = []", "20: workers: cores must list at least one"),
        ("[workers]\ncores = [1, 1]", "20: workers: cores lists 1 twice"),
        (
            "[workers]\nidle = \"fast\"",
            "20: workers: idle \"fast\" is none of \"adaptive\", \"spin\", \"busy-poll\"",
        ),
        (
            "[workers]\nspin_time = \"5\"",
            "20: workers: spin_time \"5\" is no duration; write a whole number with ns, us, ms or s, like \
             \"256us\"",
        ),
        (
            "[workers]\nspin_time = 50",
            "20: workers: spin_time \"50\" is no duration; write a whole number with ns, us, ms or s, like \
             \"256us\"",
        ),
        ("[workers]\nspin_time = \"2s\"", "20: workers: spin_time 2s is not in 1us..=1s"),
        (
            "[workers]\nidle = \"spin\"\nspin_time = \"5us\"",
            "21: workers: spin_time has an effect only with idle = \"adaptive\"",
        ),
        (
            "[workers]\nbusy_poll_budget = 8",
            "20: workers: busy_poll_budget has an effect only with idle = \"busy-poll\"",
        ),
        ("[xdp]\nrequire_native = 1", "20: xdp: require_native must be true or false, not an integer"),
        ("[vxlan]\nencap_dscp = 64", "20: vxlan: encap_dscp 64 is not in 0..=63"),
        ("[vxlan]\nencap_dscp = \"set\"", "20: vxlan: encap_dscp \"set\" is none of \"copy\", 0..=63"),
        (
            "[control]\nsocket = \"run/f\"",
            "20: control: socket \"run/f\" must be an absolute path of at most 107 bytes",
        ),
        ("[neighbors]\npending_timeout = \"0s\"", "20: neighbors: pending_timeout 0s is not in 1ms..=60s"),
    ] {
        assert_eq!(errors_with(section), [format!("host.toml:{message}")]);
    }
}

#[test]
fn unknown_words_come_with_a_suggestion() {
    for (from, to, message) in [
        ("[[network]]", "[[networks]]", "4: unknown section [networks]; did you mean network?"),
        ("[[network]]", "[[chassis]]", "4: unknown section [chassis]"),
    ] {
        let all = errors(&RIGHT.replacen(from, to, 1));
        assert_eq!(all[0], format!("host.toml:{message}"));
    }
    let error = error_after("vni", "mtu = 1\nvni");
    assert_eq!(error, "host.toml:6: network blue: unknown key mtu");
    let error = error_after("encap_ip =", "encap_pi =");
    let endpoint = "peer host2, endpoint 02:00:00:00:02:01";
    assert_eq!(error, format!("host.toml:18: {endpoint}: unknown key encap_pi; did you mean encap_ip?"));
    let error = error_after("network = \"blue\"\nmacs", "network = \"bleu\"\nmacs");
    assert_eq!(error, "host.toml:10: port tap0: network: no network is called bleu; did you mean blue?");
    let error = error_after("network = \"blue\"\nmacs", "native = \"eth9\"\nmacs");
    assert_eq!(error, "host.toml:10: port tap0: native: no uplink is called eth9; did you mean eth1?");
    let error = error_after("network = \"blue\"\nmac =", "network = \"green\"\nmac =");
    assert_eq!(error, format!("host.toml:17: {endpoint}: network: no network is called green"));
    let all = errors(&RIGHT.replacen("peers = [\"host2\"]", "peers = [\"host3\"]", 1));
    assert_eq!(
        all,
        [
            "host.toml:7: network blue: peers: no peer is called host3; did you mean host2?".to_owned(),
            format!("host.toml:17: {endpoint}: network blue does not list host2 in its peers"),
        ]
    );
}

#[test]
fn what_must_be_unique_is_compared() {
    let uplink = "[[uplink]]\ninterface = \"eth2\"\n";
    for (more, message) in [
        (
            format!("{uplink}name = \"tap0\"\nencap_ips = [\"10.1.0.1\"]"),
            "9: port tap0: name tap0 is already used by uplink tap0 (line 21)",
        ),
        (
            format!("{uplink}encap_ips = [\"fd00::1\"]"),
            "21: uplink eth2: encap IP fd00::1 is already used by uplink eth1 (line 3)",
        ),
        (
            format!("{uplink}encap_ips = [\"10.1.0.1\", \"10.1.0.1\"]"),
            "21: uplink eth2: encap_ips lists 10.1.0.1 twice",
        ),
        (
            "[[uplink]]\ninterface = \"tap0\"\nname = \"u\"\nencap_ips = [\"10.1.0.1\"]".to_owned(),
            "9: port tap0: interface tap0 is already used by uplink u (line 20)",
        ),
        (
            "[[network]]\nname = \"blue\"\nvni = 0".to_owned(),
            "20: network blue: name blue is already used by network blue (line 5)",
        ),
        (
            "[[network]]\nname = \"red\"\nvni = 100".to_owned(),
            "21: network red: vni 100 is already used by network blue (line 6)",
        ),
        (
            "[[network]]\nname = \"red\"\nvni = 1\npeers = [\"host2\", \"host2\"]".to_owned(),
            "22: network red: peers lists host2 twice",
        ),
        (
            "[[peer]]\nname = \"host2\"\nencap_ips = [\"10.0.0.3\"]".to_owned(),
            "20: peer host2: name host2 is already used by peer host2 (line 13)",
        ),
        (
            "[[peer]]\nname = \"host3\"\nencap_ips = [\"10.0.0.2\"]".to_owned(),
            "21: peer host3: encap IP 10.0.0.2 is already used by peer host2 (line 14)",
        ),
        (
            "[[peer]]\nname = \"host3\"\nencap_ips = [\"10.0.0.1\"]".to_owned(),
            "21: peer host3: encap IP 10.0.0.1 is already used by uplink eth1 (line 3)",
        ),
        (
            "[[peer.endpoint]]\nnetwork = \"blue\"\nmac = \"02:00:00:00:02:01\"".to_owned(),
            "21: peer host2, endpoint 02:00:00:00:02:01: mac 02:00:00:00:02:01 is already in network blue: \
             peer host2 (line 17)",
        ),
        (
            "[[peer.endpoint]]\nnetwork = \"blue\"\nmac = \"02:00:00:00:01:01\"".to_owned(),
            "21: peer host2, endpoint 02:00:00:00:01:01: mac 02:00:00:00:01:01 is already in network blue: \
             port tap0 (line 11)",
        ),
        (
            "[[neighbor]]\nuplink = \"eth1\"\nip = \"10.0.0.2\"\nmac = \"02:00:00:00:00:01\"\n".repeat(2),
            "25: neighbor 10.0.0.2: ip 10.0.0.2 is already used by another [[neighbor]] of this uplink \
             (line 21)",
        ),
    ] {
        assert_eq!(errors_with(&more), [format!("host.toml:{message}")]);
    }
}

#[test]
fn the_same_mac_may_live_in_two_networks() {
    let more = "[[network]]\nname = \"red\"\nvni = 0\npeers = [\"host2\"]\n\
                [[peer.endpoint]]\nnetwork = \"red\"\nmac = \"02:00:00:00:02:01\"\n";
    let config = Config::parse(&format!("{RIGHT}{more}"), "").unwrap();
    assert_eq!(config.endpoint_count(), 2);
    assert_eq!(config.peers[0].endpoints[1].network, NetworkId(1));
}

#[test]
fn tables_must_fit_together() {
    for (from, to, message) in [
        (
            "network = \"blue\"\nmacs",
            "macs",
            "8: port tap0: give one of network (for VXLAN), [[port.vlan]] (for several networks) and native (for un-encapsulated RoCEv2), not none",
        ),
        (
            "network = \"blue\"\nmacs",
            "network = \"blue\"\nnative = \"eth1\"\nmacs",
            "11: port tap0: give one of network (for VXLAN), [[port.vlan]] (for several networks) and native (for un-encapsulated RoCEv2), not two",
        ),
        (
            "peers = [\"host2\"]\n",
            "",
            "16: peer host2, endpoint 02:00:00:00:02:01: network blue does not list host2 in its peers",
        ),
        (
            "encap_ip = \"fd00::2\"",
            "encap_ip = \"fd00::3\"",
            "18: peer host2, endpoint 02:00:00:00:02:01: encap_ip fd00::3 is none of the peer's encap_ips",
        ),
        (
            ", \"fd00::1\"]",
            "]",
            "14: peer host2: encap IP fd00::2 is unreachable: no uplink has an IPv6 encap IP",
        ),
        ("encap_ips = [\"10.0.0.1\", \"fd00::1\"]\n", "", "1: uplink eth1: encap_ips is missing"),
        ("interface = \"tap0\"\n", "", "8: port without a name: interface is missing"),
        (
            "[[network]]",
            "mtu = 1349\n[[network]]",
            "4: uplink eth1: mtu 1349 is below 1350: an inner IPv6 packet of 1280 B must fit with its outer headers",
        ),
        ("[[network]]", "mtu = 575\n[[network]]", "4: uplink eth1: mtu 575 is not in 576..=65535"),
        ("[[network]]", "vlan = 4095\n[[network]]", "4: uplink eth1: vlan 4095 is not in 1..=4094"),
        ("[[port]]", "[port]", "8: write [[port]], not a single value"),
    ] {
        assert_eq!(error_after(from, to), format!("host.toml:{message}"));
    }
    assert_eq!(
        errors("[workers]\n"),
        ["host.toml:1: there is no [[uplink]]: flowrail needs one to reach its peers"]
    );
    assert_eq!(errors("workers = 1\n")[0], "host.toml:1: write [workers], not a single value");
}

#[test]
fn all_errors_are_reported_in_the_order_of_lines() {
    let broken = RIGHT
        .replacen("vni = 100", "vni = 16777216", 1)
        .replacen("10.0.0.2", "10.0.0.2000", 1)
        .replacen("[[port]]", "[[port]]\nmtu = 1", 1)
        .replacen("\"tap0\"", "\"tap 0\"", 1);
    let lines: Vec<_> =
        errors(&broken).iter().map(|e| e.split(':').nth(1).unwrap().parse::<u32>().unwrap()).collect();
    assert_eq!(lines, [6, 9, 10, 15]);
}

#[test]
fn syntax_errors_hide_what_follows_from_them() {
    let all = errors(&RIGHT.replacen("vni = 100", "vni = = 100", 1));
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].starts_with("host.toml:6: not valid TOML: "), "{all:#?}");
    let all = errors("a = \u{1}\n[b\nc = \"\n");
    assert!(all.iter().all(|e| e.contains("not valid TOML")), "{all:#?}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("/nonexistent/host.toml")).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/host.toml: No such file or directory (os error 2)");
}

/// Peers with endpoints, several pieces long.
fn many(peers: u32, endpoints: u32) -> String {
    let names: Vec<_> = (0..peers).map(|p| format!("\"p{p}\"")).collect();
    let mut text = format!(
        "[[uplink]]\ninterface = \"eth1\"\nencap_ips = [\"172.16.0.1\"]\n[[network]]\nname = \"n\"\nvni = 1\npeers = [{}]\n",
        names.join(", ")
    );
    for p in 0..peers {
        let [_, a, b, c] = (p + 1).to_be_bytes();
        text.push_str(&format!("[[peer]]\nname = \"p{p}\"\nencap_ips = [\"10.{a}.{b}.{c}\"]\n"));
        for e in 0..endpoints {
            let [_, _, x, y] = p.to_be_bytes();
            let [_, _, z, w] = e.to_be_bytes();
            text.push_str(&format!(
                "[[peer.endpoint]]\nnetwork = \"n\"\nmac = \"02:00:{x:02x}:{y:02x}:{z:02x}:{w:02x}\"\n"
            ));
        }
    }
    text
}

#[test]
fn a_long_file_read_in_pieces_is_the_same_as_a_whole() {
    let text = many(3, 5000);
    let config = Config::parse(&text, "").unwrap();
    assert_eq!(config.endpoint_count(), 15_000);
    assert!(config.peers.iter().all(|peer| peer.endpoints.len() == 5000));
    let last = config.peers[2].endpoints[4999];
    assert_eq!(last.mac, Mac([2, 0, 0, 2, 0x13, 0x87]));
    // A multi-line string anywhere makes it one piece.
    let whole = format!("{text}# '''\n");
    assert_eq!(Config::parse(&whole, "").unwrap(), config);
}

#[test]
fn errors_late_in_a_long_file_have_their_line() {
    let text = many(2, 5000);
    let lines = text.lines().count();
    let wrong = format!("{text}[[peer.endpoint]]\nnetwork = \"m\"\nmac = \"02:00:00:01:00:00\"\n");
    assert_eq!(
        errors(&wrong),
        [format!(
            "host.toml:{}: peer p1, endpoint 02:00:00:01:00:00: network: no network is called m; did you mean n?",
            lines + 3
        )]
    );
    let twice = format!("{text}[workers]\n[[peer]]\nname = \"x\"\nencap_ips = [\"10.9.9.9\"]\n[workers]\n");
    assert!(!errors(&twice).is_empty());
}

#[test]
fn a_section_in_two_pieces_is_a_repetition() {
    let text = format!("[xdp]\n{}[xdp]\n", many(2, 5000));
    let line = text.lines().count();
    assert_eq!(errors(&text), [format!("host.toml:{line}: this section appears twice")]);
}

#[test]
fn a_flood_of_errors_is_cut() {
    let text = many(1, 3000).replace("network = \"n\"", "network = \"m\"");
    let all = errors(&text);
    assert_eq!(all.len(), 501);
    assert!(all[500].ends_with("and 2500 more problems like these"), "{}", all[500]);
}

#[test]
fn limits_are_enforced() {
    let mut text = RIGHT.to_owned();
    for i in 0..4096 {
        text.push_str(&format!("[[port]]\ninterface = \"p{i}\"\nnetwork = \"blue\"\n"));
    }
    assert_eq!(errors(&text), ["host.toml:1: there are 4097 ports, more than the 4096 supported"]);
    let rules = "[[tenant.rule]]\naction = \"count\"\n".repeat(16_385);
    assert_eq!(
        errors(&format!("{RIGHT}[[tenant]]\nname = \"red\"\n{rules}")),
        ["host.toml:1: there are 16385 rules, more than the 16384 supported"]
    );
    let ports: Vec<_> = (1..=257).map(|port| port.to_string()).collect();
    let rule = format!("[[tenant.rule]]\naction = \"count\"\ndst_ports = [{}]\n", ports.join(","));
    assert_eq!(
        errors(&format!("{RIGHT}[[tenant]]\nname = \"red\"\n{rule}")),
        ["host.toml:23: tenant red, rule 1: there are 257 dst_ports, more than the 256 supported"]
    );
    let ips: Vec<_> = (0..17).map(|i| format!("\"10.1.0.{i}\"")).collect();
    let text = RIGHT.replacen("\"10.0.0.2\"", &ips.join(","), 1);
    assert_eq!(
        errors(&text)[0],
        "host.toml:14: peer host2: there are 18 encap_ips, more than the 16 supported"
    );
}

#[test]
fn pieces_keep_nested_tables_with_the_table_that_they_belong_to() {
    // Nested tables of each kind, many times, between those of the others.
    let mut text = tenants::RIGHT.to_owned();
    for i in 0..4000 {
        let (high, low) = (i / 256, i % 256);
        text.push_str(&format!(
            "[[tenant.route]]\nprefix = \"172.16.{high}.{low}/32\"\nblackhole = true\n\
             [[network.group]]\naddress = \"239.2.{high}.{low}\"\nports = []\n\
             [[port.vlan]]\nnetwork = \"n{i}\"\nid = {}\n\
             [[peer.endpoint]]\nnetwork = \"store\"\nmac = \"02:01:00:00:{high:02x}:{low:02x}\"\n\
             [[tenant.rule]]\naction = \"count\"\n",
            i + 21,
        ));
    }
    for i in 0..4000 {
        text.push_str(&format!("[[network]]\nname = \"n{i}\"\nvni = {}\n", 10_000 + i));
    }
    let text = text.replacen("vni = 102\n", "vni = 102\npeers = [\"h9\"]\n", 1);
    let config = Config::parse(&text, "").unwrap_or_else(|errors| panic!("{errors}"));
    let rules: Vec<_> = config.tenants.iter().map(|tenant| tenant.rules.len()).collect();
    assert_eq!(rules, [2, 4000]);
    assert_eq!(config.tenants[1].routes.len(), 4000);
    assert_eq!(config.networks[2].groups.len(), 4000);
    assert_eq!(config.ports[1].role.networks().count(), 4002);
    assert_eq!(config.peers[1].endpoints.len(), 4000);
    let whole = format!("{text}# '''\n");
    assert_eq!(Config::parse(&whole, "").unwrap(), config);
}

#[test]
fn nested_tables_need_the_table_above() {
    for (nested, parent) in [("tenant.route", "tenant"), ("network.group", "network"), ("port.vlan", "port")]
    {
        let first = errors(&format!("[[{nested}]]\n"));
        assert_eq!(first[1], format!("host.toml:1: write [[{parent}]], not a single value"), "{first:#?}");
    }
    // Far into a file the table above is looked for in what was read before.
    let long = many(1, 3000);
    let at = long.lines().count() + 1;
    for (nested, parent) in [("tenant.route", "tenant"), ("tenant.rule", "tenant"), ("port.vlan", "port")] {
        assert_eq!(
            errors(&format!("{long}[[{nested}]]\n")),
            [format!("host.toml:{at}: [[{nested}]] needs a [[{parent}]] above it")]
        );
    }
}

#[test]
fn the_examples_are_right() {
    for file in ["two-hosts.toml", "gpu-host.toml", "two-tenants.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples").join(file);
        Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Lines that are right, nearly right or noise, in any order.
fn line() -> impl Strategy<Value = String> {
    let more = ["[workers]", "batch = 1", "[[neighbor]]", "x = '''"];
    let known: Vec<&str> = RIGHT.lines().chain(tenants::RIGHT.lines()).chain(more).collect();
    prop_oneof![
        4 => prop::sample::select(known).prop_map(str::to_owned),
        1 => "[a-z_]{1,8} = [0-9\"\\[\\]{}a-f:.]{0,12}",
        1 => "\\PC{0,20}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = Config::parse(&text, "any");
    }

    #[test]
    fn no_arrangement_of_lines_makes_the_parser_panic(lines in prop::collection::vec(line(), 0..40)) {
        if let Err(report) = Config::parse(&lines.join("\n"), "any") {
            prop_assert!(!report.errors.is_empty());
            prop_assert!(report.errors.iter().all(|e| (1..=lines.len().max(1)).contains(&e.line)));
            prop_assert!(!report.to_string().is_empty());
        }
    }
}
