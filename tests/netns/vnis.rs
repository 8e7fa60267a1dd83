//! Tenants with the same addresses in different VNIs never see each other.

use std::time::Duration;

use crate::common::topology::{Pair, Plan, TENANT_IP, Vtep};
use crate::common::traffic::{Roce, ping};

#[test]
fn vnis_with_equal_addresses_stay_apart() {
    for peer in [Vtep::Kernel, Vtep::Flowrail] {
        let pair = Pair::up(Plan { vnis: vec![1, 100, 16_777_215], ..Plan::against(peer) });
        pair.expect_reachable(0);
        for n in 0..3 {
            let [near, far] = [0, 1].map(|i| &pair.hosts[i].tenants[n]);
            // Nothing of one VNI reaches the far tenants of the others, not even the broadcast that ARP is.
            let others: Vec<_> = (0..3).filter(|&m| m != n).map(|m| &pair.hosts[1].tenants[m]).collect();
            let before: Vec<_> = others.iter().map(|t| t.device("t0", "statistics/rx_packets")).collect();
            near.run("ip neigh flush all");
            ping(near, TENANT_IP[1], 56, 5);
            Roce { path_mtu: 1024, count: 500, rate: 5000, qps: 2 }.carry(&pair, 0, n);
            assert!(far.device("t0", "statistics/rx_packets") >= 505);
            let after: Vec<_> = others.iter().map(|t| t.device("t0", "statistics/rx_packets")).collect();
            assert_eq!(before, after, "VNI number {n} leaked");
        }
        // With its own far tenant gone a tenant reaches nobody, though two others answer to the same addresses.
        pair.hosts[1].tenants[1].run("ip link set t0 down");
        let near = &pair.hosts[0].tenants[1];
        near.run("ip neigh flush all");
        let lost = near.attempt(Duration::from_secs(5), &format!("ping -c 2 -W 1 {}", TENANT_IP[1]));
        assert!(!lost.success(), "another VNI answered: {lost}");
        pair.finish();
    }
}
