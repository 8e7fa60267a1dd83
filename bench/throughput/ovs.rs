//! Open vSwitch with DPDK's af_xdp ports and a vxlan tunnel, as Debian packages it; private database and sockets.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::forwarders::DUT_CORE;
use crate::frames::{IP_FAR, IP_NEAR, MAC_UPLINK, MAC_VTEP, VNI, ip, mac};
use crate::process::{Child, pause};
use crate::topology::Place;

const SWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const TIMEOUT: &str = "--timeout=10";

/// A running switch; its daemons end with it.
pub struct Ovs {
    switchd: Child,
    _database: Child,
    _memory: HugePages,
    directory: PathBuf,
}

impl Ovs {
    /// Why it cannot run here, if it cannot.
    pub fn missing() -> Option<String> {
        let packages = "apt-get install openvswitch-switch-dpdk librte-net-af-xdp23";
        if !Path::new(SWITCHD).exists() || !Path::new(SCHEMA).exists() {
            return Some(format!("no {SWITCHD}: {packages}"));
        }
        drivers().err().map(|error| format!("{error}: {packages}"))
    }

    /// Starts database and switch, and builds the two bridges: overlay with the tunnel, underlay with the encap IP.
    pub fn start(scratch: &Path) -> Result<Self> {
        let directory = scratch.join("ovs");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory)?;
        let path = |name: &str| directory.join(name).display().to_string();
        let database = path("conf.db");
        run(Command::new("ovsdb-tool").args(["create", &database, SCHEMA]))?;
        let remote = format!("--remote=punix:{}", path("db.sock"));
        let control = format!("--unixctl={}", path("db.ctl"));
        let memory = HugePages::reserve()?;
        let server = daemon(&directory, "/usr/sbin/ovsdb-server", &[&database, &remote, &control], "db.log")?;
        wait_for(&directory.join("db.sock"))?;
        vsctl(&directory, "--no-wait init")?;
        vsctl(&directory, &dpdk_options()?)?;
        let remote = format!("unix:{}", path("db.sock"));
        let control = format!("--unixctl={}", path("vs.ctl"));
        let switchd = daemon(&directory, SWITCHD, &[&remote, &control], "vs.log")?;
        let ovs = Self { switchd, _database: server, _memory: memory, directory };
        ovs.configure().with_context(|| ovs.log())?;
        Ok(ovs)
    }

    fn configure(&self) -> Result<()> {
        wait_for(&self.directory.join("vs.ctl"))?;
        let port = |name| {
            format!(
                "-- set interface {name} type=dpdk options:dpdk-devargs=net_af_xdp_{name},iface={name} options:n_rxq=1"
            )
        };
        let (near, far) = (ip(IP_NEAR), ip(IP_FAR));
        let vsctl = |line: &str| vsctl(&self.directory, line);
        vsctl(&format!(
            "add-br br-phy -- set bridge br-phy datapath_type=netdev other_config:hwaddr=\"{}\"",
            mac(MAC_UPLINK)
        ))?;
        vsctl(&format!("add-port br-phy r0 {}", port("r0")))?;
        Place::Dut.ip(&format!("addr replace {near}/24 dev br-phy"))?;
        Place::Dut.ip("link set br-phy up")?;
        vsctl("add-br br-int -- set bridge br-int datapath_type=netdev")?;
        vsctl(&format!("add-port br-int l0 {} ofport_request=1", port("l0")))?;
        vsctl(&format!(
            "add-port br-int vx0 -- set interface vx0 type=vxlan options:remote_ip={far} options:key={VNI} \
             ofport_request=2"
        ))?;
        let bridge = format!("unix:{}", self.directory.join("br-int.mgmt").display());
        run(self.tool("ovs-ofctl").args(["del-flows", &bridge]))?;
        for flow in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
            run(self.tool("ovs-ofctl").args(["add-flow", &bridge, flow]))?;
        }
        let control = self.directory.join("vs.ctl");
        run(self.tool("ovs-appctl").arg("-t").arg(control).args([
            "tnl/neigh/set",
            "br-phy",
            &far,
            &mac(MAC_VTEP),
        ]))?;
        pause(Duration::from_secs(1))
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("OVS_RUNDIR", &self.directory);
        command
    }

    pub fn pid(&self) -> u32 {
        self.switchd.pid()
    }

    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("vs.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // without --cleanup it leaves its tap devices and XDP programs behind
        let control = self.directory.join("vs.ctl");
        let _ = run(self.tool("ovs-appctl").arg(TIMEOUT).arg("-t").arg(control).args(["exit", "--cleanup"]));
        self.switchd.stop(Duration::from_secs(5));
        for line in ["link set l0 xdp off", "link set r0 xdp off", "link del br-phy", "link del br-int"] {
            let _ = Place::Dut.ip(line);
        }
    }
}

/// Huge pages for DPDK, which OVS does not run without; what was reserved before is restored in the end.
struct HugePages {
    before: u64,
}

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
/// Of 2 MiB each: the 110 MB below, and some to spare.
const PAGES: u64 = 64;

impl HugePages {
    fn reserve() -> Result<Self> {
        let before = std::fs::read_to_string(HUGE_PAGES)?.trim().parse()?;
        let reservation = Self { before };
        std::fs::write(HUGE_PAGES, (before + PAGES).to_string())?;
        let got: u64 = std::fs::read_to_string(HUGE_PAGES)?.trim().parse()?;
        anyhow::ensure!(got >= before + PAGES, "no memory for {PAGES} huge pages");
        Ok(reservation)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(HUGE_PAGES, self.before.to_string()) {
            eprintln!("warning: {HUGE_PAGES}: {error}");
        }
    }
}

/// Starts a daemon that keeps all its files in `directory`.
fn daemon(directory: &Path, program: &str, arguments: &[&str], log: &str) -> Result<Child> {
    let environment = format!("OVS_RUNDIR={}", directory.display());
    let arguments = [&[environment.as_str(), program], arguments].concat();
    Child::program(Place::Dut, Path::new("/usr/bin/env"), &arguments, &directory.join(log))
}

/// DPDK loads no driver by itself; af_xdp is in a package of its own, the mempool driver with the others.
fn drivers() -> Result<[PathBuf; 2]> {
    let libraries = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let find = |name: &str| {
        let folders = ["dpdk/pmds-23.0", "."].map(|folder| libraries.join(folder).join(name));
        folders.into_iter().find(|path| path.exists()).with_context(|| format!("no DPDK driver {name}"))
    };
    Ok([find("librte_mempool_ring.so.23")?, find("librte_net_af_xdp.so.23")?])
}

fn dpdk_options() -> Result<String> {
    let [mempool, af_xdp] = drivers()?;
    Ok(format!(
        "--no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:dpdk-lcore-mask=0x1 other_config:dpdk-socket-mem=110 \
         other_config:pmd-cpu-mask={:#x} \
         other_config:dpdk-extra=--no-pci\\ --no-telemetry\\ -d\\ {}\\ -d\\ {}",
        1 << DUT_CORE,
        mempool.display(),
        af_xdp.display()
    ))
}

fn vsctl(directory: &Path, line: &str) -> Result<()> {
    let mut command = Command::new("ovs-vsctl");
    command.arg(format!("--db=unix:{}", directory.join("db.sock").display())).arg(TIMEOUT);
    command.env("OVS_RUNDIR", directory);
    // a value with a space in it has it escaped
    let line = line.replace("\\ ", "\u{0}");
    command.args(line.split_whitespace().map(|word| word.replace('\u{0}', " ")));
    run(&mut command)
}

fn wait_for(path: &Path) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !path.exists() {
        if Instant::now() > end {
            bail!("{} did not appear", path.display());
        }
        pause(Duration::from_millis(20))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
