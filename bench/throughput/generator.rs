//! Role `source`: sends one kind of frame as fast as one core can, until told to stop, and says how many.
use std::io::Write as _;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};
use serde_json::json;
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::{CompQueue, Socket, TxQueue, Umem};

use crate::bpf;
use crate::frames::{Direction, OFF_UDP_SPORT, OUTER_LEN};
use crate::process::{limit_runtime, pin, say, stopped};
use crate::xsk_l2fwd::{CHUNK, PKT_CONTD, set_tx_budget};

/// Arguments of the role.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    object: PathBuf,
    #[arg(long)]
    interface: String,
    #[arg(long)]
    direction: Direction,
    /// Length of the inner frame, in bytes.
    #[arg(long)]
    size: usize,
    /// Number of flows, a power of two up to 256.
    #[arg(long, default_value_t = 16)]
    flows: u8,
    #[arg(long)]
    core: usize,
    /// Ends by itself after this many seconds.
    #[arg(long)]
    limit: u32,
}

/// Longest frame that a live-frame run can carry in its one page.
const LIVE_MAX: usize = 3300;
/// Frames the kernel runs between two looks at signals and softirqs.
const LIVE_BATCH: u32 = 64;
/// First bytes that are restored on every pass; `struct source` in progs.bpf.c.
const HEAD: usize = 112;

pub fn run(args: &Args) -> Result<()> {
    pin(args.core)?;
    limit_runtime(args.limit);
    let frame = args.direction.frame(args.size);
    let sent = if frame.len() <= LIVE_MAX { send_live(args, &frame)? } else { send_xsk(args, &frame)? };
    say(&json!({"sent": sent}))
}

/// BPF_PROG_TEST_RUN with live frames: the fastest source there is, but for frames that fit a page.
fn send_live(args: &Args, frame: &[u8]) -> Result<u64> {
    let object = bpf::load(&args.object, &["source_tx"])?;
    let map = bpf::map(&object, "source")?;
    let mut value = vec![0; HEAD];
    let head = frame.len().min(HEAD);
    value[..head].copy_from_slice(&frame[..head]);
    value.extend_from_slice(&0u64.to_ne_bytes());
    value.extend_from_slice(&u32::from(args.flows - 1).to_ne_bytes());
    value.extend_from_slice(&u32::from(args.direction == Direction::Decap).to_ne_bytes());
    map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)?;
    let program = bpf::program_fd(&object, "source_tx")?;

    let len = u32::try_from(frame.len())?;
    let context = libbpf_sys::xdp_md {
        data_end: len,
        ingress_ifindex: u32::try_from(bpf::ifindex(&args.interface)?)?,
        ..Default::default()
    };
    say(&json!({"ready": true}))?;
    while !stopped() {
        // one huge repeat that a signal ends: each call costs about 30 ms of RCU synchronisation
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: len,
            ctx_in: (&raw const context).cast(),
            ctx_size_in: u32::try_from(size_of_val(&context))?,
            repeat: i32::MAX,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: LIVE_BATCH,
            ..Default::default()
        };
        // SAFETY: `frame` and `context` outlive the call, their lengths are given, nothing is written back to them,
        // and `program` belongs to `object`, which is alive.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
        if result != 0 && ![-libc::EINTR, -libc::EAGAIN].contains(&result) {
            bail!("live frames of {len} B: {}", std::io::Error::from_raw_os_error(-result));
        }
    }
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.context("source map is empty")?;
    Ok(u64::from_ne_bytes(value[HEAD..HEAD + 8].try_into()?))
}

const RING: u32 = 2048;
const BATCH: usize = 64;

/// AF_XDP transmit, for frames of more than a page: they leave as chains of chunks.
fn send_xsk(args: &Args, frame: &[u8]) -> Result<u64> {
    let mut sender = XskSender::open(&args.interface, frame, args)?;
    say(&json!({"ready": true}))?;
    let mut sent = 0;
    while !stopped() {
        sent += sender.send_batch()?;
    }
    Ok(sent)
}

struct XskSender {
    tx: TxQueue,
    completed: CompQueue,
    /// Every chunk of every packet, ready to send, packet after packet.
    chunks: Vec<FrameDesc>,
    chunks_per_packet: usize,
    next: usize,
    outstanding: usize,
    scratch: Vec<FrameDesc>,
}

impl XskSender {
    fn open(interface: &str, frame: &[u8], args: &Args) -> Result<Self> {
        let ring = QueueSize::new(RING)?;
        let umem_config = UmemConfig::builder()
            .frame_size(CHUNK.try_into()?)
            .fill_queue_size(ring)
            .comp_queue_size(ring)
            .build()?;
        let (umem, free) = Umem::new(umem_config, NonZeroU32::new(RING).context("ring size")?, false)?;
        let config = SocketConfig::builder()
            .tx_queue_size(ring)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP | BindFlags::XDP_USE_SG)
            .build();
        let interface: Interface = interface.parse()?;
        // SAFETY: this is the only socket on the UMEM, so no descriptor is ever owned twice.
        let (tx, _rx, rings) = unsafe { Socket::new(config, &umem, &interface, 0) }
            .with_context(|| format!("AF_XDP socket on {interface:?}"))?;
        let (_fill, completed) = rings.context("a first socket has its own fill and completion rings")?;
        set_tx_budget(tx.fd().as_raw_fd(), 256)?;
        let capacity = umem_config.mtu() as usize;
        let (chunks, chunks_per_packet) = write_packets(&umem, free, frame, capacity, args);
        let scratch = vec![FrameDesc::default(); RING as usize];
        Ok(Self { tx, completed, chunks, chunks_per_packet, next: 0, outstanding: 0, scratch })
    }

    /// Submits what fits, at most [`BATCH`] packets, and returns their number.
    fn send_batch(&mut self) -> Result<u64> {
        // SAFETY: the descriptors returned are of this socket's UMEM; they are only counted.
        self.outstanding -= unsafe { self.completed.consume(&mut self.scratch) };
        let room = self.chunks.len() - self.outstanding;
        let left = self.chunks.len() - self.next;
        let count = room.min(left).min(BATCH * self.chunks_per_packet);
        let count = count - count % self.chunks_per_packet;
        let batch = &self.chunks[self.next..self.next + count];
        // SAFETY: chunks complete in the order they were sent, so those from `next` on are back from the kernel as
        // long as no more than all are outstanding; their contents never change.
        let submitted = unsafe { self.tx.produce(batch) };
        self.outstanding += submitted;
        self.next = (self.next + submitted) % self.chunks.len();
        self.tx.wakeup()?;
        Ok((submitted / self.chunks_per_packet) as u64)
    }
}

/// Fills the UMEM with copies of `frame`, each of its own flow, and returns their descriptors.
fn write_packets(
    umem: &Umem,
    mut free: Vec<FrameDesc>,
    frame: &[u8],
    capacity: usize,
    args: &Args,
) -> (Vec<FrameDesc>, usize) {
    let per_packet = frame.len().div_ceil(capacity);
    free.truncate(free.len() / per_packet * per_packet);
    let mut copy = frame.to_vec();
    for (index, packet) in free.chunks_exact_mut(per_packet).enumerate() {
        let flow = (index % usize::from(args.flows)) as u8;
        copy[OFF_UDP_SPORT + 1] = flow;
        if args.direction == Direction::Decap {
            copy[OUTER_LEN + OFF_UDP_SPORT + 1] = flow;
        }
        for (part, (desc, bytes)) in packet.iter_mut().zip(copy.chunks(capacity)).enumerate() {
            // SAFETY: the descriptor is fresh from `Umem::new`, so the chunk is ours alone.
            let mut data = unsafe { umem.data_mut(desc) };
            data.cursor().write_all(bytes).expect("a part is never longer than a chunk");
            desc.set_options(if part + 1 < per_packet { PKT_CONTD } else { 0 });
        }
    }
    (free, per_packet)
}

/// Whether frames of this length need the slower AF_XDP source; the report says which one ran.
pub fn source_name(frame_len: usize) -> &'static str {
    if frame_len <= LIVE_MAX { "live frames" } else { "AF_XDP SG" }
}

/// Arguments for [`crate::process::Child::role`].
pub fn arguments(
    object: &Path,
    interface: &str,
    direction: Direction,
    size: usize,
    limit: u32,
) -> Vec<String> {
    let object = object.display().to_string();
    [
        "--object",
        &object,
        "--interface",
        interface,
        "--direction",
        direction.name(),
        "--size",
        &size.to_string(),
        "--core",
        "0",
        "--limit",
        &limit.to_string(),
    ]
    .map(str::to_owned)
    .to_vec()
}
