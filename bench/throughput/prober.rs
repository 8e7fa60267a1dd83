//! Roles `prober` and `ticker`: round trips one frame at a time, and a slow steady source for the start-up test.
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bpf;
use crate::frames::Direction;
use crate::process::{answer_requests, limit_runtime, pin, say, stopped};

/// Arguments of both roles.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    interface: String,
    /// Round trips to measure.
    #[arg(long, default_value_t = 0)]
    count: u32,
    /// Length of the inner frame, in bytes.
    #[arg(long)]
    size: usize,
    #[arg(long)]
    core: usize,
    #[arg(long)]
    limit: u32,
}

/// Round trip times, in ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RoundTrips {
    pub count: u64,
    pub lost: u64,
    pub min: u64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// Offset of the sequence number: the first payload bytes after Ethernet, IPv4, UDP and BTH.
const OFF_SEQUENCE: usize = 54;
const OFF_UDP_DPORT: usize = 36;
const ROCE_PORT: [u8; 2] = [0x12, 0xb7];
const WARM_UP: u32 = 1000;
const TIMEOUT: Duration = Duration::from_millis(100);
const LOST_MAX: u64 = 20;

pub fn run(args: &Args) -> Result<()> {
    pin(args.core)?;
    limit_runtime(args.limit);
    let socket = PacketSocket::open(&args.interface)?;
    let mut frame = Direction::Encap.frame(args.size);
    let mut buffer = vec![0; 16 * 1024];
    // 1 ns to 1 s, to 3 digits
    let mut times = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3)?;
    let mut lost = 0;
    say(&json!({"ready": true}))?;
    for sequence in 0..args.count + WARM_UP {
        if stopped() {
            bail!("interrupted");
        }
        frame[OFF_SEQUENCE..OFF_SEQUENCE + 4].copy_from_slice(&sequence.to_ne_bytes());
        match socket.round_trip(&frame, &mut buffer)? {
            Some(time) if sequence >= WARM_UP => times.saturating_record(u64::try_from(time.as_nanos())?),
            Some(_) => {}
            None => lost += 1,
        }
        if lost > LOST_MAX {
            bail!("{lost} of {} frames did not come back", sequence + 1);
        }
    }
    let at = |quantile| times.value_at_quantile(quantile);
    let result = RoundTrips {
        count: times.len(),
        lost,
        min: times.min(),
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: times.max(),
    };
    say(&serde_json::to_value(result)?)?;
    // the parent reads our CPU time before it lets us go
    answer_requests(|| Ok(json!({})))
}

/// Sends a frame every 200 µs until told to stop, whether or not anyone forwards it.
pub fn tick(args: &Args) -> Result<()> {
    pin(args.core)?;
    limit_runtime(args.limit);
    let socket = PacketSocket::open(&args.interface)?;
    let frame = Direction::Encap.frame(args.size);
    say(&json!({"ready": true}))?;
    while !stopped() {
        socket.send(&frame)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

struct PacketSocket(OwnedFd);

impl PacketSocket {
    fn open(interface: &str) -> Result<Self> {
        let protocol = u16::try_from(libc::ETH_P_IP)?.to_be();
        // SAFETY: a plain system call; a negative result is caught below.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol)) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("packet socket: needs root");
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET)?;
        address.sll_protocol = protocol;
        address.sll_ifindex = bpf::ifindex(interface)?;
        // SAFETY: the address and its size are those of a sockaddr_ll.
        let bound = unsafe {
            libc::bind(fd, (&raw const address).cast(), libc::socklen_t::try_from(size_of_val(&address))?)
        };
        if bound != 0 {
            return Err(std::io::Error::last_os_error()).with_context(|| format!("bind to {interface}"));
        }
        socket.enable(libc::PACKET_QDISC_BYPASS)?;
        socket.enable(libc::PACKET_IGNORE_OUTGOING)?;
        Ok(socket)
    }

    fn enable(&self, option: libc::c_int) -> Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: both options take an int, whose address and size are given.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const on).cast(),
                libc::socklen_t::try_from(size_of::<libc::c_int>())?,
            )
        };
        anyhow::ensure!(result == 0, "packet socket option {option}: {}", std::io::Error::last_os_error());
        Ok(())
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: `frame` is readable over its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        anyhow::ensure!(sent >= 0, "send: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Sends `frame` and spins until it is back; `None` when it is not within 100 ms.
    fn round_trip(&self, frame: &[u8], buffer: &mut [u8]) -> Result<Option<Duration>> {
        let start = Instant::now();
        self.send(frame)?;
        loop {
            // SAFETY: `buffer` is writable over its length.
            let received = unsafe {
                libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
            };
            let elapsed = start.elapsed();
            let length = usize::try_from(received).unwrap_or(0);
            if length == frame.len() && is_reply(&buffer[..length], frame) {
                return Ok(Some(elapsed));
            }
            if elapsed > TIMEOUT {
                return Ok(None);
            }
        }
    }
}

/// A reply is the bare RoCE frame with the sequence number just sent.
fn is_reply(reply: &[u8], frame: &[u8]) -> bool {
    let sequence = OFF_SEQUENCE..OFF_SEQUENCE + 4;
    reply[sequence.clone()] == frame[sequence] && reply[OFF_UDP_DPORT..OFF_UDP_DPORT + 2] == ROCE_PORT
}
