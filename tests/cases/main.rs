//! Plays the packet cases through `trace`'s library entry and, on veth, through the live forwarder, and compares the two
//! with what the manifest says. `FLOWRAIL_CASES=DIR` plays another directory of the same format.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests may fail loudly"
)]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "the harness serves the functional tests as well")]
mod common;
mod judge;
mod live;
mod manifest;
mod setup;

use flowrail::control::config::Config;
use flowrail::control::publish;
use flowrail::ids::PortId;
use flowrail::tables::snapshot::Snapshot;
use flowrail::trace::{self, Fate, Report};
use judge::Out;
use manifest::{Case, Manifest};
use setup::Names;

/// Cases of features that do not exist yet, with the feature. A case here that passes fails the run, so the list can only
/// shrink.
const NOT_YET: &[(&str, &str)] = &[
    ("j04_bfd_malformed_set", "BFD"),
    ("j05_bfd_ttl_not_255", "BFD"),
    ("j07_bfd_rx_must_not_starve_tx", "BFD"),
];

struct Offline {
    config: Config,
    tables: Snapshot,
}

impl Offline {
    fn new(manifest: &Manifest, case: &Case) -> Self {
        let names = Names::offline(&manifest.config);
        let text = setup::config(&manifest.config, case, &names);
        let config = Config::parse(&text, &case.name).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let facts = publish::Facts::offline(&config).unwrap();
        let tables = publish::snapshot(&config, &facts);
        Self { config, tables }
    }

    fn port(&self, name: &str) -> PortId {
        (0..).map(PortId).zip(self.config.port_names()).find(|(_, n)| *n == name).map(|(id, _)| id).unwrap()
    }

    fn name(&self, port: PortId) -> String {
        self.config.port_names().nth(usize::from(port.0)).unwrap().to_owned()
    }

    fn play(&self, input: &str, frame: &[u8]) -> (Report, Vec<Out>) {
        let report = trace::run(&self.tables, self.port(input), false, frame);
        let outs = report.outputs.iter();
        let outs = outs.map(|out| Out { port: self.name(out.port), bytes: out.bytes.clone() }).collect();
        (report, outs)
    }
}

/// The port a frame of `case` enters. Overlay frames enter where their source MAC lives, else at the first network.
fn input_port(manifest: &Manifest, case: &Case, index: usize, frame: &[u8]) -> String {
    let underlay = match case.input_side.as_str() {
        "underlay" => true,
        "overlay" => false,
        // Frame 0 from the underlay, the rest from the tenant.
        "mixed" => index == 0,
        side => panic!("{}: no such input side: {side}", case.name),
    };
    if underlay {
        return "underlay".to_owned();
    }
    let src =
        frame.get(6..12).map(|mac| mac.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"));
    let mut networks = manifest.config.vnis.values().filter(|network| network.access_port.is_some());
    let first = networks.clone().next().unwrap();
    let home = networks.find(|network| src.as_ref().is_some_and(|mac| network.local.contains_key(mac)));
    setup::port_name(home.unwrap_or(first).access_port.as_ref().unwrap())
}

fn judge_offline(manifest: &Manifest, case: &Case) -> Result<(), String> {
    let offline = Offline::new(manifest, case);
    let (mut reports, mut outs) = (Vec::new(), Vec::new());
    for (index, frame) in case.frames().iter().enumerate() {
        let (report, out) = offline.play(&input_port(manifest, case, index, frame), frame);
        reports.push(report);
        outs.push(out);
    }
    let expected = &case.expected;
    match expected.action.as_str() {
        "pass" => reports.iter().try_for_each(|report| match report.fate {
            Fate::Punt(_) => Ok(()),
            fate => Err(format!("{fate:?}, not left to the kernel")),
        }),
        "drop" => reports.iter().try_for_each(|report| dropped(case, report)),
        "forward" => judge::outputs(&expected.out, &outs.concat()),
        "sequence" => sequence(case, &outs),
        action => Err(format!("no such action: {action}")),
    }
}

fn dropped(case: &Case, report: &Report) -> Result<(), String> {
    match report.fate {
        Fate::Punt(_) if judge::may_pass(case) => Ok(()),
        Fate::Drop(reason) => match judge::names_reason(case) {
            Some(name) if name != reason.name() => Err(format!("dropped as {reason}, not as {name}")),
            _ => Ok(()),
        },
        fate => Err(format!("{fate:?}, not dropped")),
    }
}

/// Cases whose outcome is about several packets.
fn sequence(case: &Case, outs: &[Vec<Out>]) -> Result<(), String> {
    match case.name.split('_').next() {
        // The learned move is not followed: the last frame goes where the static FDB says.
        Some("j01") => judge::outputs(&case.expected.out, outs.last().unwrap()),
        // Inside a burst nothing changes; across the gap it may.
        Some("j02") => outs.chunks(4).try_for_each(|burst| {
            let path =
                |out: &Vec<Out>| out.first().map(|o| (o.bytes[30..34].to_vec(), o.bytes[34..36].to_vec()));
            let first = path(&burst[0]).ok_or("nothing left")?;
            if burst.iter().all(|out| out.len() == 1 && path(out).as_ref() == Some(&first)) {
                Ok(())
            } else {
                Err("the path changed inside a burst".to_owned())
            }
        }),
        _ => Err("a sequence that this runner does not know".to_owned()),
    }
}

#[test]
fn cases_offline() {
    let manifest = manifest::load();
    let mut failures = Vec::new();
    let mut passed = 0;
    for case in &manifest.cases {
        let missing = NOT_YET.iter().find(|(name, _)| *name == case.name);
        match (judge_offline(&manifest, case), missing) {
            (Ok(()), None) => passed += 1,
            (Err(_), Some((name, feature))) => println!("not yet: {name} ({feature})"),
            (Ok(()), Some((name, _))) => failures.push(format!("{name} passes: take it off the list")),
            (Err(why), None) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    println!("{passed} cases passed of {}", manifest.cases.len());
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn cases_live() {
    let manifest = manifest::load();
    let wanted = |case: &Case| !NOT_YET.iter().any(|(name, _)| *name == case.name);
    let failures =
        live::play(&manifest, wanted, |case, index, frame| input_port(&manifest, case, index, frame));
    assert!(failures.is_empty(), "{} cases fail live:\n{}", failures.len(), failures.join("\n"));
}
