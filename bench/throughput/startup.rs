//! How long flowrail takes from its start to the first frame it forwards, and how much memory a large table takes.
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::cpu;
use crate::flowrail::Flowrail;
use crate::forwarders::SOURCE_CORE;
use crate::process::{Child, pause};
use crate::sink::Tally;
use crate::throughput::Bench;
use crate::topology::Place;

/// Entries of the large table.
pub const ENDPOINTS: u32 = 1_000_000;
const LIMIT: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(2);

/// Time from process start to the first frame at the sink.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Startup {
    pub round: u32,
    pub first_frame_ms: f64,
}

/// Resident memory with one FDB entry and with a million.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub one_entry_bytes: u64,
    pub million_entries_bytes: u64,
    /// Part of both that is frames shared with the kernel.
    pub umem_bytes: u64,
    /// Start to answering, with a million entries.
    pub million_entries_ready_ms: f64,
}

impl Memory {
    /// What the targets count: all but the UMEM.
    pub fn without_umem(&self) -> u64 {
        self.million_entries_bytes.saturating_sub(self.umem_bytes)
    }
}

impl Bench<'_> {
    pub fn startup(&self, round: u32) -> Result<Startup> {
        let mut sink = self.xdp_role(Place::Far, "sink", "s0")?;
        let arguments = format!("--interface g0 --size 64 --core {SOURCE_CORE} --limit {}", LIMIT.as_secs());
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let _ticker = Child::role(Place::Tenant, "ticker", &arguments)?;
        let start_ns = cpu::monotonic_ns();
        let end = Instant::now() + LIMIT;
        let flowrail = Flowrail::spawn(self.options, self.scratch, 1)?;
        loop {
            pause(Duration::from_millis(20))?;
            let tally: Tally = serde_json::from_value(sink.ask()?)?;
            if tally.first_ns != 0 {
                let first_frame_ms = (tally.first_ns - start_ns) as f64 / 1e6;
                return Ok(Startup { round, first_frame_ms });
            }
            if Instant::now() > end {
                bail!("flowrail forwarded no frame within {LIMIT:?}:\n{}", flowrail.log());
            }
        }
    }

    /// Memory with one entry and with [`ENDPOINTS`].
    pub fn memory(&self) -> Result<Memory> {
        let small = self.resident(1)?;
        let large = self.resident(ENDPOINTS)?;
        Ok(Memory {
            one_entry_bytes: small.bytes,
            million_entries_bytes: large.bytes,
            umem_bytes: small.umem_bytes,
            million_entries_ready_ms: large.ready.as_secs_f64() * 1e3,
        })
    }

    fn resident(&self, endpoints: u32) -> Result<Resident> {
        let start = Instant::now();
        let flowrail = Flowrail::start(self.options, self.scratch, endpoints)?;
        let ready = start.elapsed();
        pause(SETTLE)?;
        Ok(Resident {
            bytes: cpu::resident_bytes(flowrail.pid())?,
            umem_bytes: flowrail.umem_bytes()?,
            ready,
        })
    }
}

struct Resident {
    bytes: u64,
    umem_bytes: u64,
    ready: Duration,
}
