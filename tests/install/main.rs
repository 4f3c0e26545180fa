//! What a user sees of installing, checking and removing a control plane, on real clusters.
//!
//! The tests share the clusters `host`, `new`, `member-1` and `member-2`, so they run one after another; each begins and ends with a clean
//! cluster.

mod agents;
mod documentation;
mod exposure;
mod failing;
mod faults;
mod killed;
mod lifecycle;
mod limited;
mod member;
mod shells;
mod specification;
mod support;
mod upgrade;
mod without_installer;
