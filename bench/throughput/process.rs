//! Children: this binary in another role, or a forwarder. Lines of JSON one way, requests the other, every wait
//! bounded, and none outlives its parent.
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::topology::Place;

/// Set by SIGINT, SIGTERM, SIGHUP and SIGALRM.
pub static STOP: AtomicBool = AtomicBool::new(false);

const STEP: Duration = Duration::from_millis(20);
const ANSWER: Duration = Duration::from_secs(5);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Turns the signals that end a process into [`STOP`]; system calls under way return EINTR.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGALRM] {
        // SAFETY: an all-zero sigaction is valid (no flags, empty mask); the handler only stores to an atomic,
        // which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Raises SIGALRM after `seconds`, so that no role runs forever.
pub fn limit_runtime(seconds: u32) {
    // SAFETY: alarm takes and returns plain integers.
    unsafe { libc::alarm(seconds) };
}

/// Whether this process was told to end.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Sleeps, or fails once this process was told to end.
pub fn pause(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        if stopped() {
            bail!("interrupted");
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(STEP));
    }
}

/// Says one line of JSON to the parent.
pub fn say(value: &Value) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{value}")?;
    Ok(stdout.flush()?)
}

/// Answers each line on standard input until the parent closes it.
pub fn answer_requests(mut answer: impl FnMut() -> Result<Value>) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&answer()?)?;
    }
    Ok(())
}

/// A running child; dropping it ends it.
pub struct Child {
    name: String,
    inner: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Runs this binary as `role` in a namespace and waits until it says it is ready.
    pub fn role(place: Place, role: &str, arguments: &[String]) -> Result<Self> {
        let mut command = place.exec();
        command.arg(std::env::current_exe()?).args(["--role", role]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Self::spawn(role, command)?;
        child.read(ANSWER).with_context(|| format!("{role} did not get ready"))?;
        Ok(child)
    }

    /// Runs a program in a namespace, its output in the file `log`.
    pub fn program(place: Place, program: &Path, arguments: &[&str], log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = place.exec();
        command.arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Self::spawn(&program.display().to_string(), command)
    }

    fn spawn(name: &str, mut command: Command) -> Result<Self> {
        // SAFETY: prctl is async-signal-safe and touches no memory; `ip netns exec` replaces itself by the program,
        // so the setting reaches it.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut inner = command.spawn().with_context(|| format!("start {name}"))?;
        let (sender, lines) = channel();
        if let Some(stdout) = inner.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let stdin = inner.stdin.take();
        Ok(Self { name: name.to_owned(), inner, stdin, lines })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.inner.try_wait(), Ok(None))
    }

    /// Asks a role for its figures.
    pub fn ask(&mut self) -> Result<Value> {
        let stdin = self.stdin.as_mut().with_context(|| format!("{} takes no requests", self.name))?;
        writeln!(stdin, "sample").with_context(|| format!("ask {}", self.name))?;
        self.read(ANSWER)
    }

    /// The next line a role says, within `limit`.
    pub fn read(&mut self, limit: Duration) -> Result<Value> {
        let end = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(STEP) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .with_context(|| format!("{} said {line:?}", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{} ended", self.name),
                Err(RecvTimeoutError::Timeout) if stopped() => bail!("interrupted"),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                    bail!("{} said nothing for {limit:?}", self.name)
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Asks it to end, and kills it when it does not within `limit`.
    pub fn stop(&mut self, limit: Duration) {
        self.stdin = None;
        self.signal(libc::SIGTERM);
        let end = Instant::now() + limit;
        while self.alive() {
            if Instant::now() >= end {
                eprintln!("warning: {} (pid {}) ignored SIGTERM for {limit:?}", self.name, self.pid());
                let _ = self.inner.kill();
                let _ = self.inner.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&mut self, signal: libc::c_int) {
        if self.alive()
            && let Ok(pid) = i32::try_from(self.pid())
        {
            // SAFETY: kill takes plain integers; the child was not reaped yet, so the id is still its own.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(3));
    }
}

/// Pins the calling thread to `core`.
pub fn pin(core: usize) -> Result<()> {
    if !core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
        bail!("cannot pin to core {core}: does the machine have it?");
    }
    Ok(())
}
