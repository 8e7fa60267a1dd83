//! Roles `sink` and `reflect`: an XDP program at the end of the line that counts and drops, or sends back.
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::process::{answer_requests, say};
use crate::{bpf, cpu};

/// Arguments of both roles.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    object: PathBuf,
    #[arg(long)]
    interface: String,
}

/// Frames seen since the sink was attached.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// CLOCK_MONOTONIC of the reading.
    pub at_ns: u64,
    pub packets: u64,
    /// Frame bytes, Ethernet header to the end of the payload.
    pub bytes: u64,
    /// Those that were VXLAN of our VNI.
    pub vxlan: u64,
    /// Those that were bare RoCEv2.
    pub roce: u64,
    /// CLOCK_MONOTONIC of the first one, 0 before.
    pub first_ns: u64,
}

/// Counts until the parent closes standard input.
pub fn run(args: &Args) -> Result<()> {
    let object = bpf::load(&args.object, &["sink"])?;
    let map = bpf::map(&object, "tally")?;
    let _link = bpf::attach_xdp(&object, "sink", &args.interface)?;
    say(&serde_json::json!({"ready": true}))?;
    answer_requests(|| Ok(serde_json::to_value(read(&map)?)?))
}

/// Sends every frame back to its sender until the parent closes standard input.
pub fn reflect(args: &Args) -> Result<()> {
    let object = bpf::load(&args.object, &["reflect"])?;
    let _link = bpf::attach_xdp(&object, "reflect", &args.interface)?;
    say(&serde_json::json!({"ready": true}))?;
    answer_requests(|| Ok(serde_json::json!({})))
}

fn read(map: &MapHandle) -> Result<Tally> {
    let cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.context("tally map is empty")?;
    let mut tally = Tally { at_ns: cpu::monotonic_ns(), ..Tally::default() };
    for cpu in cpus {
        let mut words = cpu.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().context("tally is shorter than struct tally");
        tally.packets += next()?;
        tally.bytes += next()?;
        tally.vxlan += next()?;
        tally.roce += next()?;
        let first = next()?;
        if first != 0 && (tally.first_ns == 0 || first < tally.first_ns) {
            tally.first_ns = first;
        }
    }
    Ok(tally)
}
