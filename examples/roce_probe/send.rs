//! The sending end: paced frames one way, or one frame at a time with its echo awaited.

use std::time::{Duration, Instant};

use crate::args::Args;
use crate::frame::{Flow, Roce};
use crate::monotonic_ns;
use crate::report::{Latencies, Report};
use crate::socket::PacketSocket;

/// PSNs are 24 bits wide; half of them keep "before" and "after" apart.
const MAX_COUNT: u32 = 1 << 23;
/// How long a lost echo is waited for.
const ECHO_TIMEOUT: Duration = Duration::from_millis(500);
/// Nobody answers when so many echoes are lost in a row.
const HOPELESS: u32 = 10;

pub const KEYS: [&str; 12] = [
    "interface",
    "to-mac",
    "from",
    "to",
    "path-mtu",
    "count",
    "rate",
    "qp",
    "qps",
    "dscp",
    "ecn",
    "source-port",
];
pub const SWITCHES: [&str; 2] = ["json", "rtt"];

struct Plan {
    flows: Vec<Flow>,
    count: u32,
    rate: f64,
}

impl Plan {
    fn new(args: &Args, socket: &PacketSocket) -> Result<Self, String> {
        let path_mtu: usize = args.or("path-mtu", 1024)?;
        if !matches!(path_mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(format!("--path-mtu {path_mtu}: RoCEv2 knows 256, 512, 1024, 2048 and 4096"));
        }
        let (dscp, ecn): (u8, u8) = (args.or("dscp", 26)?, args.or("ecn", 2)?);
        if dscp > 63 || ecn > 3 {
            return Err(format!("--dscp {dscp} --ecn {ecn}: DSCP goes to 63, ECN to 3"));
        }
        let (count, rate): (u32, f64) = (args.or("count", 1000)?, args.or("rate", 10_000.0)?);
        if !(1..=MAX_COUNT).contains(&count) || rate <= 0.0 {
            return Err(format!("--count {count} --rate {rate}: 1 to {MAX_COUNT} frames at more than 0/s"));
        }
        let (qp, qps, source_port): (u32, u32, u16) =
            (args.or("qp", 0x11)?, args.or("qps", 1)?, args.or("source-port", 0xc000)?);
        let flow = |i: u32| -> Result<Flow, String> {
            Ok(Flow {
                from_mac: socket.mac(),
                to_mac: args.mac("to-mac")?,
                from: args.required("from")?,
                to: args.required("to")?,
                source_port: source_port.wrapping_add(i as u16),
                qp: qp + i,
                tos: dscp << 2 | ecn,
                path_mtu,
            })
        };
        Ok(Self { flows: (0..qps.max(1)).map(flow).collect::<Result<_, _>>()?, count, rate })
    }

    /// Frame number `i` of the run: the queue pairs take turns, each with its own PSN sequence.
    fn build(&self, i: u32, frame: &mut Vec<u8>) -> Result<(), String> {
        let qps = self.flows.len() as u32;
        self.flows[(i % qps) as usize].build(i / qps, monotonic_ns(), frame)
    }
}

/// Sends what the arguments ask for and tells what it measured.
pub fn run(args: &Args) -> Result<Report, String> {
    let interface: String = args.required("interface")?;
    let socket = PacketSocket::open(&interface).map_err(|e| format!("{interface}: {e}"))?;
    let plan = Plan::new(args, &socket)?;
    let mut report = Report::default();
    let start = Instant::now();
    if args.has("rtt") {
        let (latencies, lost) = round_trips(&socket, &plan)?;
        report.count("sent", u64::from(plan.count));
        report.count("lost", lost);
        report.latencies("rtt", latencies);
        report.fault(lost, "echoes lost or damaged");
    } else {
        paced(&socket, &plan)?;
        let seconds = start.elapsed().as_secs_f64();
        report.count("sent", u64::from(plan.count));
        report.figure("seconds", seconds);
        report.figure("frames_per_second", f64::from(plan.count) / seconds);
    }
    Ok(report)
}

/// Open loop: frame `i` leaves at `start + i / rate`, or as soon after as the thread wakes.
fn paced(socket: &PacketSocket, plan: &Plan) -> Result<(), String> {
    let mut frame = Vec::new();
    let start = Instant::now();
    for i in 0..plan.count {
        let due = Duration::from_secs_f64(f64::from(i) / plan.rate);
        while let Some(early) = due.checked_sub(start.elapsed()) {
            if early.is_zero() {
                break;
            }
            std::thread::sleep(early);
        }
        plan.build(i, &mut frame)?;
        socket.send(&frame).map_err(|e| format!("send of {} B: {e}", frame.len()))?;
    }
    Ok(())
}

/// Closed loop: the next frame leaves when the echo of the last has come.
fn round_trips(socket: &PacketSocket, plan: &Plan) -> Result<(Latencies, u64), String> {
    socket.set_timeout(Duration::from_millis(50)).map_err(|e| format!("receive timeout: {e}"))?;
    let (mut latencies, mut lost) = (Latencies::default(), 0);
    let (mut frame, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let mut silence = 0;
    for i in 0..plan.count {
        plan.build(i, &mut frame)?;
        let sent = Instant::now();
        socket.send(&frame).map_err(|e| format!("send of {} B: {e}", frame.len()))?;
        match echo(socket, &frame, sent, &mut buffer)? {
            Some(time) => {
                latencies.record(time.as_nanos() as u64);
                silence = 0;
            }
            None => {
                lost += 1;
                silence += 1;
            }
        }
        if silence == HOPELESS {
            return Ok((latencies, lost + u64::from(plan.count - i - 1)));
        }
    }
    Ok((latencies, lost))
}

/// Time until the frame came back whole; `None` when it did not.
fn echo(
    socket: &PacketSocket,
    sent: &[u8],
    at: Instant,
    buffer: &mut [u8],
) -> Result<Option<Duration>, String> {
    let wanted = Roce::parse(sent).ok_or("cannot read the frame just built")?;
    while at.elapsed() < ECHO_TIMEOUT {
        let Some(frame) = socket.receive(buffer).map_err(|e| format!("receive: {e}"))? else { continue };
        let time = at.elapsed();
        if let Some(roce) = Roce::parse(frame)
            && (roce.psn, roce.stamp()) == (wanted.psn, wanted.stamp())
        {
            return Ok(roce.icrc_ok.then_some(time));
        }
    }
    Ok(None)
}
