//! The order of things: rounds, and in each every forwarder in turn, so that a slow minute of the machine hits all.
use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::bpf;
use crate::cpu::Meter;
use crate::forwarders::{Kind, MTU};
use crate::latency::{Latency, WIRE};
use crate::options::Options;
use crate::process::stopped;
use crate::report;
use crate::startup::{Memory, Startup};
use crate::throughput::{Bench, Throughput};
use crate::topology::Topology;

/// All that was measured.
#[derive(Default)]
pub struct Results {
    pub throughput: Vec<Throughput>,
    pub latency: Vec<Latency>,
    pub startup: Vec<Startup>,
    pub memory: Option<Memory>,
    /// What was asked for and could not be measured, with the reason.
    pub failures: Vec<String>,
}

/// Measures and reports; whether all that was asked for could be measured.
pub fn run(options: &Options) -> Result<bool> {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("network namespaces and BPF need root: run as root, or with sudo");
    }
    let _lock = lock()?;
    let scratch = tempfile::tempdir()?;
    let object = bpf::compile(scratch.path())?;
    let meter = Meter::new(&object).map_err(|error| eprintln!("warning: no user-mode times: {error:#}")).ok();
    let bench = Bench { options, object: &object, scratch: scratch.path(), meter };
    let mut session = Session { bench, kinds: Vec::new(), results: Results::default() };
    session.choose();
    report::head(options, &session.kinds)?;
    for round in 1..=options.rounds() {
        session.round(round)?;
    }
    report::summary(options, &session.results)?;
    Ok(session.results.failures.is_empty())
}

/// Two rigs of the same name would remove each other, and disturb each other's figures anyway.
fn lock() -> Result<File> {
    let path = "/run/lock/flowrail-bench.lock";
    let file = File::create(path).with_context(|| format!("create {path}"))?;
    // SAFETY: the descriptor belongs to `file`, which is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        bail!("another flowrail bench is running ({path} is locked)");
    }
    Ok(file)
}

struct Session<'a> {
    bench: Bench<'a>,
    /// Forwarders still in the race.
    kinds: Vec<Kind>,
    results: Results,
}

impl Session<'_> {
    /// Keeps the forwarders that can run here, and says loudly which cannot.
    fn choose(&mut self) {
        for kind in self.bench.options.forwarders.iter().copied() {
            match kind.missing() {
                None if !self.kinds.contains(&kind) => self.kinds.push(kind),
                None => {}
                Some(reason) => eprintln!("SKIPPED {}: {reason}", kind.name()),
            }
        }
    }

    fn round(&mut self, round: u32) -> Result<()> {
        let mut mtus: Vec<u32> = self.kinds.iter().map(|kind| kind.mtu()).chain([MTU]).collect();
        mtus.sort_unstable_by(|a, b| b.cmp(a));
        mtus.dedup();
        for mtu in mtus {
            let topology = Topology::new(mtu)?;
            if !self.bench.options.no_throughput {
                self.throughput_round(round, topology.mtu)?;
            }
            if self.bench.options.latency {
                self.latency_round(round, topology.mtu)?;
            }
            if self.bench.options.startup && mtu == MTU {
                self.startup_round(round)?;
            }
        }
        Ok(())
    }

    fn throughput_round(&mut self, round: u32, mtu: u32) -> Result<()> {
        for &size in sizes(self.bench.options, mtu).iter() {
            for &direction in &self.bench.options.dirs {
                for kind in self.on(mtu) {
                    let outcome = self.bench.throughput(kind, size, direction, round);
                    let what = format!("{} {} {size} B", kind.name(), direction.name());
                    if let Some(result) = self.settle(kind, &what, outcome)? {
                        report::progress(round, &what, &format!("{:.3} Mpps", result.mpps), result.clean);
                        self.emit("throughput", &result)?;
                        self.results.throughput.push(result);
                    }
                }
            }
        }
        Ok(())
    }

    fn latency_round(&mut self, round: u32, mtu: u32) -> Result<()> {
        for &size in sizes(self.bench.options, mtu).iter() {
            if mtu == MTU {
                let wire = self.bench.latency(None, size, round)?;
                self.keep_latency(round, WIRE, wire)?;
            }
            for kind in self.on(mtu) {
                let outcome = self.bench.latency(Some(kind), size, round);
                let what = format!("{} round trips {size} B", kind.name());
                if let Some(result) = self.settle(kind, &what, outcome)? {
                    self.keep_latency(round, kind.name(), result)?;
                }
            }
        }
        Ok(())
    }

    fn keep_latency(&mut self, round: u32, name: &str, result: Latency) -> Result<()> {
        let what = format!("{name} round trips {} B", result.size);
        report::progress(round, &what, &format!("p50 {:.2} µs", result.times.p50 as f64 / 1e3), result.clean);
        self.emit("latency", &result)?;
        self.results.latency.push(result);
        Ok(())
    }

    fn startup_round(&mut self, round: u32) -> Result<()> {
        if !self.kinds.contains(&Kind::Flowrail) {
            return Ok(());
        }
        let outcome = self.bench.startup(round);
        if let Some(result) = self.settle(Kind::Flowrail, "start-up", outcome)? {
            report::progress(round, "flowrail start-up", &format!("{:.1} ms", result.first_frame_ms), true);
            self.emit("startup", &result)?;
            self.results.startup.push(result);
        }
        if self.results.memory.is_none() && self.kinds.contains(&Kind::Flowrail) {
            let outcome = self.bench.memory();
            if let Some(result) = self.settle(Kind::Flowrail, "memory", outcome)? {
                self.emit("memory", &result)?;
                self.results.memory = Some(result);
            }
        }
        Ok(())
    }

    /// A forwarder that fails is left out from then on; the others go on.
    fn settle<T>(&mut self, kind: Kind, what: &str, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(result) => Ok(Some(result)),
            Err(error) if stopped() => Err(error),
            Err(error) => {
                let failure = format!("{what}: {error:#}");
                eprintln!("FAILED {failure}");
                self.results.failures.push(failure);
                self.kinds.retain(|other| *other != kind);
                Ok(None)
            }
        }
    }

    fn on(&self, mtu: u32) -> Vec<Kind> {
        self.kinds.iter().copied().filter(|kind| kind.mtu() == mtu).collect()
    }

    fn emit(&self, kind: &str, value: &impl Serialize) -> Result<()> {
        if self.bench.options.json {
            report::line(kind, &serde_json::to_value(value)?);
        }
        Ok(())
    }
}

/// The sizes that fit a rig of this MTU with 50 B around them.
fn sizes(options: &Options, mtu: u32) -> Vec<usize> {
    options.sizes.iter().copied().filter(|size| size + 64 <= mtu as usize).collect()
}
