//! Changes of a running flowrail: a new configuration, a port in another network. Parsed, compared and built off the
//! workers' path, published at once, and answered when nothing of the old state is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::{info, warn};

use super::config::{Config, PortRole};
use super::diff::{self, Diff};
use super::netlink::{Client, Link};
use super::publish::{self, Facts};
use super::quiesce::{LIMIT, Settled};
use super::report::{ApplyRequest, ChangeReport, MoveRequest, Operate, Refusal, Took};
use super::setup;
use super::site::Site;
use crate::ids::{IfIndex, NetworkId};
use crate::wire::ethernet::Mac;

type Outcome = Result<ChangeReport, Refusal>;

impl Operate for Site {
    fn apply(self: Arc<Self>, request: ApplyRequest) -> BoxFuture<'static, Outcome> {
        let dry_run = request.dry_run;
        detached(change(self, dry_run, move |running| {
            let mut config =
                Config::parse(&request.text, &request.file).map_err(|errors| Refusal::from(&errors))?;
            config.number_ports_as(running);
            Ok(config)
        }))
    }

    fn move_port(self: Arc<Self>, request: MoveRequest) -> BoxFuture<'static, Outcome> {
        detached(change(self, false, move |running| moved(running, &request)))
    }
}

/// Runs to the end, though nobody may wait for it any more.
fn detached(change: impl Future<Output = Outcome> + Send + 'static) -> BoxFuture<'static, Outcome> {
    let task = tokio::spawn(change);
    async move { task.await.unwrap_or_else(|_| Err(stopping())) }.boxed()
}

/// The whole of a change; `make` makes the new configuration of the running one.
async fn change(
    site: Arc<Site>,
    dry_run: bool,
    make: impl FnOnce(&Config) -> Result<Config, Refusal> + Send + 'static,
) -> Outcome {
    let mut clock = Clock::start();
    let _turn = site.changing.lock().await;
    let (running, facts) = site.current();
    let old = Arc::clone(&running);
    let new = blocking(move || make(&old)).await??;
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
    let (new, facts, tables) = blocking(move || {
        let tables = publish::snapshot(&new, &facts);
        (new, facts, tables)
    })
    .await?;
    took.build_ms = clock.lap();
    let generation = site.adopt(new, facts, tables);
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

/// The running configuration with one port in another network.
fn moved(running: &Config, request: &MoveRequest) -> Result<Config, Refusal> {
    let MoveRequest { port: name, network, macs } = request;
    let mut config = running.clone();
    let number = config.networks.iter().position(|known| known.name == *network);
    let id = number.and_then(|number| u32::try_from(number).ok()).map(NetworkId);
    let id = id.ok_or_else(|| Refusal::because(format!("no network is called {network}")))?;
    let Some(port) = config.ports.iter_mut().find(|port| port.name == *name) else {
        return Err(Refusal::because(format!("no port is called {name}")));
    };
    if !matches!(port.role, PortRole::Network(_)) {
        return Err(Refusal::because(format!("port {name} is not in one network, so it cannot move")));
    }
    port.role = PortRole::Network(id);
    if let Some(macs) = macs {
        port.macs = station_macs(macs)?;
    }
    match owner_of_a_mac(&config, name, id) {
        Some((mac, owner)) => {
            Err(Refusal::because(format!("{mac} of port {name} is already in network {network}: {owner}")))
        }
        None => Ok(config),
    }
}

fn station_macs(texts: &[String]) -> Result<Vec<Mac>, Refusal> {
    let mut macs = Vec::new();
    for text in texts {
        let mac: Mac = text
            .parse()
            .map_err(|e: crate::wire::ethernet::MacParseError| Refusal::because(e.to_string()))?;
        if mac.is_group() || mac.is_zero() {
            return Err(Refusal::because(format!("{mac} is no station's own address")));
        }
        if macs.contains(&mac) {
            return Err(Refusal::because(format!("{mac} is given twice")));
        }
        macs.push(mac);
    }
    Ok(macs)
}

/// Who else in the network has a MAC of this port.
fn owner_of_a_mac(config: &Config, name: &str, id: NetworkId) -> Option<(Mac, String)> {
    let port = config.ports.iter().find(|port| port.name == name)?;
    let others = config.ports.iter().filter(|other| other.name != name);
    let mut others = others.filter(|other| other.role == PortRole::Network(id));
    let on_ports = others.find_map(|other| {
        let mac = other.macs.iter().find(|mac| port.macs.contains(mac))?;
        Some((*mac, format!("port {}", other.name)))
    });
    let in_network =
        |endpoint: &&super::config::Endpoint| endpoint.network == id && port.macs.contains(&endpoint.mac);
    let behind = |peer: &super::config::Peer| {
        let endpoint = peer.endpoints.iter().find(in_network)?;
        Some((endpoint.mac, format!("peer {}", peer.name)))
    };
    on_ports.or_else(|| config.peers.iter().find_map(behind))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = r#"
[[uplink]]
interface = "u0"
encap_ips = ["10.0.0.1"]
[[peer]]
name = "h1"
encap_ips = ["10.0.0.2"]
[[peer.endpoint]]
network = "blue"
mac = "02:00:00:00:0b:01"
[[network]]
name = "red"
vni = 100
[[network]]
name = "blue"
vni = 200
peers = ["h1"]
[[port]]
interface = "gpu0"
network = "red"
macs = ["02:00:00:00:0a:01"]
[[port]]
interface = "gpu1"
network = "blue"
macs = ["02:00:00:00:0a:02"]
[[port]]
interface = "bare"
native = "u0"
"#;
        Config::parse(text, "test").unwrap_or_else(|e| panic!("{e}"))
    }

    fn request(port: &str, network: &str, macs: Option<&[&str]>) -> MoveRequest {
        let macs = macs.map(|macs| macs.iter().map(|&mac| mac.to_owned()).collect());
        MoveRequest { port: port.to_owned(), network: network.to_owned(), macs }
    }

    #[test]
    fn a_port_moves_with_its_macs_or_gets_others() {
        let old = config();
        let new = moved(&old, &request("gpu0", "blue", None)).unwrap();
        assert_eq!(Diff::between(&old, &new).changes, ["~ port gpu0: network red → blue"]);
        let new = moved(&old, &request("gpu0", "blue", Some(&["02:00:00:00:0a:09"]))).unwrap();
        assert_eq!(Diff::between(&old, &new).changes, ["~ port gpu0: network red → blue, +1 −1 macs"]);
    }

    #[test]
    fn what_cannot_be_says_why() {
        for (request, why) in [
            (request("gpu9", "blue", None), "no port is called gpu9"),
            (request("gpu0", "green", None), "no network is called green"),
            (request("bare", "blue", None), "port bare is not in one network, so it cannot move"),
            (
                request("gpu0", "blue", Some(&["02:00:00:00:0b:01"])),
                "02:00:00:00:0b:01 of port gpu0 is already in network blue: peer h1",
            ),
            (
                request("gpu0", "blue", Some(&["02:00:00:00:0a:02"])),
                "02:00:00:00:0a:02 of port gpu0 is already in network blue: port gpu1",
            ),
            (
                request("gpu0", "blue", Some(&["01:00:00:00:00:01"])),
                "01:00:00:00:00:01 is no station's own address",
            ),
        ] {
            assert_eq!(moved(&config(), &request).unwrap_err().error, why);
        }
    }
}
