//! `fleet-scheduler` and `fleet-agent` against real API servers: `cargo test --test runtime`, as root.

mod bootstrap;
mod support;
