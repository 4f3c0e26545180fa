//! Objects that pods name and that are not placed where the pods are.

use super::facts::{Facts, ObjectKey, Reference};

/// An object that is missing in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The object whose pods name it.
    pub user: ObjectKey,
    /// Object that they name.
    pub reference: Reference,
    /// The cluster.
    pub cluster: String,
}

/// Returns what the pods of these objects name and `is_placed` does not find in the cluster. It is a report: who may have made
/// such an object there by hand is not asked.
pub fn find_missing_dependencies<'a>(
    objects: impl IntoIterator<Item = &'a Facts>,
    cluster: &str,
    is_placed: impl Fn(&ObjectKey) -> bool,
) -> Vec<Missing> {
    let missing =
        objects.into_iter().flat_map(|facts| facts.references.iter().map(move |reference| (facts, reference)));
    let missing = missing.filter(|(facts, reference)| !is_placed(&reference.object_key(facts.key.namespace())));
    missing
        .map(|(facts, reference)| Missing {
            user: facts.key.clone(),
            reference: reference.clone(),
            cluster: cluster.to_owned(),
        })
        .collect()
}
