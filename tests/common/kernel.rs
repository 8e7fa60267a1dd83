//! The kernel's own VXLAN device and bridge as a VTEP: the peer every forwarder must get on with.

use super::netns::Netns;

/// Puts port `port` and the tunnel of `vni` on one bridge. Everything goes to the one `remote`.
pub struct KernelVtep<'a> {
    pub netns: &'a Netns,
    /// Device that carries the tunnel.
    pub underlay: &'a str,
    pub vni: u32,
    pub port: &'a str,
    pub local: &'a str,
    pub remote: &'a str,
    pub mtu: u32,
}

impl KernelVtep<'_> {
    pub fn up(&self) {
        let Self { netns, underlay, vni, port, local, remote, mtu } = self;
        netns.run(&format!(
            "ip link add vx{vni} mtu {mtu} type vxlan id {vni} local {local} remote {remote} dev {underlay} \
             dstport 4789 nolearning tos inherit"
        ));
        netns.run(&format!("ip link add br{vni} mtu {mtu} type bridge mcast_snooping 0"));
        for device in [&format!("vx{vni}"), *port] {
            netns.run(&format!("ip link set {device} master br{vni} up"));
        }
        netns.run(&format!("ip link set br{vni} up"));
    }
}
