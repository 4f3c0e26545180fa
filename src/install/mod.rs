//! What installs of a control plane and of an agent have in common: the chosen package, the home directory, what
//! containers ask for, how a run tells what it does, how it goes through its stages and how it ends.

pub mod admin_access;
pub mod compare;
pub mod ending;
pub mod home;
pub mod package;
pub mod progress;
pub mod renderable;
pub mod resources;
pub mod run;
pub mod target;
