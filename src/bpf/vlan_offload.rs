//! A device that strips VLAN tags before XDP hides them: a tagged frame looks untagged, and would cross from its VLAN
//! into the underlay or the tenant's network. So the offload is off while steering is attached. A killed process leaves
//! it off, which costs the kernel a little work per tagged frame and nothing else.
#![expect(unsafe_code, reason = "SIOCETHTOOL is an ioctl")]

use std::io;
use std::os::fd::AsRawFd as _;

use super::netlink;

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// The interface's RX VLAN offload, switched off; on again when dropped.
#[derive(Debug)]
pub struct Suspended {
    interface: String,
}

/// Switches the offload off. `None` when it was off.
pub fn suspend(interface: &str) -> io::Result<Option<Suspended>> {
    let flags = ethtool(interface, ETHTOOL_GFLAGS, 0)?;
    if flags & ETH_FLAG_RXVLAN == 0 {
        return Ok(None);
    }
    ethtool(interface, ETHTOOL_SFLAGS, flags & !ETH_FLAG_RXVLAN)?;
    Ok(Some(Suspended { interface: interface.to_owned() }))
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let restored = ethtool(&self.interface, ETHTOOL_GFLAGS, 0)
            .and_then(|flags| ethtool(&self.interface, ETHTOOL_SFLAGS, flags | ETH_FLAG_RXVLAN));
        if let Err(error) = restored {
            tracing::debug!(interface = %self.interface, %error, "RX VLAN offload stays off");
        }
    }
}

/// One `struct ethtool_value` command: gives the value the kernel left in it.
fn ethtool(interface: &str, command: u32, value: u32) -> io::Result<u32> {
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        value: u32,
    }
    let mut argument = EthtoolValue { command, value };
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut argument).cast();
    // A socket of any family carries the question, and this one needs neither address nor port.
    let socket = netlink::open()?;
    // SAFETY: `request` names the interface with a NUL behind it and points to `argument`, which both outlive the call;
    // these commands read and write one `ethtool_value` there.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(argument.value) }
}
