//! What a snapshot needs to know of interfaces.

use crate::control::config::{self, Config};
use crate::wire::ethernet::Mac;

/// What the kernel, or the configuration in its place, says of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its MAC.
    pub mac: Mac,
    /// IP MTU in bytes.
    pub mtu: u16,
}

/// Facts of all interfaces, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of uplinks.
    pub uplinks: Vec<InterfaceFacts>,
    /// Of access ports.
    pub ports: Vec<InterfaceFacts>,
}

/// A port whose MAC or MTU neither the configuration nor an interface tells.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("uplink {name}: no interface {interface} here, so {missing} must be set in the configuration")]
pub struct MissingFact {
    name: String,
    interface: String,
    missing: &'static str,
}

impl Facts {
    /// Facts from the configuration alone. An access port without an MTU takes any length.
    ///
    /// # Errors
    /// Names the first uplink whose `mac` or `mtu` is not configured.
    pub fn offline(config: &Config) -> Result<Self, MissingFact> {
        let uplink = |uplink: &config::Uplink| {
            let missing = |missing| MissingFact {
                name: uplink.name.clone(),
                interface: uplink.interface.to_string(),
                missing,
            };
            let mac = uplink.mac.ok_or_else(|| missing("mac"))?;
            let mtu = uplink.mtu.ok_or_else(|| missing("mtu"))?;
            Ok(InterfaceFacts { mac, mtu })
        };
        let port =
            |port: &config::Port| InterfaceFacts { mac: Mac::default(), mtu: port.mtu.unwrap_or(u16::MAX) };
        Ok(Self {
            uplinks: config.uplinks.iter().map(uplink).collect::<Result<_, _>>()?,
            ports: config.ports.iter().map(port).collect(),
        })
    }
}
