//! What the harness prints: machine and tuning, medians side by side, ratios against their targets; or JSON lines.
use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::forwarders::{Kind, MTU};
use crate::latency::{Latency, WIRE};
use crate::options::Options;
use crate::rounds::Results;
use crate::throughput::Throughput;

/// Prints the machine, the mode and each forwarder's tuning.
pub fn head(options: &Options, kinds: &[Kind]) -> Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("warning: this harness is a debug build; its figures say nothing");
    }
    let read = |path| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let info = read("/proc/cpuinfo")?;
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']).to_owned();
    let cores = std::thread::available_parallelism()?.get();
    let (rounds, seconds) = (options.rounds(), options.duration().as_secs_f64());
    if options.json {
        let tuning: serde_json::Map<String, Value> =
            kinds.iter().map(|kind| (kind.name().to_owned(), json!(kind.tuning(options)))).collect();
        line(
            "machine",
            &json!({"cpu": model, "cores": cores, "kernel": kernel, "device": "veth", "mtu": MTU,
                "mode": "copy", "rounds": rounds, "seconds": seconds, "tuning": tuning}),
        );
        return Ok(());
    }
    println!("{model}, {cores} cores, Linux {kernel}; veth, copy mode, MTU {MTU}");
    println!("median of {rounds} interleaved rounds of {seconds} s; source on core 0, forwarder on core 1\n");
    for kind in kinds {
        println!("{:9} {}", kind.name(), kind.tuning(options));
    }
    println!();
    Ok(())
}

/// One JSON object on one line; `kind` says what it is.
pub fn line(kind: &str, value: &Value) {
    let mut object = serde_json::Map::new();
    object.insert("kind".to_owned(), json!(kind));
    if let Value::Object(fields) = value {
        object.extend(fields.clone());
    }
    println!("{}", Value::Object(object));
}

/// One measurement, as it comes in.
pub fn progress(round: u32, what: &str, figure: &str, clean: bool) {
    let note = if clean { "" } else { "   (not alone on the machine)" };
    eprintln!("round {round}: {what:32} {figure}{note}");
}

/// Prints the medians and how they stand against the targets.
pub fn summary(options: &Options, results: &Results) -> Result<()> {
    let medians = medians(&results.throughput);
    let latencies = latency_medians(&results.latency);
    let targets = targets(&medians, &latencies, results);
    if options.json {
        for median in &medians {
            line("median", &serde_json::to_value(median)?);
        }
        for latency in &latencies {
            line("latency_median", &serde_json::to_value(latency)?);
        }
        for target in &targets {
            line("target", &serde_json::to_value(target)?);
        }
        for failure in &results.failures {
            line("failure", &json!({ "reason": failure }));
        }
        return Ok(());
    }
    print_throughput(&medians);
    print_latency(&latencies);
    if let Some(memory) = results.memory {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "memory: {:.1} MB with one FDB entry, {:.1} MB with a million (UMEM {:.1} MB), ready in {:.0} ms\n",
            mb(memory.one_entry_bytes),
            mb(memory.million_entries_bytes),
            mb(memory.umem_bytes),
            memory.million_entries_ready_ms
        );
    }
    for target in &targets {
        println!("{}", target.text());
    }
    for failure in &results.failures {
        println!("NOT MEASURED {failure}");
    }
    Ok(())
}

/// The median of several values; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Medians of one forwarder, size and direction. Rounds without their cores count only when there are no others.
#[derive(Clone, Debug, Serialize)]
struct Median {
    forwarder: &'static str,
    size: usize,
    direction: &'static str,
    mpps: f64,
    mpps_min: f64,
    mpps_max: f64,
    gbps: f64,
    offered_mpps: f64,
    /// Sum over the rounds.
    lost_inside: Option<u64>,
    user_ns: Option<f64>,
    total_ns: f64,
    busy_ns: Option<f64>,
    source_core: f64,
    dut_core: Option<f64>,
    clean_rounds: usize,
    rounds: usize,
    /// Rate against that of l2fwd and kernel in the same cell.
    to_l2fwd: Option<f64>,
    to_kernel: Option<f64>,
}

fn medians(all: &[Throughput]) -> Vec<Median> {
    let mut medians: Vec<Median> = Vec::new();
    for first in all {
        let same = |other: &&Throughput| {
            (other.forwarder, other.size, other.direction) == (first.forwarder, first.size, first.direction)
        };
        let known = |median: &Median| {
            (median.forwarder, median.size, median.direction)
                == (first.forwarder, first.size, first.direction)
        };
        if !medians.iter().any(known) {
            medians.push(median_of(&all.iter().filter(same).collect::<Vec<_>>()));
        }
    }
    let rates = medians.clone();
    for cell in &mut medians {
        let against = |name| {
            let other = rates.iter().find(|other| {
                other.forwarder == name && (other.size, other.direction) == (cell.size, cell.direction)
            });
            other.map(|other| cell.mpps / other.mpps)
        };
        (cell.to_l2fwd, cell.to_kernel) = (against("l2fwd"), against("kernel"));
    }
    medians.sort_by_key(|cell| (cell.size, cell.direction != "encap"));
    medians
}

fn median_of(rounds: &[&Throughput]) -> Median {
    let clean: Vec<&Throughput> = rounds.iter().copied().filter(|round| round.clean).collect();
    let used: &[&Throughput] = if clean.is_empty() { rounds } else { &clean };
    let of = |field: fn(&Throughput) -> f64| median(used.iter().map(|round| field(round)).collect());
    let optional = |field: fn(&Throughput) -> Option<f64>| {
        let values: Option<Vec<f64>> = used.iter().map(|round| field(round)).collect();
        values.map(median)
    };
    let rates = used.iter().map(|round| round.mpps);
    Median {
        forwarder: rounds[0].forwarder,
        size: rounds[0].size,
        direction: rounds[0].direction,
        mpps: of(|round| round.mpps),
        mpps_min: rates.clone().fold(f64::INFINITY, f64::min),
        mpps_max: rates.fold(0.0, f64::max),
        gbps: of(|round| round.gbps),
        offered_mpps: of(|round| round.offered_mpps),
        lost_inside: rounds.iter().map(|round| round.lost_inside).sum(),
        user_ns: optional(|round| round.user_ns),
        total_ns: of(|round| round.total_ns),
        busy_ns: optional(|round| round.busy_ns),
        source_core: of(|round| round.cores.source_core),
        dut_core: optional(|round| round.cores.dut_core),
        clean_rounds: clean.len(),
        rounds: rounds.len(),
        to_l2fwd: None,
        to_kernel: None,
    }
}

fn print_throughput(medians: &[Median]) {
    if medians.is_empty() {
        return;
    }
    println!(
        "{:>5} {:6} {:9} {:>7} {:>13} {:>7} {:>8} {:>7} {:>7} {:>8} {:>7} {:>5} {:>5} {:>6} {:>8} {:>9}",
        "size",
        "dir",
        "forwarder",
        "Mpps",
        "min..max",
        "Gbit/s",
        "offered",
        "lost",
        "user ns",
        "total ns",
        "busy ns",
        "src%",
        "dut%",
        "clean",
        "x l2fwd",
        "x kernel"
    );
    let optional =
        |value: Option<f64>, digits| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let mut cell = (0, "");
    for row in medians {
        if cell != (0, "") && cell != (row.size, row.direction) {
            println!();
        }
        cell = (row.size, row.direction);
        println!(
            "{:>5} {:6} {:9} {:>7.3} {:>13} {:>7.2} {:>8.2} {:>7} {:>7} {:>8.1} {:>7} {:>5.0} {:>5} {:>6} {:>8} {:>9}",
            row.size,
            row.direction,
            row.forwarder,
            row.mpps,
            format!("{:.3}..{:.3}", row.mpps_min, row.mpps_max),
            row.gbps,
            row.offered_mpps,
            row.lost_inside.map_or("-".to_owned(), |lost| lost.to_string()),
            optional(row.user_ns, 1),
            row.total_ns,
            optional(row.busy_ns, 1),
            row.source_core * 100.0,
            optional(row.dut_core.map(|share| share * 100.0), 0),
            format!("{}/{}", row.clean_rounds, row.rounds),
            optional(row.to_l2fwd, 3),
            optional(row.to_kernel, 3),
        );
    }
    println!();
}

/// Medians over the rounds of each percentile, in µs.
#[derive(Clone, Debug, Serialize)]
struct LatencyMedian {
    forwarder: &'static str,
    size: usize,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    min_us: f64,
    /// (p50 − p50 of the wire) / 2: what one passage adds.
    hop_us: Option<f64>,
    lost: u64,
    clean_rounds: usize,
    rounds: usize,
}

fn latency_medians(all: &[Latency]) -> Vec<LatencyMedian> {
    let mut medians: Vec<LatencyMedian> = Vec::new();
    for first in all {
        if medians.iter().any(|median| (median.forwarder, median.size) == (first.forwarder, first.size)) {
            continue;
        }
        let rounds: Vec<&Latency> = all
            .iter()
            .filter(|other| (other.forwarder, other.size) == (first.forwarder, first.size))
            .collect();
        let clean: Vec<&Latency> = rounds.iter().copied().filter(|round| round.clean).collect();
        let used = if clean.is_empty() { &rounds } else { &clean };
        let of =
            |field: fn(&Latency) -> u64| median(used.iter().map(|round| field(round) as f64 / 1e3).collect());
        medians.push(LatencyMedian {
            forwarder: first.forwarder,
            size: first.size,
            p50_us: of(|round| round.times.p50),
            p99_us: of(|round| round.times.p99),
            p999_us: of(|round| round.times.p999),
            min_us: of(|round| round.times.min),
            hop_us: None,
            lost: rounds.iter().map(|round| round.times.lost).sum(),
            clean_rounds: clean.len(),
            rounds: rounds.len(),
        });
    }
    let wires: Vec<(usize, f64)> =
        medians.iter().filter(|row| row.forwarder == WIRE).map(|row| (row.size, row.p50_us)).collect();
    for row in medians.iter_mut().filter(|row| row.forwarder != WIRE) {
        row.hop_us = wires.iter().find(|wire| wire.0 == row.size).map(|wire| (row.p50_us - wire.1) / 2.0);
    }
    medians.sort_by_key(|row| row.size);
    medians
}

fn print_latency(medians: &[LatencyMedian]) {
    if medians.is_empty() {
        return;
    }
    println!("round trip through encap, reflector and decap, one frame at a time, µs");
    println!(
        "{:>5} {:9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>5} {:>6}",
        "size", "forwarder", "min", "p50", "p99", "p99.9", "per hop", "lost", "clean"
    );
    for row in medians {
        println!(
            "{:>5} {:9} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8} {:>5} {:>6}",
            row.size,
            row.forwarder,
            row.min_us,
            row.p50_us,
            row.p99_us,
            row.p999_us,
            row.hop_us.map_or("-".to_owned(), |hop| format!("{hop:.2}")),
            row.lost,
            format!("{}/{}", row.clean_rounds, row.rounds)
        );
    }
    println!();
}

/// A figure with the bound it must keep.
#[derive(Debug, Serialize)]
struct Target {
    name: String,
    value: f64,
    at_least: Option<f64>,
    at_most: Option<f64>,
    pass: bool,
    /// Whether all it rests on was measured on a machine that did nothing else.
    clean: bool,
}

impl Target {
    fn at_least(name: String, value: f64, bound: f64) -> Self {
        Self { name, value, at_least: Some(bound), at_most: None, pass: value >= bound, clean: true }
    }

    fn at_most(name: String, value: f64, bound: f64) -> Self {
        Self { name, value, at_least: None, at_most: Some(bound), pass: value <= bound, clean: true }
    }

    fn resting_on(self, clean_rounds: &[usize]) -> Self {
        Self { clean: clean_rounds.iter().all(|rounds| *rounds > 0), ..self }
    }

    fn text(&self) -> String {
        let verdict = if self.pass { "pass" } else { "FAIL" };
        let bound = match (self.at_least, self.at_most) {
            (Some(bound), _) => format!(">= {bound}"),
            (_, Some(bound)) => format!("<= {bound}"),
            _ => String::new(),
        };
        let note = if self.clean { "" } else { "   (not alone on the machine: says little)" };
        format!("{verdict}  {:48} {:>9.3}  {bound}{note}", self.name, self.value)
    }
}

/// Every target that has a figure.
fn targets(medians: &[Median], latencies: &[LatencyMedian], results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in medians.iter().filter(|row| row.forwarder == "flowrail") {
        throughput_targets(row, medians, &mut targets);
    }
    for row in latencies.iter().filter(|row| row.forwarder == "flowrail") {
        let Some(bare) = latencies.iter().find(|other| other.forwarder == "l2fwd" && other.size == row.size)
        else {
            continue;
        };
        let name = |percentile| format!("round trip {percentile} / l2fwd, {} B", row.size);
        let clean = [row.clean_rounds, bare.clean_rounds];
        let (p50, p99) = (row.p50_us / bare.p50_us, row.p99_us / bare.p99_us);
        targets.push(Target::at_most(name("p50"), p50, 1.05).resting_on(&clean));
        targets.push(Target::at_most(name("p99"), p99, 1.1).resting_on(&clean));
    }
    if !results.startup.is_empty() {
        let times = results.startup.iter().map(|startup| startup.first_frame_ms).collect();
        targets.push(Target::at_most("start to first forwarded frame, ms".to_owned(), median(times), 300.0));
    }
    if let Some(memory) = results.memory {
        let megabytes = memory.without_umem() as f64 / 1e6;
        targets.push(Target::at_most(
            "memory besides UMEM at 1M FDB entries, MB".to_owned(),
            megabytes,
            100.0,
        ));
    }
    targets
}

/// Above this the source and the kernel's copies on its core are the limit, and rates rank nobody.
const RANKED: usize = 1500;

fn throughput_targets(row: &Median, medians: &[Median], targets: &mut Vec<Target>) {
    let cell = format!("{} {} B", row.direction, row.size);
    let other = |name| {
        let same = |other: &&Median| {
            other.forwarder == name && (other.size, other.direction) == (row.size, row.direction)
        };
        medians.iter().find(same)
    };
    let mut ratio = |name: &str, other: Option<&Median>, bound| {
        if let Some(other) = other {
            let target = Target::at_least(format!("rate / {name}, {cell}"), row.mpps / other.mpps, bound);
            targets.push(target.resting_on(&[row.clean_rounds, other.clean_rounds]));
        }
    };
    if row.size <= RANKED {
        ratio("l2fwd", other("l2fwd"), 0.97);
    }
    if (row.size, row.direction) == (64, "encap") {
        ratio("kernel vxlan", other("kernel"), 1.9);
    }
    ratio("OVS-DPDK", other("ovs"), 1.18);
    if let (Some(user), 64) = (row.user_ns, row.size) {
        let target = Target::at_most(format!("user-mode ns per packet, {cell}"), user, 60.0);
        targets.push(target.resting_on(&[row.clean_rounds]));
    }
    if let Some(lost) = row.lost_inside {
        targets.push(Target::at_most(format!("frames lost inside, {cell}"), lost as f64, 0.0));
    }
}
