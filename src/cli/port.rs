//! `flowrail port`: changes one port of the running flowrail.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::control::config::DEFAULT_SOCKET;
use crate::control::report::MoveRequest;

use super::{apply, client};

/// Change one port of the running flowrail.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PortArgs {
    #[command(subcommand)]
    command: PortCommand,
}

const EXAMPLES: &str = "\
Examples:
  flowrail port move gpu0 --network blue-a
  flowrail port move gpu0 --network blue-a --macs 02:00:00:00:0a:01,02:00:00:00:0a:02
  flowrail port move gpu0 --network blue-a --ips 10.7.0.5
The file is not changed: a later `flowrail apply` of it moves the port back, and says so.";

#[derive(Debug, Subcommand)]
enum PortCommand {
    /// Put a port into another network
    ///
    /// When the command returns, no packet of the port reaches its old network any more.
    Move(MoveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct MoveArgs {
    /// Port, by its name in the configuration
    #[arg(value_name = "PORT")]
    port: String,
    /// Network it goes to
    #[arg(long, value_name = "NAME")]
    network: String,
    /// MACs behind it there; it keeps those it has when absent
    #[arg(long, value_name = "MAC", value_delimiter = ',')]
    macs: Option<Vec<String>>,
    /// IP addresses of the first MAC there; it keeps those it has when absent, and has none when empty
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    ips: Option<Vec<String>>,
    /// Socket of the running flowrail
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &PortArgs) -> anyhow::Result<ExitCode> {
    let PortCommand::Move(args) = &args.command;
    let MoveArgs { port, network, macs, ips, .. } = args;
    let request =
        MoveRequest { port: port.clone(), network: network.clone(), macs: macs.clone(), ips: ips.clone() };
    apply::finish(client::post(&args.socket, "/v1/port-move", &request)?, args.json)
}
