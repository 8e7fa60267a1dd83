//! The case format: a manifest with one configuration and many cases, each with frames in hex and the right outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub struct Manifest {
    pub config: ManifestConfig,
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct ManifestConfig {
    pub local_vtep: LocalVtep,
    pub remote_vteps: BTreeMap<String, String>,
    pub underlay: Underlay,
    pub vnis: BTreeMap<String, NetworkEntry>,
    /// Prefix → encap IP and router MAC of the remote host.
    #[serde(default)]
    pub routes_tenant_a: BTreeMap<String, [String; 2]>,
}

#[derive(Deserialize)]
pub struct LocalVtep {
    pub ipv4: String,
    pub ipv6: String,
    pub mac: String,
}

#[derive(Deserialize)]
pub struct Underlay {
    pub mtu: u16,
}

#[derive(Deserialize)]
pub struct NetworkEntry {
    pub access_port: Option<String>,
    #[serde(default)]
    pub local: BTreeMap<String, String>,
    #[serde(default)]
    pub remote: BTreeMap<String, [String; 2]>,
    #[serde(default)]
    pub flood: Vec<String>,
    pub vrf: Option<String>,
    pub subnet: Option<String>,
    pub gw: Option<String>,
    /// For an L3VNI: its VRF, our router MAC, and remote router MACs by encap IP.
    pub l3vni_for: Option<String>,
    pub router_mac: Option<String>,
    #[serde(default)]
    pub remote_router_macs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub input_side: String,
    pub frames: Vec<String>,
    pub expected: Expected,
    #[serde(default)]
    pub note: String,
}

#[derive(Deserialize)]
pub struct Expected {
    pub action: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub policy: String,
    #[serde(default)]
    pub out: Vec<ExpectedOut>,
}

#[derive(Clone, Deserialize)]
pub struct ExpectedOut {
    pub port: String,
    pub hex: String,
    #[serde(default)]
    pub ignore: Vec<[usize; 2]>,
    #[serde(default)]
    pub rules: Vec<String>,
}

impl Case {
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.frames.iter().map(|hex| bytes(hex)).collect()
    }

    /// Underlay MTU when the case is a variant of the configuration: named so, or said in the note.
    pub fn underlay_mtu(&self) -> Option<u16> {
        let digits =
            |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
        let named = self.name.split("mtu").nth(1).and_then(digits);
        named.or_else(|| {
            self.note.split("MTU ").nth(1).filter(|_| self.note.contains("variant")).and_then(digits)
        })
    }

    /// The encap IP of the remote host that the frames go to, when the expected outer header says another than default.
    pub fn outer_is_v6(&self) -> bool {
        let outs = || self.expected.out.iter().filter(|out| out.port == "underlay");
        outs().count() > 0 && outs().all(|out| bytes(&out.hex)[12..14] == [0x86, 0xdd])
    }
}

/// Directory of the cases: `FLOWRAIL_CASES`, or the project's own.
pub fn directory() -> PathBuf {
    std::env::var_os("FLOWRAIL_CASES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"), PathBuf::from)
}

pub fn load() -> Manifest {
    let path = directory().join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let value: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(value).unwrap()
}

pub fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
