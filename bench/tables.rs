//! What a change costs the control plane at full scale (1M FDB entries, 100k routes over 1000 VRFs, 64k remote VTEPs), and
//! how much memory an entry of each table takes.
//!
//! A change is a clone of the snapshot, the change, and the drop of the old snapshot, as publishing one does. Target: 1 ms.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a bench may fail loudly"
)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use criterion::{Criterion, criterion_group, criterion_main};
use flowrail::ids::VtepId;
use flowrail::tables::fdb::{Dest, Fdb};
use flowrail::tables::fib::{Fib, Prefix};
use flowrail::tables::network::Neighbors;
use flowrail::tables::snapshot::Snapshot;
use flowrail::tables::vrf::Route;
use flowrail::tables::vtep::VtepRow;
use scale::{BYTES, Counting, MACS, ROUTES, TENANTS, VTEPS};
use scale::{mac, network, prefix, remote, vrf, vtep_ip};

#[path = "scale.rs"]
mod scale;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that what `build` makes takes.
fn bytes_of<T>(build: impl FnOnce() -> T) -> (u64, T) {
    let before = BYTES.load(Relaxed);
    let built = build();
    (BYTES.load(Relaxed) - before, built)
}

fn fdb(count: usize) -> Fdb {
    let mut fdb = Fdb::with_capacity(count);
    for index in 0..count {
        fdb.insert(mac(index), Dest::Vtep(VtepId(index as u32)));
    }
    fdb
}

fn v4(index: usize) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + (index as u32) * 256).into()
}

fn v6(index: usize) -> IpAddr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | (index as u128) << 64).into()
}

/// A FIB of `count` routes of this length.
fn fib(count: usize, addr: fn(usize) -> IpAddr, len: u8) -> Fib {
    let mut fib = Fib::default();
    for index in 0..count {
        fib.insert(Prefix::new(addr(index), len).unwrap(), remote(0, index, VTEPS));
    }
    fib
}

fn neighbors(count: usize, addr: fn(usize) -> IpAddr) -> Neighbors {
    let mut neighbors = Neighbors::default();
    for index in 0..count {
        neighbors.insert(addr(index), mac(index));
    }
    neighbors
}

/// Memory per entry. Tables grow by doubling, so each is shown at a count that fills it badly and one that fills it well.
fn memory() {
    println!("{:<34} {:>9} {:>12} {:>10}", "table", "entries", "bytes", "an entry");
    let show = |name: &str, entries: usize, bytes: u64| {
        println!("{name:<34} {entries:>9} {bytes:>12} {:>10.1}", bytes as f64 / entries as f64);
    };
    for count in [MACS, 1 << 20] {
        show("FDB", count, bytes_of(|| fdb(count)).0);
    }
    for count in [ROUTES, 100_000, 1 << 16] {
        show("host route, IPv4", count, bytes_of(|| fib(count, v4, 32)).0);
        show("host route, IPv6", count, bytes_of(|| fib(count, v6, 128)).0);
        show("prefix route, IPv4 /24", count, bytes_of(|| fib(count, v4, 24)).0);
        show("prefix route, IPv6 /64", count, bytes_of(|| fib(count, v6, 64)).0);
    }
    for count in [100_000, 114_688] {
        show("neighbor, IPv4", count, bytes_of(|| neighbors(count, v4)).0);
        show("neighbor, IPv6", count, bytes_of(|| neighbors(count, v6)).0);
    }
    show("VTEP row", VTEPS, bytes_of(|| scale::vteps(VTEPS)).0);
    for rules in [10, 100, 1000] {
        show("policy rule", rules, bytes_of(|| scale::policy(rules)).0);
    }
    show("tenant: network, VRF, port", TENANTS, bytes_of(|| scale::host(TENANTS, 0, 0, 1)).0);
    let (bytes, full) = bytes_of(full_scale);
    show("full scale, an FDB entry", MACS, bytes);
    drop(full);
}

/// 1000 tenants, and in the last network of them the other 999 000 MACs in one FDB.
fn full_scale() -> Snapshot {
    let mut snapshot = scale::host(TENANTS, 1, ROUTES, VTEPS);
    snapshot.network_mut(network(TENANTS - 1)).unwrap().fdb = fdb(MACS - TENANTS);
    snapshot
}

/// What publishing costs: `change` on a clone, and the end of the snapshot before.
fn publish<T>(current: &mut Snapshot, change: impl FnOnce(&mut Snapshot) -> T) {
    let mut next = current.clone();
    next.generation += 1;
    change(&mut next);
    // The worker's and the API's references are gone by then; this is the last.
    *current = black_box(next);
}

/// The FDB of a million.
fn table(snapshot: &mut Snapshot) -> &mut Fdb {
    &mut snapshot.network_mut(network(TENANTS - 1)).unwrap().fdb
}

fn bench(c: &mut Criterion) {
    memory();
    let mut group = c.benchmark_group("publish");
    let mut turn = 0usize;
    let mut next = |range: usize| {
        turn = turn.wrapping_add(7919);
        turn % range
    };
    let mut full = full_scale();
    let last = network(TENANTS - 1);
    let other = |full: &Snapshot, entry| match full.network(last).unwrap().fdb.get(mac(entry)) {
        Some(Dest::Vtep(VtepId(0))) => Dest::Vtep(VtepId(1)),
        _ => Dest::Vtep(VtepId(0)),
    };
    group.bench_function("clone alone", |b| b.iter(|| publish(&mut full, |_| {})));
    group.bench_function("FDB entry of a million", |b| {
        b.iter(|| {
            let entry = next(MACS - TENANTS);
            let dest = other(&full, entry);
            publish(&mut full, |new| table(new).insert(mac(entry), dest));
        });
    });
    group.bench_function("FDB entry added and removed", |b| {
        b.iter(|| {
            let new_mac = mac(MACS + next(MACS));
            publish(&mut full, |new| table(new).insert(new_mac, Dest::Vtep(VtepId(0))));
            publish(&mut full, |new| table(new).remove(new_mac));
        });
    });
    group.bench_function("route of 100", |b| {
        b.iter(|| {
            let (tenant, route) = (next(TENANTS), next(ROUTES));
            let to = remote(tenant, route + next(VTEPS), VTEPS);
            publish(&mut full, |new| new.vrf_mut(vrf(tenant)).unwrap().fib.insert(prefix(route).0, to));
        });
    });
    full.vrf_mut(vrf(0)).unwrap().fib = fib(100_000, v4, 32);
    group.bench_function("route of 100k in one VRF", |b| {
        b.iter(|| {
            let host = Prefix::new(v4(next(100_000)), 32).unwrap();
            publish(&mut full, |new| new.vrf_mut(vrf(0)).unwrap().fib.insert(host, Route::Blackhole));
        });
    });
    group.bench_function("next hop of 64k VTEPs", |b| {
        b.iter(|| {
            let row: VtepRow = scale::row(scale::LOCAL, vtep_ip(next(VTEPS)).into());
            publish(&mut full, |new| Arc::make_mut(&mut new.vteps).insert(row));
        });
    });
    group.bench_function("every next hop of 64k VTEPs", |b| {
        b.iter(|| {
            publish(&mut full, |new| {
                let vteps = Arc::make_mut(&mut new.vteps);
                for index in 0..VTEPS {
                    vteps.insert(scale::row(scale::LOCAL, vtep_ip(index).into()));
                }
            });
        });
    });
    group.bench_function("FDB of a million doubles", |b| {
        // Exactly full, so that the next entry doubles it.
        let table = fdb(1 << 20);
        b.iter_batched(
            || table.clone(),
            |mut table| {
                table.insert(mac(1 << 20), Dest::Vtep(VtepId(0)));
                table
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = bench
}
criterion_main!(benches);
