//! What an install takes over from a control plane that is lost: its keys, and the facts of its record.

use crate::inventory::Release;
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
