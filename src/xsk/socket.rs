//! One (interface, queue): moves frames between the caller and the four rings. No policy: the worker decides when to
//! refill, submit and wake.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use super::ring::{Consumer, Descriptor, Producer};
use super::seat::{RingId, Seat};
use super::testing::Link;
use super::{Frame, Pool, SocketConfig, Umem, XdpStatistics, XskError, bind, sys, transfer};

/// An AF_XDP socket with its RX, TX, fill and completion ring.
///
/// Drop unmaps the rings, then closes the descriptor, so that the queue is free for the next owner. Frames that were in
/// the rings come back by [`Umem::reclaim`].
pub struct Socket {
    // Field order is the order of tear-down.
    rings: Rings,
    anchor: Arc<Anchor>,
    umem: Umem,
    rx_id: RingId,
    tx_id: RingId,
    /// Descriptors from the RX and from the completion ring that were not believed.
    invalid: (u32, u32),
}

/// The user's ends of the four rings.
pub(super) struct Rings {
    pub(super) rx: Consumer<Descriptor>,
    pub(super) tx: Producer<Descriptor>,
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
}

/// Who is at the other end.
pub(super) enum Endpoint {
    Kernel { fd: OwnedFd, busy_poll: bool, zero_copy: bool },
    Memory(Arc<Link>),
}

/// What is left of a socket when its rings are gone. Shared with a [`StatisticsReader`] while that reads, so that the
/// frames are not reclaimed before the descriptor has closed.
struct Anchor {
    // Field order is the order of tear-down.
    endpoint: Endpoint,
    seat: Seat,
}

/// What a wakeup came to. Whatever it is, frames in the TX ring stay there until the kernel takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`Again` asks for another wakeup"]
pub enum Wakeup {
    /// The kernel is at it already, or has nothing to do: no system call was made.
    NotNeeded,
    /// The kernel looked at the ring.
    Done,
    /// Not finished (EAGAIN, EBUSY, ENOBUFS, EINTR): wake again later.
    Again,
    /// The interface is down or gone (ENETDOWN, ENXIO, ENODEV).
    NetworkDown,
    /// Another errno.
    Failed(i32),
}

impl Socket {
    /// Binds a socket to a queue. The first socket of a UMEM registers it with the kernel, once for copy and once for
    /// zero-copy mode, and others share that across devices and queues, each with its own four rings. Multi-buffer and
    /// need-wakeup are always on. A queue that is taken is retried for 0.6 s, as its previous owner may just have closed.
    ///
    /// # Errors
    /// Names the interface and queue and says what to do; see [`XskError`].
    pub fn bind(cfg: &SocketConfig<'_>) -> Result<Self, XskError> {
        bind::bind(cfg)
    }

    pub(super) fn assemble(umem: Umem, rings: Rings, endpoint: Endpoint, seat: Seat) -> Self {
        let (rx_id, tx_id) = (seat.rx(), seat.tx());
        Self { rings, anchor: Arc::new(Anchor { endpoint, seat }), umem, rx_id, tx_id, invalid: (0, 0) }
    }

    /// Whether the device reads and writes the UMEM itself.
    #[must_use]
    pub fn zero_copy(&self) -> bool {
        matches!(self.anchor.endpoint, Endpoint::Kernel { zero_copy: true, .. })
    }

    /// The descriptor, for the XSKMAP and for poll.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.anchor.endpoint {
            Endpoint::Kernel { fd, .. } => fd.as_fd(),
            Endpoint::Memory(link) => link.as_fd(),
        }
    }

    /// Moves up to `max` frames from the pool to the fill ring, for packets to come. Returns how many: none from the pool
    /// of another UMEM.
    #[inline]
    pub fn refill(&mut self, pool: &mut Pool, max: usize) -> usize {
        let want = u32::try_from(pool.len().min(max)).unwrap_or(u32::MAX);
        let ring = self.rx_id;
        if pool.tag() != self.umem.ledger().tag() {
            return 0;
        }
        let count = self.rings.fill.free(want).min(want);
        for run in self.rings.fill.room(count) {
            transfer::refill_run(&self.umem, ring, run, pool);
        }
        self.rings.fill.advance(count);
        self.rings.fill.publish();
        count as usize
    }

    /// Appends up to `max` received frames to `batch`, and returns how many. Packets come whole: one whose frames do not
    /// all fit is left for the next call, unless it alone has more than `max`.
    ///
    /// A descriptor that names no chunk of ours, or reaches out of it, is skipped and counted in
    /// [`invalid_descriptors`](Self::invalid_descriptors).
    #[inline]
    pub fn receive(&mut self, batch: &mut Vec<Frame>, max: usize) -> usize {
        let before = batch.len();
        let room = u32::try_from(max).unwrap_or(u32::MAX);
        let mut ready = self.rings.rx.available(room);
        if ready == 0 {
            ready = self.look_again(room);
        }
        let ring = self.rx_id;
        for mut run in self.rings.rx.peek(ready) {
            while !run.is_empty() {
                let believed = transfer::take_back_run(&self.umem, ring, run, batch);
                run = run.get(believed + 1..).unwrap_or_default();
            }
        }
        let invalid = ready - u32::try_from(batch.len() - before).unwrap_or(ready);
        if invalid != 0 || batch.last().is_some_and(Frame::more) {
            ready -= self.cut(batch, before, room, invalid);
        }
        self.rings.rx.advance(ready);
        self.rings.rx.release();
        batch.len() - before
    }

    /// Leaves a packet's first frames to the ring if the others are not there, and says how many; counts what was invalid.
    #[cold]
    fn cut(&mut self, batch: &mut Vec<Frame>, before: usize, room: u32, invalid: u32) -> u32 {
        self.invalid.0 = self.invalid.0.wrapping_add(invalid);
        let whole = batch.iter().rposition(|frame| !frame.more()).map_or(0, |last| last + 1).max(before);
        // A packet of more than `room` frames would wait forever. One that an invalid descriptor belongs to is in pieces
        // anyway.
        if invalid != 0 || (whole == before && batch.len() - before == room as usize) {
            return 0;
        }
        // They stay in the ring, and in the ledger.
        u32::try_from(batch.drain(whole..).count()).unwrap_or_default()
    }

    /// An in-memory socket found its RX ring empty: lowers the doorbell, and looks once more in case it was rung since.
    #[cold]
    fn look_again(&mut self, room: u32) -> u32 {
        match &self.anchor.endpoint {
            Endpoint::Kernel { .. } => 0,
            Endpoint::Memory(link) => {
                link.lower_doorbell();
                self.rings.rx.available(room)
            }
        }
    }

    /// Free slots of the TX ring. Looks at the kernel's index only if fewer than `want` are known to be free. Ask for a
    /// packet's number of frames before submitting the first, so that it goes whole.
    #[inline]
    pub fn tx_free(&mut self, want: usize) -> usize {
        self.rings.tx.free(u32::try_from(want).unwrap_or(u32::MAX)) as usize
    }

    /// Puts a frame on the TX ring; the kernel sees it at the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// Gives the frame back when the ring is full, the frame is empty (the kernel would swallow it), or of another UMEM.
    #[inline]
    pub fn submit(&mut self, frame: Frame) -> Result<(), Frame> {
        let ledger = self.umem.ledger();
        match frame.descriptor(ledger.tag()) {
            Some(descriptor) if self.rings.tx.push(descriptor) => {
                ledger.lend(descriptor.addr, self.tx_id);
                Ok(())
            }
            _ => Err(frame),
        }
    }

    /// Puts the frames on the TX ring as far as whole packets fit, and leaves the rest in the batch; the kernel sees them
    /// at the next [`flush`](Self::flush). Returns how many it took. Cheaper than [`submit`](Self::submit) one by one.
    ///
    /// It stops before a frame that `submit` would not take.
    #[inline]
    pub fn submit_batch(&mut self, batch: &mut Vec<Frame>) -> usize {
        let ring = self.tx_id;
        let mut want = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let free = self.rings.tx.free(want);
        if free < want {
            want = transfer::whole_packets(batch, free);
        }
        let mut frames = batch.as_slice();
        for run in self.rings.tx.room(want) {
            let lent = transfer::lend_run(&self.umem, ring, run, frames);
            frames = frames.get(lent..).unwrap_or_default();
            if frames.is_empty() || lent < run.len() {
                break;
            }
        }
        let count = batch.len() - frames.len();
        self.rings.tx.advance(u32::try_from(count).unwrap_or(want));
        drop(batch.drain(..count));
        count
    }

    /// Lets the kernel see the frames submitted. It transmits at the next wakeup.
    #[inline]
    pub fn flush(&mut self) {
        self.rings.tx.publish();
    }

    /// Moves the frames that the kernel has sent from the completion ring to the pool. Returns how many.
    #[inline]
    pub fn complete(&mut self, pool: &mut Pool) -> usize {
        let ready = self.rings.completion.available(u32::MAX);
        if ready == 0 {
            return 0;
        }
        let ring = self.tx_id;
        let before = pool.len();
        for run in self.rings.completion.peek(ready) {
            transfer::complete_run(&self.umem, ring, run, pool);
        }
        let count = pool.len() - before;
        self.invalid.1 = self.invalid.1.wrapping_add(ready - u32::try_from(count).unwrap_or(ready));
        self.rings.completion.advance(ready);
        self.rings.completion.release();
        count
    }

    /// Has the kernel transmit what was flushed. Makes a system call only if the kernel asks for it and, in copy mode,
    /// something is left in the ring.
    #[inline]
    pub fn wakeup_tx(&mut self) -> Wakeup {
        let asked = self.rings.tx.needs_wakeup();
        outcome(match &self.anchor.endpoint {
            // A busy-polled queue moves by our system calls alone.
            Endpoint::Kernel { fd, busy_poll: true, .. } => sys::kick_tx(fd.as_fd()),
            Endpoint::Kernel { fd, zero_copy, .. } => {
                if !asked || (!zero_copy && self.rings.tx.is_drained()) {
                    return Wakeup::NotNeeded;
                }
                sys::kick_tx(fd.as_fd())
            }
            Endpoint::Memory(link) => {
                if !asked || self.rings.tx.is_drained() {
                    return Wakeup::NotNeeded;
                }
                link.kick_tx()
            }
        })
    }

    /// Whether frames were flushed that the kernel has not taken yet.
    #[inline]
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.rings.tx.is_drained()
    }

    /// Has the kernel take frames from the fill ring. Makes a system call only if the kernel asks for it.
    #[inline]
    pub fn wakeup_rx(&mut self) -> Wakeup {
        let asked = self.rings.fill.needs_wakeup();
        outcome(match &self.anchor.endpoint {
            Endpoint::Kernel { fd, busy_poll, .. } if asked || *busy_poll => sys::kick_rx(fd.as_fd()),
            Endpoint::Memory(link) if asked => link.kick_rx(),
            _ => return Wakeup::NotNeeded,
        })
    }

    /// Whether the kernel may ask for a wakeup though there is nothing to send and its fill ring is full: zero-copy devices
    /// and busy-polled queues.
    #[inline]
    #[must_use]
    pub fn wants_kicks(&self) -> bool {
        match self.anchor.endpoint {
            Endpoint::Kernel { busy_poll, zero_copy, .. } => busy_poll || zero_copy,
            Endpoint::Memory(_) => true,
        }
    }

    /// Frames submitted and not yet completed, flushed or not.
    #[inline]
    #[must_use]
    pub fn outstanding_tx(&self) -> usize {
        let came_back = self.rings.completion.count().wrapping_sub(self.invalid.1);
        self.rings.tx.count().wrapping_sub(came_back) as usize
    }

    /// Frames given to the fill ring and not yet received, so those in the RX ring too.
    #[inline]
    #[must_use]
    pub fn in_fill_ring(&self) -> usize {
        let came_back = self.rings.rx.count().wrapping_sub(self.invalid.0);
        self.rings.fill.count().wrapping_sub(came_back) as usize
    }

    /// Descriptors from the kernel that were not believed. Their frames, if any, stay in the two sums above, and come
    /// back by [`Umem::reclaim`] when the socket is dropped.
    #[must_use]
    pub fn invalid_descriptors(&self) -> u64 {
        u64::from(self.invalid.0) + u64::from(self.invalid.1)
    }

    /// Kernel counters of this socket.
    ///
    /// # Errors
    /// [`XskError::Query`] when the kernel does not answer.
    pub fn statistics(&self) -> Result<XdpStatistics, XskError> {
        self.anchor.statistics()
    }

    /// A reader of this socket's kernel counters for another thread. It does not keep the socket open.
    #[must_use]
    pub fn statistics_reader(&self) -> StatisticsReader {
        StatisticsReader(Arc::downgrade(&self.anchor))
    }
}

impl Anchor {
    fn statistics(&self) -> Result<XdpStatistics, XskError> {
        match &self.endpoint {
            Endpoint::Kernel { fd, .. } => sys::statistics(fd.as_fd())
                .map_err(|source| XskError::Query { what: "XDP_STATISTICS".to_owned(), source }),
            Endpoint::Memory(link) => Ok(link.statistics()),
        }
    }
}

/// Reads a socket's kernel counters from another thread, as long as there is the socket.
#[derive(Clone, Debug)]
pub struct StatisticsReader(Weak<Anchor>);

impl StatisticsReader {
    /// Kernel counters of the socket.
    ///
    /// # Errors
    /// [`XskError::Query`] when the socket has been dropped or the kernel does not answer.
    pub fn read(&self) -> Result<XdpStatistics, XskError> {
        let gone = || XskError::Query {
            what: "XDP_STATISTICS of a closed socket".to_owned(),
            source: io::ErrorKind::NotConnected.into(),
        };
        self.0.upgrade().ok_or_else(gone)?.statistics()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.anchor.seat.step_down();
        self.anchor.seat.miss(self.in_fill_ring() + self.outstanding_tx());
        if let Endpoint::Memory(link) = &self.anchor.endpoint {
            link.close();
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("fd", &self.as_fd())
            .field("zero_copy", &self.zero_copy())
            .field("in_fill", &self.in_fill_ring())
            .field("in_tx", &self.outstanding_tx())
            .finish_non_exhaustive()
    }
}

#[inline]
fn outcome(result: Result<(), i32>) -> Wakeup {
    match result {
        Ok(()) => Wakeup::Done,
        Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Wakeup::Again,
        Err(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Wakeup::NetworkDown,
        Err(errno) => Wakeup::Failed(errno),
    }
}
