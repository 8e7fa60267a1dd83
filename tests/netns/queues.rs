//! Multi-queue devices: every RX queue has a socket and every flow its order.

use std::time::Duration;

use crate::common::netns::Netns;
use crate::common::topology::{Pair, Plan, TENANT_IP, Vtep};
use crate::common::traffic::{Roce, iperf};

/// XDP's packet count of each RX queue of a veth.
fn per_queue(netns: &Netns, device: &str) -> Vec<u64> {
    let statistics = netns.run(&format!("ethtool -S {device}")).stdout;
    let queue = |n: usize| {
        let name = format!("rx_queue_{n}_xdp_packets:");
        statistics.lines().find_map(|line| line.trim().strip_prefix(&name)?.trim().parse().ok())
    };
    (0..).map_while(queue).collect()
}

fn carry_on_four_queues(cores: &'static str, peer: Vtep) {
    let pair = Pair::up(Plan { queues: 4, cores, ..Plan::against(peer) });
    pair.expect_reachable(0);
    // 64 queue pairs hash over the four queues; each must keep its order, whichever workers serve them.
    for from in 0..2 {
        Roce { path_mtu: 1024, count: 12_800, rate: 10_000, qps: 64 }.carry(&pair, from, 0);
        Roce { path_mtu: 4096, count: 6_400, rate: 5_000, qps: 64 }.carry(&pair, from, 0);
    }
    assert!(iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], "-P 8").bytes > 10_000_000);
    // A worker of the far flowrail sends on the queue that it owns, so that a wire carries as many as it has workers.
    let spread: &[&str] = if peer == Vtep::Kernel { &["p0", "u0"] } else { &["p0"] };
    for device in spread {
        let packets = per_queue(&pair.hosts[0].netns, device);
        assert_eq!(packets.len(), 4, "{device}");
        assert!(packets.iter().all(|&n| n > 100), "{device} left a queue idle: {packets:?}");
    }
    pair.finish();
}

#[test]
fn one_worker_serves_four_queues() {
    carry_on_four_queues("[1]", Vtep::Kernel);
}

#[test]
fn two_workers_share_four_queues() {
    carry_on_four_queues("[0, 1]", Vtep::Kernel);
    carry_on_four_queues("[0, 1]", Vtep::Flowrail);
}

#[test]
fn a_port_with_fewer_queues_than_workers_is_served() {
    let pair = Pair::up(Plan { queues: 1, cores: "[0, 1]", ..Plan::against(Vtep::Kernel) });
    pair.expect_reachable(0);
    for from in 0..2 {
        Roce { path_mtu: 1024, count: 10_000, rate: 10_000, qps: 16 }.carry(&pair, from, 0);
    }
    pair.finish();
}

#[test]
fn a_round_trip_needs_no_other_traffic_to_move() {
    // One frame at a time: nothing behind it flushes a ring that waits for a full batch.
    let pair = Pair::up(Plan { queues: 4, ..Plan::against(Vtep::Kernel) });
    pair.expect_reachable(0);
    let report = Roce { path_mtu: 1024, count: 500, rate: 1, qps: 1 }.round_trips(&pair, 0);
    let p99 = Duration::from_secs_f64(report["rtt_p99_us"].as_f64().unwrap() / 1e6);
    assert!(p99 < Duration::from_millis(50), "{report}");
    pair.finish();
}
