//! The move-only token for one UMEM chunk. Only `umem` and `pool` make them; the bytes are reached through `Umem`.

use super::ring::Descriptor;

/// The second word: length in the low half, as in a descriptor.
const LEN: u64 = 0xffff_ffff;
/// The packet continues in the next frame: `XDP_PKT_CONTD`, where a descriptor has it.
const MORE: u64 = 1 << 32;
/// Chunks of 4096 bytes, else 2048. The UMEM's number is above.
const LARGE: u64 = 1 << 33;

/// Exclusive right to one UMEM chunk, and the range of it that holds packet bytes. Not `Clone`.
///
/// Belongs to one [`Umem`](super::Umem): another one gives it empty slices, and sockets and pools of another one refuse
/// it. Dropping a frame loses its chunk until the UMEM goes, so give it back to the pool or to a ring.
///
/// Two words, laid out as a ring's descriptor is: a frame goes from ring to ring by moving two registers.
#[derive(Debug)]
#[must_use = "a dropped frame is a lost chunk: push it back to the pool"]
pub struct Frame {
    /// Of the packet's first byte, in the UMEM; always in the frame's own chunk.
    addr: u64,
    /// Length, which never reaches beyond the chunk; [`MORE`]; and the [`Tag`].
    word: u64,
}

/// UMEM and chunk size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    /// `None` when the number does not fit.
    pub(super) fn new(umem: u32, chunk_size: u32) -> Option<Self> {
        let size = if chunk_size == 4096 { LARGE } else { 0 };
        (umem < 1 << 30).then(|| Self((u64::from(umem) << 34) | size))
    }

    #[inline(always)]
    pub(super) fn chunk_size(self) -> u32 {
        1 << self.shift()
    }

    /// Chunk size as a power of two.
    #[inline(always)]
    pub(super) fn shift(self) -> u32 {
        if self.0 & LARGE == 0 { 11 } else { 12 }
    }

    /// The frame's second word for a descriptor; `None` when that reaches out of its chunk.
    #[inline(always)]
    fn word_for(self, descriptor: &Descriptor) -> Option<u64> {
        let mask = u64::from(self.chunk_size()) - 1;
        // One addition tells the usual case: options of 0, and a length that does not reach the chunk's last byte.
        let (_, reaches) = (descriptor.addr | !mask).overflowing_add(descriptor.word);
        let word = if reaches { unusual(descriptor, mask)? } else { descriptor.word };
        Some(word | self.0)
    }
}

#[cold]
fn unusual(descriptor: &Descriptor, mask: u64) -> Option<u64> {
    let end = (descriptor.addr & mask) + (descriptor.word & LEN);
    (end <= mask + 1).then_some(descriptor.word & (LEN | MORE))
}

impl Frame {
    /// For what a descriptor names; `None` when that reaches out of its chunk.
    ///
    /// Soundness of all UMEM access rests on the callers of the two constructors (`umem`, `pool`): the address is in the
    /// UMEM that `tag` names, at most one frame exists for its chunk, and only while the kernel does not own that.
    #[inline(always)]
    pub(super) fn from_descriptor(tag: Tag, descriptor: &Descriptor) -> Option<Self> {
        Some(Self { addr: descriptor.addr, word: tag.word_for(descriptor)? })
    }

    /// Without packet bytes; see [`from_descriptor`](Self::from_descriptor).
    #[inline(always)]
    pub(super) fn empty(tag: Tag, addr: u64) -> Self {
        Self { addr, word: tag.0 }
    }

    /// Offset of the packet's first byte from the start of the chunk.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        usize::try_from(self.addr & self.mask()).unwrap_or_default()
    }

    /// Packet bytes in this chunk.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.word & LEN).unwrap_or_default()
    }

    /// Whether the frame holds no packet bytes. No ring takes such a frame for transmit.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.word & LEN == 0
    }

    /// Bytes between the packet's end and the end of the chunk.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.tag().chunk_size() as usize - self.start() - self.len()
    }

    /// Sets where the packet lies in the chunk. Clamped to the chunk: compare [`len`](Self::len) where that matters. The
    /// start is at most the chunk's last byte, even for an empty range.
    #[inline]
    pub fn set_range(&mut self, start: usize, len: usize) {
        let last = self.mask();
        let start = u64::try_from(start).map_or(last, |start| start.min(last));
        let room = last + 1 - start;
        let len = u64::try_from(len).map_or(room, |len| len.min(room));
        self.addr = (self.addr & !last) | start;
        self.word = (self.word & !LEN) | len;
    }

    /// Whether the packet continues in the next frame (`XDP_PKT_CONTD`).
    #[inline]
    #[must_use]
    pub fn more(&self) -> bool {
        self.word & MORE != 0
    }

    /// Says whether the packet continues in the next frame.
    #[inline]
    pub fn set_more(&mut self, more: bool) {
        self.word = if more { self.word | MORE } else { self.word & !MORE };
    }

    /// Number of the chunk in its UMEM; identifies the buffer in a log or a test.
    #[inline]
    #[must_use]
    pub fn chunk(&self) -> usize {
        usize::try_from(self.addr >> self.tag().shift()).unwrap_or(usize::MAX)
    }

    /// Address of the packet's first byte in the UMEM.
    #[inline(always)]
    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    /// Address of the chunk in the UMEM.
    #[inline(always)]
    pub(super) fn chunk_addr(&self) -> u64 {
        self.addr & !self.mask()
    }

    /// Whether it is of the UMEM with this tag.
    #[inline(always)]
    pub(super) fn is_of(&self, umem: Tag) -> bool {
        (self.word ^ umem.0) < LARGE
    }

    /// For the TX ring of a socket on UMEM `tag`; `None` when the frame is of another one, or empty, as the kernel would
    /// never complete that.
    #[inline(always)]
    pub(super) fn descriptor(&self, tag: Tag) -> Option<Descriptor> {
        // What is left is length and options. One comparison tells the usual case: 1 to 2^32 - 1.
        let word = self.word ^ tag.0;
        let usual = word.wrapping_sub(1) < LEN;
        if usual || is_continued(word) { Some(Descriptor { addr: self.addr, word }) } else { None }
    }

    #[inline(always)]
    fn tag(&self) -> Tag {
        Tag(self.word & !(LEN | MORE))
    }

    #[inline(always)]
    fn mask(&self) -> u64 {
        u64::from(self.tag().chunk_size()) - 1
    }
}

#[cold]
fn is_continued(word: u64) -> bool {
    word & !LEN == MORE && word & LEN != 0
}

const _: () = assert!(MORE == (libc::XDP_PKT_CONTD as u64) << 32);
const _: () = assert!(size_of::<Frame>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_never_leaves_the_chunk() {
        let tag = Tag::new(1, 2048).unwrap();
        let mut frame = Frame::from_descriptor(tag, &Descriptor::new(5 * 2048 + 256, 100, 1)).unwrap();
        assert_eq!((frame.chunk(), frame.start(), frame.len(), frame.more()), (5, 256, 100, true));
        for (start, len, expected) in [
            (0, 2048, (0, 2048)),
            (2000, 100, (2000, 48)),
            (2047, 1, (2047, 1)),
            (2048, 0, (2047, 0)),
            (5000, 7, (2047, 1)),
            (100, 1 << 20, (100, 1948)),
            (1 << 40, 1 << 40, (2047, 1)),
        ] {
            frame.set_range(start, len);
            assert_eq!((frame.start(), frame.len()), expected, "set_range({start}, {len})");
            assert_eq!(frame.start() + frame.len() + frame.tailroom(), 2048);
            assert_eq!(frame.chunk(), 5);
        }
    }

    #[test]
    fn a_descriptor_that_leaves_its_chunk_makes_no_frame() {
        let tag = Tag::new(1, 2048).unwrap();
        let make = |addr, len, options| Frame::from_descriptor(tag, &Descriptor::new(addr, len, options));
        for options in [0, 1] {
            let frame = make(2048 + 2000, 48, options).unwrap();
            assert_eq!((frame.chunk(), frame.start(), frame.len()), (1, 2000, 48));
            assert_eq!(frame.more(), options == 1);
            assert!(make(2048 + 2000, 49, options).is_none());
            assert!(make(0, u32::MAX, options).is_none());
        }
        for len in [60, 2048] {
            let frame = make(0, len, u32::MAX).unwrap();
            assert_eq!(frame.descriptor(tag), Some(Descriptor::new(0, len, 1)), "other options are dropped");
        }
    }

    #[test]
    fn an_empty_frame_has_no_descriptor() {
        let tag = Tag::new(1, 2048).unwrap();
        let mut frame = Frame::empty(tag, 4096);
        assert_eq!(frame.descriptor(tag), None);
        frame.set_more(true);
        assert_eq!(frame.descriptor(tag), None);
        frame.set_range(1, 1);
        assert_eq!(frame.descriptor(tag), Some(Descriptor::new(4097, 1, 1)));
    }

    #[test]
    fn a_tag_keeps_umem_size_and_continuation_apart() {
        let tags =
            [(1, 2048), (1, 4096), (2, 2048), (2, 4096)].map(|(umem, size)| Tag::new(umem, size).unwrap());
        for (index, tag) in tags.iter().enumerate() {
            let mut frame = Frame::from_descriptor(*tag, &Descriptor::new(0, 1, 0)).unwrap();
            for more in [true, false] {
                frame.set_more(more);
                assert_eq!(frame.more(), more);
                for (other, of) in tags.iter().enumerate() {
                    let descriptor = (other == index).then_some(Descriptor::new(0, 1, u32::from(more)));
                    assert_eq!((frame.is_of(*of), frame.descriptor(*of)), (other == index, descriptor));
                }
            }
        }
        assert_eq!(tags.map(Tag::chunk_size), [2048, 4096, 2048, 4096]);
        assert!(Tag::new(1 << 30, 2048).is_none());
    }
}
