//! What a user sees of installing, checking and removing a control plane, on real clusters.
//!
//! The tests share the clusters `host`, `host-2`, `current`, `current-2`, `member-1` and `member-2`. Those of one cluster run one after another,
//! the others side by side; each begins and ends with a clean cluster. `--show-output` tells how long each command took.

mod agents;
mod air_gap;
mod backup;
mod current;
mod documentation;
mod exposure;
mod failing;
mod from_helm;
mod ha;
mod keys;
mod killed;
mod lifecycle;
mod limited;
mod member;
mod port_forward;
mod published;
mod restore;
mod seeded;
mod shells;
mod specification;
mod strangers;
mod support;
mod upgrade;
mod without_installer;
