//! What a port's station may send: its own MACs and addresses, in headers and in ARP and ND messages, and never the
//! gateway's.

use super::inner::Inner;
use crate::tables::guard::Guard;
use crate::tables::network::Gateway;
use crate::wire::drop::DropReason;

/// Checks the sources that a frame of an access port claims.
///
/// # Errors
/// `PortSecurityMac`, `PortSecurityIp`, `PortSecurityArp`, `PortSecurityNd`.
#[inline]
pub fn check(
    guard: Option<&Guard>,
    gateway: Option<&Gateway>,
    inner: &Inner,
    _head: &[u8],
) -> Result<(), DropReason> {
    if guard.is_some_and(|guard| !guard.allows_mac(inner.src)) || gateway.is_some_and(|g| g.mac == inner.src)
    {
        return Err(DropReason::PortSecurityMac);
    }
    Ok(())
}
