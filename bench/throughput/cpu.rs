//! Where CPU time goes: per process and core from `/proc`, and user against kernel time exact to the system call.
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use serde::Serialize;

use crate::bpf;

/// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// CPU time of all threads of `pid`, from the scheduler's own sums (late by a tick at most).
pub fn process_ns(pid: u32) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // a thread may end while we look
        let Ok(text) = std::fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

/// Resident set of `pid`, in bytes.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib * 1024)
}

/// Busy and total time of one core (or of all, `None`) since boot, in ticks of `/proc/stat`; only ratios matter.
#[derive(Clone, Copy)]
pub struct CoreTime {
    pub busy: u64,
    pub total: u64,
}

pub fn core_time(core: Option<usize>) -> Result<CoreTime> {
    let name = core.map_or("cpu".to_owned(), |core| format!("cpu{core}"));
    let stat = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = stat
        .lines()
        .find_map(|line| line.strip_prefix(name.as_str()).filter(|rest| rest.starts_with(' ')))
        .with_context(|| format!("no {name} in /proc/stat"))?
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // user nice system idle iowait irq softirq steal
    let total: u64 = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    Ok(CoreTime { busy: total - idle, total })
}

/// Share of its core below which something else ran there, and cores' worth of foreign work above which it shows
/// (cores may share execution units, caches do).
const OWN_CORE: f64 = 0.85;
const FOREIGN: f64 = 0.15;

/// Who had the cores during a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cores {
    /// Share of its core that the source (or prober) had.
    pub source_core: f64,
    /// Share of its core that the forwarder's process had.
    pub dut_core: Option<f64>,
    /// Cores' worth of work of everyone else.
    pub foreign_cores: f64,
}

impl Cores {
    /// Whether source and forwarder had the machine to themselves.
    pub fn clean(&self) -> bool {
        self.source_core >= OWN_CORE
            && self.dut_core.is_none_or(|share| share >= OWN_CORE)
            && self.foreign_cores <= FOREIGN
    }
}

/// CPU time at one moment, of source, forwarder and machine.
#[derive(Clone, Copy)]
pub struct CoresAt {
    at_ns: u64,
    source_ns: u64,
    dut_ns: Option<u64>,
    machine: CoreTime,
}

impl CoresAt {
    /// Reads them; a forwarder without a process works on the source's account.
    pub fn read(source: u32, dut: Option<u32>) -> Result<Self> {
        Ok(Self {
            at_ns: monotonic_ns(),
            source_ns: process_ns(source)?,
            dut_ns: dut.map(process_ns).transpose()?,
            machine: core_time(None)?,
        })
    }

    /// CPU time the forwarder's process took until `later`.
    pub fn dut_ns_until(&self, later: &Self) -> Option<u64> {
        self.dut_ns.zip(later.dut_ns).map(|(start, end)| end - start)
    }

    /// How the cores were shared until `later`.
    pub fn until(&self, later: &Self) -> Cores {
        let wall = (later.at_ns - self.at_ns) as f64;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let ticks = (later.machine.total - self.machine.total) as f64;
        let busy = (later.machine.busy - self.machine.busy) as f64 / ticks * cores;
        let source_core = (later.source_ns - self.source_ns) as f64 / wall;
        let dut_core = self.dut_ns_until(later).map(|ns| ns as f64 / wall);
        Cores {
            source_core,
            dut_core,
            foreign_cores: (busy - source_core - dut_core.unwrap_or(0.0)).max(0.0),
        }
    }
}

/// On-CPU time of a process, split where system calls begin and end.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub user_ns: u64,
    pub kernel_ns: u64,
}

/// The split of one process while it is attached. Costs about 0.2 µs a system call, so it runs in a window of its own.
pub struct Meter {
    object: Object,
    accounts: MapHandle,
}

/// A meter at work.
pub struct Metering<'a> {
    meter: &'a Meter,
    _links: Vec<Link>,
    pid: u32,
    start_ns: u64,
}

const METER: [&str; 3] = ["meter_enter", "meter_exit", "meter_switch"];

impl Meter {
    pub fn new(object: &Path) -> Result<Self> {
        let object = bpf::load(object, &METER)?;
        let accounts = bpf::map(&object, "accounts")?;
        Ok(Self { object, accounts })
    }

    /// Starts metering `pid` (as the initial PID namespace numbers it).
    pub fn start(&self, pid: u32) -> Result<Metering<'_>> {
        self.watch(0)?;
        let links = METER
            .iter()
            .map(|name| {
                let program = self.object.progs_mut().find(|program| program.name() == *name);
                Ok(program.context("meter program")?.attach()?)
            })
            .collect::<Result<Vec<_>>>()?;
        for thread in self.accounts.keys().collect::<Vec<_>>() {
            self.accounts.delete(&thread)?;
        }
        // attaching takes its time; nothing counts until all three are there
        self.watch(pid)?;
        Ok(Metering { meter: self, _links: links, pid, start_ns: process_ns(pid)? })
    }

    fn watch(&self, pid: u32) -> Result<()> {
        let metered = bpf::map(&self.object, "metered")?;
        Ok(metered.update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY)?)
    }
}

impl Metering<'_> {
    /// Ends metering. A thread that made no system call meanwhile was in user mode all along.
    pub fn finish(self) -> Result<Split> {
        let total = process_ns(self.pid)? - self.start_ns;
        self.meter.watch(0)?;
        let now = monotonic_ns();
        let mut split = Split { user_ns: 0, kernel_ns: 0 };
        for thread in self.meter.accounts.keys().collect::<Vec<_>>() {
            let Some(bytes) = self.meter.accounts.lookup(&thread, MapFlags::ANY)? else { continue };
            let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            let [user, kernel, since, in_kernel] = words[..] else { continue };
            let open = if since == 0 { 0 } else { now.saturating_sub(since) };
            split.user_ns += user + if in_kernel == 0 { open } else { 0 };
            split.kernel_ns += kernel + if in_kernel == 0 { 0 } else { open };
        }
        // the sums lag by up to a tick, so only a clear gap is a thread the meter never saw
        let seen = split.user_ns + split.kernel_ns;
        if total > seen + total / 20 {
            split.user_ns += total - seen;
        }
        Ok(split)
    }
}

/// Number of `fd`, for maps that hold file descriptors.
pub fn fd_bytes(fd: &impl AsRawFd) -> [u8; 4] {
    fd.as_raw_fd().to_ne_bytes()
}
