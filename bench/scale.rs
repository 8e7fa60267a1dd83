//! What the benches of datapath and tables share: a host at full scale, its packets, and an allocator that counts.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowrail::ids::{NetworkId, PortId, RuleId, VrfId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::fib::{Fib, Prefix};
use flowrail::tables::network::{Gateway, Network, UnknownUnicast};
use flowrail::tables::policy::{Action, Policy, Rule};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::vrf::{Route, Vrf};
use flowrail::tables::vtep::{OuterSpec, VtepRow, VtepTable};
use flowrail::wire::ethernet::Mac;
use flowrail::wire::vxlan::Vni;

/// Counts allocations, and the bytes that are allocated.
pub struct Counting;

pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
pub static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

pub const UPLINK: PortId = PortId(0);
pub const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
pub const GATEWAY: Mac = Mac([2, 0, 0x5e, 0, 1, 1]);
pub const ROUTER: Mac = Mac([2, 0, 0, 0, 1, 1]);
/// Station behind every tenant's access port.
pub const STATION: Mac = Mac([2, 0, 0, 0, 0xa, 1]);
pub const STATION_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Full scale.
pub const MACS: usize = 1_000_000;
pub const TENANTS: usize = 1000;
pub const ROUTES: usize = 100;
pub const VTEPS: usize = 65_536;

pub fn vtep_ip(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + index as u32)
}

pub fn mac(index: usize) -> Mac {
    let [a, b, c, d] = (index as u32).to_be_bytes();
    Mac([0x02, 0x0a, a, b, c, d])
}

pub fn port(tenant: usize) -> PortId {
    PortId(1 + tenant as u16)
}

pub fn network(tenant: usize) -> NetworkId {
    NetworkId(tenant as u32)
}

pub fn vrf(tenant: usize) -> VrfId {
    VrfId(tenant as u32)
}

pub fn vni(tenant: usize) -> Vni {
    Vni::new(100 + tenant as u32).unwrap()
}

pub fn l3vni(tenant: usize) -> Vni {
    Vni::new(1_000_000 + tenant as u32).unwrap()
}

pub fn row(src: IpAddr, dst: IpAddr) -> VtepRow {
    let (src_mac, dst_mac) = (Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 2, 2]));
    VtepRow::resolved(&OuterSpec { uplink: UPLINK, src_mac, dst_mac, vlan: None, src, dst, mtu: 9214 })
        .unwrap()
}

pub fn vteps(count: usize) -> VtepTable {
    let mut table = VtepTable::default();
    for index in 0..count {
        table.insert(row(LOCAL, vtep_ip(index).into()));
    }
    table
}

/// Where a route of a tenant leads: neighbouring routes are behind different VTEPs.
pub fn remote(tenant: usize, route: usize, vteps: usize) -> Route {
    let vtep = VtepId(((tenant * 7919 + route * 104_729) % vteps) as u32);
    Route::Vtep { vtep, router_mac: Mac([2, 0, 0, 0, 2, 2]) }
}

/// A route's prefix and an address in it: of ten, seven are hosts (two of them IPv6), two /24, one /64; the first is the
/// default route.
pub fn prefix(route: usize) -> (Prefix, IpAddr) {
    let [_, _, hi, lo] = (route as u32).to_be_bytes();
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, route as u16, 0, 0, 0, last));
    let (addr, len, within): (IpAddr, u8, IpAddr) = match route % 10 {
        _ if route == 0 => ([0; 4].into(), 0, [198, 51, 100, 7].into()),
        7 | 8 => ([10, 2 + hi, lo, 0].into(), 24, [10, 2 + hi, lo, 9].into()),
        9 => (v6(0), 64, v6(9)),
        5 | 6 => (v6(1), 128, v6(1)),
        _ => ([10, 1, hi, lo].into(), 32, [10, 1, hi, lo].into()),
    };
    (Prefix::new(addr, len).unwrap(), within)
}

/// Tenants with an access port, a network of `macs` remote MACs, and a VRF of `routes`.
pub fn host(tenants: usize, macs: usize, routes: usize, remotes: usize) -> Snapshot {
    let mut ports = vec![Port { role: Role::Uplink { vlan: None, native: None }, mtu: 9214, guard: None }];
    ports.extend((0..tenants).map(|t| Port { role: Role::Access(network(t)), mtu: 9214, guard: None }));
    let mut snapshot = Snapshot::new(Settings::default(), ports, &[LOCAL], vteps(remotes));
    let member = VtepId(0);
    let gateway = Arc::new(Gateway { mac: GATEWAY, v4: vec![[10, 0, 0, 254].into()], v6: Vec::new() });
    for tenant in 0..tenants {
        let mut fdb = Fdb::with_capacity(macs + 1);
        for index in 0..macs {
            fdb.insert(mac(tenant * macs + index), Dest::Vtep(VtepId(((tenant + index) % remotes) as u32)));
        }
        fdb.insert(STATION, Dest::Port(port(tenant)));
        let mut fib = Fib::default();
        for route in 0..routes {
            fib.insert(prefix(route).0, remote(tenant, route, remotes));
        }
        let station = Route::Host { network: network(tenant), mac: STATION };
        fib.insert(Prefix::new(STATION_IP.into(), 32).unwrap(), station);
        let members = &[member][..];
        let mut net = Network::new(vni(tenant), fdb, UnknownUnicast::Drop, &[port(tenant)], &[], members);
        net.vrf = Some(vrf(tenant));
        net.gateway = Some(Arc::clone(&gateway));
        snapshot.push_network(net);
        snapshot.push_vrf(Vrf {
            l3vni: Some(l3vni(tenant)),
            router_mac: ROUTER,
            members: Arc::new([member].into_iter().collect()),
            fib,
            policy: None,
            own: [None; 2],
        });
    }
    snapshot
}

/// Rules as a tenant writes them, a subnet, a protocol and ports in each, every tenth counting; only the last matches
/// RoCEv2 to 10.0.0.2.
pub fn policy(rules: usize) -> Policy {
    let any = Rule {
        action: Action::Allow,
        src: Vec::new(),
        dst: Vec::new(),
        protocol: None,
        src_ports: Vec::new(),
        dst_ports: Vec::new(),
        roce_opcodes: Vec::new(),
        dest_qps: Vec::new(),
        dscps: Vec::new(),
    };
    let rule = |n: usize| {
        let [_, _, hi, lo] = (n as u32).to_be_bytes();
        let first = 1024 + n as u16 * 16;
        Rule {
            action: if n.is_multiple_of(10) { Action::Count } else { Action::Deny },
            src: vec![Prefix::new([10, 0, 0, 0].into(), 8).unwrap()],
            dst: vec![Prefix::new([10, 1 + hi, lo, 0].into(), 24).unwrap()],
            protocol: Some(if n.is_multiple_of(2) { 6 } else { 17 }),
            dst_ports: vec![(first, first + 15)],
            ..any.clone()
        }
    };
    let last = Rule {
        dst: vec![Prefix::new([10, 0, 0, 0].into(), 24).unwrap()],
        protocol: Some(17),
        dst_ports: vec![(4791, 4791)],
        ..any.clone()
    };
    let all = (0..rules - 1).map(rule).chain([last]);
    Policy::new((0..).map(RuleId).zip(all).collect(), Action::Deny)
}

pub fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}
