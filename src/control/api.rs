//! The API: JSON over HTTP on a Unix socket that only its owner may open. Knows nothing of the datapath; asks
//! [`Inspect`], and tells [`Operate`] what to change. This file owns the socket, `http` the paths.

use std::fs::{DirBuilder, File, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::http::{self, Service};
use super::report::Operate;
use super::stats::Inspect;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 16;
/// How long open requests may take to end after the shutdown began.
const GRACE: Duration = Duration::from_secs(1);
/// How long another flowrail that is starting is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Somebody answers there.
    #[error("{}: another flowrail{} is running on this socket; stop it, or set another path as [control] socket",
        path.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Running {
        /// The socket.
        path: PathBuf,
        /// Who answers.
        pid: Option<i32>,
    },
    /// Two are starting at once.
    #[error("{}: another flowrail is starting with a socket in this directory", .0.display())]
    Locked(PathBuf),
    /// Something else is there.
    #[error("{}: exists and is no socket; remove it, or set another path as [control] socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ApiError {
    fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), what, source }
    }
}

/// The API's socket, not yet served. Dropping it, or the future of [`Server::serve`], removes the socket file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    file: SocketFile,
}

impl Server {
    /// Makes the socket: its directory when missing (mode 0755), the socket itself with mode 0600. What a dead
    /// flowrail left is replaced. To be called within a tokio runtime.
    ///
    /// # Errors
    /// When a live flowrail has the socket, something else is in its place, or the system refuses.
    pub async fn bind(path: &Path) -> Result<Self, ApiError> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(directory).map_err(ApiError::io(directory, "create the directory"))?;
        // Between finding a dead socket and replacing it nobody else may do the same.
        let _lock = lock(directory).await?;
        remove_stale(path).await?;

        let socket = UnixSocket::new_stream().map_err(ApiError::io(path, "make a socket"))?;
        socket.bind(path).map_err(ApiError::io(path, "bind the socket"))?;
        let file = SocketFile::new(path)?;
        // Before `listen` nobody can connect, so nobody uses the mode that the file had first.
        let mode = Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(ApiError::io(path, "set the mode"))?;
        let listener = socket.listen(BACKLOG).map_err(ApiError::io(path, "listen"))?;
        Ok(Self { listener, file })
    }

    /// Answers until `shutdown` completes, then lets open requests end, for a second at most.
    ///
    /// # Errors
    /// When accepting connections fails for good.
    pub async fn serve(
        self,
        inspect: Arc<dyn Inspect>,
        operate: Arc<dyn Operate>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let Self { listener, file } = self;
        let (down, mut is_down) = tokio::sync::watch::channel(());
        let begin = async move {
            shutdown.await;
            drop(down);
        };
        let serve =
            axum::serve(listener, http::router(Service { inspect, operate })).with_graceful_shutdown(begin);
        let deadline = async {
            while is_down.changed().await.is_ok() {}
            tokio::time::sleep(GRACE).await;
        };
        let result = tokio::select! {
            result = serve => result,
            () = deadline => Ok(()),
        };
        drop(file);
        result
    }
}

/// A socket file that is removed with its owner.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> Result<Self, ApiError> {
        let identity = identity(path).map_err(ApiError::io(path, "look at the socket"))?;
        Ok(Self { path: path.to_owned(), identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A socket that somebody else has put in its place is not ours to remove.
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the control socket");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

async fn lock(directory: &Path) -> Result<File, ApiError> {
    let file = File::open(directory).map_err(ApiError::io(directory, "open the directory"))?;
    let attempt = async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(ApiError::io(directory, "lock the directory")(error));
                }
            }
        }
    };
    let timed_out = |_| ApiError::Locked(directory.to_owned());
    tokio::time::timeout(LOCK_WAIT, attempt).await.map_err(timed_out)??;
    Ok(file)
}

/// Removes the socket of a dead process; refuses when it is alive or no socket at all.
async fn remove_stale(path: &Path) -> Result<(), ApiError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ApiError::io(path, "look at the socket")(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ApiError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(stream) => {
            let pid = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
            Err(ApiError::Running { path: path.to_owned(), pid })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(ApiError::io(path, "remove a dead process's socket"))
        }
        Err(error) => Err(ApiError::io(path, "connect to the socket")(error)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::control::report::{
        ApplyRequest, ChangeReport, FdbReport, Listing, MoveRequest, NetworkReport, Refusal, RouteReport,
        TenantReport,
    };
    use crate::control::stats::{NeighborReport, PortReport, Stats, Version};

    struct Sample;

    impl Operate for Sample {
        fn apply(
            self: Arc<Self>,
            request: ApplyRequest,
        ) -> BoxFuture<'static, Result<ChangeReport, Refusal>> {
            let report = ChangeReport { dry_run: request.dry_run, ..ChangeReport::default() };
            async { Ok(report) }.boxed()
        }
        fn move_port(
            self: Arc<Self>,
            request: MoveRequest,
        ) -> BoxFuture<'static, Result<ChangeReport, Refusal>> {
            async move { Err(Refusal::because(format!("no port is called {}", request.port))) }.boxed()
        }
    }

    impl Inspect for Sample {
        fn stats(&self) -> Stats {
            Stats { uptime_ms: 42, ..Stats::default() }
        }
        fn ports(&self) -> Vec<PortReport> {
            Vec::new()
        }
        fn neighbors(&self) -> Vec<NeighborReport> {
            Vec::new()
        }
        fn networks(&self) -> Vec<NetworkReport> {
            Vec::new()
        }
        fn tenants(&self) -> Vec<TenantReport> {
            Vec::new()
        }
        fn fdb(&self, network: Option<&str>) -> Option<Listing<FdbReport>> {
            network.is_none().then(|| Box::new(std::iter::empty()) as Listing<FdbReport>)
        }
        fn routes(&self, _: Option<&str>) -> Option<Listing<RouteReport>> {
            None
        }
    }

    /// A socket path in a directory that does not exist yet.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/flowrail.sock");
        (directory, path)
    }

    async fn get(path: &Path, request: &str) -> String {
        exchange(path, &format!("GET {request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    async fn post(path: &Path, request: &str, body: &str) -> String {
        let head = format!("POST {request} HTTP/1.1\r\nhost: x\r\nconnection: close");
        let kind = "content-type: application/json";
        exchange(path, &format!("{head}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await
    }

    async fn exchange(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn start(path: &Path) -> (oneshot::Sender<()>, tokio::task::JoinHandle<io::Result<()>>) {
        let server = Server::bind(path).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move { stopped.await.unwrap_or_default() };
        (stop, tokio::spawn(server.serve(Arc::new(Sample), Arc::new(Sample), shutdown)))
    }

    #[tokio::test]
    async fn answers_until_shutdown_and_leaves_no_socket() {
        let (_keep, path) = place();
        let (stop, task) = start(&path).await;
        let directory = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let stats = get(&path, "/v1/stats").await;
        assert!(stats.starts_with("HTTP/1.1 200 OK\r\n"), "{stats}");
        assert!(
            stats.contains("content-type: application/json") && stats.contains("\"uptime_ms\":42"),
            "{stats}"
        );
        let version = get(&path, "/v1/version").await;
        assert!(version.ends_with(&serde_json::to_string(&Version::current()).unwrap()), "{version}");
        assert!(get(&path, "/v1/ports").await.ends_with("\r\n\r\n[]"));
        assert!(get(&path, "/v1/neighbors").await.ends_with("\r\n\r\n[]"));
        let unknown = get(&path, "/v2/x").await;
        assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("nothing is at /v2/x"), "{unknown}");

        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn changes_are_posted_and_refusals_say_why() {
        let (_keep, path) = place();
        let (_stop, _task) = start(&path).await;
        let apply = post(&path, "/v1/apply?dry_run=true", r#"{"file":"a","text":""}"#).await;
        assert!(apply.starts_with("HTTP/1.1 200") && apply.contains("\"dry_run\":true"), "{apply}");
        let large = format!(r#"{{"file":"a","text":"{}"}}"#, "#".repeat(5_000_000));
        let apply = post(&path, "/v1/apply", &large).await;
        assert!(apply.starts_with("HTTP/1.1 200") && apply.contains("\"dry_run\":false"), "{apply}");
        let refused = post(&path, "/v1/port-move", r#"{"port":"gpu9","network":"red"}"#).await;
        assert!(
            refused.starts_with("HTTP/1.1 422") && refused.contains("no port is called gpu9"),
            "{refused}"
        );
        assert!(get(&path, "/v1/fdb").await.starts_with("HTTP/1.1 200"));
        let unknown = get(&path, "/v1/fdb?network=x").await;
        assert!(
            unknown.starts_with("HTTP/1.1 404") && unknown.contains("no network is called x"),
            "{unknown}"
        );
    }

    #[tokio::test]
    async fn a_silent_client_does_not_hold_up_the_shutdown() {
        let (_keep, path) = place();
        let (stop, task) = start(&path).await;
        let mut silent = UnixStream::connect(&path).await.unwrap();
        silent.write_all(b"GET /v1/st").await.unwrap();
        // The server has the connection once it answers a later one.
        get(&path, "/v1/version").await;
        let before = std::time::Instant::now();
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
        assert!(before.elapsed() < GRACE * 3, "{:?}", before.elapsed());
    }

    #[tokio::test]
    async fn a_live_socket_is_refused_and_a_dead_one_replaced() {
        let (_keep, path) = place();
        let (stop, task) = start(&path).await;
        let error = Server::bind(&path).await.unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            error.contains(&format!("another flowrail (pid {pid}) is running on this socket")),
            "{error}"
        );
        get(&path, "/v1/version").await;
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();

        // What a killed process leaves: a bound socket that nobody listens on.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (stop, task) = start(&path).await;
        get(&path, "/v1/version").await;
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn something_else_in_its_place_is_left_alone() {
        let (_keep, path) = place();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let error = Server::bind(&path).await.unwrap_err().to_string();
        assert!(error.contains("exists and is no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_successor_s_socket_is_not_removed() {
        let (_keep, path) = place();
        let (stop, task) = start(&path).await;
        std::fs::remove_file(&path).unwrap();
        let successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        stop.send(()).unwrap();
        task.await.unwrap().unwrap();
        assert!(path.exists());
        drop(successor);
    }

    #[tokio::test]
    async fn of_two_that_start_at_once_one_is_refused() {
        let (_keep, path) = place();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let bind = || async { Server::bind(&path).await };
        let (first, second) = tokio::join!(bind(), bind());
        assert_eq!([first.is_ok(), second.is_ok()].iter().filter(|ok| **ok).count(), 1);
    }
}
