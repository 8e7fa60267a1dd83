//! What stations get from their gateway: ARP and ND, ping, and the errors that tell them what went wrong.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::fabric::{Fabric, Station};
use crate::common::traffic::{iperf, ping};

const STATION: Station = Station {
    host: 0,
    port: "a0",
    mac: "02:00:00:00:0a:01",
    ips: &["10.1.0.1/24", "fd00:1::1/64"],
    via: &["10.1.0.254", "fd00:1::fe"],
};
const OTHER: Station = Station {
    host: 0,
    port: "b0",
    mac: "02:00:00:00:0b:01",
    ips: &["10.2.0.1/24", "fd00:2::1/64"],
    via: &["10.2.0.254", "fd00:2::fe"],
};

const TABLES: &str = r#"
router_mac = "02:00:00:00:fe:02"
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:fe:01"
[[network]]
name = "red-a"
vni = 101
tenant = "red"
gateway = ["10.1.0.254/24", "fd00:1::fe/64"]
[[network]]
name = "red-b"
vni = 102
tenant = "red"
gateway = ["10.2.0.254/24", "fd00:2::fe/64"]
[[port]]
interface = "a0"
network = "red-a"
macs = ["02:00:00:00:0a:01"]
ips = ["10.1.0.1", "fd00:1::1"]
[[port]]
interface = "b0"
network = "red-b"
macs = ["02:00:00:00:0b:01"]
ips = ["10.2.0.1", "fd00:2::1"]
"#;

fn up(port_b: &str) -> Fabric {
    let mut fabric = Fabric::new(&[STATION, OTHER]);
    fabric.start(0, &format!("{TABLES}{port_b}"));
    let station = fabric.station(0, "a0");
    eventually("the gateway answers", Duration::from_secs(5), || {
        station.attempt(Duration::from_secs(2), "ping -n -c 1 -W 1 10.1.0.254").success()
    });
    fabric
}

#[test]
fn the_gateway_answers_ping_of_every_length_and_is_one_hop_away() {
    let fabric = up("");
    let station = fabric.station(0, "a0");
    for gateway in ["10.1.0.254", "fd00:1::fe", "10.2.0.254", "fd00:2::fe"] {
        for size in [0, 56, 1472, 3800, 8900] {
            ping(station, gateway, size, 5);
        }
    }
    assert!(fabric.forwarder(0).stats().0["totals"]["replied"].as_u64().unwrap() >= 100);
    fabric.finish();
}

#[test]
fn stations_resolve_the_gateway_to_its_mac() {
    let fabric = up("");
    let station = fabric.station(0, "a0");
    ping(station, "fd00:1::fe", 56, 1);
    for gateway in ["10.1.0.254", "fd00:1::fe"] {
        let entry = station.run(&format!("ip neigh show {gateway}")).stdout;
        assert!(entry.contains("lladdr 02:00:00:00:fe:01"), "{entry}");
    }
    // RFC 4861: a router says that it is one.
    assert!(station.run("ip -6 neigh show fd00:1::fe").stdout.contains("router"));
    fabric.finish();
}

#[test]
fn an_expired_ttl_is_reported_by_the_gateway() {
    let fabric = up("");
    let station = fabric.station(0, "a0");
    for (to, gateway) in [("10.2.0.1", "10.1.0.254"), ("fd00:2::1", "fd00:1::fe")] {
        let output = station.attempt(Duration::from_secs(3), &format!("ping -n -c 1 -W 1 -t 1 {to}"));
        let text = output.stdout.to_lowercase();
        assert!(
            text.contains(gateway) && (text.contains("time to live exceeded") || text.contains("hop limit")),
            "{output}"
        );
    }
    assert!(fabric.forwarder(0).stats().drop("ttl_expired") >= 2);
    fabric.finish();
}

#[test]
fn unknown_destinations_are_reported_unreachable() {
    let fabric = up("");
    let station = fabric.station(0, "a0");
    for (to, reason) in [
        ("203.0.113.9", "no_route_in_vrf"),
        ("2001:db8:9::9", "no_route_in_vrf"),
        ("10.2.0.77", "neighbor_unknown"),
        ("fd00:2::77", "neighbor_unknown"),
    ] {
        let before = fabric.forwarder(0).stats().drop(reason);
        let output = station.attempt(Duration::from_secs(3), &format!("ping -n -c 1 -W 1 {to}"));
        assert!(
            output.stdout.to_lowercase().contains("unreachable") || output.stdout.contains("No route"),
            "{output}"
        );
        assert_eq!(fabric.forwarder(0).stats().drop(reason), before + 1, "{to}");
    }
    fabric.finish();
}

#[test]
fn path_mtu_discovery_finds_a_small_port() {
    let fabric = up("mtu = 1400\n");
    let station = fabric.station(0, "a0");
    for (to, overhead) in [("10.2.0.1", 28), ("fd00:2::1", 48)] {
        ping(station, to, 1400 - overhead, 3);
        let size = 1401 - overhead;
        let output =
            station.attempt(Duration::from_secs(3), &format!("ping -n -c 2 -W 1 -M do -s {size} {to}"));
        assert!(!output.success(), "{output}");
        let route = station.run(&format!("ip route get {to}")).stdout;
        assert!(route.contains("mtu 1400"), "{route}");
    }
    let run = iperf(fabric.station(0, "b0"), station, "10.2.0.1", "");
    assert!(run.bytes > 5_000_000, "{run:?}");
    fabric.finish();
}

#[test]
fn errors_are_limited_in_rate() {
    let fabric = up("");
    let station = fabric.station(0, "a0");
    // Port 33434 of nowhere: each packet would have an error of its own.
    station.attempt(
        Duration::from_secs(10),
        "iperf3 -c 203.0.113.9 -u -b 20M -l 100 -t 1 --connect-timeout 500",
    );
    station.attempt(Duration::from_secs(5), "ping -n -q -f -c 2000 -W 1 203.0.113.9");
    let stats = fabric.forwarder(0).stats();
    let (dropped, sent) = (stats.drop("no_route_in_vrf"), stats.note("icmp_sent"));
    assert_eq!(stats.note("icmp_sent") + stats.note("icmp_suppressed"), dropped, "{stats}");
    assert!(sent <= dropped, "{stats}");
    fabric.finish();
}
