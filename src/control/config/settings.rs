//! The sections that appear once, with their defaults. Only legal values.

use std::path::PathBuf;
use std::time::Duration;

pub use crate::tables::snapshot::{DecapDscp, EncapDscp};

/// Section `[workers]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// One worker for each.
    pub cores: Cores,
    /// What a worker does when there is nothing to do.
    pub idle: Idle,
    /// Most packets a worker takes from one RX ring at a time, 1 to 256.
    pub batch: u16,
    /// Frames in each worker's UMEM.
    pub umem_frames: u32,
    /// Bytes of a UMEM chunk, 2048 or 4096.
    pub frame_size: u16,
    /// Descriptors in each ring, a power of two.
    pub ring_size: u32,
    /// Whether the UMEM lies in huge pages.
    pub huge_pages: HugePages,
    /// Descriptors the kernel sends for one wakeup in copy mode (`XDP_MAX_TX_SKB_BUDGET`).
    pub tx_budget: u32,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            cores: Cores::LastAllowed,
            idle: Idle::Adaptive { spin: Duration::from_micros(50) },
            batch: 64,
            umem_frames: 16_384,
            frame_size: 4096,
            ring_size: 2048,
            huge_pages: HugePages::Auto,
            tx_budget: 256,
        }
    }
}

/// Where workers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One worker on the highest core that the process may use: the kernel puts its own chores on the lowest.
    LastAllowed,
    /// One worker on each of these cores. Never empty, no core twice.
    List(Vec<usize>),
}

/// What a worker does when its rings are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once. Lowest latency, one core at 100 %.
    Spin,
    /// Looks again for `spin`, then sleeps until the kernel has a frame.
    Adaptive {
        /// How long to look before sleeping.
        spin: Duration,
    },
    /// Drives the device's receive path from the worker (`SO_PREFER_BUSY_POLL`).
    BusyPoll {
        /// `SO_BUSY_POLL`, whole microseconds.
        time: Duration,
        /// `SO_BUSY_POLL_BUDGET`, packets.
        budget: u16,
    },
}

/// Whether the UMEM lies in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// When the system has enough free, else ordinary pages.
    Auto,
    /// Refuse to start without.
    Require,
    /// Never.
    Off,
}

/// Section `[xdp]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xdp {
    /// Refuse generic (skb) mode.
    pub require_native: bool,
    /// Refuse copy mode.
    pub require_zero_copy: bool,
}

/// Section `[vxlan]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Outer UDP checksum 0 over IPv6 (RFC 6935).
    pub udp6_zero_checksum: Admit,
    /// Packets whose outer source is no configured peer.
    pub unknown_vtep: Admit,
    /// DSCP of the outer header.
    pub encap_dscp: EncapDscp,
    /// DSCP of the inner header after decap.
    pub decap_dscp: DecapDscp,
}

impl Default for Vxlan {
    fn default() -> Self {
        Self {
            udp6_zero_checksum: Admit::Drop,
            unknown_vtep: Admit::Drop,
            encap_dscp: EncapDscp::Copy,
            decap_dscp: DecapDscp::Pipe,
        }
    }
}

/// Whether a kind of packet is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Dropped and counted.
    Drop,
    /// Taken.
    Accept,
}

/// Section `[control]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Unix socket of the API.
    pub socket: PathBuf,
}

/// Where the API listens unless configured otherwise.
pub const DEFAULT_SOCKET: &str = "/run/flowrail/flowrail.sock";

impl Default for Control {
    fn default() -> Self {
        Self { socket: PathBuf::from(DEFAULT_SOCKET) }
    }
}

/// Section `[neighbors]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbors {
    /// Most packets that wait for next-hop MACs, per worker.
    pub pending_frames: u32,
    /// How long one waits before it is dropped.
    pub pending_timeout: Duration,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self { pending_frames: 64, pending_timeout: Duration::from_secs(1) }
    }
}

/// Section `[routing]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Whether a packet without a route or station is answered with ICMP unreachable.
    pub icmp_unreachable: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self { icmp_unreachable: true }
    }
}
