//! Role `l2fwd`: the reference. Frames of one port leave by the other through xsk-rs, untouched: what bare AF_XDP
//! costs on this machine. Idle policy is to spin.
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use serde_json::{Value, json};
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue, Umem};

use crate::process::{STOP, answer_requests, pin, say, stopped};
use crate::{bpf, cpu};

/// Bytes of a UMEM chunk, the most the kernel takes.
pub const CHUNK: u32 = 4096;
/// Descriptor option: the packet goes on in the next descriptor.
pub const PKT_CONTD: u32 = 1;
/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h, since 6.17.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Arguments of the role.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    object: PathBuf,
    /// The two ports.
    #[arg(long, num_args = 2)]
    interfaces: Vec<String>,
    #[arg(long)]
    core: usize,
    /// Descriptors taken from an RX ring at once.
    #[arg(long)]
    batch: usize,
    /// Descriptors one sendto may send.
    #[arg(long)]
    tx_budget: u32,
    /// Size of the RX and TX rings; fill and completion rings have twice that.
    #[arg(long)]
    ring_size: u32,
}

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);
static IDLE_NS: AtomicU64 = AtomicU64::new(0);

/// Forwards both ways until the parent closes standard input.
pub fn run(args: &Args) -> Result<()> {
    let object = bpf::load(&args.object, &["to_socket"])?;
    let ring = QueueSize::new(args.ring_size)?;
    let double = QueueSize::new(args.ring_size * 2)?;
    let umem_config = UmemConfig::builder()
        .frame_size(CHUNK.try_into()?)
        .fill_queue_size(double)
        .comp_queue_size(double)
        .build()?;
    let chunks = NonZeroU32::new(args.ring_size * 4).context("ring size is 0")?;
    let (umem, free) = Umem::new(umem_config, chunks, false)?;
    let (first, second) = free.split_at(free.len() / 2);

    // each port needs a map of its own: an XSKMAP is indexed by queue alone
    let second_object = bpf::load(&args.object, &["to_socket"])?;
    let [a, b] = &args.interfaces[..] else { anyhow::bail!("l2fwd needs two interfaces") };
    let mut left = Port::open(a, &umem, ring, args, first)?;
    let mut right = Port::open(b, &umem, ring, args, second)?;
    let mut links = Vec::new();
    for (object, interface, port) in [(&object, a, &left), (&second_object, b, &right)] {
        let sockets = bpf::map(object, "sockets")?;
        sockets.update(&0u32.to_ne_bytes(), &cpu::fd_bytes(port.tx.fd()), MapFlags::ANY)?;
        links.push(bpf::attach_xdp(object, "to_socket", interface)?);
    }

    // before the pinning: this thread must not share the forwarding core
    std::thread::spawn(|| {
        let _ = answer_requests(|| Ok(figures()));
        STOP.store(true, Ordering::Relaxed);
    });
    pin(args.core)?;
    say(&json!({"ready": true}))?;
    forward_until_stopped(&mut left, &mut right, args.batch)?;
    check_descriptors(a, &left)?;
    check_descriptors(b, &right)
}

fn figures() -> Value {
    json!({
        "rx": RECEIVED.load(Ordering::Relaxed),
        "tx": SENT.load(Ordering::Relaxed),
        "idle_ns": IDLE_NS.load(Ordering::Relaxed),
    })
}

struct Port {
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    completed: CompQueue,
    /// Descriptors submitted and not completed.
    outstanding: usize,
}

impl Port {
    fn open(name: &str, umem: &Umem, ring: QueueSize, args: &Args, chunks: &[FrameDesc]) -> Result<Self> {
        let config = SocketConfig::builder()
            .rx_queue_size(ring)
            .tx_queue_size(ring)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP | BindFlags::XDP_USE_SG)
            .build();
        let interface: Interface = name.parse()?;
        let patience = Instant::now() + Duration::from_secs(1);
        let (tx, rx, rings) = loop {
            // SAFETY: each chunk is given to one fill ring below, and from there on has one owner at a time.
            match unsafe { Socket::new(config, umem, &interface, 0) } {
                Ok(parts) => break parts,
                // the queue stays taken for some 20 ms after its last socket closed
                Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(error).with_context(|| format!("AF_XDP socket on {name} queue 0")),
            }
        };
        let (mut fill, completed) =
            rings.context("a socket on a queue of its own has fill and completion rings")?;
        set_tx_budget(tx.fd().as_raw_fd(), args.tx_budget)?;
        // SAFETY: these chunks come from `Umem::new` and are in no other ring.
        let filled = unsafe { fill.produce(chunks) };
        anyhow::ensure!(
            filled == chunks.len(),
            "fill ring of {name} took {filled} of {} chunks",
            chunks.len()
        );
        Ok(Self { tx, rx, fill, completed, outstanding: 0 })
    }
}

fn forward_until_stopped(left: &mut Port, right: &mut Port, batch: usize) -> Result<()> {
    let mut descs = vec![FrameDesc::default(); batch];
    let mut returned = vec![FrameDesc::default(); batch * 2];
    let mut idle_since = Some(Instant::now());
    let mut idle = Duration::ZERO;
    while !stopped() {
        let busy = forward(left, right, &mut descs, &mut returned)?
            | forward(right, left, &mut descs, &mut returned)?;
        // the clock is read when the state changes, not in every pass
        match idle_since {
            Some(since) if busy => {
                idle += since.elapsed();
                IDLE_NS.store(u64::try_from(idle.as_nanos())?, Ordering::Relaxed);
                idle_since = None;
            }
            None if !busy => idle_since = Some(Instant::now()),
            _ => {}
        }
    }
    Ok(())
}

/// One batch of `from` out of `to`; whether there was anything to do.
fn forward(
    from: &mut Port,
    to: &mut Port,
    descs: &mut [FrameDesc],
    returned: &mut [FrameDesc],
) -> Result<bool> {
    // SAFETY: all rings are on one UMEM.
    let done = unsafe { to.completed.consume(returned) };
    if done > 0 {
        to.outstanding -= done;
        add(&SENT, done);
        // SAFETY: the kernel has just given these chunks back; they came from this fill ring, so they fit into it.
        unsafe { from.fill.produce(&returned[..done]) };
    }
    let room = to.tx.nb_free(u32::try_from(descs.len())?) as usize;
    let room = room.min(descs.len());
    // SAFETY: all rings are on one UMEM.
    let count = unsafe { from.rx.consume(&mut descs[..room]) };
    if count == 0 {
        if to.outstanding == 0 {
            return Ok(done > 0);
        }
        // the last wakeup stopped short, at the budget or at a full device
        to.tx.wakeup()?;
        return Ok(true);
    }
    // SAFETY: the descriptors were just taken from the RX ring and go nowhere else.
    unsafe { to.tx.produce(&descs[..count]) };
    to.outstanding += count;
    add(&RECEIVED, count);
    if to.tx.needs_wakeup() {
        to.tx.wakeup()?;
    }
    Ok(true)
}

/// This thread is the only writer, so load and store do.
fn add(counter: &AtomicU64, count: usize) {
    counter.store(counter.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
}

/// Frames refused on receipt are overload, and the caller sees them missing; a bad descriptor is a fault of ours.
fn check_descriptors(name: &str, port: &Port) -> Result<()> {
    let stats = port.rx.fd().xdp_statistics()?;
    let invalid = stats.rx_invalid_descs() + stats.tx_invalid_descs();
    anyhow::ensure!(invalid == 0, "l2fwd {name}: the kernel refused {invalid} descriptors");
    Ok(())
}

/// Raises the number of descriptors that one sendto may send from 32 to `budget`.
pub fn set_tx_budget(socket: RawFd, budget: u32) -> Result<()> {
    // SAFETY: the option takes a u32, whose address and size are given.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            libc::socklen_t::try_from(size_of_val(&budget))?,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        eprintln!(
            "warning: XDP_MAX_TX_SKB_BUDGET {budget}: {error} (needs Linux 6.17); the default of 32 stays"
        );
    }
    Ok(())
}
