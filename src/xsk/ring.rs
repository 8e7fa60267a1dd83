//! Single-producer, single-consumer rings in memory shared with the kernel. Both roles are here, as `testing` plays the
//! kernel's side with the very same code.
//!
//! Each side owns one free-running index and publishes it with a release store after it touched the slots; the other
//! side reads it with an acquire load before it touches them. Both keep the last value seen, so that a batch costs one
//! look at the other side's cache line.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::xdp_ring_offset;

use super::mmap::Mapping;

/// What a slot holds: `u64` (a chunk address) in fill and completion rings, [`Descriptor`] in RX and TX rings. Any bits
/// are valid in both, so whatever the other side wrote may be read.
pub(super) trait Slot: Copy {}
impl Slot for u64 {}
impl Slot for Descriptor {}

/// A slot of an RX or TX ring (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Of the packet's first byte, in the UMEM.
    pub(super) addr: u64,
    /// Length in the low half, options in the high one: read and written at once.
    pub(super) word: u64,
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "descriptors are two words, the first half of the second its length"
);
const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());
const _: () = assert!(offset_of!(libc::xdp_desc, len) == 8 && offset_of!(libc::xdp_desc, options) == 12);

impl Descriptor {
    #[inline(always)]
    pub(super) fn new(addr: u64, len: u32, options: u32) -> Self {
        Self { addr, word: (u64::from(options) << 32) | u64::from(len) }
    }
}

/// Bytes to map for a ring.
pub(super) fn mapped_len<T: Slot>(offsets: &xdp_ring_offset, size: u32) -> Option<usize> {
    let slots = (size as usize).checked_mul(size_of::<T>())?;
    usize::try_from(offsets.desc).ok()?.checked_add(slots)
}

struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    size: u32,
    /// Keeps the memory behind the pointers mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping, which lives as long as the ring and belongs to no thread; indices are
// atomics, and slots are touched through `&mut` of the one `Producer` and the one `Consumer`, ordered by the indices.
unsafe impl<T: Slot> Send for Ring<T> {}

impl<T: Slot> Ring<T> {
    /// `None` when the offsets or the size do not fit the mapping.
    fn new(mapping: &Arc<Mapping>, offsets: &xdp_ring_offset, size: u32) -> Option<Self> {
        if !size.is_power_of_two() || mapped_len::<T>(offsets, size)? > mapping.len() {
            return None;
        }
        Some(Self {
            producer: part(mapping, offsets.producer)?,
            consumer: part(mapping, offsets.consumer)?,
            flags: part(mapping, offsets.flags)?,
            slots: part(mapping, offsets.desc)?,
            size,
            _mapping: Arc::clone(mapping),
        })
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `part` checked range and alignment, `_mapping` keeps the memory, and all sides use it atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the size is a power of two, so the masked index is below it, and `new` checked that as many slots lie
        // in the mapping.
        unsafe { self.slots.add((index & (self.size - 1)) as usize) }
    }

    /// The `count` slots from `index` on, as two runs, the second one after the wrap. `count` is at most the size.
    #[inline(always)]
    fn runs(&self, index: u32, count: u32) -> [(NonNull<T>, usize); 2] {
        let until_wrap = count.min(self.size - (index & (self.size - 1)));
        [(self.slot(index), until_wrap as usize), (self.slots, (count - until_wrap) as usize)]
    }
}

/// The place at `offset`, if it lies in the mapping and is aligned.
fn part<P>(mapping: &Mapping, offset: u64) -> Option<NonNull<P>> {
    let offset = usize::try_from(offset).ok()?;
    let end = offset.checked_add(size_of::<P>())?;
    if end > mapping.len() || !offset.is_multiple_of(align_of::<P>()) {
        return None;
    }
    // SAFETY: in bounds of the mapping, as just checked. The base is page-aligned, hence the result is aligned.
    Some(unsafe { mapping.base().add(offset) }.cast())
}

/// The side that writes slots.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Next slot to write.
    next: u32,
    /// Where the slots end that are known to be free: never more than the size ahead of `next`.
    end: u32,
    /// Up to where the other side may read.
    published: u32,
}

impl<T: Slot> Producer<T> {
    /// `None` when the offsets or the size do not fit the mapping. There must be no other producer on this memory.
    pub(super) fn new(mapping: &Arc<Mapping>, offsets: &xdp_ring_offset, size: u32) -> Option<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let next = ring.producer().load(Ordering::Relaxed);
        Some(Self { ring, next, end: next, published: next })
    }

    /// Free slots; looks at the consumer index only if fewer than `want` are known.
    #[inline(always)]
    pub(super) fn free(&mut self, want: u32) -> u32 {
        if self.known_free() < want {
            let used = self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire));
            // Saturates, so that a consumer index gone mad makes the ring full instead of endless.
            self.end = self.next.wrapping_add(self.ring.size.saturating_sub(used));
        }
        self.known_free()
    }

    #[inline(always)]
    fn known_free(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }

    /// Writes the next slot; false when the ring is full. Nothing is visible before [`publish`](Self::publish).
    #[inline(always)]
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        // SAFETY: as for `room`.
        unsafe { self.ring.slot(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// The next free slots, at most `count` and at most what [`free`](Self::free) saw, to be written in order.
    #[inline(always)]
    pub(super) fn room(&mut self, count: u32) -> [&mut [T]; 2] {
        let runs = self.ring.runs(self.next, count.min(self.known_free()));
        // SAFETY: in bounds of the mapping, without overlap as the count is at most the size, and initialised, as any
        // bits are a valid `T`. Free: the consumer has released them (acquire load in `free`) and will not read them
        // before the next release store of the producer index; and `self`, the one producer, is borrowed for as long.
        runs.map(|(start, len)| unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Counts slots written into the [`room`](Self::room) as pushed.
    #[inline(always)]
    pub(super) fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count.min(self.known_free()));
    }

    /// Slots ever pushed, modulo 2^32.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.next
    }

    /// Lets the other side see everything pushed.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.published = self.next;
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the other side has taken everything published.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.ring.consumer().load(Ordering::Acquire) == self.published
    }

    /// Whether the kernel sleeps on this ring (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Acquire) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side that reads slots.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Next slot to read.
    next: u32,
    /// Where the slots end that are known to be filled: never more than the size ahead of `next`.
    end: u32,
}

impl<T: Slot> Consumer<T> {
    /// `None` when the offsets or the size do not fit the mapping. There must be no other consumer on this memory.
    pub(super) fn new(mapping: &Arc<Mapping>, offsets: &xdp_ring_offset, size: u32) -> Option<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Some(Self { ring, next, end: next })
    }

    /// Filled slots, at most `want`; looks at the producer index only if fewer are known.
    #[inline(always)]
    pub(super) fn available(&mut self, want: u32) -> u32 {
        if self.known() < want {
            let filled = self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.next);
            // At most the size, so that a producer index gone mad cannot make a batch endless.
            self.end = self.next.wrapping_add(filled.min(self.ring.size));
        }
        self.known().min(want)
    }

    #[inline(always)]
    fn known(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }

    /// The next filled slots, at most `count` and at most what [`available`](Self::available) saw, in order.
    #[inline(always)]
    pub(super) fn peek(&self, count: u32) -> [&[T]; 2] {
        let runs = self.ring.runs(self.next, count.min(self.known()));
        // SAFETY: in bounds of the mapping. Filled: the producer published them (acquire load in `available`) and will
        // not write them before the next release store of the consumer index, which takes `&mut self`. Any bits are a
        // valid `T`.
        runs.map(|(start, len)| unsafe { slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Pops slots that were peeked.
    #[inline(always)]
    pub(super) fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count.min(self.known()));
    }

    /// Reads and pops the next slot.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let value = *self.peek(1).into_iter().flatten().next()?;
        self.advance(1);
        Some(value)
    }

    /// Slots ever popped, modulo 2^32.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.next
    }

    /// Gives the slots popped back to the producer.
    #[inline(always)]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }

    /// Tells the producer whether this side sleeps.
    pub(super) fn set_needs_wakeup(&self, needed: bool) {
        let flag = if needed { libc::XDP_RING_NEED_WAKEUP } else { 0 };
        self.ring.flags().store(flag, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: xdp_ring_offset = xdp_ring_offset { producer: 0, consumer: 128, flags: 196, desc: 320 };

    fn pair(size: u32) -> (Producer<u64>, Consumer<u64>, Arc<Mapping>) {
        let mapping = Arc::new(Mapping::anonymous(8192).unwrap());
        let producer = Producer::new(&mapping, &OFFSETS, size).unwrap();
        (producer, Consumer::new(&mapping, &OFFSETS, size).unwrap(), mapping)
    }

    #[test]
    fn values_arrive_in_order_across_many_wraps() {
        let (mut producer, mut consumer, _) = pair(8);
        let (mut sent, mut got) = (0_u64, 0_u64);
        while got < 1000 {
            while producer.push(sent) {
                sent += 1;
            }
            producer.publish();
            for _ in 0..consumer.available(5) {
                assert_eq!(consumer.pop(), Some(got));
                got += 1;
            }
            consumer.release();
        }
        assert_eq!(sent - got, 3, "the ring holds what was not read");
    }

    #[test]
    fn indices_wrap_at_the_end_of_u32() {
        let (producer, _, mapping) = pair(4);
        producer.ring.producer().store(u32::MAX - 1, Ordering::Relaxed);
        producer.ring.consumer().store(u32::MAX - 1, Ordering::Relaxed);
        let mut producer = Producer::<u64>::new(&mapping, &OFFSETS, 4).unwrap();
        let mut consumer = Consumer::<u64>::new(&mapping, &OFFSETS, 4).unwrap();
        for value in 0..4 {
            assert!(producer.push(value));
        }
        assert!(!producer.push(4), "full");
        producer.publish();
        assert_eq!(consumer.available(9), 4);
        assert_eq!((0..4).map(|_| consumer.pop().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn nothing_is_visible_before_publish_nor_free_before_release() {
        let (mut producer, mut consumer, _) = pair(2);
        assert!(producer.push(7) && producer.push(8));
        assert_eq!(consumer.available(2), 0);
        assert!(producer.is_drained(), "nothing published, nothing to take");
        producer.publish();
        assert!(!producer.is_drained());
        assert_eq!(consumer.available(2), 2);
        assert_eq!(consumer.pop(), Some(7));
        assert_eq!(producer.free(1), 0);
        consumer.release();
        assert_eq!(producer.free(1), 1);
    }

    #[test]
    fn an_index_gone_mad_makes_neither_side_endless() {
        let (mut producer, mut consumer, _) = pair(4);
        consumer.ring.producer().store(1000, Ordering::Relaxed);
        assert_eq!(consumer.available(64), 4);
        producer.ring.consumer().store(77, Ordering::Relaxed);
        assert_eq!(producer.free(5), 0);
        assert!(!producer.push(1));
    }

    #[test]
    fn a_layout_beyond_the_mapping_is_refused() {
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let bad = |producer, desc| xdp_ring_offset { producer, desc, ..OFFSETS };
        assert!(Producer::<u64>::new(&mapping, &OFFSETS, 512).is_none(), "4096 + 320 bytes");
        assert!(Producer::<u64>::new(&mapping, &OFFSETS, 3).is_none(), "no power of two");
        assert!(Producer::<u64>::new(&mapping, &bad(4094, 320), 4).is_none(), "index outside");
        assert!(Producer::<u64>::new(&mapping, &bad(2, 320), 4).is_none(), "index misaligned");
        assert!(Producer::<u64>::new(&mapping, &bad(0, u64::MAX), 4).is_none(), "slots outside");
    }
}
