//! The counters of a running flowrail, as `show stats --json` tells them.

use std::fmt;

use serde_json::Value;

/// One reading.
pub struct Stats(pub Value);

impl Stats {
    pub fn received(&self) -> u64 {
        self.number("received")
    }

    /// Everything a received frame can have become.
    pub fn accounted_for(&self) -> u64 {
        self.number("forwarded") + self.number("replied") + self.number("punted") + self.dropped()
    }

    pub fn dropped(&self) -> u64 {
        self.drops().map(|(_, count)| count).sum()
    }

    /// Frames dropped for one reason.
    pub fn drop(&self, reason: &str) -> u64 {
        self.drops().find(|(name, _)| *name == reason).map_or(0, |(_, count)| count)
    }

    fn drops(&self) -> impl Iterator<Item = (&str, u64)> {
        let drops = self.0["drops"].as_object().unwrap_or_else(|| panic!("no drops: {self}"));
        drops.iter().map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {self}"))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
