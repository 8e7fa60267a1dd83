//! The life of a running flowrail: open, publish, follow the kernel, and close so that nothing is left.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::api::{ApiError, Server};
use super::config::{Config, VlanId};
use super::inspect::Inspector;
use super::netlink::{Client, Link, NetlinkError, Resolver, Update};
use super::notices::Notices;
use super::ports::Ports;
use super::publish::{self, Facts};
use super::quiesce::Crew;
use super::setup::{self, Setup, SetupError};
use super::site::{Devices, Site};
use crate::ids::IfIndex;
use crate::worker::{Event, Shared, Worker};

/// Events of workers that may wait; what does not fit is told again by the packets that follow.
const EVENT_QUEUE: usize = 1024;
/// Events taken in before anything else is looked at.
const EVENT_BATCH: usize = 256;
/// How long learned stations wait for others to be published with.
const COLLECT: Duration = Duration::from_millis(2);
/// Time between two looks at the workers, and at the age of what was learned.
const HEALTH: Duration = Duration::from_millis(500);

/// Why flowrail stopped, or did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Opening a port failed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The control socket.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The kernel's state could not be read.
    #[error("kernel state: {0}")]
    Netlink(#[from] NetlinkError),
    /// The system refused a thread, a signal handler or the runtime.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A worker ended before it was told to.
    #[error("worker {0} ended by itself; this is a bug, please report it with the log")]
    WorkerDied(usize),
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// See [`RunError`]. Whatever it is, nothing is left behind.
pub fn run(config: Config) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| RunError::System { what: "runtime", source })?;
    runtime.block_on(async {
        // The socket first: it refuses when another flowrail runs, before anything is touched.
        let server = Server::bind(&config.control.socket).await?;
        Running::start(config, server).await
    })
}

/// What the kernel says of the interfaces.
async fn interfaces(config: &Config) -> Result<(Facts, Devices), RunError> {
    let client = Client::open()?;
    let links = client.links().await?;
    let find = |what: &'static str, name: &str, interface: &str| {
        links.iter().find(|link| link.name == interface).ok_or_else(|| SetupError::Unfit {
            what,
            name: name.to_owned(),
            problem: format!("there is no interface {interface}; see: ip link"),
        })
    };
    let (mut facts, mut devices) = (Facts::default(), Devices::default());
    for uplink in &config.uplinks {
        let link = find("uplink", &uplink.name, uplink.interface.as_str())?;
        facts.uplinks.push(setup::facts("uplink", &uplink.name, link, uplink.mac, uplink.mtu)?);
        devices.ifindexes.push(link.ifindex);
        devices.resolving.push(resolving_device(&links, link, uplink.vlan).unwrap_or_else(|| {
            warn!(uplink = uplink.name, "no VLAN device on {}: only static neighbors resolve", link.name);
            link.ifindex
        }));
    }
    for port in &config.ports {
        let link = find("port", &port.name, port.interface.as_str())?;
        facts.ports.push(setup::facts("port", &port.name, link, None, port.mtu)?);
        devices.ifindexes.push(link.ifindex);
    }
    warn_of_foreign_encap_ips(config, &client).await?;
    Ok((facts, devices))
}

/// The device whose neighbor table has the next hops of an uplink.
fn resolving_device(links: &[Link], uplink: &Link, vlan: Option<VlanId>) -> Option<IfIndex> {
    let Some(vlan) = vlan else { return Some(uplink.ifindex) };
    let mut devices = links.iter();
    devices
        .find(|link| link.lower == Some(uplink.ifindex) && link.vlan == Some(vlan.get()))
        .map(|link| link.ifindex)
}

/// An encap IP that the host does not have is answered for by nobody: peers find no MAC for it.
async fn warn_of_foreign_encap_ips(config: &Config, client: &Client) -> Result<(), NetlinkError> {
    let addresses = client.addresses().await?;
    for uplink in &config.uplinks {
        for ip in uplink.encap_ips.iter().filter(|ip| !addresses.iter().any(|a| a.ip == **ip)) {
            warn!(
                uplink = uplink.name,
                "encap IP {ip} is not an address of this host: nobody answers ARP or ND for it; \
                 add it: ip addr add {ip} dev {}",
                uplink.interface
            );
        }
    }
    Ok(())
}

/// A flowrail that forwards.
struct Running {
    site: Arc<Site>,
    threads: Vec<JoinHandle<Worker>>,
    updates: mpsc::Receiver<Update>,
    events: mpsc::Receiver<Event>,
    notices: Notices,
    /// When what was learned is published, if there is something.
    publish_at: Option<Instant>,
}

impl Running {
    async fn start(config: Config, server: Server) -> Result<(), RunError> {
        let started = Instant::now();
        let system = |what| move |source| RunError::System { what, source };
        let mut terminate = signal(SignalKind::terminate()).map_err(system("SIGTERM handler"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system("SIGINT handler"))?;
        let (facts, devices) = interfaces(&config).await?;
        let (resolver, updates) = Resolver::start().await?;
        let (tell, events) = mpsc::channel(EVENT_QUEUE);
        let Setup { workers, counters, wakers, doors, ports } =
            setup::open(&config, &facts, &devices.ifindexes, &tell)?;
        let shared = Arc::new(Shared {
            tables: ArcSwap::from_pointee(publish::snapshot(&config, &facts)),
            fence: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let cores: Vec<usize> = workers.iter().map(|(core, _)| *core).collect();
        let threads = spawn(workers, &shared).map_err(system("worker thread"))?;
        let ports = Ports::new(ports, doors);
        let uplink_names = uplink_names(&config, &devices);
        let crew = Crew { shared, counters, wakers };
        let site = Arc::new(Site::new((config, facts), devices, crew, ports, resolver));
        let inspector =
            Arc::new(Inspector { site: Arc::clone(&site), cores, uplink_names, start: Instant::now() });
        let operate = Arc::clone(&site);
        let notices = Notices::default();
        let mut running = Self { site, threads, updates, events, notices, publish_at: None };
        running.announce(started);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let api = tokio::spawn(server.serve(inspector, operate, async { drop(stopped.await) }));
        let result = tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            result = running.follow() => result,
        };
        running.close();
        drop(stop);
        // The socket file goes with the server.
        let _ = api.await;
        result
    }

    fn announce(&self, started: Instant) {
        let (config, _) = self.site.current();
        self.site.ports.each(|(id, port)| {
            let name = config.port_names().nth(usize::from(id.0)).unwrap_or_default();
            info!("port {name}: {port}");
        });
        info!("ready in {} ms: {} workers", started.elapsed().as_millis(), self.threads.len());
    }

    /// Publishes what changes in the kernel and what workers learn, and passes on what packets wait for.
    async fn follow(&mut self) -> Result<(), RunError> {
        let mut health = tokio::time::interval(HEALTH);
        let mut heard = Vec::new();
        loop {
            let publish_at = self.publish_at;
            tokio::select! {
                update = self.updates.recv() => match update {
                    Some(Update::NextHops(changes)) => self.site.next_hops(&changes),
                    Some(Update::Link(link)) => self.note_link(&link),
                    Some(Update::LinkGone(ifindex)) => {
                        warn!("interface {} is gone", ifindex.0);
                    }
                    None => warn!("next hops are no longer followed"),
                },
                1.. = self.events.recv_many(&mut heard, EVENT_BATCH) => {
                    heard.drain(..).for_each(|event| self.heard(event));
                }
                () = until(publish_at), if publish_at.is_some() => self.publish_learned(),
                _ = health.tick() => {
                    if let Some(dead) = self.threads.iter().position(JoinHandle::is_finished) {
                        return Err(RunError::WorkerDied(dead));
                    }
                    self.publish_learned();
                }
            }
        }
    }

    /// What a worker tells.
    fn heard(&mut self, event: Event) {
        match event {
            Event::Want(remote) => self.site.demand(remote),
            Event::Learned { layout, seen } => {
                if let Some(notice) = self.site.saw(layout, &seen) {
                    self.notices.log(Instant::now(), &self.site, &seen, notice);
                }
                self.publish_soon();
            }
            Event::Group { layout, change } => {
                self.site.joined(layout, &change);
                self.publish_soon();
            }
        }
    }

    /// What comes within a moment is published together.
    fn publish_soon(&mut self) {
        if self.publish_at.is_none() && self.site.has_learned() {
            self.publish_at = Some(Instant::now() + COLLECT);
        }
    }

    fn publish_learned(&mut self) {
        self.publish_at = None;
        self.site.publish_learned();
    }

    fn note_link(&self, link: &Link) {
        if self.site.ports.each(|(_, port)| port.ifindex).contains(&link.ifindex) {
            let state = if link.up && link.carrier { "up" } else { "down" };
            info!("interface {}: {state}, MTU {}", link.name, link.mtu);
        }
    }

    /// Steering first, so that nothing new arrives; then the workers drain; their sockets close last.
    fn close(self) {
        self.site.ports.detach_all();
        self.site.crew.stop();
        for (index, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(worker) => report_frames(index, &worker),
                Err(_) => warn!("worker {index} ended with a panic"),
            }
        }
        info!("stopped");
    }
}

/// Waits for a moment; without one, for nothing.
async fn until(moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment.into()).await;
    }
}

/// Says so if a frame is missing at the end.
fn report_frames(index: usize, worker: &Worker) {
    let frames = worker.counters().frames.get();
    if !frames.is_conserved() {
        warn!("worker {index}: not every frame is accounted for, {frames:?}; this is a bug");
    }
}

fn spawn(
    workers: Vec<(usize, Worker)>,
    shared: &Arc<Shared>,
) -> Result<Vec<JoinHandle<Worker>>, std::io::Error> {
    let threads = workers.into_iter().enumerate().map(|(index, (core, worker))| {
        let shared = Arc::clone(shared);
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            if !core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
                warn!("worker {index} could not be pinned to core {core}");
            }
            worker.run(&shared)
        })
    });
    threads.collect()
}

/// Name of the uplink of each interface that resolves its next hops.
fn uplink_names(config: &Config, devices: &Devices) -> HashMap<IfIndex, String> {
    devices.resolving.iter().copied().zip(config.uplinks.iter().map(|u| u.name.clone())).collect()
}
