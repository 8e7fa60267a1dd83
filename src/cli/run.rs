//! `flowrail run`: forwards until it is told to stop.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tracing_subscriber::EnvFilter;

use crate::control::config::Config;
use crate::control::lifecycle;

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

pub(super) fn main(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse(&args.log)?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    lifecycle::run(config)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what the logger would.
fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
