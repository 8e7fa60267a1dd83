//! The sockets of a UMEM: which ring may hold a chunk, whose kernel registration can be shared, and when the frames of a
//! dropped socket may be used again.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Umem;

/// How long a zero-copy device may still write into chunks after its socket closed: the kernel takes the buffers from
/// the driver in a work queue, some tens of milliseconds later.
const ZERO_COPY_QUARANTINE: Duration = Duration::from_secs(1);

/// One direction of one socket: fill and RX ring, or TX and completion ring. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingId(u32);

impl RingId {
    /// As it stands in the ledger.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }
}

/// Number of a socket in its UMEM: from 1 up, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeatId(u32);

impl SeatId {
    /// Whether what stands in the ledger is one of the socket's rings.
    pub(super) fn has(self, ring: u32) -> bool {
        ring >> 1 == self.0
    }
}

/// The sockets of a UMEM: who sits where, and whose kernel registration of the memory can be shared.
#[derive(Default)]
pub(super) struct Seats {
    /// Seats taken so far.
    taken: u32,
    retired: Vec<Retired>,
    /// Bound sockets. A kernel UMEM serves zero-copy or copy-mode sockets, not both: the first of either kind registers
    /// the memory once more.
    leaders: Vec<(SeatId, RawFd, bool)>,
}

/// A dropped socket whose frames are not reclaimed yet.
struct Retired {
    id: SeatId,
    /// Frames it had in its rings.
    missing: usize,
    /// When the device has let go of them.
    ready: Instant,
}

impl Seats {
    /// A bound socket of this mode, to share the registration of. The descriptor is open while the lock is held.
    pub(super) fn leader(&self, zero_copy: bool) -> Option<RawFd> {
        self.leaders.iter().find(|(_, _, mode)| *mode == zero_copy).map(|(_, fd, _)| *fd)
    }

    /// Offers each dropped socket whose device has let go, with its number of missing frames, and forgets those for
    /// which `reclaim` says true.
    pub(super) fn vacate(&mut self, mut reclaim: impl FnMut(SeatId, usize) -> bool) {
        let now = Instant::now();
        self.retired.retain(|seat| seat.ready > now || !reclaim(seat.id, seat.missing));
    }

    /// A socket was bound.
    pub(super) fn lead(&mut self, seat: &mut Seat, fd: RawFd, zero_copy: bool) {
        self.leaders.push((seat.id, fd, zero_copy));
        if zero_copy {
            seat.quarantine = ZERO_COPY_QUARANTINE;
        }
    }
}

/// A socket's place at its UMEM. Dropped after the socket's descriptor, it opens the socket's frames to `reclaim`.
pub(super) struct Seat {
    umem: Umem,
    id: SeatId,
    missing: AtomicUsize,
    quarantine: Duration,
}

impl Seat {
    /// Takes a seat for a new socket; `None` after 2^31 - 1 of them.
    pub(super) fn take(umem: &Umem) -> Option<Self> {
        let mut seats = umem.seats();
        let id = seats.taken.checked_add(1).filter(|id| *id < 1 << 31)?;
        seats.taken = id;
        Some(Self {
            umem: umem.clone(),
            id: SeatId(id),
            missing: AtomicUsize::new(0),
            quarantine: Duration::ZERO,
        })
    }

    /// The fill and RX ring.
    pub(super) fn rx(&self) -> RingId {
        RingId(self.id.0 << 1)
    }

    /// The TX and completion ring.
    pub(super) fn tx(&self) -> RingId {
        RingId(self.id.0 << 1 | 1)
    }

    /// The socket closes with this many frames in its rings.
    pub(super) fn miss(&self, frames: usize) {
        self.missing.store(frames, Ordering::Relaxed);
    }

    /// Nobody may share this socket's registration any more: its descriptor is about to close.
    pub(super) fn step_down(&self) {
        self.umem.seats().leaders.retain(|(id, _, _)| *id != self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let ready = Instant::now() + self.quarantine;
        self.umem.seats().retired.push(Retired { id: self.id, missing: *self.missing.get_mut(), ready });
    }
}
