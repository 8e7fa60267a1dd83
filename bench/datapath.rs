//! The datapath alone, in memory, per packet: encap and decap, at one flow and at full scale (1M FDB entries, 64k remote
//! VTEPs, a new MAC for each packet), and the allocations it makes, which are none.
//!
//! Targets: 40 ns at one flow, 80 ns at full scale, 0 allocations.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may fail loudly"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowrail::datapath::{self, Verdict, hint};
use flowrail::ids::{NetworkId, PortId, VtepId};
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::network::{Network, UnknownUnicast};
use flowrail::tables::snapshot::{Port, Role, Settings, Snapshot};
use flowrail::tables::vtep::{OuterSpec, VtepRow, VtepTable};
use flowrail::wire::checksum::Sum;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::packet::Packet;
use flowrail::wire::vxlan::Vni;
use flowrail::xsk::prefetch;

const UPLINK: PortId = PortId(0);
const ACCESS: PortId = PortId(1);
const BATCH: usize = 64;
const CHUNK: usize = 4096;
const START: usize = 256;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn vtep_ip(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + index as u32)
}

fn mac(index: usize) -> Mac {
    let [a, b, c, d] = (index as u32).to_be_bytes();
    Mac([0x02, 0x0a, a, b, c, d])
}

/// `macs` MACs spread over `vteps` remote VTEPs, and as many local ones, in one network.
fn tables(macs: usize, vteps: usize, v6: bool) -> Snapshot {
    let local: IpAddr = if v6 { "2001:db8::1".parse().unwrap() } else { "192.0.2.1".parse().unwrap() };
    let mut table = VtepTable::default();
    for index in 0..vteps {
        let dst = if v6 { "2001:db8::2".parse().unwrap() } else { vtep_ip(index).into() };
        let spec = OuterSpec {
            uplink: UPLINK,
            src_mac: Mac([2, 0, 0, 0, 1, 1]),
            dst_mac: Mac([2, 0, 0, 0, 2, 2]),
            vlan: None,
            src: local,
            dst,
            mtu: 9214,
        };
        table.insert(VtepRow::resolved(&spec).unwrap());
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

/// A RoCEv2 frame of 64 bytes.
fn inner(dst: Mac) -> Vec<u8> {
    let mut frame = [dst.0, [2, 0, 0, 0, 0xa, 1]].concat();
    frame.extend([0x08, 0x00, 0x45, 0x68, 0, 50, 7, 7, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = Sum::ZERO.bytes(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum);
    frame.extend([0xc0, 0x01, 0x12, 0xb7, 0, 30, 0, 0, 0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1]);
    frame.resize(64, 0x5a);
    frame
}

/// Outer headers from a VTEP, 50 bytes.
fn outer(src: Ipv4Addr, inner_len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 2, 2, 8, 0, 0x45, 0x68];
    bytes.extend(((inner_len + 36) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(src.octets());
    bytes.extend([192, 0, 2, 1]);
    let sum = Sum::ZERO.bytes(&bytes[14..34]).finish();
    bytes[24..26].copy_from_slice(&sum);
    bytes.extend([0xc3, 0x50, 0x12, 0xb5]);
    bytes.extend(((inner_len + 16) as u16).to_be_bytes());
    bytes.extend([0, 0, 8, 0, 0, 0, 0, 0, 100, 0]);
    bytes
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

struct Load {
    tables: Snapshot,
    port: PortId,
    /// Packets in chunks of a UMEM's size and alignment.
    chunks: Vec<u8>,
    len: usize,
    /// Where the changing bytes go, and their values in random order.
    at: usize,
    values: Vec<[u8; 10]>,
    value_len: usize,
    next: usize,
}

impl Load {
    fn new(
        tables: Snapshot,
        port: PortId,
        frame: &[u8],
        at: usize,
        mut values: Vec<[u8; 10]>,
        value_len: usize,
    ) -> Self {
        // Whole batches, so that the values ahead of a packet are those it will have.
        while !values.len().is_multiple_of(BATCH) {
            values.extend_from_within(..values.len().min(BATCH - values.len() % BATCH));
        }
        let mut chunks = vec![0; BATCH * CHUNK];
        for chunk in chunks.chunks_mut(CHUNK) {
            chunk[START..START + frame.len()].copy_from_slice(frame);
        }
        Self { tables, port, chunks, len: frame.len(), at, values, value_len, next: 0 }
    }

    fn encap(macs: usize, vteps: usize, v6: bool) -> Self {
        let value = |i| {
            let mut value = [0; 10];
            value[..6].copy_from_slice(&mac(i).0);
            value
        };
        let values = shuffled(macs).into_iter().map(value).collect();
        Self::new(tables(macs, vteps, v6), ACCESS, &inner(mac(0)), 0, values, 6)
    }

    fn decap(macs: usize, vteps: usize) -> Self {
        let payload = inner(mac(macs));
        let value = |i| *outer(vtep_ip(i), payload.len())[24..].first_chunk().unwrap();
        let values = shuffled(vteps).into_iter().map(value).collect();
        let frame = [outer(vtep_ip(0), payload.len()), payload].concat();
        Self::new(tables(macs, vteps, false), UPLINK, &frame, 24, values, 10)
    }

    /// One batch, as the worker runs it; every packet must be forwarded.
    #[inline]
    fn run(&mut self) {
        let values = &self.values[self.next..self.next + BATCH];
        self.next = if self.next + BATCH == self.values.len() { 0 } else { self.next + BATCH };
        for (chunk, value) in self.chunks.chunks_mut(CHUNK).zip(values) {
            let at = START + self.at;
            if self.value_len == 6 {
                chunk[at..at + 6].copy_from_slice(&value[..6]);
            } else {
                chunk[at..at + 10].copy_from_slice(value);
            }
        }
        if self.tables.large {
            let heads = || self.chunks.chunks(CHUNK).map(|chunk| &chunk[START..START + self.len]);
            heads().for_each(|head| prefetch(hint::fdb_line(&self.tables, self.port, head)));
            for head in heads() {
                let lines = hint::vtep_lines(&self.tables, self.port, head);
                lines.into_iter().flatten().for_each(prefetch);
            }
        }
        for index in 0..BATCH {
            let chunk = &mut self.chunks[index * CHUNK..(index + 1) * CHUNK];
            let mut packet = Packet::new(chunk, START, self.len, &[]);
            let verdict = datapath::receive(&self.tables, &mut (), self.port, &mut packet);
            // As the worker takes it: a verdict that goes through memory is written in parts and read back whole, and
            // waits for that.
            let Verdict::Forward(out) = verdict else { panic!("{verdict:?}") };
            black_box(out);
        }
    }
}

fn bench(c: &mut Criterion) {
    let loads = [
        ("encap/one flow", Load::encap(1, 1, false)),
        ("encap/ipv6 underlay, one flow", Load::encap(1, 1, true)),
        ("encap/1M MACs, 64k VTEPs", Load::encap(1_000_000, 65_536, false)),
        ("decap/one flow", Load::decap(1, 1)),
        ("decap/1M MACs, 64k VTEPs", Load::decap(1_000_000, 65_536)),
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
