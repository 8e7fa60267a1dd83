//! `flowrail check`: finds every error in a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::control::config::{Config, ConfigErrors, LoadError};

/// Check a configuration file, and name file, line and culprit of every error.
///
/// Reads the file only: whether its interfaces exist is found out by `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail check /etc/flowrail/host.toml
  flowrail check --json host.toml | jq '.errors[]'
Exit codes: 0 the file is right, 2 it is wrong or unreadable.")]
pub(super) struct CheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = Config::load(&args.file);
    let file = args.file.display().to_string();
    match (loaded, args.json) {
        (Ok(config), false) => super::print(&format!("{file}: ok: {}\n", summary(&config)))?,
        (Ok(config), true) => super::print(&format!("{:#}\n", counts(&file, &config)))?,
        (Err(LoadError::Invalid(report)), true) => {
            super::print(&format!("{:#}\n", errors(&report)))?;
            return Ok(ExitCode::from(super::USAGE));
        }
        (Err(error), _) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a configuration has, and how much of it. Tenants and what they have are told only where there are any.
fn things(config: &Config) -> Vec<(&'static str, usize)> {
    let routes = config.tenants.iter().map(|tenant| tenant.routes.len()).sum();
    let mut things = vec![
        ("uplink", config.uplinks.len()),
        ("network", config.networks.len()),
        ("port", config.ports.len()),
        ("peer", config.peers.len()),
        ("endpoint", config.endpoint_count()),
        ("static neighbor", config.static_neighbors.len()),
    ];
    if !config.tenants.is_empty() {
        things.extend([
            ("tenant", config.tenants.len()),
            ("route", routes),
            ("rule", config.rules().count()),
        ]);
    }
    things
}

fn summary(config: &Config) -> String {
    let plural = |count| if count == 1 { "" } else { "s" };
    let counts = things(config).into_iter().map(|(what, count)| format!("{count} {what}{}", plural(count)));
    counts.collect::<Vec<_>>().join(", ")
}

fn counts(file: &str, config: &Config) -> serde_json::Value {
    let counts = things(config)
        .into_iter()
        .map(|(what, count)| (format!("{}s", what.replace(' ', "_")), count.into()));
    let head = [("file".to_owned(), file.into()), ("ok".to_owned(), true.into())];
    serde_json::Value::Object(head.into_iter().chain(counts).collect())
}

fn errors(report: &ConfigErrors) -> serde_json::Value {
    let error = |error: &crate::control::config::ConfigError| {
        json!({
            "line": error.line,
            "culprit": error.culprit,
            "problem": error.problem.to_string(),
            "message": format!("{}:{}: {error}", report.file, error.line),
        })
    };
    json!({
        "file": report.file,
        "ok": false,
        "errors": report.errors.iter().map(error).collect::<Vec<_>>(),
    })
}
