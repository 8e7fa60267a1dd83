//! Raw frames at a station: a packet socket on its interface.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::netns::Netns;

/// How long a frame may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long nothing must come for silence.
const QUIET: Duration = Duration::from_millis(100);

/// A packet socket that sees what arrives, with its VLAN tag where there is one.
pub struct Tap {
    socket: OwnedFd,
}

impl Tap {
    /// Opens one on a namespace's interface, from a thread that enters the namespace and ends.
    #[track_caller]
    pub fn open(netns: &Netns, interface: &str) -> Self {
        let path = format!("/run/netns/{}", netns.name());
        let interface = interface.to_owned();
        let open = move || {
            let namespace = File::open(&path).unwrap();
            // SAFETY: an open descriptor of a namespace; affects this thread alone, which ends below.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            socket(&interface).unwrap()
        };
        Self { socket: std::thread::spawn(open).join().unwrap() }
    }

    /// Sends a frame as it is.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        self.try_send(frame).unwrap();
    }

    /// Sends a frame that the kernel may refuse.
    pub fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and length are of one live slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next frame that has arrived, if any.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0u8; 65_536];
        let mut control = [0u64; 16];
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: plain data; the pointers are of live buffers of the sizes given.
        let (len, vlan) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let len = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT);
            (len, vlan_of(&message))
        };
        frame.truncate(usize::try_from(len).ok()?);
        // The kernel takes the tag out of the frame.
        if let Some((protocol, tag)) = vlan {
            let bytes = [protocol.to_be_bytes(), tag.to_be_bytes()].concat();
            frame.splice(12..12, bytes);
        }
        Some(frame)
    }

    /// Waits for this very frame; others that come before it are passed over.
    #[track_caller]
    pub fn expect(&self, frame: &[u8]) {
        let mut seen = Vec::new();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.receive() {
                Some(arrived) if arrived == frame => return,
                Some(arrived) => seen.push(arrived),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        panic!("{frame:02x?} did not arrive, but {seen:02x?}");
    }

    /// Waits, and fails when anything comes.
    #[track_caller]
    pub fn expect_silence(&self) {
        std::thread::sleep(QUIET);
        if let Some(frame) = self.receive() {
            panic!("unexpected: {frame:02x?}");
        }
    }
}

/// TPID and tag that came beside a frame (`PACKET_AUXDATA`).
///
/// # Safety
/// `message` was filled by `recvmsg`, and its control buffer lives.
unsafe fn vlan_of(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the caller's promise; the data of this kind of control message is a `tpacket_auxdata`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if header.is_null() || (*header).cmsg_level != libc::SOL_PACKET {
            return None;
        }
        let data = libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned();
        let valid = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        valid.then_some((data.tp_vlan_tpid, data.tp_vlan_tci))
    }
}

fn socket(interface: &str) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: takes integers only.
    let fd =
        unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made and that nobody else has.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = CString::new(interface)?;
    // SAFETY: plain data of the sizes given, and a C string.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        libc::bind(fd, std::ptr::from_ref(&address).cast(), size_of::<libc::sockaddr_ll>() as u32)
    };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA] {
        let one: libc::c_int = 1;
        // SAFETY: the option takes an integer of this size.
        let set =
            unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, std::ptr::from_ref(&one).cast(), 4) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}
