//! One (interface, queue): moves frames between the caller and the four rings. No policy: the worker decides when to
//! refill, submit and wake.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::ring::{Consumer, Descriptor, Producer};
use super::seat::{Owner, Seat};
use super::testing::Link;
use super::{Frame, Pool, SocketConfig, Umem, XdpStatistics, XskError, bind, sys};

/// An AF_XDP socket with its RX, TX, fill and completion ring.
///
/// Drop unmaps the rings, then closes the descriptor, so that the queue is free for the next owner. Frames that were in
/// the rings come back by [`Umem::reclaim`].
pub struct Socket {
    // Field order is the order of tear-down.
    rings: Rings,
    endpoint: Endpoint,
    seat: Seat,
    umem: Umem,
    rx_owner: Owner,
    tx_owner: Owner,
    in_fill: usize,
    in_tx: usize,
    invalid: u64,
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
    /// Binds a socket to a queue. The first socket of a UMEM registers it with the kernel, others share it, across
    /// devices and queues, each with its own four rings. Multi-buffer and need-wakeup are always on. A queue that is
    /// taken is retried for 0.6 s, as its previous owner may just have closed.
    ///
    /// # Errors
    /// Names the interface and queue and says what to do; see [`XskError`].
    pub fn bind(cfg: &SocketConfig<'_>) -> Result<Self, XskError> {
        bind::bind(cfg)
    }

    pub(super) fn assemble(umem: Umem, rings: Rings, endpoint: Endpoint, seat: Seat) -> Self {
        let (rx_owner, tx_owner) = (seat.rx(), seat.tx());
        Self { rings, endpoint, seat, umem, rx_owner, tx_owner, in_fill: 0, in_tx: 0, invalid: 0 }
    }

    /// Whether the device reads and writes the UMEM itself.
    #[must_use]
    pub fn zero_copy(&self) -> bool {
        matches!(self.endpoint, Endpoint::Kernel { zero_copy: true, .. })
    }

    /// The descriptor, for the XSKMAP and for poll.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.endpoint {
            Endpoint::Kernel { fd, .. } => fd.as_fd(),
            Endpoint::Memory(link) => link.as_fd(),
        }
    }

    /// Moves up to `max` frames from the pool to the fill ring, for packets to come. Returns how many.
    #[inline]
    pub fn refill(&mut self, pool: &mut Pool, max: usize) -> usize {
        let want = u32::try_from(pool.len().min(max)).unwrap_or(u32::MAX);
        let count = self.rings.fill.free(want).min(want);
        for _ in 0..count {
            let Some(frame) = pool.pop() else { break };
            if !self.umem.owns(&frame) {
                // Another UMEM's pool, hence all of its frames.
                pool.push(frame);
                return 0;
            }
            let addr = self.umem.lend(frame, self.rx_owner);
            self.rings.fill.push(addr);
        }
        self.rings.fill.publish();
        self.in_fill += count as usize;
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
        // Where the last whole packet ends, in the batch and in the ring.
        let mut whole = (before, self.rings.rx.mark());
        for _ in 0..ready {
            let Some(descriptor) = self.rings.rx.pop() else { break };
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            match self.umem.take_back(descriptor.addr, descriptor.len, more, self.rx_owner) {
                Some(frame) => batch.push(frame),
                None => self.invalid += 1,
            }
            if !more {
                whole = (batch.len(), self.rings.rx.mark());
            }
        }
        if whole.0 < batch.len() && !(whole.0 == before && batch.len() == before + max) {
            self.put_back(batch, whole);
        }
        self.rings.rx.release();
        let count = batch.len() - before;
        self.in_fill -= count;
        count
    }

    /// Undoes the receipt of a packet's first frames.
    #[cold]
    fn put_back(&mut self, batch: &mut Vec<Frame>, (len, mark): (usize, u32)) {
        for frame in batch.drain(len..) {
            self.umem.lend(frame, self.rx_owner);
        }
        self.rings.rx.rewind(mark);
    }

    /// An in-memory socket found its RX ring empty: lowers the doorbell, and looks once more in case it was rung since.
    #[cold]
    fn look_again(&mut self, room: u32) -> u32 {
        match &self.endpoint {
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
        if frame.is_empty() || !self.umem.owns(&frame) || self.rings.tx.free(1) == 0 {
            return Err(frame);
        }
        let (start, len) = (frame.start() as u64, frame.len());
        let options = if frame.more() { libc::XDP_PKT_CONTD } else { 0 };
        let addr = self.umem.lend(frame, self.tx_owner) + start;
        self.rings.tx.push(Descriptor { addr, len: u32::try_from(len).unwrap_or_default(), options });
        self.in_tx += 1;
        Ok(())
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
        let mut count = 0;
        while let Some(addr) = self.rings.completion.pop() {
            match self.umem.take_back(addr, 0, false, self.tx_owner) {
                Some(frame) => {
                    pool.push(frame);
                    count += 1;
                }
                None => self.invalid += 1,
            }
        }
        self.rings.completion.release();
        self.in_tx -= count;
        count
    }

    /// Has the kernel transmit what was flushed. Makes a system call only if the kernel asks for it and, in copy mode,
    /// something is left in the ring.
    #[inline]
    pub fn wakeup_tx(&mut self) -> Wakeup {
        let asked = self.rings.tx.needs_wakeup();
        outcome(match &self.endpoint {
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
        outcome(match &self.endpoint {
            Endpoint::Kernel { fd, busy_poll, .. } if asked || *busy_poll => sys::kick_rx(fd.as_fd()),
            Endpoint::Memory(link) if asked => link.kick_rx(),
            _ => return Wakeup::NotNeeded,
        })
    }

    /// Frames submitted and not yet completed, flushed or not.
    #[inline]
    #[must_use]
    pub fn outstanding_tx(&self) -> usize {
        self.in_tx
    }

    /// Frames given to the fill ring and not yet received, so those in the RX ring too.
    #[inline]
    #[must_use]
    pub fn in_fill_ring(&self) -> usize {
        self.in_fill
    }

    /// Descriptors from the kernel that were not believed. Their frames, if any, stay in the two sums above, and come
    /// back by [`Umem::reclaim`] when the socket is dropped.
    #[must_use]
    pub fn invalid_descriptors(&self) -> u64 {
        self.invalid
    }

    /// A reader of this socket's kernel counters for another thread.
    ///
    /// # Errors
    /// [`XskError::Query`] when the process may open no more files.
    pub fn statistics_reader(&self) -> Result<StatisticsReader, XskError> {
        let fd = self.as_fd().try_clone_to_owned();
        let failed = |source| XskError::Query { what: "a second descriptor".to_owned(), source };
        fd.map(StatisticsReader).map_err(failed)
    }

    /// Kernel counters of this socket.
    ///
    /// # Errors
    /// [`XskError::Query`] when the kernel does not answer.
    pub fn statistics(&self) -> Result<XdpStatistics, XskError> {
        match &self.endpoint {
            Endpoint::Kernel { fd, .. } => sys::statistics(fd.as_fd())
                .map_err(|source| XskError::Query { what: "XDP_STATISTICS".to_owned(), source }),
            Endpoint::Memory(link) => Ok(link.statistics()),
        }
    }
}

/// Reads a socket's kernel counters from another thread. Keeps the socket open: drop it before the socket.
#[derive(Debug)]
pub struct StatisticsReader(OwnedFd);

impl StatisticsReader {
    /// Kernel counters of the socket.
    ///
    /// # Errors
    /// [`XskError::Query`] when the kernel does not answer.
    pub fn read(&self) -> Result<XdpStatistics, XskError> {
        sys::statistics(self.0.as_fd())
            .map_err(|source| XskError::Query { what: "XDP_STATISTICS".to_owned(), source })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.seat.step_down();
        if let Endpoint::Memory(link) = &self.endpoint {
            link.close();
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("fd", &self.as_fd())
            .field("zero_copy", &self.zero_copy())
            .field("in_fill", &self.in_fill)
            .field("in_tx", &self.in_tx)
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
