//! See `tests/checks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowrail_fuzz::checks::control::arp(data));
