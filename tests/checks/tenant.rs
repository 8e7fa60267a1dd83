//! A host with one tenant: two networks with an anycast gateway each, a VRF with an L3VNI, ports with and without a guard,
//! a trunk, and stations behind two peers.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use flowrail::ids::{NetworkId, PortId, TrunkId, VrfId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::fib::{Fib, Prefix};
use flowrail::tables::guard::Guard;
use flowrail::tables::network::{Gateway, Neighbors, Network, UnknownUnicast};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::trunk::Trunk;
use flowrail::tables::vrf::{Route, Vrf};
use flowrail::tables::vtep::{NextHop, OuterSpec, VtepRow, VtepTable};
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;

use super::site::{ip4, ip6, mac};

pub const UPLINK: PortId = PortId(0);
/// Blue, with a guard.
pub const BOUND: PortId = PortId(1);
/// Blue, without.
pub const OPEN: PortId = PortId(2);
/// Green, with a guard.
pub const GREEN: PortId = PortId(3);
/// Blue as VLAN 20, green untagged.
pub const TRUNK: PortId = PortId(4);
pub const PORTS: u16 = 5;

pub const BLUE_VLAN: u16 = 20;
pub const BLUE_VNI: u32 = 100;
pub const GREEN_VNI: u32 = 101;
pub const L3VNI: u32 = 9000;

pub const GATEWAY: Mac = Mac([2, 0, 0x5e, 0, 0, 1]);
pub const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0xaa]);
pub const PEER_ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0xbb]);

pub const ACCESS_MTU: u16 = 9000;
pub const TRUNK_MTU: u16 = 1500;
pub const UNDERLAY_MTU: u16 = 9050;

/// Behind peer 2, in blue, and known by address.
pub const KNOWN: u8 = 9;
/// Behind peer 2, routed; 8 is behind peer 3, whose next hop has no MAC.
pub const ROUTED: u8 = 9;
pub const UNRESOLVED: u8 = 8;

/// Subnets: 1 blue, 2 green, 9 elsewhere.
pub fn v4(subnet: u8, host: u8) -> [u8; 4] {
    [10, 0, subnet, host]
}

/// As [`v4`].
pub fn v6(subnet: u8, host: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, host]
}

/// Last byte of the MAC and the addresses of a port's station, and its subnet.
pub fn station(port: PortId) -> (u8, u8) {
    match port {
        BOUND => (1, 5),
        OPEN => (1, 6),
        GREEN => (2, 7),
        _ => (1, 8),
    }
}

/// Its tables. Built once for each family of the underlay.
pub fn tables(over_v6: bool) -> Rc<Snapshot> {
    thread_local!(static BUILT: [Rc<Snapshot>; 2] = [false, true].map(|v6| Rc::new(build(v6))));
    BUILT.with(|built| Rc::clone(&built[usize::from(over_v6)]))
}

fn build(over_v6: bool) -> Snapshot {
    let mut vteps = VtepTable::default();
    let underlay = |host| if over_v6 { ip6(host) } else { ip4(host) };
    let spec = OuterSpec {
        uplink: UPLINK,
        src_mac: Mac([2, 0, 0, 0, 1, 1]),
        dst_mac: Mac([2, 0, 0, 0, 2, 2]),
        vlan: None,
        src: underlay(1),
        dst: underlay(2),
        mtu: UNDERLAY_MTU,
    };
    let two = vteps.insert(VtepRow::resolved(&spec).unwrap());
    let three = vteps.insert(VtepRow::unusable(underlay(3), NextHop::Unresolved));
    let port = |role, mtu, guard: Option<u8>, subnet| Port {
        role,
        mtu,
        guard: guard.map(|host| guard_of(subnet, host)),
    };
    let (blue, green) = (NetworkId(0), NetworkId(1));
    let ports = vec![
        port(Role::Uplink { vlan: None, native: None }, UNDERLAY_MTU, None, 0),
        port(Role::Access(blue), ACCESS_MTU, Some(5), 1),
        port(Role::Access(blue), ACCESS_MTU, None, 1),
        port(Role::Access(green), ACCESS_MTU, Some(7), 2),
        port(Role::Trunk(TrunkId(0)), TRUNK_MTU, None, 1),
    ];
    let mut snapshot = Snapshot::new(Settings::default(), ports, &[ip4(1), ip6(1)], vteps)
        .with_trunks(vec![Trunk::new([(Some(BLUE_VLAN), blue), (None, green)])]);
    snapshot.push_network(network(BLUE_VNI, 1, &[(BOUND, 5), (OPEN, 6), (TRUNK, 8)], two));
    snapshot.push_network(network(GREEN_VNI, 2, &[(GREEN, 7), (TRUNK, 4)], two));
    snapshot.push_vrf(Vrf {
        l3vni: Vni::new(L3VNI),
        router_mac: ROUTER,
        members: Arc::new([two, three].into_iter().collect()),
        fib: fib(two, three),
        policy: None,
        own: [Some(v4(1, 1).into()), Some(v6(1, 1).into())],
    });
    snapshot
}

fn guard_of(subnet: u8, host: u8) -> Arc<Guard> {
    Arc::new(Guard { macs: vec![mac(host)], ips: vec![v4(subnet, host).into(), v6(subnet, host).into()] })
}

fn network(number: u32, subnet: u8, ports: &[(PortId, u8)], peer: VtepId) -> Network {
    let mut fdb = Fdb::with_capacity(8);
    let mut neighbors = Neighbors::default();
    let remote = [(Dest::Vtep(peer), KNOWN)];
    for (dest, host) in ports.iter().map(|(port, host)| (Dest::Port(*port), *host)).chain(remote) {
        fdb.insert(mac(host), dest);
        neighbors.insert(v4(subnet, host).into(), mac(host));
        neighbors.insert(v6(subnet, host).into(), mac(host));
    }
    let ports: Vec<PortId> = ports.iter().map(|(port, _)| *port).collect();
    let mut network =
        Network::new(Vni::new(number).unwrap(), fdb, UnknownUnicast::Drop, &ports, &[peer], &[peer]);
    network.learning = true;
    network.snooping = true;
    network.vrf = Some(VrfId(0));
    network.gateway = Some(Arc::new(Gateway {
        mac: GATEWAY,
        v4: vec![v4(subnet, 1).into()],
        v6: vec![v6(subnet, 1).into()],
    }));
    network.neighbors = Arc::new(neighbors);
    network
}

fn fib(two: VtepId, three: VtepId) -> Fib {
    let mut fib = Fib::default();
    let mut add = |subnet, host, route| {
        for ip in [IpAddr::from(v4(subnet, host)), v6(subnet, host).into()] {
            fib.insert(Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }).unwrap(), route);
        }
    };
    for (id, subnet, hosts) in [(0, 1, &[5, 6, 8, KNOWN][..]), (1, 2, &[7, 4, KNOWN])] {
        let network = NetworkId(id);
        add(subnet, 1, Route::Gateway(network));
        add(subnet, 77, Route::Connected(network));
        hosts.iter().for_each(|host| add(subnet, *host, Route::Host { network, mac: mac(*host) }));
    }
    add(9, ROUTED, Route::Vtep { vtep: two, router_mac: PEER_ROUTER });
    add(9, UNRESOLVED, Route::Vtep { vtep: three, router_mac: PEER_ROUTER });
    add(9, 66, Route::Blackhole);
    fib
}
