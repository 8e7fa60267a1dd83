//! `flowrail apply`: makes a configuration file the running state, without a restart.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::control::config::{DEFAULT_SOCKET, LoadError};
use crate::control::report::{ApplyRequest, ChangeReport, Refusal, Took};

use super::client;

/// Make a configuration file the running state, without a restart.
///
/// The running flowrail checks the file, compares it with what runs (earlier `port move`s included) and swaps at once.
/// A file that is wrong, or changes what cannot change while it runs, changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail apply --dry-run /etc/flowrail/host.toml   what would change
  flowrail apply /etc/flowrail/host.toml
  flowrail apply --json host.toml | jq .took.total_ms
Exit codes: 0 done, 1 refused, nothing changed.")]
pub(super) struct ApplyArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Socket of the running flowrail
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|source| LoadError::Read { path: args.file.clone(), source })?;
    let request = ApplyRequest { file: args.file.display().to_string(), text, dry_run: args.dry_run };
    finish(client::post(&args.socket, "/v1/apply", &request)?, args.json)
}

/// Prints the answer to a change, and gives its exit code.
pub(super) fn finish(answer: Result<ChangeReport, Refusal>, json: bool) -> anyhow::Result<ExitCode> {
    let (text, code) = match (&answer, json) {
        (Ok(report), true) => (format!("{:#}\n", serde_json::to_value(report)?), ExitCode::SUCCESS),
        (Ok(report), false) => (describe(report), ExitCode::SUCCESS),
        (Err(refusal), true) => (format!("{:#}\n", serde_json::to_value(refusal)?), ExitCode::FAILURE),
        (Err(refusal), false) => {
            super::complain(&reasons(refusal));
            return Ok(ExitCode::FAILURE);
        }
    };
    super::print(&text)?;
    Ok(code)
}

fn describe(report: &ChangeReport) -> String {
    let mut text: String = report.changes.iter().map(|line| format!("{line}\n")).collect();
    let took = &report.took;
    match (report.changes.is_empty(), report.dry_run) {
        (true, _) => text.push_str("nothing to change\n"),
        (false, true) => text.push_str("nothing was changed, as asked\n"),
        (false, false) => {
            text.push_str(&format!("changed in {:.1} ms ({})\n", took.total_ms, phases(took)));
        }
    }
    text.extend(report.unfinished.iter().map(|line| format!("warning: {line}\n")));
    text
}

fn phases(took: &Took) -> String {
    let phases = [
        ("read", took.read_ms),
        ("compare", took.compare_ms),
        ("build", took.build_ms),
        ("open", took.open_ms),
        ("publish", took.publish_ms),
        ("adopt", took.adopt_ms),
        ("leave", took.leave_ms),
    ];
    phases.map(|(name, ms)| format!("{name} {ms:.1}")).join(", ")
}

fn reasons(refusal: &Refusal) -> String {
    let errors = refusal.errors.iter().map(|error| format!("{}\n", error.message));
    let refused = refusal.refused.iter().map(|what| format!("  {what}\n"));
    // Errors of a file speak for themselves, as those of `check` do.
    let title =
        if refusal.errors.is_empty() { format!("flowrail: {}\n", refusal.error) } else { String::new() };
    title + &errors.chain(refused).collect::<String>()
}
