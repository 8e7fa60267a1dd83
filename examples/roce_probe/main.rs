//! A RoCEv2 probe: sends real RC frames, judges them at the far end (ICRC, order, DSCP, ECN), measures rate and
//! latency, and checks the ICRC of captures. The demo and the functional tests use it as their witness.

mod args;
mod frame;
mod icrc;
mod pcap;
mod receive;
mod report;
mod send;
mod socket;

use std::process::ExitCode;

use args::Args;
use report::Report;

const HELP: &str = "\
roce_probe: RoCEv2 frames, sent and judged

  roce_probe send --interface IF --to-mac MAC --from IP --to IP [options]
      --path-mtu N      256, 512, 1024 (1082 B frames), 2048 or 4096 (4154 B frames); default 1024
      --count N         frames in all; default 1000
      --rate N          frames per second; default 10000
      --qp N, --qps N   first queue pair and how many take turns; default 17 and 1
      --source-port N   UDP source port of the first queue pair; default 49152
      --dscp N --ecn N  default 26 and 2 (ECT(0))
      --rtt             one frame at a time, timed until its echo is back
  roce_probe receive --interface IF [options]
      --count N         end after N frames; fewer is a fault
      --timeout S       end after S seconds; default 10
      --idle S          end when nothing came for S seconds after the first frame; default 1
      --echo            send every frame back to its sender
  roce_probe check-pcap FILE...
      ICRC of every RoCEv2 packet of the files, bare or inside VXLAN

--json prints one line of JSON. Exit code 1: something was wrong; 2: the probe could not run.
Needs CAP_NET_RAW and CAP_NET_ADMIN in the network namespace, except check-pcap.
";

/// Nanoseconds of the monotonic clock, which all network namespaces of a machine share.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec, writable for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

type Run = fn(&Args) -> Result<Report, String>;

fn run() -> Result<bool, String> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let (keys, switches, run): (&[&str], &[&str], Run) = match command.as_str() {
        "send" => (&send::KEYS, &send::SWITCHES, send::run),
        "receive" => (&receive::KEYS, &receive::SWITCHES, receive::run),
        "check-pcap" => (&pcap::KEYS, &pcap::SWITCHES, pcap::run),
        "--help" | "-h" | "help" => {
            print!("{HELP}");
            return Ok(true);
        }
        other => return Err(format!("unknown command {other:?}; see roce_probe --help")),
    };
    let args = Args::parse(words, keys, switches)?;
    Ok(run(&args)?.print(args.has("json")))
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("roce_probe: {message}");
            ExitCode::from(2)
        }
    }
}
