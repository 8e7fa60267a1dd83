//! `flowrail trace`: arguments.

use std::path::PathBuf;

use clap::Args;

/// Run captured packets through the datapath offline, and explain what becomes of each.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail trace --config host.toml --port tap0 guest.pcap
  flowrail trace --config host.toml --port rail0 --json fabric.pcap | jq .verdict")]
pub struct TraceArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Port that the packets arrive on, by its name in the configuration
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Packets, as captured with tcpdump or Wireshark
    #[arg(value_name = "FILE.pcap")]
    pub pcap: PathBuf,
    /// Print one JSON object per packet, with output bytes in hex
    #[arg(long)]
    pub json: bool,
}
