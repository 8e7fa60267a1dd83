//! The free frames of one UMEM. Belongs to its worker: no lock, no allocation after the start.

use super::Frame;

/// The free frames of a UMEM, last in first out, so that the chunks warm in the cache are used first.
#[derive(Debug)]
pub struct Pool {
    umem: u32,
    size: u16,
    start: usize,
    /// Capacity for every chunk from the start: never allocates again.
    chunks: Vec<u32>,
}

impl Pool {
    /// All frames of UMEM `umem`: the lowest chunks are used first.
    pub(super) fn full(umem: u32, chunks: u32, size: u16, start: usize) -> Self {
        Self { umem, size, start, chunks: (0..chunks).rev().collect() }
    }

    /// Id of the UMEM whose frames it takes.
    pub(super) fn umem(&self) -> u32 {
        self.umem
    }

    /// Takes a frame: empty, beginning at [`Umem::default_start`](super::Umem::default_start).
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let chunk = self.chunks.pop()?;
        Some(Frame::new(self.umem, chunk, self.size, self.start, 0, false))
    }

    /// Gives a frame back. One of another UMEM is refused: it is logged, and its chunk lost to its own pool.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        if frame.umem() != self.umem {
            return refuse(&frame, self.umem);
        }
        self.chunks.push(frame.chunk());
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
fn refuse(frame: &Frame, pool: u32) {
    tracing::error!(
        umem = frame.umem(),
        chunk = frame.chunk(),
        pool,
        "frame of another UMEM pushed to a pool"
    );
}
