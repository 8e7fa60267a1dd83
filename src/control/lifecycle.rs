//! The life of a running flowrail: open, publish, follow the kernel, and close so that nothing is left.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::api::{ApiError, Server};
use super::config::{Config, UplinkId, VlanId};
use super::inspect::Inspector;
use super::netlink::{Change, Client, Link, NetlinkError, Remote, Resolver, Route, Update};
use super::publish::{self, Facts, Path};
use super::setup::{self, OpenPort, Setup, SetupError};
use crate::ids::IfIndex;
use crate::wire::ethernet::Mac;
use crate::worker::handoff::Waker;
use crate::worker::{Event, Shared, Worker};

/// Events of workers that may wait; what does not fit is told again by the packets that follow.
const EVENT_QUEUE: usize = 1024;

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
struct Interfaces {
    facts: Facts,
    /// Of all ports, in the order of their numbers.
    ifindexes: Vec<IfIndex>,
    /// Of the device that resolves next hops, by uplink: its VLAN device when tagged.
    resolving: Vec<IfIndex>,
}

impl Interfaces {
    async fn read(config: &Config) -> Result<Self, RunError> {
        let client = Client::open()?;
        let links = client.links().await?;
        let find = |what: &'static str, name: &str, interface: &str| {
            links.iter().find(|link| link.name == interface).ok_or_else(|| SetupError::Unfit {
                what,
                name: name.to_owned(),
                problem: format!("there is no interface {interface}; see: ip link"),
            })
        };
        let mut all = Self { facts: Facts::default(), ifindexes: Vec::new(), resolving: Vec::new() };
        for uplink in &config.uplinks {
            let link = find("uplink", &uplink.name, uplink.interface.as_str())?;
            all.facts.uplinks.push(setup::facts("uplink", &uplink.name, link, uplink.mac, uplink.mtu)?);
            all.ifindexes.push(link.ifindex);
            all.resolving.push(resolving_device(&links, link, uplink.vlan).unwrap_or_else(|| {
                warn!(uplink = uplink.name, "no VLAN device on {}: only static neighbors resolve", link.name);
                link.ifindex
            }));
        }
        for port in &config.ports {
            let link = find("port", &port.name, port.interface.as_str())?;
            all.facts.ports.push(setup::facts("port", &port.name, link, None, port.mtu)?);
            all.ifindexes.push(link.ifindex);
        }
        warn_of_foreign_encap_ips(config, &client).await?;
        Ok(all)
    }
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
    config: Config,
    interfaces: Interfaces,
    paths: HashMap<Remote, Path>,
    shared: Arc<Shared>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<Worker>>,
    ports: Arc<Mutex<Vec<OpenPort>>>,
    resolver: Resolver,
    updates: mpsc::Receiver<Update>,
    events: mpsc::Receiver<Event>,
}

impl Running {
    async fn start(config: Config, server: Server) -> Result<(), RunError> {
        let started = Instant::now();
        let system = |what| move |source| RunError::System { what, source };
        let mut terminate = signal(SignalKind::terminate()).map_err(system("SIGTERM handler"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system("SIGINT handler"))?;
        let interfaces = Interfaces::read(&config).await?;
        let (resolver, updates) = Resolver::start().await?;
        let paths = resolve(&config, &interfaces, &resolver);
        let tables = publish::snapshot(&config, &interfaces.facts);
        let (tell, events) = mpsc::channel(EVENT_QUEUE);
        let Setup { workers, counters, wakers, ports } =
            setup::open(&config, &interfaces.facts, &interfaces.ifindexes, &tell)?;
        let shared = Arc::new(Shared {
            tables: ArcSwap::from_pointee(tables),
            fence: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let cores: Vec<usize> = workers.iter().map(|(core, _)| *core).collect();
        let threads = spawn(workers, &shared).map_err(system("worker thread"))?;
        let ports = Arc::new(Mutex::new(ports));
        let inspector = Arc::new(Inspector {
            config: config.clone(),
            facts: interfaces.facts.clone(),
            workers: cores.into_iter().zip(counters).collect(),
            ports: Arc::clone(&ports),
            resolver: resolver.clone(),
            uplink_names: uplink_names(&config, &interfaces),
            start: Instant::now(),
        });
        let mut running =
            Self { config, interfaces, paths, shared, wakers, threads, ports, resolver, updates, events };
        running.announce(started);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let api = tokio::spawn(server.serve(inspector, async { drop(stopped.await) }));
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
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, port) in self.config.port_names().zip(ports.iter()) {
            let copy = if port.zero_copy { "zero-copy" } else { "copy" };
            info!("port {name}: {} queues, {} XDP, {copy} mode", port.queues, port.mode);
        }
        info!("ready in {} ms: {} workers", started.elapsed().as_millis(), self.threads.len());
    }

    /// Publishes what changes in the kernel, and passes on what packets wait for.
    async fn follow(&mut self) -> Result<(), RunError> {
        let mut health = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            tokio::select! {
                update = self.updates.recv() => match update {
                    Some(Update::NextHops(changes)) => self.publish(&changes),
                    Some(Update::Link(link)) => self.note_link(&link),
                    Some(Update::LinkGone(ifindex)) => {
                        warn!("interface {} is gone", ifindex.0);
                    }
                    None => warn!("next hops are no longer followed"),
                },
                Some(event) = self.events.recv() => match event {
                    Event::Want(remote) => self.demand(remote),
                    Event::Learned { .. } => {}
                },
                _ = health.tick() => {
                    if let Some(dead) = self.threads.iter().position(JoinHandle::is_finished) {
                        return Err(RunError::WorkerDied(dead));
                    }
                }
            }
        }
    }

    fn publish(&self, changes: &[Change]) {
        let known: Vec<(Path, Option<Mac>)> = changes
            .iter()
            .filter_map(|change| Some((*self.paths.get(&change.remote)?, change.mac)))
            .collect();
        let next =
            publish::with_next_hops(&self.shared.tables.load(), &self.config, &self.interfaces.facts, &known);
        self.shared.tables.store(Arc::new(next));
        self.wakers.iter().for_each(|waker| waker.wake());
    }

    fn note_link(&self, link: &Link) {
        if self.interfaces.ifindexes.contains(&link.ifindex) {
            let state = if link.up && link.carrier { "up" } else { "down" };
            info!("interface {}: {state}, MTU {}", link.name, link.mtu);
        }
    }

    fn demand(&self, ip: IpAddr) {
        let remotes: Vec<Remote> = self.paths.keys().filter(|remote| remote.ip == ip).copied().collect();
        self.resolver.demand(&remotes);
    }

    /// Steering first, so that nothing new arrives; then the workers drain; their sockets close last.
    fn close(self) {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wakers.iter().for_each(|waker| waker.wake());
        for (index, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(worker) => report_frames(index, &worker),
                Err(_) => warn!("worker {index} ended with a panic"),
            }
        }
        info!("stopped");
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

/// Hands the resolver every remote encap IP and the configured MACs; returns which path each remote is.
fn resolve(config: &Config, interfaces: &Interfaces, resolver: &Resolver) -> HashMap<Remote, Path> {
    let device = |uplink: UplinkId| interfaces.resolving.get(usize::from(uplink.0)).copied();
    let fixed = config.static_neighbors.iter();
    resolver.set_static(fixed.filter_map(|n| Some((device(n.uplink)?, n.ip, n.mac))));
    let mut paths = HashMap::new();
    let mut routes = Vec::new();
    for path in publish::paths(config) {
        let Some((uplink, source)) = path.local else { continue };
        let Some(ifindex) = device(uplink) else { continue };
        let remote = Remote { ifindex, ip: path.remote };
        paths.insert(remote, path);
        routes.push(Route { remote, source: Some(source) });
    }
    resolver.set_routes(&routes);
    paths
}

fn uplink_names(config: &Config, interfaces: &Interfaces) -> HashMap<IfIndex, String> {
    interfaces.resolving.iter().copied().zip(config.uplinks.iter().map(|u| u.name.clone())).collect()
}
