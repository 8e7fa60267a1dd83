//! What a worker counts. One writer, any number of readers, no locked instruction: each counter is a relaxed load and
//! store of a 64-bit number.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use serde::{Deserialize, Serialize};

use crate::ids::{PortId, RuleId};
use crate::wire::drop::{DropReason, Note};

/// A counter or gauge with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets a gauge; only the owning worker may.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The value at this moment.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one port on one worker. Packets, and bytes without FCS.
#[derive(Debug)]
pub struct PortCounters {
    /// Packets taken from RX rings.
    pub rx_packets: Counter,
    /// Bytes taken from RX rings.
    pub rx_bytes: Counter,
    /// Packets put on TX rings.
    pub tx_packets: Counter,
    /// Bytes put on TX rings.
    pub tx_bytes: Counter,
    /// Packets that came from this port and were dropped, by reason.
    pub drops: [Counter; DropReason::COUNT],
}

/// Where a worker's frames are. All but `total` add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Given to the kernel to receive into.
    pub fill: u64,
    /// In the worker's hands: received and not finished, or waiting for a MAC.
    pub worker: u64,
    /// Waiting for room on a TX ring.
    pub queued: u64,
    /// On a TX ring or not yet completed.
    pub tx: u64,
    /// Lent to another worker, which copies them.
    pub lent: u64,
    /// Free.
    pub pool: u64,
    /// All.
    pub total: u64,
}

impl Frames {
    /// Whether every frame is in exactly one place.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.fill + self.worker + self.queued + self.tx + self.lent + self.pool == self.total
    }
}

/// The latest [`Frames`], which a reader gets whole: a sequence number is odd while the worker writes.
#[derive(Debug, Default)]
pub struct FrameGauges {
    sequence: AtomicU64,
    values: [AtomicU64; 7],
}

impl FrameGauges {
    /// Writes; only the owning worker may.
    pub fn set(&self, f: &Frames) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        let values = [f.fill, f.worker, f.queued, f.tx, f.lent, f.pool, f.total];
        self.values.iter().zip(values).for_each(|(to, from)| to.store(from, Relaxed));
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    /// Reads what was written last.
    #[must_use]
    pub fn get(&self) -> Frames {
        loop {
            let before = self.sequence.load(Acquire);
            let [fill, worker, queued, tx, lent, pool, total] =
                self.values.each_ref().map(|v| v.load(Relaxed));
            fence(Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Relaxed) == before {
                return Frames { fill, worker, queued, tx, lent, pool, total };
            }
            std::hint::spin_loop();
        }
    }
}

/// Most policy rules of all tenants together.
pub const MAX_RULES: usize = 16_384;

/// Counters of one worker.
#[derive(Debug)]
pub struct Counters {
    ports: Vec<PortCounters>,
    /// Packets whose fate was to leave: on a TX ring, or copied to at least one receiver.
    pub forwarded: Counter,
    /// Packets that were answered: ARP, ND, ping to a gateway.
    pub replied: Counter,
    /// Packets that each policy rule counted or decided, by [`RuleId`].
    rules: Vec<Counter>,
    /// Generation of the tables that the last whole round worked with.
    pub generation: Counter,
    /// Number of the last fence passed: everything sent before it was asked for has left.
    pub fence: Counter,
    /// Commands carried out.
    pub commands: Counter,
    /// Packets that belong to the kernel, though the XDP program steered them here.
    pub punted: Counter,
    /// Packets between RX and their fate: waiting for a MAC, for TX, or for another worker.
    pub waiting: Counter,
    /// Oddities.
    pub notes: [Counter; Note::COUNT],
    /// Rounds over all sockets.
    pub loops: Counter,
    /// Rounds that found packets.
    pub busy_loops: Counter,
    /// TX wakeups: system calls.
    pub wakeups: Counter,
    /// TX wakeups that the kernel asked to repeat.
    pub wakeups_refused: Counter,
    /// Times the worker slept.
    pub sleeps: Counter,
    /// Packets handed to another worker.
    pub handoffs: Counter,
    /// Where the frames are.
    pub frames: FrameGauges,
}

impl Counters {
    /// Counters for `ports` ports, all zero.
    #[must_use]
    pub fn new(ports: usize) -> Self {
        let port = || PortCounters {
            rx_packets: Counter::default(),
            rx_bytes: Counter::default(),
            tx_packets: Counter::default(),
            tx_bytes: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
        };
        Self {
            ports: (0..ports).map(|_| port()).collect(),
            forwarded: Counter::default(),
            replied: Counter::default(),
            rules: (0..MAX_RULES).map(|_| Counter::default()).collect(),
            generation: Counter::default(),
            fence: Counter::default(),
            commands: Counter::default(),
            punted: Counter::default(),
            waiting: Counter::default(),
            notes: std::array::from_fn(|_| Counter::default()),
            loops: Counter::default(),
            busy_loops: Counter::default(),
            wakeups: Counter::default(),
            wakeups_refused: Counter::default(),
            sleeps: Counter::default(),
            handoffs: Counter::default(),
            frames: FrameGauges::default(),
        }
    }

    /// How many ports have counters.
    #[must_use]
    pub fn port_capacity(&self) -> usize {
        self.ports.len()
    }

    /// Counters of a port.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&PortCounters> {
        self.ports.get(usize::from(port.0))
    }

    /// Counts a packet that came from `port` and was dropped.
    #[inline]
    pub fn drop(&self, port: PortId, reason: DropReason) {
        if let Some(counter) = self.port(port).and_then(|p| p.drops.get(reason.index())) {
            counter.add(1);
        }
    }

    /// Counter of a policy rule.
    #[inline]
    #[must_use]
    pub fn rule(&self, rule: RuleId) -> Option<&Counter> {
        self.rules.get(rule.0 as usize)
    }

    /// Counts an oddity.
    #[inline]
    pub fn note(&self, note: Note) {
        if let Some(counter) = self.notes.get(note.index()) {
            counter.add(1);
        }
    }

    /// Packets received on all ports.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|p| p.rx_packets.get()).sum()
    }

    /// Packets dropped for `reason` on all ports.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.ports.iter().filter_map(|p| p.drops.get(reason.index())).map(Counter::get).sum()
    }
}
