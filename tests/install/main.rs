//! What a user sees of installing, checking and removing a control plane, on real clusters.
//!
//! The tests share the clusters `host` and `new`, so they run one after another; each begins and ends with a clean
//! cluster.

mod exposure;
mod failing;
mod faults;
mod life;
mod support;
mod without_installer;
