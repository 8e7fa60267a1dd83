//! AF_XDP: UMEM, rings and sockets. Owns buffers and nothing about packets; `worker` drives it.
//!
//! - [`Frame`] is the exclusive right to one UMEM chunk. It moves and is never copied: out of the [`Pool`], into a ring
//!   (`refill`, `submit`) and back (`receive`, `complete`), so using a buffer that the kernel owns does not compile.
//! - [`Umem`] is the memory. Bytes are reached through a frame only, hence two slices never alias.
//! - [`Socket`] is one (interface, queue): four rings. [`testing`] puts the same rings into plain memory, with a handle
//!   that plays the kernel, so all that sits on top is tested without a NIC or root.
//!
//! For every UMEM, at any moment: frames in the pool + frames held by the caller + the sum over its sockets of
//! [`Socket::in_fill_ring`] and [`Socket::outstanding_tx`] = [`Umem::chunks`]. A dropped socket's share is missing from
//! the sum until [`Umem::reclaim`] has put it into the pool.
#![expect(unsafe_code, reason = "shared rings and chunks are raw memory; every block argues its case")]

mod bind;
mod device;
mod error;
mod frame;
mod mmap;
mod pool;
mod ring;
mod seat;
mod socket;
mod sys;
pub mod testing;
#[cfg(test)]
mod tests;
mod transfer;
mod umem;

pub use bind::{BindMode, BusyPoll, SocketConfig};
pub use device::{driver_name, rx_queues, tx_queues};
pub use error::XskError;
pub use frame::Frame;
pub use pool::Pool;
pub use socket::{Socket, StatisticsReader, Wakeup};
pub use sys::{XdpStatistics, wait_readable};
pub use umem::{HugePages, Umem, UmemConfig};

/// Bytes the kernel keeps free in front of every packet it writes into a chunk (`XDP_PACKET_HEADROOM`), on top of
/// [`UmemConfig::headroom`].
pub const KERNEL_HEADROOM: u32 = 256;

/// Asks the CPU to bring the cache line at this address near. A hint only, right with any address; does nothing on other
/// architectures.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing architecturally and cannot fault, whatever the address; SSE, which it needs, is
    // part of every x86_64 target.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
