//! Asks a running flowrail over its Unix socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The body of `GET path`.
pub(super) fn get(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { tokio::time::timeout(TIMEOUT, request(socket, path)).await });
    answer.map_err(|_| anyhow!("{}: flowrail did not answer within 5 s", socket.display()))?
}

async fn request(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let stream = UnixStream::connect(socket).await.map_err(|error| explain(socket, error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "flowrail").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.context("asking flowrail")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("reading flowrail's answer")?.to_bytes();
    if !status.is_success() {
        bail!("flowrail answered {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body)
}

fn explain(socket: &Path, error: io::Error) -> anyhow::Error {
    let socket = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
            "no flowrail is running on {socket}; start one with `flowrail run`, or name its socket with --socket"
        ),
        io::ErrorKind::PermissionDenied => {
            anyhow!("may not open {socket}: only root, or whoever runs flowrail, may ask it")
        }
        _ => anyhow!("{socket}: {error}"),
    }
}
