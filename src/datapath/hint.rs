//! Which memory a batch's look-ups will touch, told ahead so that the caller can have it fetched. Worth it only with
//! tables larger than the cache ([`Snapshot::large`]): it parses part of the packets twice.
//!
//! A look-up is a chain of reads that each say where the next one is. Alone, a packet waits for memory at every link; a
//! batch takes each step for all its packets before the next, so that they wait together.

use arrayvec::ArrayVec;

use crate::ids::{NetworkId, PortId};
use crate::tables::fdb::Dest;
use crate::tables::fib::Pending;
use crate::tables::network::Network;
use crate::tables::snapshot::{Role, Snapshot, VniTarget};
use crate::tables::vrf::{Route, Vrf};
use crate::tables::vtep::VtepRow;
use crate::wire::ethernet::{self, EtherType, Mac};
use crate::wire::vxlan::Vni;

/// Offset of the VNI behind untagged Ethernet, IPv4 without options, UDP: the common case, and a wrong guess costs
/// nothing but a useless fetch.
const VNI: usize = 46;
/// Offset of the inner frame in the same case.
const INNER: usize = 50;

/// Packets that take a step together.
const GROUP: usize = 64;
/// Links of the longest chain: VRF, routes, slots, network of a station, its FDB; or network, VRF, routes, slots, row.
const STEPS: usize = 5;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Calls `prefetch` with the address of each cache line that looking these packets up will read. `packets` are the
/// ports that received them, and their first bytes.
#[inline]
pub fn fetch<'p>(
    t: &Snapshot,
    mut packets: impl Iterator<Item = (PortId, &'p [u8])>,
    mut prefetch: impl FnMut(*const u8),
) {
    loop {
        let mut chains: ArrayVec<Chain<'_, 'p>, GROUP> = ArrayVec::new();
        for (port, head) in packets.by_ref() {
            let begun = begin(t, port, head);
            begun.announce(&mut prefetch);
            chains.push(begun);
            if chains.is_full() {
                break;
            }
        }
        if chains.is_empty() {
            return;
        }
        for _ in 1..STEPS {
            for chain in &mut chains {
                *chain = chain.next(t);
                chain.announce(&mut prefetch);
            }
        }
    }
}

/// How far a packet's look-up has come. Every table named is on its way, and not read yet.
#[derive(Clone, Copy)]
enum Chain<'t, 'p> {
    /// Bridged or routed, the network knows.
    Network(&'t Network, &'p [u8]),
    /// As before: the gateway's MAC decides.
    Either(&'t Network, Option<&'t Vrf>, &'p [u8]),
    /// Routed.
    Vrf(&'t Vrf, &'p [u8]),
    /// Routes of one address family.
    Routes(Pending<'t>),
    /// Their slots.
    Slots(Pending<'t>),
    /// A station's network.
    Station(&'t Network, Mac),
    /// The FDB bucket of a station.
    Bucket(&'t [u8]),
    /// Outer headers.
    Row(&'t VtepRow),
    /// Nothing more is to be read, or nobody knows what.
    End,
}

/// The network or VRF of a packet, as far as its first bytes tell.
#[inline]
fn begin<'t, 'p>(t: &'t Snapshot, port: PortId, head: &'p [u8]) -> Chain<'t, 'p> {
    let network = |id: NetworkId, frame| t.network(id).map(|network| Chain::Network(network, frame));
    let begun = match t.port(port).map(|row| row.role) {
        Some(Role::Access(id)) => network(id, head),
        Some(Role::Uplink { .. }) => tunnelled(head).and_then(|(vni, frame)| match t.target_of(vni)? {
            VniTarget::Network(id) => network(id, frame),
            VniTarget::Vrf(id) => Some(Chain::Vrf(t.vrf(id)?, frame)),
        }),
        Some(Role::Trunk(_) | Role::Native(_)) | None => None,
    };
    begun.unwrap_or(Chain::End)
}

/// VNI and inner frame.
#[inline]
fn tunnelled(head: &[u8]) -> Option<(Vni, &[u8])> {
    let [a, b, c] = *head.get(VNI..)?.first_chunk()?;
    Some((Vni::new(u32::from_be_bytes([0, a, b, c]))?, head.get(INNER..)?))
}

impl<'t, 'p> Chain<'t, 'p> {
    /// One step on: reads what the step before announced.
    #[inline]
    fn next(self, t: &'t Snapshot) -> Self {
        self.read(t).unwrap_or(Self::End)
    }

    #[inline]
    fn read(self, t: &'t Snapshot) -> Option<Self> {
        let row = |dest| match dest {
            Dest::Vtep(id) => t.vteps.get(id).map(Chain::Row),
            Dest::Port(_) => None,
        };
        match self {
            Self::Network(network, frame) => {
                let vrf = network.gateway.as_ref().and(network.vrf).and_then(|id| t.vrf(id));
                Some(Self::Either(network, vrf, frame))
            }
            Self::Either(network, vrf, frame) => {
                let dst = Mac(*frame.first_chunk()?);
                match vrf.filter(|_| network.gateway.as_ref().is_some_and(|gateway| gateway.mac == dst)) {
                    Some(vrf) => routes(vrf, frame),
                    None => row(network.fdb.get(dst)?),
                }
            }
            Self::Vrf(vrf, frame) => routes(vrf, frame),
            Self::Routes(pending) => Some(Self::Slots(pending)),
            Self::Slots(pending) => match pending.get()? {
                Route::Vtep { vtep, .. } => row(Dest::Vtep(vtep)),
                Route::Host { network, mac } => Some(Self::Station(t.network(network)?, mac)),
                _ => None,
            },
            Self::Station(network, mac) => Some(Self::Bucket(network.fdb.home(mac))),
            Self::Bucket(_) | Self::Row(_) | Self::End => None,
        }
    }

    /// Tells the addresses that the next step, or the packet itself, will read.
    #[inline]
    fn announce(&self, prefetch: &mut impl FnMut(*const u8)) {
        match self {
            Self::Network(network, _) | Self::Station(network, _) => lines(*network, prefetch),
            Self::Either(network, vrf, frame) => {
                if let (Some(gateway), Some(vrf)) = (&network.gateway, vrf) {
                    lines(&**gateway, prefetch);
                    lines(*vrf, prefetch);
                }
                if let Some(dst) = frame.first_chunk() {
                    prefetch(network.fdb.home(Mac(*dst)).as_ptr());
                }
            }
            Self::Vrf(vrf, _) => lines(*vrf, prefetch),
            Self::Routes(pending) => range(pending.reads(), prefetch),
            Self::Slots(pending) => pending.reads_next(prefetch),
            Self::Bucket(bucket) => prefetch(bucket.as_ptr()),
            Self::Row(row) => lines(*row, prefetch),
            Self::End => {}
        }
    }
}

/// The VRF's routes for the destination of a frame.
#[inline]
fn routes<'t, 'p>(vrf: &'t Vrf, frame: &[u8]) -> Option<Chain<'t, 'p>> {
    let eth = ethernet::Header::parse(frame)?;
    let l3 = frame.get(ethernet::HEADER_LEN..)?;
    match eth.ethertype {
        EtherType::IPV4 => Some(Chain::Routes(vrf.fib.begin_v4(*l3.get(16..)?.first_chunk()?))),
        EtherType::IPV6 => Some(Chain::Routes(vrf.fib.begin_v6(*l3.get(24..)?.first_chunk()?))),
        _ => None,
    }
}

/// Every cache line of a value.
#[inline]
fn lines<T>(value: &T, prefetch: &mut impl FnMut(*const u8)) {
    range((std::ptr::from_ref(value).cast(), size_of::<T>()), prefetch);
}

#[inline]
fn range((first, len): (*const u8, usize), prefetch: &mut impl FnMut(*const u8)) {
    (0..len).step_by(LINE).for_each(|offset| prefetch(first.wrapping_add(offset)));
}
