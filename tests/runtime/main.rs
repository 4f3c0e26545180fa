//! `fleet-scheduler` and `fleet-agent` against real API servers: `cargo test --features daemons --test runtime`, as root.

mod applicant;
mod bootstrap;
mod copies;
mod crowd;
mod duplicates;
mod faults;
mod identity;
mod isolation;
mod large;
mod late;
mod membership;
mod nonsense;
mod placing;
mod registration;
mod simulated;
mod subjects;
mod support;
mod suspension;
mod withdrawal;
