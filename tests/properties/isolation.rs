//! Tenants that route, trunk, learn, flood and leak stay apart: whatever arrives, every frame that leaves, copies, answers
//! and frames that waited included, leaves on a port of its own tenant or with a VNI of its own tenant, or as a leak says.
//! Who owns what is asked of the world that the tables were built from, never of the tables.

mod attack;
mod world;

use std::collections::BTreeMap;
use std::net::IpAddr;

use flowrail::datapath::{self, Learned, Observer, Verdict};
use flowrail::ids::{NetworkId, PortId, VrfId, VtepId};
use flowrail::tables::fdb::Dest;
use flowrail::tables::fib::Prefix;
use flowrail::tables::network::{Flood, VtepSet};
use flowrail::tables::snapshot::Snapshot;
use flowrail::tables::vrf::Route;
use flowrail::wire::drop::Note;
use flowrail::wire::ethernet::Mac;
use flowrail::wire::packet::Packet;
use flowrail::wire::vxlan::Vni;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use self::attack::{Arrival, arrival, udp};
use self::world::{
    GATEWAY, NATIVE, Rules, Tenant, UPLINK, World, encap_ip, leaked, network, port, station_v4, vni, world,
};
use crate::checks::oracle;

/// Where a frame comes from, by the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Tenant(u8),
    /// No tunnel to us: the host's own traffic.
    Host,
    /// A tunnel that nobody may send.
    Nobody,
}

fn source(world: &World, arrival: &Arrival) -> Source {
    if arrival.port != UPLINK {
        return World::owner_of_port(arrival.port).map_or(Source::Host, Source::Tenant);
    }
    let Some(tunnel) = oracle::tunnel(&arrival.frame, None) else { return Source::Host };
    if tunnel.dst != IpAddr::from(encap_ip(1)) {
        return Source::Host;
    }
    let owner = world.owner_of_vni(tunnel.vni).filter(|owner| world.is_member(*owner, tunnel.src));
    owner.map_or(Source::Nobody, Source::Tenant)
}

/// A frame that leaves.
#[derive(Clone, Debug)]
struct Departure {
    port: PortId,
    frame: Vec<u8>,
}

/// Everything that comes of an arrival.
#[derive(Debug, Default)]
struct Outcome {
    departures: Vec<Departure>,
    learned: Vec<Learned>,
    copies: usize,
    punted: bool,
}

impl Observer for Outcome {
    fn note(&mut self, _: Note) {}
    fn learn(&mut self, seen: Learned) {
        self.learned.push(seen);
    }
}

/// Lets `decide` work on a copy of these bytes.
fn decide(frame: &[u8], decide: impl FnOnce(&mut Packet<'_>) -> Verdict) -> (Verdict, Vec<u8>) {
    let mut buffer = [&[0x5a; 256], frame, &[0x5a; 256]].concat();
    let mut packet = Packet::new(&mut buffer, 256, frame.len(), &[]);
    let verdict = decide(&mut packet);
    (verdict, packet.head().to_vec())
}

impl Outcome {
    /// Runs a frame to its end, as the worker does. Frames that wait go on by `later`, where all next hops have MACs.
    fn of(tables: &Snapshot, later: &Snapshot, arrival: &Arrival) -> Self {
        let mut outcome = Self::default();
        let port = arrival.port;
        let end = decide(&arrival.frame, |p| datapath::receive(tables, &mut outcome, port, p));
        outcome.follow(tables, later, port, end);
        outcome
    }

    fn follow(
        &mut self,
        tables: &Snapshot,
        later: &Snapshot,
        from: PortId,
        (verdict, frame): (Verdict, Vec<u8>),
    ) {
        match verdict {
            Verdict::Forward(port) => self.departures.push(Departure { port, frame }),
            Verdict::Reply(reply) => self.departures.push(Departure { port: reply.port, frame }),
            Verdict::Unresolved(vni, vtep) => {
                let end = decide(&frame, |p| datapath::deliver(later, self, vni, from, Dest::Vtep(vtep), p));
                assert!(!matches!(end.0, Verdict::Unresolved(..)), "it waits for ever");
                self.follow(later, later, from, end);
            }
            Verdict::Replicate(to) => {
                let flood = &tables.network_of(to.vni).unwrap().flood;
                for dest in
                    flood.receivers(to.group, to.local_only).iter().filter(|d| **d != Dest::Port(to.from))
                {
                    self.copies += 1;
                    let end = decide(&frame, |p| datapath::deliver(tables, self, to.vni, from, *dest, p));
                    assert!(!matches!(end.0, Verdict::Replicate(_)), "copies are copied");
                    self.follow(tables, later, from, end);
                }
            }
            Verdict::Punt(_) => self.punted = true,
            Verdict::Drop(_) => {}
        }
    }
}

/// Whether all that came of an arrival is the sender's to cause.
fn judge(world: &World, arrival: &Arrival, outcome: &Outcome) -> Result<(), String> {
    let source = source(world, arrival);
    let may_reach = |to: Option<u8>| match (source, to) {
        (Source::Tenant(from), Some(to)) => world.allows(from, to),
        _ => false,
    };
    for departure in &outcome.departures {
        // Whom everything is denied may have an answer, and no more.
        if let Source::Tenant(from) = source
            && world.tenants[usize::from(from)].rules == Rules::DenyAll
            && is_ip(arrival)
            && departure.port != arrival.port
        {
            return Err(format!("{source:?} passed its policy"));
        }
        let (right, to) = match departure.port {
            UPLINK if arrival.port == NATIVE => (departure.frame == arrival.frame, None),
            UPLINK => {
                let tunnel = oracle::tunnel(&departure.frame, None);
                let to = tunnel.and_then(|tunnel| world.owner_of_vni(tunnel.vni));
                (may_reach(to), to)
            }
            NATIVE => (arrival.port == UPLINK && source == Source::Host, None),
            port => (may_reach(World::owner_of_port(port)), World::owner_of_port(port)),
        };
        if !right {
            return Err(format!("from {source:?} to {to:?} by {:?}", departure.port));
        }
    }
    for seen in &outcome.learned {
        // A leak lets packets through, not stations in.
        if source != Source::Tenant((seen.network.0 / 2) as u8) {
            return Err(format!("{source:?} taught {:?} a station", seen.network));
        }
    }
    if outcome.punted && arrival.port != UPLINK {
        return Err(format!("{source:?} reached the host"));
    }
    Ok(())
}

/// Whether the tenant's frame says that it is IP.
fn is_ip(arrival: &Arrival) -> bool {
    let tunnel = oracle::tunnel(&arrival.frame, None).filter(|_| arrival.port == UPLINK);
    let frame = tunnel.map_or(arrival.frame.clone(), |tunnel| tunnel.inner);
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 16 } else { 12 };
    matches!(frame.get(at..at + 2), Some([8, 0] | [0x86, 0xdd]))
}

fn check(world: &World, tables: &Snapshot, arrival: &Arrival) -> Result<Outcome, String> {
    let outcome = Outcome::of(tables, &world.tables(true), arrival);
    judge(world, arrival, &outcome).map(|()| outcome)
}

fn scene() -> impl Strategy<Value = (World, Vec<Arrival>)> {
    world().prop_flat_map(|world| {
        let arrivals = prop::collection::vec(arrival(&world), 80);
        (Just(world), arrivals)
    })
}

proptest! {
    #[test]
    fn no_packet_crosses_to_another_tenant_unless_a_leak_says_so((world, arrivals) in scene()) {
        let (tables, later) = (world.tables(false), world.tables(true));
        for arrival in &arrivals {
            let verdict = judge(&world, arrival, &Outcome::of(&tables, &later, arrival));
            prop_assert!(verdict.is_ok(), "{}: {:?}", verdict.unwrap_err(), arrival);
        }
    }
}

/// The property says nothing if nothing passes: of random packets, enough go every way that there is.
#[test]
fn random_packets_go_every_way_there_is() {
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..150 {
        let (world, arrivals) = scene().new_tree(&mut runner).unwrap().current();
        let (tables, later) = (world.tables(false), world.tables(true));
        for arrival in &arrivals {
            let outcome = Outcome::of(&tables, &later, arrival);
            for departure in &outcome.departures {
                *ways.entry(way(&world, arrival, departure)).or_default() += 1;
            }
            *ways.entry("copied").or_default() += outcome.copies;
            *ways.entry("learned").or_default() += outcome.learned.len();
        }
    }
    let expected = [
        ("bridged", 100),
        ("encapsulated", 100),
        ("routed into an L3VNI", 20),
        ("leaked", 20),
        ("decapsulated", 100),
        ("native", 1),
        ("copied", 100),
        ("learned", 100),
    ];
    for (name, least) in expected {
        assert!(ways.get(name).is_some_and(|count| *count >= least), "{name}: {ways:?}");
    }
}

fn way(world: &World, arrival: &Arrival, departure: &Departure) -> &'static str {
    let from = source(world, arrival);
    let tunnel = oracle::tunnel(&departure.frame, None).filter(|_| departure.port == UPLINK);
    let to = match &tunnel {
        Some(tunnel) => world.owner_of_vni(tunnel.vni),
        None => World::owner_of_port(departure.port),
    };
    match (from, to, &tunnel) {
        (Source::Tenant(from), Some(to), _) if from != to => "leaked",
        (Source::Tenant(_), _, Some(tunnel)) if tunnel.vni >= 1000 => "routed into an L3VNI",
        (Source::Tenant(_), _, Some(_)) => "encapsulated",
        (Source::Tenant(_), _, None) if arrival.port == UPLINK => "decapsulated",
        (Source::Tenant(_), _, None) => "bridged",
        _ => "native",
    }
}

/// Three tenants alike, which leak nothing.
fn plain() -> World {
    let tenant = Tenant {
        vrf: true,
        flood: false,
        learning: true,
        guards: true,
        rules: Rules::None,
        members: 0b0111,
        leaks: [false; 3],
        untagged: true,
        group: false,
    };
    World { tenants: vec![tenant; 3], same_macs: true, native: false }
}

#[test]
fn a_leak_lets_through_what_it_names_one_way_and_one_step() {
    let mut world = plain();
    world.tenants[0].leaks[1] = true;
    let send = |world: &World, from: u8, to: u8, last: u8| {
        let frame = udp(GATEWAY, world.mac(from, 1), station_v4(1), leaked(to, last));
        let outcome = check(world, &world.tables(false), &Arrival { port: port(from, 0), frame }).unwrap();
        outcome.departures.into_iter().map(|departure| departure.port).collect::<Vec<_>>()
    };
    assert_eq!(send(&world, 0, 1, 1), [port(1, 0)]);
    assert_eq!(send(&world, 0, 1, 2), [UPLINK]);
    let refused = |ports: Vec<PortId>, sender| ports.iter().all(|port| *port == sender);
    assert!(refused(send(&world, 0, 1, 3), port(0, 0)), "leaks follow one another");
    assert!(refused(send(&world, 1, 0, 1), port(1, 0)), "the leak goes both ways");
    world.tenants[1].rules = Rules::DenyAll;
    assert!(refused(send(&world, 0, 1, 1), port(0, 0)), "the receiver's policy does not apply");
}

/// A mistake in the tables that a checker of tenants must see.
type Break = fn(&World, &mut Snapshot);

fn port_in_two_flood_lists(world: &World, tables: &mut Snapshot) {
    let ports = [port(0, 0), port(0, 2), port(1, 0)];
    tables.network_mut(network(0, 0)).unwrap().flood =
        Flood::new(&ports, &world.vteps(0), &world.vteps(0)).into();
}

fn station_behind_a_foreign_port(world: &World, tables: &mut Snapshot) {
    tables.network_mut(network(0, 0)).unwrap().fdb.insert(world.mac(0, 3), Dest::Port(port(1, 0)));
}

fn foreign_l3vni(_: &World, tables: &mut Snapshot) {
    tables.vrf_mut(VrfId(0)).unwrap().l3vni = Vni::new(vni(1, 0));
}

fn route_into_a_foreign_network(world: &World, tables: &mut Snapshot) {
    let route = Route::Host { network: NetworkId(2), mac: world.mac(1, 1) };
    let prefix = Prefix::new(station_v4(3).into(), 32).unwrap();
    tables.vrf_mut(VrfId(0)).unwrap().fib.insert(prefix, route);
}

fn unspoken_leak(_: &World, tables: &mut Snapshot) {
    let prefix = Prefix::new(leaked(1, 0).into(), 24).unwrap();
    tables.vrf_mut(VrfId(0)).unwrap().fib.insert(prefix, Route::Leak(VrfId(1)));
}

fn network_with_a_foreign_vrf(_: &World, tables: &mut Snapshot) {
    tables.network_mut(network(0, 0)).unwrap().vrf = Some(VrfId(1));
}

fn members_of_everywhere(_: &World, tables: &mut Snapshot) {
    let all: VtepSet = (0..5).map(VtepId).collect();
    tables.vrf_mut(VrfId(0)).unwrap().members = all.into();
}

const BREAKS: [(&str, Break); 7] = [
    ("a port in two tenants' flood lists", port_in_two_flood_lists),
    ("a station behind another tenant's port", station_behind_a_foreign_port),
    ("another tenant's VNI as L3VNI", foreign_l3vni),
    ("a route into another tenant's network", route_into_a_foreign_network),
    ("a leak that nobody configured", unspoken_leak),
    ("a network in another tenant's VRF", network_with_a_foreign_vrf),
    ("an L3VNI that every VTEP may send", members_of_everywhere),
];

/// The same packets that find nothing in whole tables find each of these mistakes.
#[test]
fn broken_tables_are_caught() {
    let world = plain();
    let (whole, later) = (world.tables(false), world.tables(true));
    let mut runner = TestRunner::deterministic();
    let strategy = arrival(&world);
    let arrivals: Vec<Arrival> =
        (0..10_000).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    let caught = |tables: &Snapshot| {
        let bad = |arrival: &&Arrival| judge(&world, arrival, &Outcome::of(tables, &later, arrival)).is_err();
        arrivals.iter().filter(bad).count()
    };
    assert_eq!(caught(&whole), 0);
    for (name, make) in BREAKS {
        let mut broken = whole.clone();
        make(&world, &mut broken);
        assert!(caught(&broken) > 0, "{name} goes unnoticed");
    }
}

#[test]
fn a_broadcast_that_reaches_another_tenant_is_caught() {
    let world = plain();
    let frame = udp(Mac::BROADCAST, world.mac(0, 1), station_v4(1), [255; 4].into());
    let arrival = Arrival { port: port(0, 0), frame };
    let mut tables = world.tables(false);
    let copies = check(&world, &tables, &arrival).unwrap().copies;
    assert_eq!(copies, 1 + world.vteps(0).len());
    port_in_two_flood_lists(&world, &mut tables);
    let error = check(&world, &tables, &arrival).unwrap_err();
    assert!(error.contains("Tenant(0) to Some(1)"), "{error}");
}
