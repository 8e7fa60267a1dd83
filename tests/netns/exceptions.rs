//! Packets that must not pass: each is a counted drop with its reason, and nothing else happens.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_MAC, Vtep};
use crate::common::traffic::{ping, send_to};

const COUNT: u32 = 20;

/// `COUNT` packets, and none for another reason, are dropped by host 0's forwarder.
#[track_caller]
fn expect_drops(pair: Pair, reason: &str) {
    eventually(reason, Duration::from_secs(5), || pair.forwarder(0).stats().drop(reason) == u64::from(COUNT));
    let stats = pair.forwarder(0).stats();
    assert_eq!(stats.dropped(), u64::from(COUNT), "{stats}");
    pair.finish();
}

#[test]
fn an_unknown_destination_is_dropped() {
    let pair = Pair::up(Plan::against(Vtep::Kernel));
    send_to(&pair.hosts[0].tenants[0], 0, "02:00:00:00:ff:ff", COUNT);
    expect_drops(pair, "unknown_unicast");
}

#[test]
fn what_the_underlay_cannot_take_whole_is_dropped() {
    let pair = Pair::up(Plan { underlay_mtu: 4000, ..Plan::against(Vtep::Kernel) });
    pair.expect_reachable(0);
    // Inner IP packets of 3950 B fit; a VTEP must not fragment what is longer.
    ping(pair.tenant(0), TENANT_IP[1], 3950 - 28, 3);
    let lost = format!("ping -c {COUNT} -i 0.01 -W 1 -M do -s {} {}", 3950 - 27, TENANT_IP[1]);
    assert!(!pair.tenant(0).attempt(Duration::from_secs(5), &lost).success());
    expect_drops(pair, "encap_mtu_exceeded");
}

#[test]
fn an_unknown_vni_is_dropped() {
    let mut pair = Pair::up(Plan {
        vteps: [Vtep::None, Vtep::Kernel],
        vnis: vec![100, 300],
        ..Plan::against(Vtep::Kernel)
    });
    pair.plan.vnis = vec![100];
    let config = pair.config(0);
    pair.start_forwarder(0, &config);
    send_to(&pair.hosts[1].tenants[1], 1, TENANT_MAC[0], COUNT);
    expect_drops(pair, "unknown_vni");
}

#[test]
fn a_stranger_among_the_vteps_is_dropped() {
    let pair = Pair::up(Plan::against(Vtep::Kernel));
    pair.hosts[1].netns.run("ip addr add 10.0.0.77/24 dev u0");
    pair.hosts[1].netns.run("ip link set vx100 type vxlan local 10.0.0.77");
    send_to(&pair.hosts[1].tenants[0], 1, TENANT_MAC[0], COUNT);
    expect_drops(pair, "unknown_source_vtep");
}

#[test]
fn a_peer_outside_the_network_is_dropped() {
    let mut pair = Pair::up(Plan {
        vteps: [Vtep::None, Vtep::Kernel],
        vnis: vec![100, 200],
        ..Plan::against(Vtep::Kernel)
    });
    // The peer is a member of network 100 only; of network 200 it is not, though it sends in it.
    let config = pair.config(0).replace("vni = 200\npeers = [\"far\"]", "vni = 200\npeers = []");
    let config =
        config.replacen("[[peer.endpoint]]\nnetwork = \"net200\"\nmac = \"02:00:00:00:0a:02\"\n", "", 1);
    pair.start_forwarder(0, &config);
    send_to(&pair.hosts[1].tenants[1], 1, TENANT_MAC[0], COUNT);
    expect_drops(pair, "source_vtep_not_in_vni");
}
