//! Kubeconfigs, from the text to a client, and entries merged into them.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::kubeconfig(data));
