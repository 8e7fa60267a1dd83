//! What a worker tells the control plane: next hops that packets wait for, and stations it saw. Each thing once in a
//! while, however many packets show it; and how often it may answer with an ICMP error.

use std::net::IpAddr;

use super::counters::Counters;
use crate::datapath::{GroupChange, Learned, Observer};
use crate::ids::{Nanos, RuleId};
use crate::wire::drop::Note;

/// Something that the control plane should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets wait for the next hop of this remote encap IP.
    Want(IpAddr),
    /// A station was seen.
    Learned {
        /// Layout of the snapshot that its ids are of.
        layout: u64,
        /// What was seen.
        seen: Learned,
    },
    /// A station joined or left a multicast group.
    Group {
        /// Layout of the snapshot that its ids are of.
        layout: u64,
        /// What it said.
        change: GroupChange,
    },
}

/// How long a station that was told is not told again.
const REFRESH: Nanos = Nanos(5_000_000_000);
/// Stations that are remembered as told; a power of two. Two that share a place are told more often.
const REMEMBERED: usize = 8192;
/// ICMP errors in a row, and one more for each interval (1000 a second).
const ERROR_BURST: u64 = 100;
const ERROR_INTERVAL: Nanos = Nanos(1_000_000);

/// A worker's voice.
pub(super) struct Reporter {
    tell: Box<dyn FnMut(Event) + Send>,
    told: Vec<Option<(Learned, Nanos)>>,
    /// Layout of the snapshot that the worker works with.
    layout: u64,
    errors: u64,
    errors_at: Nanos,
}

impl Reporter {
    pub(super) fn new(tell: Box<dyn FnMut(Event) + Send>) -> Self {
        Self { tell, told: Vec::new(), layout: 0, errors: ERROR_BURST, errors_at: Nanos(0) }
    }

    pub(super) fn want(&mut self, remote: IpAddr) {
        (self.tell)(Event::Want(remote));
    }

    /// The tables are of this layout. Another one gives ids another meaning, so that what was told counts for nothing.
    #[inline]
    pub(super) fn set_layout(&mut self, layout: u64) {
        if self.layout != layout {
            self.layout = layout;
            self.told.clear();
        }
    }

    fn learn(&mut self, now: Nanos, seen: Learned) {
        // Workers of bridged networks without learning never need the memory.
        if self.told.is_empty() {
            self.told.resize(REMEMBERED, None);
        }
        let key = seen.mac.to_u64() ^ u64::from(seen.network.0) << 32 ^ u64::from(seen.ip.is_some()) << 63;
        let place = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51).unwrap_or(0);
        let Some(slot) = self.told.get_mut(place % REMEMBERED) else { return };
        // Where the FDB has the station changes by what is told, and that is no news.
        let same = |told: &Learned| Learned { known: seen.known, ..*told } == seen;
        if slot.as_ref().is_some_and(|(told, at)| same(told) && now.since(*at) < REFRESH) {
            return;
        }
        *slot = Some((seen, now));
        (self.tell)(Event::Learned { layout: self.layout, seen });
    }

    fn group(&mut self, change: GroupChange) {
        (self.tell)(Event::Group { layout: self.layout, change });
    }

    fn may_send_error(&mut self, now: Nanos) -> bool {
        let earned = now.since(self.errors_at).0 / ERROR_INTERVAL.0;
        if earned > 0 {
            self.errors = self.errors.saturating_add(earned).min(ERROR_BURST);
            self.errors_at = now;
        }
        let may = self.errors > 0;
        self.errors = self.errors.saturating_sub(1);
        may
    }
}

/// What the datapath sees of a worker: it counts, and passes on; steps of live packets are nobody's business.
pub(super) struct Live<'a> {
    pub(super) counters: &'a Counters,
    pub(super) reporter: &'a mut Reporter,
    pub(super) now: Nanos,
}

impl Observer for Live<'_> {
    #[inline]
    fn note(&mut self, note: Note) {
        self.counters.note(note);
    }

    #[inline]
    fn learn(&mut self, seen: Learned) {
        self.reporter.learn(self.now, seen);
    }

    #[cold]
    fn group(&mut self, change: GroupChange) {
        self.reporter.group(change);
    }

    #[inline]
    fn rule(&mut self, rule: RuleId) {
        if let Some(counter) = self.counters.rule(rule) {
            counter.add(1);
        }
    }

    fn may_send_error(&mut self) -> bool {
        self.reporter.may_send_error(self.now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::ids::{NetworkId, PortId};
    use crate::tables::fdb::Dest;
    use crate::wire::ethernet::Mac;

    #[test]
    fn a_station_is_told_once_in_a_while_and_at_once_when_it_moves() {
        let (send, told) = mpsc::channel();
        let mut reporter = Reporter::new(Box::new(move |event| send.send(event).unwrap()));
        let seen = |port, known| Learned {
            network: NetworkId(1),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            at: Dest::Port(PortId(port)),
            known,
            ip: None,
        };
        reporter.learn(Nanos(0), seen(1, None));
        reporter.learn(Nanos(1), seen(1, Some(Dest::Port(PortId(1)))));
        reporter.learn(REFRESH, seen(1, None));
        reporter.learn(REFRESH, seen(2, None));
        assert_eq!(told.try_iter().count(), 3);
    }

    #[test]
    fn a_new_layout_is_told_everything_again() {
        let (send, told) = mpsc::channel();
        let mut reporter = Reporter::new(Box::new(move |event| send.send(event).unwrap()));
        let at = Dest::Port(PortId(1));
        let seen = Learned { network: NetworkId(1), mac: Mac([2, 0, 0, 0, 0, 1]), at, known: None, ip: None };
        for layout in [0, 0, 1] {
            reporter.set_layout(layout);
            reporter.learn(Nanos(0), seen);
        }
        let expected = [0, 1].map(|layout| Event::Learned { layout, seen });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn errors_come_in_a_burst_and_then_at_their_rate() {
        let mut reporter = Reporter::new(Box::new(|_| {}));
        let sent = |reporter: &mut Reporter, at: u64| {
            (0..500).filter(|_| reporter.may_send_error(Nanos(at))).count()
        };
        assert_eq!(sent(&mut reporter, 0), 100);
        assert_eq!(sent(&mut reporter, 10 * ERROR_INTERVAL.0), 10);
        assert_eq!(sent(&mut reporter, 1000 * ERROR_INTERVAL.0), 100);
    }
}
