//! Round trips, one frame at a time: tenant, forwarder, far end that sends back, forwarder, tenant.
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cpu::{Cores, CoresAt};
use crate::forwarders::{Kind, SOURCE_CORE};
use crate::prober::RoundTrips;
use crate::process::Child;
use crate::throughput::{Bench, wait_for_quiet};
use crate::topology::Place;

/// Round trip times through one forwarder, or through none (`wire`).
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub forwarder: &'static str,
    pub size: usize,
    pub round: u32,
    #[serde(flatten)]
    pub times: RoundTrips,
    #[serde(flatten)]
    pub cores: Cores,
    /// Whether prober and forwarder had the machine to themselves.
    pub clean: bool,
}

/// The name under which the rig without forwarder is reported.
pub const WIRE: &str = "wire";

impl Bench<'_> {
    /// Through `kind` and back, or over the rig alone: then the forwarder's end of the first wire sends back. Repeated
    /// until prober and forwarder had the machine to themselves, or the attempts are used up.
    pub fn latency(&self, kind: Option<Kind>, size: usize, round: u32) -> Result<Latency> {
        let mut attempt = 1;
        loop {
            // before the forwarder starts, which may well spin
            wait_for_quiet(self.options.patience())?;
            let latency = self.latency_once(kind, size, round)?;
            if latency.clean || attempt == self.options.attempts() {
                return Ok(latency);
            }
            attempt += 1;
        }
    }

    fn latency_once(&self, kind: Option<Kind>, size: usize, round: u32) -> Result<Latency> {
        let Some(kind) = kind else {
            let _reflector = self.xdp_role(Place::Dut, "reflect", "l0")?;
            return self.probe(WIRE, None, size, round);
        };
        let forwarder = self.start(kind)?;
        let _reflector = self.xdp_role(Place::Far, "reflect", "s0")?;
        self.probe(kind.name(), forwarder.pid(), size, round).with_context(|| forwarder.log())
    }

    fn probe(&self, forwarder: &'static str, pid: Option<u32>, size: usize, round: u32) -> Result<Latency> {
        let count = self.options.probes();
        let arguments = format!(
            "--interface g0 --count {count} --size {size} --core {SOURCE_CORE} --limit {}",
            LIMIT.as_secs()
        );
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let mut prober = Child::role(Place::Tenant, "prober", &arguments)?;
        let start = CoresAt::read(prober.pid(), pid)?;
        let times: RoundTrips = serde_json::from_value(prober.read(LIMIT)?)
            .with_context(|| format!("round trips through {forwarder}"))?;
        let cores = start.until(&CoresAt::read(prober.pid(), pid)?);
        Ok(Latency { forwarder, size, round, times, cores, clean: cores.clean() })
    }
}

/// No measurement takes longer, whatever gets lost.
const LIMIT: Duration = Duration::from_secs(60);
