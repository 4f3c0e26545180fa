//! The set of a dry run: the same file names as a real one, and no key material.

use super::{AUTHORITY_FILES, Files, Leaf, LeafStore};

/// Text that stands in place of every key and certificate.
pub const PLACEHOLDER: &str = "<generated at install>";

/// A set with the names of a real one and [`PLACEHOLDER`] as every text. It is always the same.
pub fn placeholder_files() -> Files {
    let mut files = Files::new();
    for name in AUTHORITY_FILES {
        files.insert(name, PLACEHOLDER.to_owned());
    }
    for leaf in Leaf::ALL {
        match leaf.leaf_store() {
            LeafStore::Pair { certificate, key } => {
                files.insert(certificate, PLACEHOLDER.to_owned());
                files.insert(key, PLACEHOLDER.to_owned());
            }
            LeafStore::Kubeconfig(name) => files.insert(name, PLACEHOLDER.to_owned()),
        }
    }
    files
}
