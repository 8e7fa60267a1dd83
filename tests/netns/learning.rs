//! Networks that learn where their stations are: on this host, behind the tunnel, on the move, and gone.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::command::eventually;
use crate::common::fabric::{Fabric, Station};
use crate::common::netns::Netns;
use crate::common::traffic::ping;

const fn station(
    host: usize,
    port: &'static str,
    mac: &'static str,
    ips: &'static [&'static str],
) -> Station {
    Station { host, port, mac, ips, via: &[] }
}

const MOVER: &str = "02:00:00:00:0a:01";
const OTHER: &str = "02:00:00:00:0a:02";
const FAR: &str = "02:00:00:00:0b:01";

const NEAR0: Station = station(0, "a0", MOVER, &["10.1.0.1/24"]);
const NEAR1: Station = station(0, "a1", OTHER, &["10.1.0.2/24"]);
const REMOTE: Station = station(1, "b0", FAR, &["10.1.0.9/24"]);

/// Two hosts that have network `red`; `red` are more lines of it, `ports` those of host 0's two ports.
fn up(red: &str, ports: [&str; 2]) -> Fabric {
    let mut fabric = Fabric::new(&[NEAR0, NEAR1, REMOTE]);
    let network = format!(
        "[[network]]\nname = \"red\"\nvni = 100\npeers = [\"far\"]\nlearning = true\nunknown_unicast = \"flood\"\n{red}\n"
    );
    let port =
        |name: &str, extra: &str| format!("[[port]]\ninterface = \"{name}\"\nnetwork = \"red\"\n{extra}\n");
    let [a0, a1] = ports;
    let spare = "[[network]]\nname = \"spare\"\nvni = 300\nlearning = true\n";
    fabric.start(0, &format!("{network}{spare}{}{}", port("a0", a0), port("a1", a1)));
    fabric.start(1, &format!("{network}{}", port("b0", "")));
    eventually("the stations reach each other", Duration::from_secs(5), || {
        reaches(fabric.station(0, "a0"), "10.1.0.9") && reaches(fabric.station(0, "a1"), "10.1.0.9")
    });
    fabric
}

fn reaches(from: &Netns, to: &str) -> bool {
    from.attempt(Duration::from_secs(2), &format!("ping -n -c 1 -W 1 {to}")).success()
}

/// The FDB entry of a station on a host.
fn entry(fabric: &Fabric, host: usize, mac: &str) -> Option<Value> {
    let fdb = fabric.forwarder(host).show("fdb");
    fdb.as_array().unwrap().iter().find(|entry| entry["mac"] == mac).cloned()
}

fn is_at(fabric: &Fabric, host: usize, mac: &str, key: &str, place: &str) -> bool {
    entry(fabric, host, mac).is_some_and(|entry| entry[key] == place && entry["source"] == "learned")
}

#[test]
fn stations_are_learned_on_both_sides_and_no_more_is_flooded() {
    let fabric = up("", ["", ""]);
    assert!(is_at(&fabric, 0, MOVER, "port", "a0"));
    assert!(is_at(&fabric, 0, FAR, "vtep", "10.0.0.2"));
    assert!(is_at(&fabric, 1, MOVER, "vtep", "10.0.0.1"));
    assert_eq!(entry(&fabric, 1, MOVER).unwrap()["peer"], "far");
    let bystander = fabric.station(0, "a1").device("t0", "statistics/rx_packets");
    ping(fabric.station(0, "a0"), "10.1.0.9", 56, 50);
    let flooded = fabric.station(0, "a1").device("t0", "statistics/rx_packets") - bystander;
    assert!(flooded < 5, "{flooded} of 100 packets came to a station that they were not for");
    fabric.finish();
}

#[test]
fn a_station_that_moves_is_followed_within_a_second() {
    let fabric = up("", ["", ""]);
    let (old, new) = (fabric.station(0, "a0"), fabric.station(0, "a1"));
    old.run("ip link set t0 down");
    new.run("ip addr flush dev t0");
    new.run(&format!("ip link set t0 address {MOVER}"));
    new.run("ip addr add 10.1.0.1/24 dev t0");
    let start = Instant::now();
    let gratuitous = new.spawn("ping -n -i 0.05 -c 20 10.1.0.9");
    while !is_at(&fabric, 0, MOVER, "port", "a1") {
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", entry(&fabric, 0, MOVER));
    }
    eprintln!("followed after {:?}", start.elapsed());
    gratuitous.wait(Duration::from_secs(5)).expect_success();
    ping(fabric.station(1, "b0"), "10.1.0.1", 56, 20);
    fabric.finish();
}

#[test]
fn a_station_that_moves_to_another_host_is_followed_by_both() {
    let fabric = up("", ["", ""]);
    let (old, new) = (fabric.station(0, "a0"), fabric.station(1, "b0"));
    old.run("ip link set t0 down");
    new.run("ip addr flush dev t0");
    new.run(&format!("ip link set t0 address {MOVER}"));
    new.run("ip addr add 10.1.0.1/24 dev t0");
    eventually("the station reaches out", Duration::from_secs(5), || reaches(new, "10.1.0.2"));
    eventually("both hosts know", Duration::from_secs(1), || {
        is_at(&fabric, 0, MOVER, "vtep", "10.0.0.2") && is_at(&fabric, 1, MOVER, "port", "b0")
    });
    ping(fabric.station(0, "a1"), "10.1.0.1", 56, 20);
    fabric.finish();
}

#[test]
fn a_configured_station_stays_and_the_contradiction_is_counted() {
    let fabric = up("", [&format!("macs = [\"{MOVER}\"]"), ""]);
    let thief = fabric.station(0, "a1");
    thief.run(&format!("ip link set t0 address {MOVER}"));
    let _ = reaches(thief, "10.1.0.9");
    eventually("the contradiction is counted", Duration::from_secs(2), || {
        fabric.forwarder(0).stats().note("fdb_static_conflict") > 0
    });
    let entry = entry(&fabric, 0, MOVER).unwrap();
    assert_eq!((&entry["port"], &entry["source"]), (&"a0".into(), &"static".into()), "{entry}");
    ping(fabric.station(0, "a0"), "10.1.0.9", 56, 10);
    fabric.finish();
}

#[test]
fn silent_stations_are_forgotten_and_those_that_speak_are_not() {
    let fabric = up("ageing = \"10s\"", ["", ""]);
    fabric.station(0, "a1").run("ip link set t0 down");
    let _talk = fabric.station(0, "a0").spawn("ping -q -i 0.5 -w 60 10.1.0.9");
    eventually("the silent one is forgotten", Duration::from_secs(15), || entry(&fabric, 0, OTHER).is_none());
    std::thread::sleep(Duration::from_secs(3));
    assert!(is_at(&fabric, 0, MOVER, "port", "a0") && is_at(&fabric, 0, FAR, "vtep", "10.0.0.2"));
    fabric.finish();
}

#[test]
fn a_network_learns_no_more_stations_than_its_limit() {
    let fabric = up("mac_limit = 3", ["", ""]);
    let station = fabric.station(0, "a0");
    station.run("ip link set t0 address 02:00:00:00:0a:77");
    let _ = reaches(station, "10.1.0.9");
    std::thread::sleep(Duration::from_millis(50));
    assert!(entry(&fabric, 0, "02:00:00:00:0a:77").is_none());
    let networks = fabric.forwarder(0).show("networks");
    assert_eq!(networks[0]["learning"]["stations"], 3, "{networks}");
    fabric.finish();
}

#[test]
fn a_port_that_moves_takes_its_stations_out_of_the_old_network() {
    let fabric = up("", ["", ""]);
    assert!(is_at(&fabric, 0, MOVER, "port", "a0"));
    fabric.forwarder(0).move_port("a0", "spare");
    assert!(entry(&fabric, 0, MOVER).is_none_or(|entry| entry["network"] == "spare"));
    assert!(is_at(&fabric, 0, FAR, "vtep", "10.0.0.2"), "others stay known");
    let _ = reaches(fabric.station(0, "a0"), "10.1.0.9");
    eventually("it is learned in its new network", Duration::from_secs(1), || {
        entry(&fabric, 0, MOVER).is_some_and(|entry| entry["network"] == "spare")
    });
    // Back again it is learned at once, though it was told a moment ago.
    fabric.forwarder(0).move_port("a0", "red");
    eventually("the stations reach each other", Duration::from_secs(2), || {
        reaches(fabric.station(0, "a0"), "10.1.0.9")
    });
    assert!(is_at(&fabric, 0, MOVER, "port", "a0"));
    fabric.finish();
}

#[test]
fn an_address_that_a_station_claims_becomes_a_host_route() {
    let mut fabric = Fabric::new(&[
        Station { via: &["10.1.0.254"], ..NEAR0 },
        Station { via: &["10.2.0.254"], ..station(0, "a1", OTHER, &["10.2.0.1/24"]) },
    ]);
    let network = |n: u32| {
        format!(
            "[[network]]\nname = \"red-{n}\"\nvni = {n}00\ntenant = \"red\"\ngateway = [\"10.{n}.0.254/24\"]\nlearning = true\n"
        )
    };
    let port = |n: u32| format!("[[port]]\ninterface = \"a{}\"\nnetwork = \"red-{n}\"\n", n - 1);
    let tenant = "[[tenant]]\nname = \"red\"\nrouter_mac = \"02:00:00:00:fe:01\"\n";
    fabric.start(0, &format!("{tenant}{}{}{}{}", network(1), network(2), port(1), port(2)));
    for (port, gateway) in [("a0", "10.1.0.254"), ("a1", "10.2.0.254")] {
        eventually("the gateway answers", Duration::from_secs(5), || {
            reaches(fabric.station(0, port), gateway)
        });
    }
    ping(fabric.station(0, "a0"), "10.2.0.1", 56, 20);
    let routes = fabric.forwarder(0).show("routes");
    let route = |prefix: &str| {
        let found = routes.as_array().unwrap().iter().find(|route| route["prefix"] == prefix);
        found.cloned().unwrap_or_else(|| panic!("no route to {prefix}: {routes}"))
    };
    let host = route("10.2.0.1/32");
    assert_eq!(
        [&host["kind"], &host["mac"], &host["source"], &host["tenant"], &host["network"]],
        ["host", OTHER, "learned", "red", "red-2"]
    );
    assert_eq!(route("10.1.0.0/24")["kind"], "connected");
    assert_eq!(route("10.1.0.254/32")["source"], "static");
    fabric.finish();
}
