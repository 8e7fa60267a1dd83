//! Plays cases through a running flowrail on veth: frames go in through packet sockets at the far ends, and whatever
//! comes out there is what left.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::common::forwarder::Forwarder;
use super::common::netns::{Netns, Turn};
use super::common::veth::{End, Veth};
use super::judge::{self, Out};
use super::manifest::{Case, Manifest};
use super::setup::{self, Names};

/// How long a packet may take from one end to the other, and a counter until it shows.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long nothing else may come.
const QUIET: Duration = Duration::from_millis(15);

/// Far end of a port: a packet socket on the other end of its veth.
struct FarEnd {
    socket: OwnedFd,
}

impl FarEnd {
    /// Opens a packet socket in a namespace, from a thread that enters it and ends.
    fn open(netns: &Netns, interface: &str) -> Self {
        let path = format!("/run/netns/{}", netns.name());
        let interface = interface.to_owned();
        let open = move || {
            let namespace = File::open(&path).unwrap();
            // SAFETY: an open descriptor of a namespace; affects this thread alone, which ends below.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            packet_socket(&interface).unwrap()
        };
        Self { socket: std::thread::spawn(open).join().unwrap() }
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and length are of one live slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0u8; 65_536];
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the buffer is live and as long as said.
        let len =
            unsafe { libc::recv(self.socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), flags) };
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }
}

fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: takes integers only.
    let fd =
        unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made and that nobody else has.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = std::ffi::CString::new(interface).unwrap();
    let one: libc::c_int = 1;
    // SAFETY: plain data of the sizes given, and a C string.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        if libc::bind(fd, std::ptr::from_ref(&address).cast(), size) != 0
            || libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                std::ptr::from_ref(&one).cast(),
                4,
            ) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

/// A host with one uplink and an access port for each network, and the far end of each.
struct Stage {
    host: Netns,
    names: Names,
    ends: BTreeMap<String, FarEnd>,
    _others: Vec<Netns>,
}

impl Stage {
    fn new(manifest: &Manifest) -> Self {
        let host = Netns::new("cases");
        let mut names = Names { uplink: "u0".to_owned(), access: BTreeMap::new() };
        let (mut ends, mut others) = (BTreeMap::new(), Vec::new());
        let mut connect = |port: &str, near: &str, mac: &str| {
            let other = Netns::new(near);
            let veth = Veth { mtu: 9214, queues: 1, offload: false };
            veth.connect(
                End { netns: &host, name: near, mac },
                End { netns: &other, name: "far", mac: "02:00:00:00:ff:01" },
            );
            ends.insert(setup::port_name(port), FarEnd::open(&other, "far"));
            others.push(other);
        };
        connect("underlay", "u0", &manifest.config.local_vtep.mac);
        for (number, (vni, network)) in manifest.config.vnis.iter().enumerate() {
            if let Some(port) = &network.access_port {
                let near = format!("a{number}");
                connect(port, &near, &format!("02:00:00:00:fe:{number:02x}"));
                names.access.insert(vni.clone(), near);
            }
        }
        Self { host, names, ends, _others: others }
    }

    fn drain(&self) {
        for end in self.ends.values() {
            while end.receive().is_some() {}
        }
    }

    /// What leaves, until `enough` packets came or time is up, and then nothing more for a while.
    fn collect(&self, enough: usize) -> Vec<Out> {
        let mut outs = Vec::new();
        let mut last = Instant::now();
        let start = last;
        loop {
            for (port, end) in &self.ends {
                while let Some(bytes) = end.receive() {
                    outs.push(Out { port: port.clone(), bytes });
                    last = Instant::now();
                }
            }
            let full = outs.len() >= enough && last.elapsed() > QUIET;
            if full || start.elapsed() > PATIENCE {
                return outs;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Counters of a flowrail that tell a case's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fates {
    received: u64,
    dropped: u64,
    drops: BTreeMap<String, u64>,
}

fn fates(forwarder: &Forwarder) -> Fates {
    let stats = forwarder.stats();
    let totals = &stats.0["totals"];
    let drops = totals["drops"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap()));
    Fates {
        received: totals["received"].as_u64().unwrap(),
        dropped: totals["dropped"].as_u64().unwrap(),
        drops: drops.collect(),
    }
}

/// Plays every case that `wanted` takes; returns the failures. Cases of one configuration share a flowrail.
pub fn play(
    manifest: &Manifest,
    wanted: impl Fn(&Case) -> bool,
    input_port: impl Fn(&Case, usize, &[u8]) -> String,
) -> Vec<String> {
    let _turn = Turn::wait();
    let stage = Stage::new(manifest);
    let mut by_config: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in manifest.cases.iter().filter(|case| wanted(case)) {
        let text = setup::config(&manifest.config, case, &stage.names);
        by_config.entry(text).or_default().push(case);
    }
    let mut failures = Vec::new();
    for (text, cases) in by_config {
        let forwarder = Forwarder::start(&stage.host, &text);
        for case in cases {
            if let Err(why) = one(&stage, &forwarder, case, &input_port) {
                failures.push(format!("{}: {why}", case.name));
            }
        }
        forwarder.expect_conservation();
        forwarder.stop(&stage.host);
    }
    failures
}

fn one(
    stage: &Stage,
    forwarder: &Forwarder,
    case: &Case,
    input_port: &impl Fn(&Case, usize, &[u8]) -> String,
) -> Result<(), String> {
    stage.drain();
    let before = fates(forwarder);
    let mut sent = 0;
    for (index, frame) in case.frames().iter().enumerate() {
        // A packet socket sends no frame shorter than an Ethernet header.
        if frame.len() >= 14 {
            let end = &stage.ends[&input_port(case, index, frame)];
            end.send(frame).map_err(|e| format!("frame {index} was not sent: {e}"))?;
            sent += 1;
        }
    }
    let expected = &case.expected;
    match expected.action.as_str() {
        "forward" => judge::outputs(&expected.out, &stage.collect(expected.out.len())),
        "pass" => {
            std::thread::sleep(2 * QUIET);
            let after = fates(forwarder);
            if after == before { Ok(()) } else { Err(format!("not left to the kernel: {after:?}")) }
        }
        "drop" => {
            let may_pass = judge::may_pass(case);
            let start = Instant::now();
            let done = |now: &Fates| {
                now.dropped - before.dropped == sent || (may_pass && start.elapsed() > 2 * QUIET)
            };
            let mut after = fates(forwarder);
            while !done(&after) && start.elapsed() < PATIENCE {
                after = fates(forwarder);
            }
            let (received, dropped) = (after.received - before.received, after.dropped - before.dropped);
            if received != dropped || (!may_pass && dropped != sent) {
                return Err(format!("{dropped} dropped and {received} received of {sent}"));
            }
            let named = judge::names_reason(case).filter(|_| !may_pass);
            if let Some(reason) = named.filter(|reason| after.drops[*reason] - before.drops[*reason] != sent)
            {
                return Err(format!("not counted as {reason}: {:?}", after.drops));
            }
            // Answers of the kernel to what it got are not ours.
            let outs = if may_pass { Vec::new() } else { stage.collect(0) };
            judge::outputs(&[], &outs)
        }
        // A burst is one in time only; what the datapath decides about it is judged offline.
        "sequence" => Ok(()),
        action => Err(format!("no such action: {action}")),
    }
}
