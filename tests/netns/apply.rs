//! Changes while packets flow: a new file, a port in another network. Nobody else loses a packet, and nothing of the old
//! state is left when the command returns.

use std::time::Duration;

use serde_json::Value;

use crate::common::command::eventually;
use crate::common::topology::{Pair, Plan, TENANT_IP, TENANT_MAC, Vtep};
use crate::common::traffic::{Roce, ping};

/// MAC of whoever must not collide with the tenant that moves.
const BYSTANDER: &str = "02:00:00:00:0a:33";

/// A forwarder with three networks against the kernel; the tenant of the first may move to the third.
fn movable(plan: Plan) -> Pair {
    let plan = Plan { vteps: [Vtep::None, Vtep::Kernel], vnis: vec![100, 200, 300], ..plan };
    let mut pair = Pair::up(plan);
    let config = movable_config(&pair);
    pair.start_forwarder(0, &config);
    pair.expect_reachable(0);
    pair
}

fn movable_config(pair: &Pair) -> String {
    let near = TENANT_MAC[0];
    pair.config(0).replace(
        &format!("network = \"net300\"\nmacs = [\"{near}\"]"),
        &format!("network = \"net300\"\nmacs = [\"{BYSTANDER}\"]"),
    )
}

/// Frames of a VNI that host 1 has received.
fn arrived(pair: &Pair, vni: u32) -> u64 {
    pair.hosts[1].netns.device(&format!("vx{vni}"), "statistics/rx_packets")
}

/// What is told of the tables, without counters.
fn tables(pair: &Pair) -> [Value; 3] {
    ["networks", "fdb", "tenants"].map(|what| pair.forwarder(0).show(what))
}

/// Moves the first tenant's port to and fro while it and another tenant send; returns the milliseconds of each move.
fn moves_under_load(pair: &Pair, moves: u32) -> Vec<f64> {
    let _load = pair.tenant(0).spawn(&format!("ping -q -f -s 1000 -w 60 {}", TENANT_IP[1]));
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let roce = Roce { path_mtu: 1024, count: 15_000, rate: 4000, qps: 4 };
        // Every frame must arrive whole, each once, in order.
        let other = scope.spawn(move || roce.carry(pair, 0, 1));
        for n in 0..moves {
            let (to, from) = if n % 2 == 0 { (300, 100) } else { (100, 300) };
            let answer = pair.forwarder(0).move_port("p0", &format!("net{to}"));
            // What has left may still be in a queue of the far host's kernel.
            std::thread::sleep(Duration::from_millis(20));
            let [old, new] = [from, to].map(|vni| arrived(pair, vni));
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(arrived(pair, from), old, "frames of the old network after move {n}");
            assert!(arrived(pair, to) > new, "no frames of the new network after move {n}");
            assert_eq!(answer["unfinished"], Value::Array(vec![]), "{answer}");
            took.push(answer["took"]["total_ms"].as_f64().unwrap());
        }
        other.join().unwrap();
    });
    took
}

#[test]
fn a_port_moves_and_nobody_else_loses_a_packet() {
    let pair = movable(Plan::against(Vtep::Kernel));
    let took = moves_under_load(&pair, 12);
    eprintln!("milliseconds of the moves: {took:?}");
    assert!(took.iter().all(|ms| *ms < 500.0), "{took:?}");
    pair.finish();
}

#[test]
fn a_port_moves_between_workers_that_lend_each_other_frames() {
    // One queue and two workers: the second sends everything through the first.
    let pair = movable(Plan { cores: "[0, 1]", ..Plan::against(Vtep::Kernel) });
    moves_under_load(&pair, 6);
    pair.finish();
}

#[test]
fn a_wrong_file_changes_nothing() {
    let pair = movable(Plan::against(Vtep::Kernel));
    let before = tables(&pair);
    let config = movable_config(&pair).replace("vni = 100", "vni = 16777216");
    let line = config.lines().position(|line| line.contains("16777216")).unwrap() + 1;
    let output = pair.forwarder(0).apply(&config, &[]);
    assert_eq!(output.status.unwrap().code(), Some(1), "{output}");
    assert!(output.stderr.contains(&format!("next.toml:{line}: network net100: vni 16777216")), "{output}");
    assert_eq!(tables(&pair), before);
    ping(pair.tenant(0), TENANT_IP[1], 56, 20);
    pair.finish();
}

#[test]
fn what_cannot_change_is_refused_whole() {
    let pair = movable(Plan::against(Vtep::Kernel));
    let before = tables(&pair);
    let config = movable_config(&pair)
        .replace("cores = [1]", "cores = [1]\nbatch = 32")
        .replace("vni = 300", "vni = 301")
        .replace("interface = \"p2\"", "interface = \"p2\"\nsteer = \"roce\"");
    let output = pair.forwarder(0).apply(&config, &[]);
    assert_eq!(output.status.unwrap().code(), Some(1), "{output}");
    for what in ["\n  [workers]\n", "\n  port p2: steer\n"] {
        assert!(output.stderr.contains(what), "{output}");
    }
    assert_eq!(tables(&pair), before);
    pair.finish();
}

/// The configuration without the port of the last network.
fn without_last_port(pair: &Pair, port: &str) -> String {
    let whole = pair.config(0);
    let at = whole.find(&format!("\n[[port]]\ninterface = \"{port}\"")).unwrap();
    whole[..at].to_owned()
}

#[test]
fn ports_come_and_go_while_others_carry_traffic() {
    for cores in ["[1]", "[0, 1]"] {
        let plan = Plan {
            vteps: [Vtep::None, Vtep::Kernel],
            vnis: vec![100, 200],
            cores,
            ..Plan::against(Vtep::Kernel)
        };
        let mut pair = Pair::up(plan);
        let (whole, part) = (pair.config(0), without_last_port(&pair, "p1"));
        pair.start_forwarder(0, &part);
        pair.expect_reachable(0);
        let load = pair.tenant(0).spawn(&format!("ping -q -i 0.002 -c 2000 {}", TENANT_IP[1]));
        for _ in 0..3 {
            let done = pair.forwarder(0).apply(&whole, &[]).expect_success();
            assert!(done.stdout.starts_with("+ port p1\n"), "{done}");
            let tenant = &pair.hosts[0].tenants[1];
            eventually("the new port's tenant reaches the far one", Duration::from_secs(5), || {
                tenant.attempt(Duration::from_secs(2), &format!("ping -c 1 -W 1 {}", TENANT_IP[1])).success()
            });
            ping(tenant, TENANT_IP[1], 8000, 20);
            let done = pair.forwarder(0).apply(&part, &[]).expect_success();
            assert!(done.stdout.starts_with("- port p1\n"), "{done}");
            let link = pair.hosts[0].netns.run("ip link show p1").stdout;
            assert!(!link.contains("xdp"), "the program is still there: {link}");
            assert_eq!(pair.forwarder(0).show("ports").as_array().unwrap().len(), 2);
        }
        let lost = load.wait(Duration::from_secs(20)).expect_success();
        assert!(lost.stdout.contains("2000 received"), "the other tenant lost packets: {lost}");
        pair.finish();
    }
}

#[test]
fn a_port_that_cannot_be_opened_changes_nothing() {
    let pair = movable(Plan::against(Vtep::Kernel));
    let before = tables(&pair);
    let more = "\n[[port]]\ninterface = \"p1x\"\nnetwork = \"net100\"\n";
    let output = pair.forwarder(0).apply(&format!("{}{more}", movable_config(&pair)), &[]);
    assert_eq!(output.status.unwrap().code(), Some(1), "{output}");
    assert!(output.stderr.contains("port p1x: there is no interface p1x"), "{output}");
    assert_eq!(tables(&pair), before);
    // One that is there, but whose queue another has: lo has no queue that a socket could be bound to.
    let more = "\n[[port]]\ninterface = \"lo\"\nnetwork = \"net100\"\n";
    let output = pair.forwarder(0).apply(&format!("{}{more}", movable_config(&pair)), &[]);
    assert_eq!(output.status.unwrap().code(), Some(1), "{output}");
    assert_eq!(tables(&pair), before);
    ping(pair.tenant(0), TENANT_IP[1], 56, 20);
    pair.finish();
}

#[test]
fn a_file_brings_a_network_and_takes_it_away() {
    let plan =
        Plan { vteps: [Vtep::None, Vtep::Kernel], vnis: vec![100, 200], ..Plan::against(Vtep::Kernel) };
    let mut pair = Pair::up(plan);
    let whole = pair.config(0);
    let [near, far] = TENANT_MAC;
    let part = whole
        .replace("[[network]]\nname = \"net200\"\nvni = 200\npeers = [\"far\"]\n", "")
        .replace(&format!("[[peer.endpoint]]\nnetwork = \"net200\"\nmac = \"{far}\"\n"), "")
        .replace(
            &format!("network = \"net200\"\nmacs = [\"{near}\"]"),
            &format!("network = \"net100\"\nmacs = [\"{BYSTANDER}\"]"),
        );
    pair.start_forwarder(0, &part);
    pair.expect_reachable(0);
    let changes = [
        "+ network net200 (VNI 200)",
        "~ port p1: network net100 → net200, +1 −1 macs",
        "~ peer far: +1 endpoints",
    ];

    let planned = pair.forwarder(0).apply(&whole, &["--dry-run"]).expect_success();
    assert_eq!(planned.stdout, format!("{}\nnothing was changed, as asked\n", changes.join("\n")));
    assert_eq!(pair.forwarder(0).show("networks").as_array().unwrap().len(), 1);

    let load = pair.tenant(0).spawn(&format!("ping -q -i 0.002 -c 1000 {}", TENANT_IP[1]));
    let done = pair.forwarder(0).apply(&whole, &[]).expect_success();
    assert!(done.stdout.starts_with(&changes.join("\n")), "{done}");
    assert_eq!(pair.forwarder(0).apply(&whole, &[]).expect_success().stdout, "nothing to change\n");
    // The peer's MAC was known and stays so: nothing waits, nothing is lost.
    ping(&pair.hosts[0].tenants[1], TENANT_IP[1], 56, 20);
    let back = pair.forwarder(0).apply(&part, &[]).expect_success();
    assert!(back.stdout.starts_with("- network net200 (VNI 200)\n"), "{back}");
    let lost =
        pair.hosts[0].tenants[1].attempt(Duration::from_secs(5), &format!("ping -c 2 -W 1 {}", TENANT_IP[1]));
    assert!(!lost.success(), "{lost}");
    let load = load.wait(Duration::from_secs(10)).expect_success();
    assert!(load.stdout.contains(" 0% packet loss"), "{load}");
    pair.finish();
}

#[test]
fn a_file_is_compared_with_what_runs_after_a_move() {
    let pair = movable(Plan::against(Vtep::Kernel));
    let moved = pair.forwarder(0).move_port("p0", "net300");
    assert_eq!(moved["changes"], serde_json::json!(["~ port p0: network net100 → net300"]));
    let again = pair.forwarder(0).move_port("p0", "net300");
    assert_eq!(again["changes"], serde_json::json!([]));
    let back = pair.forwarder(0).apply(&movable_config(&pair), &[]).expect_success();
    assert!(back.stdout.starts_with("~ port p0: network net300 → net100\nchanged in "), "{back}");
    ping(pair.tenant(0), TENANT_IP[1], 56, 5);
    let collides = pair.forwarder(0).tell(&["port", "move", "p0", "--network", "net200"]);
    assert!(
        !collides.success() && collides.stderr.contains("is already in network net200: port p1"),
        "{collides}"
    );
    pair.finish();
}

#[test]
fn changes_at_once_take_turns() {
    let pair = movable(Plan::against(Vtep::Kernel));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let pair = &pair;
            scope.spawn(move || {
                for turn in 0..5 {
                    let to = if (n + turn) % 2 == 0 { "net100" } else { "net300" };
                    pair.forwarder(0).move_port("p0", to);
                }
            });
        }
    });
    pair.forwarder(0).move_port("p0", "net100");
    ping(pair.tenant(0), TENANT_IP[1], 56, 5);
    pair.finish();
}

#[test]
fn a_device_that_is_down_is_waited_for_in_bounds_and_told() {
    // The kernel forgets the neighbors of a device that is down; this one stays.
    let extra = "[[neighbor]]\nuplink = \"u0\"\nip = \"10.0.0.2\"\nmac = \"02:00:00:00:01:02\"\n";
    let pair = movable(Plan { extra, ..Plan::against(Vtep::Kernel) });
    pair.hosts[0].netns.run("ip link set u0 down");
    let load = pair.tenant(0).spawn(&format!("ping -q -f -w 2 {}", TENANT_IP[1]));
    eventually("packets for the uplink", Duration::from_secs(2), || {
        let stats = pair.forwarder(0).stats();
        stats.0["workers"][0]["frames"]["tx"].as_u64() > Some(0)
    });
    let answer = pair.forwarder(0).move_port("p0", "net300");
    let took = answer["took"]["leave_ms"].as_f64().unwrap();
    assert!((1900.0..4000.0).contains(&took), "{answer}");
    assert!(
        answer["unfinished"][0].as_str().unwrap().contains("worker 0: a device has not sent"),
        "{answer}"
    );
    drop(load);
    pair.hosts[0].netns.run("ip link set u0 up");
    pair.expect_reachable(0);
    assert_eq!(pair.forwarder(0).move_port("p0", "net100")["unfinished"], serde_json::json!([]));
    pair.expect_reachable(0);
    pair.finish();
}
