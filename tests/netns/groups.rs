//! Multicast groups with receivers of their own, configured or snooped: a packet for the group reaches them alone.

use std::time::Duration;

use etherparse::PacketBuilder;

use crate::common::command::eventually;
use crate::common::fabric::{Fabric, Station};
use crate::common::packet::Tap;

const fn station(host: usize, port: &'static str, mac: &'static str, ip: &'static [&'static str]) -> Station {
    Station { host, port, mac, ips: ip, via: &[] }
}

const STATIONS: [Station; 4] = [
    station(0, "p0", "02:00:00:00:0a:01", &["192.0.2.1/24"]),
    station(0, "p1", "02:00:00:00:0a:02", &["192.0.2.2/24"]),
    station(1, "p0", "02:00:00:00:0a:03", &["192.0.2.3/24"]),
    station(1, "p1", "02:00:00:00:0a:04", &["192.0.2.4/24"]),
];

/// One network with the two ports of a host; `extra` continues the network's table.
fn tables(extra: &str) -> String {
    format!(
        "[[network]]\nname = \"red\"\nvni = 10\npeers = [\"far\"]\n{extra}\n\
         [[port]]\ninterface = \"p0\"\nnetwork = \"red\"\n[[port]]\ninterface = \"p1\"\nnetwork = \"red\"\n"
    )
}

/// A RoCEv2 UD packet to a multicast group: opcode 100, destination QP 0xffffff.
fn datagram(group: [u8; 4]) -> Vec<u8> {
    let [_, b, c, d] = group;
    let mut payload = vec![0x64, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0, 1];
    payload.extend([0x5a; 64]);
    let mut packet = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0xa, 1], [1, 0, 0x5e, b & 0x7f, c, d])
        .ipv4([192, 0, 2, 1], group, 8)
        .udp(50_000, 4791)
        .write(&mut packet, &payload)
        .unwrap();
    packet
}

/// Taps at all four stations.
fn taps(fabric: &Fabric) -> [Tap; 4] {
    STATIONS.map(|s| Tap::open(fabric.station(s.host, s.port), "t0"))
}

/// Who gets a packet for `group` that the first station sends.
fn receivers(taps: &[Tap; 4], group: [u8; 4]) -> Vec<usize> {
    let packet = datagram(group);
    taps.iter().for_each(|tap| while tap.receive().is_some() {});
    taps[0].send(&packet);
    std::thread::sleep(Duration::from_millis(150));
    let got = |tap: &Tap| std::iter::from_fn(|| tap.receive()).any(|frame| frame == packet);
    (0..4).filter(|index| got(&taps[*index])).collect()
}

#[test]
fn a_configured_group_reaches_its_receivers_alone() {
    let mut fabric = Fabric::new(&STATIONS);
    let group = |ports: &str, peers: &str| {
        tables(&format!("[[network.group]]\naddress = \"239.1.1.1\"\nports = [{ports}]\npeers = [{peers}]"))
    };
    fabric.start(0, &group("\"p1\"", "\"far\""));
    fabric.start(1, &group("\"p1\"", ""));
    let taps = taps(&fabric);
    // The first packets may wait for the far host's MAC.
    eventually("the far host is reached", Duration::from_secs(5), || {
        receivers(&taps, [239, 9, 9, 9]) == [1, 2, 3]
    });
    assert_eq!(receivers(&taps, [239, 1, 1, 1]), [1, 3]);
    assert_eq!(receivers(&taps, [224, 0, 0, 5]), [1, 2, 3], "link-local groups belong to everyone");
    drop(taps);
    fabric.finish();
}

#[test]
fn snooping_follows_the_receivers_that_join_and_leave() {
    let mut fabric = Fabric::new(&STATIONS);
    for host in 0..2 {
        fabric.start(host, &tables("snooping = true"));
    }
    let taps = taps(&fabric);
    let group = [239, 2, 2, 2];
    assert_eq!(receivers(&taps, group), [] as [usize; 0], "nobody has joined");
    let join = |station: &Station, verb: &str| {
        let netns = fabric.station(station.host, station.port);
        netns.run(&format!(
            "ip addr {verb} 239.2.2.2/32 dev t0 {}",
            if verb == "add" { "autojoin" } else { "" }
        ));
    };
    join(&STATIONS[3], "add");
    eventually("the far receiver has it alone", Duration::from_secs(5), || receivers(&taps, group) == [3]);
    join(&STATIONS[1], "add");
    eventually("both have it", Duration::from_secs(5), || receivers(&taps, group) == [1, 3]);
    join(&STATIONS[3], "del");
    eventually("the far one has left", Duration::from_secs(5), || receivers(&taps, group) == [1]);
    drop(taps);
    fabric.finish();
}
