//! Tables of `flowrail show` that may be long: printed row by row as they come, in columns of fixed width.

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::client;
use super::show::uptime;
use crate::control::report::{FdbReport, RouteReport, Source};

/// Prints a list row by row. A row is a line of the answer.
pub(super) fn print<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    header: &str,
    line: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    super::print(&format!("{header}\n"))?;
    client::stream(socket, path, |piece| {
        rest.extend_from_slice(piece);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole: Vec<u8> = rest.drain(..end).collect();
        let mut text = String::new();
        for row in whole.split(|byte| *byte == b'\n').filter_map(row) {
            text.push_str(line(&client::read::<T>(row)?).trim_end());
            text.push('\n');
        }
        super::print(&text)
    })
}

/// The JSON of a row in a line of an array.
fn row(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b",").unwrap_or(line);
    (line.first() == Some(&b'{')).then_some(line)
}

pub(super) const FDB: &str =
    "network           VNI       mac                place                             source   age";

pub(super) fn fdb(row: &FdbReport) -> String {
    let port = row.port.as_ref().map(|port| format!("port {port}"));
    let vtep = row.vtep.map(|ip| match &row.peer {
        Some(peer) => format!("VTEP {ip} ({peer})"),
        None => format!("VTEP {ip}"),
    });
    let place = port.or(vtep).unwrap_or_default();
    let frozen = if row.frozen { ", frozen" } else { "" };
    format!(
        "{:<16}  {:<8}  {:<17}  {place:<32}  {:<7}  {}{frozen}",
        row.network,
        row.vni,
        row.mac,
        source(row.source),
        age(row.age_ms),
    )
}

pub(super) const ROUTES: &str = "tenant            prefix                                       kind           by                                 source   age";

pub(super) fn route(row: &RouteReport) -> String {
    let network = row.network.as_ref().map(|network| format!("network {network}"));
    let vtep = row.vtep.map(|ip| format!("VTEP {ip}"));
    let leak = row.leak.as_ref().map(|tenant| format!("tenant {tenant}"));
    let position = row.position.as_ref().map(|position| format!("({position})"));
    let parts = [row.mac.clone(), network, vtep, leak, position];
    let by = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    format!(
        "{:<16}  {:<43}  {:<13}  {by:<33}  {:<7}  {}",
        row.tenant,
        row.prefix,
        row.kind,
        source(row.source),
        age(row.age_ms),
    )
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Static => "static",
        Source::Learned => "learned",
    }
}

fn age(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| uptime(Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_what_has_braces() {
        let lines = ["[", "{\"a\":1},", "{\"a\":2}", "]", "", "[]"];
        let rows: Vec<&[u8]> = lines.iter().filter_map(|line| row(line.as_bytes())).collect();
        assert_eq!(rows, [b"{\"a\":1}", b"{\"a\":2}"]);
    }
}
