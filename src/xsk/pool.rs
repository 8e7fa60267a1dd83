//! The free frames of one UMEM. Belongs to its worker: no lock, no allocation after the start.

use super::Frame;
use super::frame::Tag;

/// The free frames of a UMEM, last in first out, so that the chunks warm in the cache are used first.
#[derive(Debug)]
pub struct Pool {
    tag: Tag,
    /// Where the packet begins in a frame from the pool.
    start: u64,
    /// Addresses of the free chunks. Has room for every chunk from the start: never allocates again.
    chunks: Vec<u64>,
}

impl Pool {
    /// All frames of the UMEM that `tag` names: the lowest chunks are used first.
    pub(super) fn full(tag: Tag, chunks: u32, start: u64) -> Self {
        Self { tag, start, chunks: (0..chunks).rev().map(|chunk| u64::from(chunk) << tag.shift()).collect() }
    }

    /// UMEM whose frames it takes.
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Addresses of up to `count` chunks, in the order in which they would be popped. The caller must lend them, and
    /// then [`forget`](Self::forget) as many.
    #[inline(always)]
    pub(super) fn peek(&self, count: usize) -> impl Iterator<Item = u64> + '_ {
        self.chunks.iter().rev().take(count).copied()
    }

    /// Drops the last `count` chunks.
    #[inline(always)]
    pub(super) fn forget(&mut self, count: usize) {
        self.chunks.truncate(self.chunks.len().saturating_sub(count));
    }

    /// Takes frames in bulk. All must be of this pool's UMEM, as those from its ledger are.
    #[inline(always)]
    pub(super) fn extend(&mut self, frames: impl Iterator<Item = Frame>) {
        self.chunks.extend(frames.map(|frame| frame.chunk_addr()));
    }

    /// Takes a frame: empty, beginning at [`Umem::default_start`](super::Umem::default_start).
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let chunk = self.chunks.pop()?;
        Some(Frame::empty(self.tag, chunk + self.start))
    }

    /// Gives a frame back. One of another UMEM is refused: it is logged, and its chunk lost to its own pool.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        if !frame.is_of(self.tag) {
            return refuse(&frame);
        }
        self.chunks.push(frame.chunk_addr());
    }

    /// Free frames.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether no frame is free.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cold]
fn refuse(frame: &Frame) {
    tracing::error!(?frame, "a frame of another UMEM was pushed to a pool: its chunk is lost");
}
