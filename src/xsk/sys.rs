//! The system calls of AF_XDP behind safe functions: no policy, no retry, errno as `io::Error`.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use libc::{c_int, c_void, socklen_t, xdp_mmap_offsets, xdp_ring_offset, xdp_statistics, xdp_umem_reg};

/// `XDP_MAX_TX_SKB_BUDGET` (kernel 6.17): descriptors one sendto may send in copy mode.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

// The kernel's ABI, as if_xdp.h lays it out.
const _: () = assert!(size_of::<libc::xdp_desc>() == 16);
const _: () = assert!(size_of::<libc::sockaddr_xdp>() == 16);
const _: () = assert!(size_of::<xdp_umem_reg>() == 32);
const _: () = assert!(size_of::<xdp_mmap_offsets>() == 128);
const _: () = assert!(size_of::<xdp_statistics>() == 48);

/// Kernel counters of one socket (`XDP_STATISTICS`), since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Packets that fitted no chunk or found no fill-ring frame; without `XDP_USE_SG` every jumbo frame.
    pub rx_dropped: u64,
    /// Fill-ring entries the kernel refused.
    pub rx_invalid_descs: u64,
    /// TX descriptors the kernel refused; their frames do not complete.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the RX ring was full: the worker is too slow.
    pub rx_ring_full: u64,
    /// Times the kernel wanted a frame and the fill ring was empty: the worker is too slow, or transmit holds the frames.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the kernel looked for something to send and found nothing.
    pub tx_ring_empty_descs: u64,
}

/// A new AF_XDP socket.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    owned(fd)
}

/// A new event counter, which stands in for the socket of an in-memory ring set.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    owned(fd)
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call that made `fd` succeeded, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers `len` bytes at `addr` as the UMEM of `fd`; the kernel pins the pages.
pub(super) fn register_umem(
    fd: BorrowedFd<'_>,
    addr: u64,
    len: u64,
    chunk_size: u32,
    headroom: u32,
) -> io::Result<()> {
    let reg = xdp_umem_reg { addr, len, chunk_size, headroom, flags: 0, tx_metadata_len: 0 };
    setsockopt(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &reg)
}

/// Creates one of the four rings; `option` names it.
pub(super) fn create_ring(fd: BorrowedFd<'_>, option: c_int, entries: u32) -> io::Result<()> {
    setsockopt(fd, libc::SOL_XDP, option, &entries)
}

/// Where producer, consumer, flags and descriptors lie in the mapped rings.
pub(super) fn mmap_offsets(fd: BorrowedFd<'_>) -> io::Result<xdp_mmap_offsets> {
    let ring = xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = xdp_mmap_offsets { rx: ring, tx: ring, fr: ring, cr: ring };
    getsockopt(fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Binds to a queue; `leader` is a bound socket whose UMEM is shared.
pub(super) fn bind(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    leader: Option<c_int>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP.try_into().unwrap_or_default(),
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: leader.and_then(|fd| fd.try_into().ok()).unwrap_or_default(),
    };
    // SAFETY: the pointer and length are those of `address`, which outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len_of::<libc::sockaddr_xdp>()) })
}

/// Whether the bound socket works in zero-copy mode.
pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut options = libc::xdp_options { flags: 0 };
    getsockopt(fd, libc::XDP_OPTIONS, &mut options)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Kernel counters of the socket.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<XdpStatistics> {
    let mut raw = xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    getsockopt(fd, libc::XDP_STATISTICS, &mut raw)?;
    Ok(XdpStatistics {
        rx_dropped: raw.rx_dropped,
        rx_invalid_descs: raw.rx_invalid_descs,
        tx_invalid_descs: raw.tx_invalid_descs,
        rx_ring_full: raw.rx_ring_full,
        rx_fill_ring_empty_descs: raw.rx_fill_ring_empty_descs,
        tx_ring_empty_descs: raw.tx_ring_empty_descs,
    })
}

/// Sets how many descriptors one sendto may send in copy mode.
pub(super) fn set_tx_budget(fd: BorrowedFd<'_>, budget: u32) -> io::Result<()> {
    setsockopt(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget)
}

/// Makes system calls on the socket poll its queue, `usecs` long and for at most `budget` packets.
pub(super) fn set_busy_poll(fd: BorrowedFd<'_>, usecs: u32, budget: u32) -> io::Result<()> {
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1_u32)?;
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &usecs)?;
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &budget)
}

/// Tells the kernel to look at the TX ring; never blocks.
#[inline]
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> Result<(), i32> {
    // SAFETY: no buffer and no address are passed.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(errno()) } else { Ok(()) }
}

/// Tells the kernel to look at the fill ring; never blocks.
#[inline]
pub(super) fn kick_rx(fd: BorrowedFd<'_>) -> Result<(), i32> {
    let none = std::ptr::null_mut();
    // SAFETY: no buffer and no address are passed.
    let got = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            none,
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if got < 0 { Err(errno()) } else { Ok(()) }
}

/// Sleeps until one of the descriptors is readable, or `timeout` has passed; says whether one is. An interrupted wait
/// counts as a timeout. In copy mode this also has the kernel transmit what is in the sockets' TX rings.
pub fn wait_readable<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, timeout: Duration) -> bool {
    let watch = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<_> = fds.into_iter().map(watch).collect();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = polls.len().try_into().unwrap_or(libc::nfds_t::MAX);
    // SAFETY: `polls` holds `count` entries and outlives the call, as does `timeout`; no signal mask is passed.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) > 0 }
}

/// Index of an interface of this network namespace.
pub(super) fn interface_index(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// An ethtool request: a C structure of integers and byte arrays that begins with its command number and is at least as
/// large as the kernel's own, which is all that [`ethtool`] relies on.
///
/// # Safety
/// The type must be just that.
pub(super) unsafe trait EthtoolRequest {}

/// `ETHTOOL_GCHANNELS`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Channels {
    pub(super) cmd: u32,
    pub(super) max: [u32; 4],
    pub(super) rx: u32,
    pub(super) tx: u32,
    pub(super) other: u32,
    pub(super) combined: u32,
}
// SAFETY: `struct ethtool_channels`, nine 32-bit integers.
unsafe impl EthtoolRequest for Channels {}

/// `ETHTOOL_GDRVINFO`.
#[repr(C)]
pub(super) struct DriverInfo {
    pub(super) cmd: u32,
    pub(super) driver: [u8; 32],
    pub(super) rest: [u8; 160],
}
// SAFETY: `struct ethtool_drvinfo`: 4 B command, 32 B driver, 160 B of further strings and counts.
unsafe impl EthtoolRequest for DriverInfo {}
const _: () = assert!(size_of::<Channels>() == 36);
const _: () = assert!(size_of::<DriverInfo>() == 196);

/// Puts an ethtool request to the driver of `interface`.
pub(super) fn ethtool<T: EthtoolRequest>(interface: &str, request: &mut T) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let data = std::ptr::from_mut(request).cast();
    let mut ifreq =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the kernel reads the name and follows `ifru_data` to `request`, which is borrowed mutably for the call
    // and, by the trait's contract, large enough for what the kernel writes; any integer is valid in it.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ifreq) })
}

fn setsockopt<T>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let data = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: the kernel reads at most `len_of::<T>()` bytes of `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, data, len_of::<T>()) })
}

/// `T` is one of if_xdp.h's structures of integers (the callers are all in this file).
fn getsockopt<T>(fd: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
    let mut len = len_of::<T>();
    let data = std::ptr::from_mut(value).cast::<c_void>();
    // SAFETY: the kernel writes at most `len` bytes into `value`, and any integer is valid there.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, data, &raw mut len) })?;
    // An older kernel answers with a shorter structure, whose fields lie elsewhere.
    if len == len_of::<T>() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn len_of<T>() -> socklen_t {
    size_of::<T>().try_into().unwrap_or(socklen_t::MAX)
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
