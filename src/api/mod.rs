//! The types that every room shares: the custom resources of the control plane's API, and names and versions.

pub mod names;
pub mod version;
