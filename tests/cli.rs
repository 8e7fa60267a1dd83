//! The built program, as a user runs it: exit codes, messages, output formats.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use flowrail::control::api::Server;
use flowrail::control::report::{
    ApplyRequest, ChangeReport, FdbReport, FileError, LearningReport, Listing, MoveRequest, NetworkReport,
    Operate, Refusal, RouteReport, RuleReport, Source, TenantReport, Took,
};
use flowrail::control::stats::{
    CopyMode, Counters, Frames, Inspect, NeighborReport, PortKind, PortReport, RuleCount, Stats, Totals,
    WorkerStats, XdpMode,
};
use flowrail::wire::drop::{DropReason, Note};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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
    for command in ["", "run", "check", "show", "trace", "apply", "port", "port move"] {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
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
        &["apply"],
        &["port"],
        &["port", "move", "gpu0"],
        &["show", "fdb", "--network", "red&x=y"],
        &["show", "stats", "--network", "red"],
        &["show", "fdb", "--tenant", "red"],
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

    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/two-tenants.toml");
    let told = stdout(&flowrail(&["check", example]));
    assert!(told.ends_with(", 3 tenants, 3 routes, 4 rules\n"), "{told}");
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
                server.serve(Arc::new(Busy), Arc::new(Busy), shutdown).await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        Self { directory, stop: Some(stop), thread: Some(thread) }
    }

    fn path(directory: &Path) -> PathBuf {
        directory.join("flowrail.sock")
    }

    fn show(&self, args: &[&str]) -> Output {
        let output = self.ask(&[&["show"], args].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        output
    }

    fn ask(&self, args: &[&str]) -> Output {
        let path = Self::path(self.directory.path());
        flowrail(&[args, &["--socket", path.to_str().unwrap()]].concat())
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
            rules: vec![RuleCount { tenant: "acme".to_owned(), rule: "storage".to_owned(), packets: 17 }],
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

    fn networks(&self) -> Vec<NetworkReport> {
        let red = NetworkReport {
            network: "red".to_owned(),
            vni: 100,
            tenant: Some("acme".to_owned()),
            gateways: vec!["10.9.0.1".parse().unwrap()],
            ports: vec!["tap0".to_owned()],
            peers: vec!["h1".to_owned(), "h2".to_owned()],
            stations: 7,
            addresses: 3,
            learning: Some(LearningReport { stations: 5, limit: 1000, addresses: 2, ageing_ms: 300_000 }),
        };
        let blue = NetworkReport {
            network: "blue".to_owned(),
            tenant: None,
            gateways: Vec::new(),
            learning: None,
            ..red.clone()
        };
        vec![red, blue]
    }

    fn tenants(&self) -> Vec<TenantReport> {
        let rule = |rule: &str, action: &str, packets| RuleReport {
            rule: rule.to_owned(),
            action: action.to_owned(),
            packets,
        };
        vec![TenantReport {
            tenant: "acme".to_owned(),
            l3vni: Some(9000),
            router_mac: Some("02:00:00:00:00:01".to_owned()),
            networks: vec!["red".to_owned()],
            routes: 12,
            rules: vec![rule("storage", "allow", 17), rule("2", "deny", 0)],
        }]
    }

    fn fdb(&self, network: Option<&str>) -> Option<Listing<FdbReport>> {
        let row = |n: usize| FdbReport {
            network: "red".to_owned(),
            vni: 100,
            mac: format!("02:00:00:{:02x}:{:02x}:{:02x}", n >> 16 & 255, n >> 8 & 255, n & 255),
            port: (n == 0).then(|| "tap0".to_owned()),
            vtep: (n > 0).then(|| "10.1.0.2".parse().unwrap()),
            peer: (n > 0).then(|| "h1".to_owned()),
            source: if n == 0 { Source::Static } else { Source::Learned },
            age_ms: (n > 0).then_some(1500),
            frozen: n == 2,
        };
        match network {
            None => Some(Box::new((0..200_000).map(row))),
            Some("red") => Some(Box::new((0..3).map(row))),
            Some(_) => None,
        }
    }

    fn routes(&self, tenant: Option<&str>) -> Option<Listing<RouteReport>> {
        let row = RouteReport {
            tenant: "acme".to_owned(),
            prefix: "10.9.0.7/32".to_owned(),
            kind: "host".to_owned(),
            network: Some("red".to_owned()),
            vtep: None,
            mac: Some("02:00:00:00:0a:07".to_owned()),
            leak: None,
            position: Some("rack 9 rail 0 gpu 7".to_owned()),
            source: Source::Learned,
            age_ms: Some(65_000),
        };
        (tenant != Some("nobody")).then(|| Box::new([row].into_iter()) as Listing<RouteReport>)
    }
}

impl Operate for Busy {
    fn apply(self: Arc<Self>, request: ApplyRequest) -> BoxFuture<'static, Result<ChangeReport, Refusal>> {
        let changes = vec!["+ network blue (VNI 200)".to_owned()];
        let took = Took { total_ms: 7.25, leave_ms: 2.0, ..Took::default() };
        let unfinished = Vec::new();
        let ApplyRequest { file, text, dry_run } = request;
        let answer = match text.as_str() {
            "wrong" => Err(Refusal {
                error: format!("{file} is wrong; nothing was changed"),
                errors: vec![FileError {
                    line: 1,
                    culprit: String::new(),
                    problem: "odd".to_owned(),
                    message: format!("{file}:1: odd"),
                }],
                refused: Vec::new(),
            }),
            "fixed" => Err(Refusal {
                error: "this cannot change while flowrail runs; nothing was changed".to_owned(),
                errors: Vec::new(),
                refused: vec!["[workers]".to_owned(), "port gpu9: steer".to_owned()],
            }),
            "same" => Ok(ChangeReport { dry_run, changes: Vec::new(), took, unfinished }),
            _ => Ok(ChangeReport { dry_run, changes, took, unfinished }),
        };
        async { answer }.boxed()
    }

    fn move_port(self: Arc<Self>, request: MoveRequest) -> BoxFuture<'static, Result<ChangeReport, Refusal>> {
        let MoveRequest { port, network, macs, .. } = request;
        let report = ChangeReport {
            changes: vec![format!(
                "~ port {port}: network red → {network}, {} macs",
                macs.map_or(0, |m| m.len())
            )],
            unfinished: vec!["worker 0: a device has not sent what it was given".to_owned()],
            ..ChangeReport::default()
        };
        async { Ok(report) }.boxed()
    }
}

#[test]
fn apply_prints_what_changed_and_how_long_it_took() {
    let running = Running::start();
    for (text, options, expected) in [
        (
            "x",
            &[][..],
            "+ network blue (VNI 200)\nchanged in 7.2 ms (read 0.0, compare 0.0, build 0.0, open 0.0, publish 0.0, \
             adopt 0.0, leave 2.0)\n",
        ),
        ("x", &["--dry-run"], "+ network blue (VNI 200)\nnothing was changed, as asked\n"),
        ("same", &[], "nothing to change\n"),
    ] {
        let file = file(text);
        let output = running.ask(&[&["apply", file.path().to_str().unwrap()], options].concat());
        assert_eq!((code(&output), stdout(&output).as_str(), stderr(&output).as_str()), (0, expected, ""));
    }
    let json = running.ask(&["apply", "--json", file("x").path().to_str().unwrap()]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["took"]["total_ms"], 7.25);
}

#[test]
fn what_apply_refuses_is_named_and_is_exit_code_1() {
    let running = Running::start();
    let wrong = file("wrong");
    let path = wrong.path().to_str().unwrap();
    let output = running.ask(&["apply", path]);
    assert_eq!(
        (code(&output), stdout(&output), stderr(&output)),
        (1, String::new(), format!("{path}:1: odd\n"))
    );
    let output = running.ask(&["apply", "--json", path]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &json["errors"][0]["line"]), (1, &1.into()));

    let output = running.ask(&["apply", file("fixed").path().to_str().unwrap()]);
    let expected = "flowrail: this cannot change while flowrail runs; nothing was changed\n  [workers]\n  port gpu9: steer\n";
    assert_eq!((code(&output), stderr(&output).as_str()), (1, expected));
    assert_eq!(code(&running.ask(&["apply", "/nonexistent/host.toml"])), 2);
}

#[test]
fn a_port_moves_with_its_macs_and_a_warning_is_shown() {
    let running = Running::start();
    let output = running.ask(&["port", "move", "gpu0", "--network", "blue", "--macs", "a,b"]);
    let text = stdout(&output);
    assert!(text.starts_with("~ port gpu0: network red → blue, 2 macs\nchanged in 0.0 ms"), "{text}");
    assert!(text.ends_with("\nwarning: worker 0: a device has not sent what it was given\n"), "{text}");
}

#[test]
fn long_tables_are_printed_row_by_row() {
    let running = Running::start();
    let expected = "\
network           VNI       mac                place                             source   age
red               100       02:00:00:00:00:00  port tap0                         static   -
red               100       02:00:00:00:00:01  VTEP 10.1.0.2 (h1)                learned  1.5s
red               100       02:00:00:00:00:02  VTEP 10.1.0.2 (h1)                learned  1.5s, frozen
";
    assert_eq!(stdout(&running.show(&["fdb", "--network", "red"])), expected);
    assert_eq!(stdout(&running.show(&["fdb"])).lines().count(), 200_001);
    let all: Vec<FdbReport> = serde_json::from_slice(&running.show(&["fdb", "--json"]).stdout).unwrap();
    assert_eq!(all, Busy.fdb(None).unwrap().collect::<Vec<_>>());
    let output = running.ask(&["show", "fdb", "--network", "green"]);
    let said = "flowrail: flowrail answered 404 Not Found: no network is called green\n";
    assert_eq!((code(&output), stderr(&output).as_str()), (1, said));

    let routes = stdout(&running.show(&["routes", "--tenant", "acme"]));
    let last = routes.lines().last().unwrap();
    let words: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "acme",
            "10.9.0.7/32",
            "host",
            "02:00:00:00:0a:07",
            "network",
            "red",
            "(rack",
            "9",
            "rail",
            "0",
            "gpu",
            "7)",
            "learned",
            "1m5s"
        ]
    );
}

#[test]
fn networks_and_tenants_are_tables() {
    let running = Running::start();
    let networks = "\
network  VNI  tenant  gateway   ports  peers  stations  learned  limit  addresses
red      100  acme    10.9.0.1      1      2         7  5        1000           3
blue     100  -       -             1      2         7  -        -              3
";
    assert_eq!(stdout(&running.show(&["networks"])), networks);
    let tenants = "\
tenant  L3VNI  router MAC         networks  routes  rules
acme     9000  02:00:00:00:00:01  red           12      2

acme: rules
  rule     action  packets
  storage  allow        17
  2        deny          0
";
    assert_eq!(stdout(&running.show(&["tenants"])), tenants);
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

rules
  acme: storage  17

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
