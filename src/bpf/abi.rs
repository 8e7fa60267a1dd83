//! `bpf/steer_abi.h` in Rust: what user space and the steering program share. Both sides assert the layout; a test
//! compares the outcomes.
#![expect(unsafe_code, reason = "aya reads and writes map values as bytes")]

use std::mem::offset_of;

/// Queues of one port that can have a socket.
pub const QUEUES: u32 = 1024;
/// Encap IPs of one address family.
pub const ENCAP_IPS: usize = 256;
/// `Config::vlan` of a port whose frames carry no tag, or a priority tag (VID 0).
pub const UNTAGGED: u16 = 0;

/// `enum steer_mode`. 0 is a program that was given no settings yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Underlay = 1,
    OverlayAll = 2,
    OverlayRoce = 3,
}

/// `struct steer_config`. Host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    pub mode: Mode,
    pub native_roce: bool,
    pub vlan: u16,
}

// SAFETY: `Copy` and `'static`; the fields fill all 4 bytes (asserted below), so writing it out reads no padding. Nothing
// reads it back, which would need every byte pattern to be a value.
unsafe impl aya::Pod for Config {}

/// `struct steer_count`: frames and bytes of one outcome, on one CPU or summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OutcomeCount {
    /// Frames.
    pub packets: u64,
    /// Bytes of those frames from the Ethernet header on, without FCS.
    pub bytes: u64,
}

// SAFETY: `Copy`, `'static`, two `u64` without padding: every byte pattern is a value.
unsafe impl aya::Pod for OutcomeCount {}

const _: () = assert!(size_of::<Config>() == 4);
const _: () = assert!(offset_of!(Config, mode) == 0 && offset_of!(Config, native_roce) == 1);
const _: () = assert!(offset_of!(Config, vlan) == 2);
const _: () = assert!(size_of::<OutcomeCount>() == 16);
const _: () = assert!(offset_of!(OutcomeCount, packets) == 0 && offset_of!(OutcomeCount, bytes) == 8);

/// Where the steering program sent a frame and why. Every frame counts in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// To the socket: UDP 4789 to one of our encap IPs.
    Vxlan = 0,
    /// To the socket: RoCEv2 (UDP 4791), on an access port or native on an underlay port.
    Roce = 1,
    /// To the socket: an access port that takes every frame.
    All = 2,
    /// Dropped: ours, but its queue has no socket.
    NoSocket = 3,
    /// To the kernel: not the VLAN tag that the port expects.
    Vlan = 4,
    /// To the kernel: neither IPv4 nor IPv6.
    NotIp = 5,
    /// To the kernel: a header that cannot be, or that ends before it is whole.
    Malformed = 6,
    /// To the kernel: an IP fragment other than the first.
    Fragment = 7,
    /// To the kernel: more IPv6 extension headers than the program walks.
    ExtHeaders = 8,
    /// To the kernel: IP, but not UDP.
    NotUdp = 9,
    /// To the kernel: UDP to a port that isn't ours.
    Port = 10,
    /// To the kernel: UDP 4789 to an address that isn't an encap IP of ours.
    NotLocal = 11,
    /// Aborted: the program ran before it was given its settings. Stays 0.
    Unconfigured = 12,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Vxlan,
        Self::Roce,
        Self::All,
        Self::NoSocket,
        Self::Vlan,
        Self::NotIp,
        Self::Malformed,
        Self::Fragment,
        Self::ExtHeaders,
        Self::NotUdp,
        Self::Port,
        Self::NotLocal,
        Self::Unconfigured,
    ];

    /// The label of its counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Roce => "roce",
            Self::All => "all",
            Self::NoSocket => "no_socket",
            Self::Vlan => "vlan",
            Self::NotIp => "not_ip",
            Self::Malformed => "malformed",
            Self::Fragment => "fragment",
            Self::ExtHeaders => "ext_headers",
            Self::NotUdp => "not_udp",
            Self::Port => "port",
            Self::NotLocal => "not_local",
            Self::Unconfigured => "unconfigured",
        }
    }

    /// Its key in the map `outcomes`.
    pub(super) const fn key(self) -> u32 {
        self as u32
    }
}
