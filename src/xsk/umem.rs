//! The memory that packets live in, and the ledger of which ring each chunk was last lent to.
//!
//! A chunk is either the user's, and then at most one [`Frame`] exists for it, or lent to the kernel through a ring, and
//! then none does. That rests on one promise of the kernel: what is lent comes back once. Descriptors that break it in
//! another way (outside the UMEM, beyond a chunk, never lent there) are refused with the ledger's help, which also knows
//! what a closed socket took with it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frame::Tag;
use super::mmap::{HUGE_PAGE, Mapping};
use super::ring::Descriptor;
use super::seat::{RingId, Seats};
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
    tag: Tag,
    memory: Mapping,
    headroom: u32,
    huge: bool,
    /// For each chunk the ring it was last lent to. Relaxed order is enough: whoever writes has the chunk's frame, and
    /// frames change hands by moves and rings, which order memory themselves.
    lent: Box<[AtomicU32]>,
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
        if cfg.chunk_size != 2048 && cfg.chunk_size != 4096 {
            return Err(XskError::ChunkSize(cfg.chunk_size));
        }
        if cfg.chunks == 0 || cfg.chunks > 1 << 24 {
            return Err(XskError::ChunkCount(cfg.chunks));
        }
        if cfg.headroom >= cfg.chunk_size - KERNEL_HEADROOM {
            return Err(XskError::Headroom { headroom: cfg.headroom, chunk_size: cfg.chunk_size });
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let tag = Tag::new(id, cfg.chunk_size).ok_or(XskError::TooManyUmems)?;
        let (memory, huge) = allocate(cfg.chunks as usize * cfg.chunk_size as usize, cfg.huge_pages)?;
        let lent = (0..cfg.chunks).map(|_| AtomicU32::default()).collect();
        let umem = Self(Arc::new(Shared {
            tag,
            memory,
            headroom: cfg.headroom,
            huge,
            lent,
            seats: Mutex::default(),
        }));
        let pool = Pool::full(tag, cfg.chunks, umem.default_start() as u64);
        Ok((umem, pool))
    }

    /// The frame's whole chunk: headroom, packet, tailroom. Empty for a frame of another UMEM.
    #[inline]
    pub fn chunk_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        if !frame.is_of(self.0.tag) {
            return &mut [];
        }
        let chunk = self.ptr(frame).wrapping_sub(frame.start());
        // SAFETY: the frame is of this UMEM, so its chunk lies in the mapping, which `self` keeps for 'a. The frame is
        // the only one for its chunk, the kernel does not own the chunk while the frame exists, and it is borrowed
        // mutably for 'a, so nothing else reads or writes these bytes.
        unsafe { std::slice::from_raw_parts_mut(chunk, self.chunk_size()) }
    }

    /// The frame's packet bytes. Empty for a frame of another UMEM.
    #[inline]
    pub fn data<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        if !frame.is_of(self.0.tag) {
            return &[];
        }
        // SAFETY: as in `chunk_mut`, with the frame borrowed shared, which excludes `chunk_mut` for 'a. The packet does
        // not reach beyond the chunk, by the frame's invariant.
        unsafe { std::slice::from_raw_parts(self.ptr(frame), frame.len()) }
    }

    /// The frame's packet bytes, to be changed. Empty for a frame of another UMEM.
    #[inline]
    pub fn data_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        if !frame.is_of(self.0.tag) {
            return &mut [];
        }
        // SAFETY: as in `chunk_mut` and `data`.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(frame), frame.len()) }
    }

    /// Has the CPU fetch the packet's first cache line.
    #[inline]
    pub fn prefetch(&self, frame: &Frame) {
        super::prefetch(self.data(frame).as_ptr());
    }

    /// Of the packet's first byte.
    #[inline(always)]
    fn ptr(&self, frame: &Frame) -> *mut u8 {
        // Addresses are below the mapping's length, a usize.
        self.0.memory.base().as_ptr().wrapping_add(usize::try_from(frame.addr()).unwrap_or_default())
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
        self.0.tag.chunk_size() as usize
    }

    /// Number of chunks, which is the number of frames.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.0.lent.len()
    }

    /// Where the packet begins in a frame we originate: where the kernel puts received ones, so that both have the same
    /// headroom.
    #[inline]
    #[must_use]
    pub fn default_start(&self) -> usize {
        (KERNEL_HEADROOM + self.0.headroom) as usize
    }

    /// Takes back into the pool the frames that were in the rings of sockets which have been dropped, and says how many.
    ///
    /// All of a socket's at once, and only while the caller holds no frame that was received from it, as the ledger
    /// cannot tell those apart; those of a zero-copy socket a second after the drop at the earliest, as the device may
    /// still write into them. So call it now and then until the sum of the frames is whole.
    pub fn reclaim(&self, pool: &mut Pool) -> usize {
        if pool.tag() != self.0.tag {
            return 0;
        }
        let before = pool.len();
        let mut free: Vec<bool> = Vec::new();
        self.seats().vacate(|seat, missing| {
            // Frames go to the pool as chunks, whoever had them; a chunk that is there is not missing.
            free.clear();
            free.resize(self.chunks(), false);
            for chunk in pool.peek(usize::MAX) {
                free.get_mut(self.index(chunk)).into_iter().for_each(|free| *free = true);
            }
            let lent_there =
                |(slot, free): &(&AtomicU32, &bool)| !**free && seat.has(slot.load(Ordering::Relaxed));
            if self.0.lent.iter().zip(&free).filter(lent_there).count() != missing {
                return false;
            }
            for (chunk, pair) in (0_u64..).zip(self.0.lent.iter().zip(&free)) {
                if lent_there(&pair) {
                    pool.push(Frame::empty(self.0.tag, chunk << self.0.tag.shift()));
                }
            }
            true
        });
        pool.len() - before
    }

    fn index(&self, addr: u64) -> usize {
        usize::try_from(addr >> self.0.tag.shift()).unwrap_or(usize::MAX)
    }

    // What follows is for sockets and the in-memory kernel.

    /// Which ring has which chunk.
    #[inline(always)]
    pub(super) fn ledger(&self) -> Ledger<'_> {
        Ledger { lent: &self.0.lent, tag: self.0.tag, shift: self.0.tag.shift() }
    }

    /// Address and length to register with the kernel.
    pub(super) fn region(&self) -> (u64, u64) {
        let len = (self.chunks() as u64) << self.0.tag.shift();
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

/// Which ring each chunk was last lent to. Held by value in a loop, so that its parts stay in registers.
#[derive(Clone, Copy)]
pub(super) struct Ledger<'a> {
    lent: &'a [AtomicU32],
    tag: Tag,
    shift: u32,
}

impl<'a> Ledger<'a> {
    /// UMEM whose chunks it records.
    #[inline(always)]
    pub(super) fn tag(self) -> Tag {
        self.tag
    }

    /// Notes that the chunk at `addr` goes to a ring; false if there is no such chunk. The caller must let go of its
    /// frame.
    #[inline(always)]
    pub(super) fn lend(self, addr: u64, to: RingId) -> bool {
        let Some(slot) = self.slot(addr) else { return false };
        slot.store(to.bits(), Ordering::Relaxed);
        true
    }

    /// The frame for a descriptor that came back from a ring, or `None` if that does not lie in one chunk, or the chunk
    /// was not lent there. The caller must have found the descriptor in the kernel's ring, once.
    #[inline(always)]
    pub(super) fn take_back(self, descriptor: &Descriptor, from: RingId) -> Option<Frame> {
        if self.slot(descriptor.addr)?.load(Ordering::Relaxed) != from.bits() {
            return None;
        }
        Frame::from_descriptor(self.tag, descriptor)
    }

    /// As [`take_back`](Self::take_back), for the address of a packet that is done with.
    #[inline(always)]
    pub(super) fn take_back_chunk(self, addr: u64, from: RingId) -> Option<Frame> {
        if self.slot(addr)?.load(Ordering::Relaxed) != from.bits() {
            return None;
        }
        Some(Frame::empty(self.tag, addr))
    }

    #[inline(always)]
    fn slot(self, addr: u64) -> Option<&'a AtomicU32> {
        self.lent.get(usize::try_from(addr >> self.shift).ok()?)
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("tag", &self.0.tag)
            .field("chunks", &self.chunks())
            .field("chunk_size", &self.chunk_size())
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

    fn lend(umem: &Umem, pool: &mut Pool, ring: RingId) -> u64 {
        let frame = pool.pop().unwrap();
        umem.ledger().lend(frame.addr(), ring);
        frame.addr() - umem.default_start() as u64
    }

    fn take_back(umem: &Umem, addr: u64, len: u32, ring: RingId) -> Option<Frame> {
        umem.ledger().take_back(&Descriptor::new(addr, len, libc::XDP_PKT_CONTD), ring)
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
    fn only_what_was_lent_to_a_ring_comes_back_from_it() {
        let (umem, mut pool) = umem(4);
        let seat = Seat::take(&umem).unwrap();
        let addr = lend(&umem, &mut pool, seat.rx());
        assert!(take_back(&umem, addr, 100, seat.tx()).is_none(), "lent to the other ring");
        assert!(take_back(&umem, addr + 2048, 100, seat.rx()).is_none(), "never lent");
        assert!(take_back(&umem, addr + 2000, 49, seat.rx()).is_none(), "crosses the chunk's end");
        assert!(take_back(&umem, 4 * 2048, 1, seat.rx()).is_none(), "outside");
        assert!(take_back(&umem, u64::MAX, u32::MAX, seat.rx()).is_none(), "far outside");
        let frame = take_back(&umem, addr + 2000, 48, seat.rx()).unwrap();
        assert_eq!((frame.start(), frame.len(), frame.more()), (2000, 48, true));
    }

    #[test]
    fn frames_of_a_dropped_socket_are_reclaimed_when_none_is_held() {
        let (umem, mut pool) = umem(6);
        let (first, second) = (Seat::take(&umem).unwrap(), Seat::take(&umem).unwrap());
        let rings = [first.rx(), first.rx(), first.rx(), first.tx(), second.rx()];
        let lent = rings.map(|ring| lend(&umem, &mut pool, ring));
        let received = take_back(&umem, lent[0], 60, first.rx()).unwrap();
        let forwarded = take_back(&umem, lent[1], 60, first.rx()).unwrap();
        assert_eq!(umem.reclaim(&mut pool), 0, "both sockets live");
        first.miss(2);
        let ring = first.rx();
        drop(first);
        assert_eq!(umem.reclaim(&mut pool), 0, "which of the four are missing?");
        pool.push(received);
        assert_eq!(umem.reclaim(&mut pool), 0, "or of the three?");
        umem.ledger().lend(forwarded.addr(), second.tx());
        assert_eq!((umem.reclaim(&mut pool), pool.len()), (2, 4));
        assert_ne!(Seat::take(&umem).unwrap().rx(), ring, "the seat is not used again");
    }

    #[test]
    fn frames_of_a_zero_copy_socket_wait_for_the_device() {
        let (umem, mut pool) = umem(2);
        let mut seat = Seat::take(&umem).unwrap();
        umem.seats().lead(&mut seat, 0, true);
        assert_eq!(umem.seats().leader(true), Some(0));
        assert_eq!(umem.seats().leader(false), None);
        seat.step_down();
        assert_eq!(umem.seats().leader(true), None);
        lend(&umem, &mut pool, seat.rx());
        seat.miss(1);
        drop(seat);
        assert_eq!(umem.reclaim(&mut pool), 0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert_eq!(umem.reclaim(&mut pool), 1);
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
