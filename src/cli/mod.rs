//! Command line: parses arguments, runs one subcommand, turns its outcome into an exit code. One file a subcommand.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong configuration file.

mod apply;
mod check;
mod client;
mod port;
mod rows;
mod run;
mod show;
mod table;
mod trace;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::control::config::LoadError;

/// Exit code of wrong usage (clap's own) and of a wrong configuration file.
const USAGE: u8 = 2;

/// Software VTEP for GPU hosts and DPUs: AF_XDP VXLAN forwarding that understands RoCEv2.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  flowrail check /etc/flowrail/host.toml          find every error in a configuration
  flowrail run --config /etc/flowrail/host.toml   forward packets
  flowrail show stats                             what the running flowrail has done
  flowrail apply /etc/flowrail/host.toml          change what it does, without a restart
  flowrail port move gpu0 --network blue-a        put one port into another network
  flowrail trace --config host.toml --port tap0 guest.pcap
                                                  what would become of captured packets
Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong configuration file.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Show(show::ShowArgs),
    Apply(apply::ApplyArgs),
    Port(port::PortArgs),
    Trace(trace::TraceArgs),
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(&args),
        Command::Check(args) => check::main(&args),
        Command::Show(args) => show::main(&args),
        Command::Apply(args) => apply::main(&args),
        Command::Port(args) => port::main(&args),
        Command::Trace(args) => trace::main(&args),
    };
    result.unwrap_or_else(|error| report(&error))
}

/// Prints an error with its causes, and gives its exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    // Errors of a configuration file name the file in each line.
    let (text, code) = match error.downcast_ref::<LoadError>() {
        Some(load) => (format!("{load}\n"), ExitCode::from(USAGE)),
        None => (format!("flowrail: {error:#}\n"), ExitCode::FAILURE),
    };
    complain(&text);
    code
}

/// Writes to standard error.
fn complain(text: &str) {
    // Nobody is left to be told when this fails.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_declared_soundly() {
        super::Cli::command().debug_assert();
    }
}
