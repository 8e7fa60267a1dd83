//! Readers of the sections that appear once: `[workers]`, `[xdp]`, `[vxlan]`, `[routing]` …

use std::time::Duration;

use crate::control::plan::AddressPlan;

use super::document::{At, Errors};
use super::error::Problem;
use super::fields::Fields;
use super::settings::{
    Admit, Control, Cores, DecapDscp, HugePages, Idle, Neighbors, Routing, Vxlan, Workers, Xdp,
};
use super::{value, value_tenant};

const ADMIT: &[(&str, Admit)] = &[("drop", Admit::Drop), ("accept", Admit::Accept)];
const HUGE_PAGES: &[(&str, HugePages)] =
    &[("auto", HugePages::Auto), ("require", HugePages::Require), ("off", HugePages::Off)];
const ICMP_UNREACHABLE: &[(&str, bool)] = &[("send", true), ("drop", false)];
const DECAP_DSCP: &[(&str, DecapDscp)] = &[("pipe", DecapDscp::Pipe), ("uniform", DecapDscp::Uniform)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum IdleKind {
    Spin,
    Adaptive,
    BusyPoll,
}
const IDLE: &[(&str, IdleKind)] =
    &[("adaptive", IdleKind::Adaptive), ("spin", IdleKind::Spin), ("busy-poll", IdleKind::BusyPoll)];

const SPIN_TIME: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(1));
const BUSY_POLL_TIME: (Duration, Duration) = (Duration::from_micros(1), Duration::from_millis(10));
const PENDING_TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));

/// Fewest descriptors of `XDP_MAX_TX_SKB_BUDGET` (the kernel's `TX_BATCH_SIZE`).
const MIN_TX_BUDGET: u32 = 32;

pub(super) fn workers(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Workers {
    let default = Workers::default();
    let cores = cores(&mut f).unwrap_or(default.cores);
    let idle = idle(&mut f).unwrap_or(default.idle);
    let batch = f.optional("batch", value::integer(1u16, 256));
    let umem_frames = f.optional("umem_frames", value::integer(1024u32, 1 << 22));
    let frame_size = f.optional("frame_size", |v| value::power_of_two(2048, 4096)(v));
    let ring_size = f.optional("ring_size", value::power_of_two(64, 1 << 16));
    let huge_pages = f.optional("huge_pages", value::choice(HUGE_PAGES));
    let tx_budget = f.optional("tx_budget", value::integer(MIN_TX_BUDGET, 1 << 16));

    let ring = ring_size.map_or(default.ring_size, |r| r.value);
    if let Some(budget) = tx_budget
        && budget.value > ring
    {
        f.problem(budget.at, Problem::TxBudget { budget: budget.value, ring_size: ring });
    }
    f.finish(errors, || "workers".to_owned());
    Workers {
        cores,
        idle,
        batch: or(batch, default.batch),
        umem_frames: or(umem_frames, default.umem_frames),
        frame_size: frame_size.and_then(|s| u16::try_from(s.value).ok()).unwrap_or(default.frame_size),
        ring_size: ring,
        huge_pages: or(huge_pages, default.huge_pages),
        tx_budget: or(tx_budget, default.tx_budget.min(ring)),
    }
}

fn cores(f: &mut Fields<'_>) -> Option<Cores> {
    let list = f.list("cores", value::core)?;
    if list.value.is_empty() {
        f.problem(list.at, Problem::Empty("cores"));
    }
    let mut cores = Vec::with_capacity(list.value.len());
    for core in list.value {
        if cores.contains(&core.value) {
            f.problem(core.at, Problem::ListedTwice { key: "cores", value: core.value.to_string() });
        }
        cores.push(core.value);
    }
    Some(Cores::List(cores))
}

fn idle(f: &mut Fields<'_>) -> Option<Idle> {
    let kind = f.optional("idle", value::choice(IDLE)).map_or(IdleKind::Adaptive, |k| k.value);
    let spin = f.optional("spin_time", value::duration(SPIN_TIME.0, SPIN_TIME.1));
    let time = f.optional("busy_poll_time", value::duration(BUSY_POLL_TIME.0, BUSY_POLL_TIME.1));
    let budget = f.optional("busy_poll_budget", value::integer(1u16, 1024));

    let mut only_with = |key, at, needs| f.problem(at, Problem::NoEffect { key, needs });
    if let Some(spin) = spin
        && kind != IdleKind::Adaptive
    {
        only_with("spin_time", spin.at, "idle = \"adaptive\"");
    }
    if kind != IdleKind::BusyPoll {
        let needs = "idle = \"busy-poll\"";
        time.inspect(|t| only_with("busy_poll_time", t.at, needs));
        budget.inspect(|b| only_with("busy_poll_budget", b.at, needs));
    }
    Some(match kind {
        IdleKind::Spin => Idle::Spin,
        IdleKind::Adaptive => Idle::Adaptive { spin: or(spin, Duration::from_micros(50)) },
        IdleKind::BusyPoll => {
            Idle::BusyPoll { time: or(time, Duration::from_micros(20)), budget: or(budget, 64) }
        }
    })
}

pub(super) fn xdp(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Xdp {
    let xdp = Xdp {
        require_native: or(f.optional("require_native", value::boolean), false),
        require_zero_copy: or(f.optional("require_zero_copy", value::boolean), false),
    };
    f.finish(errors, || "xdp".to_owned());
    xdp
}

pub(super) fn vxlan(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Vxlan {
    let default = Vxlan::default();
    let vxlan = Vxlan {
        udp6_zero_checksum: or(
            f.optional("udp6_zero_checksum", value::choice(ADMIT)),
            default.udp6_zero_checksum,
        ),
        unknown_vtep: or(f.optional("unknown_vtep", value::choice(ADMIT)), default.unknown_vtep),
        encap_dscp: or(f.optional("encap_dscp", value::encap_dscp), default.encap_dscp),
        decap_dscp: or(f.optional("decap_dscp", value::choice(DECAP_DSCP)), default.decap_dscp),
    };
    f.finish(errors, || "vxlan".to_owned());
    vxlan
}

pub(super) fn control(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Control {
    let socket = f.optional("socket", value::socket_path);
    f.finish(errors, || "control".to_owned());
    socket.map_or_else(Control::default, |socket| Control { socket: socket.value })
}

pub(super) fn neighbors(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Neighbors {
    let default = Neighbors::default();
    let timeout = value::duration(PENDING_TIMEOUT.0, PENDING_TIMEOUT.1);
    let neighbors = Neighbors {
        pending_frames: or(
            f.optional("pending_frames", value::integer(0u32, 65_536)),
            default.pending_frames,
        ),
        pending_timeout: or(f.optional("pending_timeout", timeout), default.pending_timeout),
    };
    f.finish(errors, || "neighbors".to_owned());
    neighbors
}

pub(super) fn routing(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Routing {
    let default = Routing::default();
    let unreachable = f.optional("icmp_unreachable", value::choice(ICMP_UNREACHABLE));
    f.finish(errors, || "routing".to_owned());
    Routing { icmp_unreachable: or(unreachable, default.icmp_unreachable) }
}

/// `None` when the pattern is missing or wrong, which is reported.
pub(super) fn address_plan(mut f: Fields<'_>, errors: &mut Errors<'_>) -> Option<AddressPlan> {
    let pattern = f.required("pattern", value_tenant::plan);
    f.finish(errors, || "address_plan".to_owned());
    pattern.map(|pattern| pattern.value)
}

fn or<T>(value: Option<At<T>>, default: T) -> T {
    value.map_or(default, |found| found.value)
}
