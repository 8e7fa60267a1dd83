//! A packet socket on one interface: the probe's only system calls, and its only `unsafe`.

use std::ffi::CString;
use std::io::{Error, ErrorKind, Result};
use std::mem::{size_of, size_of_val, zeroed};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::frame::{Mac, ROCE_PORT};

/// Receive buffer in bytes: some thousands of 4 kB frames, each of which the kernel charges about twice.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// Not in the libc crate: do not deliver what this host itself sends.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Raw Ethernet frames of one interface; only UDP to the RoCEv2 port is delivered.
pub struct PacketSocket {
    fd: OwnedFd,
    /// Keeps the kernel from answering RoCEv2 with ICMP port unreachable: something listens on the port.
    _listener: Option<UdpSocket>,
    mac: Mac,
}

impl PacketSocket {
    /// Opens `interface` in this process's network namespace.
    pub fn open(interface: &str) -> Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: `name` is a NUL-terminated string that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(Error::new(ErrorKind::NotFound, format!("no interface named {interface}")));
        }
        // Protocol 0 delivers nothing until bind, so no frame passes before the filter is in place.
        // SAFETY: no pointers; the returned descriptor is owned by nobody else.
        let fd = unsafe {
            let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        attach_filter(fd.as_raw_fd())?;
        set_option(fd.as_raw_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
        set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)?;
        let mac = bind(fd.as_raw_fd(), index)?;
        let listener =
            UdpSocket::bind(("::", ROCE_PORT)).or_else(|_| UdpSocket::bind(("0.0.0.0", ROCE_PORT)));
        Ok(Self { fd, _listener: listener.ok(), mac })
    }

    /// Address of the interface.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// How long `receive` waits.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        let value = libc::timeval {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_usec: timeout.subsec_micros() as libc::suseconds_t,
        };
        set_option(self.fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
    }

    /// One frame into `buffer`; `None` when none came in time.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
        // SAFETY: the pointer and length are those of `buffer`, which is writable for the whole call.
        let len = unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(len) {
            Ok(len) => Ok(Some(&buffer[..len])),
            Err(_) => match Error::last_os_error() {
                e if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Sends one frame. A full device queue is waited for, a tenth of a second at most.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        for _ in 0..1000 {
            // SAFETY: the pointer and length are those of `frame`, which is readable for the whole call.
            let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOBUFS) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(Error::new(ErrorKind::TimedOut, "the device queue stayed full for 0.1 s"))
    }

    /// Frames that came in while the socket's buffer was full, since the last call.
    pub fn lost_here(&self) -> Result<u32> {
        // SAFETY: tpacket_stats is two integers, for which all-zero bytes are a value.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: `stats` and `len` are valid for writes and `len` says how large `stats` is.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        })?;
        Ok(stats.tp_drops)
    }
}

fn check(code: libc::c_int) -> Result<libc::c_int> {
    if code < 0 { Err(Error::last_os_error()) } else { Ok(code) }
}

fn set_option<T>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> Result<()> {
    let len = size_of_val(value) as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), len) }).map(drop)
}

/// Binds to the interface and returns its MAC address.
fn bind(fd: RawFd, index: libc::c_uint) -> Result<Mac> {
    // SAFETY: sockaddr_ll is plain integers, for which all-zero bytes are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer: *mut libc::sockaddr = (&raw mut address).cast();
    // SAFETY: `address` is a sockaddr_ll of `len` bytes, readable and writable.
    unsafe {
        check(libc::bind(fd, pointer, len))?;
        check(libc::getsockname(fd, pointer, &raw mut len))?;
    }
    Ok([0, 1, 2, 3, 4, 5].map(|i| address.sll_addr[i]))
}

/// Classic BPF: IPv4 without options or IPv6 without extension headers, UDP, destination port 4791.
fn attach_filter(fd: RawFd) -> Result<()> {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let ins = |code, k, when_true, when_false| libc::sock_filter { code, jt: when_true, jf: when_false, k };
    let port = u32::from(ROCE_PORT);
    let mut program = [
        ins(LOAD_HALF, 12, 0, 0),
        ins(IF_EQUAL, 0x0800, 0, 4),
        ins(LOAD_BYTE, 23, 0, 0),
        ins(IF_EQUAL, 17, 0, 8),
        ins(LOAD_HALF, 36, 0, 0),
        ins(IF_EQUAL, port, 5, 6),
        ins(IF_EQUAL, 0x86dd, 0, 5),
        ins(LOAD_BYTE, 20, 0, 0),
        ins(IF_EQUAL, 17, 0, 3),
        ins(LOAD_HALF, 56, 0, 0),
        ins(IF_EQUAL, port, 0, 1),
        ins(RETURN, 0x4_0000, 0, 0),
        ins(RETURN, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}
