//! Data that does not move along: what an object holds and what its pods mount.

use super::{Facts, ObjectKey};

impl Facts {
    /// Returns the PersistentVolumeClaims that its pods mount by name.
    pub fn mounted_claims(&self) -> impl Iterator<Item = ObjectKey> {
        let claims = self.references.iter().filter(|one| one.kind == "PersistentVolumeClaim");
        claims.map(|one| one.object_key(self.key.namespace()))
    }

    /// Returns whether it contains data, or its pods mount a claim that does.
    pub fn has_volumes(&self) -> bool {
        self.volumes || self.mounted_claims().next().is_some()
    }

    /// Returns whether its data keeps it where it is: it, or a claim that its pods mount, does not say `allow-volume-move`.
    ///
    /// `claim_consents` returns what a claim says; `None` where there is no such object, so that the workload speaks for
    /// it.
    pub fn is_held_by_volumes(&self, claim_consents: impl Fn(&ObjectKey) -> Option<bool>) -> bool {
        let own = self.asks.allow_volume_move;
        self.volumes && !own || self.mounted_claims().any(|claim| !claim_consents(&claim).unwrap_or(own))
    }
}
