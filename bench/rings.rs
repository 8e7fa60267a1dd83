//! Cost of the ring layer per frame, over in-memory rings: no system call, no kernel copy, bytes untouched.
//!
//! Only the user's side is timed: the peer fills the rings before, and empties them after each timed stretch.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may fail loudly")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowrail::xsk::testing::{Peer, pair};
use flowrail::xsk::{HugePages, Pool, Socket, Umem, UmemConfig};

const BATCH: usize = 64;
/// Frames of one timed stretch: enough that reading the clock does not count.
const STRETCH: usize = 2048;

struct Rig {
    pool: Pool,
    socket: Socket,
    peer: Peer,
    _umem: Umem,
}

impl Rig {
    fn new() -> Self {
        let cfg = UmemConfig { chunk_size: 4096, chunks: 8192, headroom: 0, huge_pages: HugePages::Off };
        let (umem, pool) = Umem::new(cfg).unwrap();
        let (socket, peer) = pair(&umem, 2048).unwrap();
        Self { pool, socket, peer, _umem: umem }
    }

    /// The kernel's part before a stretch: as many packets as a stretch takes are in the RX ring.
    fn arrive(&mut self) {
        for _ in 0..STRETCH {
            assert!(self.peer.push(&[0xee; 64]));
        }
    }

    /// The kernel's part after it.
    fn leave(&mut self) {
        assert_eq!(self.peer.transmit(STRETCH).len(), STRETCH);
        assert_eq!(self.peer.complete(STRETCH), STRETCH);
    }

    /// RX ring to TX ring.
    fn forward(&mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..STRETCH / BATCH {
            let count = self.socket.receive(&mut batch, BATCH);
            assert!(self.socket.tx_free(count) >= count);
            for frame in batch.drain(..) {
                let sent = self.socket.submit(black_box(frame));
                assert!(sent.is_ok());
            }
            self.socket.flush();
        }
    }

    /// Completion ring to pool to fill ring.
    fn recycle(&mut self) {
        let count = self.socket.complete(&mut self.pool);
        for _ in 0..STRETCH / BATCH {
            self.socket.refill(&mut self.pool, BATCH);
        }
        assert_eq!(count, STRETCH);
    }
}

fn rings(c: &mut Criterion) {
    let mut group = c.benchmark_group("rings");
    group.throughput(Throughput::Elements(STRETCH as u64));
    group.bench_function("rx+tx", |b| {
        b.iter_custom(|rounds| {
            let mut rig = Rig::new();
            rig.socket.refill(&mut rig.pool, STRETCH);
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                rig.arrive();
                let start = Instant::now();
                rig.forward();
                spent += start.elapsed();
                rig.leave();
                rig.recycle();
            }
            spent
        });
    });
    group.bench_function("completion+fill", |b| {
        b.iter_custom(|rounds| {
            let mut rig = Rig::new();
            rig.socket.refill(&mut rig.pool, STRETCH);
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                rig.arrive();
                rig.forward();
                rig.leave();
                let start = Instant::now();
                rig.recycle();
                spent += start.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, rings);
criterion_main!(benches);
