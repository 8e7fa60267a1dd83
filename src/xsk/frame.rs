//! The move-only token for one UMEM chunk. Only `umem` makes one; every access to the bytes goes through `Umem`.

/// Exclusive right to one UMEM chunk, and the range of it that holds packet bytes. Not `Clone`.
///
/// Belongs to one [`Umem`](super::Umem): another one gives it empty slices, and sockets and pools of another one refuse
/// it. Dropping a frame loses its chunk until the UMEM goes, so give it back to the pool or to a ring.
#[derive(Debug)]
#[must_use = "a dropped frame is a lost chunk: push it back to the pool"]
pub struct Frame {
    chunk: u32,
    umem: u32,
    start: u16,
    len: u16,
    /// Chunk size; `start + len <= size` always holds.
    size: u16,
    more: bool,
}

impl Frame {
    /// The one constructor. Soundness of all UMEM access rests on its callers (`umem`): at most one frame exists for a
    /// chunk, only while the kernel does not own it, and `size` is the chunk size of UMEM `umem`.
    #[inline]
    pub(super) fn new(umem: u32, chunk: u32, size: u16, start: usize, len: usize, more: bool) -> Self {
        let mut frame = Self { chunk, umem, start: 0, len: 0, size, more };
        frame.set_range(start, len);
        frame
    }

    /// Offset of the packet's first byte from the start of the chunk.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        usize::from(self.start)
    }

    /// Packet bytes in this chunk.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame holds no packet bytes. No ring takes such a frame for transmit.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes between the packet's end and the end of the chunk.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        usize::from(self.size.saturating_sub(self.start).saturating_sub(self.len))
    }

    /// Sets where the packet lies in the chunk, clamped to the chunk: compare [`len`](Self::len) when it matters.
    #[inline]
    pub fn set_range(&mut self, start: usize, len: usize) {
        self.start = clamp(start, self.size);
        self.len = clamp(len, self.size - self.start);
    }

    /// Whether the packet continues in the next frame (`XDP_PKT_CONTD`).
    #[inline]
    #[must_use]
    pub fn more(&self) -> bool {
        self.more
    }

    /// Says whether the packet continues in the next frame.
    #[inline]
    pub fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Number of the chunk in its UMEM; identifies the buffer in a log or a test.
    #[inline]
    #[must_use]
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Id of the UMEM it belongs to.
    #[inline]
    pub(super) fn umem(&self) -> u32 {
        self.umem
    }
}

#[inline]
fn clamp(value: usize, max: u16) -> u16 {
    u16::try_from(value).map_or(max, |value| value.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_never_leaves_the_chunk() {
        let mut frame = Frame::new(1, 0, 2048, 256, 100, false);
        for (start, len, expected) in [
            (0, 2048, (0, 2048)),
            (2000, 100, (2000, 48)),
            (2048, 1, (2048, 0)),
            (5000, 7, (2048, 0)),
            (100, 1 << 20, (100, 1948)),
            (1 << 40, 1 << 40, (2048, 0)),
        ] {
            frame.set_range(start, len);
            assert_eq!((frame.start(), frame.len()), expected, "set_range({start}, {len})");
            assert_eq!(frame.start() + frame.len() + frame.tailroom(), 2048);
        }
    }

    #[test]
    fn a_frame_is_sixteen_bytes() {
        assert_eq!(std::mem::size_of::<Frame>(), 16);
        assert_eq!(std::mem::size_of::<Option<Frame>>(), 16);
    }
}
