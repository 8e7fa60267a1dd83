//! Packets that wait for the MAC of their next hop: few, for a bounded time, oldest first.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::link::{Fate, Origin, Tail};
use crate::ids::{Nanos, PortId};
use crate::wire::vxlan::Vni;
use crate::xsk::Frame;

/// One packet that waits. It is the inner frame.
pub struct Waiting {
    /// Its network: ids may change with the tables, a VNI does not.
    pub vni: Vni,
    /// Remote encap IP it goes to.
    pub remote: IpAddr,
    /// Where it came from.
    pub origin: Origin,
    /// When it is dropped.
    pub deadline: Nanos,
    /// First frame.
    pub head: Frame,
    /// Further frames.
    pub tail: Tail,
}

/// The queue of packets that wait.
pub struct Pending {
    queue: VecDeque<Waiting>,
    limit: usize,
    timeout: Nanos,
}

impl Pending {
    /// Room for `limit` packets, each for `timeout`.
    #[must_use]
    pub fn new(limit: usize, timeout: Nanos) -> Self {
        Self { queue: VecDeque::with_capacity(limit), limit, timeout }
    }

    /// When a packet that starts to wait at `now` is dropped.
    #[must_use]
    pub fn deadline(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_add(self.timeout.0))
    }

    /// Whether one more packet may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.limit
    }

    /// Adds a packet at the end; ask [`has_room`](Self::has_room) first.
    pub fn push(&mut self, waiting: Waiting) {
        self.queue.push_back(waiting);
    }

    /// Takes the oldest packet.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.queue.pop_front()
    }

    /// Takes the oldest packet if its time is over.
    pub fn pop_expired(&mut self, now: Nanos) -> Option<Waiting> {
        if self.queue.front()?.deadline > now {
            return None;
        }
        self.queue.pop_front()
    }

    /// Takes all packets that came from a port.
    pub fn take_from(&mut self, port: PortId) -> Vec<Waiting> {
        let mut taken = Vec::new();
        for _ in 0..self.queue.len() {
            let Some(waiting) = self.queue.pop_front() else { break };
            if waiting.origin.port == port {
                taken.push(waiting);
            } else {
                self.queue.push_back(waiting);
            }
        }
        taken
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frames of all packets.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.queue.iter().map(|w| 1 + w.tail.len()).sum()
    }

    /// Packets whose fate is not counted yet.
    #[must_use]
    pub fn uncounted(&self) -> usize {
        self.queue.iter().filter(|w| w.origin.fate != Fate::Counted).count()
    }
}
