//! The devices under test: kernel vxlan, the xsk-rs l2fwd and Open vSwitch; flowrail has a file of its own. Each starts in the middle
//! namespace, says how it is tuned, and is gone when dropped.
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;

use crate::flowrail::Flowrail;
use crate::frames::{IP_FAR, IP_NEAR, MAC_FAR, MAC_TENANT, MAC_VTEP, VNI, ip, mac};
use crate::options::Options;
use crate::ovs::Ovs;
use crate::process::Child;
use crate::topology::{Place, run_line};

/// Core of the source, the prober, and of all that the kernel does on their behalf.
pub const SOURCE_CORE: usize = 0;
/// Core of a forwarder in user space.
pub const DUT_CORE: usize = 1;
/// MTU of the rig: jumbo frames of 9000 B with their encapsulation.
pub const MTU: u32 = 9214;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    /// The kernel's vxlan device, bridged.
    Kernel,
    /// Bare AF_XDP through xsk-rs, no packet work.
    L2fwd,
    /// flowrail with everything on.
    Flowrail,
    /// Open vSwitch on DPDK's af_xdp, vxlan.
    Ovs,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::L2fwd => "l2fwd",
            Self::Flowrail => "flowrail",
            Self::Ovs => "ovs",
        }
    }

    /// MTU of the rig it can run on.
    pub fn mtu(self) -> u32 {
        match self {
            // its XDP program takes no fragments, so veth refuses it above 3506
            Self::Ovs => 3000,
            _ => MTU,
        }
    }

    /// Why it cannot run here, if it cannot.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Ovs => Ovs::missing(),
            _ => None,
        }
    }

    /// Core whose time its work takes.
    pub fn core(self) -> usize {
        match self {
            Self::Kernel => SOURCE_CORE,
            _ => DUT_CORE,
        }
    }

    /// What was tuned, for the head of the report.
    pub fn tuning(self, options: &Options) -> String {
        let Options { batch, tx_budget, ring_size, .. } = options;
        match self {
            Self::Kernel => {
                "vxlan + bridge, noudpcsum, static FDB and neighbor, nolearning, no bridge netfilter; all on the source's core"
                    .to_owned()
            }
            Self::L2fwd => format!(
                "xsk-rs 0.11, copy mode, need_wakeup, USE_SG, chunk 4096, batch {batch}, TX budget {tx_budget}, \
                 rings {ring_size}, UMEM {} frames, spin, core {DUT_CORE}",
                ring_size * 4
            ),
            Self::Flowrail => format!(
                "copy mode, chunk 4096, batch {batch}, TX budget {tx_budget}, rings {ring_size}, UMEM {} frames, \
                 spin, core {DUT_CORE}",
                ring_size * 4
            ),
            Self::Ovs => {
                format!("Debian's OVS-DPDK, af_xdp, defaults (TX budget 32), MTU 3000, core {DUT_CORE}")
            }
        }
    }
}

/// What a forwarder counted since it started.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Figures {
    /// Taken from RX rings: packets, or descriptors where a forwarder knows no packets.
    pub rx: u64,
    /// Sent and completed, in the same unit.
    pub tx: u64,
    /// Time without work, if it is known.
    pub idle_ns: Option<u64>,
}

/// One that runs.
pub enum Forwarder {
    Kernel(KernelVxlan),
    L2fwd(Child),
    Flowrail(Flowrail),
    Ovs(Ovs),
}

impl Forwarder {
    /// Starts `kind`; it forwards when this returns. `scratch` is for its files.
    pub fn start(kind: Kind, options: &Options, object: &Path, scratch: &Path) -> Result<Self> {
        Ok(match kind {
            Kind::Kernel => Self::Kernel(KernelVxlan::new()?),
            Kind::L2fwd => Self::L2fwd(Child::role(Place::Dut, "l2fwd", &l2fwd_arguments(options, object))?),
            Kind::Flowrail => Self::Flowrail(Flowrail::start(options, scratch, 1)?),
            Kind::Ovs => Self::Ovs(Ovs::start(scratch)?),
        })
    }

    /// The process whose CPU time counts; none for the kernel.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Kernel(_) => None,
            Self::L2fwd(child) => Some(child.pid()),
            Self::Flowrail(flowrail) => Some(flowrail.pid()),
            Self::Ovs(ovs) => Some(ovs.pid()),
        }
    }

    /// Its own counters, where it has any that count every frame.
    pub fn figures(&mut self) -> Result<Option<Figures>> {
        match self {
            Self::Kernel(_) | Self::Ovs(_) => Ok(None),
            Self::L2fwd(child) => Ok(Some(serde_json::from_value(child.ask()?)?)),
            Self::Flowrail(flowrail) => flowrail.figures().map(Some),
        }
    }

    /// What it said, for an error message.
    pub fn log(&self) -> String {
        match self {
            Self::Kernel(_) | Self::L2fwd(_) => String::new(),
            Self::Flowrail(flowrail) => flowrail.log(),
            Self::Ovs(ovs) => ovs.log(),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Self::L2fwd(child) = self {
            child.stop(Duration::from_secs(2));
        }
    }
}

fn l2fwd_arguments(options: &Options, object: &Path) -> Vec<String> {
    format!(
        "--object {} --interfaces l0 r0 --core {DUT_CORE} --batch {} --tx-budget {} --ring-size {}",
        object.display(),
        options.batch,
        options.tx_budget,
        options.ring_size
    )
    .split(' ')
    .map(str::to_owned)
    .collect()
}

const BRIDGE_HOOKS: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The kernel's own VTEP: a vxlan device and the access port in one bridge.
pub struct KernelVxlan;

impl KernelVxlan {
    fn new() -> Result<Self> {
        let dut = Place::Dut;
        let (near, far, vtep) = (ip(IP_NEAR), ip(IP_FAR), mac(MAC_VTEP));
        let this = Self;
        // br_netfilter, where loaded, would take every bridged frame through the IP hooks
        if Path::new(BRIDGE_HOOKS).exists() {
            dut.sysctl("bridge/bridge-nf-call-iptables", "0")?;
        }
        dut.ip(&format!("addr add {near}/24 dev r0"))?;
        dut.ip(&format!("neigh replace {far} lladdr {vtep} dev r0 nud permanent"))?;
        dut.ip(&format!(
            "link add vx100 mtu {} type vxlan id {VNI} local {near} remote {far} dstport 4789 nolearning noudpcsum",
            MTU - 64
        ))?;
        dut.ip("link add br0 type bridge mcast_snooping 0")?;
        for port in ["l0", "vx100"] {
            dut.ip(&format!("link set {port} master br0"))?;
        }
        dut.ip("link set br0 up")?;
        dut.ip("link set vx100 up")?;
        let namespace = dut.namespace();
        for (address, port) in [(MAC_FAR, "vx100"), (MAC_TENANT, "l0")] {
            run_line(&format!(
                "bridge -n {namespace} fdb replace {} dev {port} master static",
                mac(address)
            ))?;
        }
        Ok(this)
    }
}

impl Drop for KernelVxlan {
    fn drop(&mut self) {
        // best effort: a device that was never made cannot be removed, and the namespace goes in the end
        for line in ["link set l0 nomaster", "link del br0", "link del vx100", "addr flush dev r0"] {
            let _ = Place::Dut.ip(line);
        }
    }
}
