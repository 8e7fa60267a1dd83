//! Three network namespaces in a row: tenant `g0 – l0` forwarder `r0 – s0` far VTEP. Dropping it removes them.
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::frames::{MAC_ACCESS, MAC_TENANT, MAC_UPLINK, MAC_VTEP, mac};

const PREFIX: &str = "fr-bench-";

/// One end of the rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tenant's host, interface `g0`.
    Tenant,
    /// The device under test, interfaces `l0` (access) and `r0` (uplink).
    Dut,
    /// The far VTEP, interface `s0`.
    Far,
}

impl Place {
    const ALL: [Self; 3] = [Self::Tenant, Self::Dut, Self::Far];

    /// Name of the network namespace.
    pub fn namespace(self) -> String {
        let name = match self {
            Self::Tenant => "gen",
            Self::Dut => "dut",
            Self::Far => "sink",
        };
        format!("{PREFIX}{name}")
    }

    /// `ip netns exec <namespace>`, to be completed with a command.
    pub fn exec(self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace()]);
        command
    }

    /// Runs `ip` with `arguments` (split at spaces) inside the namespace.
    pub fn ip(self, arguments: &str) -> Result<()> {
        let namespace = self.namespace();
        let mut command = Command::new("ip");
        command.args(["-n", &namespace]).args(arguments.split_whitespace());
        run(command)
    }

    /// Runs a command line (split at spaces) inside the namespace.
    pub fn run(self, line: &str) -> Result<()> {
        let mut command = self.exec();
        command.args(line.split_whitespace());
        run(command)
    }

    /// Writes `value` to a file under `/proc/sys/net` of the namespace.
    pub fn sysctl(self, key: &str, value: &str) -> Result<()> {
        let mut command = self.exec();
        command.args(["sh", "-c", &format!("echo {value} > /proc/sys/net/{key}")]);
        run(command)
    }
}

/// The rig itself.
pub struct Topology {
    /// MTU of all four interfaces.
    pub mtu: u32,
}

impl Topology {
    /// Builds the rig, after removing what a crashed run left behind.
    pub fn new(mtu: u32) -> Result<Self> {
        remove_stale()?;
        let topology = Self { mtu };
        for place in Place::ALL {
            run_line(&format!("ip netns add {}", place.namespace()))?;
            // router solicitations and the like would be counted as traffic
            place.sysctl("ipv6/conf/all/disable_ipv6", "1")?;
            place.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
            place.ip("link set lo up")?;
        }
        wire(mtu, (Place::Tenant, "g0", MAC_TENANT), (Place::Dut, "l0", MAC_ACCESS))?;
        wire(mtu, (Place::Dut, "r0", MAC_UPLINK), (Place::Far, "s0", MAC_VTEP))?;
        Place::Dut.ip("link set l0 promisc on")?;
        Place::Dut.ip("link set r0 promisc on")?;
        Place::Dut.sysctl("ipv4/conf/all/rp_filter", "0")?;
        Ok(topology)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        if let Err(error) = remove_stale() {
            eprintln!("warning: {error:#}");
        }
    }
}

type End = (Place, &'static str, [u8; 6]);

fn wire(mtu: u32, a: End, b: End) -> Result<()> {
    run_line(&format!(
        "ip link add {} netns {} address {} mtu {mtu} type veth peer name {} netns {} address {} mtu {mtu}",
        a.1,
        a.0.namespace(),
        mac(a.2),
        b.1,
        b.0.namespace(),
        mac(b.2),
    ))?;
    for (place, interface, _) in [a, b] {
        place.ip(&format!("link set {interface} up"))?;
        // GRO turns NAPI on, without which the peer's XDP redirect is refused, and must be set when both ends are
        // there; checksum offload would leave half-made checksums in the frames
        place.run(&format!("ethtool -K {interface} gro on tx off rx off tso off"))?;
    }
    Ok(())
}

fn remove_stale() -> Result<()> {
    let listing =
        Command::new("ip").args(["netns", "list"]).output().context("run ip: apt-get install iproute2")?;
    for line in String::from_utf8_lossy(&listing.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if name.starts_with(PREFIX) {
            run_line(&format!("ip netns del {name}"))?;
        }
    }
    Ok(())
}

/// Runs a command line, split at spaces.
pub fn run_line(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("empty command line")?);
    command.args(words);
    run(command)
}

fn run(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
