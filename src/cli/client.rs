//! Asks a running flowrail over its Unix socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// How long an answer, or the next piece of one, may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a change may take: it builds all tables anew.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);

/// The body of `GET path`.
pub(super) fn get(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let mut body = Vec::new();
    stream(socket, path, |piece| {
        body.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(body.into())
}

/// Gives the body of `GET path` to `take` as it comes.
pub(super) fn stream(
    socket: &Path,
    path: &str,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    run(async {
        let request = Request::get(path).header("host", "flowrail").body(Full::default())?;
        let response = within(TIMEOUT, socket, exchange(socket, request)).await?;
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let body = within(TIMEOUT, socket, whole(body)).await?;
            bail!("flowrail answered {status}: {}", problem(&body));
        }
        while let Some(frame) = within(TIMEOUT, socket, async { Ok(body.frame().await) }).await? {
            if let Some(piece) = frame.context("reading flowrail's answer")?.data_ref() {
                take(piece)?;
            }
        }
        Ok(())
    })
}

/// Posts JSON. An answer of what was done, or of why not; both are understood.
pub(super) fn post<D: DeserializeOwned, R: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<Result<D, R>> {
    let body = serde_json::to_vec(body)?;
    run(async {
        let request =
            Request::post(path).header("host", "flowrail").header("content-type", "application/json");
        let response =
            within(CHANGE_TIMEOUT, socket, exchange(socket, request.body(Full::from(body))?)).await?;
        let status = response.status();
        let body = within(TIMEOUT, socket, whole(response.into_body())).await?;
        match status {
            StatusCode::OK => Ok(Ok(read(&body)?)),
            StatusCode::UNPROCESSABLE_ENTITY | StatusCode::CONFLICT => Ok(Err(read(&body)?)),
            _ => bail!("flowrail answered {status}: {}", problem(&body)),
        }
    })
}

/// An answer as the type it must be.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("flowrail's answer is not understood; are both of the same version?")
}

fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn within<T>(
    limit: Duration,
    socket: &Path,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(limit, work).await;
    let late = |_| anyhow!("{}: flowrail did not answer within {} s", socket.display(), limit.as_secs());
    answer.map_err(late)?
}

async fn exchange(socket: &Path, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await.map_err(|error| explain(socket, error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await.context("asking flowrail")
}

async fn whole(body: Incoming) -> anyhow::Result<Bytes> {
    Ok(body.collect().await.context("reading flowrail's answer")?.to_bytes())
}

/// What a body says is wrong.
fn problem(body: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let error = value.as_ref().and_then(|value| value.get("error")?.as_str());
    error.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
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
