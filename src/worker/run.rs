//! The loop around the rounds: tables once per round, sleep when idle, an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::counters::Frames;
use super::handoff::Outbox;
use super::link::Link;
use super::{Fence, Idle, Worker};
use crate::ids::Nanos;
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::DropReason;

/// Sleep while something waits that only another round can move: the kernel asked to repeat a wakeup.
const RESTLESS_SLEEP: Duration = Duration::from_micros(200);
/// Short sleeps in front of a fence: two seconds.
const FENCE_NAPS: u32 = 10_000;
/// Sleep while packets wait for a MAC.
const PENDING_SLEEP: Duration = Duration::from_millis(5);
/// Longest sleep.
const IDLE_SLEEP: Duration = Duration::from_millis(500);
/// Time for the kernel to finish with what is on the TX rings at the end.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Rounds between two updates of the gauges.
const GAUGE_INTERVAL: u32 = 256;

/// Empty rounds between two looks at the clock, each a third of a round.
const CLOCK_INTERVAL: u32 = 8;

/// What the control plane shares with all workers.
#[derive(Debug)]
pub struct Shared {
    /// The tables.
    pub tables: ArcSwap<Snapshot>,
    /// Number of the last fence asked for: a worker answers when all that it took for sending before has left, and
    /// other workers have taken what it lent them. These may have it on their way still: a second fence waits for that.
    pub fence: AtomicU64,
    /// Set once, at the end.
    pub stop: AtomicBool,
}

impl Worker {
    /// Works until told to stop, then drains and frees what is left. Returns itself for a last look at its frames.
    #[must_use]
    pub fn run(mut self, shared: &Arc<Shared>) -> Self {
        let start = Instant::now();
        let clock = || Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut tables = Cache::new(&shared.tables);
        let mut now = clock();
        let mut last_busy = now;
        let mut rounds = 0u32;
        while !shared.stop.load(Ordering::Relaxed) {
            let busy = self.round(tables.load(), now);
            self.pass_fence(shared);
            if !self.commands.is_empty() {
                self.obey();
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(GAUGE_INTERVAL) {
                self.housekeep();
            }
            if busy {
                now = clock();
                last_busy = now;
                continue;
            }
            if rounds.is_multiple_of(CLOCK_INTERVAL) {
                now = clock();
            }
            match self.config.idle {
                Idle::Spin | Idle::BusyPoll => std::hint::spin_loop(),
                Idle::Adaptive(spin) if now.since(last_busy) < spin => std::hint::spin_loop(),
                Idle::Adaptive(_) => {
                    self.sleep(shared);
                    now = clock();
                }
            }
        }
        self.drain(tables.load(), clock);
        self
    }

    /// Says which tables the last round worked with, and whether what was sent before the last fence has left.
    #[inline]
    fn pass_fence(&mut self, shared: &Shared) {
        if self.counters.generation.get() != self.generation {
            self.counters.generation.set(self.generation);
        }
        let asked = shared.fence.load(Ordering::Acquire);
        if asked != self.counters.fence.get() {
            self.wait_for_fence(asked);
        }
    }

    #[cold]
    fn wait_for_fence(&mut self, asked: u64) {
        if self.fence.as_ref().is_none_or(|fence| fence.number != asked) {
            self.fence = Some(Fence {
                number: asked,
                accepted: self.links.iter().map(Link::accepted).collect(),
                given: self.outboxes.iter().map(Outbox::given).collect(),
                naps: 0,
            });
        }
        let Some(fence) = &self.fence else { return };
        let left = self.links.iter().zip(&fence.accepted).all(|(link, mark)| link.has_finished(*mark));
        let taken = self.outboxes.iter().zip(&fence.given).all(|(outbox, mark)| outbox.has_returned(*mark));
        if left && taken {
            self.fence = None;
            self.counters.fence.set(asked);
        }
    }

    /// Sleeps until a socket has a frame, another thread has work, or something needs another look.
    fn sleep(&mut self, shared: &Shared) {
        self.housekeep();
        self.waker.doze();
        if !self.has_news(shared) {
            let fenced = self.is_fenced();
            let timeout = if fenced || self.reclaiming || self.links.iter_mut().any(Link::is_restless) {
                RESTLESS_SLEEP
            } else if self.pending.is_empty() {
                IDLE_SLEEP
            } else {
                PENDING_SLEEP
            };
            let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
            let mut fds: Vec<PollFd<'_>> = self
                .links
                .iter()
                .map(|link| PollFd::from_borrowed_fd(link.socket.as_fd(), PollFlags::IN))
                .collect();
            fds.push(PollFd::new(&*self.waker, PollFlags::IN));
            // EINTR and a device that went away both mean: look again.
            let _ = poll(&mut fds, Some(&timeout));
            self.counters.sleeps.add(1);
        }
        self.waker.awake();
    }

    /// Whether another thread left something before it could see that this one dozes.
    fn has_news(&self, shared: &Shared) -> bool {
        let fence = shared.fence.load(Ordering::Relaxed);
        self.inboxes.iter().any(|inbox| !inbox.is_empty())
            || !self.commands.is_empty()
            || shared.stop.load(Ordering::Relaxed)
            || shared.tables.load().generation != self.generation
            || (self.fence.is_none() && fence != self.counters.fence.get())
    }

    /// Whether a fence is waited for that may be passed any moment. A device that is down never finishes.
    fn is_fenced(&mut self) -> bool {
        let Some(fence) = &mut self.fence else { return false };
        fence.naps = fence.naps.saturating_add(1);
        fence.naps < FENCE_NAPS
    }

    /// Sends what is queued as far as the kernel takes it in time, and frees the rest, counted.
    fn drain(&mut self, t: &Snapshot, clock: impl Fn() -> Nanos) {
        let start = clock();
        let limit = Nanos(u64::try_from(DRAIN_TIME.as_nanos()).unwrap_or(u64::MAX));
        while clock().since(start) < limit {
            let busy = self.round(t, clock());
            let unfinished = self.links.iter().any(|link| link.queued() + link.socket.outstanding_tx() > 0);
            if !busy && !unfinished && self.lent() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        while let Some(mut waiting) = self.pending.pop() {
            self.discard(waiting.origin, DropReason::Shutdown, waiting.head, &mut waiting.tail);
        }
        for link in &mut self.links {
            link.abandon_backlog(&self.counters, &mut self.pool, DropReason::Shutdown);
        }
        self.publish_gauges();
    }

    fn lent(&self) -> usize {
        self.outboxes.iter().map(Outbox::lent).sum()
    }

    fn housekeep(&mut self) {
        if self.reclaiming {
            self.reclaim();
        }
        self.publish_gauges();
    }

    /// Says where the frames are. Their sum is the UMEM at any moment but while a closed socket's are on their way back.
    pub fn publish_gauges(&self) {
        self.counters.frames.set(&self.frames());
        let waiting = self.links.iter().map(Link::queued_packets).sum::<usize>();
        self.counters.waiting.set((waiting + self.pending.uncounted()) as u64);
    }

    pub(super) fn frames(&self) -> Frames {
        let sum = |count: fn(&Link) -> usize| self.links.iter().map(count).sum::<usize>() as u64;
        Frames {
            fill: sum(|link| link.socket.in_fill_ring()),
            worker: (self.rx.len() + self.pending.frames()) as u64,
            queued: sum(Link::queued),
            tx: sum(|link| link.socket.outstanding_tx()),
            lent: self.lent() as u64,
            pool: self.pool.len() as u64,
            total: self.umem.chunks() as u64,
        }
    }
}
