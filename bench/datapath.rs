//! The datapath alone, in memory, per packet: encap and decap, bridged and routed, with guards and policies, at one flow
//! and at full scale (1M FDB entries, 100k routes over 1000 VRFs, 64k remote VTEPs, another destination for each packet),
//! and the allocations it makes, which are none.
//!
//! Targets: bridged 40 ns at one flow, 80 ns at full scale; routed 100 ns at full scale; 0 allocations.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may fail loudly"
)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowrail::datapath::{self, Verdict, hint};
use flowrail::ids::{NetworkId, PortId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::guard::Guard;
use flowrail::tables::network::{Network, UnknownUnicast};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::vtep::VtepTable;
use flowrail::wire::checksum::Sum;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::packet::Packet;
use flowrail::wire::vxlan::Vni;
use flowrail::xsk::prefetch;
use scale::{
    ALLOCATIONS, Counting, GATEWAY, MACS, ROUTER, ROUTES, STATION, STATION_IP, TENANTS, UPLINK, VTEPS,
};
use scale::{mac, shuffled, vtep_ip};

#[path = "scale.rs"]
mod scale;

const ACCESS: PortId = PortId(1);
const BATCH: usize = 64;
const CHUNK: usize = 4096;
const START: usize = 256;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `macs` MACs spread over `vteps` remote VTEPs, and as many local ones, in one network.
fn tables(macs: usize, vteps: usize, v6: bool) -> Snapshot {
    let local: IpAddr = if v6 { "2001:db8::1".parse().unwrap() } else { scale::LOCAL };
    let mut table = VtepTable::default();
    for index in 0..vteps {
        let dst = if v6 { "2001:db8::2".parse().unwrap() } else { vtep_ip(index).into() };
        table.insert(scale::row(local, dst));
    }
    let mut fdb = Fdb::with_capacity(2 * macs);
    for index in 0..macs {
        // Neighbouring MACs are behind different VTEPs, as in a fabric that spreads a tenant.
        fdb.insert(mac(index), Dest::Vtep(VtepId((index % vteps) as u32)));
    }
    fdb.insert(mac(macs), Dest::Port(ACCESS));
    let members: Vec<VtepId> = (0..vteps as u32).map(VtepId).collect();
    let ports = vec![
        Port { role: Role::Uplink { vlan: None, native: None }, mtu: 9214, guard: None },
        Port { role: Role::Access(NetworkId(0)), mtu: 9214, guard: None },
    ];
    let mut snapshot = Snapshot::new(Settings::default(), ports, &[local], table);
    snapshot.push_network(Network::new(
        Vni::new(100).unwrap(),
        fdb,
        UnknownUnicast::Drop,
        &[ACCESS],
        &[],
        &members,
    ));
    snapshot
}

/// A RoCEv2 frame of 64 bytes from the station.
fn inner(dst: Mac, dst_ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = [dst.0, STATION.0].concat();
    frame.extend([0x08, 0x00, 0x45, 0x68, 0, 50, 7, 7, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(STATION_IP.octets().into_iter().chain(dst_ip.octets()));
    let sum = Sum::ZERO.bytes(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum);
    frame.extend([0xc0, 0x01, 0x12, 0xb7, 0, 30, 0, 0, 0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1]);
    frame.resize(64, 0x5a);
    frame
}

/// The same over IPv6, 84 bytes.
fn inner_v6(dst: Mac) -> Vec<u8> {
    let mut frame = [dst.0, STATION.0].concat();
    frame.extend([0x86, 0xdd, 0x66, 0x80, 0, 0, 0, 30, 17, 64, 0x20, 1, 0xd, 0xb8]);
    frame.resize(54, 0);
    frame.extend_from_slice(&inner(dst, STATION_IP)[34..]);
    frame
}

/// Outer headers from a VTEP, 50 bytes.
fn outer(src: Ipv4Addr, vni: Vni, inner_len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 2, 2, 8, 0, 0x45, 0x68];
    bytes.extend(((inner_len + 36) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(src.octets());
    bytes.extend([192, 0, 2, 1]);
    let sum = Sum::ZERO.bytes(&bytes[14..34]).finish();
    bytes[24..26].copy_from_slice(&sum);
    bytes.extend([0xc3, 0x50, 0x12, 0xb5]);
    bytes.extend(((inner_len + 16) as u16).to_be_bytes());
    bytes.extend([0, 0, 8, 0, 0, 0]);
    bytes.extend(&vni.get().to_be_bytes()[1..]);
    bytes.push(0);
    bytes
}

/// What differs between packets: some bytes of each.
type Value = [u8; 16];

fn value(from: &[u8]) -> Value {
    let mut bytes = [0; 16];
    bytes[..from.len()].copy_from_slice(from);
    bytes
}

/// Where the bytes of a [`Value`] go.
#[derive(Clone, Copy)]
enum At {
    /// Destination MAC.
    Mac,
    /// IPv4 checksum and addresses.
    V4,
    /// IPv6 destination.
    V6Dst,
    /// VNI and inner destination MAC.
    Vni,
}

struct Load {
    tables: Snapshot,
    /// Ports on which batches arrive, in turn: a worker takes a batch from one port.
    ports: Vec<PortId>,
    turn: usize,
    /// Packets in chunks of a UMEM's size and alignment.
    chunks: Vec<u8>,
    frame: Vec<u8>,
    /// Routing changes MACs and TTL of the packet in place, so every round writes the frame anew.
    routed: bool,
    at: At,
    values: Vec<Value>,
    next: usize,
}

impl Load {
    fn new(tables: Snapshot, ports: Vec<PortId>, frame: Vec<u8>, at: At, mut values: Vec<Value>) -> Self {
        // Whole batches, so that the values ahead of a packet are those it will have.
        while !values.len().is_multiple_of(BATCH) {
            values.extend_from_within(..values.len().min(BATCH - values.len() % BATCH));
        }
        let mut chunks = vec![0; BATCH * CHUNK];
        for chunk in chunks.chunks_mut(CHUNK) {
            chunk[START..START + frame.len()].copy_from_slice(&frame);
        }
        Self { tables, ports, turn: 0, chunks, frame, routed: false, at, values, next: 0 }
    }

    fn encap(macs: usize, vteps: usize, v6: bool) -> Self {
        Self::encap_with(tables(macs, vteps, v6), macs)
    }

    fn encap_with(tables: Snapshot, macs: usize) -> Self {
        let values = shuffled(macs).into_iter().map(|i| value(&mac(i).0)).collect();
        Self::new(tables, vec![ACCESS], inner(mac(0), [10, 0, 0, 2].into()), At::Mac, values)
    }

    fn encap_with_policy(rules: usize) -> Self {
        let mut tables = tables(1, 1, false);
        tables.network_mut(NetworkId(0)).unwrap().policy = Some(Arc::new(scale::policy(rules)));
        Self::encap_with(tables, 1)
    }

    fn guarded() -> Self {
        let local = scale::LOCAL;
        let guard = Guard { macs: vec![STATION], ips: vec![STATION_IP.into()] };
        let ports = vec![
            Port { role: Role::Uplink { vlan: None, native: None }, mtu: 9214, guard: None },
            Port { role: Role::Access(NetworkId(0)), mtu: 9214, guard: Some(Arc::new(guard)) },
        ];
        let whole = tables(1, 1, false);
        let mut guarded = Snapshot::new(Settings::default(), ports, &[local], (*whole.vteps).clone());
        guarded.push_network(whole.network(NetworkId(0)).unwrap().clone());
        Self::encap_with(guarded, 1)
    }

    fn decap(macs: usize, vteps: usize) -> Self {
        let payload = inner(mac(macs), [10, 0, 0, 2].into());
        let vni = Vni::new(100).unwrap();
        let value = |i| value(&outer(vtep_ip(i), vni, payload.len())[24..34]);
        let values = shuffled(vteps).into_iter().map(value).collect();
        let frame = [outer(vtep_ip(0), vni, payload.len()), payload].concat();
        Self::new(tables(macs, vteps, false), vec![UPLINK], frame, At::V4, values)
    }

    /// From each tenant's station, a batch from one and the next from another, to all its routes of one family.
    fn routed_encap(tables: Snapshot, tenants: usize, routes: usize, v6: bool) -> Self {
        let value = |route| match scale::prefix(route).1 {
            IpAddr::V4(ip) if !v6 => Some(value(&inner(GATEWAY, ip)[24..34])),
            IpAddr::V6(ip) if v6 => Some(value(&ip.octets())),
            _ => None,
        };
        let values = shuffled(routes).into_iter().filter_map(value).collect();
        let mut ports: Vec<PortId> = shuffled(tenants).into_iter().map(scale::port).collect();
        // An odd number, so that each port meets each batch of routes.
        ports.push(ports[0]);
        let (frame, at) = match v6 {
            false => (inner(GATEWAY, STATION_IP), At::V4),
            true => (inner_v6(GATEWAY), At::V6Dst),
        };
        Self { routed: true, ..Self::new(tables, ports, frame, at, values) }
    }

    /// From the L3VNI of each tenant to its station, another tenant for each packet.
    fn routed_decap(tables: Snapshot, tenants: usize) -> Self {
        let payload = inner(ROUTER, STATION_IP);
        let frame = |i| [outer(vtep_ip(0), scale::l3vni(i), payload.len()), payload.clone()].concat();
        let values = shuffled(tenants).into_iter().map(|i| value(&frame(i)[46..56])).collect();
        Self { routed: true, ..Self::new(tables, vec![UPLINK], frame(0), At::Vni, values) }
    }

    /// One batch, as the worker runs it; every packet must be forwarded.
    #[inline]
    fn run(&mut self) {
        let values = &self.values[self.next..self.next + BATCH];
        let port = self.ports[self.turn];
        self.turn = if self.turn + 1 == self.ports.len() { 0 } else { self.turn + 1 };
        self.next = if self.next + BATCH == self.values.len() { 0 } else { self.next + BATCH };
        for (chunk, value) in self.chunks.chunks_mut(CHUNK).zip(values) {
            let packet = &mut chunk[START..];
            // The rig's own work: a copy of known length is a few moves, one of any length a call.
            match self.frame.first_chunk::<64>() {
                Some(frame) if self.routed && self.frame.len() == 64 => packet[..64].copy_from_slice(frame),
                _ if self.routed => packet[..self.frame.len()].copy_from_slice(&self.frame),
                _ => {}
            }
            match self.at {
                At::Mac => packet[..6].copy_from_slice(&value[..6]),
                At::V4 => packet[24..34].copy_from_slice(&value[..10]),
                At::V6Dst => packet[38..54].copy_from_slice(value),
                At::Vni => packet[46..56].copy_from_slice(&value[..10]),
            }
        }
        let len = self.frame.len();
        if self.tables.large {
            let heads = self.chunks.chunks(CHUNK).map(|chunk| &chunk[START..START + len]);
            hint::fetch(&self.tables, port, heads, prefetch);
        }
        for chunk in self.chunks.chunks_mut(CHUNK) {
            let mut packet = Packet::new(chunk, START, len, &[]);
            let verdict = datapath::receive(&self.tables, &mut (), port, &mut packet);
            // As the worker takes it: a verdict that goes through memory is written in parts and read back whole, and
            // waits for that.
            let Verdict::Forward(out) = verdict else { panic!("{verdict:?}") };
            black_box(out);
        }
    }
}

fn bench(c: &mut Criterion) {
    let full = scale::host(TENANTS, MACS / TENANTS, ROUTES, VTEPS);
    let loads = [
        ("encap/one flow", Load::encap(1, 1, false)),
        ("encap/ipv6 underlay, one flow", Load::encap(1, 1, true)),
        ("encap/1M MACs, 64k VTEPs", Load::encap(MACS, VTEPS, false)),
        ("encap/guarded port", Load::guarded()),
        ("encap/policy of 10 rules", Load::encap_with_policy(10)),
        ("encap/policy of 100 rules", Load::encap_with_policy(100)),
        ("encap/policy of 1000 rules", Load::encap_with_policy(1000)),
        ("decap/one flow", Load::decap(1, 1)),
        ("decap/1M MACs, 64k VTEPs", Load::decap(MACS, VTEPS)),
        ("routed encap/one route", Load::routed_encap(scale::host(1, 1, 1, 1), 1, 1, false)),
        ("routed encap/100k routes, 1000 VRFs", Load::routed_encap(full.clone(), TENANTS, ROUTES, false)),
        (
            "routed encap/100k routes, 1000 VRFs, ipv6",
            Load::routed_encap(full.clone(), TENANTS, ROUTES, true),
        ),
        ("routed decap/one VRF", Load::routed_decap(scale::host(1, 1, 1, 1), 1)),
        ("routed decap/1000 VRFs", Load::routed_decap(full, TENANTS)),
    ];
    let mut group = c.benchmark_group("datapath");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, mut load) in loads {
        load.run();
        let before = ALLOCATIONS.load(Relaxed);
        for _ in 0..1000 {
            load.run();
        }
        let made = ALLOCATIONS.load(Relaxed) - before;
        println!("datapath/{name}: {made} allocations in {} packets", 1000 * BATCH);
        assert_eq!(made, 0, "the datapath allocates");
        group.bench_function(name, |b| b.iter(|| load.run()));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
