//! From a file of values to objects.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::values(data));
