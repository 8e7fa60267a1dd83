//! The harness against itself: two kernel VTEPs. When these fail, no other test here says anything about flowrail.

use std::time::Duration;

use crate::common::topology::{Pair, Plan, TENANT_IP, Vtep};
use crate::common::traffic::{Roce, iperf, ping};

fn kernels() -> Plan {
    Plan { vteps: [Vtep::Kernel, Vtep::Kernel], ..Plan::against(Vtep::Kernel) }
}

#[test]
fn two_kernel_vteps_carry_everything() {
    let pair = Pair::up(kernels());
    pair.expect_reachable(0);
    ping(pair.tenant(0), TENANT_IP[1], 8972, 20);
    assert!(iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], "").bytes > 10_000_000);
    for path_mtu in [1024, 4096] {
        let roce = Roce { path_mtu, count: 5000, rate: 5000, qps: 4 };
        roce.carry(&pair, 0, 0);
        roce.carry(&pair, 1, 0);
    }
    assert_eq!(Roce { path_mtu: 1024, count: 200, rate: 1, qps: 1 }.round_trips(&pair, 0)["lost"], 0);
}

#[test]
fn two_kernel_vteps_over_ipv6_keep_vnis_apart() {
    let pair = Pair::up(Plan { vnis: vec![100, 200], underlay_ipv6: true, ..kernels() });
    pair.expect_reachable(0);
    pair.hosts[1].tenants[1].run("ip link set t0 down");
    ping(pair.tenant(0), TENANT_IP[1], 56, 5);
    let other =
        pair.hosts[0].tenants[1].attempt(Duration::from_secs(5), &format!("ping -c 2 -W 1 {}", TENANT_IP[1]));
    assert!(!other.success(), "VNI 200 must not reach VNI 100: {other}");
}
