//! The built program, as a user runs it: exit codes, messages, output formats.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use flowrail::control::api::Server;
use flowrail::control::stats::{
    CopyMode, Counters, Frames, Inspect, NeighborReport, PortKind, PortReport, Stats, Totals, WorkerStats,
    XdpMode,
};
use flowrail::wire::drop::{DropReason, Note};
use serde_json::Value;

const RIGHT: &str = "[[uplink]]\ninterface = \"eth1\"\nencap_ips = [\"10.0.0.1\"]\n";

fn flowrail(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowrail")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn every_help_has_examples() {
    for command in ["", "run", "check", "show", "trace"] {
        let args: Vec<&str> = [command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        let output = flowrail(&args);
        assert_eq!(code(&output), 0, "{command}");
        assert!(stdout(&output).contains("Examples:\n  flowrail "), "{command}");
    }
    let version = stdout(&flowrail(&["--version"]));
    assert_eq!(version, format!("flowrail {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &[][..],
        &["fly"],
        &["check"],
        &["show"],
        &["show", "weather"],
        &["check", "a", "b"],
        &["run"],
        &["run", "--config", "x", "--log", "a=b=c"],
        &["trace", "x.pcap"],
    ] {
        let output = flowrail(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(!stderr(&output).is_empty() && stdout(&output).is_empty(), "{args:?}");
    }
}

#[test]
fn check_says_what_is_in_a_right_file() {
    let right = file(RIGHT);
    let path = right.path().to_str().unwrap();
    let output = flowrail(&["check", path]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let summary = "1 uplink, 0 networks, 0 ports, 0 peers, 0 endpoints, 0 static neighbors";
    assert_eq!(stdout(&output), format!("{path}: ok: {summary}\n"));

    let output = flowrail(&["check", "--json", path]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &json["ok"], &json["uplinks"]), (0, &true.into(), &1.into()));
}

#[test]
fn check_names_file_line_and_culprit_of_every_error() {
    let wrong = file(&format!(
        "{RIGHT}[[network]]\nname = \"blue\"\nvni = 16777216\n[[port]]\ninterface = \"tap0\"\nnetwork = \"bleu\"\n"
    ));
    let path = wrong.path().to_str().unwrap();
    let lines = [
        format!("{path}:6: network blue: vni 16777216 does not fit in 24 bits (0..=16777215)"),
        format!("{path}:9: port tap0: network: no network is called bleu; did you mean blue?"),
    ];
    let output = flowrail(&["check", path]);
    assert_eq!((code(&output), stdout(&output)), (2, String::new()));
    assert_eq!(stderr(&output), format!("{}\n{}\n", lines[0], lines[1]));

    let output = flowrail(&["check", "--json", path]);
    assert_eq!((code(&output), stderr(&output)), (2, String::new()));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["ok"], false);
    let errors = json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2);
    assert_eq!((&errors[0]["line"], &errors[0]["culprit"]), (&6.into(), &"network blue".into()));
    assert_eq!(errors[1]["message"], *lines[1]);
}

#[test]
fn check_of_a_missing_file_names_it() {
    let output = flowrail(&["check", "/nonexistent/host.toml"]);
    assert_eq!(code(&output), 2);
    assert_eq!(stderr(&output), "/nonexistent/host.toml: No such file or directory (os error 2)\n");
}

#[test]
fn run_and_trace_refuse_what_check_refuses() {
    let wrong = file("[[uplink]]\ninterface = 7\n");
    let path = wrong.path().to_str().unwrap();
    let refused = stderr(&flowrail(&["check", path]));
    assert!(refused.starts_with(&format!("{path}:1: ")), "{refused}");
    for args in [&["run", "--config", path][..], &["trace", "--config", path, "--port", "a", "b.pcap"]] {
        let output = flowrail(args);
        assert_eq!((code(&output), stdout(&output), stderr(&output)), (2, String::new(), refused.clone()));
    }
}

#[test]
fn show_without_a_running_flowrail_says_so() {
    let output = flowrail(&["show", "stats", "--socket", "/nonexistent/f.sock"]);
    assert_eq!((code(&output), stdout(&output)), (1, String::new()));
    assert_eq!(
        stderr(&output),
        "flowrail: no flowrail is running on /nonexistent/f.sock; start one with `flowrail run`, or name its \
         socket with --socket\n"
    );
}

/// A flowrail that has been busy, on a socket, for the time of a test.
struct Running {
    directory: tempfile::TempDir,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = Self::path(directory.path());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(&path).await.unwrap();
                ready.send(()).unwrap();
                let shutdown = async move { stopped.await.unwrap_or_default() };
                server.serve(Arc::new(Busy), shutdown).await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        Self { directory, stop: Some(stop), thread: Some(thread) }
    }

    fn path(directory: &Path) -> PathBuf {
        directory.join("flowrail.sock")
    }

    fn show(&self, args: &[&str]) -> Output {
        let path = Self::path(self.directory.path());
        let output = flowrail(&[&["show", "--socket", path.to_str().unwrap()], args].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Busy;

impl Inspect for Busy {
    fn stats(&self) -> Stats {
        let mut drops = [0; DropReason::COUNT];
        drops[DropReason::UnknownUnicast.index()] = 41;
        drops[DropReason::NeighborUnresolved.index()] = 1;
        let mut notes = [0; Note::COUNT];
        notes[Note::ReservedBits.index()] = 5;
        let frames =
            Frames { fill: 2048, worker: 3, queued: 0, tx: 13, lent: 1, pool: 14_319, total: 16_384 };
        Stats {
            uptime_ms: 3_723_000,
            totals: Totals {
                received: 1_000_045,
                forwarded: 1_000_000,
                replied: 0,
                punted: 0,
                waiting: 3,
                dropped: 42,
                drops: Counters::drops(&drops),
                notes: Counters::notes(&notes),
            },
            workers: vec![WorkerStats {
                worker: 0,
                core: 1,
                loops: 9_000_000,
                batches: 20_000,
                wakeups: 15_000,
                wakeups_refused: 2,
                sleeps: 40,
                handoffs: 7,
                frames,
            }],
        }
    }

    fn ports(&self) -> Vec<PortReport> {
        let rail0 = PortReport {
            port: 0,
            name: "rail0".to_owned(),
            role: PortKind::Uplink,
            interface: "ens1f0np0".to_owned(),
            ifindex: 4,
            mode: XdpMode::Native,
            copy: CopyMode::ZeroCopy,
            queues: 2,
            mtu: 9000,
            rx_packets: 500_021,
            rx_bytes: 541_022_722,
            tx_packets: 500_000,
            tx_bytes: 566_000_000,
            drops: Counters::new([("unknown_unicast", 41), ("unknown_vni", 0)]),
            xdp: Counters::new([("vxlan", 500_021), ("not_udp", 17)]),
            sockets: Counters::new([("rx_ring_full", 3), ("rx_dropped", 0)]),
        };
        let tap0 = PortReport {
            port: 1,
            name: "tap0".to_owned(),
            role: PortKind::Access,
            mode: XdpMode::Generic,
            copy: CopyMode::Copy,
            drops: Counters::default(),
            xdp: Counters::default(),
            sockets: Counters::default(),
            ..rail0.clone()
        };
        vec![rail0, tap0]
    }

    fn neighbors(&self) -> Vec<NeighborReport> {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let found = NeighborReport {
            uplink: "rail0".to_owned(),
            remote: ip("10.1.0.2"),
            next_hop: Some(ip("10.0.0.254")),
            mac: Some("02:00:00:00:00:fe".to_owned()),
            state: "reachable".to_owned(),
            age_ms: Some(65_000),
            problem: None,
        };
        let lost = NeighborReport {
            remote: ip("fd00::9"),
            next_hop: None,
            mac: None,
            state: "no-route".to_owned(),
            age_ms: None,
            problem: Some("no route to fd00::9".to_owned()),
            ..found.clone()
        };
        vec![found, lost]
    }
}

#[test]
fn show_stats_prints_only_what_happened() {
    let running = Running::start();
    let text = stdout(&running.show(&["stats"]));
    let pid = std::process::id();
    let expected = format!(
        "flowrail {}, pid {pid}, up 1h2m

packets
received   1000045
forwarded  1000000
replied          0
punted           0
dropped         42
waiting          3

drops
  unknown_unicast      41  The destination MAC is in no FDB entry of this network.
  neighbor_unresolved   1  The next hop's MAC was not found in time.

notes
  vxlan_reserved_bits  5  Reserved VXLAN bits were set, and ignored (RFC 7348 section 5).

worker  core    loops  batches  wakeups  handoffs  frames:  fill  held  queued  tx  lent   pool  total
     0     1  9000000    20000    15000         7           2048     3       0  13     1  14319  16384
",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
}

#[test]
fn show_ports_prints_modes_and_troubles() {
    let running = Running::start();
    let text = stdout(&running.show(&["ports"]));
    let expected = "\
port  name   role    interface  mode     copy       queues   mtu  rx packets   rx bytes  tx packets   tx bytes  drops
   0  rail0  uplink  ens1f0np0  native   zero-copy       2  9000      500021  541022722      500000  566000000     41
   1  tap0   access  ens1f0np0  generic  copy            2  9000      500021  541022722      500000  566000000      0

rail0: drops
  unknown_unicast  41  The destination MAC is in no FDB entry of this network.

rail0: XDP outcomes
  vxlan    500021
  not_udp      17

rail0: socket statistics
  rx_ring_full  3  The worker is too slow.
";
    assert_eq!(text, expected);
}

#[test]
fn show_neighbors_prints_next_hops_and_problems() {
    let running = Running::start();
    let text = stdout(&running.show(&["neighbors"]));
    let expected = "\
uplink  remote    next hop    mac                state      age   problem
rail0   10.1.0.2  10.0.0.254  02:00:00:00:00:fe  reachable  1m5s
rail0   fd00::9   -           -                  no-route   -     no route to fd00::9
";
    assert_eq!(text, expected);
}

#[test]
fn show_json_is_the_api_s() {
    let running = Running::start();
    let json = |what| -> Value { serde_json::from_slice(&running.show(&[what, "--json"]).stdout).unwrap() };
    assert_eq!(json("stats"), serde_json::to_value(Busy.stats()).unwrap());
    assert_eq!(json("ports"), serde_json::to_value(Busy.ports()).unwrap());
    assert_eq!(json("neighbors"), serde_json::to_value(Busy.neighbors()).unwrap());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let running = Running::start();
    let path = Running::path(running.directory.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowrail"))
        .args(["show", "stats", "--socket", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));

    // The same for errors: the exit code stays, and there is no panic.
    let wrong = file(&"[[port]]\n".repeat(400));
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowrail"))
        .args(["check", wrong.path().to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}
