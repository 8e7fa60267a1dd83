//! What keeps tenants apart, and what lets them meet on purpose: overlapping addresses, forged sources, tunnels inside
//! tunnels, policies, leaks, and groups with receivers of their own.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::fabric::{Fabric, Station};
use crate::common::netns::Netns;
use crate::common::packet::Tap;
use crate::common::traffic::ping;

const fn station(
    host: usize,
    port: &'static str,
    mac: &'static str,
    ips: &'static [&'static str],
    via: &'static [&'static str],
) -> Station {
    Station { host, port, mac, ips, via }
}

const RED: Station = station(0, "red0", "02:00:00:00:0a:01", &["10.1.0.1/24"], &["10.1.0.254"]);
const RED_B: Station = station(0, "red1", "02:00:00:00:0b:01", &["10.2.0.1/24"], &["10.2.0.254"]);
/// The same addresses as red's.
const BLUE: Station = station(0, "blue0", "02:00:00:00:0a:01", &["10.1.0.1/24"], &["10.1.0.254"]);
const BLUE_B: Station = station(0, "blue1", "02:00:00:00:0b:01", &["10.2.0.1/24"], &["10.2.0.254"]);
const STORAGE: Station = station(0, "store0", "02:00:00:00:0c:01", &["10.9.0.1/24"], &["10.9.0.254"]);

/// Two tenants with equal addresses, and a storage tenant. `red` continues red's table.
fn tables(red: &str, storage: &str) -> String {
    let tenant = |name: &str, vni: u32, extra: &str| {
        let mut text = format!(
            "[[tenant]]\nname = \"{name}\"\nl3vni = {}\nrouter_mac = \"02:00:00:00:fe:01\"\n{extra}\n",
            5000 + vni
        );
        for (n, subnet) in [(0, 1), (1, 2)] {
            text += &format!(
                "[[network]]\nname = \"{name}-{n}\"\nvni = {}\ntenant = \"{name}\"\npeers = [\"far\"]\n\
                 gateway = [\"10.{subnet}.0.254/24\"]\n\
                 [[port]]\ninterface = \"{name}{n}\"\nnetwork = \"{name}-{n}\"\n\
                 macs = [\"02:00:00:00:0{}:01\"]\nips = [\"10.{subnet}.0.1\"]\n",
                vni + n,
                ["a", "b"][n as usize],
            );
        }
        text
    };
    format!(
        "{}{}\
         [[tenant]]\nname = \"storage\"\nrouter_mac = \"02:00:00:00:fe:01\"\n{storage}\n\
         [[network]]\nname = \"store\"\nvni = 900\ntenant = \"storage\"\ngateway = [\"10.9.0.254/24\"]\n\
         [[port]]\ninterface = \"store0\"\nnetwork = \"store\"\nmacs = [\"02:00:00:00:0c:01\"]\nips = [\"10.9.0.1\"]\n",
        tenant("red", 100, red),
        tenant("blue", 200, ""),
    )
}

fn up(red: &str, storage: &str) -> Fabric {
    let mut fabric = Fabric::new(&[RED, RED_B, BLUE, BLUE_B, STORAGE]);
    fabric.start(0, &tables(red, storage));
    for port in ["red0", "blue0"] {
        eventually("the gateway answers", Duration::from_secs(5), || {
            reaches(fabric.station(0, port), "10.1.0.254")
        });
    }
    fabric
}

fn reaches(from: &Netns, to: &str) -> bool {
    from.attempt(Duration::from_secs(2), &format!("ping -n -c 1 -W 1 {to}")).success()
}

fn received(netns: &Netns) -> u64 {
    netns.device("t0", "statistics/rx_packets")
}

#[test]
fn tenants_with_equal_addresses_route_apart() {
    let fabric = up("", "");
    let blue = fabric.station(0, "blue1");
    let before = received(blue);
    ping(fabric.station(0, "red0"), "10.2.0.1", 56, 20);
    assert_eq!(received(blue), before, "red's packets came to blue");
    assert!(!reaches(fabric.station(0, "red0"), "10.9.0.1"), "storage is reachable without a leak");
    assert!(fabric.forwarder(0).stats().drop("no_route_in_vrf") > 0);
    fabric.finish();
}

#[test]
fn a_leak_and_its_way_back_connect_a_tenant_to_storage() {
    let fabric = up(
        "[[tenant.route]]\nprefix = \"10.9.0.0/24\"\nleak = \"storage\"",
        "[[tenant.route]]\nprefix = \"10.1.0.0/24\"\nleak = \"red\"",
    );
    ping(fabric.station(0, "red0"), "10.9.0.1", 56, 10);
    ping(fabric.station(0, "store0"), "10.1.0.1", 56, 10);
    // Red's other subnet has no way back, and blue has no leak at all.
    assert!(!reaches(fabric.station(0, "red1"), "10.9.0.1"));
    assert!(!reaches(fabric.station(0, "blue0"), "10.9.0.1"));
    fabric.finish();
}

#[test]
fn a_policy_denies_what_its_rules_say() {
    let fabric = up(
        "[[tenant.rule]]\naction = \"deny\"\nprotocol = \"icmp\"\nsrc = [\"10.1.0.0/24\"]\ndst = [\"10.2.0.0/24\"]\n\
         [[tenant.rule]]\naction = \"deny\"\nprotocol = \"tcp\"\ndst_ports = [\"5000-5100\"]",
        "",
    );
    let (red, red_b) = (fabric.station(0, "red0"), fabric.station(0, "red1"));
    assert!(!reaches(red, "10.2.0.1"));
    ping(red, "10.1.0.254", 56, 3);
    let tcp = |port: u16| {
        let server = red_b.spawn(&format!("iperf3 -s -1 -p {port}"));
        eventually("the server listens", Duration::from_secs(5), || {
            !red_b.run(&format!("ss -Hltn sport = :{port}")).stdout.is_empty()
        });
        let command = format!("iperf3 -c 10.2.0.1 -p {port} -n 100K --connect-timeout 500");
        let connected = red.attempt(Duration::from_secs(5), &command).success();
        drop(server);
        connected
    };
    assert!(!tcp(5050), "a denied port was reached");
    assert!(tcp(6050), "another port must pass");
    assert!(fabric.forwarder(0).stats().drop("policy_denied") > 0);
    // Another tenant has no such rules.
    ping(fabric.station(0, "blue0"), "10.2.0.1", 56, 3);
    fabric.finish();
}

#[test]
fn forged_sources_stop_at_the_port() {
    let fabric = up("", "");
    let red = fabric.station(0, "red0");
    red.run("ip addr add 10.1.0.66/24 dev t0");
    red.run("ip neigh replace 10.1.0.254 lladdr 02:00:00:00:fe:01 dev t0 nud permanent");
    let forged = red.attempt(Duration::from_secs(3), "ping -n -c 2 -i 0.2 -W 1 -I 10.1.0.66 10.2.0.1");
    assert!(!forged.success(), "{forged}");
    assert!(fabric.forwarder(0).stats().drop("port_security_ip") >= 2);
    red.run("ip link set t0 address 02:00:00:00:66:66");
    red.attempt(Duration::from_secs(3), "ping -n -c 2 -i 0.2 -W 1 10.2.0.1");
    assert!(fabric.forwarder(0).stats().drop("port_security_mac") >= 2);
    fabric.finish();
}

#[test]
fn the_gateways_address_cannot_be_taken() {
    let fabric = up("", "");
    let tap = Tap::open(fabric.station(0, "red0"), "t0");
    let before = fabric.forwarder(0).stats().drop("port_security_arp");
    // An announcement (RFC 5227 section 3), as one who takes an address over sends it.
    let own = [0x02, 0, 0, 0, 0x0a, 0x01];
    let gateway = [10, 1, 0, 254];
    for operation in [1, 2] {
        let head = [[0xff; 6], own].concat();
        let arp = [0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, operation];
        tap.send(&[&head[..], &arp, &own, &gateway, &[0; 6], &gateway].concat());
    }
    eventually("the announcements are dropped", Duration::from_secs(2), || {
        fabric.forwarder(0).stats().drop("port_security_arp") == before + 2
    });
    drop(tap);
    fabric.finish();
}

#[test]
fn a_tenants_own_tunnel_is_payload() {
    let fabric = up("", "");
    let (red, red_b) = (fabric.station(0, "red0"), fabric.station(0, "red1"));
    let blue = received(fabric.station(0, "blue0"));
    // A VXLAN tunnel of red's with blue's VNI, between two of red's stations.
    for (netns, local, remote, own) in
        [(red, "10.1.0.1", "10.2.0.1", "172.16.0.1"), (red_b, "10.2.0.1", "10.1.0.1", "172.16.0.2")]
    {
        netns.run(&format!(
            "ip link add vx type vxlan id 200 local {local} remote {remote} dev t0 dstport 4789"
        ));
        netns.run(&format!("ip addr add {own}/24 dev vx"));
        netns.run("ip link set vx up");
    }
    ping(red, "172.16.0.2", 56, 10);
    // And one to this host's encap IP goes nowhere.
    red.run("ip link add vy type vxlan id 201 local 10.1.0.1 remote 10.0.0.1 dev t0 dstport 4789");
    red.run("ip addr add 10.200.0.1/24 dev vy");
    red.run("ip link set vy up");
    red.attempt(Duration::from_secs(3), "ping -n -c 2 -i 0.2 -W 1 10.200.0.2");
    assert_eq!(received(fabric.station(0, "blue0")), blue, "a frame of red's reached blue");
    assert!(fabric.forwarder(0).stats().drop("no_route_in_vrf") > 0);
    fabric.finish();
}
