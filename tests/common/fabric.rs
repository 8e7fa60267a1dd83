//! Two hosts back to back, and stations behind ports of theirs: what tests of routing and tenancy are played on.
//!
//! ```text
//! station ──veth── port  host 0  u0 ──veth── u0  host 1  port ──veth── station
//!                        10.0.0.1            10.0.0.2
//! ```
//! A host runs flowrail, or the kernel's VXLAN device as the VTEP and router of one VRF ([`KernelRouter`]).

use super::forwarder::Forwarder;
use super::netns::{Netns, Turn};
use super::topology::UPLINK_MAC;
use super::veth::{End, Veth};

pub const ENCAP_IP: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const ENCAP_IP6: [&str; 2] = ["fd00::1", "fd00::2"];

/// A station: a namespace with one interface, `t0`, at the far end of a port.
#[derive(Clone, Copy)]
pub struct Station {
    /// Host that it is attached to, 0 or 1.
    pub host: usize,
    /// Port of the host.
    pub port: &'static str,
    pub mac: &'static str,
    /// Addresses with prefix lengths, of either family.
    pub ips: &'static [&'static str],
    /// Default gateways, of either family.
    pub via: &'static [&'static str],
}

/// The hosts and the stations.
pub struct Fabric {
    pub hosts: [Netns; 2],
    pub forwarders: [Option<Forwarder>; 2],
    stations: Vec<(Station, Netns)>,
    encap_ip: [&'static str; 2],
    _turn: Turn,
}

impl Fabric {
    /// Hosts and stations, with nothing running. Underlay MTU 9214, ports 9000.
    pub fn new(stations: &[Station]) -> Self {
        Self::over(ENCAP_IP, 24, stations)
    }

    /// The same over an IPv6 underlay.
    pub fn over_ipv6(stations: &[Station]) -> Self {
        Self::over(ENCAP_IP6, 64, stations)
    }

    fn over(encap_ip: [&'static str; 2], prefix: u8, stations: &[Station]) -> Self {
        let turn = Turn::wait();
        let hosts = [0, 1].map(|i| Netns::new(&format!("host{i}")));
        let underlay = Veth { mtu: 9214, queues: 1, offload: false };
        let [a, b] = [0, 1].map(|i| End { netns: &hosts[i], name: "u0", mac: UPLINK_MAC[i] });
        underlay.connect(a, b);
        for (host, ip) in hosts.iter().zip(encap_ip) {
            host.set_ipv6(ip.contains(':'));
            host.run(&format!("ip addr add {ip}/{prefix} dev u0"));
        }
        let mut fabric =
            Self { hosts, forwarders: [None, None], stations: Vec::new(), encap_ip, _turn: turn };
        for station in stations {
            fabric.attach(*station);
        }
        fabric
    }

    /// Adds a station.
    pub fn attach(&mut self, station: Station) {
        let Station { host, port, mac, ips, via } = station;
        let netns = Netns::new(&format!("{host}-{port}"));
        netns.set_ipv6(ips.iter().any(|ip| ip.contains(':')));
        let number = self.stations.len();
        Veth { mtu: 9000, queues: 1, offload: true }.connect(
            End { netns: &netns, name: "t0", mac },
            End { netns: &self.hosts[host], name: port, mac: &format!("02:00:00:00:02:{number:02x}") },
        );
        for ip in ips {
            netns.run(&format!("ip addr add {ip} dev t0"));
        }
        for gateway in via {
            let family = if gateway.contains(':') { "-6" } else { "-4" };
            netns.run(&format!("ip {family} route add default via {gateway} dev t0"));
        }
        self.stations.push((station, netns));
    }

    /// Runs flowrail on a host. Workers and uplink are written here; `tables` is the rest.
    #[track_caller]
    pub fn start(&mut self, host: usize, tables: &str) {
        self.forwarders[host] =
            Some(Forwarder::start(&self.hosts[host], &config(host, self.encap_ip, tables)));
    }

    /// The station behind a port of a host.
    #[track_caller]
    pub fn station(&self, host: usize, port: &str) -> &Netns {
        let found = self.stations.iter().find(|(s, _)| s.host == host && s.port == port);
        &found.unwrap_or_else(|| panic!("no station at {port} of host {host}")).1
    }

    /// The forwarder of a host.
    pub fn forwarder(&self, host: usize) -> &Forwarder {
        self.forwarders[host].as_ref().expect("no flowrail on this host")
    }

    /// Asserts that every frame is accounted for, stops the forwarders, and asserts that they left nothing behind.
    #[track_caller]
    pub fn finish(mut self) {
        for (host, forwarder) in self.forwarders.iter_mut().enumerate() {
            if let Some(forwarder) = forwarder.take() {
                forwarder.expect_conservation();
                forwarder.stop(&self.hosts[host]);
            }
        }
    }
}

/// A whole configuration: the uplink and the other host as peer `far`, then `tables`, whose first lines may continue the
/// peer's table.
fn config(host: usize, encap_ip: [&str; 2], tables: &str) -> String {
    format!(
        "[workers]\ncores = [1]\n[xdp]\nrequire_native = true\n\
         [[uplink]]\ninterface = \"u0\"\nencap_ips = [\"{}\"]\n\
         [[peer]]\nname = \"far\"\nencap_ips = [\"{}\"]\n{tables}",
        encap_ip[host],
        encap_ip[1 - host]
    )
}

/// The kernel as VTEP and router of one VRF: symmetric IRB with its VXLAN device as the L3VNI, the namespace being the VRF.
pub struct KernelRouter<'a> {
    pub netns: &'a Netns,
    pub local: &'a str,
    pub remote: &'a str,
    pub l3vni: u32,
    pub router_mac: &'a str,
    /// Router MAC of the other side.
    pub far_mac: &'a str,
    /// Prefixes behind the other side.
    pub far: &'a [&'a str],
    /// Ports with the gateway addresses on them.
    pub ports: &'a [(&'a str, &'a [&'a str])],
}

impl KernelRouter<'_> {
    pub fn up(&self) {
        let Self { netns, local, remote, l3vni, router_mac, far_mac, far, ports } = self;
        netns.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
        netns.set_ipv6(true);
        netns.run("sysctl -qw net.ipv6.conf.all.forwarding=1");
        netns.run(&format!(
            "ip link add l3 address {router_mac} mtu 9000 type vxlan id {l3vni} local {local} remote {remote} dev u0 \
             dstport 4789 nolearning tos inherit"
        ));
        netns.run("ip link set l3 up");
        // RFC 9136: the next hop is the far VTEP, reached by its router MAC. The address is a stand-in.
        for next_hop in ["169.254.99.1", "fe80::99"] {
            netns.run(&format!("ip neigh add {next_hop} lladdr {far_mac} dev l3 nud permanent"));
        }
        for prefix in *far {
            let route = match prefix.contains(':') {
                false => format!("ip route add {prefix} via 169.254.99.1 dev l3 onlink"),
                true => format!("ip -6 route add {prefix} via fe80::99 dev l3 onlink"),
            };
            netns.run(&route);
        }
        for (port, gateways) in *ports {
            for gateway in *gateways {
                netns.run(&format!("ip addr add {gateway} dev {port}"));
            }
        }
    }
}
