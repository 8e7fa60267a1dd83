//! Commands with a time limit and captured output, in the foreground or in the background.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a command that is expected to be quick.
pub const QUICK: Duration = Duration::from_secs(10);

/// What a finished command said.
#[derive(Debug)]
pub struct Output {
    what: String,
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The same output, or a failed test that shows the whole of it.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.success(), "{self}");
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, status, stdout, stderr } = self;
        let status = status.map_or("timed out".to_owned(), |status| status.to_string());
        write!(f, "{what}\n-- {status}\n-- stdout\n{stdout}\n-- stderr\n{stderr}")
    }
}

/// A running command. Killed when dropped.
pub struct Background {
    what: String,
    child: Child,
    stdout: File,
    stderr: File,
}

impl Background {
    pub fn spawn(words: &[&str]) -> Self {
        let what = words.join(" ");
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().unwrap())
            .stderr(stderr.try_clone().unwrap())
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        Self { what, child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        run(QUICK, &["kill", "-s", name, &self.pid().to_string()]);
    }

    /// What it has written to standard error until this moment.
    pub fn stderr(&mut self) -> String {
        read(&mut self.stderr)
    }

    /// Waits for the end; kills what is not done in time, which leaves `status` empty.
    pub fn wait(mut self, limit: Duration) -> Output {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if start.elapsed() > limit => break None,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if status.is_none() {
            self.kill();
        }
        Output {
            what: self.what.clone(),
            status,
            stdout: read(&mut self.stdout),
            stderr: read(&mut self.stderr),
        }
    }

    fn kill(&mut self) {
        // Both fail only when the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a command to its end.
pub fn run(limit: Duration, words: &[&str]) -> Output {
    Background::spawn(words).wait(limit)
}

/// Asks until the answer is yes; a failed test when it is not within `limit`.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
