//! Opens everything that a configuration names, in an order that leaves nothing behind when a step fails: interfaces,
//! steering programs, one UMEM and the sockets of each worker, and at last the attachment. Dropping what is returned
//! closes it again.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::config::{self, Config, Cores, Steer};
use super::netlink::{Link as NetLink, NetlinkError};
use super::publish::{Facts, InterfaceFacts};
use crate::bpf::{AttachMode, AttachPolicy, BpfError, SteerMode, Steering};
use crate::ids::{IfIndex, Nanos, PortId, QueueId};
use crate::worker::command::{Command, Commands, commands};
use crate::worker::counters::Counters;
use crate::worker::handoff::{Inbox, Outbox, Waker, lane};
use crate::worker::link::Link;
use crate::worker::{Event, Idle, Parts, Route, Worker, WorkerConfig};
use crate::xsk::{
    self, BindMode, BusyPoll, HugePages, Pool, Socket, SocketConfig, StatisticsReader, Umem, UmemConfig,
    XskError,
};

/// Frames that may be lent from one worker to another at a time.
const LANE_FRAMES: usize = 512;
/// Frames that may wait for room on one TX ring.
const BACKLOG_FRAMES: usize = 1024;
/// Ports that may be added while flowrail runs.
const SPARE_PORTS: usize = 512;
/// Fewest frames of a UMEM for each socket that shares it.
const MIN_FRAMES_PER_SOCKET: u32 = 128;

/// Why flowrail cannot start. Each names the culprit and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The steering program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A socket or its memory.
    #[error(transparent)]
    Xsk(#[from] XskError),
    /// The kernel's answer about an interface.
    #[error("{what} {name}: {source}")]
    Interface {
        /// Uplink or port.
        what: &'static str,
        /// Its name in the configuration.
        name: String,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// An interface is down: the kernel binds no socket to it.
    #[error("{what} {name}: {interface} is down; bring it up: ip link set {interface} up")]
    Down {
        /// Uplink or port.
        what: &'static str,
        /// Its name.
        name: String,
        /// Its interface.
        interface: String,
    },
    /// An interface cannot be what the configuration says.
    #[error("{what} {name}: {problem}")]
    Unfit {
        /// Uplink or port.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A core does not exist or may not be used.
    #[error("workers: core {core} may not be used; allowed are {allowed:?}")]
    Core {
        /// The core.
        core: usize,
        /// Those that may be used.
        allowed: Vec<usize>,
    },
    /// Too small a UMEM.
    #[error(
        "workers: umem_frames {frames} is too few for {sockets} sockets of one worker; set at least {needed}"
    )]
    Frames {
        /// Configured.
        frames: u32,
        /// Sockets that share it.
        sockets: usize,
        /// At least.
        needed: u64,
    },
    /// Too few free frames for one more socket.
    #[error(
        "port {name}: worker {worker} has {free} free frames, and a socket needs {MIN_FRAMES_PER_SOCKET}; restart with \
         more workers.umem_frames"
    )]
    NoFrames {
        /// The port.
        name: String,
        /// The worker.
        worker: usize,
        /// Its free frames.
        free: u64,
    },
    /// More ports than there is room for.
    #[error("port {name}: {SPARE_PORTS} ports were added since the start; restart to add more")]
    NoPorts {
        /// The port.
        name: String,
    },
    /// The process may open no more files.
    #[error("no file descriptor for a wakeup event: {0}")]
    Waker(std::io::Error),
}

/// A port as it was opened.
pub struct OpenPort {
    /// Its interface in the kernel.
    pub ifindex: IfIndex,
    /// RX queues, each with a socket.
    pub queues: u32,
    /// Where the steering program runs.
    pub mode: AttachMode,
    /// All its sockets are zero-copy.
    pub zero_copy: bool,
    /// The steering program; dropping it detaches.
    pub steering: Steering,
    /// One for each socket.
    pub statistics: Vec<StatisticsReader>,
}

/// Everything that is open.
pub struct Setup {
    /// Workers with the cores they run on, not started.
    pub workers: Vec<(usize, Worker)>,
    /// Their counters.
    pub counters: Vec<Arc<Counters>>,
    /// Wake them.
    pub wakers: Vec<Arc<Waker>>,
    /// Their memory, and what they are asked to do.
    pub doors: Vec<Door>,
    /// In the order of the port numbers.
    pub ports: Vec<OpenPort>,
}

/// How ports come to a running worker.
#[derive(Clone)]
pub struct Door {
    /// Memory of its sockets.
    umem: Umem,
    /// What it is asked to do.
    pub commands: Commands,
    counters: Arc<Counters>,
}

/// A port that is open, but receives nothing yet.
pub struct Opened {
    /// The port, whose program is to be attached.
    pub port: OpenPort,
    /// What each worker is to be told.
    pub commands: Vec<Command>,
}

/// Opens a port for workers that run: loads its program and binds its sockets. Dropping what is returned closes it again.
///
/// # Errors
/// As at start-up, and when there is no room for one more port.
pub fn open_port(
    config: &Config,
    id: PortId,
    ifindex: IfIndex,
    doors: &[Door],
) -> Result<Opened, SetupError> {
    let place = usize::from(id.0).checked_sub(config.uplinks.len()).and_then(|index| config.ports.get(index));
    let name = || place.map_or_else(String::new, |port| port.name.clone());
    let plan = plans(config).nth(usize::from(id.0)).ok_or_else(|| SetupError::NoPorts { name: name() })?;
    if doors.iter().any(|door| usize::from(id.0) >= door.counters.port_capacity()) {
        return Err(SetupError::NoPorts { name: name() });
    }
    let mut port = load(config, &plan, ifindex)?;
    let owners = owners(port.queues, doors.len());
    let mut commands = Vec::new();
    for (worker, door) in doors.iter().enumerate() {
        let mut links = Vec::new();
        for queue in owned(port.queues, worker, doors.len()) {
            let free = door.counters.frames.get().pool;
            if free < u64::from(MIN_FRAMES_PER_SOCKET) {
                return Err(SetupError::NoFrames { name: name(), worker, free });
            }
            // Half of what is free, so that the next port finds some, too.
            let fill = usize::try_from(free / 2).unwrap_or(0).min(config.workers.ring_size as usize);
            links.push(bind(config, (id, queue), &plan, &mut port, &door.umem, fill)?);
        }
        commands.push(Command::Open { port: id, links, route: route_to(worker, &owners) });
    }
    Ok(Opened { port, commands })
}

impl std::fmt::Display for OpenPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let copy = if self.zero_copy { "zero-copy" } else { "copy" };
        write!(f, "{} queues, {} XDP, {copy} mode", self.queues, self.mode)
    }
}

impl OpenPort {
    /// Lets the port receive.
    ///
    /// # Errors
    /// When the driver takes no program in the mode that the configuration asks for.
    pub fn attach(&mut self, config: &Config) -> Result<(), SetupError> {
        let policy =
            if config.xdp.require_native { AttachPolicy::NativeOnly } else { AttachPolicy::NativeOrGeneric };
        self.mode = self.steering.attach(policy)?;
        Ok(())
    }
}

/// Loads the program of a port.
fn load(config: &Config, plan: &Plan, ifindex: IfIndex) -> Result<OpenPort, SetupError> {
    Ok(OpenPort {
        ifindex,
        queues: xsk::rx_queues(&plan.interface)?,
        mode: AttachMode::Native,
        zero_copy: true,
        steering: Steering::load(&plan.interface, plan.mode, &encap_ips(config))?,
        statistics: Vec::new(),
    })
}

/// Queues of a port that a worker owns.
fn owned(queues: u32, worker: usize, workers: usize) -> impl Iterator<Item = QueueId> {
    (0..queues).filter(move |queue| *queue as usize % workers == worker).map(QueueId)
}

/// Owner of each queue of a port.
fn owners(queues: u32, workers: usize) -> Vec<usize> {
    (0..queues as usize).map(|queue| queue % workers).collect()
}

/// Binds the socket of a queue and gives it to the port's program.
fn bind(
    config: &Config,
    (id, queue): (PortId, QueueId),
    plan: &Plan,
    port: &mut OpenPort,
    umem: &Umem,
    fill: usize,
) -> Result<Link, SetupError> {
    let socket = Socket::bind(&socket_config(config, &plan.interface, queue, umem))?;
    port.zero_copy &= socket.zero_copy();
    port.statistics.push(socket.statistics_reader());
    port.steering.insert_socket(queue, socket.as_fd())?;
    Ok(Link::new(id, queue, socket, BACKLOG_FRAMES, fill))
}

/// Where a worker without a queue of the port sends its packets: such workers spread over those that have one.
fn route_to(worker: usize, owners: &[usize]) -> Route {
    match owners.get(worker % owners.len().max(1)) {
        Some(owner) if *owner < worker => Route::Worker(*owner),
        Some(owner) => Route::Worker(owner.saturating_sub(1)),
        None => Route::None,
    }
}

/// Compares an interface with what the configuration says of it, and fills in what that leaves open.
pub fn facts(
    what: &'static str,
    name: &str,
    link: &NetLink,
    mac: Option<crate::wire::ethernet::Mac>,
    mtu: Option<u16>,
) -> Result<InterfaceFacts, SetupError> {
    if !link.up {
        return Err(SetupError::Down { what, name: name.to_owned(), interface: link.name.clone() });
    }
    let unfit = |problem: String| SetupError::Unfit { what, name: name.to_owned(), problem };
    let real = link.mac.ok_or_else(|| unfit(format!("{} has no Ethernet address", link.name)))?;
    let link_mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
    if let Some(mtu) = mtu.filter(|mtu| *mtu > link_mtu) {
        return Err(unfit(format!(
            "mtu {mtu} is more than {}'s {link_mtu}; raise that (ip link set {} mtu {mtu}) or lower this",
            link.name, link.name
        )));
    }
    Ok(InterfaceFacts { mac: mac.unwrap_or(real), mtu: mtu.unwrap_or(link_mtu) })
}

/// Opens every port and builds the workers, which tell `events` what they see.
pub fn open(
    config: &Config,
    facts: &Facts,
    ifindexes: &[IfIndex],
    events: &mpsc::Sender<Event>,
) -> Result<Setup, SetupError> {
    debug_assert_eq!(ifindexes.len(), facts.uplinks.len() + facts.ports.len());
    let cores = cores(&config.workers.cores)?;
    let mut closed = Vec::new();
    for (plan, ifindex) in plans(config).zip(ifindexes) {
        let port = load(config, &plan, *ifindex)?;
        closed.push((plan, port));
    }
    let mut setup = build_workers(config, &cores, &mut closed, events)?;
    for (_, mut port) in closed {
        port.attach(config)?;
        setup.ports.push(port);
    }
    Ok(setup)
}

/// What to open for a port.
struct Plan {
    interface: String,
    mode: SteerMode,
}

fn plans(config: &Config) -> impl Iterator<Item = Plan> {
    let native =
        |id: config::UplinkId| config.ports.iter().any(|port| port.role == config::PortRole::Native(id));
    let uplinks = (0..).map(config::UplinkId).zip(&config.uplinks).map(move |(id, uplink)| Plan {
        interface: uplink.interface.to_string(),
        mode: SteerMode::Underlay { vlan: uplink.vlan.map(config::VlanId::get), native_roce: native(id) },
    });
    let ports = config.ports.iter().map(|port| Plan {
        interface: port.interface.to_string(),
        mode: match port.steer {
            Steer::All => SteerMode::OverlayAll,
            Steer::Roce => SteerMode::OverlayRoce,
        },
    });
    uplinks.chain(ports)
}

fn encap_ips(config: &Config) -> Vec<IpAddr> {
    config.uplinks.iter().flat_map(|uplink| uplink.encap_ips.iter().copied()).collect()
}

fn cores(cores: &Cores) -> Result<Vec<usize>, SetupError> {
    let allowed: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    match cores {
        Cores::LastAllowed => Ok(vec![allowed.iter().copied().max().unwrap_or(0)]),
        Cores::List(list) => match list.iter().find(|core| !allowed.contains(core)) {
            Some(core) => Err(SetupError::Core { core: *core, allowed }),
            None => Ok(list.clone()),
        },
    }
}

/// One worker's memory and sockets.
struct Seat {
    umem: Umem,
    pool: Pool,
    links: Vec<Link>,
    waker: Arc<Waker>,
    outboxes: Vec<Outbox>,
    inboxes: Vec<Inbox>,
}

fn build_workers(
    config: &Config,
    cores: &[usize],
    ports: &mut [(Plan, OpenPort)],
    events: &mpsc::Sender<Event>,
) -> Result<Setup, SetupError> {
    let mut seats = Vec::new();
    for index in 0..cores.len() {
        seats.push(seat(config, index, cores.len(), ports)?);
    }
    connect(&mut seats);
    let owners: Vec<Vec<usize>> = ports.iter().map(|(_, port)| owners(port.queues, cores.len())).collect();
    let mut setup = Setup {
        workers: Vec::new(),
        counters: Vec::new(),
        wakers: Vec::new(),
        doors: Vec::new(),
        ports: Vec::new(),
    };
    for (index, (seat, core)) in seats.into_iter().zip(cores).enumerate() {
        let counters = Arc::new(Counters::new(ports.len() + SPARE_PORTS));
        let commands = commands();
        setup.doors.push(Door {
            umem: seat.umem.clone(),
            commands: Arc::clone(&commands),
            counters: Arc::clone(&counters),
        });
        setup.counters.push(Arc::clone(&counters));
        setup.wakers.push(Arc::clone(&seat.waker));
        let events = events.clone();
        let parts = Parts {
            routes: routes(index, &seat.links, &owners),
            umem: seat.umem,
            pool: seat.pool,
            links: seat.links,
            outboxes: seat.outboxes,
            inboxes: seat.inboxes,
            counters,
            waker: seat.waker,
            commands,
            // When the control thread is that far behind, it is told again by later packets.
            tell: Box::new(move |event| {
                let _ = events.try_send(event);
            }),
        };
        setup.workers.push((*core, Worker::new(worker_config(config), parts)));
    }
    Ok(setup)
}

/// Memory of worker `index` of `workers`, and a socket for each queue that it owns.
fn seat(
    config: &Config,
    index: usize,
    workers: usize,
    ports: &mut [(Plan, OpenPort)],
) -> Result<Seat, SetupError> {
    let sockets: usize = ports.iter().map(|(_, port)| owned(port.queues, index, workers).count()).sum();
    let settings = &config.workers;
    let needed = sockets as u64 * u64::from(MIN_FRAMES_PER_SOCKET);
    if u64::from(settings.umem_frames) < needed {
        return Err(SetupError::Frames { frames: settings.umem_frames, sockets, needed });
    }
    let (umem, pool) = Umem::new(UmemConfig {
        chunk_size: u32::from(settings.frame_size),
        chunks: settings.umem_frames,
        headroom: 0,
        huge_pages: match settings.huge_pages {
            config::HugePages::Auto => HugePages::Auto,
            config::HugePages::Require => HugePages::Require,
            config::HugePages::Off => HugePages::Off,
        },
    })?;
    let fill = (settings.umem_frames as usize / (2 * sockets.max(1))).min(settings.ring_size as usize);
    let mut links = Vec::with_capacity(sockets);
    for (number, (plan, port)) in (0..).zip(ports.iter_mut()) {
        for queue in owned(port.queues, index, workers) {
            links.push(bind(config, (PortId(number), queue), plan, port, &umem, fill)?);
        }
    }
    let waker = Arc::new(Waker::new().map_err(SetupError::Waker)?);
    Ok(Seat { umem, pool, links, waker, outboxes: Vec::new(), inboxes: Vec::new() })
}

fn socket_config<'a>(config: &Config, interface: &str, queue: QueueId, umem: &'a Umem) -> SocketConfig<'a> {
    SocketConfig {
        interface: interface.to_owned(),
        queue,
        umem,
        ring_size: config.workers.ring_size,
        mode: if config.xdp.require_zero_copy { BindMode::ZeroCopy } else { BindMode::Auto },
        busy_poll: match config.workers.idle {
            config::Idle::BusyPoll { time, budget } => Some(BusyPoll {
                usecs: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
                budget: u32::from(budget),
            }),
            _ => None,
        },
        tx_budget: config.workers.tx_budget,
    }
}

/// A lane from every worker to every other; outbox `i` of a worker leads to the `i`th of the others.
fn connect(seats: &mut [Seat]) {
    for from in 0..seats.len() {
        for to in (0..seats.len()).filter(|to| *to != from) {
            let (Some(sender), Some(owner)) = (seats.get(from), seats.get(to)) else { continue };
            let (outbox, inbox) = lane(LANE_FRAMES, sender.umem.clone(), Arc::clone(&owner.waker));
            if let Some(sender) = seats.get_mut(from) {
                sender.outboxes.push(outbox);
            }
            if let Some(owner) = seats.get_mut(to) {
                owner.inboxes.push(inbox);
            }
        }
    }
}

/// Where worker `index` sends packets of each port: its own socket when it has one, else a worker that has.
fn routes(index: usize, links: &[Link], owners: &[Vec<usize>]) -> Vec<Route> {
    let route = |(port, owners): (u16, &Vec<usize>)| {
        if let Some(own) = links.iter().position(|link| link.port == PortId(port)) {
            return Route::Link(own);
        }
        route_to(index, owners)
    };
    (0..).zip(owners).map(route).collect()
}

fn worker_config(config: &Config) -> WorkerConfig {
    let nanos = |time: std::time::Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    WorkerConfig {
        batch: usize::from(config.workers.batch),
        idle: match config.workers.idle {
            config::Idle::Spin => Idle::Spin,
            config::Idle::Adaptive { spin } => Idle::Adaptive(nanos(spin)),
            config::Idle::BusyPoll { .. } => Idle::BusyPoll,
        },
        pending_packets: config.neighbors.pending_frames as usize,
        pending_timeout: nanos(config.neighbors.pending_timeout),
    }
}
