//! flowrail as the device under test: writes its configuration, starts it, waits until it answers, reads its counters.
use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::forwarders::{DUT_CORE, Figures};
use crate::frames::{IP_FAR, IP_NEAR, MAC_FAR, MAC_TENANT, MAC_VTEP, VNI, ip, mac};
use crate::options::Options;
use crate::process::{Child, pause};
use crate::topology::Place;
use crate::xsk_l2fwd::CHUNK;

/// A running flowrail.
pub struct Flowrail {
    child: Child,
    program: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    /// What a turn of its loop without packets takes.
    idle_turn_ns: Option<f64>,
}

impl Flowrail {
    /// Starts it with `endpoints` MACs behind the far VTEP and waits until it answers on its control socket.
    pub fn start(options: &Options, scratch: &Path, endpoints: u32) -> Result<Self> {
        let mut flowrail = Self::spawn(options, scratch, endpoints)?;
        // a million entries take their time to parse
        flowrail.wait_ready(Duration::from_secs(60))?;
        flowrail.time_idle_turns()?;
        Ok(flowrail)
    }

    /// Starts it, and leaves it to the caller to see when it forwards.
    pub fn spawn(options: &Options, scratch: &Path, endpoints: u32) -> Result<Self> {
        let socket = scratch.join("flowrail.sock");
        let config = scratch.join("flowrail.toml");
        let log = scratch.join("flowrail.log");
        let _ = std::fs::remove_file(&socket);
        std::fs::write(&config, configuration(options, &socket, endpoints))
            .with_context(|| format!("write {}", config.display()))?;
        let program = options.flowrail();
        let arguments = ["run", "--config", config.to_str().context("scratch path is not UTF-8")?];
        let child = Child::program(Place::Dut, &program, &arguments, &log)?;
        Ok(Self { child, program, socket, log, idle_turn_ns: None })
    }

    fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while UnixStream::connect(&self.socket).is_err() {
            if !self.child.alive() {
                bail!("flowrail ended at once:\n{}", self.log());
            }
            if Instant::now() > end {
                bail!("flowrail opened no control socket within {limit:?}:\n{}", self.log());
            }
            pause(Duration::from_millis(5))?;
        }
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The end of what it logged.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Its counters, as `flowrail show stats --json` prints them.
    pub fn stats(&self) -> Result<Value> {
        let output = Command::new(&self.program)
            .args(["show", "stats", "--json", "--socket"])
            .arg(&self.socket)
            .output()
            .with_context(|| format!("run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("flowrail show stats: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("flowrail show stats --json")
    }

    /// What it counted since it started.
    pub fn figures(&self) -> Result<Figures> {
        let stats = self.stats()?;
        let idle_turns = worker_sum(&stats, "loops")?.saturating_sub(worker_sum(&stats, "batches")?);
        Ok(Figures {
            rx: count(&stats["totals"], "received")?,
            tx: count(&stats["totals"], "forwarded")?,
            idle_ns: self.idle_turn_ns.map(|ns| (idle_turns as f64 * ns) as u64),
        })
    }

    /// Bytes of its UMEM.
    pub fn umem_bytes(&self) -> Result<u64> {
        let stats = self.stats()?;
        let workers = stats["workers"].as_array().context("stats without workers")?;
        let frames = workers.iter().map(|worker| count(&worker["frames"], "total")).sum::<Result<u64>>()?;
        Ok(frames * u64::from(CHUNK))
    }

    /// Learns what a turn without packets costs, to tell idle from busy time later. Nothing may arrive meanwhile.
    fn time_idle_turns(&mut self) -> Result<()> {
        let (start, before) = (Instant::now(), worker_sum(&self.stats()?, "loops")?);
        pause(IDLE_WINDOW)?;
        let (time, after) = (start.elapsed(), worker_sum(&self.stats()?, "loops")?);
        if after > before {
            self.idle_turn_ns = Some(time.as_nanos() as f64 / (after - before) as f64);
        }
        Ok(())
    }
}

const IDLE_WINDOW: Duration = Duration::from_millis(300);

fn worker_sum(stats: &Value, field: &str) -> Result<u64> {
    let workers = stats["workers"].as_array().context("stats without workers")?;
    workers.iter().map(|worker| count(worker, field)).sum()
}

fn count(object: &Value, field: &str) -> Result<u64> {
    object[field].as_u64().with_context(|| format!("flowrail show stats --json has no {field}"))
}

/// The configuration: one network between the access port and the far VTEP, everything static.
fn configuration(options: &Options, socket: &Path, endpoints: u32) -> String {
    let Options { batch, tx_budget, ring_size, .. } = options;
    let mut text = format!(
        r#"[workers]
cores = [{DUT_CORE}]
idle = "spin"
batch = {batch}
tx_budget = {tx_budget}
ring_size = {ring_size}
umem_frames = {frames}
frame_size = {CHUNK}
huge_pages = "off"

[control]
socket = "{socket}"

[[uplink]]
interface = "r0"
encap_ips = ["{near}"]

[[network]]
name = "n100"
vni = {VNI}
peers = ["far"]

[[port]]
interface = "l0"
network = "n100"
macs = ["{tenant}"]

[[neighbor]]
uplink = "r0"
ip = "{far}"
mac = "{vtep}"

[[peer]]
name = "far"
encap_ips = ["{far}"]
"#,
        // memory as l2fwd has it: caches and TLB see the difference
        frames = ring_size * 4,
        socket = socket.display(),
        near = ip(IP_NEAR),
        far = ip(IP_FAR),
        tenant = mac(MAC_TENANT),
        vtep = mac(MAC_VTEP),
    );
    for index in 0..endpoints {
        let [a, b, c, d] = index.to_be_bytes();
        // the first is the one that gets the traffic
        let address = if index == 0 { MAC_FAR } else { [6, 0, a, b, c, d] };
        let _ = write!(text, "\n[[peer.endpoint]]\nnetwork = \"n100\"\nmac = \"{}\"\n", mac(address));
    }
    text
}
