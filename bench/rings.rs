//! Cost of the ring layer per frame, over in-memory rings: no system call, no kernel copy, bytes untouched.
//!
//! Only the user's side is timed: before and after each timed stretch the peer moves descriptors as an ideal device
//! would.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may fail loudly")]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowrail::xsk::testing::{Peer, pair};
use flowrail::xsk::{HugePages, Pool, Socket, Umem, UmemConfig};

const BATCH: usize = 64;
/// Frames of one timed stretch: enough that the clock hardly counts, and few enough for the first-level cache.
const STRETCH: usize = 512;

struct Rig {
    pool: Pool,
    socket: Socket,
    peer: Peer,
    _umem: Umem,
}

impl Rig {
    fn new() -> Self {
        let cfg = UmemConfig { chunk_size: 4096, chunks: 2048, headroom: 0, huge_pages: HugePages::Off };
        let (umem, pool) = Umem::new(cfg).unwrap();
        let (socket, peer) = pair(&umem, 512).unwrap();
        let mut rig = Self { pool, socket, peer, _umem: umem };
        rig.socket.refill(&mut rig.pool, STRETCH);
        rig
    }

    fn device(&mut self) {
        self.peer.recirculate(STRETCH, 64);
    }

    /// RX ring to TX ring, a batch at a time.
    fn forward(&mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut sent = 0;
        for _ in 0..STRETCH / BATCH {
            self.socket.receive(&mut batch, BATCH);
            sent += self.socket.submit_batch(&mut batch);
            self.socket.flush();
        }
        assert_eq!(sent, STRETCH);
    }

    /// RX ring to TX ring, frame by frame, as a worker does whose packets leave by different ports.
    fn forward_singly(&mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut sent = 0;
        for _ in 0..STRETCH / BATCH {
            self.socket.receive(&mut batch, BATCH);
            for frame in batch.drain(..) {
                sent += usize::from(self.socket.submit(frame).is_ok());
            }
            self.socket.flush();
        }
        assert_eq!(sent, STRETCH);
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

/// Time spent in the two halves of a frame's round, without the clock's own.
fn time(rounds: u64, forward: fn(&mut Rig)) -> (Duration, Duration) {
    let mut rig = Rig::new();
    let clock = (0..1000).map(|_| Instant::now().elapsed()).min().unwrap();
    let (mut there, mut back) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        rig.device();
        let start = Instant::now();
        forward(&mut rig);
        there += start.elapsed().saturating_sub(clock);
        rig.device();
        let start = Instant::now();
        rig.recycle();
        back += start.elapsed().saturating_sub(clock);
    }
    (there, back)
}

fn rings(c: &mut Criterion) {
    let mut group = c.benchmark_group("rings");
    group.throughput(Throughput::Elements(STRETCH as u64));
    group.bench_function("rx+tx", |b| b.iter_custom(|rounds| time(rounds, Rig::forward).0));
    group.bench_function("rx+tx, frame by frame", |b| {
        b.iter_custom(|rounds| time(rounds, Rig::forward_singly).0)
    });
    group.bench_function("completion+fill", |b| b.iter_custom(|rounds| time(rounds, Rig::forward).1));
    group.finish();
}

criterion_group!(benches, rings);
criterion_main!(benches);
