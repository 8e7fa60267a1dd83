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
use crate::ids::{IfIndex, NetworkId, PortId};

type Outcome = Result<ChangeReport, Refusal>;

impl Operate for Site {
    fn apply(self: Arc<Self>, request: ApplyRequest) -> BoxFuture<'static, Outcome> {
        let dry_run = request.dry_run;
        detached(change(self, dry_run, move |running| {
            let mut config =
                Config::parse(&request.text, &request.file).map_err(|errors| Refusal::from(&errors))?;
            config.number_ports_as(running);
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
    let (new, few) = blocking(move || make(&running)).await??;
    let read = clock.lap();
    let running = Arc::clone(&old);
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
    let (opened, closed) = (diff::opened(&old, &new), diff::opened(&new, &old));
    let (facts, arriving) = read_facts(&site, &new, &facts, &opened).await?;
    if dry_run || found.changes.is_empty() {
        took.total_ms = clock.total();
        return Ok(ChangeReport { dry_run, changes: found.changes, took, unfinished: Vec::new() });
    }
    let tables = site.tables();
    let (new, facts, built) = blocking(move || {
        let built = match few {
            Some(networks) => Built::Patch(Patch::new(&new, &facts, &tables, &networks)),
            None => Built::All(Box::new(publish::snapshot(&new, &facts))),
        };
        (new, facts, built)
    })
    .await?;
    took.build_ms = clock.lap();
    let ports = Arc::clone(&site);
    let (new, came) = blocking(move || {
        let came = ports.ports.open(&ports.crew, &new, &arriving);
        (new, came)
    })
    .await?;
    came.map_err(|error| Refusal::because(format!("{error}; nothing was changed")))?;
    took.open_ms = clock.lap();
    let generation = site.adopt(new, facts, built);
    took.publish_ms = clock.lap();
    let waiting = Arc::clone(&site);
    let settled = blocking(move || {
        let mut settled = waiting.crew.settle(generation, LIMIT);
        settled.stuck.extend(waiting.ports.close(&waiting.crew, &closed));
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

/// MACs and MTUs for the new configuration, and the interfaces of ports to be opened. An interface that is down may come
/// up again, and of one that is gone the last is known; that of a port to be opened must be there and up.
async fn read_facts(
    site: &Site,
    config: &Config,
    known: &Facts,
    opened: &[PortId],
) -> Result<(Facts, Vec<(PortId, IfIndex)>), Refusal> {
    let refuse = |error: &dyn std::fmt::Display| Refusal::because(error.to_string());
    let links = Client::open().map_err(|e| refuse(&e))?.links().await.map_err(|e| refuse(&e))?;
    let link = |id: PortId| {
        let ifindex = site.ports.ifindex(id)?;
        let link = links.iter().find(|link| link.ifindex == ifindex)?;
        Some(Link { up: true, ..link.clone() })
    };
    let (mut facts, mut arriving) = (Facts::default(), Vec::new());
    for ((id, uplink), was) in (0..).map(PortId).zip(&config.uplinks).zip(&known.uplinks) {
        let new = link(id)
            .map(|link| setup::facts("uplink", &uplink.name, &link, uplink.mac, uplink.mtu))
            .transpose();
        facts.uplinks.push(new.map_err(|e| refuse(&e))?.unwrap_or(*was));
    }
    for (index, (id, port)) in config.access_ports().enumerate() {
        let arrives = opened.contains(&id);
        let link = if arrives {
            let found = links.iter().find(|link| link.name == port.interface.as_str()).cloned();
            let missing =
                || format!("port {}: there is no interface {}; see: ip link", port.name, port.interface);
            Some(found.ok_or_else(|| Refusal::because(missing()))?)
        } else {
            link(id)
        };
        arriving.extend(link.as_ref().filter(|_| arrives).map(|link| (id, link.ifindex)));
        let new = link.map(|link| setup::facts("port", &port.name, &link, None, port.mtu)).transpose();
        let was = known.ports.get(index).copied();
        facts.ports.push(new.map_err(|e| refuse(&e))?.or(was).unwrap_or_default());
    }
    Ok((facts, arriving))
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
