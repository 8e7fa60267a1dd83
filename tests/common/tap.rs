//! Tap devices and the cable between two of them: what a hypervisor is to the guest's port.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use super::netns::Netns;

/// Creates tap device `name` in `netns` and returns the far side of it.
fn open(netns: &Netns, name: &str) -> File {
    let path = format!("/run/netns/{}", netns.name());
    let name = name.to_owned();
    // A thread of its own, because changing the namespace changes it for all that the thread does later.
    let opened = std::thread::spawn(move || {
        let target = File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        // SAFETY: the descriptor is open for the whole call, which has no memory arguments.
        let moved = unsafe { libc::setns(target.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(moved, 0, "{path}: {}", std::io::Error::last_os_error());
        let tap = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: ifreq is integers and arrays of them, for which all-zero bytes are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is.
        let created = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        assert_eq!(created, 0, "tap {name}: {}", std::io::Error::last_os_error());
        tap
    });
    opened.join().unwrap()
}

/// What happens to a frame on its way; an empty frame is lost.
pub type Change = fn(&[u8]) -> Vec<u8>;

/// Creates a tap device at both ends and carries frames between them until either is gone.
pub fn connect(a: (&Netns, &str), b: (&Netns, &str)) {
    connect_through(a, b, <[u8]>::to_vec, <[u8]>::to_vec);
}

/// The same with something on the cable that changes frames from `a` to `b`, and from `b` to `a`.
pub fn connect_through(a: (&Netns, &str), b: (&Netns, &str), there: Change, back: Change) {
    let (left, right) = (open(a.0, a.1), open(b.0, b.1));
    let copies = [(left.try_clone(), right.try_clone(), there), (Ok(right), Ok(left), back)];
    for (from, to, change) in copies {
        let (mut from, mut to) = (from.unwrap(), to.unwrap());
        std::thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            while let Ok(len) = from.read(&mut frame) {
                // A device that is down refuses the frame, as a cable in an unlit port loses it.
                let _ = to.write(&change(&frame[..len]));
            }
        });
    }
}
