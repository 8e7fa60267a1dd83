//! The counters of a running flowrail, as `show stats --json` tells them.

use std::fmt;

use serde_json::Value;

/// One reading.
pub struct Stats(pub Value);

impl Stats {
    /// What is wrong with the sums, or `None` when every packet has exactly one fate and every frame one place.
    /// Packets in flight have no fate yet, so the sums hold only at rest.
    pub fn imbalance(&self) -> Option<String> {
        let (received, fates) = (self.total("received"), self.fates());
        if received != fates {
            return Some(format!("received {received} packets, but {fates} have a fate: {self}"));
        }
        for worker in self.0["workers"].as_array().expect("workers") {
            let frames = |name: &str| number(&worker["frames"], name);
            let places: u64 = ["fill", "worker", "lent", "queued", "tx", "pool"].map(frames).iter().sum();
            if places != frames("total") {
                return Some(format!("frames do not add up: {worker}"));
            }
            if frames("worker") + frames("lent") + frames("queued") > 0 {
                return Some(format!("frames are held at rest: {worker}"));
            }
        }
        None
    }

    /// Everything a received packet can have become.
    fn fates(&self) -> u64 {
        ["forwarded", "replied", "punted"].map(|fate| self.total(fate)).iter().sum::<u64>() + self.dropped()
    }

    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        let drops = self.0["totals"]["drops"].as_object().unwrap_or_else(|| panic!("no drops: {self}"));
        drops.values().map(|count| count.as_u64().unwrap()).sum()
    }

    /// Packets dropped for one reason.
    pub fn drop(&self, reason: &str) -> u64 {
        number(&self.0["totals"]["drops"], reason)
    }

    /// Oddities of one kind, of packets that went on.
    pub fn note(&self, name: &str) -> u64 {
        number(&self.0["totals"]["notes"], name)
    }

    fn total(&self, name: &str) -> u64 {
        number(&self.0["totals"], name)
    }
}

/// What is wrong with the ports' sums, or `None` when every frame that the steering program gave to a socket was taken
/// by flowrail or counted by the kernel as one that it could not put there.
pub fn steering_imbalance(ports: &Value) -> Option<String> {
    let sum = |counters: &Value, names: &[&str]| names.iter().map(|name| number(counters, name)).sum::<u64>();
    ports.as_array().expect("ports").iter().find_map(|port| {
        let steered = sum(&port["xdp"], &["vxlan", "roce", "all"]);
        let lost = sum(&port["sockets"], &["rx_dropped", "rx_ring_full"]);
        let taken = number(port, "rx_packets");
        (steered != taken + lost)
            .then(|| format!("{steered} frames steered, {taken} taken, {lost} lost by the kernel: {port}"))
    })
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {object}"))
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
