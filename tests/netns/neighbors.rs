//! Next-hop MAC addresses: resolved on demand, followed when they change, and what happens when nobody answers.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::topology::{Pair, Plan, TENANT_MAC, Vtep};
use crate::common::traffic::{Roce, send_to};

/// A forwarder on host 0 whose peer has no address yet, so that nothing answers for it.
fn before_the_peer_answers() -> Pair {
    let mut pair = Pair::up(Plan { vteps: [Vtep::None, Vtep::Kernel], ..Plan::against(Vtep::Kernel) });
    pair.hosts[1].netns.run("ip addr flush dev u0");
    let config = pair.config(0);
    pair.start_forwarder(0, &config);
    pair
}

#[test]
fn a_next_hop_that_never_answers_is_a_counted_drop() {
    let pair = before_the_peer_answers();
    send_to(pair.tenant(0), 0, TENANT_MAC[1], 20);
    eventually("unresolved packets are dropped", Duration::from_secs(10), || {
        pair.forwarder(0).stats().drop("neighbor_unresolved") == 20
    });
    pair.finish();
}

#[test]
fn packets_that_nobody_answers_for_wait_in_bounds() {
    let pair = before_the_peer_answers();
    send_to(pair.tenant(0), 0, TENANT_MAC[1], 1000);
    eventually("all packets are dropped, waiting or not", Duration::from_secs(10), || {
        let stats = pair.forwarder(0).stats();
        stats.drop("neighbor_unresolved") + stats.drop("neighbor_queue_full") == 1000
    });
    let stats = pair.forwarder(0).stats();
    assert!(stats.drop("neighbor_queue_full") > 0 && stats.drop("neighbor_unresolved") > 0, "{stats}");
    pair.finish();
}

#[test]
fn the_first_packets_wait_for_resolution() {
    let pair = before_the_peer_answers();
    // The kernel's entry has failed by the time the address comes; the packets themselves must ask anew.
    eventually("the neighbor fails", Duration::from_secs(10), || {
        pair.hosts[0].netns.run("ip neigh show dev u0").stdout.contains("FAILED")
    });
    pair.hosts[1].netns.run("ip addr add 10.0.0.2/24 dev u0");
    Roce { path_mtu: 1024, count: 20, rate: 2000, qps: 1 }.carry(&pair, 0, 0);
    assert!(pair.forwarder(0).stats().note("neighbor_queued") > 0);
    pair.finish();
}

#[test]
fn a_neighbor_that_moves_is_followed() {
    let pair = Pair::up(Plan::against(Vtep::Kernel));
    pair.expect_reachable(0);
    let (near, far) = (&pair.hosts[0].netns, &pair.hosts[1].netns);
    far.run("ip link set u0 address 02:00:00:00:01:77");
    near.run("ip neigh replace 10.0.0.2 lladdr 02:00:00:00:01:77 dev u0 nud reachable");
    pair.expect_reachable(0);
    Roce { path_mtu: 1024, count: 500, rate: 5000, qps: 2 }.carry(&pair, 0, 0);
    pair.finish();
}
