//! The ICRC oracle over captures: every RoCEv2 packet of a pcap file, bare or inside VXLAN, is judged.

use std::collections::BTreeMap;

use crate::args::Args;
use crate::frame::Roce;
use crate::report::Report;

pub const KEYS: [&str; 0] = [];
pub const SWITCHES: [&str; 1] = ["json"];

/// Link type of plain Ethernet.
const ETHERNET: u32 = 1;

/// Frames of a classic pcap file, each with whether it was captured whole.
fn frames(file: &[u8]) -> Result<Vec<(&[u8], bool)>, String> {
    let (header, mut rest) = file.split_first_chunk::<24>().ok_or("shorter than a pcap header")?;
    let big = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
        _ => return Err("not a pcap file (pcapng is not read)".to_owned()),
    };
    let word = |bytes: [u8; 4]| if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    let field = |bytes: &[u8], at: usize| word([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if field(header, 20) != ETHERNET {
        return Err(format!("link type {} is not Ethernet", field(header, 20)));
    }
    let mut frames = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let (captured, length) = (field(record, 8) as usize, field(record, 12) as usize);
        // A capture that was still being written may end inside a frame.
        let Some(frame) = after.get(..captured) else { break };
        frames.push((frame, captured == length));
        rest = &after[captured..];
    }
    Ok(frames)
}

#[derive(Default)]
struct Tally {
    frames: u64,
    roce: u64,
    encapsulated: u64,
    bad: u64,
    cut: u64,
    checksum_zero: u64,
    outer_differs: u64,
    longest: usize,
    opcodes: BTreeMap<u8, u64>,
    tos: BTreeMap<u8, u64>,
    outer_ports: BTreeMap<u16, u64>,
}

impl Tally {
    fn record(&mut self, frame: &[u8], whole: bool) {
        self.frames += 1;
        if !whole {
            self.cut += 1;
            return;
        }
        let Some(roce) = Roce::parse(frame) else { return };
        self.roce += 1;
        self.bad += u64::from(!roce.icrc_ok);
        self.checksum_zero += u64::from(roce.udp_checksum == 0);
        self.longest = self.longest.max(frame.len());
        *self.opcodes.entry(roce.opcode).or_default() += 1;
        *self.tos.entry(roce.tos).or_default() += 1;
        if let Some((tos, port)) = roce.outer {
            self.encapsulated += 1;
            self.outer_differs += u64::from(tos != roce.tos);
            *self.outer_ports.entry(port).or_default() += 1;
        }
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        for (name, value) in [
            ("frames", self.frames),
            ("roce", self.roce),
            ("encapsulated", self.encapsulated),
            ("icrc_bad", self.bad),
            ("cut_by_capture", self.cut),
            ("udp_checksum_zero", self.checksum_zero),
            ("outer_tos_differs", self.outer_differs),
            ("longest", self.longest as u64),
            ("outer_source_ports", self.outer_ports.len() as u64),
        ] {
            report.count(name, value);
        }
        report.text("opcodes", &histogram(&self.opcodes));
        report.text("tos", &histogram(&self.tos));
        report.fault(self.bad, "packets with a wrong ICRC");
        if self.roce == 0 {
            report.faults.push("no RoCEv2 packet".to_owned());
        }
        report
    }
}

/// `value×count` in the order of the values.
fn histogram(counts: &BTreeMap<u8, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(value, count)| format!("{value}x{count}")).collect();
    parts.join(" ")
}

/// Judges all packets of the named files together.
pub fn run(args: &Args) -> Result<Report, String> {
    if args.files.is_empty() {
        return Err("check-pcap needs a file".to_owned());
    }
    let mut tally = Tally::default();
    for path in &args.files {
        let file = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
        for (frame, whole) in frames(&file).map_err(|e| format!("{path}: {e}"))? {
            tally.record(frame, whole);
        }
    }
    Ok(tally.report())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(name: &str) -> Tally {
        let path = format!("{}/tests/corpus/pcaps/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        let mut tally = Tally::default();
        for (frame, whole) in frames(&file).unwrap() {
            tally.record(frame, whole);
        }
        tally
    }

    #[test]
    fn icrcs_of_another_implementation_are_found_right() {
        for (name, encapsulated) in
            [("e_roce_encap_dscp26_ect0", 0), ("e_roce_cnp_dscp48", 0), ("e_roce_routed_ttl_icrc", 1)]
        {
            let tally = corpus(name);
            assert_eq!((tally.roce, tally.bad, tally.encapsulated), (1, 0, encapsulated), "{name}");
        }
    }

    #[test]
    fn a_damaged_packet_is_found() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/pcaps/e_roce_encap_dscp26_ect0.pcap");
        let mut file = std::fs::read(path).unwrap();
        *file.last_mut().unwrap() ^= 1;
        let mut tally = Tally::default();
        tally.record(frames(&file).unwrap()[0].0, true);
        assert_eq!((tally.roce, tally.bad), (1, 1));
        assert_eq!(tally.report().faults, ["1 packets with a wrong ICRC"]);
    }

    #[test]
    fn what_is_not_a_capture_is_refused() {
        assert!(frames(b"short").is_err());
        assert!(frames(&[0; 24]).is_err());
    }
}
