//! A port that carries several networks by VLAN tag. This kernel has no 802.1Q devices, so tagged frames are made and read
//! by packet sockets.

use std::time::Duration;

use crate::common::command::eventually;
use crate::common::fabric::{Fabric, Station};
use crate::common::packet::Tap;

const TRUNK: Station =
    Station { host: 0, port: "trunk", mac: "02:00:00:00:0a:01", ips: &["192.0.2.1/24"], via: &[] };
const RED: Station =
    Station { host: 0, port: "red0", mac: "02:00:00:00:0b:01", ips: &["192.0.2.2/24"], via: &[] };
const BLUE: Station =
    Station { host: 0, port: "blue0", mac: "02:00:00:00:0c:01", ips: &["192.0.2.3/24"], via: &[] };

const TABLES: &str = r#"
[[network]]
name = "red"
vni = 10
peers = ["far"]
[[network]]
name = "blue"
vni = 20
peers = ["far"]
[[port]]
interface = "trunk"
[[port.vlan]]
network = "red"
[[port.vlan]]
network = "blue"
id = 20
[[port]]
interface = "red0"
network = "red"
macs = ["02:00:00:00:0b:01"]
[[port]]
interface = "blue0"
network = "blue"
macs = ["02:00:00:00:0c:01"]
"#;

/// Ethernet header and a payload of 46 bytes that nobody understands (local experimental EtherType).
fn frame(dst: &str, src: &str, vlan: Option<u16>) -> Vec<u8> {
    let mac = |text: &str| text.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect::<Vec<_>>();
    let mut frame = [mac(dst), mac(src)].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.extend([0x5a; 46]);
    frame
}

const RED_MAC: &str = "02:00:00:00:0b:01";
const BLUE_MAC: &str = "02:00:00:00:0c:01";
const OWN_MAC: &str = "02:00:00:00:0a:01";

#[test]
fn the_tag_chooses_the_network_and_is_stripped_and_pushed() {
    let mut fabric = Fabric::new(&[TRUNK, RED, BLUE]);
    fabric.start(0, TABLES);
    let [trunk, red, blue] = [("trunk", "t0"), ("red0", "t0"), ("blue0", "t0")]
        .map(|(port, at)| Tap::open(fabric.station(0, port), at));

    // Untagged and priority-tagged frames belong to the native network.
    for vlan in [None, Some(0)] {
        trunk.send(&frame(RED_MAC, OWN_MAC, vlan));
        red.expect(&frame(RED_MAC, OWN_MAC, None));
    }
    trunk.send(&frame(BLUE_MAC, OWN_MAC, Some(20)));
    blue.expect(&frame(BLUE_MAC, OWN_MAC, None));

    // The other way: broadcasts, because no MAC of the trunk's is configured.
    red.send(&frame("ff:ff:ff:ff:ff:ff", RED_MAC, None));
    trunk.expect(&frame("ff:ff:ff:ff:ff:ff", RED_MAC, None));
    blue.send(&frame("ff:ff:ff:ff:ff:ff", BLUE_MAC, None));
    trunk.expect(&frame("ff:ff:ff:ff:ff:ff", BLUE_MAC, Some(20)));

    // Nothing crosses from one network to the other, and tags outside the map go nowhere.
    trunk.send(&frame(BLUE_MAC, OWN_MAC, None));
    trunk.send(&frame(RED_MAC, OWN_MAC, Some(20)));
    trunk.send(&frame(RED_MAC, OWN_MAC, Some(21)));
    eventually("all three are dropped", Duration::from_secs(2), || {
        let stats = fabric.forwarder(0).stats();
        stats.drop("unknown_unicast") == 2 && stats.drop("vlan_not_in_trunk") == 1
    });
    for tap in [&red, &blue] {
        tap.expect_silence();
    }
    drop((trunk, red, blue));
    fabric.finish();
}
