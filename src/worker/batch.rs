//! One round of a worker: take what arrived, let the datapath decide, put each packet where it belongs.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use super::Worker;
use super::handoff::{Inbox, Parcel};
use super::link::{Fate, MAX_FRAMES, Origin, Tail};
use super::pending::Waiting;
use super::report::Live;
use crate::datapath::{self, Replicate, Verdict, hint};
use crate::ids::{Nanos, PortId};
use crate::tables::fdb::Dest;
use crate::tables::snapshot::{Role, Snapshot};
use crate::tables::vtep::NextHop;
use crate::wire::drop::{DropReason, Note};
use crate::wire::packet::Packet;
use crate::wire::vxlan::Vni;
use crate::xsk::{Frame, Pool, Umem, prefetch};

/// Where a worker sends packets of an output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Its own socket, by index.
    Link(usize),
    /// Another worker, by index of the outbox.
    Worker(usize),
    /// Nowhere.
    None,
}

impl Worker {
    /// One round over all sockets. Returns whether there was anything to do.
    pub fn round(&mut self, t: &Snapshot, now: Nanos) -> bool {
        let mut busy = self.take_handoffs();
        if !self.pending.is_empty() {
            self.serve_pending(t, now);
        }
        self.generation = t.generation;
        self.reporter.set_layout(t.layout);
        for index in 0..self.links.len() {
            busy |= self.receive(t, now, index);
        }
        for outbox in &mut self.outboxes {
            outbox.flush();
        }
        for link in &mut self.links {
            link.settle(&self.counters, &mut self.pool);
        }
        self.counters.loops.add(1);
        if busy {
            self.counters.busy_loops.add(1);
        }
        busy
    }

    fn receive(&mut self, t: &Snapshot, now: Nanos, index: usize) -> bool {
        let Some(link) = self.links.get_mut(index) else { return false };
        if link.socket.receive(&mut self.rx, self.config.batch) == 0 {
            return false;
        }
        let port = link.port;
        let mut frames = std::mem::take(&mut self.rx);
        let mut arrived = frames.drain(..);
        // The kernel wrote them on another core: all are fetched at once rather than waited for one by one.
        arrived.as_slice().iter().for_each(|frame| self.umem.prefetch(frame));
        if t.large {
            self.fetch_tables(t, port, arrived.as_slice());
        }
        let mut tail = Tail::new();
        let (mut packets, mut bytes) = (0, 0);
        while let Some(head) = arrived.next() {
            packets += 1;
            bytes += head.len();
            let mut more = head.more();
            let mut too_long = false;
            while more {
                let Some(frame) = arrived.next() else { break };
                bytes += frame.len();
                more = frame.more();
                if let Err(full) = tail.try_push(frame) {
                    too_long = true;
                    self.pool.push(full.element());
                }
            }
            let origin = Origin { port, fate: Fate::Forwarded };
            if too_long {
                self.discard(origin, DropReason::ChainTooLong, head, &mut tail);
            } else {
                self.process(t, now, origin, head, &mut tail);
            }
        }
        drop(arrived);
        self.rx = frames;
        if let Some(counters) = self.counters.port(port) {
            counters.rx_packets.add(packets);
            counters.rx_bytes.add(bytes as u64);
        }
        true
    }

    /// Fetches what the packets of a batch will look up.
    fn fetch_tables(&self, t: &Snapshot, port: PortId, frames: &[Frame]) {
        hint::fetch(t, port, frames.iter().map(|frame| self.umem.data(frame)), prefetch);
    }

    #[inline]
    fn process(&mut self, t: &Snapshot, now: Nanos, origin: Origin, mut head: Frame, tail: &mut Tail) {
        let live = &mut Live { counters: &self.counters, reporter: &mut self.reporter, now };
        let verdict = run(&self.umem, &mut head, tail, &mut self.pool, |packet| {
            datapath::receive(t, live, origin.port, packet)
        });
        self.carry_out(t, now, verdict, origin, head, tail);
    }

    /// Finishes a tenant's frame for one destination.
    fn deliver(
        &mut self,
        t: &Snapshot,
        now: Nanos,
        to: To,
        origin: Origin,
        mut head: Frame,
        tail: &mut Tail,
    ) {
        let live = &mut Live { counters: &self.counters, reporter: &mut self.reporter, now };
        let verdict = run(&self.umem, &mut head, tail, &mut self.pool, |packet| {
            datapath::deliver(t, live, to.vni, origin.port, to.dest, packet)
        });
        self.carry_out(t, now, verdict, origin, head, tail);
    }

    #[inline]
    fn carry_out(
        &mut self,
        t: &Snapshot,
        now: Nanos,
        verdict: Verdict,
        origin: Origin,
        head: Frame,
        tail: &mut Tail,
    ) {
        match verdict {
            Verdict::Forward(out) => self.transmit(out, origin, head, tail),
            Verdict::Drop(reason) => self.discard(origin, reason, head, tail),
            // The XDP program steers no such packet; if one is here, program and tables disagree.
            Verdict::Punt(_) => self.discard(origin, DropReason::Misdirected, head, tail),
            Verdict::Unresolved(vni, vtep) => match t.vteps.get(vtep) {
                Some(row) => self.wait(now, vni, row.remote, origin, head, tail),
                None => self.discard(origin, DropReason::NoPath, head, tail),
            },
            Verdict::Replicate(to) => self.replicate(t, now, to, origin, head, tail),
            Verdict::Reply(reply) => {
                let fate = match reply.refused {
                    None => Fate::Replied,
                    Some(reason) => {
                        origin.count_drop(&self.counters, reason);
                        Fate::Counted
                    }
                };
                self.transmit(reply.port, Origin { fate, ..origin }, head, tail);
            }
        }
    }

    /// Puts a finished packet on its way out.
    #[inline]
    pub(super) fn transmit(&mut self, out: PortId, origin: Origin, mut head: Frame, tail: &mut Tail) {
        link_chain(&mut head, tail);
        let refused = match self.routes.get(usize::from(out.0)) {
            Some(Route::Link(index)) => match self.links.get_mut(*index) {
                Some(link) => link.send(origin, head, tail).err(),
                None => Some(head),
            },
            Some(Route::Worker(index)) => return self.hand_off(*index, out, origin, head, tail),
            Some(Route::None) | None => return self.discard(origin, DropReason::TxFailed, head, tail),
        };
        if let Some(head) = refused {
            self.discard(origin, DropReason::TxQueueFull, head, tail);
        }
    }

    /// Counts a packet's end and frees its frames.
    #[inline]
    pub(super) fn discard(&mut self, origin: Origin, reason: DropReason, head: Frame, tail: &mut Tail) {
        origin.count_drop(&self.counters, reason);
        self.pool.push(head);
        for frame in tail.drain(..) {
            self.pool.push(frame);
        }
    }

    /// Sends a copy to each receiver, and gives the original up.
    fn replicate(
        &mut self,
        t: &Snapshot,
        now: Nanos,
        to: Replicate,
        origin: Origin,
        head: Frame,
        tail: &mut Tail,
    ) {
        let receivers = t.network_of(to.vni).map(|network| network.flood.receivers(to.group, to.local_only));
        let mut sent = 0;
        let mut reason = DropReason::NoReceiver;
        for dest in receivers.unwrap_or_default().iter().filter(|dest| **dest != Dest::Port(to.from)) {
            let mut copy_tail = Tail::new();
            let Some(copy) = self.copy_packet(None, &head, tail, &mut copy_tail) else {
                self.counters.note(Note::CopiesLost);
                reason = DropReason::FramesExhausted;
                continue;
            };
            sent += 1;
            self.counters.note(Note::CopiesSent);
            let copy_origin = Origin { port: origin.port, fate: Fate::Counted };
            self.deliver(t, now, To { vni: to.vni, dest: *dest }, copy_origin, copy, &mut copy_tail);
        }
        if sent == 0 {
            return self.discard(origin, reason, head, tail);
        }
        origin.count_forwarded(&self.counters);
        self.pool.push(head);
        for frame in tail.drain(..) {
            self.pool.push(frame);
        }
    }

    /// Copies a packet frame by frame, from `umem` or this worker's own. `None`, and no frame taken, when the pool
    /// has too few.
    pub(super) fn copy_packet(
        &mut self,
        umem: Option<&Umem>,
        head: &Frame,
        tail: &[Frame],
        copy_tail: &mut Tail,
    ) -> Option<Frame> {
        if self.pool.len() < 1 + tail.len() {
            return None;
        }
        let copy = |from: &Frame, pool: &mut Pool| {
            let mut frame = pool.pop()?;
            let start = from.start();
            let bytes = umem.unwrap_or(&self.umem).data(from);
            let room = self.umem.chunk_mut(&mut frame).get_mut(start..).unwrap_or_default();
            room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            frame.set_range(start, bytes.len());
            frame.set_more(from.more());
            Some(frame)
        };
        let first = copy(head, &mut self.pool)?;
        for from in tail {
            if let Some(frame) = copy(from, &mut self.pool) {
                copy_tail.push(frame);
            }
        }
        Some(first)
    }

    /// Keeps a packet until its next hop's MAC is known, and asks for it.
    fn wait(&mut self, now: Nanos, vni: Vni, remote: IpAddr, origin: Origin, head: Frame, tail: &mut Tail) {
        self.reporter.want(remote);
        if !self.pending.has_room() {
            return self.discard(origin, DropReason::NeighborQueueFull, head, tail);
        }
        self.counters.note(Note::NeighborQueued);
        let deadline = self.pending.deadline(now);
        self.pending.push(Waiting { vni, remote, origin, deadline, head, tail: std::mem::take(tail) });
    }

    /// Tries waiting packets again when the tables changed, and drops those whose time is over.
    fn serve_pending(&mut self, t: &Snapshot, now: Nanos) {
        while let Some(mut late) = self.pending.pop_expired(now) {
            self.discard(late.origin, DropReason::NeighborUnresolved, late.head, &mut late.tail);
        }
        if self.generation == t.generation {
            return;
        }
        for _ in 0..self.pending.len() {
            let Some(mut waiting) = self.pending.pop() else { return };
            if !may_still_send(t, waiting.origin.port, waiting.vni) {
                self.discard(waiting.origin, DropReason::Reconfigured, waiting.head, &mut waiting.tail);
                continue;
            }
            let row = t.vteps.by_ip(waiting.remote).and_then(|id| Some((id, t.vteps.get(id)?)));
            match row {
                Some((_, row)) if row.next_hop == NextHop::Unresolved => self.pending.push(waiting),
                Some((id, _)) => {
                    let to = To { vni: waiting.vni, dest: Dest::Vtep(id) };
                    self.deliver(t, now, to, waiting.origin, waiting.head, &mut waiting.tail);
                }
                None => self.discard(waiting.origin, DropReason::NoPath, waiting.head, &mut waiting.tail),
            }
        }
    }

    /// Lends a packet to the worker that owns the output port's queue.
    fn hand_off(&mut self, index: usize, out: PortId, origin: Origin, head: Frame, tail: &mut Tail) {
        let Some(outbox) = self.outboxes.get_mut(index).filter(|outbox| outbox.free() > tail.len()) else {
            return self.discard(origin, DropReason::HandoffFull, head, tail);
        };
        self.counters.handoffs.add(1);
        for frame in std::iter::once(head).chain(tail.drain(..)) {
            if let Err(parcel) = outbox.push(Parcel { frame, out, origin }) {
                self.pool.push(parcel.frame);
            }
        }
    }

    /// Copies what other workers lend, sends it, and gives their frames back; takes its own lent frames back.
    fn take_handoffs(&mut self) -> bool {
        if self.outboxes.is_empty() && self.inboxes.is_empty() {
            return false;
        }
        for outbox in &mut self.outboxes {
            while let Some(frame) = outbox.take_back() {
                self.pool.push(frame);
            }
        }
        let inboxes = std::mem::take(&mut self.inboxes);
        let mut busy = false;
        for inbox in &inboxes {
            for _ in 0..self.config.batch {
                let Some(first) = inbox.pop() else { break };
                busy = true;
                self.take_packet(inbox, first);
            }
        }
        self.inboxes = inboxes;
        busy
    }

    fn take_packet(&mut self, inbox: &Inbox, first: Parcel) {
        let mut lent = Tail::new();
        let mut more = first.frame.more();
        while more {
            // The sender lends all frames of a packet before it does anything else.
            let Some(parcel) = inbox.pop() else {
                std::hint::spin_loop();
                continue;
            };
            more = parcel.frame.more();
            lent.push(parcel.frame);
        }
        let mut tail = Tail::new();
        match self.copy_packet(Some(&inbox.umem), &first.frame, &lent, &mut tail) {
            Some(head) => self.transmit(first.out, first.origin, head, &mut tail),
            None => first.origin.count_drop(&self.counters, DropReason::FramesExhausted),
        }
        inbox.give_back(first.frame);
        lent.into_iter().for_each(|frame| inbox.give_back(frame));
    }
}

/// Whether a packet that `port` sent into this VNI may go on: the port may have moved to another tenant meanwhile.
fn may_still_send(t: &Snapshot, port: PortId, vni: Vni) -> bool {
    let in_reach = |id| {
        t.network(id).is_some_and(|network| {
            let routed = network.vrf.and_then(|vrf| t.vrf(vrf)).and_then(|vrf| vrf.l3vni);
            network.vni == vni || routed == Some(vni)
        })
    };
    match t.port(port).map(|row| row.role) {
        Some(Role::Access(id)) => in_reach(id),
        Some(Role::Trunk(id)) => t.trunk(id).is_some_and(|trunk| trunk.networks().any(in_reach)),
        Some(Role::Uplink { .. } | Role::Native(_)) => true,
        Some(Role::Closed) | None => false,
    }
}

/// Destination of a frame that the datapath finishes.
#[derive(Clone, Copy)]
struct To {
    vni: Vni,
    dest: Dest,
}

/// Lets `decide` work on a packet's bytes, and takes the new layout over into its first frame.
#[inline]
fn run(
    umem: &Umem,
    head: &mut Frame,
    tail: &mut Tail,
    pool: &mut Pool,
    decide: impl FnOnce(&mut Packet<'_>) -> Verdict,
) -> Verdict {
    let (start, len) = (head.start(), head.len());
    let (verdict, layout) = {
        let tails: ArrayVec<&[u8], MAX_FRAMES> = tail.iter().map(|frame| umem.data(frame)).collect();
        let mut packet = Packet::new(umem.chunk_mut(head), start, len, &tails);
        (decide(&mut packet), packet.layout())
    };
    head.set_range(layout.start, layout.head_len);
    if !tail.is_empty() {
        trim(tail, pool, layout.tail_len);
    }
    verdict
}

/// Cuts the tail to `len` bytes, as the datapath cut the packet, and frees frames that have none left.
fn trim(tail: &mut Tail, pool: &mut Pool, len: usize) {
    let mut left = len;
    for frame in tail.iter_mut() {
        let keep = frame.len().min(left);
        frame.set_range(frame.start(), keep);
        left -= keep;
    }
    while tail.last().is_some_and(Frame::is_empty) {
        if let Some(frame) = tail.pop() {
            pool.push(frame);
        }
    }
}

/// Marks which frame is the packet's last.
#[inline]
fn link_chain(head: &mut Frame, tail: &mut Tail) {
    head.set_more(!tail.is_empty());
    if let Some((last, rest)) = tail.split_last_mut() {
        last.set_more(false);
        rest.iter_mut().for_each(|frame| frame.set_more(true));
    }
}
