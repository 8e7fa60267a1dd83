//! The receiving end: judges every frame, measures, and in echo mode sends it back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::frame::Roce;
use crate::monotonic_ns;
use crate::report::{Latencies, Report};
use crate::socket::PacketSocket;

pub const KEYS: [&str; 4] = ["interface", "count", "timeout", "idle"];
pub const SWITCHES: [&str; 2] = ["json", "echo"];

/// PSN bookkeeping of one queue pair.
#[derive(Default)]
struct Sequence {
    next: u32,
    received: u64,
    inversions: u64,
}

impl Sequence {
    /// A frame that comes after a later one is an inversion; one that comes early leaves a gap, counted at the end.
    fn record(&mut self, psn: u32) {
        self.received += 1;
        // Distance in the 24-bit circle: less than half of it means not before.
        if psn.wrapping_sub(self.next) & 0xff_ffff < 0x80_0000 {
            self.next = psn.wrapping_add(1) & 0xff_ffff;
        } else {
            self.inversions += 1;
        }
    }

    /// PSNs below the highest that never came. A sender starts at PSN 0.
    fn missing(&self) -> u64 {
        u64::from(self.next).saturating_sub(self.received)
    }
}

#[derive(Default)]
struct Tally {
    sequences: BTreeMap<u32, Sequence>,
    received: u64,
    bytes: u64,
    icrc_bad: u64,
    dscp_changed: u64,
    ecn_changed: u64,
    latencies: Latencies,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Tally {
    fn record(&mut self, frame: &[u8], roce: &Roce<'_>, now: u64) {
        let at = Instant::now();
        self.first.get_or_insert(at);
        self.last = Some(at);
        self.received += 1;
        self.bytes += frame.len() as u64;
        if !roce.icrc_ok {
            self.icrc_bad += 1;
            return;
        }
        self.sequences.entry(roce.qp).or_default().record(roce.psn);
        if let Some((sent, tos)) = roce.stamp() {
            self.latencies.record(now.saturating_sub(sent));
            self.dscp_changed += u64::from(tos >> 2 != roce.tos >> 2);
            self.ecn_changed += u64::from(tos & 3 != roce.tos & 3);
        }
    }

    fn seconds(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.duration_since(first).as_secs_f64(),
            _ => 0.0,
        }
    }

    fn report(self, wanted: u64, lost_here: u64) -> Report {
        let seconds = self.seconds();
        // The first frame opens the interval and is not part of it.
        let rate = if seconds > 0.0 { (self.received - 1) as f64 / seconds } else { 0.0 };
        let mean = self.bytes as f64 / self.received.max(1) as f64;
        let sum = |part: fn(&Sequence) -> u64| self.sequences.values().map(part).sum::<u64>();
        let (missing, inversions) = (sum(Sequence::missing), sum(|s| s.inversions));
        let mut report = Report::default();
        for (name, value) in [
            ("received", self.received),
            ("queue_pairs", self.sequences.len() as u64),
            ("icrc_bad", self.icrc_bad),
            ("missing", missing),
            ("inversions", inversions),
            ("dscp_changed", self.dscp_changed),
            ("ecn_changed", self.ecn_changed),
            ("lost_in_socket", lost_here),
        ] {
            report.count(name, value);
        }
        report.figure("seconds", seconds);
        report.figure("frames_per_second", rate);
        report.figure("gbit_per_second", rate * mean * 8.0 / 1e9);
        report.fault(self.icrc_bad, "frames with a wrong ICRC");
        report.fault(missing, "PSNs missing");
        report.fault(inversions, "frames out of order");
        report.fault(self.dscp_changed, "frames with another DSCP than sent");
        report.fault(self.ecn_changed, "frames with another ECN than sent");
        report.fault(wanted.saturating_sub(self.received), "frames fewer than --count");
        report.latencies("one_way", self.latencies);
        report
    }
}

/// Receives until `--count` frames came, none came for `--idle` seconds after the first, or `--timeout` passed.
pub fn run(args: &Args) -> Result<Report, String> {
    let interface: String = args.required("interface")?;
    let count: u64 = args.or("count", 0)?;
    let timeout = Duration::from_secs_f64(args.or("timeout", 10.0)?);
    let idle = Duration::from_secs_f64(args.or("idle", 1.0)?);
    let socket = PacketSocket::open(&interface).map_err(|e| format!("{interface}: {e}"))?;
    socket.set_timeout(Duration::from_millis(50)).map_err(|e| format!("receive timeout: {e}"))?;
    eprintln!("ready");
    let start = Instant::now();
    let mut tally = Tally::default();
    let (mut buffer, mut back) = (vec![0; 1 << 16], Vec::new());
    while start.elapsed() < timeout && (count == 0 || tally.received < count) {
        let Some(frame) = socket.receive(&mut buffer).map_err(|e| format!("receive: {e}"))? else {
            if tally.last.is_some_and(|last| last.elapsed() > idle) {
                break;
            }
            continue;
        };
        let now = monotonic_ns();
        let Some(roce) = Roce::parse(frame) else { continue };
        tally.record(frame, &roce, now);
        if args.has("echo") && roce.icrc_ok {
            roce.turn_round(frame, &mut back)?;
            socket.send(&back).map_err(|e| format!("echo of {} B: {e}", back.len()))?;
        }
    }
    let lost = socket.lost_here().map_err(|e| format!("packet statistics: {e}"))?;
    Ok(tally.report(count, u64::from(lost)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(psns: &[u32]) -> (u64, u64) {
        let mut sequence = Sequence::default();
        psns.iter().for_each(|&psn| sequence.record(psn));
        (sequence.missing(), sequence.inversions)
    }

    #[test]
    fn gaps_and_inversions_are_told_apart() {
        assert_eq!(sequence(&[0, 1, 2, 3]), (0, 0));
        assert_eq!(sequence(&[0, 1, 3]), (1, 0));
        assert_eq!(sequence(&[1, 2]), (1, 0));
        assert_eq!(sequence(&[0, 2, 1, 3]), (0, 1));
        assert_eq!(sequence(&[0, 3, 1, 2]), (0, 2));
    }
}
