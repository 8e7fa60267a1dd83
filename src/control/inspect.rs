//! Answers `show`: sums the workers' counters, and asks kernel and resolver for theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::config::Config;
use super::learn::Learner;
use super::listing;
use super::publish::Facts;
use super::report::{FdbReport, Listing, NetworkReport, RouteReport, TenantReport};
use super::setup::OpenPort;
use super::site::Site;
use super::stats::{
    CopyMode, Counters as Labelled, Inspect, NeighborReport, PortKind, PortReport, RuleCount, Stats, Totals,
    WorkerStats, XdpMode,
};
use crate::bpf::AttachMode;
use crate::ids::{IfIndex, PortId};
use crate::wire::drop::{DropReason, Note};
use crate::worker::counters::{Counter, Counters};

/// Everything that can be asked.
pub struct Inspector {
    /// What runs.
    pub site: Arc<Site>,
    /// Core of each worker.
    pub cores: Vec<usize>,
    /// Name of the uplink of each interface that resolves its next hops.
    pub uplink_names: HashMap<IfIndex, String>,
    /// When the ports were ready.
    pub start: Instant,
}

impl Inspector {
    fn sum(&self, counter: impl Fn(&Counters) -> u64) -> u64 {
        self.site.crew.counters.iter().map(|counters| counter(counters)).sum()
    }

    fn drops(&self, port: Option<PortId>) -> Labelled {
        let mut counts = [0; DropReason::COUNT];
        for (count, reason) in counts.iter_mut().zip(DropReason::ALL) {
            *count = self.sum(|c| match port {
                None => c.dropped(*reason),
                Some(port) => c.port(port).and_then(|p| p.drops.get(reason.index())).map_or(0, Counter::get),
            });
        }
        Labelled::drops(&counts)
    }

    fn port(
        &self,
        (config, facts): (&Config, &Facts),
        id: PortId,
        name: &str,
        open: &OpenPort,
    ) -> PortReport {
        let uplink = config.uplinks.get(usize::from(id.0));
        let access = || usize::from(id.0).checked_sub(config.uplinks.len());
        let port = access().and_then(|index| config.ports.get(index));
        let interface = uplink.map(|u| &u.interface).or(port.map(|p| &p.interface));
        let facts = facts.uplinks.iter().chain(&facts.ports).nth(usize::from(id.0));
        let of_port = |get: fn(&crate::worker::counters::PortCounters) -> &Counter| {
            self.sum(|c| c.port(id).map_or(0, |port| get(port).get()))
        };
        PortReport {
            port: id.0,
            name: name.to_owned(),
            role: if uplink.is_some() { PortKind::Uplink } else { PortKind::Access },
            interface: interface.map(ToString::to_string).unwrap_or_default(),
            ifindex: open.ifindex.0,
            mode: match open.mode {
                AttachMode::Native => XdpMode::Native,
                AttachMode::Generic => XdpMode::Generic,
            },
            copy: if open.zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy },
            queues: open.queues,
            mtu: facts.map_or(0, |facts| u32::from(facts.mtu)),
            rx_packets: of_port(|p| &p.rx_packets),
            rx_bytes: of_port(|p| &p.rx_bytes),
            tx_packets: of_port(|p| &p.tx_packets),
            tx_bytes: of_port(|p| &p.tx_bytes),
            drops: self.drops(Some(id)),
            xdp: xdp_outcomes(open),
            sockets: socket_statistics(open),
        }
    }
}

impl Inspect for Inspector {
    fn stats(&self) -> Stats {
        let drops = self.drops(None);
        let mut notes = [0; Note::COUNT];
        for (count, note) in notes.iter_mut().zip(Note::ALL) {
            *count = self.sum(|c| c.notes.get(note.index()).map_or(0, Counter::get));
        }
        // The control plane sees what a worker reports of its configured stations.
        if let Some(count) = notes.get_mut(Note::FdbConflict.index()) {
            *count += self.site.learned(Learner::conflicts);
        }
        let totals = Totals {
            received: self.sum(Counters::received),
            forwarded: self.sum(|c| c.forwarded.get()),
            replied: self.sum(|c| c.replied.get()),
            punted: 0,
            waiting: self.sum(|c| c.waiting.get()),
            dropped: drops.sum(),
            drops,
            notes: Labelled::notes(&notes),
        };
        let workers = self.cores.iter().zip(&self.site.crew.counters);
        let workers = (0..).zip(workers).map(|(number, (core, c))| worker(number, *core, c)).collect();
        let uptime_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let rules = listing::tenants(&self.site).into_iter().flat_map(|tenant| {
            let counted = tenant.rules.into_iter().filter(|rule| rule.packets > 0);
            counted.map(move |rule| RuleCount {
                tenant: tenant.tenant.clone(),
                rule: rule.rule,
                packets: rule.packets,
            })
        });
        Stats { uptime_ms, totals, workers, rules: rules.collect() }
    }

    fn ports(&self) -> Vec<PortReport> {
        let (config, facts) = self.site.current();
        let names: Vec<&str> = config.port_names().collect();
        self.site.ports.each(|(id, open)| {
            let name = names.get(usize::from(id.0)).copied().unwrap_or_default();
            self.port((&config, &facts), id, name, open)
        })
    }

    fn neighbors(&self) -> Vec<NeighborReport> {
        let name = |ifindex| self.uplink_names.get(&ifindex).map_or("", String::as_str);
        let hops = self.site.resolver.report().into_iter();
        hops.map(|hop| NeighborReport::new(name(hop.remote.ifindex), hop)).collect()
    }

    fn networks(&self) -> Vec<NetworkReport> {
        listing::networks(&self.site)
    }

    fn tenants(&self) -> Vec<TenantReport> {
        listing::tenants(&self.site)
    }

    fn fdb(&self, network: Option<&str>) -> Option<Listing<FdbReport>> {
        listing::fdb(&self.site, network)
    }

    fn routes(&self, tenant: Option<&str>) -> Option<Listing<RouteReport>> {
        listing::routes(&self.site, tenant)
    }
}

fn worker(number: u16, core: usize, c: &Counters) -> WorkerStats {
    WorkerStats {
        worker: number,
        core,
        loops: c.loops.get(),
        batches: c.busy_loops.get(),
        wakeups: c.wakeups.get(),
        wakeups_refused: c.wakeups_refused.get(),
        sleeps: c.sleeps.get(),
        handoffs: c.handoffs.get(),
        frames: c.frames.get(),
    }
}

fn xdp_outcomes(open: &OpenPort) -> Labelled {
    // The map is read by a system call; when that fails there is nothing to tell.
    let outcomes = open.steering.outcomes().unwrap_or_default();
    Labelled::new(outcomes.iter().map(|(outcome, count)| (outcome.name(), count.packets)))
}

fn socket_statistics(open: &OpenPort) -> Labelled {
    let mut sums = [0; 6];
    for statistics in open.statistics.iter().filter_map(|reader| reader.read().ok()) {
        let values = [
            statistics.rx_dropped,
            statistics.rx_invalid_descs,
            statistics.tx_invalid_descs,
            statistics.rx_ring_full,
            statistics.rx_fill_ring_empty_descs,
            statistics.tx_ring_empty_descs,
        ];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    let labels = [
        "rx_dropped",
        "rx_invalid_descs",
        "tx_invalid_descs",
        "rx_ring_full",
        "rx_fill_ring_empty_descs",
        "tx_ring_empty_descs",
    ];
    Labelled::new(labels.into_iter().zip(sums))
}
