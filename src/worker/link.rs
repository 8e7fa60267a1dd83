//! One socket of a worker, and what waits for room on its TX ring.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::counters::Counters;
use crate::ids::{PortId, QueueId};
use crate::wire::drop::{DropReason, Note};
use crate::xsk::{Frame, Pool, Socket, Wakeup};

/// Most frames of one packet: the kernel's `MAX_SKB_FRAGS` and the linear part.
pub const MAX_FRAMES: usize = 18;

/// All frames of a packet but its first.
pub type Tail = ArrayVec<Frame, { MAX_FRAMES - 1 }>;

/// What is counted when a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was forwarded.
    Forwarded,
    /// It was answered.
    Replied,
    /// Nothing: a copy of a group packet, or an ICMP error. The packet it was made of has been counted.
    Counted,
}

/// Where a packet came from, and what its leaving means.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Port it came from.
    pub port: PortId,
    /// What is counted.
    pub fate: Fate,
}

impl Origin {
    /// Counts that the packet left.
    #[inline]
    pub fn count_forwarded(self, counters: &Counters) {
        match self.fate {
            Fate::Forwarded => counters.forwarded.add(1),
            Fate::Replied => counters.replied.add(1),
            Fate::Counted => {}
        }
    }

    /// Counts that the packet was dropped.
    #[inline]
    pub fn count_drop(self, counters: &Counters, reason: DropReason) {
        if self.fate == Fate::Counted {
            counters.note(Note::CopiesLost);
        } else {
            counters.drop(self.port, reason);
        }
    }
}

/// One (port, queue) of a worker.
pub struct Link {
    /// The port.
    pub port: PortId,
    /// The queue.
    pub queue: QueueId,
    /// Its rings.
    pub socket: Socket,
    backlog: VecDeque<(Frame, Origin)>,
    backlog_limit: usize,
    fill_target: usize,
    /// For the TX ring at the end of the round, in one go; there is room for them.
    outgoing: Vec<Frame>,
    sent: Sent,
    /// Frames taken for sending, and frames that the kernel has finished with, since the start.
    accepted: u64,
    completed: u64,
    down: bool,
}

/// What a round put on the TX ring.
#[derive(Default)]
struct Sent {
    packets: u64,
    bytes: usize,
    /// Of these packets, those forwarded and those that are answers.
    forwarded: u64,
    replied: u64,
}

impl Sent {
    #[inline]
    fn add(&mut self, origin: Origin, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes;
        self.forwarded += u64::from(origin.fate == Fate::Forwarded);
        self.replied += u64::from(origin.fate == Fate::Replied);
    }
}

impl Link {
    /// A link whose backlog holds `backlog_limit` frames and whose fill ring is kept at `fill_target`.
    #[must_use]
    pub fn new(
        port: PortId,
        queue: QueueId,
        socket: Socket,
        backlog_limit: usize,
        fill_target: usize,
    ) -> Self {
        Self {
            port,
            queue,
            socket,
            backlog: VecDeque::with_capacity(backlog_limit),
            backlog_limit,
            fill_target,
            outgoing: Vec::with_capacity(backlog_limit),
            sent: Sent::default(),
            accepted: 0,
            completed: 0,
            down: false,
        }
    }

    /// Takes a packet for the TX ring, or behind others that wait for room. Gives the first frame back when there is no
    /// room for either; `tail` is then unchanged.
    #[inline]
    pub fn send(&mut self, origin: Origin, head: Frame, tail: &mut Tail) -> Result<(), Frame> {
        let needed = 1 + tail.len();
        if self.backlog.is_empty() && self.has_room(needed) {
            let bytes = head.len() + tail.iter().map(Frame::len).sum::<usize>();
            self.sent.add(origin, bytes);
            self.outgoing.push(head);
            self.outgoing.extend(tail.drain(..));
            self.accepted += needed as u64;
            return Ok(());
        }
        if self.backlog.len() + needed > self.backlog_limit {
            return Err(head);
        }
        self.accepted += needed as u64;
        self.backlog.push_back((head, origin));
        self.backlog.extend(tail.drain(..).map(|frame| (frame, origin)));
        Ok(())
    }

    /// Moves waiting packets to the TX ring as far as they fit, publishes them, wakes the kernel when it has something
    /// to send, and takes finished frames back.
    #[inline]
    pub fn settle(&mut self, counters: &Counters, pool: &mut Pool) {
        if self.is_at_rest() {
            return;
        }
        if !self.backlog.is_empty() {
            self.drain_backlog();
        }
        if self.sent.packets > 0 {
            self.submit(counters, pool);
        }
        if self.socket.has_unsent() {
            match self.socket.wakeup_tx() {
                Wakeup::NotNeeded => {}
                Wakeup::Done => {
                    counters.wakeups.add(1);
                    self.down = false;
                }
                Wakeup::Again => {
                    counters.wakeups.add(1);
                    counters.wakeups_refused.add(1);
                }
                // The frames stay on the ring; the kernel takes them when the device is up again.
                Wakeup::NetworkDown | Wakeup::Failed(_) => self.down = true,
            }
        }
        self.complete_and_refill(pool);
    }

    /// Whether nothing waits on either side. Looks at no memory that the kernel writes: most rounds of a spinning worker
    /// find every link so, and their length is what a packet waits to be seen.
    #[inline]
    fn is_at_rest(&self) -> bool {
        self.sent.packets == 0
            && self.backlog.is_empty()
            && self.socket.outstanding_tx() == 0
            && self.socket.in_fill_ring() >= self.fill_target
            && !self.socket.wants_kicks()
    }

    /// Takes finished frames back and gives the kernel frames to receive into.
    #[inline]
    pub fn complete_and_refill(&mut self, pool: &mut Pool) {
        self.completed += self.socket.complete(pool) as u64;
        let missing = self.fill_target.saturating_sub(self.socket.in_fill_ring());
        if missing > 0 {
            self.socket.refill(pool, missing);
        }
        // A zero-copy device that ran out of frames waits for this, and busy-polling is done by it; copy mode never
        // asks. Whatever it comes to, the next round asks again.
        let _ = self.socket.wakeup_rx();
    }

    /// Frames taken for sending since the start. The kernel finishes them in this order.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Whether the kernel has finished with the first `accepted` frames.
    #[must_use]
    pub fn has_finished(&self, accepted: u64) -> bool {
        self.completed >= accepted
    }

    /// Whether something waits that only another round can move.
    #[must_use]
    pub fn is_restless(&mut self) -> bool {
        !self.down && (!self.backlog.is_empty() || self.socket.has_unsent())
    }

    /// Frames that wait for room on the TX ring.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.backlog.len()
    }

    /// Packets that wait for room on the TX ring and are not counted yet.
    #[must_use]
    pub fn queued_packets(&self) -> usize {
        self.backlog.iter().filter(|(frame, origin)| !frame.more() && origin.fate != Fate::Counted).count()
    }

    /// Empties the backlog, counting every packet as dropped.
    pub fn abandon_backlog(&mut self, counters: &Counters, pool: &mut Pool, reason: DropReason) {
        for (frame, origin) in self.backlog.drain(..) {
            if !frame.more() {
                origin.count_drop(counters, reason);
            }
            self.completed += 1;
            pool.push(frame);
        }
    }

    fn drain_backlog(&mut self) {
        while let Some(last) = self.backlog.iter().position(|(frame, _)| !frame.more()) {
            if !self.has_room(last + 1) {
                return;
            }
            let mut bytes = 0;
            for (frame, origin) in self.backlog.drain(..=last) {
                bytes += frame.len();
                if !frame.more() {
                    self.sent.add(origin, bytes);
                }
                self.outgoing.push(frame);
            }
        }
    }

    #[inline]
    fn has_room(&mut self, frames: usize) -> bool {
        let needed = self.outgoing.len() + frames;
        self.socket.tx_free(needed) >= needed
    }

    /// Puts the round's packets on the TX ring, and counts them.
    #[inline]
    fn submit(&mut self, counters: &Counters, pool: &mut Pool) {
        self.socket.submit_batch(&mut self.outgoing);
        self.socket.flush();
        // A frame without bytes; the datapath makes none. Its chunk is not lost.
        debug_assert!(self.outgoing.is_empty(), "the TX ring refused a frame it had room for");
        self.completed += self.outgoing.len() as u64;
        self.outgoing.drain(..).for_each(|frame| pool.push(frame));
        let sent = std::mem::take(&mut self.sent);
        counters.forwarded.add(sent.forwarded);
        if sent.replied > 0 {
            counters.replied.add(sent.replied);
        }
        if let Some(port) = counters.port(self.port) {
            port.tx_packets.add(sent.packets);
            port.tx_bytes.add(sent.bytes as u64);
        }
    }
}
