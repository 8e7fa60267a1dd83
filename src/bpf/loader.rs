//! One port's copy of the steering program: load, sockets, encap IPs, attach, counters.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex, PoisonError};

use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray, XskMap};
use aya::programs::xdp::XdpLink;
use aya::programs::{Xdp, XdpMode, loaded_programs};
use aya::{Ebpf, EbpfLoader};

use super::abi::{self, Outcome, OutcomeCount};
use super::error::{BpfError, OtherProgram};
use super::{netlink, vlan_offload};
use crate::ids::QueueId;

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("FLOWRAIL_STEER_OBJECT"));
const PROGRAM: &str = "flowrail_steer";

/// What a port takes from the wire; the rest stays with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerMode {
    /// VXLAN (UDP 4789) to our encap IPs.
    Underlay {
        /// VID of every frame of the underlay, 1 to 4094; `None`: untagged.
        vlan: Option<u16>,
        /// RoCEv2 outside VXLAN (UDP 4791) as well, whatever its destination.
        native_roce: bool,
    },
    /// Every frame of an access port.
    OverlayAll,
    /// An access port's RoCEv2 (UDP 4791, untagged).
    OverlayRoce,
}

/// How far the port may fall back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachPolicy {
    /// In the driver, or not at all.
    NativeOnly,
    /// In the driver; where it refuses, in the kernel's generic path, with a warning in the log.
    NativeOrGeneric,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel allocates anything.
    Native,
    /// Behind the driver, on socket buffers: works everywhere, slowly.
    Generic,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// The steering program of one port. Dropping it detaches the program; so does the end of the process, however it ends.
#[derive(Debug)]
pub struct Steering {
    interface: String,
    if_index: u32,
    encap_ips: BTreeSet<IpAddr>,
    // Dropped in this order: frames go to the kernel again before the tag offload comes back and the maps go.
    link: Option<XdpLink>,
    vlan_offload: Option<vlan_offload::Suspended>,
    ebpf: Ebpf,
}

impl Steering {
    /// Loads a copy of the program with its own maps for `interface`, which lies in the network namespace of the calling
    /// thread. No memory limit is raised: kernels that know multi-buffer XDP charge BPF memory to the cgroup.
    ///
    /// # Errors
    /// [`BpfError::NoInterface`], [`BpfError::Permission`], [`BpfError::Vlan`], [`BpfError::TooManyEncapIps`], or
    /// [`BpfError::Load`] when the kernel is too old.
    pub fn load(interface: &str, mode: SteerMode, encap_ips: &[IpAddr]) -> Result<Self, BpfError> {
        let config = config(interface, mode)?;
        let if_index = netlink::interface_index(interface)
            .map_err(|_| BpfError::NoInterface { interface: interface.to_owned() })?;
        let ebpf = load_object().map_err(|error| BpfError::from_load(interface, error))?;
        let mut steering = Self {
            interface: interface.to_owned(),
            if_index,
            encap_ips: BTreeSet::new(),
            link: None,
            vlan_offload: None,
            ebpf,
        };
        let interface = interface.to_owned();
        Array::try_from(steering.map_mut("steer_config")?)
            .and_then(|mut map| map.set(0, config, 0))
            .map_err(|source| BpfError::Map { interface, map: "steer_config", source })?;
        steering.set_encap_ips(encap_ips)?;
        steering.verify()?;
        Ok(steering)
    }

    /// Makes `socket` the target of the frames that arrive on `queue`. It must be bound to this interface and queue; the
    /// kernel drops what it cannot deliver. Closing the socket takes it out again.
    ///
    /// # Errors
    /// [`BpfError::Queue`] beyond the map, [`BpfError::Socket`] when the kernel refuses the socket.
    pub fn insert_socket(&mut self, queue: QueueId, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let interface = self.interface.clone();
        if queue.0 >= abi::QUEUES {
            return Err(BpfError::Queue { interface, queue });
        }
        XskMap::try_from(self.map_mut("xsks")?)
            .and_then(|mut map| map.set(queue.0, socket, 0))
            .map_err(|source| BpfError::Socket { interface, queue, source })
    }

    /// Replaces the encap IPs: new ones first, so that one that stays is never missing.
    ///
    /// # Errors
    /// [`BpfError::TooManyEncapIps`] before anything changed; [`BpfError::Map`], after which a further call completes the
    /// change.
    pub fn set_encap_ips(&mut self, ips: &[IpAddr]) -> Result<(), BpfError> {
        let wanted: BTreeSet<IpAddr> = ips.iter().copied().collect();
        let v4 = wanted.iter().filter(|ip| ip.is_ipv4()).count();
        let count = v4.max(wanted.len() - v4);
        if count > abi::ENCAP_IPS {
            return Err(BpfError::TooManyEncapIps { interface: self.interface.clone(), count });
        }
        let added: Vec<IpAddr> = wanted.difference(&self.encap_ips).copied().collect();
        let removed: Vec<IpAddr> = self.encap_ips.difference(&wanted).copied().collect();
        for ip in added {
            self.change_encap_ip(ip, true)?;
            self.encap_ips.insert(ip);
        }
        for ip in removed {
            self.change_encap_ip(ip, false)?;
            self.encap_ips.remove(&ip);
        }
        Ok(())
    }

    /// Attaches the program, and switches off the device's RX VLAN offload while it is attached, because XDP does not see
    /// a tag that the device stripped.
    ///
    /// # Errors
    /// [`BpfError::Busy`] with the program that is in the way, [`BpfError::Mtu`], [`BpfError::NoNativeXdp`],
    /// [`BpfError::Permission`], [`BpfError::NoInterface`] when it has gone since, or [`BpfError::Attach`].
    pub fn attach(&mut self, policy: AttachPolicy) -> Result<AttachMode, BpfError> {
        // Held here, so that a failure below switches it on again.
        let vlan_offload = vlan_offload::suspend(&self.interface);
        let mode = self.attach_by(policy)?;
        match vlan_offload {
            Ok(suspended) => self.vlan_offload = suspended,
            Err(error) => tracing::warn!(
                interface = %self.interface,
                %error,
                "RX VLAN offload cannot be switched off: VLAN tags that the device strips are not seen"
            ),
        }
        Ok(mode)
    }

    /// What the program did so far, summed over CPUs, in the order of [`Outcome::ALL`].
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn outcomes(&self) -> Result<Vec<(Outcome, OutcomeCount)>, BpfError> {
        let failed = |source| BpfError::Map { interface: self.interface.clone(), map: "outcomes", source };
        let map = self.ebpf.map("outcomes").ok_or(BpfError::Object { name: "outcomes" })?;
        let map: PerCpuArray<_, OutcomeCount> = PerCpuArray::try_from(map).map_err(failed)?;
        Outcome::ALL
            .into_iter()
            .map(|outcome| {
                let per_cpu = map.get(&outcome.key(), 0).map_err(failed)?;
                let sum = per_cpu.iter().fold(OutcomeCount::default(), |sum, cpu| OutcomeCount {
                    packets: sum.packets.wrapping_add(cpu.packets),
                    bytes: sum.bytes.wrapping_add(cpu.bytes),
                });
                Ok((outcome, sum))
            })
            .collect()
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut Map, BpfError> {
        self.ebpf.map_mut(name).ok_or(BpfError::Object { name })
    }

    fn program(&mut self) -> Result<&mut Xdp, BpfError> {
        self.ebpf
            .program_mut(PROGRAM)
            .and_then(|program| program.try_into().ok())
            .ok_or(BpfError::Object { name: PROGRAM })
    }

    /// Hands the program to the kernel's verifier.
    fn verify(&mut self) -> Result<(), BpfError> {
        let interface = self.interface.clone();
        self.program()?.load().map_err(|error| BpfError::from_load(&interface, error.into()))
    }

    fn change_encap_ip(&mut self, ip: IpAddr, present: bool) -> Result<(), BpfError> {
        let interface = self.interface.clone();
        let (map, result) = match ip {
            IpAddr::V4(ip) => ("encap_ip4", change_key(self.map_mut("encap_ip4")?, ip.octets(), present)),
            IpAddr::V6(ip) => ("encap_ip6", change_key(self.map_mut("encap_ip6")?, ip.octets(), present)),
        };
        result.map_err(|source| BpfError::Map { interface, map, source })
    }

    fn attach_by(&mut self, policy: AttachPolicy) -> Result<AttachMode, BpfError> {
        match self.attach_as(AttachMode::Native) {
            Err(cause) if policy == AttachPolicy::NativeOrGeneric && cause.is_driver_refusal() => {
                tracing::warn!(
                    interface = %self.interface,
                    errno = cause.errno().map(tracing::field::display),
                    "native XDP refused by the driver: falling back to generic mode, which is several times slower"
                );
                self.attach_as(AttachMode::Generic)
            }
            native => native,
        }
    }

    fn attach_as(&mut self, mode: AttachMode) -> Result<AttachMode, BpfError> {
        let (interface, if_index) = (self.interface.clone(), self.if_index);
        let xdp_mode = match mode {
            AttachMode::Native => XdpMode::Driver,
            AttachMode::Generic => XdpMode::Skb,
        };
        let program = self.program()?;
        // The link is a file descriptor, so it ends with the process. (aya falls back to netlink, whose attachments stay, on
        // EINVAL from kernels without XDP links; those refuse this program already at load.)
        let link = program
            .attach_to_if_index(if_index, xdp_mode)
            .and_then(|id| program.take_link(id))
            .map_err(|error| BpfError::from_attach(&interface, mode, error, || occupant(if_index)))?;
        self.link = Some(link);
        Ok(mode)
    }
}

fn config(interface: &str, mode: SteerMode) -> Result<abi::Config, BpfError> {
    let untagged = |mode| abi::Config { mode, native_roce: false, vlan: abi::UNTAGGED };
    match mode {
        SteerMode::Underlay { vlan: Some(vlan), .. } if !(1..=4094).contains(&vlan) => {
            Err(BpfError::Vlan { interface: interface.to_owned(), vlan })
        }
        SteerMode::Underlay { vlan, native_roce } => {
            Ok(abi::Config { mode: abi::Mode::Underlay, native_roce, vlan: vlan.unwrap_or(abi::UNTAGGED) })
        }
        SteerMode::OverlayAll => Ok(untagged(abi::Mode::OverlayAll)),
        SteerMode::OverlayRoce => Ok(untagged(abi::Mode::OverlayRoce)),
    }
}

/// aya parses the kernel's whole BTF for every new loader (28 ms), which this object, having nothing to relocate, does
/// not need: one loader serves all ports and keeps none of it.
fn load_object() -> Result<Ebpf, aya::EbpfError> {
    static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        Mutex::new(loader)
    });
    LOADER.lock().unwrap_or_else(PoisonError::into_inner).load(OBJECT)
}

fn change_key<const N: usize>(map: &mut Map, key: [u8; N], present: bool) -> Result<(), MapError> {
    let mut map: HashMap<_, [u8; N], u8> = HashMap::try_from(map)?;
    if present { map.insert(key, 1, 0) } else { map.remove(&key) }
}

/// The program attached to the interface, if any; its name where we may ask.
fn occupant(if_index: u32) -> Option<OtherProgram> {
    let id = netlink::attached_program(if_index).ok().flatten()?;
    let name = loaded_programs()
        .map_while(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned));
    Some(OtherProgram { id, name })
}
