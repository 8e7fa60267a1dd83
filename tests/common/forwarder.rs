//! A running flowrail: started with a configuration, asked for its counters, stopped without a trace.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::command::{Background, Output, eventually};
use super::netns::Netns;
use super::stats::{Stats, steering_imbalance};

const BINARY: &str = env!("CARGO_BIN_EXE_flowrail");
/// Start to ready. Generous: the machine has two cores and a test may share them.
const START: Duration = Duration::from_secs(10);
const STOP: Duration = Duration::from_secs(5);

/// A flowrail process in a namespace. Killed when dropped; `stop` is the clean end.
pub struct Forwarder {
    process: Background,
    files: Files,
}

/// Configuration and control socket, removed with the directory.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new(config: &str) -> Self {
        let files = Self { directory: TempDir::with_prefix("flowrail-test-").unwrap() };
        std::fs::write(files.config(), files.complete(config)).unwrap();
        files
    }

    /// A configuration with the control socket of this flowrail.
    fn complete(&self, config: &str) -> String {
        format!("{config}\n[control]\nsocket = \"{}\"\n", self.socket().display())
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("flowrail.toml")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    fn run_command(&self) -> String {
        format!("{BINARY} run --config {}", self.config().display())
    }
}

impl Forwarder {
    /// Starts flowrail in `netns` and waits until it answers on its control socket.
    #[track_caller]
    pub fn start(netns: &Netns, config: &str) -> Self {
        let files = Files::new(config);
        let process = netns.spawn(&files.run_command());
        let mut forwarder = Self { process, files };
        eventually("flowrail answers on its control socket", START, || {
            assert!(forwarder.process.running(), "flowrail ended: {}", forwarder.process.stderr());
            forwarder.try_show("stats", &[]).success()
        });
        forwarder
    }

    /// Starts flowrail with a configuration it must refuse; returns what it says about it.
    #[track_caller]
    pub fn refused(netns: &Netns, config: &str) -> String {
        let files = Files::new(config);
        let output = netns.attempt(START, &files.run_command());
        let code = output.status.and_then(|status| status.code());
        assert!(code.is_some_and(|code| code != 0), "must refuse to start: {output}");
        assert!(!output.stderr.contains("panicked"), "{output}");
        assert!(!files.socket().exists(), "left its control socket behind");
        output.stderr
    }

    fn try_show(&self, what: &str, options: &[&str]) -> Output {
        self.tell(&[&["show", what], options].concat())
    }

    /// Runs a command of flowrail against this one.
    pub fn tell(&self, words: &[&str]) -> Output {
        let socket = self.files.socket();
        let words = [&[BINARY], words, &["--socket", socket.to_str().unwrap()]].concat();
        super::command::run(START, &words)
    }

    /// `flowrail apply` of a configuration.
    pub fn apply(&self, config: &str, options: &[&str]) -> Output {
        let file = self.files.directory.path().join("next.toml");
        std::fs::write(&file, self.files.complete(config)).unwrap();
        self.tell(&[&["apply", file.to_str().unwrap()], options].concat())
    }

    /// `flowrail port move`; returns its answer.
    #[track_caller]
    pub fn move_port(&self, port: &str, network: &str) -> Value {
        let output = self.tell(&["port", "move", port, "--network", network, "--json"]).expect_success();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
    }

    /// Everything it tells, for the message of a failed test.
    pub fn diagnosis(&self) -> String {
        ["stats", "ports", "neighbors"].map(|what| self.try_show(what, &[]).stdout).concat()
    }

    /// `flowrail show WHAT --json`.
    #[track_caller]
    pub fn show(&self, what: &str) -> Value {
        let output = self.try_show(what, &["--json"]).expect_success();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
    }

    /// The counters at this moment.
    #[track_caller]
    pub fn stats(&self) -> Stats {
        Stats(self.show("stats"))
    }

    /// Every frame steered must have been received or lost by the kernel, every packet received must have a fate and
    /// every frame of memory a place. Traffic in flight has none of these: waits for rest.
    #[track_caller]
    pub fn expect_conservation(&self) {
        let mut imbalance = None;
        for _ in 0..100 {
            imbalance = self.stats().imbalance().or_else(|| steering_imbalance(&self.show("ports")));
            if imbalance.is_none() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", imbalance.unwrap_or_default());
    }

    /// Ends flowrail with SIGTERM: exit code 0, no program on any interface, no socket.
    #[track_caller]
    pub fn stop(self, netns: &Netns) {
        self.end_with("TERM", netns);
    }

    /// Ends flowrail with a signal it promises to obey.
    #[track_caller]
    pub fn end_with(self, signal: &str, netns: &Netns) {
        self.process.signal(signal);
        let output = self.process.wait(STOP);
        assert_eq!(output.status.and_then(|status| status.code()), Some(0), "{output}");
        assert!(!self.files.socket().exists(), "left its control socket behind");
        expect_no_xdp(netns);
    }

    /// Kills flowrail the hard way; nothing can be cleaned up. Returns its files for the one that comes after it.
    pub fn crash(self) -> Crashed {
        self.process.signal("KILL");
        self.process.wait(STOP);
        Crashed(self.files)
    }
}

/// What a killed flowrail left: its configuration and its stale socket.
pub struct Crashed(Files);

impl Crashed {
    /// Starts flowrail over what is left.
    #[track_caller]
    pub fn restart(self, netns: &Netns) -> Forwarder {
        let process = netns.spawn(&self.0.run_command());
        let mut forwarder = Forwarder { process, files: self.0 };
        eventually("flowrail answers after the crash", START, || {
            assert!(forwarder.process.running(), "flowrail ended: {}", forwarder.process.stderr());
            forwarder.try_show("stats", &[]).success()
        });
        forwarder
    }
}

/// No interface of the namespace runs an XDP program.
#[track_caller]
pub fn expect_no_xdp(netns: &Netns) {
    let links: Value = serde_json::from_str(&netns.run("ip -json link show").stdout).unwrap();
    for link in links.as_array().unwrap() {
        assert!(link["xdp"].is_null(), "an XDP program is left: {link}");
    }
}
