//! The memory that packets live in, and the record of who owns each chunk.
//!
//! A chunk is either the user's (then at most one [`Frame`] exists for it) or lent to one ring direction of one socket.
//! The record makes that hold whatever descriptors come back: one that names a chunk which was not lent is refused.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mmap::{HUGE_PAGE, Mapping};
use super::seat::{Owner, Seats};
use super::{Frame, KERNEL_HEADROOM, Pool, XskError};

/// Whether the UMEM lies on 2 MiB huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages when there are enough free ones, else normal pages; the log says which.
    #[default]
    Auto,
    /// Huge pages or an error.
    Require,
    /// Normal pages.
    Off,
}

/// Shape of a UMEM.
#[derive(Clone, Copy, Debug)]
pub struct UmemConfig {
    /// Bytes of a chunk: 2048 or 4096.
    pub chunk_size: u32,
    /// Number of chunks.
    pub chunks: u32,
    /// Bytes kept free in front of a received packet, on top of the kernel's own 256.
    pub headroom: u32,
    /// Page size.
    pub huge_pages: HugePages,
}

/// The packet memory of a worker. Cheap to clone; every clone and socket keeps it mapped.
///
/// Bytes are reached through a [`Frame`], which is unique for its chunk: slices never alias, in one thread or several.
#[derive(Clone)]
pub struct Umem(Arc<Shared>);

struct Shared {
    id: u32,
    memory: Mapping,
    chunk_size: u16,
    shift: u32,
    headroom: u32,
    huge: bool,
    /// One [`Owner`] a chunk. A slot is written by the holder of the frame or, while lent, by the socket it is lent to;
    /// relaxed order is enough, as frames change hands by moves and rings, which order memory themselves.
    owners: Box<[AtomicU16]>,
    seats: Mutex<Seats>,
}

impl Umem {
    /// Maps the memory, and makes the pool that holds all its frames. Call it on the thread that will use it: pages
    /// come from that CPU's NUMA node.
    ///
    /// # Errors
    /// A shape that the kernel would refuse, or no memory; see [`XskError`].
    pub fn new(cfg: UmemConfig) -> Result<(Self, Pool), XskError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let chunk_size: u16 = match cfg.chunk_size {
            2048 => 2048,
            4096 => 4096,
            other => return Err(XskError::ChunkSize(other)),
        };
        if cfg.chunks == 0 || cfg.chunks > 1 << 24 {
            return Err(XskError::ChunkCount(cfg.chunks));
        }
        if cfg.headroom >= cfg.chunk_size - KERNEL_HEADROOM {
            return Err(XskError::Headroom { headroom: cfg.headroom, chunk_size: cfg.chunk_size });
        }
        let (memory, huge) = allocate(cfg.chunks as usize * cfg.chunk_size as usize, cfg.huge_pages)?;
        let umem = Self(Arc::new(Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            memory,
            chunk_size,
            shift: cfg.chunk_size.trailing_zeros(),
            headroom: cfg.headroom,
            huge,
            owners: (0..cfg.chunks).map(|_| AtomicU16::new(Owner::USER.bits())).collect(),
            seats: Mutex::default(),
        }));
        let pool = Pool::full(umem.0.id, cfg.chunks, chunk_size, umem.default_start());
        Ok((umem, pool))
    }

    /// The frame's whole chunk: headroom, packet, tailroom. Empty for a frame of another UMEM.
    #[inline]
    pub fn chunk_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        if frame.umem() != self.0.id {
            return &mut [];
        }
        // SAFETY: the frame is of this UMEM, so its chunk lies in the mapping, which `self` keeps for 'a. The frame is
        // the only one for its chunk, the kernel does not own the chunk while the frame exists, and it is borrowed
        // mutably for 'a, so nothing else reads or writes these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.chunk_ptr(frame), usize::from(self.0.chunk_size)) }
    }

    /// The frame's packet bytes. Empty for a frame of another UMEM.
    #[inline]
    pub fn data<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        if frame.umem() != self.0.id {
            return &[];
        }
        // SAFETY: as in `chunk_mut`, with the frame borrowed shared, which excludes `chunk_mut` for 'a; `start + len`
        // is at most the chunk size by the frame's invariant.
        unsafe { std::slice::from_raw_parts(self.chunk_ptr(frame).add(frame.start()), frame.len()) }
    }

    /// The frame's packet bytes, to be changed. Empty for a frame of another UMEM.
    #[inline]
    pub fn data_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let range = frame.start()..frame.start() + frame.len();
        self.chunk_mut(frame).get_mut(range).unwrap_or_default()
    }

    #[inline]
    fn chunk_ptr(&self, frame: &Frame) -> *mut u8 {
        // Cannot wrap: `new` computed the same product for the number of chunks.
        let offset = (frame.chunk() as usize) << self.0.shift;
        self.0.memory.base().as_ptr().wrapping_add(offset)
    }

    /// Whether the memory lies on huge pages.
    #[must_use]
    pub fn huge(&self) -> bool {
        self.0.huge
    }

    /// Bytes of a chunk.
    #[inline]
    #[must_use]
    pub fn chunk_size(&self) -> usize {
        usize::from(self.0.chunk_size)
    }

    /// Number of chunks, which is the number of frames.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.0.owners.len()
    }

    /// Where the packet begins in a frame we originate: where the kernel puts received ones, so that both have the same
    /// headroom.
    #[inline]
    #[must_use]
    pub fn default_start(&self) -> usize {
        (KERNEL_HEADROOM + self.0.headroom) as usize
    }

    /// Takes back into the pool the frames that were in the rings of sockets which have been dropped, and says how
    /// many. Those of zero-copy sockets come back a second after the drop, as the device may still write into them.
    pub fn reclaim(&self, pool: &mut Pool) -> usize {
        if pool.umem() != self.0.id {
            return 0;
        }
        let before = pool.len();
        let vacated = self.seats().vacate();
        if vacated.is_empty() {
            return 0;
        }
        for (chunk, slot) in (0..).zip(self.0.owners.iter()) {
            let owner = slot.load(Ordering::Relaxed);
            if owner != Owner::USER.bits() && vacated.contains(&Owner::seat_of(owner)) {
                slot.store(Owner::USER.bits(), Ordering::Relaxed);
                pool.push(self.frame(chunk, 0, 0, false));
            }
        }
        pool.len() - before
    }

    // What follows is for sockets and the in-memory kernel.

    /// Makes the token for a chunk that [`take_back`](Self::take_back) or `reclaim` just made the user's.
    #[inline(always)]
    fn frame(&self, chunk: u32, start: usize, len: usize, more: bool) -> Frame {
        Frame::new(self.0.id, chunk, self.0.chunk_size, start, len, more)
    }

    /// Whether the frame is of this UMEM.
    #[inline(always)]
    pub(super) fn owns(&self, frame: &Frame) -> bool {
        frame.umem() == self.0.id
    }

    /// Spends the frame: its chunk is `to`'s until it is taken back. Returns the chunk's address in the UMEM.
    #[inline(always)]
    pub(super) fn lend(&self, frame: Frame, to: Owner) -> u64 {
        if let Some(slot) = self.0.owners.get(frame.chunk() as usize) {
            slot.store(to.bits(), Ordering::Relaxed);
        }
        u64::from(frame.chunk()) << self.0.shift
    }

    /// The frame for the descriptor that came back from a ring, or `None` if it does not lie in one chunk or its chunk
    /// was not lent `from` there.
    #[inline(always)]
    pub(super) fn take_back(&self, addr: u64, len: u32, more: bool, from: Owner) -> Option<Frame> {
        let size = u64::from(self.0.chunk_size);
        let start = addr & (size - 1);
        let chunk = u32::try_from(addr >> self.0.shift).ok()?;
        let slot = self.0.owners.get(chunk as usize)?;
        if slot.load(Ordering::Relaxed) != from.bits() || start + u64::from(len) > size {
            return None;
        }
        slot.store(Owner::USER.bits(), Ordering::Relaxed);
        Some(self.frame(chunk, usize::try_from(start).ok()?, len as usize, more))
    }

    /// For the in-memory kernel: a frame for a chunk that is lent to it. The caller must be the only one that plays
    /// the kernel for `owner`, and drop the frame before the chunk goes back.
    pub(super) fn lent_frame(&self, addr: u64, len: u32, owner: Owner) -> Option<Frame> {
        let frame = self.take_back(addr, len, false, owner)?;
        self.0.owners.get(frame.chunk() as usize)?.store(owner.bits(), Ordering::Relaxed);
        Some(frame)
    }

    /// Address and length to register with the kernel.
    pub(super) fn region(&self) -> (u64, u64) {
        let len = (self.chunks() as u64) << self.0.shift;
        (self.0.memory.base().as_ptr().expose_provenance() as u64, len)
    }

    /// Configured headroom.
    pub(super) fn headroom(&self) -> u32 {
        self.0.headroom
    }

    pub(super) fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("id", &self.0.id)
            .field("chunks", &self.chunks())
            .field("chunk_size", &self.0.chunk_size)
            .field("huge", &self.0.huge)
            .finish_non_exhaustive()
    }
}

fn allocate(bytes: usize, huge_pages: HugePages) -> Result<(Mapping, bool), XskError> {
    if huge_pages != HugePages::Off {
        match Mapping::huge(bytes) {
            Ok(mapping) => {
                tracing::info!(bytes = mapping.len(), "UMEM on 2 MiB huge pages");
                return Ok((mapping, true));
            }
            Err(source) if huge_pages == HugePages::Require => {
                return Err(XskError::HugePages { bytes, pages: bytes.div_ceil(HUGE_PAGE), source });
            }
            Err(error) => tracing::info!(bytes, %error, "UMEM on normal pages: no free huge pages"),
        }
    }
    Mapping::anonymous(bytes)
        .map(|mapping| (mapping, false))
        .map_err(|source| XskError::Memory { bytes, source })
}

#[cfg(test)]
mod tests {
    use super::super::seat::Seat;
    use super::*;

    fn umem(chunks: u32) -> (Umem, Pool) {
        Umem::new(UmemConfig { chunk_size: 2048, chunks, headroom: 64, huge_pages: HugePages::Off }).unwrap()
    }

    #[test]
    fn frames_cover_the_memory_without_overlap() {
        let (umem, mut pool) = umem(5);
        let mut frames: Vec<_> = std::iter::from_fn(|| pool.pop()).collect();
        assert_eq!((frames.len(), pool.len(), pool.is_empty()), (5, 0, true));
        for (value, frame) in (1..).zip(&mut frames) {
            assert_eq!((frame.start(), frame.len()), (umem.default_start(), 0));
            umem.chunk_mut(frame).fill(value);
            frame.set_range(10, 2000);
        }
        for (value, frame) in (1..).zip(&frames) {
            assert_eq!(umem.data(frame), [value; 2000]);
        }
        frames.into_iter().for_each(|frame| pool.push(frame));
        assert_eq!(pool.pop().unwrap().len(), 0, "push resets the range");
    }

    #[test]
    fn a_frame_of_another_umem_reaches_no_bytes() {
        let (first, mut pool) = umem(2);
        let (second, mut other) = umem(2);
        let mut frame = pool.pop().unwrap();
        frame.set_range(0, 100);
        assert!(second.chunk_mut(&mut frame).is_empty());
        assert!(second.data(&frame).is_empty() && second.data_mut(&mut frame).is_empty());
        assert_eq!(first.data(&frame).len(), 100);
        other.push(frame);
        assert_eq!(other.len(), 2, "refused");
        assert_eq!(second.reclaim(&mut pool), 0);
    }

    #[test]
    fn only_what_was_lent_comes_back_and_only_once() {
        let (umem, mut pool) = umem(4);
        let seat = Seat::take(&umem).unwrap();
        let addr = umem.lend(pool.pop().unwrap(), seat.rx());
        assert!(umem.take_back(addr, 100, false, seat.tx()).is_none(), "lent to the other ring");
        assert!(umem.take_back(addr + 2048, 100, false, seat.rx()).is_none(), "never lent");
        assert!(umem.take_back(addr + 2000, 49, false, seat.rx()).is_none(), "crosses the chunk's end");
        assert!(umem.take_back(4 * 2048, 1, false, seat.rx()).is_none(), "outside");
        assert!(umem.take_back(u64::MAX, u32::MAX, false, seat.rx()).is_none(), "far outside");
        let frame = umem.take_back(addr + 2000, 48, true, seat.rx()).unwrap();
        assert_eq!((frame.start(), frame.len(), frame.more()), (2000, 48, true));
        assert!(umem.take_back(addr, 1, false, seat.rx()).is_none(), "twice");
    }

    #[test]
    fn frames_of_a_dropped_socket_are_reclaimed_and_its_seat_reused() {
        let (umem, mut pool) = umem(4);
        let (first, mut second) = (Seat::take(&umem).unwrap(), Seat::take(&umem).unwrap());
        let lost = [first.rx(), first.tx(), second.rx()].map(|owner| umem.lend(pool.pop().unwrap(), owner));
        assert_eq!(umem.reclaim(&mut pool), 0, "both sockets live");
        let old = first.rx();
        drop(first);
        assert_ne!(Seat::take(&umem).unwrap().rx(), old, "not before its frames are back");
        assert_eq!(umem.reclaim(&mut pool), 2);
        assert!(umem.take_back(lost[0], 1, false, old).is_none());
        assert_eq!(Seat::take(&umem).unwrap().rx(), old);

        umem.seats().lead(&mut second, 0, true);
        let leader = |zero_copy| umem.seats().leader(zero_copy);
        assert_eq!((leader(true), leader(false)), (Some(0), None));
        second.step_down();
        assert_eq!(umem.seats().leader(true), None);
        drop(second);
        assert_eq!(umem.reclaim(&mut pool), 0, "a zero-copy device may still write");
    }

    #[test]
    fn shapes_the_kernel_refuses_are_named() {
        let cfg = UmemConfig { chunk_size: 2048, chunks: 4, headroom: 0, huge_pages: HugePages::Off };
        let message = |cfg| Umem::new(cfg).err().unwrap().to_string();
        assert!(message(UmemConfig { chunk_size: 8192, ..cfg }).contains("8192"));
        assert!(message(UmemConfig { chunks: 0, ..cfg }).contains("0 chunks"));
        assert!(message(UmemConfig { headroom: 1792, ..cfg }).contains("1792"));
        let huge = UmemConfig { chunks: 1 << 24, chunk_size: 4096, huge_pages: HugePages::Require, ..cfg };
        assert!(message(huge).contains("vm.nr_hugepages by 32768"));
    }
}
