//! One question to rtnetlink: which XDP program is attached to an interface. For the error that says who is in the way.
#![expect(unsafe_code, reason = "std opens no netlink socket and does not resolve interface names")]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};

/// `struct nlmsghdr` and `struct ifinfomsg`, 16 bytes each.
const HEADER: usize = 16;
/// The kernel's answer has no per-VF data unless asked for, and then fits a page; one `read` takes it whole.
const ANSWER: usize = 32 * 1024;

const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;

/// Index of the interface in the network namespace of the calling thread.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Number of the XDP program attached to the interface, whatever the mode and whoever attached it.
pub fn attached_program(if_index: u32) -> io::Result<Option<u32>> {
    let mut socket = open()?;
    socket.write_all(&link_request(if_index))?;
    let mut answer = vec![0; ANSWER];
    let length = socket.read(&mut answer)?;
    program_id(answer.get(..length).unwrap_or_default())
}

/// A socket of the network namespace of the calling thread.
pub fn open() -> io::Result<File> {
    // SAFETY: takes no pointer.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above just opened it and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// RTM_GETLINK for one interface. Address 0, the default of an unconnected netlink socket, is the kernel.
fn link_request(if_index: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(2 * HEADER);
    request.extend(32u32.to_ne_bytes()); // length
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend(1u16.to_ne_bytes()); // NLM_F_REQUEST
    request.extend([0; 8]); // sequence, sender
    request.extend([0; 4]); // family, padding, device type
    request.extend(if_index.to_ne_bytes());
    request.extend([0; 8]); // flags, change mask
    request
}

/// The program's number in the answer to [`link_request`].
fn program_id(answer: &[u8]) -> io::Result<Option<u32>> {
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "rtnetlink's answer is cut");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if kind.ok_or_else(cut)? != libc::RTM_NEWLINK {
        // NLMSG_ERROR: a negative error number follows the header.
        let errno = answer.get(HEADER..).and_then(word).map_or(0, u32::cast_signed);
        return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
    }
    let attributes = answer.get(2 * HEADER..).ok_or_else(cut)?;
    // Several modes at once (offload beside another) have no common number, so each mode's is asked for as well.
    Ok(attribute(attributes, libc::IFLA_XDP).and_then(|xdp| {
        [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID]
            .into_iter()
            .find_map(|kind| attribute(xdp, kind).and_then(word))
            .filter(|&id| id != 0)
    }))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The payload of the first attribute of this kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    /// Flags in the upper bits of the kind.
    const KIND: u16 = 0x3fff;
    while let Some(([l0, l1, k0, k1], _)) = attributes.split_first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let payload = attributes.get(4..length)?;
        if u16::from_ne_bytes([*k0, *k1]) & KIND == kind {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + payload.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn program_id_is_found_behind_other_attributes() {
        let xdp =
            [attribute_bytes(2, &[1]), attribute_bytes(IFLA_XDP_PROG_ID, &77u32.to_ne_bytes())].concat();
        let nested = libc::IFLA_XDP | 0x8000;
        let body = [vec![0; HEADER], attribute_bytes(3, b"eth0\0"), attribute_bytes(nested, &xdp)].concat();
        assert_eq!(program_id(&answer(libc::RTM_NEWLINK, &body)).unwrap(), Some(77));
    }

    #[test]
    fn no_program_is_not_an_error() {
        let body = [vec![0; HEADER], attribute_bytes(libc::IFLA_XDP, &attribute_bytes(2, &[0]))].concat();
        assert_eq!(program_id(&answer(libc::RTM_NEWLINK, &body)).unwrap(), None);
    }

    #[test]
    fn error_answer_carries_its_errno() {
        let error = program_id(&answer(2, &(-libc::ENODEV).to_ne_bytes())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn cut_answers_end_quietly() {
        let xdp = attribute_bytes(IFLA_XDP_PROG_ID, &77u32.to_ne_bytes());
        let whole =
            answer(libc::RTM_NEWLINK, &[vec![0; HEADER], attribute_bytes(libc::IFLA_XDP, &xdp)].concat());
        for length in 0..whole.len() {
            assert_ne!(program_id(&whole[..length]).ok().flatten(), Some(77), "{length}");
        }
    }

    #[test]
    fn loopback_is_found_and_nonsense_is_not() {
        assert_eq!(interface_index("lo").unwrap(), 1);
        assert_eq!(attached_program(1).unwrap(), None);
        assert!(interface_index("no-such-device").is_err());
        assert!(interface_index("nul\0inside").is_err());
        assert_eq!(attached_program(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
