//! Plays cases through a running flowrail on veth: frames go in through packet sockets at the far ends, and whatever
//! comes out there is what left.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::common::forwarder::Forwarder;
use super::common::netns::{Netns, Turn};
use super::common::packet::Tap;
use super::common::veth::{End, Veth};
use super::judge::{self, Out};
use super::manifest::{Case, Manifest};
use super::setup::{self, Names};

/// How long a packet may take from one end to the other, and a counter until it shows.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long nothing else may come.
const QUIET: Duration = Duration::from_millis(15);

/// A host with one uplink and an access port for each network, and the far end of each.
struct Stage {
    host: Netns,
    names: Names,
    ends: BTreeMap<String, Tap>,
    _others: Vec<Netns>,
}

impl Stage {
    fn new(manifest: &Manifest) -> Self {
        let host = Netns::new("cases");
        let mut names = Names { uplink: "u0".to_owned(), access: BTreeMap::new() };
        let (mut ends, mut others) = (BTreeMap::new(), Vec::new());
        let mut connect = |port: &str, near: &str, mac: &str| {
            let other = Netns::new(near);
            let veth = Veth { mtu: 9214, queues: 1, offload: false };
            veth.connect(
                End { netns: &host, name: near, mac },
                End { netns: &other, name: "far", mac: "02:00:00:00:ff:01" },
            );
            ends.insert(setup::port_name(port), Tap::open(&other, "far"));
            others.push(other);
        };
        connect("underlay", "u0", &manifest.config.local_vtep.mac);
        for (number, (vni, network)) in manifest.config.vnis.iter().enumerate() {
            if let Some(port) = &network.access_port {
                let near = format!("a{number}");
                connect(port, &near, &format!("02:00:00:00:fe:{number:02x}"));
                names.access.insert(vni.clone(), near);
            }
        }
        Self { host, names, ends, _others: others }
    }

    fn drain(&self) {
        for end in self.ends.values() {
            while end.receive().is_some() {}
        }
    }

    /// What leaves, until `enough` packets came or time is up, and then nothing more for a while.
    fn collect(&self, enough: usize) -> Vec<Out> {
        let mut outs = Vec::new();
        let mut last = Instant::now();
        let start = last;
        loop {
            for (port, end) in &self.ends {
                while let Some(bytes) = end.receive() {
                    outs.push(Out { port: port.clone(), bytes });
                    last = Instant::now();
                }
            }
            let full = outs.len() >= enough && last.elapsed() > QUIET;
            if full || start.elapsed() > PATIENCE {
                return outs;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Counters of a flowrail that tell a case's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fates {
    received: u64,
    dropped: u64,
    drops: BTreeMap<String, u64>,
}

fn fates(forwarder: &Forwarder) -> Fates {
    let stats = forwarder.stats();
    let totals = &stats.0["totals"];
    let drops = totals["drops"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap()));
    Fates {
        received: totals["received"].as_u64().unwrap(),
        dropped: totals["dropped"].as_u64().unwrap(),
        drops: drops.collect(),
    }
}

/// Plays every case that `wanted` takes; returns the failures. Cases of one configuration share a flowrail.
pub fn play(
    manifest: &Manifest,
    wanted: impl Fn(&Case) -> bool,
    input_port: impl Fn(&Case, usize, &[u8]) -> String,
) -> Vec<String> {
    let _turn = Turn::wait();
    let stage = Stage::new(manifest);
    let mut by_config: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in manifest.cases.iter().filter(|case| wanted(case)) {
        let text = setup::config(&manifest.config, case, &stage.names);
        by_config.entry(text).or_default().push(case);
    }
    let mut failures = Vec::new();
    for (text, cases) in by_config {
        let forwarder = Forwarder::start(&stage.host, &text);
        for case in cases {
            if let Err(why) = one(&stage, &forwarder, case, &input_port) {
                failures.push(format!("{}: {why}", case.name));
            }
        }
        forwarder.expect_conservation();
        forwarder.stop(&stage.host);
    }
    failures
}

fn one(
    stage: &Stage,
    forwarder: &Forwarder,
    case: &Case,
    input_port: &impl Fn(&Case, usize, &[u8]) -> String,
) -> Result<(), String> {
    stage.drain();
    let before = fates(forwarder);
    let mut sent = 0;
    for (index, frame) in case.frames().iter().enumerate() {
        // A packet socket sends no frame shorter than an Ethernet header.
        if frame.len() >= 14 {
            let end = &stage.ends[&input_port(case, index, frame)];
            end.try_send(frame).map_err(|e| format!("frame {index} was not sent: {e}"))?;
            sent += 1;
        }
    }
    let expected = &case.expected;
    match expected.action.as_str() {
        "forward" => judge::outputs(&expected.out, &stage.collect(expected.out.len())),
        "pass" => {
            std::thread::sleep(2 * QUIET);
            let after = fates(forwarder);
            if after == before { Ok(()) } else { Err(format!("not left to the kernel: {after:?}")) }
        }
        "drop" => {
            let may_pass = judge::may_pass(case);
            let start = Instant::now();
            let done = |now: &Fates| {
                now.dropped - before.dropped == sent || (may_pass && start.elapsed() > 2 * QUIET)
            };
            let mut after = fates(forwarder);
            while !done(&after) && start.elapsed() < PATIENCE {
                after = fates(forwarder);
            }
            let (received, dropped) = (after.received - before.received, after.dropped - before.dropped);
            if received != dropped || (!may_pass && dropped != sent) {
                return Err(format!("{dropped} dropped and {received} received of {sent}"));
            }
            let named = judge::names_reason(case).filter(|_| !may_pass);
            if let Some(reason) = named.filter(|reason| after.drops[*reason] - before.drops[*reason] != sent)
            {
                return Err(format!("not counted as {reason}: {:?}", after.drops));
            }
            // Answers of the kernel to what it got are not ours.
            let outs = if may_pass { Vec::new() } else { stage.collect(0) };
            judge::outputs(&[], &outs)
        }
        // A burst is one in time only; what the datapath decides about it is judged offline.
        "sequence" => Ok(()),
        action => Err(format!("no such action: {action}")),
    }
}
