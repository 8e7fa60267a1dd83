//! What can go wrong while memory and sockets are set up, each with the culprit's name and what to do about it.

use std::io;

/// Failure to set up UMEM or a socket. Nothing on the packet path returns one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XskError {
    /// The kernel takes chunks of 2048 and 4096 bytes only, on huge pages too.
    #[error("UMEM chunk size {0} is not 2048 or 4096; larger frames travel in several chunks")]
    ChunkSize(u32),
    /// No chunks, or more than the address space holds.
    #[error("UMEM of {0} chunks: choose between 1 and 16777216")]
    ChunkCount(u32),
    /// Headroom leaves no room for a packet.
    #[error(
        "UMEM headroom {headroom} leaves no room in chunks of {chunk_size} B (256 B belong to the kernel)"
    )]
    Headroom {
        /// Configured headroom in bytes.
        headroom: u32,
        /// Configured chunk size in bytes.
        chunk_size: u32,
    },
    /// Huge pages were required and are not there.
    #[error(
        "no {bytes} B of free 2 MiB huge pages ({source}): raise vm.nr_hugepages by {pages}, or do not require them"
    )]
    HugePages {
        /// Size of the UMEM in bytes.
        bytes: usize,
        /// The same in pages of 2 MiB.
        pages: usize,
        /// What mmap answered.
        source: io::Error,
    },
    /// The memory could not be mapped.
    #[error("cannot map {bytes} B of UMEM: {source}; use fewer chunks")]
    Memory {
        /// Size of the UMEM in bytes.
        bytes: usize,
        /// What mmap answered.
        source: io::Error,
    },
    /// Ring sizes are powers of two.
    #[error(
        "interface {interface}, queue {queue}: ring size {size} is not a power of two between 1 and 32768"
    )]
    RingSize {
        /// Interface name.
        interface: String,
        /// Queue number.
        queue: u32,
        /// Configured size.
        size: u32,
    },
    /// No such interface in this network namespace.
    #[error("interface {interface}: {source}; `ip link` lists the interfaces of this network namespace")]
    Interface {
        /// Interface name.
        interface: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The interface has no such queue.
    #[error(
        "interface {interface} has {queues} queues, so there is no queue {queue}; see `ethtool -l {interface}`"
    )]
    Queue {
        /// Interface name.
        interface: String,
        /// Queue asked for.
        queue: u32,
        /// Queues there are.
        queues: u32,
    },
    /// Another socket holds the queue.
    #[error(
        "interface {interface}, queue {queue}: another AF_XDP socket holds it; stop that program, or use another queue"
    )]
    Busy {
        /// Interface name.
        interface: String,
        /// Queue number.
        queue: u32,
    },
    /// Zero-copy was asked for and the driver has none, or none for several buffers a packet.
    #[error(
        "interface {interface}, queue {queue}: driver {driver} refuses zero-copy with multi-buffer ({source}); \
         use copy mode"
    )]
    ZeroCopy {
        /// Interface name.
        interface: String,
        /// Queue number.
        queue: u32,
        /// Driver name, or "unknown".
        driver: String,
        /// What bind answered.
        source: io::Error,
    },
    /// A step of the set-up failed.
    #[error("interface {interface}, queue {queue}: {step}: {source}{hint}")]
    Setup {
        /// Interface name.
        interface: String,
        /// Queue number.
        queue: u32,
        /// The kernel call that failed.
        step: &'static str,
        /// What to do, with its punctuation, or empty.
        hint: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Numbers of sockets are not reused.
    #[error("interface {interface}, queue {queue}: the UMEM has had 2^31 sockets; use another UMEM")]
    TooManySockets {
        /// Interface name.
        interface: String,
        /// Queue number.
        queue: u32,
    },
    /// Numbers of UMEMs are not reused.
    #[error("this process has made 2^30 UMEMs; restart it")]
    TooManyUmems,
    /// A question to a device or socket failed.
    #[error("{what}: {source}")]
    Query {
        /// What was asked.
        what: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// What an operator can do about `errno` at `step`.
pub(super) fn hint(step: &str, errno: Option<i32>) -> &'static str {
    match (step, errno) {
        ("socket", Some(libc::EPERM)) => "; AF_XDP needs CAP_NET_RAW: run as root or grant the capability",
        ("socket", Some(libc::EAFNOSUPPORT)) => "; this kernel has no AF_XDP: it needs CONFIG_XDP_SOCKETS",
        ("XDP_UMEM_REG", Some(libc::ENOBUFS | libc::EPERM)) => {
            "; the locked-memory limit is too low: raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity) or grant CAP_IPC_LOCK"
        }
        (_, Some(libc::ENOMEM | libc::ENOBUFS)) => {
            "; out of kernel memory: use smaller rings or fewer chunks"
        }
        ("bind", Some(libc::ENODEV | libc::ENXIO)) => {
            "; the interface is gone, or in another network namespace"
        }
        ("bind", Some(libc::ENETDOWN)) => "; the interface is down: `ip link set … up`",
        ("bind", Some(libc::EINVAL)) => {
            "; the driver refuses these rings or this XDP_USE_SG: kernel 6.6 or newer?"
        }
        ("busy-poll", Some(libc::EPERM)) => "; it needs CAP_NET_ADMIN",
        ("busy-poll", Some(libc::ENOPROTOOPT)) => "; preferred busy-polling needs kernel 5.11 or newer",
        _ => "",
    }
}
