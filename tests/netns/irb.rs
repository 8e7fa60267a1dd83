//! Routing inside a tenant: symmetric IRB against the kernel's VXLAN device and against a second flowrail, and between
//! two subnets of one host.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::fabric::{ENCAP_IP, Fabric, KernelRouter, Station};
use crate::common::netns::Netns;
use crate::common::traffic::{iperf, ping};

const NEAR: Station = Station {
    host: 0,
    port: "a0",
    mac: "02:00:00:00:0a:01",
    ips: &["10.1.0.1/24", "fd00:1::1/64"],
    via: &["10.1.0.254", "fd00:1::fe"],
};
const BESIDE: Station = Station {
    host: 0,
    port: "b0",
    mac: "02:00:00:00:0b:01",
    ips: &["10.2.0.1/24", "fd00:2::1/64"],
    via: &["10.2.0.254", "fd00:2::fe"],
};
const FAR: Station = Station {
    host: 1,
    port: "c0",
    mac: "02:00:00:00:0c:01",
    ips: &["10.3.0.1/24", "fd00:3::1/64"],
    via: &["10.3.0.254", "fd00:3::fe"],
};
/// In the subnet of `NEAR`, on the other host.
const STRETCHED: Station = Station {
    host: 1,
    port: "a1",
    mac: "02:00:00:00:0a:02",
    ips: &["10.1.0.2/24", "fd00:1::2/64"],
    via: &["10.1.0.254", "fd00:1::fe"],
};

const ROUTER_MAC: [&str; 2] = ["02:00:00:00:fe:01", "02:00:00:00:fe:02"];

/// Host 0: two subnets of tenant red; the far subnet is a route.
const HOST_0: &str = r#"
router_mac = "02:00:00:00:fe:02"
[[peer.endpoint]]
network = "red-a"
mac = "02:00:00:00:0a:02"
ips = ["10.1.0.2", "fd00:1::2"]
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:fe:01"
[[tenant.route]]
prefix = "10.3.0.0/24"
peer = "far"
[[tenant.route]]
prefix = "fd00:3::/64"
peer = "far"
[[network]]
name = "red-a"
vni = 101
tenant = "red"
peers = ["far"]
gateway = ["10.1.0.254/24", "fd00:1::fe/64"]
gateway_mac = "02:00:00:00:ff:01"
[[network]]
name = "red-b"
vni = 102
tenant = "red"
peers = ["far"]
gateway = ["10.2.0.254/24", "fd00:2::fe/64"]
gateway_mac = "02:00:00:00:ff:01"
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

/// Host 1: the far subnet and the other half of red-a; the stations of host 0 are endpoints.
const HOST_1: &str = r#"
router_mac = "02:00:00:00:fe:01"
[[peer.endpoint]]
network = "red-a"
mac = "02:00:00:00:0a:01"
ips = ["10.1.0.1", "fd00:1::1"]
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:fe:02"
[[tenant.route]]
prefix = "10.2.0.0/24"
peer = "far"
[[tenant.route]]
prefix = "fd00:2::/64"
peer = "far"
[[network]]
name = "red-a"
vni = 101
tenant = "red"
peers = ["far"]
gateway = ["10.1.0.254/24", "fd00:1::fe/64"]
gateway_mac = "02:00:00:00:ff:01"
[[network]]
name = "red-c"
vni = 103
tenant = "red"
peers = ["far"]
gateway = ["10.3.0.254/24", "fd00:3::fe/64"]
gateway_mac = "02:00:00:00:ff:01"
[[port]]
interface = "a1"
network = "red-a"
macs = ["02:00:00:00:0a:02"]
ips = ["10.1.0.2", "fd00:1::2"]
[[port]]
interface = "c0"
network = "red-c"
macs = ["02:00:00:00:0c:01"]
ips = ["10.3.0.1", "fd00:3::1"]
"#;

#[track_caller]
fn expect_reachable(from: &Netns, to: &str) {
    eventually(&format!("{to} answers"), Duration::from_secs(5), || {
        from.attempt(Duration::from_secs(2), &format!("ping -n -c 1 -W 1 {to}")).success()
    });
}

fn against_kernel() -> Fabric {
    let mut fabric = Fabric::new(&[NEAR, BESIDE, FAR]);
    KernelRouter {
        netns: &fabric.hosts[1],
        local: ENCAP_IP[1],
        remote: ENCAP_IP[0],
        l3vni: 5000,
        router_mac: ROUTER_MAC[1],
        far_mac: ROUTER_MAC[0],
        far: &["10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64", "fd00:2::/64"],
        ports: &[("c0", &["10.3.0.254/24", "fd00:3::fe/64"])],
    }
    .up();
    fabric.start(0, HOST_0);
    fabric
}

fn against_flowrail() -> Fabric {
    let mut fabric = Fabric::new(&[NEAR, BESIDE, FAR, STRETCHED]);
    fabric.start(0, HOST_0);
    fabric.start(1, HOST_1);
    fabric
}

#[test]
fn routed_traffic_crosses_to_the_kernel_and_back() {
    let fabric = against_kernel();
    let (near, far) = (fabric.station(0, "a0"), fabric.station(1, "c0"));
    for to in ["10.3.0.1", "fd00:3::1"] {
        expect_reachable(near, to);
        ping(near, to, 56, 20);
        ping(near, to, 8000, 5);
    }
    for to in ["10.1.0.1", "fd00:1::1"] {
        ping(far, to, 56, 20);
    }
    for options in ["", "-R"] {
        let run = iperf(far, near, "10.3.0.1", options);
        assert!(run.bytes > 10_000_000, "{options}: {run:?}");
    }
    fabric.finish();
}

#[test]
fn routed_traffic_crosses_between_two_flowrails() {
    let fabric = against_flowrail();
    let (near, far) = (fabric.station(0, "a0"), fabric.station(1, "c0"));
    for to in ["10.3.0.1", "fd00:3::1"] {
        expect_reachable(near, to);
        ping(near, to, 56, 20);
        ping(near, to, 8900, 5);
    }
    let run = iperf(far, near, "10.3.0.1", "");
    assert!(run.bytes > 10_000_000, "{run:?}");
    // One hop on each side: 64 becomes 62.
    let output = near.run("ping -n -c 1 10.3.0.1");
    assert!(output.stdout.contains("ttl=62"), "{output}");
    fabric.finish();
}

#[test]
fn an_ipv6_underlay_carries_routed_traffic() {
    let mut fabric = Fabric::over_ipv6(&[NEAR, BESIDE, FAR, STRETCHED]);
    fabric.start(0, HOST_0);
    fabric.start(1, HOST_1);
    let near = fabric.station(0, "a0");
    for to in ["10.3.0.1", "fd00:3::1"] {
        expect_reachable(near, to);
        ping(near, to, 56, 20);
        ping(near, to, 8900, 5);
    }
    assert!(iperf(fabric.station(1, "c0"), near, "10.3.0.1", "").bytes > 10_000_000);
    fabric.finish();
}

#[test]
fn a_subnet_on_two_hosts_is_bridged_and_routed_from_elsewhere() {
    let fabric = against_flowrail();
    let (near, beside, stretched) =
        (fabric.station(0, "a0"), fabric.station(0, "b0"), fabric.station(1, "a1"));
    for to in ["10.1.0.2", "fd00:1::2"] {
        expect_reachable(near, to);
        ping(near, to, 56, 10);
        // From another subnet: by the host route, through the L3VNI.
        expect_reachable(beside, to);
        ping(beside, to, 56, 10);
    }
    assert!(near.run("ping -n -c 1 10.1.0.2").stdout.contains("ttl=64"), "bridged packets keep their TTL");
    assert!(beside.run("ping -n -c 1 10.1.0.2").stdout.contains("ttl=62"), "routed ones lose one a side");
    ping(stretched, "10.2.0.1", 56, 10);
    fabric.finish();
}

#[test]
fn subnets_of_one_host_reach_each_other_without_the_underlay() {
    let mut fabric = Fabric::new(&[NEAR, BESIDE]);
    fabric.start(0, HOST_0);
    let near = fabric.station(0, "a0");
    let before = fabric.hosts[0].device("u0", "statistics/tx_packets");
    for to in ["10.2.0.1", "fd00:2::1"] {
        expect_reachable(near, to);
        ping(near, to, 8900, 20);
    }
    let run = iperf(fabric.station(0, "b0"), near, "10.2.0.1", "");
    assert!(run.bytes > 10_000_000, "{run:?}");
    // Neighbor resolution of the far VTEP is all that leaves; nothing of the tenant's does.
    assert!(fabric.hosts[0].device("u0", "statistics/tx_packets") - before < 20);
    fabric.finish();
}
