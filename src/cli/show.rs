//! `flowrail show`: what the running flowrail tells, as tables or as the API's JSON.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::control::config::DEFAULT_SOCKET;
use crate::control::report::{NetworkReport, TenantReport};
use crate::control::stats::{
    CopyMode, Counters, NeighborReport, PortKind, PortReport, Stats, Version, XdpMode,
};
use crate::wire::drop::{DropReason, Note};

use super::table::Table;
use super::{client, rows};

/// Ask the running flowrail.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail show stats
  flowrail show ports --json | jq '.[] | {name, rx_packets}'
  flowrail show neighbors --socket /run/flowrail/blue.sock
  flowrail show fdb --network red-a
  flowrail show routes --tenant red --json | jq '.[].prefix'")]
pub(super) struct ShowArgs {
    /// What to show
    what: What,
    /// Socket of the running flowrail
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Only this network (with fdb)
    #[arg(long, value_name = "NAME", value_parser = name)]
    network: Option<String>,
    /// Only this tenant (with routes)
    #[arg(long, value_name = "NAME", value_parser = name)]
    tenant: Option<String>,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Packets, drops by reason, workers
    Stats,
    /// Uplinks and access ports: mode, traffic, drops
    Ports,
    /// Next hops of the remote encap IPs
    Neighbors,
    /// Stations: where each MAC is, static or learned
    Fdb,
    /// Routes of the tenants
    Routes,
    /// Networks: ports, peers, stations
    Networks,
    /// Tenants: networks, routes, rules and what these counted
    Tenants,
}

pub(super) fn main(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let filter = match (args.what, &args.network, &args.tenant) {
        (_, None, None) => String::new(),
        (What::Fdb, Some(network), None) => format!("?network={network}"),
        (What::Routes, None, Some(tenant)) => format!("?tenant={tenant}"),
        _ => {
            super::complain("flowrail: --network goes with `show fdb`, --tenant with `show routes`\n");
            return Ok(ExitCode::from(super::USAGE));
        }
    };
    let value = args.what.to_possible_value();
    let path = format!("/v1/{}{filter}", value.as_ref().map_or("", |value| value.get_name()));
    let socket = &args.socket;
    match args.what {
        What::Fdb | What::Routes if args.json => {
            client::stream(socket, &path, |piece| super::print(&String::from_utf8_lossy(piece)))?;
        }
        What::Fdb => rows::print(socket, &path, rows::FDB, rows::fdb)?,
        What::Routes => rows::print(socket, &path, rows::ROUTES, rows::route)?,
        _ => {
            let body = client::get(socket, &path)?;
            super::print(&if args.json {
                format!("{:#}\n", client::read::<serde_json::Value>(&body)?)
            } else {
                table(args, &body)?
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A short answer as a table.
fn table(args: &ShowArgs, body: &[u8]) -> anyhow::Result<String> {
    Ok(match args.what {
        What::Stats => {
            let version = client::read(&client::get(&args.socket, "/v1/version")?)?;
            stats(&version, &client::read(body)?)
        }
        What::Ports => ports(&client::read::<Vec<_>>(body)?),
        What::Neighbors => neighbors(&client::read::<Vec<_>>(body)?),
        What::Networks => networks(&client::read::<Vec<_>>(body)?),
        What::Tenants => tenants(&client::read::<Vec<_>>(body)?),
        What::Fdb | What::Routes => String::new(),
    })
}

/// A name as the configuration allows it, which needs no escapes in a query.
fn name(text: &str) -> Result<String, String> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let ok = !text.is_empty() && text.bytes().all(legal);
    if ok { Ok(text.to_owned()) } else { Err("names have letters, digits, '.', '_' and '-'".to_owned()) }
}

fn stats(version: &Version, stats: &Stats) -> String {
    let totals = &stats.totals;
    let up = uptime(Duration::from_millis(stats.uptime_ms));
    let mut text = format!("flowrail {}, pid {}, up {up}\n\n", version.version, version.pid);
    let mut table = Table::new(&["packets", ""]);
    for (what, count) in [
        ("received", totals.received),
        ("forwarded", totals.forwarded),
        ("replied", totals.replied),
        ("punted", totals.punted),
        ("dropped", totals.dropped),
        ("waiting", totals.waiting),
    ] {
        table.row([what.to_owned(), count.to_string()]);
    }
    text.push_str(&table.render());
    text.push_str(&explained("drops", &totals.drops, explain_drop));
    text.push_str(&explained("notes", &totals.notes, explain_note));
    if !stats.rules.is_empty() {
        let mut table = Table::new(&[]);
        for rule in &stats.rules {
            table.row([format!("  {}: {}", rule.tenant, rule.rule), rule.packets.to_string()]);
        }
        let _ = write!(text, "\nrules\n{}", table.render());
    }
    text.push('\n');
    text.push_str(&workers(stats));
    text
}

fn workers(stats: &Stats) -> String {
    let mut table = Table::new(&[
        "worker", "core", "loops", "batches", "wakeups", "handoffs", "frames:", "fill", "held", "queued",
        "tx", "lent", "pool", "total",
    ]);
    let mut lost = String::new();
    for worker in &stats.workers {
        let frames = worker.frames;
        table.row([
            worker.worker.to_string(),
            worker.core.to_string(),
            worker.loops.to_string(),
            worker.batches.to_string(),
            worker.wakeups.to_string(),
            worker.handoffs.to_string(),
            String::new(),
            frames.fill.to_string(),
            frames.worker.to_string(),
            frames.queued.to_string(),
            frames.tx.to_string(),
            frames.lent.to_string(),
            frames.pool.to_string(),
            frames.total.to_string(),
        ]);
        if !frames.is_conserved() {
            let _ = writeln!(lost, "worker {}: frames do not add up to the total", worker.worker);
        }
    }
    table.render() + &lost
}

fn ports(ports: &[PortReport]) -> String {
    let mut table = Table::new(&[
        "port",
        "name",
        "role",
        "interface",
        "mode",
        "copy",
        "queues",
        "mtu",
        "rx packets",
        "rx bytes",
        "tx packets",
        "tx bytes",
        "drops",
    ]);
    let mut details = String::new();
    for port in ports {
        let role = match port.role {
            PortKind::Uplink => "uplink",
            PortKind::Access => "access",
        };
        let mode = match port.mode {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        };
        let copy = match port.copy {
            CopyMode::Copy => "copy",
            CopyMode::ZeroCopy => "zero-copy",
        };
        table.row([
            port.port.to_string(),
            port.name.clone(),
            role.to_owned(),
            port.interface.clone(),
            mode.to_owned(),
            copy.to_owned(),
            port.queues.to_string(),
            port.mtu.to_string(),
            port.rx_packets.to_string(),
            port.rx_bytes.to_string(),
            port.tx_packets.to_string(),
            port.tx_bytes.to_string(),
            port.drops.sum().to_string(),
        ]);
        let title = |what: &str| format!("{}: {what}", port.name);
        details.push_str(&explained(&title("drops"), &port.drops, explain_drop));
        details.push_str(&explained(&title("XDP outcomes"), &port.xdp, |_| ""));
        details.push_str(&explained(&title("socket statistics"), &port.sockets, explain_socket));
    }
    table.render() + &details
}

fn neighbors(neighbors: &[NeighborReport]) -> String {
    let mut table = Table::new(&["uplink", "remote", "next hop", "mac", "state", "age", "problem"]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for neighbor in neighbors {
        table.row([
            neighbor.uplink.clone(),
            neighbor.remote.to_string(),
            or_dash(neighbor.next_hop.map(|ip| ip.to_string())),
            or_dash(neighbor.mac.clone()),
            neighbor.state.clone(),
            or_dash(neighbor.age_ms.map(|age| uptime(Duration::from_millis(age)))),
            neighbor.problem.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

fn networks(networks: &[NetworkReport]) -> String {
    let mut table = Table::new(&[
        "network",
        "VNI",
        "tenant",
        "gateway",
        "ports",
        "peers",
        "stations",
        "learned",
        "limit",
        "addresses",
    ]);
    for network in networks {
        let learning = network.learning;
        let or_dash = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let gateways = network.gateways.iter().map(ToString::to_string).collect::<Vec<_>>();
        table.row([
            network.network.clone(),
            network.vni.to_string(),
            network.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            if gateways.is_empty() { "-".to_owned() } else { gateways.join(" ") },
            network.ports.len().to_string(),
            network.peers.len().to_string(),
            network.stations.to_string(),
            or_dash(learning.map(|learning| learning.stations)),
            or_dash(learning.map(|learning| learning.limit)),
            network.addresses.to_string(),
        ]);
    }
    table.render()
}

fn tenants(tenants: &[TenantReport]) -> String {
    let mut table = Table::new(&["tenant", "L3VNI", "router MAC", "networks", "routes", "rules"]);
    let mut details = String::new();
    for tenant in tenants {
        table.row([
            tenant.tenant.clone(),
            tenant.l3vni.map_or_else(|| "-".to_owned(), |vni| vni.to_string()),
            tenant.router_mac.clone().unwrap_or_else(|| "-".to_owned()),
            tenant.networks.join(" "),
            tenant.routes.to_string(),
            tenant.rules.len().to_string(),
        ]);
        if !tenant.rules.is_empty() {
            let mut rules = Table::new(&["  rule", "action", "packets"]);
            for rule in &tenant.rules {
                rules.row([format!("  {}", rule.rule), rule.action.clone(), rule.packets.to_string()]);
            }
            let _ = write!(details, "\n{}: rules\n{}", tenant.tenant, rules.render());
        }
    }
    table.render() + &details
}

/// The counters above 0 under a title, each with a sentence; nothing when there are none.
fn explained(title: &str, counters: &Counters, explain: impl Fn(&str) -> &'static str) -> String {
    let nonzero = counters.nonzero();
    if nonzero.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[]);
    for (label, count) in nonzero {
        table.row([format!("  {label}"), count.to_string(), explain(label).to_owned()]);
    }
    format!("\n{title}\n{}", table.render())
}

fn explain_drop(label: &str) -> &'static str {
    DropReason::ALL.iter().find(|reason| reason.name() == label).map_or("", |reason| reason.explain())
}

fn explain_note(label: &str) -> &'static str {
    Note::ALL.iter().find(|note| note.name() == label).map_or("", |note| note.explain())
}

fn explain_socket(label: &str) -> &'static str {
    match label {
        "rx_dropped" => "No frame in the fill ring, or a packet too large for one.",
        "rx_ring_full" => "The worker is too slow.",
        "rx_fill_ring_empty_descs" => "The fill ring was empty when a frame was wanted.",
        "rx_invalid_descs" | "tx_invalid_descs" => {
            "The kernel refused a descriptor: a bug, please report it."
        }
        "tx_ring_empty_descs" => "The kernel looked for something to send and found nothing.",
        _ => "",
    }
}

/// A duration for people: the two largest units.
pub(super) fn uptime(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{:.1}s", time.as_secs_f64()),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_their_two_largest_units() {
        for (ms, text) in [
            (0, "0.0s"),
            (1500, "1.5s"),
            (59_999, "59s"),
            (61_000, "1m1s"),
            (3_660_000, "1h1m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(uptime(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn only_counters_above_zero_are_shown_with_their_sentence() {
        let mut counts = [0; DropReason::COUNT];
        counts[DropReason::UnknownVni.index()] = 3;
        let text = explained("drops", &Counters::drops(&counts), explain_drop);
        assert_eq!(text, "\ndrops\n  unknown_vni  3  No network has this VNI.\n");
        assert_eq!(explained("drops", &Counters::drops(&[0; DropReason::COUNT]), explain_drop), "");
    }

    #[test]
    fn frames_that_do_not_add_up_are_told() {
        let mut stats = Stats::default();
        stats.workers.push(Default::default());
        assert!(!workers(&stats).contains("add up"));
        stats.workers[0].frames.total = 1;
        assert!(workers(&stats).contains("worker 0: frames do not add up to the total"));
    }
}
