//! What a worker counts. One writer, any number of readers, no locked instruction: each counter is a relaxed load and
//! store of a 64-bit number.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::ids::PortId;
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

/// Where a worker's frames are. Their sum is the size of its UMEM at any moment.
#[derive(Debug, Default)]
pub struct FrameGauges {
    /// Given to the kernel to receive into.
    pub fill: Counter,
    /// In the worker's hands: received and not finished, or waiting for a MAC.
    pub worker: Counter,
    /// Waiting for room on a TX ring.
    pub queued: Counter,
    /// On a TX ring or not yet completed.
    pub tx: Counter,
    /// Lent to another worker, which copies them.
    pub lent: Counter,
    /// Free.
    pub pool: Counter,
    /// All.
    pub total: Counter,
}

/// Counters of one worker.
#[derive(Debug)]
pub struct Counters {
    ports: Vec<PortCounters>,
    /// Packets whose fate was to leave: on a TX ring, or copied to at least one receiver.
    pub forwarded: Counter,
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
