//! Why steering failed, each with the interface and what to do about it.

use std::fmt;
use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::{ProgramError, XdpError};

use super::abi;
use super::capabilities::MissingCapabilities;
use super::loader::AttachMode;
use crate::ids::QueueId;

/// Loading, filling or attaching the steering program failed.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// No such interface.
    #[error("interface {interface} does not exist in this network namespace: see `ip link`")]
    NoInterface {
        /// The name looked for.
        interface: String,
    },
    /// The process may not do this.
    #[error("interface {interface}: no permission to {action}: {missing}")]
    Permission {
        /// The port.
        interface: String,
        /// What was refused.
        action: &'static str,
        /// The capabilities that are missing.
        missing: MissingCapabilities,
    },
    /// VID 0 and 4095 are reserved.
    #[error("interface {interface}: VLAN {vlan} is not one of 1 to 4094")]
    Vlan {
        /// The port.
        interface: String,
        /// The VID given.
        vlan: u16,
    },
    /// More encap IPs than the map holds.
    #[error("interface {interface}: {count} encap IPs of one address family, at most {} fit", abi::ENCAP_IPS)]
    TooManyEncapIps {
        /// The port.
        interface: String,
        /// How many were given.
        count: usize,
    },
    /// A queue beyond the socket map.
    #[error("interface {interface}: queue {} is beyond the {} that steering serves; reduce the queues with \
             `ethtool -L {interface} combined N`", .queue.0, abi::QUEUES)]
    Queue {
        /// The port.
        interface: String,
        /// The queue given.
        queue: QueueId,
    },
    /// The kernel did not take the socket.
    #[error("interface {interface}: the socket of queue {} cannot be a target: it must be an AF_XDP socket, bound, \
             with RX and fill rings", .queue.0)]
    Socket {
        /// The port.
        interface: String,
        /// The queue given.
        queue: QueueId,
        /// The kernel's answer.
        source: MapError,
    },
    /// The kernel refused the program or one of its maps.
    #[error("interface {interface}: the kernel refused the steering program; Linux 5.18 or newer is needed")]
    Load {
        /// The port.
        interface: String,
        /// The kernel's answer, with the verifier's log.
        source: Box<EbpfError>,
    },
    /// Reading or writing a map failed.
    #[error("interface {interface}: map {map} of the steering program")]
    Map {
        /// The port.
        interface: String,
        /// The map's name.
        map: &'static str,
        /// The kernel's answer.
        source: MapError,
    },
    /// The object compiled in is not the one this code was written for.
    #[error("the steering object has no {name}: rebuild flowrail from clean sources")]
    Object {
        /// The map or program that is missing.
        name: &'static str,
    },
    /// Another XDP program is attached.
    #[error(
        "interface {interface}: another XDP program is attached ({program}); detach it with \
             `ip link set dev {interface} xdp off`, or, when a bpf link holds it, end the process that owns the link"
    )]
    Busy {
        /// The port.
        interface: String,
        /// The one that is there.
        program: OtherProgram,
    },
    /// The driver has no room for XDP at this MTU.
    #[error(
        "interface {interface}: the driver refuses native XDP at this MTU (ERANGE); lower it with \
             `ip link set dev {interface} mtu N` (on a veth, that of its peer), or allow generic mode"
    )]
    Mtu {
        /// The port.
        interface: String,
    },
    /// The driver has no native XDP.
    #[error(
        "interface {interface}: the driver has no native XDP (EOPNOTSUPP); allow generic mode, which is slower"
    )]
    NoNativeXdp {
        /// The port.
        interface: String,
    },
    /// Any other refusal to attach.
    #[error("interface {interface}: attaching the steering program in {mode} mode failed")]
    Attach {
        /// The port.
        interface: String,
        /// The mode tried.
        mode: AttachMode,
        /// The kernel's answer.
        source: Box<ProgramError>,
    },
}

/// An XDP program that isn't ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProgram {
    /// The kernel's number for it, as in `bpftool prog show id N`.
    pub id: u32,
    /// Its name, where the kernel lets us see it.
    pub name: Option<String>,
}

impl fmt::Display for OtherProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "id {}, name {name}", self.id),
            None => write!(f, "id {}", self.id),
        }
    }
}

impl BpfError {
    pub(super) fn from_load(interface: &str, error: EbpfError) -> Self {
        let errno = match &error {
            EbpfError::MapError(MapError::CreateError { io_error, .. })
            | EbpfError::ProgramError(ProgramError::LoadError { io_error, .. }) => io_error.raw_os_error(),
            _ => None,
        };
        let interface = interface.to_owned();
        let missing = MissingCapabilities::of_this_thread();
        let refused = match errno {
            Some(libc::EPERM) => true,
            // The verifier's word for a program that asks for more than the thread may do, or is wrong.
            Some(libc::EACCES) => !missing.is_empty(),
            _ => false,
        };
        if refused {
            Self::Permission { interface, action: "load the steering program", missing }
        } else {
            Self::Load { interface, source: Box::new(error) }
        }
    }

    /// `occupant` looks for the program that is attached already.
    pub(super) fn from_attach(
        interface: &str,
        mode: AttachMode,
        error: ProgramError,
        occupant: impl FnOnce() -> Option<OtherProgram>,
    ) -> Self {
        let errno = attach_errno(&error);
        let other = |interface| Self::Attach { interface, mode, source: Box::new(error) };
        let interface = interface.to_owned();
        match errno {
            Some(libc::EPERM) => {
                let missing = MissingCapabilities::of_this_thread();
                Self::Permission { interface, action: "attach the steering program", missing }
            }
            Some(libc::ENODEV) => Self::NoInterface { interface },
            Some(libc::ERANGE) => Self::Mtu { interface },
            Some(libc::EOPNOTSUPP) if mode == AttachMode::Native => Self::NoNativeXdp { interface },
            // EEXIST: the other one is attached in the other mode.
            Some(libc::EBUSY | libc::EEXIST) => match occupant() {
                Some(program) => Self::Busy { interface, program },
                None => other(interface),
            },
            _ => other(interface),
        }
    }

    /// Whether generic mode may work where native mode failed like this.
    pub(super) fn is_driver_refusal(&self) -> bool {
        matches!(self, Self::Mtu { .. } | Self::NoNativeXdp { .. } | Self::Attach { .. })
    }

    /// The kernel's error number, for the log.
    pub(super) fn errno(&self) -> Option<io::Error> {
        match self {
            Self::Mtu { .. } => Some(libc::ERANGE),
            Self::NoNativeXdp { .. } => Some(libc::EOPNOTSUPP),
            Self::Attach { source, .. } => attach_errno(source),
            _ => None,
        }
        .map(io::Error::from_raw_os_error)
    }
}

fn attach_errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(call) => call.io_error.raw_os_error(),
        ProgramError::XdpError(XdpError::NetlinkError(netlink)) => netlink.raw_os_error(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    fn refusal(errno: i32, occupant: Option<OtherProgram>) -> BpfError {
        let io_error = io::Error::from_raw_os_error(errno);
        let error = SyscallError { call: "bpf_link_create", io_error }.into();
        BpfError::from_attach("eth7", AttachMode::Native, error, || occupant)
    }

    #[test]
    fn refusals_by_the_driver_may_fall_back_and_say_why() {
        for (errno, hint) in
            [(libc::ERANGE, "mtu N"), (libc::EOPNOTSUPP, "generic"), (libc::EINVAL, "native")]
        {
            let error = refusal(errno, None);
            assert!(error.is_driver_refusal(), "{error}");
            assert_eq!(error.errno().and_then(|error| error.raw_os_error()), Some(errno));
            assert!(error.to_string().contains("eth7") && error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn refusals_that_generic_mode_shares_do_not_fall_back() {
        let program = OtherProgram { id: 42, name: Some("firewall".to_owned()) };
        for errno in [libc::EBUSY, libc::EEXIST] {
            let error = refusal(errno, Some(program.clone()));
            assert!(!error.is_driver_refusal());
            assert!(error.to_string().contains("id 42, name firewall"), "{error}");
        }
        assert!(!refusal(libc::EPERM, None).is_driver_refusal());
        assert!(!refusal(libc::ENODEV, None).is_driver_refusal());
    }
}
