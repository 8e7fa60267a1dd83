//! The loops that move frames between rings, batches and the pool; all that is done per frame and not per batch. Used by
//! `socket` on runs of slots. None is inlined, so that all that a loop uses stays in registers.

use std::mem::MaybeUninit;

use super::ring::Descriptor;
use super::seat::RingId;
use super::{Frame, Pool, Umem};

/// Lends chunks of the pool to the fill ring, as many as `run` has slots.
#[inline(never)]
pub(super) fn refill_run(umem: &Umem, ring: RingId, run: &mut [u64], pool: &mut Pool) {
    let (ledger, count) = (umem.ledger(), run.len());
    for (slot, chunk) in run.iter_mut().zip(pool.peek(count)) {
        ledger.lend(chunk, ring);
        *slot = chunk;
    }
    pool.forget(count);
}

/// Appends the frames of descriptors to `batch`, up to the first that the ledger does not believe. Returns how many.
#[inline(never)]
pub(super) fn take_back_run(umem: &Umem, ring: RingId, run: &[Descriptor], batch: &mut Vec<Frame>) -> usize {
    let (ledger, len) = (umem.ledger(), batch.len());
    batch.reserve(run.len());
    let spare = batch.spare_capacity_mut();
    let count = fill_from(spare, run, |descriptor| ledger.take_back(descriptor, ring).map(MaybeUninit::new));
    // SAFETY: the first `count` elements of the spare capacity have been written.
    unsafe { batch.set_len(len + count) };
    count
}

/// Lends frames to the TX ring by writing their descriptors into `run`, up to the first that may not go there. Returns
/// how many; the caller must let go of them.
#[inline(never)]
pub(super) fn lend_run(umem: &Umem, ring: RingId, run: &mut [Descriptor], frames: &[Frame]) -> usize {
    let ledger = umem.ledger();
    fill_from(run, frames, |frame| {
        let descriptor = frame.descriptor(ledger.tag())?;
        ledger.lend(descriptor.addr, ring).then_some(descriptor)
    })
}

/// Puts the chunks of completed addresses that the ledger believes into the pool.
#[inline(never)]
pub(super) fn complete_run(umem: &Umem, ring: RingId, run: &[u64], pool: &mut Pool) {
    let ledger = umem.ledger();
    pool.extend(run.iter().filter_map(|addr| ledger.take_back_chunk(*addr, ring)));
}

/// The longest run of whole packets at the head of `batch` that is no longer than `free`.
#[cold]
pub(super) fn whole_packets(batch: &[Frame], free: u32) -> u32 {
    let fitting = batch.get(..free as usize).unwrap_or(batch);
    let whole = fitting.iter().rposition(|frame| !frame.more()).map_or(0, |last| last + 1);
    u32::try_from(whole).unwrap_or_default()
}

/// Writes `make(from)` to `to`, one by one, while both last and `make` gives something; returns how many. Goes by eights,
/// as loop control is a fifth of the work. `make` may see an element of the last eight twice.
#[inline(always)]
fn fill_from<A, B>(to: &mut [A], from: &[B], make: impl Fn(&B) -> Option<A>) -> usize {
    let step = |(to, from): (&mut A, &B)| make(from).map(|value| *to = value).is_some();
    let mut count = 0;
    for (to, from) in to.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
        if !to.iter_mut().zip(from).all(step) {
            break;
        }
        count += 8;
    }
    count + to.iter_mut().zip(from).skip(count).map(step).take_while(|done| *done).count()
}
