//! Underlays that are more than one untagged wire: a VLAN, and RoCEv2 that goes without a tunnel.

use crate::common::tap;
use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_MAC, UPLINK_MAC, Vtep};
use crate::common::traffic::{Roce, iperf, ping};

const TAG: [u8; 4] = [0x81, 0x00, 0x00, 10];

fn push_tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &TAG, &frame[12..]].concat()
}

/// What is not in the VLAN does not leave it.
fn pop_tag(frame: &[u8]) -> Vec<u8> {
    if frame[12..16] == TAG { [&frame[..12], &frame[16..]].concat() } else { Vec::new() }
}

#[test]
fn an_underlay_in_a_vlan_carries_the_tunnel() {
    let mut pair = Pair::up(Plan { vteps: [Vtep::None, Vtep::None], ..Plan::against(Vtep::Kernel) });
    // Tags exist on the near side of a cable of taps, so that the test needs no VLAN support in the kernel.
    let [near, far] = [&pair.hosts[0].netns, &pair.hosts[1].netns];
    near.run("ip link del u0");
    tap::connect_through((near, "u0"), (far, "u0"), pop_tag, push_tag);
    for (i, host) in pair.hosts.iter().enumerate() {
        host.netns.run(&format!("ip link set u0 address {} mtu 9214 up", UPLINK_MAC[i]));
        host.netns.run(&format!("ip addr add {}/24 dev u0", pair.plan.encap_ip(i)));
    }
    // The near kernel has no VLAN device with which to resolve the far host or answer it.
    far.run(&format!("ip neigh add 10.0.0.1 lladdr {} dev u0 nud permanent", UPLINK_MAC[0]));
    let neighbor =
        format!("\n[[neighbor]]\nuplink = \"u0\"\nip = \"10.0.0.2\"\nmac = \"{}\"\n", UPLINK_MAC[1]);
    pair.start_kernel_vtep(1, "u0");
    let config = pair.config(0).replace("interface = \"u0\"", "interface = \"u0\"\nvlan = 10") + &neighbor;
    pair.start_forwarder(0, &config);
    pair.expect_reachable(0);
    for size in [0, 1472, 4068, 8972] {
        ping(pair.tenant(0), TENANT_IP[1], size, 5);
        ping(pair.tenant(1), TENANT_IP[0], size, 5);
    }
    for options in ["", "-R"] {
        assert!(iperf(pair.tenant(1), pair.tenant(0), TENANT_IP[1], options).bytes > 10_000_000);
    }
    for path_mtu in [1024, 4096] {
        for from in 0..2 {
            Roce { path_mtu, count: 3000, rate: 5000, qps: 4 }.carry(&pair, from, 0);
        }
    }
    pair.finish();
}

#[test]
fn native_roce_passes_without_a_tunnel() {
    let mut pair = Pair::up(Plan { vteps: [Vtep::None, Vtep::None], ..Plan::against(Vtep::Kernel) });
    // The far host only bridges, so what it receives must be the tenant's own frame.
    let far = &pair.hosts[1].netns;
    far.run("ip link add br0 type bridge mcast_snooping 0");
    for device in ["u0", "p0"] {
        far.run(&format!("ip link set {device} master br0"));
    }
    far.run("ip link set br0 up");
    let config = format!(
        "[workers]\ncores = [1]\n\n[[uplink]]\ninterface = \"u0\"\nencap_ips = [\"10.0.0.1\"]\n\n\
         [[port]]\ninterface = \"p0\"\nnative = \"u0\"\nsteer = \"roce\"\nmacs = [\"{}\"]\n",
        TENANT_MAC[0]
    );
    pair.start_forwarder(0, &config);
    for path_mtu in [1024, 4096] {
        for from in 0..2 {
            Roce { path_mtu, count: 3000, rate: 5000, qps: 4 }.carry(&pair, from, 0);
        }
    }
    let stats = pair.forwarder(0).stats();
    assert_eq!(stats.dropped(), 0, "{stats}");
    pair.finish();
}
