//! Start, stop, crash and refusal: nothing is left behind, and what cannot work is said before traffic is lost.

use crate::common::forwarder::{Forwarder, expect_no_xdp};
use crate::common::topology::{Pair, Plan, TENANT_IP, Vtep};
use crate::common::traffic::ping;

fn unstarted() -> Pair {
    Pair::up(Plan { vteps: [Vtep::None, Vtep::None], ..Plan::against(Vtep::Kernel) })
}

#[test]
fn both_polite_signals_leave_nothing_behind() {
    for signal in ["TERM", "INT"] {
        let mut pair = Pair::up(Plan::against(Vtep::Kernel));
        pair.expect_reachable(0);
        let forwarder = pair.hosts[0].forwarder.take().unwrap();
        forwarder.expect_conservation();
        forwarder.end_with(signal, &pair.hosts[0].netns);
    }
}

#[test]
fn a_crash_is_recovered_from_by_starting_again() {
    let mut pair = Pair::up(Plan::against(Vtep::Kernel));
    pair.expect_reachable(0);
    for _ in 0..3 {
        let crashed = pair.hosts[0].forwarder.take().unwrap().crash();
        pair.hosts[0].forwarder = Some(crashed.restart(&pair.hosts[0].netns));
        pair.expect_reachable(0);
        ping(pair.tenant(0), TENANT_IP[1], 1472, 5);
    }
    pair.finish();
}

#[test]
fn stopping_under_load_ends_cleanly() {
    let mut pair = Pair::up(Plan::against(Vtep::Kernel));
    pair.expect_reachable(0);
    let _load = pair.tenant(0).spawn(&format!("ping -f -s 8000 -w 10 {}", TENANT_IP[1]));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let forwarder = pair.hosts[0].forwarder.take().unwrap();
    forwarder.stop(&pair.hosts[0].netns);
}

#[test]
fn a_missing_interface_is_named() {
    let pair = unstarted();
    let config = pair.config(0).replace("\"p0\"", "\"nosuch0\"");
    let said = Forwarder::refused(&pair.hosts[0].netns, &config);
    assert!(said.contains("nosuch0"), "{said}");
    expect_no_xdp(&pair.hosts[0].netns);
}

#[test]
fn a_queue_that_another_process_holds_is_named() {
    let pair = Pair::up(Plan::against(Vtep::Kernel));
    let config = pair.config(0);
    let netns = &pair.hosts[0].netns;
    let said = Forwarder::refused(netns, &config);
    assert!(said.contains("interface u0, queue 0"), "{said}");
    // The first one is none the worse for it.
    pair.expect_reachable(0);
    pair.finish();
}

#[test]
fn an_interface_that_is_down_is_named() {
    let pair = unstarted();
    pair.hosts[0].netns.run("ip link set p0 down");
    let said = Forwarder::refused(&pair.hosts[0].netns, &pair.config(0));
    assert!(said.contains("p0 is down"), "{said}");
    expect_no_xdp(&pair.hosts[0].netns);
}

#[test]
fn an_mtu_beyond_the_interface_is_refused() {
    let pair = unstarted();
    let config = pair.config(0).replace("interface = \"u0\"", "interface = \"u0\"\nmtu = 9300");
    let said = Forwarder::refused(&pair.hosts[0].netns, &config);
    assert!(said.contains("9300") && said.contains("9214"), "{said}");
    expect_no_xdp(&pair.hosts[0].netns);
}

#[test]
fn a_wrong_configuration_names_its_line() {
    let pair = unstarted();
    let config = pair.config(0).replace("vni = 100", "vni = 16777216");
    let line = config.lines().position(|line| line.contains("16777216")).unwrap() + 1;
    let said = Forwarder::refused(&pair.hosts[0].netns, &config);
    assert!(said.contains("16777216") && said.contains(&line.to_string()), "{said}");
}
