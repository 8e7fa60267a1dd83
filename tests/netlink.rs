//! Kernel state over rtnetlink, against real kernels: each test runs in its own network namespace with a veth pair to
//! another one. Needs root.
//!
//! A test runs twice: outside it makes the namespaces and starts itself anew inside one of them, where it does its
//! work. So no thread has to change namespaces.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::future::Future;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use flowrail::control::netlink::{
    Change, Client, Event, Events, Neighbor, NeighborState, NetlinkError, Prefix, Remote, Resolver, Route,
    Update,
};
use flowrail::ids::IfIndex;
use flowrail::wire::ethernet::Mac;
use tokio::sync::mpsc;

/// Says that we are inside, and names the other namespace.
const INSIDE: &str = "FR_CONTROL_PEER_NETNS";
const NEAR_MAC: &str = "02:77:00:00:00:01";
const FAR_MAC: &str = "02:77:00:00:00:02";

/// Two namespaces, deleted with everything in them when dropped.
struct Namespaces {
    near: String,
    far: String,
}

impl Namespaces {
    /// `near` has up0 with 10.77.0.1/24 and fd77::1/64, `far` answers for .2, .254 and their like.
    fn create(test: &str) -> Self {
        let pid = std::process::id();
        let this =
            Self { near: format!("fr-control-{pid}-{test}"), far: format!("fr-control-{pid}-{test}-far") };
        let Self { near, far } = &this;
        sh(&format!(
            "ip netns add {near} && ip netns add {far} &&
             ip -n {near} link add up0 address {NEAR_MAC} type veth peer name up0 netns {far} address {FAR_MAC} &&
             ip -n {near} link set lo up && ip -n {near} link set up0 up && ip -n {far} link set up0 up &&
             ip -n {near} addr add 10.77.0.1/24 dev up0 && ip -n {near} addr add fd77::1/64 dev up0 nodad &&
             ip -n {far} addr add 10.77.0.2/24 dev up0 && ip -n {far} addr add fd77::2/64 dev up0 nodad &&
             ip -n {far} addr add 10.77.0.254/24 dev up0 && ip -n {far} addr add fd77::fe/64 dev up0 nodad &&
             ip -n {near} route add 10.88.0.0/16 via 10.77.0.254 &&
             ip -n {near} route add fd88::/32 via fd77::fe &&
             ip -n {near} route add 10.99.0.0/16 via inet6 fd77::fe dev up0"
        ));
        this
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script in the other namespace.
fn far(script: &str) -> String {
    let namespace = std::env::var(INSIDE).unwrap();
    sh(&format!("ip netns exec {namespace} sh -ec '{script}'"))
}

fn in_namespace<F: Future<Output = ()>>(test: &str, body: impl FnOnce() -> F) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(body());
    }
    let namespaces = Namespaces::create(test);
    let status = Command::new("timeout")
        .args(["60", "ip", "netns", "exec", &namespaces.near])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, &namespaces.far)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(text: &str) -> Mac {
    text.parse().unwrap()
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Waits for a neighbor event that `wanted` likes.
async fn neighbor(events: &mut Events, what: &str, wanted: impl Fn(&Neighbor) -> bool) -> Neighbor {
    within(what, async {
        loop {
            match events.next().await {
                Event::Neighbor(neighbor) if wanted(&neighbor) => return neighbor,
                _ => {}
            }
        }
    })
    .await
}

/// Waits for a remote to have (or lose) its MAC.
async fn next_hop(updates: &mut mpsc::Receiver<Update>, remote: Remote, mac: Option<Mac>) {
    within(&format!("{remote:?} {mac:?}"), async {
        loop {
            match updates.recv().await.unwrap() {
                Update::NextHops(changes) if changes.contains(&Change { remote, mac }) => return,
                _ => {}
            }
        }
    })
    .await;
}

#[test]
fn facts_about_links_and_addresses() {
    in_namespace("facts_about_links_and_addresses", || async {
        let client = Client::open().unwrap();
        let link = client.link("up0").await.unwrap();
        assert_eq!((link.name.as_str(), link.mac, link.mtu), ("up0", Some(mac(NEAR_MAC)), 1500));
        assert_eq!((link.up, link.kind.as_deref()), (true, Some("veth")));
        sh("ip link add link up0 name upper0 type macvlan");
        let upper = client.link("upper0").await.unwrap();
        assert_eq!((upper.kind.as_deref(), upper.lower), (Some("macvlan"), Some(link.ifindex)));
        assert!(!upper.up);
        assert_eq!(client.links().await.unwrap().iter().filter(|l| l.name == "up0").count(), 1);
        let error = client.link("none0").await.unwrap_err();
        assert!(error.to_string().starts_with("there is no network interface none0"), "{error}");
        let addresses = client.addresses().await.unwrap();
        for ours in ["10.77.0.1", "fd77::1"] {
            assert!(addresses.iter().any(|a| a.ifindex == link.ifindex && a.ip == ip(ours)), "{ours}");
        }
    });
}

#[test]
fn next_hops_follow_the_routing_table_of_the_uplink() {
    in_namespace("next_hops_follow_the_routing_table_of_the_uplink", || async {
        let client = Client::open().unwrap();
        let oif = client.link("up0").await.unwrap().ifindex;
        for (remote, source, via) in [
            ("10.77.0.2", "10.77.0.1", "10.77.0.2"),
            ("10.88.1.2", "10.77.0.1", "10.77.0.254"),
            ("10.99.1.2", "10.77.0.1", "fd77::fe"),
            ("fd77::2", "fd77::1", "fd77::2"),
            ("fd88::2", "fd77::1", "fd77::fe"),
            // An encap IP that the kernel hasn't got.
            ("10.88.1.2", "192.0.2.77", "10.77.0.254"),
            ("fd88::2", "2001:db8::77", "fd77::fe"),
        ] {
            let found = client.next_hop(ip(remote), oif, Some(ip(source))).await.unwrap();
            assert_eq!(found, ip(via), "{remote} from {source}");
            assert_eq!(client.next_hop(ip(remote), oif, None).await.unwrap(), ip(via), "{remote}");
        }
        for nowhere in ["192.0.2.1", "2001:db8::1"] {
            let error = client.next_hop(ip(nowhere), oif, None).await.unwrap_err();
            assert!(matches!(error, NetlinkError::NoRoute { .. }), "{nowhere}: {error}");
        }
        for ours in ["10.77.0.1", "fd77::1"] {
            let error = client.next_hop(ip(ours), oif, None).await.unwrap_err();
            assert!(
                matches!(error, NetlinkError::Local(_) | NetlinkError::NoRoute { .. }),
                "{ours}: {error}"
            );
        }
        // A better route through another device is not the uplink's.
        sh("ip link add other0 type veth peer name other1 && ip link set other0 up && ip link set other1 up &&
            ip addr add 10.66.0.1/24 dev other0 && ip addr add fd66::1/64 dev other0 nodad &&
            ip route add 10.88.1.0/24 via 10.66.0.9 && ip route add fd88:0:1::/48 via fd66::9");
        let other = client.link("other0").await.unwrap().ifindex;
        for (remote, source, up, through_other) in [
            ("10.88.1.2", "10.77.0.1", "10.77.0.254", "10.66.0.9"),
            ("fd88:0:1::2", "fd77::1", "fd77::fe", "fd66::9"),
        ] {
            for source in [None, Some(ip(source))] {
                assert_eq!(client.next_hop(ip(remote), oif, source).await.unwrap(), ip(up), "{remote}");
            }
            assert_eq!(client.next_hop(ip(remote), other, None).await.unwrap(), ip(through_other));
        }
    });
}

#[test]
fn a_probe_resolves_both_families() {
    in_namespace("a_probe_resolves_both_families", || async {
        let client = Client::open().unwrap();
        let ifindex = client.link("up0").await.unwrap().ifindex;
        let mut events = Events::open().unwrap();
        for address in ["10.77.0.2", "fd77::2"].map(ip) {
            assert!(client.neighbors().await.unwrap().iter().all(|n| n.ip != address));
            client.probe(ifindex, address).await.unwrap();
            let is_it = |n: &Neighbor| n.ip == address && n.state == NeighborState::Reachable;
            let found = neighbor(&mut events, "answer", is_it).await;
            assert_eq!((found.ifindex, found.usable_mac()), (ifindex, Some(mac(FAR_MAC))));
            let table = client.neighbors().await.unwrap();
            assert!(table.contains(&found), "{table:?}");
        }
    });
}

/// Not the kernel's own solicitations while it checks its new addresses.
const SOLICITATION_FOR_9: &str = "icmp6 and ip6[40] == 135 and ip6[63] == 9";

#[test]
fn a_probe_puts_requests_on_the_wire() {
    in_namespace("a_probe_puts_requests_on_the_wire", || async {
        let client = Client::open().unwrap();
        let ifindex = client.link("up0").await.unwrap().ifindex;
        let namespace = std::env::var(INSIDE).unwrap();
        for (silent, request) in
            [("10.77.0.9", "who-has 10.77.0.9 tell 10.77.0.1"), ("fd77::9", "who has fd77::9")]
        {
            let filter = if silent.contains(':') { SOLICITATION_FOR_9 } else { "arp" };
            let mut capture = Command::new("timeout")
                .args(["10", "ip", "netns", "exec", &namespace, "tcpdump", "-lnc1", "-i", "up0", filter])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // tcpdump says "listening on …" once it captures.
            let stderr = capture.stderr.take().unwrap();
            let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
            assert!(lines.any(|line| line.unwrap().starts_with("listening on")));
            client.probe(ifindex, ip(silent)).await.unwrap();
            let output = capture.wait_with_output().unwrap();
            let seen = String::from_utf8_lossy(&output.stdout);
            assert!(seen.contains(request), "{silent}: {seen}");
        }
    });
}

/// Makes the kernel ask one second after a stale entry is used, instead of five.
const ASK_SOON: &str = "sysctl -qw net.ipv4.neigh.up0.delay_first_probe_time=1 \
    net.ipv6.neigh.up0.delay_first_probe_time=1";

#[test]
fn a_probe_confirms_a_stale_entry() {
    in_namespace("a_probe_confirms_a_stale_entry", || async {
        sh(ASK_SOON);
        let client = Client::open().unwrap();
        let ifindex = client.link("up0").await.unwrap().ifindex;
        let mut events = Events::open().unwrap();
        for address in ["10.77.0.2", "fd77::2"] {
            sh(&format!("ip neigh replace {address} dev up0 lladdr {FAR_MAC} nud stale"));
            client.probe(ifindex, ip(address)).await.unwrap();
            let is_it = |n: &Neighbor| n.ip == ip(address) && n.state == NeighborState::Reachable;
            neighbor(&mut events, "confirmation", is_it).await;
        }
    });
}

#[test]
fn the_resolver_corrects_an_outdated_mac() {
    in_namespace("the_resolver_corrects_an_outdated_mac", || async {
        sh(ASK_SOON);
        let ifindex = Client::open().unwrap().link("up0").await.unwrap().ifindex;
        sh("ip neigh replace 10.77.0.2 dev up0 lladdr 02:77:00:00:00:99 nud stale");
        let (resolver, mut updates) = Resolver::start().await.unwrap();
        let remote = Remote { ifindex, ip: ip("10.77.0.2") };
        resolver.set_routes(&[Route { remote, source: None }]);
        // Stale is better than nothing, until asking the old address fails; then everyone is asked.
        next_hop(&mut updates, remote, Some(mac("02:77:00:00:00:99"))).await;
        next_hop(&mut updates, remote, None).await;
        next_hop(&mut updates, remote, Some(mac(FAR_MAC))).await;
    });
}

#[test]
fn a_probe_on_a_lost_device_fails() {
    in_namespace("a_probe_on_a_lost_device_fails", || async {
        let client = Client::open().unwrap();
        let error = client.probe(IfIndex(9999), ip("10.77.0.2")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "resolving 10.77.0.2 on interface number 9999: No such device (os error 19)"
        );
    });
}

#[test]
fn changes_arrive_as_events() {
    in_namespace("changes_arrive_as_events", || async {
        let client = Client::open().unwrap();
        let ifindex = client.link("up0").await.unwrap().ifindex;
        let mut events = Events::open().unwrap();
        let mut expect = async |script: &str, wanted: &dyn Fn(&Event) -> bool| {
            sh(script);
            within(script, async { while !wanted(&events.next().await) {} }).await;
        };
        expect("ip neigh add 10.77.0.3 dev up0 lladdr 02:00:00:00:00:03 nud permanent", &|event| {
            let wanted = Neighbor {
                ifindex,
                ip: ip("10.77.0.3"),
                mac: Some(mac("02:00:00:00:00:03")),
                state: NeighborState::Permanent,
            };
            *event == Event::Neighbor(wanted)
        })
        .await;
        expect("ip neigh del 10.77.0.3 dev up0", &|event| {
            *event == Event::NeighborGone { ifindex, ip: ip("10.77.0.3") }
        })
        .await;
        expect("ip route add 10.55.0.0/16 via 10.77.0.254", &|event| {
            *event == Event::Route(Prefix { ip: ip("10.55.0.0"), len: 16 })
        })
        .await;
        expect("ip -6 route add default via fd77::fe", &|event| {
            *event == Event::Route(Prefix { ip: ip("::"), len: 0 })
        })
        .await;
        expect("ip link set up0 mtu 1400", &|event| matches!(event, Event::Link(l) if l.mtu == 1400)).await;
        expect("ip link set up0 down", &|event| matches!(event, Event::Link(l) if !l.up)).await;
        expect("ip link del up0", &|event| *event == Event::LinkGone(ifindex)).await;
    });
}

#[test]
fn lost_events_are_told() {
    in_namespace("lost_events_are_told", || async {
        let mut events = Events::open_with_buffer(4096).unwrap();
        // The runtime stands still meanwhile, so nobody reads the socket.
        sh("for i in $(seq 1 100); do
                echo neigh replace 10.77.0.7 dev up0 lladdr 02:00:00:00:01:00 nud permanent
                echo neigh replace 10.77.0.7 dev up0 lladdr 02:00:00:00:02:00 nud permanent
            done | ip -batch -");
        within("overrun", async { while events.next().await != Event::Overrun {} }).await;
        // It goes on listening.
        sh("ip link set up0 mtu 1400");
        within("event", async { while !matches!(events.next().await, Event::Link(l) if l.mtu == 1400) {} })
            .await;
    });
}

#[test]
fn the_resolver_finds_and_follows_next_hops() {
    in_namespace("the_resolver_finds_and_follows_next_hops", || async {
        let ifindex = Client::open().unwrap().link("up0").await.unwrap().ifindex;
        let (resolver, mut updates) = Resolver::start().await.unwrap();
        let remote = |text| Remote { ifindex, ip: ip(text) };
        let all = ["10.77.0.2", "fd77::2", "10.88.0.1", "fd88::1", "10.99.0.1", "10.44.0.1", "10.77.0.9"];
        let source = |text: &str| Some(ip(if text.contains(':') { "fd77::1" } else { "10.77.0.1" }));
        let routes = all.map(|text| Route { remote: remote(text), source: source(text) });
        resolver.set_routes(&routes);

        let mut reachable = vec!["10.77.0.2", "fd77::2", "10.88.0.1", "fd88::1", "10.99.0.1"];
        within("first answers", async {
            while !reachable.is_empty() {
                let Update::NextHops(changes) = updates.recv().await.unwrap() else { continue };
                assert!(changes.iter().all(|change| change.mac == Some(mac(FAR_MAC))), "{changes:?}");
                reachable.retain(|text| changes.iter().all(|change| change.remote != remote(text)));
            }
        })
        .await;

        let report = resolver.report();
        let row = |text| report.iter().find(|row| row.remote == remote(text)).unwrap();
        assert_eq!(row("10.99.0.1").via, Some(ip("fd77::fe")));
        assert_eq!(row("10.88.0.1").state, Some(NeighborState::Reachable));
        assert!(row("10.44.0.1").failure.as_ref().unwrap().starts_with("no route to 10.44.0.1"));
        assert_eq!((row("10.77.0.9").mac, row("10.77.0.9").via), (None, Some(ip("10.77.0.9"))));

        // The kernel forgets an entry: it is asked for anew, without demand.
        sh("ip neigh del 10.77.0.2 dev up0");
        next_hop(&mut updates, remote("10.77.0.2"), None).await;
        next_hop(&mut updates, remote("10.77.0.2"), Some(mac(FAR_MAC))).await;

        // Routes come and go.
        sh("ip route add 10.44.0.0/16 via 10.77.0.254");
        next_hop(&mut updates, remote("10.44.0.1"), Some(mac(FAR_MAC))).await;
        sh("ip route del 10.44.0.0/16");
        next_hop(&mut updates, remote("10.44.0.1"), None).await;

        // A silent host appears: demand finds it.
        far("ip addr add 10.77.0.9/24 dev up0");
        within("demand", async {
            loop {
                resolver.demand(&[remote("10.77.0.9")]);
                let update = tokio::time::timeout(Duration::from_millis(100), updates.recv()).await;
                let wanted = Change { remote: remote("10.77.0.9"), mac: Some(mac(FAR_MAC)) };
                if matches!(update, Ok(Some(Update::NextHops(c))) if c.contains(&wanted)) {
                    return;
                }
            }
        })
        .await;

        // The other end gets another MAC, and says so by asking us.
        far("ip link set up0 address 02:77:00:00:00:22 && ping -c1 -W1 10.77.0.1 >/dev/null || true");
        next_hop(&mut updates, remote("10.77.0.2"), Some(mac("02:77:00:00:00:22"))).await;

        // A configured MAC wins over the learned one.
        let fixed = mac("02:77:00:00:00:33");
        resolver.set_static([(ifindex, ip("10.77.0.2"), fixed)]);
        next_hop(&mut updates, remote("10.77.0.2"), Some(fixed)).await;

        // The device goes down and comes back.
        sh("ip link set up0 down");
        next_hop(&mut updates, remote("10.88.0.1"), None).await;
        sh("ip link set up0 up && ip route replace 10.88.0.0/16 via 10.77.0.254");
        next_hop(&mut updates, remote("10.88.0.1"), Some(mac("02:77:00:00:00:22"))).await;
    });
}

#[test]
fn the_resolver_survives_lost_events() {
    in_namespace("the_resolver_survives_lost_events", || async {
        let ifindex = Client::open().unwrap().link("up0").await.unwrap().ifindex;
        let (resolver, mut updates) = Resolver::start().await.unwrap();
        let remote = Remote { ifindex, ip: ip("10.77.0.3") };
        resolver.set_routes(&[Route { remote, source: None }]);
        within("lookup", async {
            while resolver.report()[0].via.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        // Thousands of changes while the runtime stands still; the last ones are beyond any buffer.
        sh("for i in $(seq 1 6000); do
                echo neigh replace 10.77.0.7 dev up0 lladdr 02:00:00:00:01:00 nud permanent
                echo neigh replace 10.77.0.7 dev up0 lladdr 02:00:00:00:02:00 nud permanent
            done > /tmp/fr-control-batch.$$
            echo neigh replace 10.77.0.3 dev up0 lladdr 02:00:00:00:00:03 nud permanent >> /tmp/fr-control-batch.$$
            ip -batch /tmp/fr-control-batch.$$; rm /tmp/fr-control-batch.$$");
        next_hop(&mut updates, remote, Some(mac("02:00:00:00:00:03"))).await;
    });
}
