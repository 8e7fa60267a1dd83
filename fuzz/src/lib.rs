//! The checks of `tests/checks`, shared with the tests of flowrail, for the fuzz targets.

#[path = "../../tests/checks/mod.rs"]
pub mod checks;
