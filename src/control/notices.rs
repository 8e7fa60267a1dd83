//! Logs what learning notices, in the words of the configuration, and not more of it than a reader can follow.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::config::Config;
use super::learn::{FREEZE, MOVE_LIMIT, MOVE_WINDOW, Notice};
use super::site::Site;
use crate::datapath::Learned;
use crate::tables::fdb::Dest;
use crate::tables::snapshot::Snapshot;

/// Lines in [`WINDOW`]; what is beyond them is counted.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// The log of what learning notices.
#[derive(Debug, Default)]
pub struct Notices {
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Notices {
    /// Logs a notice about what was seen, unless there were many already.
    pub fn log(&mut self, now: Instant, site: &Site, seen: &Learned, notice: Notice) {
        if !self.may_speak(now) {
            return;
        }
        let (config, tables) = site.config_and_tables();
        let text = describe(&config, &tables, seen, notice);
        match notice {
            Notice::Moved { .. } => info!("{text}"),
            _ => warn!("{text}"),
        }
    }

    fn may_speak(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now - since >= WINDOW) {
            let unsaid = std::mem::take(&mut self.unsaid);
            if unsaid > 0 {
                warn!("{unsaid} more notices of learning like those before");
            }
            (self.since, self.said) = (Some(now), 0);
        }
        let may = self.said < LINES;
        self.said += u32::from(may);
        self.unsaid += u64::from(!may);
        may
    }
}

fn describe(config: &Config, tables: &Snapshot, seen: &Learned, notice: Notice) -> String {
    let place = |at: Dest| match at {
        Dest::Port(port) => {
            format!("port {}", config.port_names().nth(usize::from(port.0)).unwrap_or_default())
        }
        Dest::Vtep(vtep) => {
            tables.vteps.get(vtep).map(|row| format!("VTEP {}", row.remote)).unwrap_or_default()
        }
    };
    let network = config.networks.get(seen.network.0 as usize).map_or("?", |network| &network.name);
    let plan = config.address_plan.as_ref();
    let position = |ip| {
        let position = plan.and_then(|plan| plan.decode(ip));
        position.map(|position| format!(" ({position})")).unwrap_or_default()
    };
    // Whose MAC it is, as far as the plan tells by its address.
    let mac = format!("{}{}", seen.mac, seen.ip.map(position).unwrap_or_default());
    match notice {
        Notice::Moved { from, to } => {
            format!("network {network}: {mac} moved from {} to {}", place(from), place(to))
        }
        Notice::Frozen { at } => format!(
            "network {network}: {mac} moved {MOVE_LIMIT} times within {} s and stays at {} for {} s; is it there twice?",
            MOVE_WINDOW.as_secs(),
            place(at),
            FREEZE.as_secs()
        ),
        Notice::StationConflict { configured, seen } => format!(
            "network {network}: {mac} was seen at {}, but is configured at {}, where it stays",
            place(seen),
            place(configured)
        ),
        Notice::AddressConflict { ip, configured } => {
            format!("network {network}: {mac} says it has {ip}, which is configured for {configured}")
        }
        Notice::Full { macs } => format!(
            "network {network}: {mac} at {} is not learned, as the network has its limit of {macs} stations",
            place(seen.at)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_notices_is_counted_rather_than_logged() {
        let (mut notices, start) = (Notices::default(), Instant::now());
        let spoken = (0..100).filter(|_| notices.may_speak(start)).count();
        assert_eq!((spoken, notices.unsaid), (10, 90));
        assert!(notices.may_speak(start + WINDOW));
        assert_eq!(notices.unsaid, 0);
    }
}
