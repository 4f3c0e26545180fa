//! `fleet-scheduler` and `fleet-agent` against real API servers: `cargo test --features daemons --test runtime`, as root.

mod applicant;
mod bootstrap;
mod copies;
mod duplicates;
mod faults;
mod flood;
mod hostile_agent;
mod identity;
mod isolation;
mod large;
mod membership;
mod one_cluster;
mod own_token;
mod placing;
mod registration;
mod scale;
mod simulated;
mod source_status;
mod stale_watch;
mod subjects;
mod support;
mod suspension;
mod withdrawal;
