//! A tap device, which a hypervisor holds the other side of, as access port.

use crate::common::command::eventually;
use crate::common::tap;
use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_MAC, Vtep};
use crate::common::traffic::{Roce, iperf, ping};

#[test]
fn a_tap_is_an_access_port() {
    // Host 0 gets its tenant by tap, before the forwarder starts; tap attaches frames longer than a page in generic
    // fashion within its native mode.
    let mut pair = Pair::up(Plan { vteps: [Vtep::None, Vtep::Kernel], ..Plan::against(Vtep::Kernel) });
    let (host, tenant) = (&pair.hosts[0].netns, pair.tenant(0));
    host.run("ip link del p0");
    tap::connect((host, "p0"), (tenant, "t0"));
    host.run("ip link set p0 mtu 9000 up");
    tenant.run(&format!("ip link set t0 address {} mtu 9000 up", TENANT_MAC[0]));
    tenant.run(&format!("ip addr add {}/24 dev t0", TENANT_IP[0]));
    eventually("the tap has a carrier", std::time::Duration::from_secs(2), || {
        host.device("p0", "carrier") == 1
    });
    let config = pair.config(0);
    pair.start_forwarder(0, &config);
    pair.expect_reachable(0);
    for size in [0, 1472, 4068, 8972] {
        ping(pair.tenant(0), TENANT_IP[1], size, 5);
    }
    for options in ["", "-R"] {
        assert!(iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], options).bytes > 5_000_000);
    }
    for path_mtu in [1024, 4096] {
        for from in 0..2 {
            Roce { path_mtu, count: 3000, rate: 3000, qps: 4 }.carry(&pair, from, 0);
        }
    }
    pair.finish();
}
