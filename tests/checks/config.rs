//! Configuration text: any text gives a configuration that tables can be built from, or errors that can be printed.

use flowrail::control::config::Config;
use flowrail::control::publish::{self, Facts};
use flowrail::ids::PortId;

/// `data` is the text of a file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The end of a file is a place too, on the line behind the last.
    let lines = text.split('\n').count();
    match Config::parse(text, "fuzz.toml") {
        Ok(config) => builds(&config),
        Err(report) => {
            assert!(!report.errors.is_empty(), "refused, without saying why");
            for error in &report.errors {
                assert!((1..=lines).contains(&error.line), "line {} of {lines}: {error}", error.line);
            }
            for line in report.to_string().lines() {
                assert!(line.starts_with("fuzz.toml:"), "a line that names no place: {line}");
            }
        }
    }
}

/// Tables exist for every configuration that is right, and hold what it says.
fn builds(config: &Config) {
    let names = config.port_names().count();
    let Ok(facts) = Facts::offline(config) else { return };
    let tables = publish::snapshot(config, &facts);
    for port in 0..names {
        assert!(tables.port(PortId(u16::try_from(port).unwrap())).is_some(), "port {port} has no row");
    }
    for network in &config.networks {
        assert!(tables.network_of(network.vni).is_some(), "network {} has no row", network.name);
    }
}
