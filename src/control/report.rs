//! What a running flowrail tells about its tables, and what it says to a change: the JSON of the API. Like in `stats`,
//! names and units are part of the API.

use std::net::IpAddr;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use std::sync::Arc;

use super::config::ConfigErrors;

/// Rows of a table that may be long, made while they are sent. Holds on to the tables of one moment.
pub type Listing<T> = Box<dyn Iterator<Item = T> + Send>;

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// From the configuration.
    Static,
    /// From frames of a station.
    Learned,
}

/// One entry of `GET /v1/fdb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReport {
    /// Name of the network.
    pub network: String,
    /// Its VNI.
    pub vni: u32,
    /// The station.
    pub mac: String,
    /// Port of this host that it is behind.
    pub port: Option<String>,
    /// Remote encap IP that it is behind.
    pub vtep: Option<IpAddr>,
    /// Name of the peer with this encap IP.
    pub peer: Option<String>,
    /// Where the entry comes from.
    pub source: Source,
    /// Time since a learned station was last seen; seen again within 5 s it may not be noted.
    pub age_ms: Option<u64>,
    /// It moved too often, and stays here for a while.
    pub frozen: bool,
}

/// One entry of `GET /v1/routes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteReport {
    /// Name of the tenant.
    pub tenant: String,
    /// Destinations.
    pub prefix: String,
    /// `host`, `vtep`, `no-router-mac`, `connected`, `gateway`, `leak` or `blackhole`.
    pub kind: String,
    /// Network of a host, a connected subnet or a gateway.
    pub network: Option<String>,
    /// Encap IP of the remote VTEP.
    pub vtep: Option<IpAddr>,
    /// MAC of the host, or router MAC of the remote VTEP.
    pub mac: Option<String>,
    /// Tenant that it leaks to.
    pub leak: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// Time since a learned address was last claimed.
    pub age_ms: Option<u64>,
}

/// One entry of `GET /v1/networks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Name.
    pub network: String,
    /// Its number on the wire.
    pub vni: u32,
    /// Name of its tenant.
    pub tenant: Option<String>,
    /// Addresses of its gateway.
    pub gateways: Vec<IpAddr>,
    /// Ports of this host that it has.
    pub ports: Vec<String>,
    /// Peers that belong to it.
    pub peers: Vec<String>,
    /// FDB entries, static and learned.
    pub stations: usize,
    /// Addresses known, static and learned.
    pub addresses: usize,
    /// How it learns; absent when it does not.
    pub learning: Option<LearningReport>,
}

/// How a network learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearningReport {
    /// Stations learned.
    pub stations: usize,
    /// Most stations.
    pub limit: usize,
    /// Addresses learned.
    pub addresses: usize,
    /// A station that is silent for this long is forgotten.
    pub ageing_ms: u64,
}

/// One entry of `GET /v1/tenants`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    /// Name.
    pub tenant: String,
    /// VNI of routed packets between VTEPs.
    pub l3vni: Option<u32>,
    /// Our router MAC.
    pub router_mac: Option<String>,
    /// Its networks.
    pub networks: Vec<String>,
    /// Routes, static and learned.
    pub routes: usize,
    /// Rules of its policy, in their order.
    pub rules: Vec<RuleReport>,
}

/// A rule of a tenant's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name, or its place in the list from 1.
    pub rule: String,
    /// `allow`, `deny` or `count`.
    pub action: String,
    /// Packets that it decided, or counted.
    pub packets: u64,
}

/// Body of `POST /v1/apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyRequest {
    /// The file's name in messages.
    pub file: String,
    /// What is in it.
    pub text: String,
    /// Say what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Body of `POST /v1/port-move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRequest {
    /// Name of the port.
    pub port: String,
    /// Name of the network that it goes to.
    pub network: String,
    /// Its MACs there; absent: it keeps those it has.
    #[serde(default)]
    pub macs: Option<Vec<String>>,
    /// Its IP addresses there; absent: it keeps those it has.
    #[serde(default)]
    pub ips: Option<Vec<String>>,
}

/// Answer to a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Nothing was changed, as asked.
    pub dry_run: bool,
    /// A line for each thing that came (`+`), went (`-`) or is different (`~`).
    pub changes: Vec<String>,
    /// Milliseconds.
    pub took: Took,
    /// What had not happened when the time was over: empty when nothing of the old state is left.
    pub unfinished: Vec<String>,
}

/// Milliseconds of each phase of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Waiting for another change, and reading the text.
    pub read_ms: f64,
    /// Comparing it with what runs.
    pub compare_ms: f64,
    /// Building tables.
    pub build_ms: f64,
    /// Opening ports.
    #[serde(default)]
    pub open_ms: f64,
    /// Putting in what is known of next hops and stations, and publishing.
    pub publish_ms: f64,
    /// Until every worker worked with the new tables.
    pub adopt_ms: f64,
    /// Until everything sent before had left.
    pub leave_ms: f64,
    /// All of it.
    pub total_ms: f64,
}

/// Why a change was not made. Nothing is different then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// In one sentence.
    pub error: String,
    /// Everything that is wrong in the file.
    #[serde(default)]
    pub errors: Vec<FileError>,
    /// Everything that cannot change while flowrail runs.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    /// Line, from 1.
    pub line: usize,
    /// What it concerns; empty for the file itself.
    pub culprit: String,
    /// What is wrong.
    pub problem: String,
    /// All of it, with the file's name.
    pub message: String,
}

impl Refusal {
    /// For one reason.
    #[must_use]
    pub fn because(error: impl Into<String>) -> Self {
        Self { error: error.into(), ..Self::default() }
    }
}

impl From<&ConfigErrors> for Refusal {
    fn from(report: &ConfigErrors) -> Self {
        let error = |error: &super::config::ConfigError| FileError {
            line: error.line,
            culprit: error.culprit.clone(),
            problem: error.problem.to_string(),
            message: format!("{}:{}: {error}", report.file, error.line),
        };
        Self {
            error: format!("{} is wrong; nothing was changed", report.file),
            errors: report.errors.iter().map(error).collect(),
            refused: Vec::new(),
        }
    }
}

/// Changes what runs. One change at a time; a change that has begun is finished though who asked goes away.
pub trait Operate: Send + Sync + 'static {
    /// Makes a configuration the running one.
    fn apply(self: Arc<Self>, request: ApplyRequest) -> BoxFuture<'static, Result<ChangeReport, Refusal>>;
    /// Puts a port into another network.
    fn move_port(self: Arc<Self>, request: MoveRequest) -> BoxFuture<'static, Result<ChangeReport, Refusal>>;
}
