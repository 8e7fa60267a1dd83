//! Next-hop MAC addresses: resolved on demand, followed when they change, and what happens when nobody answers.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::topology::{Pair, Plan, TENANT_MAC, UPLINK_MAC, Vtep};
use crate::common::traffic::{Roce, send_to};

#[test]
fn the_first_packets_wait_for_resolution() {
    let pair = Pair::up(Plan::against(Vtep::Kernel));
    // Nothing has gone out yet, so the kernel has no neighbor; frames address their tenants without ARP.
    let neighbors = pair.hosts[0].netns.run("ip neigh show dev u0").stdout;
    assert!(!neighbors.contains(UPLINK_MAC[1]), "{neighbors}");
    Roce { path_mtu: 1024, count: 20, rate: 1000, qps: 1 }.carry(&pair, 0, 0);
    pair.finish();
}

#[test]
fn a_next_hop_that_never_answers_is_a_counted_drop() {
    let pair = Pair::up(Plan { vteps: [Vtep::Flowrail, Vtep::None], ..Plan::against(Vtep::Kernel) });
    pair.hosts[1].netns.run("ip addr flush dev u0");
    send_to(pair.tenant(0), 0, TENANT_MAC[1], 20);
    eventually("unresolved frames are dropped", Duration::from_secs(10), || {
        pair.forwarder(0).stats().drop("neighbor_unresolved") == 20
    });
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
