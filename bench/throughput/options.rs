//! Command line of the harness, and of the roles it starts itself in.
use std::path::PathBuf;
use std::time::Duration;

use crate::forwarders::Kind;
use crate::frames::Direction;
use crate::{generator, prober, sink, xsk_l2fwd};

/// What this binary becomes when the harness starts itself in a namespace.
#[derive(clap::Parser)]
pub enum Role {
    Source(generator::Args),
    Sink(sink::Args),
    Reflect(sink::Args),
    Prober(prober::Args),
    Ticker(prober::Args),
    L2fwd(xsk_l2fwd::Args),
}

/// What a user may ask for.
#[derive(clap::Parser)]
#[command(
    name = "scripts/bench",
    about = "Measures flowrail beside kernel vxlan and bare AF_XDP, interleaved, in network namespaces of its own"
)]
pub struct Options {
    /// One round of 2 s: does it work at all, at about which rate.
    #[arg(long)]
    quick: bool,
    /// Rounds; every figure is the median over them. At least 3, except with --quick.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..))]
    rounds: u32,
    /// Seconds a measurement takes.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Lengths of the inner frame, in bytes, at least 64.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1082, 4154], value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// Directions.
    #[arg(long, value_delimiter = ',', default_values_t = [Direction::Encap, Direction::Decap], value_enum)]
    pub dirs: Vec<Direction>,
    /// Forwarders, in the order in which they are measured.
    #[arg(long, value_delimiter = ',', default_values_t = [Kind::Kernel, Kind::L2fwd, Kind::Flowrail], value_enum)]
    pub forwarders: Vec<Kind>,
    /// Also measure round trips, one frame at a time.
    #[arg(long)]
    pub latency: bool,
    /// Also measure flowrail's start-up time, and its memory with a million FDB entries.
    #[arg(long)]
    pub startup: bool,
    /// Leave the throughput measurements out.
    #[arg(long)]
    pub no_throughput: bool,
    /// Round trips of one latency measurement.
    #[arg(long, default_value_t = 20_000)]
    probes: u32,
    /// Print one JSON object a line instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Descriptors taken from an RX ring at once, by l2fwd and flowrail alike.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// XDP_MAX_TX_SKB_BUDGET of l2fwd and flowrail alike.
    #[arg(long, default_value_t = 256)]
    pub tx_budget: u32,
    /// Ring size of l2fwd and flowrail alike.
    #[arg(long, default_value_t = 2048)]
    pub ring_size: u32,
    /// The flowrail to measure; the one built along with the harness unless given.
    #[arg(long)]
    flowrail: Option<PathBuf>,
}

impl Options {
    pub fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(if self.quick { 2.0 } else { self.seconds })
    }

    pub fn probes(&self) -> u32 {
        if self.quick { self.probes.min(5000) } else { self.probes }
    }

    /// How long to wait for the rest of the machine to calm down before a measurement.
    pub fn patience(&self) -> Duration {
        if self.quick { Duration::ZERO } else { Duration::from_secs(10) }
    }

    /// How often a measurement that did not have its cores to itself is taken.
    pub fn attempts(&self) -> u32 {
        if self.quick { 1 } else { 3 }
    }

    pub fn flowrail(&self) -> PathBuf {
        self.flowrail.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_flowrail")))
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        // the sequence number and the flow must fit, and the longest frame plus 50 B must fit the rig's MTU
        Ok(size) if (64..=9000).contains(&size) => Ok(size),
        _ => Err("a frame has 64 to 9000 bytes".to_owned()),
    }
}
