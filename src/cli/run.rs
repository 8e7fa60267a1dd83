//! `flowrail run`: arguments.

use std::path::PathBuf;

use clap::Args;
use tracing_subscriber::EnvFilter;

/// Forward packets as a configuration file says, until SIGTERM or SIGINT.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail run --config /etc/flowrail/host.toml
  flowrail run --config host.toml --log debug
  flowrail run --config host.toml --log info,flowrail::control=debug")]
pub struct RunArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to log: error, warn, info, debug or trace, for everything or by module
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_filter)]
    pub log: String,
}

/// Refuses what the logger would.
fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
