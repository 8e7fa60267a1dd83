//! The frames of the corpus, whole and cut, through every check.

use std::collections::HashSet;
use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;

use crate::checks::datapath::{Input, judge};
use crate::checks::site::{BLUE, Site, UPLINK};
use crate::checks::{ALL, Check};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/manifest.json");
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples");

/// Every frame of the corpus once, with the first case it is in.
pub static FRAMES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(read_frames);

fn read_frames() -> Vec<(String, Vec<u8>)> {
    let manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(CORPUS).unwrap()).unwrap();
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    let mut seen = HashSet::new();
    for case in manifest["cases"].as_array().unwrap() {
        for frame in case["frames"].as_array().unwrap().iter().map(|frame| bytes(frame.as_str().unwrap())) {
            if seen.insert(frame.clone()) {
                frames.push((case["name"].as_str().unwrap().to_owned(), frame));
            }
        }
    }
    frames
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Every prefix of a frame's headers, and a few of its payload.
fn prefixes(frame: &[u8]) -> impl Iterator<Item = &[u8]> + '_ {
    let far = (200..frame.len()).step_by(997);
    (0..frame.len().min(200)).chain(far).chain([frame.len()]).map(|len| &frame[..len])
}

#[test]
fn every_prefix_of_every_corpus_frame_ends_in_a_verdict() {
    let site = Site::from_bits(0x14);
    let all: HashSet<&[u8]> = FRAMES.iter().flat_map(|(_, frame)| prefixes(frame)).collect();
    assert!(all.len() > 10_000, "only {} prefixes", all.len());
    for prefix in all {
        for port in [UPLINK, BLUE] {
            let _ = judge(&Input::whole(site, port, prefix));
        }
    }
}

fn check(name: &str) -> Check {
    ALL.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no check is called {name}")).1
}

#[test]
fn checks_hold_over_the_corpus() {
    for (_, frame) in FRAMES.iter() {
        for offset in [0, 14, 34, 42, 50] {
            let header = frame.get(offset..).unwrap_or_default();
            ALL.iter().filter(|(name, _)| name.starts_with("wire")).for_each(|(_, check)| check(header));
        }
    }
}

#[test]
fn checks_hold_over_the_example_configurations() {
    for file in fs::read_dir(EXAMPLES).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        // Cut anywhere, a configuration is wrong or a smaller one.
        (0..=text.len()).step_by(7).for_each(|end| check("config")(&text.as_bytes()[..end]));
    }
}

/// Inputs that once broke a check, as `scripts/fuzz` leaves them: one file each in a directory of the check's name.
#[test]
fn past_failures_stay_mended() {
    for directory in fs::read_dir(REGRESSIONS).unwrap().map(Result::unwrap) {
        let check = check(directory.file_name().to_str().unwrap());
        for file in fs::read_dir(directory.path()).unwrap() {
            check(&fs::read(file.unwrap().path()).unwrap());
        }
    }
}

proptest! {
    /// What libFuzzer does for hours, for a moment: frames of the corpus with bytes changed, laid out anyhow.
    #[test]
    fn changed_corpus_frames_keep_the_rules(
        pick: prop::sample::Index, choices: [u8; 4], changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut input = [&choices[..], &FRAMES[pick.index(FRAMES.len())].1].concat();
        for (at, byte) in changes {
            let at = at.index(input.len());
            input[at] = byte;
        }
        check("datapath")(&input);
        check("gateway")(&input[2..]);
    }
}
