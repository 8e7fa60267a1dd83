//! Packets between workers, where a port has fewer queues than there are workers: the sender lends its frames, the
//! owner of the queue copies them once into its own UMEM and gives them back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_queue::ArrayQueue;

use super::link::Origin;
use crate::ids::PortId;
use crate::xsk::{Frame, Umem};

/// A lent frame on its way to the worker that owns the output port's queue. Frames of a packet follow each other.
pub struct Parcel {
    /// The frame, of the sender's UMEM.
    pub frame: Frame,
    /// Port it leaves.
    pub out: PortId,
    /// Where the packet came from.
    pub origin: Origin,
}

/// Both directions between one sender and one owner: one producer and one consumer each.
pub struct Lane {
    parcels: ArrayQueue<Parcel>,
    returns: ArrayQueue<Frame>,
    waker: Arc<Waker>,
}

/// The sender's end.
pub struct Outbox {
    lane: Arc<Lane>,
    /// Frames that are not back yet.
    lent: usize,
    /// Frames that came back since the start; they come in the order they went.
    returned: u64,
    dirty: bool,
}

/// The owner's end.
pub struct Inbox {
    lane: Arc<Lane>,
    /// The sender's UMEM.
    pub umem: Umem,
}

/// Makes a lane for `capacity` frames from the worker of `sender_umem` to the worker that `waker` wakes.
#[must_use]
pub fn lane(capacity: usize, sender_umem: Umem, waker: Arc<Waker>) -> (Outbox, Inbox) {
    let lane = Arc::new(Lane {
        parcels: ArrayQueue::new(capacity.max(1)),
        returns: ArrayQueue::new(capacity.max(1)),
        waker,
    });
    (
        Outbox { lane: Arc::clone(&lane), lent: 0, returned: 0, dirty: false },
        Inbox { lane, umem: sender_umem },
    )
}

impl Outbox {
    /// How many more frames can be lent. Frames in `returns` count as lent, so a return never finds it full.
    #[must_use]
    pub fn free(&self) -> usize {
        self.lane.parcels.capacity() - self.lent
    }

    /// Lends a frame; call only when [`free`](Self::free) says there is room. Gives it back otherwise.
    pub fn push(&mut self, parcel: Parcel) -> Result<(), Parcel> {
        self.lane.parcels.push(parcel)?;
        self.lent += 1;
        self.dirty = true;
        Ok(())
    }

    /// Takes a frame back that the owner has copied.
    pub fn take_back(&mut self) -> Option<Frame> {
        let frame = self.lane.returns.pop()?;
        self.lent -= 1;
        self.returned += 1;
        Some(frame)
    }

    /// Wakes the owner if it sleeps and got something in this round.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.lane.waker.wake();
        }
    }

    /// Frames that are not back yet.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Frames lent since the start.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.returned + self.lent as u64
    }

    /// Whether the owner has taken the first `given` frames.
    #[must_use]
    pub fn has_returned(&self, given: u64) -> bool {
        self.returned >= given
    }
}

impl Inbox {
    /// The next lent frame.
    #[must_use]
    pub fn pop(&self) -> Option<Parcel> {
        self.lane.parcels.pop()
    }

    /// Gives a frame back to its worker.
    pub fn give_back(&self, frame: Frame) {
        let returned = self.lane.returns.push(frame);
        debug_assert!(returned.is_ok(), "the sender lends no more frames than the return queue holds");
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lane.parcels.is_empty()
    }
}

/// Wakes a sleeping worker: an eventfd that is written only while the worker says that it sleeps.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Waker {
    /// A waker of a worker that is awake.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn new() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the worker if it sleeps or is about to.
    pub fn wake(&self) {
        // Orders what the caller published before the look at `asleep`; `doze` does the reverse.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // A full eventfd is readable, which is all that is wanted.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Says that the worker is about to sleep. The worker looks once more for work after this, then polls.
    pub fn doze(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the worker is awake.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
