//! The tables say what the configuration says.

use std::net::IpAddr;

use super::*;
use crate::control::config::{Config, TenantId};
use crate::ids::{NetworkId, PortId, VrfId, VtepId};
use crate::tables::fdb::Dest;
use crate::tables::fib::Fib;
use crate::tables::snapshot::{Role, VniTarget};
use crate::tables::vrf::Route;
use crate::wire::ethernet::Mac;
use crate::wire::vxlan::Vni;

/// Red routes through its L3VNI; blue has the same addresses, and no L3VNI.
const FILE: &str = r#"
routing.icmp_unreachable = "drop"
[[uplink]]
interface = "eth1"
encap_ips = ["192.0.2.1"]
mac = "02:00:00:00:00:01"
mtu = 1600
[[tenant]]
name = "red"
l3vni = 5000
router_mac = "02:00:00:00:0a:fe"
peers = ["h4"]
default = "deny"
[[tenant.route]]
prefix = "10.9.0.9/32"
leak = "blue"
[[tenant.route]]
prefix = "10.9.0.8/32"
blackhole = true
[[tenant.route]]
prefix = "10.9.0.7/32"
peer = "h2"
encap_ip = "198.51.100.2"
[[tenant.route]]
prefix = "10.8.0.0/16"
peer = "h2"
[[tenant]]
name = "blue"
router_mac = "02:00:00:00:0b:fe"
[[network]]
name = "red-a"
vni = 100
peers = ["h2", "h3"]
tenant = "red"
gateway = ["10.1.0.254/24", "fd00:1::1/64"]
learning = true
[[network.group]]
address = "239.1.1.1"
ports = ["trunk"]
peers = ["h3"]
[[network]]
name = "red-b"
vni = 101
tenant = "red"
gateway = ["10.2.0.254/24"]
gateway_mac = "02:00:00:00:0a:fd"
[[network]]
name = "blue-a"
vni = 200
peers = ["h2"]
tenant = "blue"
gateway = ["10.1.0.254/24"]
[[network]]
name = "plain"
vni = 300
peers = ["h2"]
[[network]]
name = "blue-bridged"
vni = 201
peers = ["h2"]
tenant = "blue"
[[port]]
interface = "red0"
network = "red-a"
macs = ["02:00:00:00:01:01", "02:00:00:00:01:02"]
ips = ["10.1.0.1", "fd00:1::11", "fe80::1"]
[[port]]
interface = "trunk"
macs = ["02:00:00:00:01:03"]
ips = ["10.2.0.3", "fe80::3"]
[[port.vlan]]
network = "red-a"
[[port.vlan]]
network = "red-b"
id = 20
[[port]]
interface = "blue0"
network = "blue-a"
macs = ["02:00:00:00:01:01"]
ips = ["10.1.0.1", "fd00:1::1"]
spoofing = "accept"
[[port]]
interface = "open"
network = "plain"
[[port]]
interface = "bridged"
network = "blue-bridged"
macs = ["02:00:00:00:01:05"]
ips = ["10.5.0.5"]
[[peer]]
name = "h2"
encap_ips = ["192.0.2.2", "198.51.100.2"]
router_mac = "02:00:00:00:02:fe"
[[peer.endpoint]]
network = "red-a"
mac = "02:00:00:00:02:01"
ips = ["10.1.0.2", "fd00:1::2"]
[[peer.endpoint]]
network = "blue-a"
mac = "02:00:00:00:02:01"
ips = ["10.1.0.2"]
encap_ip = "198.51.100.2"
[[peer.endpoint]]
network = "plain"
mac = "02:00:00:00:02:01"
ips = ["10.1.0.2"]
[[peer]]
name = "h3"
encap_ips = ["192.0.2.3"]
[[peer.endpoint]]
network = "red-a"
mac = "02:00:00:00:03:01"
ips = ["10.1.0.3"]
[[peer]]
name = "h4"
encap_ips = ["192.0.2.4"]
"#;

const RED: VrfId = VrfId(0);
const BLUE: VrfId = VrfId(1);
const RED_A: NetworkId = NetworkId(0);
const RED_B: NetworkId = NetworkId(1);
const BLUE_A: NetworkId = NetworkId(2);

fn built() -> (Config, Snapshot) {
    let config = Config::parse(FILE, "host.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let facts = Facts::offline(&config).unwrap();
    let tables = snapshot(&config, &facts);
    (config, tables)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(a: u8, b: u8) -> Mac {
    Mac([2, 0, 0, 0, a, b])
}

fn route(fib: &Fib, to: &str) -> Option<Route> {
    match ip(to) {
        IpAddr::V4(ip) => fib.get_v4(ip.octets()),
        IpAddr::V6(ip) => fib.get_v6(ip.octets()),
    }
}

fn vtep(tables: &Snapshot, remote: &str) -> VtepId {
    tables.vteps.by_ip(ip(remote)).unwrap()
}

#[test]
fn vnis_lead_to_networks_and_vrfs() {
    let (_, tables) = built();
    let target = |vni| tables.target_of(Vni::new(vni).unwrap());
    assert_eq!(target(100), Some(VniTarget::Network(RED_A)));
    assert_eq!(target(5000), Some(VniTarget::Vrf(RED)));
    assert_eq!(tables.vrfs().count(), 2);
    assert!(!tables.settings.icmp_unreachable);
    let vrfs: Vec<_> = tables.networks().map(|(_, network)| network.vrf).collect();
    assert_eq!(vrfs, [Some(RED), Some(RED), Some(BLUE), None, Some(BLUE)]);
}

#[test]
fn only_peers_of_the_tenant_may_send_its_l3vni() {
    let (_, tables) = built();
    let members = &tables.vrf(RED).unwrap().members;
    for remote in ["192.0.2.2", "198.51.100.2", "192.0.2.3", "192.0.2.4"] {
        assert!(members.contains(vtep(&tables, remote)), "{remote}");
    }
    let blue = &tables.vrf(BLUE).unwrap().members;
    assert!(blue.contains(vtep(&tables, "192.0.2.2")) && !blue.contains(vtep(&tables, "192.0.2.3")));
    // The further members of an L3VNI are none of its networks'.
    let flood = &tables.network(RED_A).unwrap().flood;
    assert!(flood.has_member(vtep(&tables, "192.0.2.3")) && !flood.has_member(vtep(&tables, "192.0.2.4")));
}

#[test]
fn routes_lead_to_stations_and_where_the_file_says() {
    let (_, tables) = built();
    let red = tables.vrf(RED).unwrap();
    let h2 = |remote| Some(Route::Vtep { vtep: vtep(&tables, remote), router_mac: mac(2, 0xfe) });
    let host = |network, mac| Some(Route::Host { network, mac });
    for (to, expected) in [
        ("10.1.0.254", Some(Route::Gateway(RED_A))),
        ("fd00:1::1", Some(Route::Gateway(RED_A))),
        ("10.2.0.254", Some(Route::Gateway(RED_B))),
        ("10.1.0.1", host(RED_A, mac(1, 1))),
        ("fd00:1::11", host(RED_A, mac(1, 1))),
        ("10.2.0.3", host(RED_B, mac(1, 3))),
        ("fe80::1", None),
        ("10.1.0.77", Some(Route::Connected(RED_A))),
        ("fd00:1::77", Some(Route::Connected(RED_A))),
        ("10.2.0.77", Some(Route::Connected(RED_B))),
        ("10.3.0.1", None),
        ("10.8.1.1", h2("192.0.2.2")),
        ("10.1.0.2", h2("192.0.2.2")),
        ("fd00:1::2", h2("192.0.2.2")),
        ("10.1.0.3", Some(Route::NoRouterMac)),
        ("10.9.0.9", Some(Route::Leak(BLUE))),
        ("10.9.0.8", Some(Route::Blackhole)),
        ("10.9.0.7", h2("198.51.100.2")),
    ] {
        assert_eq!(route(&red.fib, to), expected, "{to}");
    }
    assert_eq!(red.own, [Some(ip("10.1.0.254")), Some(ip("fd00:1::1"))]);
    assert_eq!((red.l3vni.unwrap().get(), red.router_mac), (5000, mac(0x0a, 0xfe)));
    assert_eq!(tables.vrf(BLUE).unwrap().own, [Some(ip("10.1.0.254")), None]);
}

#[test]
fn without_an_l3vni_remote_stations_are_bridged_to() {
    let (_, tables) = built();
    let blue = &tables.vrf(BLUE).unwrap().fib;
    let remote = Route::Host { network: BLUE_A, mac: mac(2, 1) };
    assert_eq!(route(blue, "10.1.0.2"), Some(remote));
    let at = Dest::Vtep(vtep(&tables, "198.51.100.2"));
    assert_eq!(tables.network(BLUE_A).unwrap().fdb.get(mac(2, 1)), Some(at));
    // Nothing is routed into a network that has no gateway.
    assert_eq!(route(blue, "10.5.0.5"), None);
    // Nor with a family that the gateway has not, though the station is known.
    assert_eq!(route(blue, "fd00:1::1"), None);
    assert_eq!(tables.network(BLUE_A).unwrap().neighbors.get(ip("fd00:1::1")), Some(mac(1, 1)));
}

#[test]
fn tenants_with_equal_addresses_have_routes_of_their_own() {
    let (_, tables) = built();
    let to = |vrf| route(&tables.vrf(vrf).unwrap().fib, "10.1.0.1");
    assert_eq!(to(RED), Some(Route::Host { network: RED_A, mac: mac(1, 1) }));
    assert_eq!(to(BLUE), Some(Route::Host { network: BLUE_A, mac: mac(1, 1) }));
}

#[test]
fn networks_know_stations_gateways_and_receivers() {
    let (_, tables) = built();
    let red = tables.network(RED_A).unwrap();
    let gateway = red.gateway.as_ref().unwrap();
    assert_eq!((gateway.mac, gateway.v4.len(), gateway.v6.len()), (mac(0x0a, 0xfe), 1, 1));
    assert_eq!(tables.network(RED_B).unwrap().gateway.as_ref().unwrap().mac, mac(0x0a, 0xfd));
    assert!(red.learning && !tables.network(RED_B).unwrap().learning);
    for (address, station) in [
        ("10.1.0.1", mac(1, 1)),
        ("fe80::1", mac(1, 1)),
        ("fe80::3", mac(1, 3)),
        ("10.1.0.2", mac(2, 1)),
        ("10.1.0.3", mac(3, 1)),
    ] {
        assert_eq!(red.neighbors.get(ip(address)), Some(station), "{address}");
    }
    assert_eq!(red.neighbors.get(ip("10.2.0.3")), None);
    // The second MAC of a port is in the FDB, a trunk's in each of its networks.
    for (network, station, port) in [(RED_A, mac(1, 2), 1), (RED_A, mac(1, 3), 2), (RED_B, mac(1, 3), 2)] {
        let fdb = &tables.network(network).unwrap().fdb;
        assert_eq!(fdb.get(station), Some(Dest::Port(PortId(port))), "{station}");
    }
    let receivers = |group| red.flood.receivers(group, false).to_vec();
    let [h2, h3] = ["192.0.2.2", "192.0.2.3"].map(|remote| Dest::Vtep(vtep(&tables, remote)));
    assert_eq!(receivers(Some(ip("239.1.1.1"))), [Dest::Port(PortId(2)), h3]);
    assert_eq!(receivers(None), [Dest::Port(PortId(1)), Dest::Port(PortId(2)), h2, h3]);
}

#[test]
fn a_policy_is_one_for_all_of_a_tenant() {
    let (_, tables) = built();
    let vrf = tables.vrf(RED).unwrap().policy.as_ref().unwrap();
    for id in [RED_A, RED_B] {
        assert!(Arc::ptr_eq(vrf, tables.network(id).unwrap().policy.as_ref().unwrap()));
    }
    // Everything may pass: there is nothing to ask.
    assert!(tables.vrf(BLUE).unwrap().policy.is_none());
    assert!(tables.network(NetworkId(3)).unwrap().policy.is_none());
}

#[test]
fn ports_have_roles_and_guards() {
    let (_, tables) = built();
    let port = |id| tables.port(PortId(id)).unwrap();
    assert_eq!(port(1).role, Role::Access(RED_A));
    let Role::Trunk(trunk) = port(2).role else { panic!("{:?}", port(2)) };
    let trunk = tables.trunk(trunk).unwrap();
    assert_eq!([None, Some(20), Some(21)].map(|vlan| trunk.network(vlan)), [Some(RED_A), Some(RED_B), None]);
    let guard = port(1).guard.as_ref().unwrap();
    assert_eq!(guard.macs, [mac(1, 1), mac(1, 2)]);
    assert_eq!(guard.ips, ["10.1.0.1", "fd00:1::11", "fe80::1"].map(ip));
    // Spoofing is accepted; nothing is known of the station.
    assert!(port(3).guard.is_none() && port(4).guard.is_none());
}

#[test]
fn one_network_or_vrf_is_built_as_all_are() {
    let (config, tables) = built();
    for (id, whole) in tables.networks() {
        let alone = network(&config, &tables.vteps, id).unwrap();
        let sorted = |fdb: &crate::tables::fdb::Fdb| {
            let mut entries: Vec<_> = fdb.iter().collect();
            entries.sort_unstable();
            entries
        };
        assert_eq!(sorted(&alone.fdb), sorted(&whole.fdb));
        assert_eq!(alone.neighbors.len(), whole.neighbors.len());
        assert_eq!(alone.flood.receivers(None, false), whole.flood.receivers(None, false));
        assert_eq!((alone.vni, alone.vrf, &alone.gateway), (whole.vni, whole.vrf, &whole.gateway));
        assert_eq!(alone.policy.is_some(), whole.policy.is_some());
    }
    for (id, whole) in tables.vrfs() {
        let alone = vrf(&config, &tables.vteps, TenantId(id.0)).unwrap();
        assert_eq!(alone.fib.len(), whole.fib.len());
        for to in ["10.1.0.1", "10.1.0.2", "10.1.0.254", "10.9.0.9"] {
            assert_eq!(route(&alone.fib, to), route(&whole.fib, to), "{to}");
        }
        assert_eq!((alone.l3vni, alone.own), (whole.l3vni, whole.own));
        assert_eq!(alone.policy.is_some(), whole.policy.is_some());
    }
    assert!(network(&config, &tables.vteps, NetworkId(9)).is_none());
    assert!(vrf(&config, &tables.vteps, TenantId(9)).is_none());
}

#[test]
fn what_the_configuration_places_is_static() {
    let (_, tables) = built();
    let cases = [(mac(1, 1), true), (mac(2, 1), true), (mac(0x0a, 0xfe), true), (mac(9, 9), false)];
    for (station, expected) in cases {
        assert_eq!(is_static(&tables, RED_A, station), expected, "{station}");
    }
    assert!(!is_static(&tables, RED_B, mac(2, 1)));
    assert!(!is_static(&tables, NetworkId(9), mac(1, 1)));
}
