//! Arguments of `--set` and its relatives.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::set(data));
