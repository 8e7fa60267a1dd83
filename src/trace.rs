//! Runs one packet through the datapath, offline, and reports every step: what `ofproto/trace` is to Open vSwitch.
//! `flowrail trace` prints it; the packet cases of `tests/corpus` are judged by it.

use crate::datapath::{self, Observer, Step, Verdict, classify};
use crate::ids::PortId;
use crate::tables::fdb::Dest;
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::{DropReason, Note, PuntReason};
use crate::wire::packet::Packet;

/// Bytes in front of a packet in its first frame, as AF_XDP leaves them.
const HEADROOM: usize = 256;
/// Bytes of a packet in its first frame; the rest is in further frames, as with 4096-byte chunks.
const FIRST_FRAME: usize = 4096 - HEADROOM;

/// What happened to one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Steps up to the verdict.
    pub steps: Vec<Step>,
    /// Oddities.
    pub notes: Vec<Note>,
    /// The end.
    pub fate: Fate,
    /// Every packet that left, in order.
    pub outputs: Vec<Output>,
    /// For a group packet: each receiver, and what became of its copy.
    pub copies: Vec<Copy>,
}

/// The end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left a port.
    Forward(PortId),
    /// It was answered; the answer left this port.
    Reply(PortId),
    /// Copies were made of it.
    Replicate,
    /// It waits for the MAC of its next hop.
    Unresolved,
    /// The kernel has it; the XDP program does not steer it here.
    Punt(PuntReason),
    /// It was dropped.
    Drop(DropReason),
}

/// A packet that left a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The port.
    pub port: PortId,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// One copy of a group packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The receiver.
    pub dest: Dest,
    /// Steps of the copy.
    pub steps: Vec<Step>,
    /// Its end.
    pub fate: Fate,
}

#[derive(Default)]
struct Recorder {
    steps: Vec<Step>,
    notes: Vec<Note>,
}

impl Observer for Recorder {
    fn step(&mut self, step: Step) {
        self.steps.push(step);
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}

/// Runs `frame`, as received on `port`, through the datapath. `roce_only` says that the port steers RoCEv2 alone.
#[must_use]
pub fn run(tables: &Snapshot, port: PortId, roce_only: bool, frame: &[u8]) -> Report {
    if roce_only && !classify::is_roce(frame) {
        return Report::of_fate(Fate::Punt(PuntReason::NotRoce));
    }
    let mut seen = Recorder::default();
    let mut buffer = Buffer::new(frame);
    let verdict = buffer.with_packet(|packet| datapath::receive(tables, &mut seen, port, packet));
    let mut report = Report::of_fate(Fate::Replicate);
    match verdict {
        Verdict::Replicate(to) => {
            let Some(network) = tables.network_of(to.vni) else {
                return Report::of_fate(Fate::Drop(DropReason::UnknownVni));
            };
            let receivers = network.flood.receivers(to.group, to.local_only);
            let inner = buffer.bytes();
            for dest in receivers.iter().filter(|dest| **dest != Dest::Port(to.from)) {
                report.copy_to(tables, to, *dest, &inner);
            }
            if report.copies.is_empty() {
                report.fate = Fate::Drop(DropReason::NoReceiver);
            }
        }
        Verdict::Forward(port) => {
            report.fate = Fate::Forward(port);
            report.outputs.push(Output { port, bytes: buffer.bytes() });
        }
        Verdict::Reply(reply) => {
            report.fate = Fate::of(verdict);
            report.outputs.push(Output { port: reply.port, bytes: buffer.bytes() });
        }
        end => report.fate = Fate::of(end),
    }
    report.steps = seen.steps;
    report.notes.extend(seen.notes);
    report
}

impl Report {
    fn of_fate(fate: Fate) -> Self {
        Self { steps: Vec::new(), notes: Vec::new(), fate, outputs: Vec::new(), copies: Vec::new() }
    }

    fn copy_to(&mut self, tables: &Snapshot, to: datapath::Replicate, dest: Dest, inner: &[u8]) {
        let mut seen = Recorder::default();
        let mut buffer = Buffer::new(inner);
        let verdict =
            buffer.with_packet(|packet| datapath::deliver(tables, &mut seen, to.vni, to.from, dest, packet));
        if let Verdict::Forward(port) = verdict {
            self.outputs.push(Output { port, bytes: buffer.bytes() });
        }
        self.notes.extend(seen.notes);
        self.copies.push(Copy { dest, steps: seen.steps, fate: Fate::of(verdict) });
    }
}

impl Fate {
    fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Forward(port) => Self::Forward(port),
            Verdict::Replicate(_) => Self::Replicate,
            Verdict::Reply(reply) => reply.refused.map_or(Self::Reply(reply.port), Self::Drop),
            Verdict::Unresolved(..) => Self::Unresolved,
            Verdict::Punt(reason) => Self::Punt(reason),
            Verdict::Drop(reason) => Self::Drop(reason),
        }
    }
}

/// A packet's frames, laid out as AF_XDP lays them out.
struct Buffer {
    head: Vec<u8>,
    tail: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(frame: &[u8]) -> Self {
        let (first, rest) = frame.split_at(frame.len().min(FIRST_FRAME));
        // Old data stands around a packet in a real chunk; what leaks of it would show.
        let mut head = vec![0xa5; HEADROOM + FIRST_FRAME];
        head.iter_mut().skip(HEADROOM).zip(first).for_each(|(to, from)| *to = *from);
        Self { head, tail: rest.to_vec(), start: HEADROOM, len: first.len() }
    }

    fn with_packet(&mut self, decide: impl FnOnce(&mut Packet<'_>) -> Verdict) -> Verdict {
        let tail = [self.tail.as_slice()];
        let mut packet = Packet::new(&mut self.head, self.start, self.len, &tail);
        let verdict = decide(&mut packet);
        let layout = packet.layout();
        (self.start, self.len) = (layout.start, layout.head_len);
        self.tail.truncate(layout.tail_len);
        verdict
    }

    fn bytes(&self) -> Vec<u8> {
        let head = self.head.get(self.start..self.start + self.len).unwrap_or_default();
        [head, &self.tail].concat()
    }
}
