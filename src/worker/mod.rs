//! A worker: one pinned thread that moves batches of frames from its sockets through the datapath to its sockets.
//!
//! It owns every (port, queue) whose queue number modulo the number of workers is its index, one UMEM that all its
//! sockets share, and nothing else: tables come as a snapshot, counters go out as relaxed numbers. A frame is always
//! in exactly one place: fill ring, the worker's hands, a backlog, a TX ring, lent to another worker, or the pool.

mod batch;
pub mod command;
pub mod counters;
pub mod handoff;
pub mod link;
mod pending;
mod report;
mod run;

use std::sync::Arc;

pub use batch::Route;
use command::Commands;
use counters::Counters;
use handoff::{Inbox, Outbox, Waker};
use link::{Link, MAX_FRAMES};
use pending::Pending;
pub use report::Event;
use report::Reporter;
pub use run::Shared;

use crate::ids::Nanos;
use crate::xsk::{Frame, Pool, Umem};

/// What a worker does when its rings are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once.
    Spin,
    /// Looks again for this long, then sleeps until the kernel has a frame.
    Adaptive(Nanos),
    /// Looks again at once; every look drives the device's receive path (the sockets are bound so).
    BusyPoll,
}

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    /// Most frames taken from one RX ring in a round; at least the frames of one packet.
    pub batch: usize,
    /// What it does when there is nothing to do.
    pub idle: Idle,
    /// Most packets that wait for a MAC.
    pub pending_packets: usize,
    /// How long one waits.
    pub pending_timeout: Nanos,
}

/// Everything a worker is built from.
pub struct Parts {
    /// Memory of all its sockets.
    pub umem: Umem,
    /// Free frames.
    pub pool: Pool,
    /// Its sockets.
    pub links: Vec<Link>,
    /// For each port, by number, where packets that leave it go.
    pub routes: Vec<Route>,
    /// To other workers.
    pub outboxes: Vec<Outbox>,
    /// From other workers.
    pub inboxes: Vec<Inbox>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Wakes it.
    pub waker: Arc<Waker>,
    /// What it is asked to do.
    pub commands: Commands,
    /// Told what the control plane should know. It may be behind and forget: everything is told again.
    pub tell: Box<dyn FnMut(Event) + Send>,
}

/// One worker.
pub struct Worker {
    config: WorkerConfig,
    umem: Umem,
    pool: Pool,
    links: Vec<Link>,
    routes: Vec<Route>,
    outboxes: Vec<Outbox>,
    inboxes: Vec<Inbox>,
    counters: Arc<Counters>,
    waker: Arc<Waker>,
    commands: Commands,
    reporter: Reporter,
    /// Received frames of the socket being served; empty between rounds.
    rx: Vec<Frame>,
    pending: Pending,
    generation: u64,
    fence: Option<Fence>,
    /// Frames of closed sockets are not all back yet.
    reclaiming: bool,
}

/// A wait for everything that is on its way to have left.
struct Fence {
    number: u64,
    /// Frames that each link had accepted when the wait began.
    accepted: Vec<u64>,
    /// Frames that each outbox had lent by then.
    given: Vec<u64>,
    /// Times the worker slept meanwhile.
    naps: u32,
}

impl Worker {
    /// A worker whose sockets are bound; fills their fill rings.
    #[must_use]
    pub fn new(mut config: WorkerConfig, parts: Parts) -> Self {
        config.batch = config.batch.max(MAX_FRAMES);
        let mut worker = Self {
            config,
            umem: parts.umem,
            pool: parts.pool,
            links: parts.links,
            routes: parts.routes,
            outboxes: parts.outboxes,
            inboxes: parts.inboxes,
            counters: parts.counters,
            waker: parts.waker,
            commands: parts.commands,
            reporter: Reporter::new(parts.tell),
            rx: Vec::with_capacity(config.batch),
            pending: Pending::new(config.pending_packets, config.pending_timeout),
            generation: u64::MAX,
            fence: None,
            reclaiming: false,
        };
        for link in &mut worker.links {
            link.complete_and_refill(&mut worker.pool);
        }
        worker.publish_gauges();
        worker
    }

    /// Counters of this worker.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
