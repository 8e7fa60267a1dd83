//! What a control plane may rely on: which tables a worker works with, and that what it sent before has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use flowrail::ids::Nanos;
use flowrail::worker::counters::Counters;
use flowrail::worker::handoff::{Waker, lane};
use flowrail::worker::{Idle, Route, Shared, Worker};
use flowrail::xsk::testing::Peer;

use crate::fixture::{ACCESS, LOCAL, Options, REMOTE, Rig, UPLINK, memory, tables, udp};

/// A worker that runs, the kernel's side of its rings in the test's hands.
struct Running {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    waker: Arc<Waker>,
    peers: Vec<Peer>,
    thread: Option<JoinHandle<Worker>>,
}

impl Running {
    fn start(shared: &Arc<Shared>, options: Options) -> Self {
        let waker = Arc::clone(&options.waker);
        let Rig { worker, peers, counters, .. } = Rig::new(options);
        let thread = {
            let shared = Arc::clone(shared);
            std::thread::spawn(move || worker.run(&shared))
        };
        Self { shared: Arc::clone(shared), counters, waker, peers, thread: Some(thread) }
    }

    fn raise_fence(&self, number: u64) {
        self.shared.fence.store(number, Ordering::SeqCst);
        self.waker.wake();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        drop(self.thread.take().unwrap().join());
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        tables: ArcSwap::from_pointee(tables(true)),
        fence: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    })
}

fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

const SOON: Duration = Duration::from_secs(2);
const A_WHILE: Duration = Duration::from_millis(50);

#[test]
fn a_fence_is_passed_when_the_kernel_has_finished_what_was_sent_before() {
    let idle = Idle::Adaptive(Nanos(0));
    let mut running = Running::start(&shared(), Options { idle, ..Options::default() });
    running.raise_fence(1);
    assert!(within(SOON, || running.counters.fence.get() == 1), "nothing is on its way");

    assert!(running.peers[1].push(&udp(LOCAL, REMOTE, 100)));
    assert!(within(SOON, || running.counters.port(UPLINK).unwrap().tx_packets.get() == 1));
    running.raise_fence(2);
    assert!(!within(A_WHILE, || running.counters.fence.get() == 2), "the frame is on the TX ring");
    assert_eq!(running.peers[0].transmit(16).len(), 1);
    assert!(!within(A_WHILE, || running.counters.fence.get() == 2), "the kernel still has it");
    running.peers[0].complete(16);
    assert!(within(SOON, || running.counters.fence.get() == 2));
}

#[test]
fn traffic_that_never_rests_holds_no_fence_up() {
    let shared = shared();
    let (umem, pool) = memory(2048);
    let wakers = [(); 2].map(|()| Arc::new(Waker::new().unwrap()));
    let (outbox, inbox) = lane(64, umem.clone(), Arc::clone(&wakers[1]));
    let mut receiver = Running::start(
        &shared,
        Options {
            ports: vec![ACCESS],
            routes: vec![Route::Worker(0), Route::Link(0), Route::None],
            outboxes: vec![outbox],
            memory: Some((umem, pool)),
            waker: Arc::clone(&wakers[0]),
            ..Options::default()
        },
    );
    let mut sender = Running::start(
        &shared,
        Options {
            ports: vec![UPLINK],
            routes: vec![Route::Link(0), Route::None, Route::None],
            inboxes: vec![inbox],
            waker: Arc::clone(&wakers[1]),
            ..Options::default()
        },
    );
    let (mut number, mut passed) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        receiver.peers[0].push(&udp(LOCAL, REMOTE, 100));
        sender.peers[0].transmit(64);
        sender.peers[0].complete(64);
        if [&receiver, &sender].iter().all(|worker| worker.counters.fence.get() == number) {
            number += 1;
            passed += 1;
            receiver.raise_fence(number);
            sender.waker.wake();
        }
    }
    assert!(sender.counters.forwarded.get() > 100, "there was traffic");
    assert!(passed > 10, "{passed} fences");
}

#[test]
fn new_tables_reach_a_worker_that_is_about_to_sleep() {
    let idle = Idle::Adaptive(Nanos(0));
    let running = Running::start(&shared(), Options { idle, ..Options::default() });
    for generation in 1..200 {
        let mut next = tables(true);
        next.generation = generation;
        running.shared.tables.store(Arc::new(next));
        running.waker.wake();
        // Half of the longest sleep, so that a wake-up which is lost is seen.
        let limit = Duration::from_millis(250);
        assert!(within(limit, || running.counters.generation.get() == generation), "{generation}");
    }
}
