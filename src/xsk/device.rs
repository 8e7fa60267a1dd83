//! What a socket set-up must know of a network device: its real number of queues and its driver.

use std::io;

use super::XskError;
use super::sys;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// RX queues in use on `interface`: each needs a socket, as a frame can only be redirected to a socket of its own queue.
///
/// # Errors
/// [`XskError::Interface`] when there is no such interface, [`XskError::Query`] when nobody knows its queues.
pub fn rx_queues(interface: &str) -> Result<u32, XskError> {
    queues(interface, "rx-", |channels| channels.rx.saturating_add(channels.combined))
}

/// TX queues in use on `interface`.
///
/// # Errors
/// As [`rx_queues`].
pub fn tx_queues(interface: &str) -> Result<u32, XskError> {
    queues(interface, "tx-", |channels| channels.tx.saturating_add(channels.combined))
}

/// Name of the driver behind `interface`, such as `mlx5_core` or `veth`.
///
/// # Errors
/// [`XskError::Interface`] when there is no such interface, [`XskError::Query`] when the driver does not say.
pub fn driver_name(interface: &str) -> Result<String, XskError> {
    exists(interface)?;
    let mut info = sys::DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    sys::ethtool(interface, &mut info)
        .map_err(|source| XskError::Query { what: format!("driver of interface {interface}"), source })?;
    let name = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn queues(interface: &str, prefix: &str, count: fn(&sys::Channels) -> u32) -> Result<u32, XskError> {
    exists(interface)?;
    let mut channels = sys::Channels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
    let counted = sys::ethtool(interface, &mut channels).map(|()| count(&channels));
    match counted {
        Ok(queues @ 1..) => Ok(queues),
        // A driver without the request (tun, bridges) still shows its queues in sysfs.
        _ => sysfs_queues(interface, prefix)
            .map_err(|source| XskError::Query { what: format!("queues of interface {interface}"), source }),
    }
}

fn sysfs_queues(interface: &str, prefix: &str) -> io::Result<u32> {
    let mut queues = 0;
    for entry in std::fs::read_dir(format!("/sys/class/net/{interface}/queues"))? {
        if entry?.file_name().to_string_lossy().starts_with(prefix) {
            queues += 1;
        }
    }
    if queues == 0 { Err(io::ErrorKind::Unsupported.into()) } else { Ok(queues) }
}

fn exists(interface: &str) -> Result<(), XskError> {
    sys::interface_index(interface)
        .map(|_| ())
        .map_err(|source| XskError::Interface { interface: interface.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        for result in [rx_queues("fr-none0").map(|_| ()), driver_name("fr-none0").map(|_| ())] {
            let error = result.unwrap_err();
            assert!(matches!(&error, XskError::Interface { interface, .. } if interface == "fr-none0"));
            assert!(error.to_string().contains("fr-none0"), "{error}");
        }
        assert!(rx_queues("name-much-too-long-for-linux").is_err());
        assert!(rx_queues("nul\0byte").is_err());
    }

    #[test]
    fn loopback_has_a_queue_each_way_by_sysfs() {
        assert_eq!(rx_queues("lo").unwrap(), 1);
        assert_eq!(tx_queues("lo").unwrap(), 1);
    }
}
