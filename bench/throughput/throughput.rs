//! One throughput measurement: a forwarder between a source that never waits and a sink that counts.
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::cpu::{self, CoreTime, Cores, CoresAt, Meter};
use crate::forwarders::{Figures, Forwarder, Kind};
use crate::frames::{Direction, OUTER_LEN};
use crate::generator;
use crate::options::Options;
use crate::process::{Child, pause};
use crate::sink::Tally;
use crate::topology::Place;

const WARM_UP: Duration = Duration::from_millis(700);
const DRAIN: Duration = Duration::from_millis(150);
const METERED: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    pub forwarder: &'static str,
    /// Length of the inner frame.
    pub size: usize,
    pub direction: &'static str,
    pub round: u32,
    /// What sent the frames: live frames, or AF_XDP for those that do not fit a page.
    pub source: &'static str,
    /// Millions of packets a second that reached the sink.
    pub mpps: f64,
    /// Their frame bits, as the sink got them.
    pub gbps: f64,
    /// Millions of packets a second that the source sent, over its whole run.
    pub offered_mpps: f64,
    /// Packets the forwarder took and did not send; unknown where it does not count.
    pub lost_inside: Option<u64>,
    /// CPU time of the forwarder's process per packet; for the kernel, of the one core it shares with source and
    /// sink.
    pub total_ns: f64,
    /// Of that, in user mode; without empty polls where the forwarder tells its idle time.
    pub user_ns: Option<f64>,
    /// CPU time without the forwarder's idle time.
    pub busy_ns: Option<f64>,
    #[serde(flatten)]
    pub cores: Cores,
    /// Whether source and forwarder had the machine to themselves.
    pub clean: bool,
    pub attempts: u32,
}

/// What all measurements share.
pub struct Bench<'a> {
    pub options: &'a Options,
    pub object: &'a Path,
    pub scratch: &'a Path,
    /// None where the kernel has no BTF; then nothing is said about user time.
    pub meter: Option<Meter>,
}

impl Bench<'_> {
    pub fn start(&self, kind: Kind) -> Result<Forwarder> {
        Forwarder::start(kind, self.options, self.object, self.scratch)
            .with_context(|| format!("start {}", kind.name()))
    }

    /// Starts a role with an XDP program on `interface`.
    pub fn xdp_role(&self, place: Place, role: &str, interface: &str) -> Result<Child> {
        let object = self.object.display().to_string();
        Child::role(
            place,
            role,
            &["--object".to_owned(), object, "--interface".to_owned(), interface.to_owned()],
        )
    }

    /// Measures until source and forwarder had the machine to themselves, or the attempts are used up.
    pub fn throughput(
        &self,
        kind: Kind,
        size: usize,
        direction: Direction,
        round: u32,
    ) -> Result<Throughput> {
        let mut attempt = 1;
        loop {
            wait_for_quiet(self.options.patience())?;
            let mut result = self.throughput_once(kind, size, direction)?;
            if result.clean || attempt == self.options.attempts() {
                result.attempts = attempt;
                result.round = round;
                return Ok(result);
            }
            attempt += 1;
        }
    }

    fn throughput_once(&self, kind: Kind, size: usize, direction: Direction) -> Result<Throughput> {
        let (source_at, sink_at) = match direction {
            Direction::Encap => ((Place::Tenant, "g0"), (Place::Far, "s0")),
            Direction::Decap => ((Place::Far, "s0"), (Place::Tenant, "g0")),
        };
        let mut forwarder = self.start(kind)?;
        let before_all = forwarder.figures()?;
        let mut sink = self.xdp_role(sink_at.0, "sink", sink_at.1)?;
        let limit = self.options.duration() + Duration::from_secs(20);
        let limit = u32::try_from(limit.as_secs())?;
        let arguments = generator::arguments(self.object, source_at.1, direction, size, limit);
        let started = Instant::now();
        let mut source = Child::role(source_at.0, "source", &arguments)?;
        pause(WARM_UP)?;

        let before = self.snapshot(kind, &mut forwarder, &mut sink, &source)?;
        pause(self.options.duration())?;
        let after = self.snapshot(kind, &mut forwarder, &mut sink, &source)?;
        let packets = after.sink.packets - before.sink.packets;
        if packets == 0 {
            bail!("{} delivers nothing: {} {size} B\n{}", kind.name(), direction.name(), forwarder.log());
        }
        check_form(kind, direction, size, &before.sink, &after.sink)?;
        let user_ns = self.user_ns(&mut forwarder, &mut sink)?;

        source.stop(Duration::from_secs(3));
        let elapsed = started.elapsed();
        let sent = source.read(Duration::from_secs(1))?["sent"].as_u64().context("the source counts")?;
        drop(source);
        pause(DRAIN)?;
        let after_all = forwarder.figures()?;
        Ok(Throughput {
            offered_mpps: sent as f64 / elapsed.as_secs_f64() / 1e6,
            lost_inside: before_all.zip(after_all).map(|(a, b)| (b.rx - a.rx).saturating_sub(b.tx - a.tx)),
            user_ns,
            ..before.rates(&after, kind, size, direction)
        })
    }

    fn snapshot(
        &self,
        kind: Kind,
        forwarder: &mut Forwarder,
        sink: &mut Child,
        source: &Child,
    ) -> Result<Snapshot> {
        Ok(Snapshot {
            sink: serde_json::from_value(sink.ask()?)?,
            cores: CoresAt::read(source.pid(), forwarder.pid())?,
            core: cpu::core_time(Some(kind.core()))?,
            figures: forwarder.figures()?,
        })
    }

    /// User-mode time per packet, from a window of its own because metering slows system calls down.
    fn user_ns(&self, forwarder: &mut Forwarder, sink: &mut Child) -> Result<Option<f64>> {
        let (Some(pid), Some(meter)) = (forwarder.pid(), &self.meter) else { return Ok(None) };
        let idle_before = forwarder.figures()?.and_then(|figures| figures.idle_ns);
        let metering = meter.start(pid)?;
        let before: Tally = serde_json::from_value(sink.ask()?)?;
        pause(METERED)?;
        let after: Tally = serde_json::from_value(sink.ask()?)?;
        let split = metering.finish()?;
        let idle_after = forwarder.figures()?.and_then(|figures| figures.idle_ns);
        let packets = (after.packets - before.packets) as f64;
        if packets == 0.0 {
            return Ok(None);
        }
        let wall_ns = (after.at_ns - before.at_ns) as f64;
        let idle = idle_before.zip(idle_after).map_or(0.0, |(a, b)| (b - a) as f64 / wall_ns);
        // empty polls never leave user mode
        let polls_ns = idle * (split.user_ns + split.kernel_ns) as f64;
        Ok(Some((split.user_ns as f64 - polls_ns).max(0.0) / packets))
    }
}

struct Snapshot {
    sink: Tally,
    cores: CoresAt,
    core: CoreTime,
    figures: Option<Figures>,
}

impl Snapshot {
    /// The rates between this snapshot and a later one.
    fn rates(&self, after: &Self, kind: Kind, size: usize, direction: Direction) -> Throughput {
        let wall_ns = (after.sink.at_ns - self.sink.at_ns) as f64;
        let packets = (after.sink.packets - self.sink.packets) as f64;
        let bytes = (after.sink.bytes - self.sink.bytes) as f64;
        let core_busy =
            (after.core.busy - self.core.busy) as f64 / (after.core.total - self.core.total) as f64;
        let dut_ns = self.cores.dut_ns_until(&after.cores).map(|ns| ns as f64);
        let cores = self.cores.until(&after.cores);
        let idle_ns =
            self.figures.zip(after.figures).and_then(|(a, b)| Some((b.idle_ns? - a.idle_ns?) as f64));
        Throughput {
            forwarder: kind.name(),
            size,
            direction: direction.name(),
            round: 0,
            source: generator::source_name(direction.frame(size).len()),
            mpps: packets / wall_ns * 1e3,
            gbps: bytes * 8.0 / wall_ns,
            offered_mpps: 0.0,
            lost_inside: None,
            total_ns: dut_ns.unwrap_or(core_busy * wall_ns) / packets,
            user_ns: None,
            // a share, so that time lost to other processes does not count as idle
            busy_ns: dut_ns.zip(idle_ns).map(|(all, idle)| all * (1.0 - idle / wall_ns).max(0.0) / packets),
            cores,
            clean: cores.clean(),
            attempts: 1,
        }
    }
}

/// Counters read while frames arrive may be a few frames apart.
const TORN: u64 = 16;

/// What arrives must be what the forwarder was to make of it, or the rate means nothing.
fn check_form(kind: Kind, direction: Direction, size: usize, before: &Tally, after: &Tally) -> Result<()> {
    // l2fwd sends what it gets, the others turn one form into the other
    let vxlan = (kind == Kind::L2fwd) != (direction == Direction::Encap);
    let length = (size + if vxlan { OUTER_LEN } else { 0 }) as u64;
    let packets = after.packets - before.packets;
    let right = if vxlan { after.vxlan - before.vxlan } else { after.roce - before.roce };
    let bytes = after.bytes - before.bytes;
    if right.abs_diff(packets) > TORN || bytes.abs_diff(packets * length) > TORN * length {
        bail!(
            "{} {} {size} B: of {packets} frames {right} are of the right form, {} B instead of {length} B long",
            kind.name(),
            direction.name(),
            bytes / packets
        );
    }
    Ok(())
}

const STEP: Duration = Duration::from_millis(400);
const QUIET: f64 = 0.3;

/// Waits until less than 30 % of the machine is busy, at most for `patience`.
pub fn wait_for_quiet(patience: Duration) -> Result<()> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        let before = cpu::core_time(None)?;
        pause(STEP)?;
        let after = cpu::core_time(None)?;
        if ((after.busy - before.busy) as f64) < QUIET * (after.total - before.total) as f64 {
            break;
        }
    }
    Ok(())
}
