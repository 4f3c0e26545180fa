//! Keys, certificates and kubeconfigs: created once, kept, and issued again only if they are no longer valid.
//!
//! [`Authorities`] contains the keys that a control plane keeps for its lifetime; [`Leaf`] lists the
//! certificates that they issue. An install calls [`ensure_key_set`] to complete an existing set; [`ensure_kept`] does so for the
//! set in a folder. A set is passed as [`Files`]: a flat map from file name to text, which the Secrets of a chart and the
//! folder in `~/.fleet` both hold. Time enters as an argument; nothing here reads a clock.

mod authority;
mod certificate;
mod certificate_lifetime;
mod encryption;
mod ensure;
mod error;
mod files;
mod fingerprint;
mod folder;
mod kept;
mod key_set_facts;
mod kubeconfig;
mod kubeconfig_edit;
mod leaf;
mod placeholder;
mod private_key;
mod san;
pub mod secrets;
#[cfg(test)]
mod tests;

pub use authority::{AUTHORITY_FILES, Authorities, AuthorityKind};
pub use certificate::{CertificateFacts, is_same_authority};
pub use certificate_lifetime::{Lifetimes, RENEW_DAYS};
pub use ensure::{Choice, Completed, Subject, ensure_chosen, ensure_key_set};
pub use error::PkiError;
pub use files::{Files, SecretText};
pub use fingerprint::fingerprint_keys;
pub use folder::{FolderError, read_file, read_folder, write_file, write_folder};
pub use kept::{KeptError, ensure_kept};
pub use key_set_facts::facts_of;
pub use kubeconfig::{Kubeconfig, KubeconfigUser, find_merged_certificate};
pub use kubeconfig_edit::{EditError, Edited, merge_kubeconfig, remove_from_kubeconfig};
pub use leaf::{Leaf, LeafSpec, LeafStore, Renewal, Usage, issue_leaf, still_good};
pub use placeholder::{PLACEHOLDER, placeholder_files};
pub use san::{Endpoint, San};
