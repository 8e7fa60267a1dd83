//! Two ports of one network on one host: what is local stays local.

use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_MAC, Vtep};
use crate::common::traffic::{iperf, ping};

const THIRD_MAC: &str = "02:00:00:00:0a:03";
const THIRD_IP: &str = "192.168.1.3";

#[test]
fn two_ports_of_one_network_reach_each_other_and_the_far_one() {
    let plan =
        Plan { vteps: [Vtep::None, Vtep::Kernel], vnis: vec![100, 200], ..Plan::against(Vtep::Kernel) };
    let mut pair = Pair::up(plan);
    let third = &pair.hosts[0].tenants[1];
    third.run(&format!("ip link set t0 address {THIRD_MAC}"));
    third.run("ip addr flush dev t0");
    third.run(&format!("ip addr add {THIRD_IP}/24 dev t0"));
    let [near, _] = TENANT_MAC;
    let config = pair.config(0).replace(
        &format!("interface = \"p1\"\nnetwork = \"net200\"\nmacs = [\"{near}\"]"),
        &format!("interface = \"p1\"\nnetwork = \"net100\"\nmacs = [\"{THIRD_MAC}\"]"),
    );
    pair.start_forwarder(0, &config);
    pair.expect_reachable(0);
    let third = &pair.hosts[0].tenants[1];
    let sent = pair.hosts[0].netns.device("u0", "statistics/tx_packets");
    for size in [0, 1472, 8972] {
        ping(third, TENANT_IP[0], size, 10);
    }
    assert!(iperf(pair.tenant(0), third, TENANT_IP[0], "").bytes > 10_000_000);
    let sent = pair.hosts[0].netns.device("u0", "statistics/tx_packets") - sent;
    assert!(sent < 10, "{sent} frames of local traffic went to the underlay, more than ARP needs");
    ping(third, TENANT_IP[1], 8972, 10);
    ping(pair.tenant(1), THIRD_IP, 56, 10);
    pair.finish();
}
