//! The workers as the control plane sees them: it gives them tables, and waits until nothing of the old ones is left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::ids::RuleId;
use crate::tables::snapshot::Snapshot;
use crate::worker::Shared;
use crate::worker::counters::{Counter, Counters};
use crate::worker::handoff::Waker;

/// How long a device may take to send what it has. One that is down takes for ever.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks at the workers.
const PAUSE: Duration = Duration::from_micros(50);

/// All workers, and what is shared with them.
#[derive(Clone, Debug)]
pub struct Crew {
    /// The tables, the fence, the end.
    pub shared: Arc<Shared>,
    /// Counters of each worker.
    pub counters: Vec<Arc<Counters>>,
    /// Wake each worker.
    pub wakers: Vec<Arc<Waker>>,
}

/// How long it took until nothing of the old tables was left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Until every worker worked with the new tables.
    pub adopted: Duration,
    /// After that, until everything sent before had left.
    pub left: Duration,
    /// Workers that still work with the old tables: none, unless one is stuck.
    pub stuck: Vec<usize>,
    /// Workers with something sent before that has not left: a device is down or stopped.
    pub late: Vec<usize>,
}

impl Crew {
    /// Gives the workers other tables; returns those they had.
    pub fn publish(&self, tables: Snapshot) -> Arc<Snapshot> {
        let old = self.shared.tables.swap(Arc::new(tables));
        self.wake();
        old
    }

    /// Generation of the oldest tables that a worker may still use.
    #[must_use]
    pub fn oldest_generation(&self) -> u64 {
        self.counters.iter().map(|counters| counters.generation.get()).min().unwrap_or(u64::MAX)
    }

    /// What all workers counted for a rule's number.
    #[must_use]
    pub fn rule(&self, number: usize) -> u64 {
        let id = u32::try_from(number).map(RuleId);
        let counts = self.counters.iter().filter_map(|counters| Some(counters.rule(id.ok()?)?.get()));
        counts.sum()
    }

    /// Waits, for `limit` at most, until every worker works with tables of this generation or later, and all that was
    /// sent before has left this host. Blocks the thread.
    #[must_use]
    pub fn settle(&self, generation: u64, limit: Duration) -> Settled {
        let start = Instant::now();
        self.wake();
        let stuck = self.behind(start + limit, generation, |counters| &counters.generation);
        let adopted = start.elapsed();
        let mut late = Vec::new();
        // What one worker lent to another is on that one's rings when the first fence is passed, and off them when the
        // second is.
        let fences = if self.counters.len() > 1 { 2 } else { 1 };
        for _ in 0..fences {
            let fence = self.shared.fence.fetch_add(1, Ordering::AcqRel) + 1;
            self.wake();
            late = self.behind(start + limit, fence, |counters| &counters.fence);
        }
        Settled { adopted, left: start.elapsed().saturating_sub(adopted), stuck, late }
    }

    /// Waits until a gauge of all workers is at `target`; returns those where it is not at the deadline.
    fn behind(&self, deadline: Instant, target: u64, gauge: impl Fn(&Counters) -> &Counter) -> Vec<usize> {
        loop {
            let behind =
                self.counters.iter().enumerate().filter(|(_, counters)| gauge(counters).get() < target);
            let behind: Vec<usize> = behind.map(|(index, _)| index).collect();
            if behind.is_empty() || Instant::now() >= deadline {
                return behind;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Tells the workers to end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes all workers.
    pub fn wake(&self) {
        self.wakers.iter().for_each(|waker| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use arc_swap::ArcSwap;

    use super::*;
    use crate::tables::snapshot::Settings;
    use crate::tables::vtep::VtepTable;

    fn crew(workers: usize) -> Crew {
        let tables = Snapshot::new(Settings::default(), Vec::new(), &[], VtepTable::default());
        Crew {
            shared: Arc::new(Shared {
                tables: ArcSwap::from_pointee(tables),
                fence: AtomicU64::new(0),
                stop: AtomicBool::new(false),
            }),
            counters: (0..workers).map(|_| Arc::new(Counters::new(0))).collect(),
            wakers: (0..workers).map(|_| Arc::new(Waker::new().unwrap())).collect(),
        }
    }

    /// Plays workers that take new tables, and pass fences up to `last`, until dropped.
    struct Play(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

    impl Play {
        fn start(crew: &Crew, last: u64) -> Self {
            let (crew, stop) = (crew.clone(), Arc::new(AtomicBool::new(false)));
            let stopped = Arc::clone(&stop);
            let work = move || {
                while !stopped.load(Ordering::Relaxed) {
                    for counters in &crew.counters {
                        counters.generation.set(crew.shared.tables.load().generation);
                        counters.fence.set(crew.shared.fence.load(Ordering::Acquire).min(last));
                    }
                    std::thread::yield_now();
                }
            };
            Self(stop, Some(std::thread::spawn(work)))
        }
    }

    impl Drop for Play {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.take().unwrap().join().unwrap();
        }
    }

    fn next(crew: &Crew) -> Snapshot {
        let mut next = Snapshot::clone(&crew.shared.tables.load());
        next.generation += 1;
        next
    }

    #[test]
    fn it_waits_for_every_worker_and_every_fence() {
        let crew = crew(3);
        let _play = Play::start(&crew, u64::MAX);
        for generation in 1..5 {
            crew.publish(next(&crew));
            let settled = crew.settle(generation, Duration::from_secs(5));
            assert_eq!((settled.stuck, settled.late), (vec![], vec![]));
            assert_eq!(crew.oldest_generation(), generation);
        }
        assert_eq!(crew.shared.fence.load(Ordering::Relaxed), 8, "two for each");
    }

    #[test]
    fn it_waits_no_longer_than_the_limit_and_names_who_is_late() {
        let crew = crew(2);
        let play = Play::start(&crew, 1);
        crew.publish(next(&crew));
        let settled = crew.settle(1, Duration::from_millis(50));
        assert_eq!((settled.stuck, settled.late), (vec![], vec![0, 1]));
        assert!(settled.left < Duration::from_secs(1));
        drop(play);
        crew.publish(next(&crew));
        assert_eq!(crew.settle(2, Duration::from_millis(1)).stuck, [0, 1]);
    }
}
