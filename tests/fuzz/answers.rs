//! Answers of an API server: the record and the journal of an installation, what is wrong with objects, and a fleet.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answers(data));
