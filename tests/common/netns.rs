//! Network namespaces that end with the test, and the lock that lets one topology at a time use the machine.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::command::{Background, Output, QUICK, run};

const PREFIX: &str = "fr-t-";

/// One network namespace, deleted when dropped.
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace named after the process and `role`. IPv6 is off, so that nothing speaks unless a test does.
    pub fn new(role: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{role}", std::process::id());
        run(QUICK, &["ip", "netns", "add", &name]).expect_success();
        let netns = Self { name };
        netns.run("ip link set lo up");
        netns.set_ipv6(false);
        netns
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// IPv6 on or off for interfaces present and to come. Addresses are usable at once (no duplicate detection).
    pub fn set_ipv6(&self, on: bool) {
        let off = u8::from(!on);
        for scope in ["all", "default"] {
            let base = format!("net.ipv6.conf.{scope}");
            self.run(&format!("sysctl -qw {base}.accept_dad=0 {base}.disable_ipv6={off}"));
        }
    }

    /// Runs a command, its words separated by blanks, and expects it to succeed quickly.
    #[track_caller]
    pub fn run(&self, command: &str) -> Output {
        self.attempt(QUICK, command).expect_success()
    }

    /// Runs a command that may fail.
    pub fn attempt(&self, limit: Duration, command: &str) -> Output {
        self.spawn(command).wait(limit)
    }

    /// Starts a command in the background.
    pub fn spawn(&self, command: &str) -> Background {
        // `ip netns exec` replaces itself, so the process is the command's own.
        let mut words = vec!["ip", "netns", "exec", &self.name];
        words.extend(command.split_whitespace());
        Background::spawn(&words)
    }

    /// A number the kernel keeps for a device, such as `statistics/rx_packets`.
    pub fn device(&self, device: &str, file: &str) -> u64 {
        let text = self.run(&format!("cat /sys/class/net/{device}/{file}")).stdout;
        text.trim().parse().unwrap_or_else(|_| panic!("{device}/{file}: {text:?}"))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        run(QUICK, &["ip", "netns", "del", &self.name]);
    }
}

/// Removes what test processes left that were killed before they could clean up.
fn sweep() {
    for line in run(QUICK, &["ip", "netns", "list"]).stdout.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            run(QUICK, &["ip", "netns", "del", name]);
        }
    }
}

/// The machine, for one topology: tests of all processes that load it wait for each other.
pub struct Turn {
    _lock: File,
}

impl Turn {
    pub fn wait() -> Self {
        let path = std::env::temp_dir().join("flowrail-netns.lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
        lock.lock().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { _lock: lock }
    }
}
