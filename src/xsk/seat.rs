//! The sockets of a UMEM: which ring may hold a chunk, whose kernel registration can be shared, and when the frames of a
//! dropped socket may be used again.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::Umem;

/// How long a zero-copy device may still write into chunks after its socket closed: the kernel takes the buffers from
/// the driver in a work queue, some tens of milliseconds later.
const ZERO_COPY_QUARANTINE: Duration = Duration::from_secs(1);

/// Largest socket id: ids take 15 bits of an [`Owner`].
const MAX_SEATS: u16 = 0x7fff;

/// Whose a chunk is: the user's, or lent through the fill (RX) or TX ring of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u16);

impl Owner {
    /// The user: whoever has the frame, be it the pool.
    pub(super) const USER: Self = Self(0);

    /// As it stands in the UMEM's record.
    #[inline(always)]
    pub(super) fn bits(self) -> u16 {
        self.0
    }

    /// The socket's id in what stands in the record; 0 for the user.
    pub(super) fn seat_of(bits: u16) -> u16 {
        bits >> 1
    }
}

/// The sockets of a UMEM: who sits where, and whose kernel registration of the memory can be shared.
#[derive(Default)]
pub(super) struct Seats {
    taken: Vec<u16>,
    /// Dropped sockets whose frames are not reclaimed yet, and from when they may be.
    retired: Vec<(u16, Instant)>,
    /// Bound sockets. A kernel UMEM serves zero-copy or copy-mode sockets, not both: the first of either kind registers
    /// the memory once more.
    leaders: Vec<(u16, RawFd, bool)>,
}

impl Seats {
    /// A bound socket of this mode, to share the registration of. The descriptor is open while the lock is held.
    pub(super) fn leader(&self, zero_copy: bool) -> Option<RawFd> {
        self.leaders.iter().find(|(_, _, mode)| *mode == zero_copy).map(|(_, fd, _)| *fd)
    }

    /// Forgets and returns the seats of dropped sockets whose frames may be used again.
    pub(super) fn vacate(&mut self) -> Vec<u16> {
        let now = Instant::now();
        self.retired.extract_if(.., |(_, ready)| *ready <= now).map(|(id, _)| id).collect()
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
    id: u16,
    quarantine: Duration,
}

impl Seat {
    /// Takes a seat for a new socket; `None` when all are taken.
    pub(super) fn take(umem: &Umem) -> Option<Self> {
        let mut seats = umem.seats();
        let id = (1..=MAX_SEATS)
            .find(|id| !seats.taken.contains(id) && seats.retired.iter().all(|(retired, _)| retired != id))?;
        seats.taken.push(id);
        Some(Self { umem: umem.clone(), id, quarantine: Duration::ZERO })
    }

    /// Owner of the chunks in the fill and RX rings.
    pub(super) fn rx(&self) -> Owner {
        Owner(self.id << 1)
    }

    /// Owner of the chunks in the TX and completion rings.
    pub(super) fn tx(&self) -> Owner {
        Owner(self.id << 1 | 1)
    }

    /// Nobody may share this socket's registration any more: its descriptor is about to close.
    pub(super) fn step_down(&self) {
        self.umem.seats().leaders.retain(|(id, _, _)| *id != self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.umem.seats();
        seats.taken.retain(|id| *id != self.id);
        seats.retired.push((self.id, Instant::now() + self.quarantine));
    }
}
