//! What a tenant's gateway answers, and what a port's station may claim. `checks::gateway` judges every packet here;
//! etherparse builds them and judges lengths and checksums.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests may fail loudly"
)]

#[expect(dead_code, reason = "these tests need the tenant's host alone")]
#[path = "../checks/mod.rs"]
mod checks;
mod claims;
mod errors;
mod frames;
mod groups;
mod neighbors;
mod ping;
mod properties;
