//! Changes of a running flowrail: a new configuration, a port in another network. Parsed, compared and built off the
//! workers' path, published at once, and answered when nothing of the old state is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::{info, warn};

use super::config::Config;
use super::diff::{self, Diff};
use super::moves;
use super::netlink::{Client, Link};
use super::publish::{self, Facts, Patch};
use super::quiesce::{LIMIT, Settled};
use super::report::{ApplyRequest, ChangeReport, MoveRequest, Operate, Refusal, Took};
use super::setup;
use super::site::{Built, Site};
use crate::ids::{IfIndex, NetworkId};

type Outcome = Result<ChangeReport, Refusal>;

impl Operate for Site {
    fn apply(self: Arc<Self>, request: ApplyRequest) -> BoxFuture<'static, Outcome> {
        let dry_run = request.dry_run;
        detached(change(self, dry_run, move |running| {
            let mut config =
                Config::parse(&request.text, &request.file).map_err(|errors| Refusal::from(&errors))?;
            diff::align(running, &mut config);
            Ok((config, None))
        }))
    }

    fn move_port(self: Arc<Self>, request: MoveRequest) -> BoxFuture<'static, Outcome> {
        detached(change(self, false, move |running| {
            let (config, networks) = moves::moved(running, &request)?;
            Ok((config, Some(networks)))
        }))
    }
}

/// Runs to the end, though nobody may wait for it any more.
fn detached(change: impl Future<Output = Outcome> + Send + 'static) -> BoxFuture<'static, Outcome> {
    let task = tokio::spawn(change);
    async move { task.await.unwrap_or_else(|_| Err(stopping())) }.boxed()
}

/// A new configuration, and the networks that differ when they are known to be few.
type Made = (Config, Option<BTreeSet<NetworkId>>);

/// The whole of a change; `make` makes the new configuration of the running one.
async fn change(
    site: Arc<Site>,
    dry_run: bool,
    make: impl FnOnce(&Config) -> Result<Made, Refusal> + Send + 'static,
) -> Outcome {
    let mut clock = Clock::start();
    let _turn = site.changing.lock().await;
    let (running, facts) = site.current();
    let old = Arc::clone(&running);
    let (new, few) = blocking(move || make(&old)).await??;
    let read = clock.lap();
    let (new, found) = blocking(move || {
        let found = Diff::between(&running, &new);
        (new, found)
    })
    .await?;
    let mut took = Took { read_ms: read, compare_ms: clock.lap(), ..Took::default() };
    if !found.refused.is_empty() {
        return Err(Refusal {
            error: "this cannot change while flowrail runs; nothing was changed".to_owned(),
            refused: found.refused,
            errors: Vec::new(),
        });
    }
    let facts = read_facts(&site, &new, &facts).await?;
    if dry_run || found.changes.is_empty() {
        took.total_ms = clock.total();
        return Ok(ChangeReport { dry_run, changes: found.changes, took, unfinished: Vec::new() });
    }
    let tables = site.tables();
    let (new, facts, built) = blocking(move || {
        let built = match few {
            Some(networks) => Built::Patch(Patch::new(&new, &facts, &tables, &networks)),
            None => Built::All(publish::snapshot(&new, &facts)),
        };
        (new, facts, built)
    })
    .await?;
    took.build_ms = clock.lap();
    let generation = site.adopt(new, facts, built);
    took.publish_ms = clock.lap();
    let waiting = Arc::clone(&site);
    let settled = blocking(move || {
        let settled = waiting.crew.settle(generation, LIMIT);
        waiting.tidy();
        settled
    })
    .await?;
    (took.adopt_ms, took.leave_ms) = (ms(settled.adopted), ms(settled.left));
    took.total_ms = clock.total();
    let report = ChangeReport { dry_run, changes: found.changes, took, unfinished: unfinished(&settled) };
    log(&report);
    Ok(report)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| stopping())
}

fn stopping() -> Refusal {
    Refusal::because("flowrail is stopping")
}

/// MACs and MTUs for the new configuration. An interface that is down may come up again; of one that is gone the last
/// is known.
async fn read_facts(site: &Site, config: &Config, known: &Facts) -> Result<Facts, Refusal> {
    let refuse = |error: &dyn std::fmt::Display| Refusal::because(error.to_string());
    let links = Client::open().map_err(|e| refuse(&e))?.links().await.map_err(|e| refuse(&e))?;
    let link = |ifindex: Option<&IfIndex>| {
        let link = links.iter().find(|link| Some(&link.ifindex) == ifindex);
        link.map(|link| Link { up: true, ..link.clone() })
    };
    let (of_uplinks, of_ports) = site.devices.ifindexes.split_at(known.uplinks.len());
    let mut facts = Facts::default();
    for ((uplink, ifindex), was) in config.uplinks.iter().zip(of_uplinks).zip(&known.uplinks) {
        let new = link(Some(ifindex))
            .map(|link| setup::facts("uplink", &uplink.name, &link, uplink.mac, uplink.mtu))
            .transpose();
        facts.uplinks.push(new.map_err(|e| refuse(&e))?.unwrap_or(*was));
    }
    for ((port, ifindex), was) in config.ports.iter().zip(of_ports).zip(&known.ports) {
        let new = link(Some(ifindex))
            .map(|link| setup::facts("port", &port.name, &link, None, port.mtu))
            .transpose();
        facts.ports.push(new.map_err(|e| refuse(&e))?.unwrap_or(*was));
    }
    Ok(facts)
}

fn unfinished(settled: &Settled) -> Vec<String> {
    let stuck = settled.stuck.iter().map(|worker| format!("worker {worker} still works with the old tables"));
    let late = settled.late.iter().map(|worker| {
        format!(
            "worker {worker}: a device has not sent what it was given before; it is down, or its peer is stopped"
        )
    });
    stuck.chain(late).collect()
}

fn log(report: &ChangeReport) {
    for line in &report.changes {
        info!("changed: {line}");
    }
    for line in &report.unfinished {
        warn!("{line}");
    }
    info!("changed in {:.1} ms", report.took.total_ms);
}

/// Measures phases.
struct Clock {
    start: Instant,
    last: Instant,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self { start: now, last: now }
    }

    /// Milliseconds since the last lap.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        ms(now - std::mem::replace(&mut self.last, now))
    }

    fn total(&self) -> f64 {
        ms(self.start.elapsed())
    }
}

/// Milliseconds with three digits behind the point.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
