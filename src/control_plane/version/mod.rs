//! TODO.

pub(super) mod kubernetes_downgrade;
pub(super) mod recorded_minor;
pub(super) mod running_images;
pub mod upgrade;
