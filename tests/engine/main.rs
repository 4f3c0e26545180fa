//! The engine against a real API server: `cargo bed up api-old`, then `cargo test --test engine`.
//!
//! The server stores, defaults, validates and collects as any other; only no pod ever runs. Each test has its own
//! namespace and installation, so they run side by side. `FLEET_TEST_CLUSTER` names another cluster of the bed.

mod actors;
mod agent_rights;
mod data_retention;
mod foreign_objects;
mod forged;
mod kill;
mod kubeconfigs;
mod lifecycle;
mod locking;
mod quotas;
mod restored;
mod rights;
mod rollback;
mod rollout;
mod rules;
mod sequences;
mod support;
mod traffic;
mod two_agents;
mod waiting;
