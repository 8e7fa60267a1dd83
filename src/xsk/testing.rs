//! AF_XDP without a NIC, a kernel or root: [`pair`] makes a [`Socket`] whose four rings lie in plain memory, laid out as
//! the kernel does, and a [`Peer`] that plays the kernel. For the tests and benches of all that sits on `xsk`.
//!
//! ```
//! use flowrail::xsk::{HugePages, Umem, UmemConfig, testing};
//!
//! let cfg = UmemConfig { chunk_size: 2048, chunks: 8, headroom: 0, huge_pages: HugePages::Off };
//! let (umem, mut pool) = Umem::new(cfg)?;
//! let (mut socket, mut nic) = testing::pair(&umem, 4)?;
//!
//! socket.refill(&mut pool, 4);
//! assert!(nic.push(b"a packet from the wire"));
//! let mut batch = Vec::new();
//! socket.receive(&mut batch, 4);
//! for frame in batch {
//!     socket.submit(frame).unwrap();
//! }
//! socket.flush();
//! assert_eq!(nic.transmit(64), [b"a packet from the wire"]);
//! nic.complete(64);
//! assert_eq!(socket.complete(&mut pool), 1);
//! # Ok::<(), flowrail::xsk::XskError>(())
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::xdp_ring_offset;

use super::mmap::Mapping;
use super::ring::{self, Consumer, Descriptor, Producer, Slot};
use super::seat::{RingId, Seat};
use super::socket::{Endpoint, Rings};
use super::{Socket, Umem, XdpStatistics, XskError, sys};

/// What `XDP_MMAP_OFFSETS` says of every ring on x86_64: each index on a cache line of its own, with an empty line after.
const LAYOUT: xdp_ring_offset = xdp_ring_offset { producer: 0, consumer: 128, flags: 196, desc: 320 };

/// Makes an in-memory socket on `umem` and its kernel. RX and TX ring have `ring_size` slots (a power of two), fill and
/// completion ring twice as many, as [`Socket::bind`] makes them. TX wants wakeups and RX does not, as in copy mode.
///
/// # Errors
/// As [`Socket::bind`], with "in-memory" as the interface.
pub fn pair(umem: &Umem, ring_size: u32) -> Result<(Socket, Peer), XskError> {
    let interface = || "in-memory".to_owned();
    let bad_size = || XskError::RingSize { interface: interface(), queue: 0, size: ring_size };
    let failed =
        |source| XskError::Setup { interface: interface(), queue: 0, step: "memory", hint: "", source };
    if ring_size > 1 << 15 {
        return Err(bad_size());
    }
    let seat =
        Seat::take(umem).ok_or_else(|| XskError::TooManySockets { interface: interface(), queue: 0 })?;
    let memory =
        |len: Option<usize>| len.map(Mapping::anonymous).ok_or_else(bad_size)?.map(Arc::new).map_err(failed);
    let descriptors = || memory(ring::mapped_len::<Descriptor>(&LAYOUT, ring_size));
    let addresses = || memory(ring::mapped_len::<u64>(&LAYOUT, ring_size * 2));
    let (rx, tx, fill, completion) = (descriptors()?, descriptors()?, addresses()?, addresses()?);
    let rings = Rings {
        rx: reader(&rx, ring_size).ok_or_else(bad_size)?,
        tx: writer(&tx, ring_size).ok_or_else(bad_size)?,
        fill: writer(&fill, ring_size * 2).ok_or_else(bad_size)?,
        completion: reader(&completion, ring_size * 2).ok_or_else(bad_size)?,
    };
    let link = Arc::new(Link {
        doorbell: File::from(sys::eventfd().map_err(failed)?),
        rung: AtomicBool::new(false),
        state: Mutex::default(),
    });
    let mut peer = Peer {
        rx: writer(&rx, ring_size).ok_or_else(bad_size)?,
        tx: reader(&tx, ring_size).ok_or_else(bad_size)?,
        fill: reader(&fill, ring_size * 2).ok_or_else(bad_size)?,
        completion: writer(&completion, ring_size * 2).ok_or_else(bad_size)?,
        umem: umem.clone(),
        rx_id: seat.rx(),
        tx_id: seat.tx(),
        link: Arc::clone(&link),
        sent: VecDeque::new(),
        partial: Vec::new(),
    };
    peer.need_wakeup(true, false);
    Ok((Socket::assemble(umem.clone(), rings, Endpoint::Memory(link), seat), peer))
}

fn reader<T: Slot>(memory: &Arc<Mapping>, size: u32) -> Option<Consumer<T>> {
    Consumer::new(memory, &LAYOUT, size)
}

fn writer<T: Slot>(memory: &Arc<Mapping>, size: u32) -> Option<Producer<T>> {
    Producer::new(memory, &LAYOUT, size)
}

/// What socket and peer share besides the rings.
pub(super) struct Link {
    /// Readable while there may be something to receive, so that poll on the socket works.
    doorbell: File,
    rung: AtomicBool,
    /// Also held by the peer while it touches chunks: they become the user's again after `close`.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    refusals: VecDeque<i32>,
    kicks: (u64, u64),
    statistics: XdpStatistics,
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// Non-blocking: an error only says that it is low already.
    pub(super) fn lower_doorbell(&self) {
        let _ = (&self.doorbell).read(&mut [0; 8]);
        // After the read: a packet pushed in between finds it up and does not ring, but is seen by the look at the ring
        // that follows.
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// Costs a system call only when it is down.
    fn ring_doorbell(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // An error would mean that the counter is at its maximum, so it is up.
            let _ = (&self.doorbell).write(&1_u64.to_ne_bytes());
        }
    }

    pub(super) fn kick_tx(&self) -> Result<(), i32> {
        let mut state = self.state();
        state.kicks.0 += 1;
        state.answer()
    }

    pub(super) fn kick_rx(&self) -> Result<(), i32> {
        let mut state = self.state();
        state.kicks.1 += 1;
        state.answer()
    }

    pub(super) fn statistics(&self) -> XdpStatistics {
        self.state().statistics
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }
}

impl State {
    fn answer(&mut self) -> Result<(), i32> {
        match self.refusals.pop_front() {
            None | Some(0) => Ok(()),
            Some(errno) => Err(errno),
        }
    }
}

/// The kernel's and the device's side of an in-memory socket. Nothing happens by itself: packets arrive by
/// [`push`](Self::push), leave by [`transmit`](Self::transmit), and their frames return by [`complete`](Self::complete).
/// After the socket was dropped every call does nothing.
pub struct Peer {
    rx: Producer<Descriptor>,
    tx: Consumer<Descriptor>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
    umem: Umem,
    rx_id: RingId,
    tx_id: RingId,
    link: Arc<Link>,
    /// Addresses transmitted and not yet completed.
    sent: VecDeque<u64>,
    /// A packet of which not all descriptors were there yet.
    partial: Vec<u8>,
}

impl Peer {
    /// A packet arrives. It is written into frames from the fill ring, [`Umem::default_start`] bytes into each chunk, in
    /// as many chunks as it takes. False, and counted in the statistics, when frames or RX slots do not suffice.
    pub fn push(&mut self, packet: &[u8]) -> bool {
        let link = Arc::clone(&self.link);
        let mut state = link.state();
        if state.closed {
            return false;
        }
        let room = self.umem.chunk_size() - self.umem.default_start();
        let count = u32::try_from(packet.len().div_ceil(room).max(1)).unwrap_or(u32::MAX);
        if self.rx.free(count) < count {
            state.statistics.rx_ring_full += 1;
            return false;
        }
        if self.fill.available(count) < count {
            state.statistics.rx_fill_ring_empty_descs += 1;
            return false;
        }
        let mut rest = packet;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(room));
            rest = after;
            let Some(addr) = self.fill.pop().and_then(|addr| self.write(addr, piece)) else { break };
            let options = if rest.is_empty() { 0 } else { libc::XDP_PKT_CONTD };
            self.rx.push(Descriptor::new(addr, u32::try_from(piece.len()).unwrap_or_default(), options));
            if rest.is_empty() {
                break;
            }
        }
        self.fill.release();
        self.rx.publish();
        self.link.ring_doorbell();
        true
    }

    fn write(&self, addr: u64, piece: &[u8]) -> Option<u64> {
        let start = self.umem.default_start();
        let mut frame = self.umem.ledger().take_back(&Descriptor::new(addr, 0, 0), self.rx_id)?;
        frame.set_range(start, piece.len());
        self.umem.data_mut(&mut frame).copy_from_slice(piece);
        Some(addr + start as u64)
    }

    /// Puts any descriptor on the RX ring, as a broken kernel might. False when the ring is full. For this crate's tests
    /// only: a peer in another thread that writes into a chunk it also forged away would race.
    #[cfg(test)]
    pub fn push_descriptor(&mut self, addr: u64, len: u32, options: u32) -> bool {
        let done = self.rx.push(Descriptor::new(addr, len, options));
        self.rx.publish();
        self.link.ring_doorbell();
        done
    }

    /// Puts any address on the completion ring, as a broken kernel might. False when the ring is full.
    #[cfg(test)]
    pub fn push_completion(&mut self, addr: u64) -> bool {
        let done = self.completion.push(addr);
        self.completion.publish();
        done
    }

    /// Takes up to `max` descriptors from the TX ring and returns the packets they end, whole. Their frames stay with
    /// the kernel until [`complete`](Self::complete). Invalid descriptors are counted, and never complete.
    pub fn transmit(&mut self, max: usize) -> Vec<Vec<u8>> {
        let link = Arc::clone(&self.link);
        let mut state = link.state();
        let mut packets = Vec::new();
        if state.closed {
            return packets;
        }
        for _ in 0..self.tx.available(u32::try_from(max).unwrap_or(u32::MAX)) {
            let Some(descriptor) = self.tx.pop() else { break };
            let frame = self.umem.ledger().take_back(&descriptor, self.tx_id);
            let Some(frame) = frame.filter(|frame| !frame.is_empty()) else {
                state.statistics.tx_invalid_descs += 1;
                continue;
            };
            self.partial.extend_from_slice(self.umem.data(&frame));
            self.sent.push_back(descriptor.addr);
            if !frame.more() {
                packets.push(std::mem::take(&mut self.partial));
            }
        }
        self.tx.release();
        packets
    }

    /// Completes up to `max` transmitted frames, oldest first. Returns how many.
    pub fn complete(&mut self, max: usize) -> usize {
        let mut count = 0;
        while count < max {
            let Some(addr) = self.sent.front() else { break };
            if !self.completion.push(*addr) {
                break;
            }
            self.sent.pop_front();
            count += 1;
        }
        self.completion.publish();
        count
    }

    /// An ideal device, for benches: completes all that is in the TX ring, and lets up to `packets` packets of `len` bytes
    /// arrive in frames from the fill ring, without looking at a byte. Returns how many arrived.
    pub fn recirculate(&mut self, packets: usize, len: u32) -> usize {
        let sent = self.tx.available(u32::MAX).min(self.completion.free(u32::MAX));
        let done = self.completion.room(sent).into_iter().flatten();
        for (slot, descriptor) in done.zip(self.tx.peek(sent).into_iter().flatten()) {
            *slot = descriptor.addr;
        }
        self.completion.advance(sent);
        self.completion.publish();
        self.tx.advance(sent);
        self.tx.release();
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let count = self.fill.available(packets).min(self.rx.free(packets));
        let start = self.umem.default_start() as u64;
        let arrived = self.rx.room(count).into_iter().flatten();
        for (slot, addr) in arrived.zip(self.fill.peek(count).into_iter().flatten()) {
            *slot = Descriptor::new(addr + start, len, 0);
        }
        self.rx.advance(count);
        self.rx.publish();
        self.fill.advance(count);
        self.fill.release();
        count as usize
    }

    /// Says whether transmit and fill ring want wakeups.
    pub fn need_wakeup(&mut self, tx: bool, rx: bool) {
        self.tx.set_needs_wakeup(tx);
        self.fill.set_needs_wakeup(rx);
    }

    /// The coming wakeups answer with these errnos, one each (0: success); later ones succeed.
    pub fn refuse_wakeups(&mut self, errnos: &[i32]) {
        self.link.state().refusals.extend(errnos);
    }

    /// Wakeups that would have been system calls so far: (TX, RX).
    #[must_use]
    pub fn wakeups(&self) -> (u64, u64) {
        self.link.state().kicks
    }

    /// Frames waiting in the fill ring.
    pub fn in_fill(&mut self) -> usize {
        self.fill.available(u32::MAX) as usize
    }

    /// Descriptors waiting in the TX ring.
    pub fn in_tx(&mut self) -> usize {
        self.tx.available(u32::MAX) as usize
    }

    /// Frames transmitted and not completed.
    #[must_use]
    pub fn uncompleted(&self) -> usize {
        self.sent.len()
    }
}
