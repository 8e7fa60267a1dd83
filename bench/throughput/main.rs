//! flowrail's throughput and latency harness: kernel vxlan, bare AF_XDP and flowrail side by side on one machine.
//! `scripts/bench` builds and calls it; docs/benchmarks.md says how to read what it prints.
#![deny(clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::expect_used,
    reason = "a measuring tool: it may stop with a message, and its figures need no more than f64"
)]

mod bpf;
mod cpu;
mod flowrail;
mod forwarders;
mod frames;
mod generator;
mod latency;
mod options;
mod ovs;
mod prober;
mod process;
mod report;
mod rounds;
mod sink;
mod startup;
mod throughput;
mod topology;
mod xsk_l2fwd;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use options::{Options, Role};

fn main() -> ExitCode {
    // cargo bench appends its own flag
    let arguments: Vec<String> = std::env::args().filter(|argument| argument != "--bench").collect();
    if arguments.len() == 1 {
        println!("throughput: needs root and minutes, so it runs only when asked: scripts/bench");
        return ExitCode::SUCCESS;
    }
    process::catch_signals();
    match dispatch(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a role or the whole; whether everything that was asked for could be measured.
fn dispatch(mut arguments: Vec<String>) -> Result<bool> {
    match arguments.remove(1).as_str() {
        "--role" => run_role(&Role::parse_from(arguments)).map(|()| true),
        "run" => rounds::run(&Options::parse_from(arguments)),
        other => anyhow::bail!("{other}: the harness is called as `run`, by scripts/bench"),
    }
}

fn run_role(role: &Role) -> Result<()> {
    match role {
        Role::Source(args) => generator::run(args),
        Role::Sink(args) => sink::run(args),
        Role::Reflect(args) => sink::reflect(args),
        Role::Prober(args) => prober::run(args),
        Role::Ticker(args) => prober::tick(args),
        Role::L2fwd(args) => xsk_l2fwd::run(args),
    }
}
