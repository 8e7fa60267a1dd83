//! Opens and binds the AF_XDP socket of one (interface, queue): rings, shared UMEM, mode, options.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Once};
use std::thread::sleep;
use std::time::Duration;

use libc::{c_int, off_t, xdp_ring_offset};

use super::mmap::Mapping;
use super::ring::{self, Slot};
use super::seat::Seat;
use super::socket::{Endpoint, Rings};
use super::{Socket, Umem, XskError, device, error, sys};
use crate::ids::QueueId;

/// After a socket closed, its queue stays taken until a kernel work queue ran, some 20 ms; 5 + 10 + … + 320 ms spans
/// that and still ends within a second.
const FIRST_BACK_OFF: Duration = Duration::from_millis(5);
const LAST_BACK_OFF: Duration = Duration::from_millis(320);

/// Bounds of `XDP_MAX_TX_SKB_BUDGET` besides the TX ring's size.
const MIN_TX_BUDGET: u32 = 32;

/// How packets get between the device and the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindMode {
    /// Zero-copy, else copy; [`Socket::zero_copy`] and the log say which.
    #[default]
    Auto,
    /// Zero-copy or an error.
    ZeroCopy,
    /// Copy, whatever the driver can.
    Copy,
}

/// Preferred busy-polling: the socket's system calls drive the device's NAPI. Never pair it on veth with deferred
/// interrupts (`napi_defer_hard_irqs`): the median round trip becomes 0.1 to 1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// `SO_BUSY_POLL`: how long one call may poll, in microseconds.
    pub usecs: u32,
    /// `SO_BUSY_POLL_BUDGET`: packets one poll may process.
    pub budget: u32,
}

/// What to bind, and how.
#[derive(Clone, Debug)]
pub struct SocketConfig<'a> {
    /// Interface name, in the calling thread's network namespace.
    pub interface: String,
    /// Queue of the interface.
    pub queue: QueueId,
    /// Where the packets live.
    pub umem: &'a Umem,
    /// Slots of the RX and the TX ring, a power of two. Fill and completion rings get twice as many, for the frames that
    /// the driver itself holds.
    pub ring_size: u32,
    /// Copy or zero-copy.
    pub mode: BindMode,
    /// Busy-polling, where wanted.
    pub busy_poll: Option<BusyPoll>,
    /// Descriptors that one wakeup may send in copy mode, within 32..=ring size; 0 leaves the kernel's 32. Worth 11 %
    /// on veth with large batches. Kernels before 6.17 don't have it.
    pub tx_budget: u32,
}

/// Binds as `cfg` says; see [`Socket::bind`].
pub(super) fn bind(cfg: &SocketConfig<'_>) -> Result<Socket, XskError> {
    if !cfg.ring_size.is_power_of_two() || cfg.ring_size > 1 << 15 {
        let (interface, queue) = (cfg.interface.clone(), cfg.queue.0);
        return Err(XskError::RingSize { interface, queue, size: cfg.ring_size });
    }
    let ifindex = sys::interface_index(&cfg.interface)
        .map_err(|source| XskError::Interface { interface: cfg.interface.clone(), source })?;
    let socket = match cfg.mode {
        BindMode::Copy => open(cfg, ifindex, false),
        BindMode::ZeroCopy => open(cfg, ifindex, true),
        BindMode::Auto => open(cfg, ifindex, true).or_else(|error| match error {
            XskError::ZeroCopy { .. } => {
                tracing::info!("{error}; falling back to copy mode");
                open(cfg, ifindex, false)
            }
            other => Err(other),
        }),
    }?;
    tracing::info!(
        interface = cfg.interface,
        queue = cfg.queue.0,
        zero_copy = socket.zero_copy(),
        "AF_XDP socket bound"
    );
    Ok(socket)
}

fn open(cfg: &SocketConfig<'_>, ifindex: u32, zero_copy: bool) -> Result<Socket, XskError> {
    let mut seat = Seat::take(cfg.umem)
        .ok_or_else(|| XskError::TooManySockets { interface: cfg.interface.clone(), queue: cfg.queue.0 })?;
    let fd = sys::socket().map_err(|source| failed(cfg, "socket", source))?;
    // Dropped before the descriptor on every return: a mapped ring keeps the socket, and so the queue, alive.
    let rings = map_rings(cfg, fd.as_fd())?;
    let zero_copy = attach(cfg, fd.as_fd(), &mut seat, ifindex, zero_copy)?;
    let endpoint = Endpoint::Kernel { fd, busy_poll: cfg.busy_poll.is_some(), zero_copy };
    let socket = Socket::assemble(cfg.umem.clone(), rings, endpoint, seat);
    set_options(cfg, socket.as_fd())?;
    Ok(socket)
}

/// Binds, sharing the kernel's registration of the UMEM with an earlier socket of the same mode if there is one, and
/// waiting for a queue that its previous owner just left. Returns whether the socket works in zero-copy mode.
fn attach(
    cfg: &SocketConfig<'_>,
    fd: BorrowedFd<'_>,
    seat: &mut Seat,
    ifindex: u32,
    zero_copy: bool,
) -> Result<bool, XskError> {
    let mode = if zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let mut registered = false;
    let mut back_off = FIRST_BACK_OFF;
    loop {
        // Held for one attempt only, or a socket of this UMEM could not be dropped by another thread, which may be the
        // very one that is waited for.
        let mut seats = cfg.umem.seats();
        let leader = if registered { None } else { seats.leader(zero_copy) };
        if leader.is_none() && !registered {
            let (addr, len) = cfg.umem.region();
            let chunk_size = u32::try_from(cfg.umem.chunk_size()).unwrap_or(u32::MAX);
            sys::register_umem(fd, addr, len, chunk_size, cfg.umem.headroom())
                .map_err(|source| failed(cfg, "XDP_UMEM_REG", source))?;
            registered = true;
        }
        // The kernel takes wakeup, SG and mode from the socket that registered, and refuses them here.
        let flags = match leader {
            Some(_) => libc::XDP_SHARED_UMEM,
            None => mode | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
        };
        match sys::bind(fd, ifindex, cfg.queue.0, flags, leader) {
            Ok(()) => {
                let zero_copy = sys::is_zero_copy(fd).map_err(|source| failed(cfg, "XDP_OPTIONS", source))?;
                seats.lead(seat, fd.as_raw_fd(), zero_copy);
                return Ok(zero_copy);
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && back_off <= LAST_BACK_OFF => {
                drop(seats);
                sleep(back_off);
                back_off *= 2;
            }
            Err(error) => return Err(refused(cfg, error, zero_copy)),
        }
    }
}

/// Why bind failed, in terms of the configuration.
fn refused(cfg: &SocketConfig<'_>, source: io::Error, zero_copy: bool) -> XskError {
    let (interface, queue) = (cfg.interface.clone(), cfg.queue.0);
    match source.raw_os_error() {
        Some(libc::EBUSY) => XskError::Busy { interface, queue },
        Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN | libc::EPERM) => failed(cfg, "bind", source),
        _ => {
            let count =
                device::rx_queues(&interface).and_then(|rx| Ok(rx.max(device::tx_queues(&interface)?)));
            match count {
                Ok(queues) if queue >= queues => XskError::Queue { interface, queue, queues },
                // Drivers have many errnos for "not like this": EOPNOTSUPP, EINVAL, ENOMEM.
                _ if zero_copy => {
                    let driver = device::driver_name(&interface).unwrap_or_else(|_| "unknown".to_owned());
                    XskError::ZeroCopy { interface, queue, driver, source }
                }
                _ => failed(cfg, "bind", source),
            }
        }
    }
}

fn set_options(cfg: &SocketConfig<'_>, fd: BorrowedFd<'_>) -> Result<(), XskError> {
    static NO_BUDGET: Once = Once::new();
    if cfg.tx_budget != 0 && cfg.ring_size >= MIN_TX_BUDGET {
        let budget = cfg.tx_budget.clamp(MIN_TX_BUDGET, cfg.ring_size);
        if let Err(error) = sys::set_tx_budget(fd, budget) {
            NO_BUDGET.call_once(|| {
                tracing::debug!(budget, %error, "XDP_MAX_TX_SKB_BUDGET not set; kernels before 6.17 lack it");
            });
        }
    }
    if let Some(BusyPoll { usecs, budget }) = cfg.busy_poll {
        sys::set_busy_poll(fd, usecs, budget).map_err(|source| failed(cfg, "busy-poll", source))?;
    }
    Ok(())
}

/// Creates the four rings and maps them; the kernel allows that before bind only.
fn map_rings(cfg: &SocketConfig<'_>, fd: BorrowedFd<'_>) -> Result<Rings, XskError> {
    let size = cfg.ring_size;
    for (option, step, size) in [
        (libc::XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING", size * 2),
        (libc::XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING", size * 2),
        (libc::XDP_RX_RING, "XDP_RX_RING", size),
        (libc::XDP_TX_RING, "XDP_TX_RING", size),
    ] as [(c_int, &'static str, u32); 4]
    {
        sys::create_ring(fd, option, size).map_err(|source| failed(cfg, step, source))?;
    }
    let at = sys::mmap_offsets(fd).map_err(|source| failed(cfg, "XDP_MMAP_OFFSETS", source))?;
    let mapped = || -> io::Result<Option<Rings>> {
        let fill = map::<u64>(fd, &at.fr, size * 2, page_offset(libc::XDP_UMEM_PGOFF_FILL_RING)?)?;
        let completion =
            map::<u64>(fd, &at.cr, size * 2, page_offset(libc::XDP_UMEM_PGOFF_COMPLETION_RING)?)?;
        let rx = map::<ring::Descriptor>(fd, &at.rx, size, libc::XDP_PGOFF_RX_RING)?;
        let tx = map::<ring::Descriptor>(fd, &at.tx, size, libc::XDP_PGOFF_TX_RING)?;
        let rings = || {
            Some(Rings {
                rx: ring::Consumer::new(&rx, &at.rx, size)?,
                tx: ring::Producer::new(&tx, &at.tx, size)?,
                fill: ring::Producer::new(&fill, &at.fr, size * 2)?,
                completion: ring::Consumer::new(&completion, &at.cr, size * 2)?,
            })
        };
        Ok(rings())
    };
    mapped()
        .and_then(|rings| rings.ok_or_else(|| io::ErrorKind::InvalidData.into()))
        .map_err(|source| failed(cfg, "mmap of the rings", source))
}

fn map<T: Slot>(
    fd: BorrowedFd<'_>,
    at: &xdp_ring_offset,
    size: u32,
    offset: off_t,
) -> io::Result<Arc<Mapping>> {
    let len = ring::mapped_len::<T>(at, size).ok_or(io::ErrorKind::InvalidData)?;
    Mapping::ring(fd, len, offset).map(Arc::new)
}

fn page_offset(offset: libc::c_ulonglong) -> io::Result<off_t> {
    off_t::try_from(offset).map_err(|_| io::ErrorKind::Unsupported.into())
}

fn failed(cfg: &SocketConfig<'_>, step: &'static str, source: io::Error) -> XskError {
    let hint = error::hint(step, source.raw_os_error());
    XskError::Setup { interface: cfg.interface.clone(), queue: cfg.queue.0, step, hint, source }
}
