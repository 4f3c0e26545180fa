//! Which version may follow which: service lines, Kubernetes minors of the API server, images that run.

pub(super) mod kubernetes_downgrade;
pub(super) mod recorded_minor;
pub(super) mod running_images;
pub mod upgrade;
