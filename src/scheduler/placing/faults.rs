//! What keeps an object from being placed as it asks, as reasons and messages of events.

use std::collections::BTreeMap;

use super::store::Store;
use crate::api::first_of::first_of;
use crate::placement::copy::CopyError;
use crate::placement::decide::{Blocked, DirectDecision};
use crate::placement::facts::ObjectKey;

/// Most clusters that a message names.
const NAMED: usize = 5;

/// Objects of which a copy cannot be made, or not everywhere.
pub(super) type CopyFaults = BTreeMap<ObjectKey, CopyError>;

/// Returns the reason of the event that says that a copy cannot be made, and its message.
pub(super) fn copy_fault_reason(fault: &CopyError) -> (&'static str, String) {
    (if fault.is_override() { "OverrideFailed" } else { fault.code() }, fault.to_string())
}

/// Returns the reason and message that say that an annotation does not count here; `None` where that is not so.
pub(super) fn direct_placement_denial(store: &Store, key: &ObjectKey) -> Option<(&'static str, String)> {
    let text = "its annotation names clusters, but in this control plane only policies place objects";
    store.is_denied(key).then(|| ("DirectPlacementDenied", text.to_owned()))
}

/// Returns the reasons that clusters that an annotation names get nothing, each with its message.
pub(super) fn format_blocked_clusters(direct: &DirectDecision) -> BTreeMap<&'static str, String> {
    let mut texts: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (name, why) in &direct.blocked {
        texts.entry(why.code()).or_default().push(match why {
            Blocked::ClusterUnknown => format!("the annotation names {name:?}, but no such cluster exists"),
            Blocked::Fenced(reason) => {
                format!("the annotation names {name:?}, but that cluster accepts no objects: {reason}")
            }
        });
    }
    texts.into_iter().map(|(code, texts)| (code, first_of(texts, NAMED, "; "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::decide::decide_direct;
    use crate::placement::facts::{Facts, SpreadOnto};
    use crate::placement::fleet::Fleet;
    use crate::placement::matching::Direct;

    #[test]
    fn a_message_names_five_clusters_of_a_thousand() {
        let facts = Facts::from_manifest(
            &serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        );
        let clusters = (0..1_000).map(|n| format!("c{n:04}")).collect();
        let direct = Direct::SpreadOnto(SpreadOnto { clusters, duplicate: true });
        let decision = decide_direct(&facts.unwrap(), &direct, &Fleet::default(), &BTreeMap::new());
        let faults = format_blocked_clusters(&decision);
        let message = &faults["ClusterUnknown"];
        let first = (0..5).map(|n| format!("the annotation names \"c{n:04}\", but no such cluster exists"));
        assert_eq!(*message, format!("{}; and 995 more", first.collect::<Vec<_>>().join("; ")));
    }
}
