//! The resolver's decisions over made-up time and a made-up kernel.

use std::net::IpAddr;
use std::time::Duration;

use super::core::{Change, Core, Remote, Route};
use crate::control::netlink::{Event, Link, Neighbor, NeighborState, Prefix};
use crate::ids::{IfIndex, Nanos};
use crate::wire::ethernet::Mac;

const DEVICE: IfIndex = IfIndex(7);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn remote(text: &str) -> Remote {
    Remote { ifindex: DEVICE, ip: ip(text) }
}

fn route(text: &str) -> Route {
    Route { remote: remote(text), source: Some(ip("10.0.0.1")) }
}

fn at(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap())
}

fn secs(n: u64) -> Nanos {
    at(Duration::from_secs(n))
}

fn neighbor(text: &str, state: NeighborState) -> Event {
    let mac = state.is_usable().then_some(MAC);
    Event::Neighbor(Neighbor { ifindex: DEVICE, ip: ip(text), mac, state })
}

fn link(up: bool) -> Event {
    Event::Link(Link {
        ifindex: DEVICE,
        name: "eth1".to_owned(),
        mac: None,
        mtu: 1500,
        up,
        carrier: up,
        kind: None,
        lower: None,
        vlan: None,
    })
}

/// A core whose remotes are routed: each pair is a remote and its next hop. Time is 0.
fn routed(pairs: &[(&str, &str)]) -> Core {
    let mut core = Core::default();
    let routes: Vec<Route> = pairs.iter().map(|(remote, _)| route(remote)).collect();
    core.set_routes(&routes);
    let work = core.poll(usize::MAX, secs(0));
    assert_eq!(work.lookups.len(), pairs.len());
    for (remote, via) in pairs {
        core.answered(route(remote), Ok(ip(via)), secs(0));
    }
    core
}

fn probes(core: &mut Core, now: Nanos) -> Vec<IpAddr> {
    core.poll(0, now).probes.into_iter().map(|(_, ip)| ip).collect()
}

#[test]
fn remotes_behind_one_gateway_share_its_mac() {
    let mut core = routed(&[("10.1.0.1", "10.0.0.254"), ("10.1.0.2", "10.0.0.254")]);
    assert_eq!(probes(&mut core, secs(0)), [ip("10.0.0.254")], "asked once, without demand");
    core.event(&neighbor("10.0.0.254", NeighborState::Reachable), secs(1));
    let mut changes = core.poll(0, secs(1)).changes;
    changes.sort_by_key(|change| change.remote);
    let changed = |text| Change { remote: remote(text), mac: Some(MAC) };
    assert_eq!(changes, [changed("10.1.0.1"), changed("10.1.0.2")]);
    core.event(&neighbor("10.0.0.254", NeighborState::Stale), secs(2));
    assert!(core.poll(0, secs(2)).changes.is_empty(), "stale is as good");
    core.event(&neighbor("10.0.0.254", NeighborState::Failed), secs(3));
    let changes = core.poll(0, secs(3)).changes;
    assert!(changes.len() == 2 && changes.iter().all(|change| change.mac.is_none()));
}

#[test]
fn a_neighbor_known_before_its_route_is_used_at_once() {
    let mut core = Core::default();
    core.resync(
        &[Neighbor { ifindex: DEVICE, ip: ip("10.0.0.2"), mac: Some(MAC), state: NeighborState::Reachable }],
        &[],
        secs(0),
    );
    core.set_routes(&[route("10.0.0.2")]);
    core.poll(usize::MAX, secs(0));
    core.answered(route("10.0.0.2"), Ok(ip("10.0.0.2")), secs(0));
    let work = core.poll(0, secs(0));
    assert_eq!(work.changes, [Change { remote: remote("10.0.0.2"), mac: Some(MAC) }]);
    assert!(work.probes.is_empty());
}

#[test]
fn without_demand_a_silent_next_hop_is_asked_once() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2")]);
    assert_eq!(probes(&mut core, secs(0)).len(), 1);
    core.event(&neighbor("10.0.0.2", NeighborState::Incomplete), secs(0));
    assert!(probes(&mut core, secs(1)).is_empty());
    core.event(&neighbor("10.0.0.2", NeighborState::Failed), secs(3));
    for second in 4..50 {
        assert!(probes(&mut core, secs(second)).is_empty());
    }
}

#[test]
fn demand_asks_again_with_growing_pauses() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2")]);
    let mut asked = Vec::new();
    for second in 0..100 {
        core.demand(&[remote("10.0.0.2")], secs(second));
        if !probes(&mut core, secs(second)).is_empty() {
            asked.push(second);
            core.event(&neighbor("10.0.0.2", NeighborState::Failed), secs(second));
        }
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 61, 91]);
    // An answer ends the pauses: after the next loss it is asked at once.
    core.event(&neighbor("10.0.0.2", NeighborState::Reachable), secs(100));
    core.event(&Event::NeighborGone { ifindex: DEVICE, ip: ip("10.0.0.2") }, secs(101));
    assert_eq!(probes(&mut core, secs(101)).len(), 1);
}

#[test]
fn a_stale_next_hop_is_confirmed_twice_a_minute() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2")]);
    core.event(&neighbor("10.0.0.2", NeighborState::Stale), secs(0));
    let asked: Vec<u64> = (0..100).filter(|&second| !probes(&mut core, secs(second)).is_empty()).collect();
    assert_eq!(asked, [0, 30, 60, 90]);
    core.event(&neighbor("10.0.0.2", NeighborState::Reachable), secs(100));
    assert!((100..200).all(|second| probes(&mut core, secs(second)).is_empty()));
}

#[test]
fn a_configured_mac_overrides_and_is_not_asked_for() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2"), ("10.1.0.1", "10.0.0.254")]);
    let fixed = Mac([2, 0, 0, 0, 0, 0xfe]);
    core.set_static([(DEVICE, ip("10.0.0.2"), fixed), (DEVICE, ip("10.0.0.254"), fixed)]);
    let work = core.poll(0, secs(0));
    assert_eq!(work.changes.len(), 2);
    assert!(work.changes.iter().all(|change| change.mac == Some(fixed)));
    assert!(work.probes.is_empty());
    core.event(&neighbor("10.0.0.2", NeighborState::Reachable), secs(1));
    assert!(core.poll(0, secs(1)).changes.is_empty());
    // Taken away, the learned one shows.
    core.set_static([(DEVICE, ip("10.0.0.254"), fixed)]);
    assert_eq!(core.poll(0, secs(1)).changes, [Change { remote: remote("10.0.0.2"), mac: Some(MAC) }]);
}

#[test]
fn a_changed_route_moves_only_its_remotes() {
    let mut core = routed(&[("10.1.0.1", "10.0.0.254"), ("10.2.0.1", "10.0.0.254")]);
    core.event(&neighbor("10.0.0.254", NeighborState::Reachable), secs(0));
    core.event(&neighbor("10.0.0.253", NeighborState::Reachable), secs(0));
    core.poll(0, secs(0));
    core.event(&Event::Route(Prefix { ip: ip("10.1.0.0"), len: 16 }), secs(1));
    assert!(core.poll(usize::MAX, secs(1)).lookups.is_empty(), "waits for the burst to end");
    let later = at(Duration::from_millis(1060));
    assert_eq!(core.poll(usize::MAX, later).lookups, [route("10.1.0.1")]);
    core.answered(route("10.1.0.1"), Ok(ip("10.0.0.253")), later);
    assert!(core.poll(0, later).changes.is_empty(), "another gateway with the same MAC");
    core.answered(route("10.1.0.1"), Err("no route".to_owned()), later);
    assert_eq!(core.poll(0, later).changes, [Change { remote: remote("10.1.0.1"), mac: None }]);
}

#[test]
fn a_burst_of_route_changes_looks_up_everything_once() {
    let mut core = routed(&[("10.1.0.1", "10.0.0.254"), ("10.2.0.1", "10.0.0.254")]);
    for third in 0..200 {
        core.event(&Event::Route(Prefix { ip: IpAddr::from([192, 0, third, 0]), len: 24 }), secs(1));
    }
    assert_eq!(core.poll(usize::MAX, secs(2)).lookups.len(), 2);
    assert!(core.poll(usize::MAX, secs(3)).lookups.is_empty());
}

#[test]
fn routes_are_asked_for_anew_now_and_then() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2"), ("10.9.0.1", "10.0.0.254")]);
    core.answered(route("10.9.0.1"), Err("no route".to_owned()), secs(0));
    assert!(core.poll(usize::MAX, secs(4)).lookups.is_empty());
    assert_eq!(core.poll(usize::MAX, secs(5)).lookups, [route("10.9.0.1")], "no route: soon");
    assert!(core.poll(usize::MAX, secs(9)).lookups.is_empty(), "the answer is on its way");
    core.answered(route("10.9.0.1"), Ok(ip("10.0.0.254")), secs(9));
    assert_eq!(core.poll(usize::MAX, secs(60)).lookups, [route("10.0.0.2")]);
}

#[test]
fn a_device_going_down_or_up_starts_over() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2")]);
    assert_eq!(probes(&mut core, secs(0)).len(), 1);
    core.event(&link(true), secs(1));
    core.event(&link(true), secs(1));
    assert!(core.poll(usize::MAX, secs(1)).lookups.is_empty(), "nothing changed");
    core.event(&link(false), secs(2));
    let work = core.poll(usize::MAX, secs(2));
    assert_eq!(work.lookups, [route("10.0.0.2")]);
    assert_eq!(work.probes.len(), 1);
}

#[test]
fn lookups_are_bounded_and_go_on() {
    let mut core = Core::default();
    let routes: Vec<Route> = (0..=255).map(|i| route(&format!("10.3.0.{i}"))).collect();
    core.set_routes(&routes);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..4 {
        let work = core.poll(64, secs(0));
        assert_eq!(work.lookups.len(), 64);
        seen.extend(work.lookups.into_iter().map(|route| route.remote));
    }
    assert_eq!(seen.len(), 256);
    assert!(core.poll(64, secs(0)).lookups.is_empty());
}

#[test]
fn dropped_remotes_are_forgotten_and_kept_ones_are_not() {
    let mut core = routed(&[("10.0.0.2", "10.0.0.2"), ("10.0.0.3", "10.0.0.3")]);
    core.event(&neighbor("10.0.0.2", NeighborState::Reachable), secs(0));
    core.poll(0, secs(0));
    core.set_routes(&[route("10.0.0.2")]);
    let work = core.poll(usize::MAX, secs(40));
    assert!(work.lookups.is_empty() && work.probes.is_empty() && work.changes.is_empty());
    let report = core.report(secs(40));
    assert_eq!(report.len(), 1);
    assert_eq!((report[0].remote, report[0].mac), (remote("10.0.0.2"), Some(MAC)));
    assert_eq!(report[0].age, Some(Duration::from_secs(40)));
    // A late answer for the dropped one changes nothing.
    core.answered(route("10.0.0.3"), Ok(ip("10.0.0.3")), secs(41));
    assert!(core.poll(0, secs(41)).probes.is_empty());
}
