//! What one tenant sends the other receives: ping, TCP, UDP, jumbo frames, RoCEv2, over IPv4 and IPv6 underlays.
//!
//! Every scenario runs against the kernel's VXLAN device and face to face with a second flowrail.

use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_IP6, Vtep};
use crate::common::traffic::{Roce, iperf, ping};

const PEERS: [Vtep; 2] = [Vtep::Kernel, Vtep::Flowrail];

/// A pair for each kind of peer, with neighbors resolved.
fn with_each_peer(change: impl Fn(&mut Plan), scenario: impl Fn(&Pair)) {
    for peer in PEERS {
        eprintln!("against {peer:?}");
        let mut plan = Plan::against(peer);
        change(&mut plan);
        let pair = Pair::up(plan);
        pair.expect_reachable(0);
        scenario(&pair);
        pair.finish();
    }
}

#[test]
fn tenants_ping_each_other() {
    with_each_peer(
        |plan| plan.tenant_ipv6 = true,
        |pair| {
            ping(pair.tenant(0), TENANT_IP[1], 56, 50);
            ping(pair.tenant(1), TENANT_IP[0], 56, 50);
            // Neighbor discovery is multicast, which the tunnel replicates.
            ping(pair.tenant(0), TENANT_IP6[1], 56, 20);
        },
    );
}

#[test]
fn every_frame_length_up_to_jumbo_passes() {
    with_each_peer(
        |_| {},
        |pair| {
            // Payload 0 makes frames that a physical port would pad; 8972 makes 9000 B IP packets. Between them lie
            // the lengths at which a frame starts to take a second and a third UMEM chunk.
            for size in [0, 1, 17, 18, 1472, 1473, 3700, 3744, 3800, 4000, 4068, 7900, 8972] {
                ping(pair.tenant(0), TENANT_IP[1], size, 3);
            }
        },
    );
}

#[test]
fn tcp_flows_both_ways() {
    with_each_peer(
        |_| {},
        |pair| {
            for options in ["", "-R", "-P 4"] {
                let run = iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], options);
                assert!(run.bytes > 10_000_000, "{options}: {run:?}");
            }
        },
    );
}

#[test]
fn udp_within_capacity_is_not_lost() {
    with_each_peer(
        |_| {},
        |pair| {
            // 5 MB of socket buffer ride out what the scheduler does to four processes on two cores.
            for options in
                ["-u -b 50M -l 1400 -w 5M", "-u -b 50M -l 1400 -w 5M -R", "-u -b 200M -l 8900 -w 5M"]
            {
                let run = iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], options);
                assert!(run.bytes > 5_000_000 && run.lost_percent < 1.0, "{options}: {run:?}");
            }
        },
    );
}

#[test]
fn standard_mtu_tenants_get_their_whole_frames() {
    with_each_peer(
        |plan| (plan.underlay_mtu, plan.tenant_mtu) = (1550, 1500),
        |pair| {
            ping(pair.tenant(0), TENANT_IP[1], 1472, 5);
            assert!(iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], "").bytes > 10_000_000);
        },
    );
}

#[test]
fn an_ipv6_underlay_carries_the_same() {
    with_each_peer(
        |plan| plan.underlay_ipv6 = true,
        |pair| {
            ping(pair.tenant(0), TENANT_IP[1], 8972, 10);
            for options in ["", "-R"] {
                let run = iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], options);
                assert!(run.bytes > 10_000_000, "{options}: {run:?}");
            }
            for path_mtu in [1024, 4096] {
                Roce { path_mtu, count: 3000, rate: 5000, qps: 4 }.carry(pair, 0, 0);
                Roce { path_mtu, count: 3000, rate: 5000, qps: 4 }.carry(pair, 1, 0);
            }
        },
    );
}

#[test]
fn roce_arrives_whole_and_in_order() {
    with_each_peer(
        |_| {},
        |pair| {
            for path_mtu in [256, 1024, 4096] {
                for from in 0..2 {
                    let roce = Roce { path_mtu, count: 4000, rate: 4000, qps: 8 };
                    assert_eq!(roce.carry(pair, from, 0)["queue_pairs"], 8);
                }
                let echoes = Roce { path_mtu, count: 300, rate: 1, qps: 1 };
                echoes.round_trips(pair, 0);
            }
        },
    );
}

#[test]
fn steering_roce_only_leaves_the_rest_to_the_kernel() {
    let plan = Plan { port_extra: "steer = \"roce\"", ..Plan::against(Vtep::Kernel) };
    let pair = Pair::up(plan);
    Roce { path_mtu: 1024, count: 1000, rate: 5000, qps: 2 }.carry(&pair, 0, 0);
    // The port's own address answers from the host's kernel: ARP and ICMP were not steered.
    pair.hosts[0].netns.run("ip addr add 192.168.1.254/24 dev p0");
    ping(pair.tenant(0), "192.168.1.254", 56, 5);
    pair.finish();
}
