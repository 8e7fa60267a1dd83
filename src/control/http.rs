//! Paths of the API: which question is asked at each, and how answers become bodies. Long lists are sent as they are made.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use tokio::sync::mpsc;

use super::report::{
    ApplyRequest, ChangeReport, Listing, MoveRequest, NetworkReport, Operate, Refusal, TenantReport,
};
use super::stats::{Inspect, NeighborReport, PortReport, Stats, Version};

/// Largest body: a file of 4 million endpoints has half of this.
const BODY_LIMIT: usize = 1 << 30;
/// Bytes of a list that are sent at a time, and how many of these may wait for the reader.
const PIECE: usize = 1 << 16;
const PIECES: usize = 4;

/// Who answers.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) inspect: Arc<dyn Inspect>,
    pub(super) operate: Arc<dyn Operate>,
}

type Asked = State<Service>;

pub(super) fn router(service: Service) -> Router {
    async fn stats(State(service): Asked) -> Json<Stats> {
        Json(service.inspect.stats())
    }
    async fn ports(State(service): Asked) -> Json<Vec<PortReport>> {
        Json(service.inspect.ports())
    }
    async fn neighbors(State(service): Asked) -> Json<Vec<NeighborReport>> {
        Json(service.inspect.neighbors())
    }
    async fn networks(State(service): Asked) -> Json<Vec<NetworkReport>> {
        Json(service.inspect.networks())
    }
    async fn tenants(State(service): Asked) -> Json<Vec<TenantReport>> {
        Json(service.inspect.tenants())
    }
    async fn fdb(State(service): Asked, uri: Uri) -> Response {
        let network = parameter(&uri, "network");
        listing(service.inspect.fdb(network), "network", network)
    }
    async fn routes(State(service): Asked, uri: Uri) -> Response {
        let tenant = parameter(&uri, "tenant");
        listing(service.inspect.routes(tenant), "tenant", tenant)
    }
    async fn version() -> Json<Version> {
        Json(Version::current())
    }
    async fn apply(State(service): Asked, uri: Uri, Json(mut request): Json<ApplyRequest>) -> Response {
        request.dry_run |= parameter(&uri, "dry_run") == Some("true");
        outcome(service.operate.apply(request).await)
    }
    async fn move_port(State(service): Asked, Json(request): Json<MoveRequest>) -> Response {
        outcome(service.operate.move_port(request).await)
    }
    async fn unknown(uri: Uri) -> Response {
        problem(StatusCode::NOT_FOUND, format!("nothing is at {}", uri.path()))
    }
    Router::new()
        .route("/v1/stats", get(stats))
        .route("/v1/ports", get(ports))
        .route("/v1/neighbors", get(neighbors))
        .route("/v1/networks", get(networks))
        .route("/v1/tenants", get(tenants))
        .route("/v1/fdb", get(fdb))
        .route("/v1/routes", get(routes))
        .route("/v1/version", get(version))
        .route("/v1/apply", post(apply))
        .route("/v1/port-move", post(move_port))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(service)
}

/// Value of a key in the query. Names need no escapes, so none are read.
fn parameter<'u>(uri: &'u Uri, key: &str) -> Option<&'u str> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
}

fn outcome(result: Result<ChangeReport, Refusal>) -> Response {
    match result {
        Ok(report) => Json(report).into_response(),
        Err(refusal) if refusal.refused.is_empty() => {
            (StatusCode::UNPROCESSABLE_ENTITY, Json(refusal)).into_response()
        }
        Err(refusal) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
    }
}

/// Body of an answer that is none.
#[derive(Serialize)]
struct Problem {
    error: String,
}

fn problem(status: StatusCode, error: String) -> Response {
    (status, Json(Problem { error })).into_response()
}

/// A JSON array, one row a line. `None` is a filter's name that nothing has.
fn listing<T: Serialize + 'static>(rows: Option<Listing<T>>, kind: &str, name: Option<&str>) -> Response {
    let Some(rows) = rows else {
        let name = name.unwrap_or_default();
        return problem(StatusCode::NOT_FOUND, format!("no {kind} is called {name}"));
    };
    let (send, receive) = mpsc::channel::<Bytes>(PIECES);
    // Ends when the list does, or when the reader is gone.
    tokio::task::spawn_blocking(move || {
        for piece in pieces(rows) {
            if send.blocking_send(piece.into()).is_err() {
                return;
            }
        }
    });
    let body = futures_util::stream::unfold(receive, |mut receive| async move {
        let piece = receive.recv().await?;
        Some((Ok::<Bytes, Infallible>(piece), receive))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// The text of a list, cut between rows.
fn pieces<T: Serialize>(rows: impl Iterator<Item = T>) -> impl Iterator<Item = String> {
    let mut rows = rows;
    let mut before = Some("[\n");
    let mut done = false;
    std::iter::from_fn(move || {
        let mut piece = String::new();
        while !done && piece.len() < PIECE {
            match rows.next() {
                Some(row) => {
                    piece.push_str(before.take().unwrap_or(",\n"));
                    // Rows are plain data, which always has a JSON form.
                    piece.push_str(&serde_json::to_string(&row).unwrap_or_default());
                }
                None => {
                    piece.push_str(before.take().map_or("\n]\n", |_| "[]\n"));
                    done = true;
                }
            }
        }
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_any_length_is_one_json_array() {
        for len in [0, 1, 2, 50_000] {
            let text: Vec<String> = pieces(0..len).collect();
            assert_eq!(text.len(), text.concat().len() / (PIECE + 1) + 1, "{len}");
            let read: Vec<u32> = serde_json::from_str(&text.concat()).unwrap();
            assert_eq!(read, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_parameter_is_found_by_its_whole_name() {
        let uri: Uri = "/v1/fdb?subnetwork=x&network=red-a&dry_run=true".parse().unwrap();
        assert_eq!(parameter(&uri, "network"), Some("red-a"));
        assert_eq!(parameter(&uri, "net"), None);
        assert_eq!(parameter(&"/v1/fdb".parse().unwrap(), "network"), None);
    }
}
