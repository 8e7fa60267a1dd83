//! `flowrail trace`: runs captured packets through the datapath offline and prints each one's way.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use serde_json::{Value, json};

use crate::control::config::{Action, Config, Steer, TenantId};
use crate::control::publish::{self, Facts};
use crate::datapath::{Answer, Step};
use crate::ids::{NetworkId, PortId, RuleId, VrfId};
use crate::tables::fdb::Dest;
use crate::tables::snapshot::Snapshot;
use crate::tables::vrf::Route;
use crate::trace::{self, Fate, Report};

/// Run captured packets through the datapath offline, and explain what becomes of each.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flowrail trace --config host.toml --port tap0 guest.pcap
  flowrail trace --config host.toml --port rail0 --json fabric.pcap | jq .verdict")]
pub struct TraceArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Port that the packets arrive on, by its name in the configuration
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Packets, as captured with tcpdump or Wireshark
    #[arg(value_name = "FILE.pcap")]
    pub pcap: PathBuf,
    /// Print one JSON object per packet, with output bytes in hex
    #[arg(long)]
    pub json: bool,
}

pub(super) fn main(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    let tracer = Tracer::new(&config)?;
    let port = tracer.port(&args.port)?;
    for (number, frame) in (1..).zip(packets(&args.pcap)?) {
        let frame = frame.with_context(|| format!("{}: packet {number}", args.pcap.display()))?;
        let report = trace::run(&tracer.tables, port, tracer.roce_only(port), &frame);
        let text = if args.json {
            format!("{}\n", tracer.json(number, &args.port, &frame, &report))
        } else {
            tracer.text(number, &args.port, &frame, &report)
        };
        super::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The Ethernet frames of a capture.
fn packets(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Vec<u8>>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut reader = PcapReader::new(BufReader::new(file)).with_context(|| {
        format!("{}: not a pcap file; pcapng is converted by: tcpdump -r IN -w OUT", path.display())
    })?;
    let link = reader.header().datalink;
    if link != DataLink::ETHERNET {
        bail!("{}: packets of link type {link:?}; flowrail traces Ethernet frames", path.display());
    }
    Ok(std::iter::from_fn(move || {
        let packet = reader.next_packet()?;
        Some(packet.map_err(anyhow::Error::from).and_then(|packet| {
            if u64::from(packet.orig_len) > packet.data.len() as u64 {
                bail!("cut to {} of {} bytes; capture with -s 0", packet.data.len(), packet.orig_len);
            }
            Ok(packet.data.into_owned())
        }))
    }))
}

/// The tables of a configuration, with the names that make a report readable.
struct Tracer<'a> {
    config: &'a Config,
    tables: Snapshot,
}

impl<'a> Tracer<'a> {
    fn new(config: &'a Config) -> anyhow::Result<Self> {
        let facts = Facts::offline(config)?;
        let tables = publish::snapshot(config, &facts);
        Ok(Self { config, tables })
    }

    fn port(&self, name: &str) -> anyhow::Result<PortId> {
        let mut ports = (0..).map(PortId).zip(self.config.port_names());
        match ports.find(|(_, n)| *n == name) {
            Some((id, _)) => Ok(id),
            None => {
                let names: Vec<&str> = self.config.port_names().collect();
                bail!("no port {name:?} in the configuration; there are {}", names.join(", "))
            }
        }
    }

    fn roce_only(&self, port: PortId) -> bool {
        self.config.access_ports().any(|(id, p)| id == port && p.steer == Steer::Roce)
    }

    fn name(&self, port: PortId) -> &str {
        self.config.port_names().nth(usize::from(port.0)).unwrap_or("?")
    }

    fn dest(&self, dest: Dest) -> String {
        match dest {
            Dest::Port(port) => format!("port {}", self.name(port)),
            Dest::Vtep(id) => match self.tables.vteps.get(id) {
                Some(row) => format!("VTEP {}", row.remote),
                None => "unknown VTEP".to_owned(),
            },
        }
    }

    fn step(&self, step: Step) -> (&'static str, String) {
        match step {
            Step::Outer { src, dst, src_port, ecn } => {
                ("outer", format!("{src} port {src_port} -> {dst} VXLAN, {ecn:?}"))
            }
            Step::Vxlan(vni) => ("vxlan", format!("VNI {vni}")),
            Step::Source(Some(id)) => ("source", self.dest(Dest::Vtep(id))),
            Step::Source(None) => ("source", "no configured peer".to_owned()),
            Step::Inner { dst, src, ethertype } => {
                ("inner", format!("{src} -> {dst}, EtherType 0x{:04x}", ethertype.0))
            }
            Step::DecapEcn { inner, outer, result } => {
                ("ecn", format!("inner {inner:?}, outer {outer:?}: {result:?} (RFC 6040)"))
            }
            Step::Fdb(mac, Some(dest)) => ("fdb", format!("{mac}: {}", self.dest(dest))),
            Step::Fdb(mac, None) => ("fdb", format!("{mac}: no entry")),
            Step::Encap { dst, vni, src_port, tos, len } => (
                "encap",
                format!("to {dst}, VNI {vni}, source port {src_port}, TOS 0x{tos:02x}, {len} bytes"),
            ),
            Step::Vlan(vlan, network) => {
                let tag = vlan.map_or_else(|| "untagged".to_owned(), |vlan| format!("VLAN {vlan}"));
                let network = network.map_or("no network", |id| self.network(id));
                ("vlan", format!("{tag}: {network}"))
            }
            Step::Route(vrf, dst, route) => {
                ("route", format!("VRF {}, {}: {}", self.vrf(vrf), self.place(dst), self.route(route)))
            }
            Step::Rule(rule) => ("policy", self.rule(rule)),
            Step::Routed { dst, src, ttl } => ("routed", format!("{src} -> {dst}, TTL {ttl}")),
            Step::Answer(answer) => ("answer", describe(answer)),
            Step::Native(port) => ("native", format!("without a tunnel to {}", self.name(port))),
        }
    }

    fn network(&self, id: NetworkId) -> &str {
        self.config.networks.get(id.0 as usize).map_or("?", |network| &network.name)
    }

    fn vrf(&self, id: VrfId) -> &str {
        self.config.tenant(TenantId(id.0)).map_or("?", |tenant| &tenant.name)
    }

    /// An address, and what it means by the address plan.
    fn place(&self, ip: IpAddr) -> String {
        let plan = self.config.address_plan.as_ref();
        let position = plan.and_then(|plan| plan.decode(ip));
        position.map_or_else(|| ip.to_string(), |position| format!("{ip} ({position})"))
    }

    /// A rule by its name, else by its place in its tenant, from 1.
    fn rule(&self, id: RuleId) -> String {
        let Some((_, tenant, rule)) = self.config.rules().nth(id.0 as usize) else { return "?".to_owned() };
        let of_tenant = self.config.rules().take_while(|(number, ..)| *number <= id);
        let number = of_tenant.filter(|(_, its, _)| *its == tenant).count();
        let name = rule.name.clone().unwrap_or_else(|| number.to_string());
        let action = match rule.rule.action {
            Action::Allow => "allows",
            Action::Deny => "denies",
            Action::Count => "counts",
        };
        format!("tenant {}, rule {name} {action} it", self.vrf(tenant.vrf()))
    }

    fn route(&self, route: Option<Route>) -> String {
        match route {
            None => "no route".to_owned(),
            Some(Route::Host { network, mac }) => format!("{mac} in network {}", self.network(network)),
            Some(Route::Vtep { vtep, router_mac }) => {
                format!("router {router_mac} at {}", self.dest(Dest::Vtep(vtep)))
            }
            Some(Route::NoRouterMac) => "a peer without a router MAC".to_owned(),
            Some(Route::Connected(id)) => format!("network {}, station unknown", self.network(id)),
            Some(Route::Gateway(id)) => format!("the gateway of network {}", self.network(id)),
            Some(Route::Leak(vrf)) => format!("leaked to VRF {}", self.vrf(vrf)),
            Some(Route::Blackhole) => "blackhole".to_owned(),
        }
    }

    /// Verdict, drop or punt reason, and explanation.
    fn fate(&self, fate: Fate) -> (&'static str, Option<&'static str>, String) {
        match fate {
            Fate::Forward(port) => ("forward", None, format!("leaves {}", self.name(port))),
            Fate::Reply(port) => ("reply", None, format!("the answer leaves {}", self.name(port))),
            Fate::Replicate => ("replicate", None, "a copy for each receiver".to_owned()),
            Fate::Unresolved => ("wait", None, "for the MAC of the next hop".to_owned()),
            Fate::Punt(reason) => ("pass", Some(reason.name()), reason.explain().to_owned()),
            Fate::Drop(reason) => ("drop", Some(reason.name()), reason.explain().to_owned()),
        }
    }

    fn text(&self, number: usize, port: &str, frame: &[u8], report: &Report) -> String {
        let mut text = format!("packet {number}: {} bytes on {port}\n", frame.len());
        let line = |text: &mut String, indent: &str, what: &str, detail: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{indent}{what:<9} {detail}");
        };
        let steps = |text: &mut String, indent: &str, steps: &[Step]| {
            for step in steps {
                let (what, detail) = self.step(*step);
                line(text, indent, what, &detail);
            }
        };
        let end = |text: &mut String, indent: &str, fate: Fate| {
            let (verdict, reason, detail) = self.fate(fate);
            let detail = reason.map_or_else(|| detail.clone(), |reason| format!("{reason}: {detail}"));
            line(text, indent, verdict, &detail);
        };
        steps(&mut text, "  ", &report.steps);
        for note in &report.notes {
            line(&mut text, "  ", "note", &format!("{note}: {}", note.explain()));
        }
        end(&mut text, "  ", report.fate);
        for copy in &report.copies {
            line(&mut text, "  ", "copy", &format!("for {}", self.dest(copy.dest)));
            steps(&mut text, "    ", &copy.steps);
            end(&mut text, "    ", copy.fate);
        }
        text
    }

    fn json(&self, number: usize, port: &str, frame: &[u8], report: &Report) -> Value {
        let steps = |steps: &[Step]| -> Vec<Value> {
            let named = steps.iter().map(|step| self.step(*step));
            named.map(|(stage, detail)| json!({ "stage": stage, "detail": detail })).collect()
        };
        let copies = report.copies.iter().map(|copy| {
            let (verdict, reason, _) = self.fate(copy.fate);
            json!({ "to": self.dest(copy.dest), "steps": steps(&copy.steps), "verdict": verdict, "reason": reason })
        });
        let outputs = report.outputs.iter().map(|output| {
            json!({ "port": self.name(output.port), "bytes": output.bytes.len(), "hex": hex(&output.bytes) })
        });
        let (verdict, reason, _) = self.fate(report.fate);
        json!({
            "packet": number,
            "port": port,
            "bytes": frame.len(),
            "steps": steps(&report.steps),
            "notes": report.notes.iter().map(|note| note.name()).collect::<Vec<_>>(),
            "verdict": verdict,
            "reason": reason,
            "copies": copies.collect::<Vec<_>>(),
            "outputs": outputs.collect::<Vec<_>>(),
        })
    }
}

fn describe(answer: Answer) -> String {
    match answer {
        Answer::Arp(ip) => format!("ARP reply for {ip}"),
        Answer::Nd(ip) => format!("neighbor advertisement for {ip}"),
        Answer::Echo => "echo reply".to_owned(),
        Answer::TimeExceeded => "ICMP time exceeded".to_owned(),
        Answer::Unreachable => "ICMP destination unreachable".to_owned(),
        Answer::TooBig(mtu) => format!("ICMP packet too big, MTU {mtu}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/two-tenants.toml");

    fn config() -> Config {
        let text = std::fs::read_to_string(EXAMPLE).unwrap();
        let at = "name = \"rail0\"\n";
        let text = text.replacen(at, &format!("{at}mac = \"02:00:00:00:00:01\"\nmtu = 9000\n"), 1);
        Config::parse(&text, EXAMPLE).unwrap()
    }

    #[test]
    fn steps_name_tenants_rules_and_places() {
        let config = config();
        let tracer = Tracer::new(&config).unwrap();
        let detail = |step| tracer.step(step).1;
        let [red, blue] = [0, 1].map(VrfId);
        let to = "10.3.2.1".parse().unwrap();
        let found = tracer.tables.vrf(red).unwrap().fib.get_v4([10, 3, 2, 1]);
        assert_eq!(
            detail(Step::Route(red, to, found)),
            "VRF red, 10.3.2.1 (rack 3 rail 2 gpu 1): router 02:00:00:00:0a:02 at VTEP 192.0.2.2"
        );
        let leak = Some(Route::Leak(VrfId(2)));
        assert_eq!(
            detail(Step::Route(blue, "fd00::1".parse().unwrap(), leak)),
            "VRF blue, fd00::1: leaked to VRF storage"
        );
        // Rules are numbered over all tenants, and called by their place in their own.
        for (number, expected) in [
            (0, "tenant red, rule no-telnet denies it"),
            (1, "tenant red, rule writes counts it"),
            (3, "tenant blue, rule 2 allows it"),
            (9, "?"),
        ] {
            assert_eq!(detail(Step::Rule(RuleId(number))), expected);
        }
    }
}
