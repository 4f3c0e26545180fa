//! What an install takes over from a control plane that is lost: its keys, and the facts of its record.

use std::collections::BTreeMap;

use super::plan::Plan;
use crate::inventory::{Release, State};
use crate::pki::Files;

/// The control plane that an install builds again.
#[derive(Debug)]
pub struct Origin {
    /// Its keys, of which certificates that are missing are issued.
    pub keys: Files,
    /// Release in its record.
    pub release: Release,
    /// SHA-256 of the backup with its data, which is restored after the install.
    pub archive: String,
}

impl Plan {
    /// The same as an install that builds a lost control plane again.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// Facts of what was installed before: of the record in the cluster, else of the lost control plane.
    pub(super) fn former_facts<'f>(&'f self, state: &'f State) -> Option<&'f BTreeMap<String, String>> {
        let release = state.record.as_ref().map(|record| &record.release);
        release.or_else(|| Some(&self.origin.as_ref()?.release)).map(|release| &release.facts)
    }
}
