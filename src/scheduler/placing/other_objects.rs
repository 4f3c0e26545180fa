//! Objects of kinds that are not placed, in namespaces of which a policy takes everything: they are counted now and then, and
//! the policy says how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::queue::{Cause, ReconcileRequest};
use super::sources::Change;
use super::store::Store;
use crate::api::kinds::api_version;
use crate::api::placeable::Kinds;
use crate::k8s::describe_error;
use crate::k8s::other_kinds::{OtherKind, discover_other_kinds};
use crate::placement::explain::UnplacedKinds;
use crate::placement::facts::Facts;
use crate::placement::matching::Match;

/// Time between two counts. What is told is for people, who apply and look.
const INTERVAL: Duration = Duration::from_secs(30);

/// Objects of one kind and namespace that have the same labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OtherObjects {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Name of the value that places the kind.
    pub(super) value: &'static str,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) count: usize,
}

/// Counts until nobody receives any more.
pub(super) async fn count_other_objects(client: &Client, placed: Kinds, changes: &Sender<Change>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        match list_other_objects(client, &placed).await {
            Ok(found) => {
                if changes.send(Change::Others(found)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(error = describe_error(&error), "what is not placed was not counted");
            }
        }
    }
}

async fn list_other_objects(client: &Client, placed: &Kinds) -> kube::Result<Vec<OtherObjects>> {
    let mut found = Vec::new();
    // One after the other: nobody waits for it.
    for OtherKind { resource, value } in discover_other_kinds(client, placed).await? {
        let other = OtherKind { resource, value };
        let objects = match other.list_uncontrolled(client, None).await {
            // Served a moment ago, or an extension API server that is not there.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 503 => continue,
            objects => objects?,
        };
        let mut counts: BTreeMap<(String, BTreeMap<String, String>), usize> = BTreeMap::new();
        for metadata in objects {
            let place = (metadata.namespace.unwrap_or_default(), metadata.labels.unwrap_or_default());
            *counts.entry(place).or_default() += 1;
        }
        let resource = &other.resource;
        found.extend(counts.into_iter().map(|((namespace, labels), count)| OtherObjects {
            api_version: api_version(&resource.group, &resource.version),
            kind: resource.kind.clone(),
            value,
            namespace,
            labels,
            count,
        }));
    }
    Ok(found)
}

impl Store {
    /// Records what there is of kinds that are not placed, by the policies that would take it.
    pub(super) fn set_other_objects(&mut self, found: &[OtherObjects], now: Instant) {
        let mut unplaced: BTreeMap<String, UnplacedKinds> = BTreeMap::new();
        for one in found {
            let metadata = json!({ "name": "x", "namespace": one.namespace, "labels": one.labels });
            let manifest = json!({ "apiVersion": one.api_version, "kind": one.kind, "metadata": metadata });
            let Ok(facts) = Facts::from_manifest(&manifest) else { continue };
            let is_placed = self.kinds.find_placeable(facts.key.group(), facts.key.kind()).is_some();
            let labels = self.namespace_labels(&one.namespace);
            if let (false, Match::Policy { policy, .. }) = (is_placed, self.order.match_object(&facts, labels)) {
                let kinds = unplaced.entry(policy.name.clone()).or_default();
                *kinds.entry(one.value).or_default().entry(one.kind.clone()).or_default() += one.count;
            }
        }
        let before = self.unplaced.replace(unplaced).unwrap_or_default();
        let after = self.unplaced.iter().flatten();
        let names: BTreeSet<String> = before.keys().chain(after.map(|(name, _)| name)).cloned().collect();
        for name in names {
            if before.get(&name) != self.unplaced_kinds(&name) {
                self.enqueue(ReconcileRequest::Policy(name), Cause::Review, now);
            }
        }
    }

    /// Returns what there is of kinds that are not placed, which a policy would take; `None` without any.
    pub(super) fn unplaced_kinds(&self, policy: &str) -> Option<&UnplacedKinds> {
        self.unplaced.as_ref()?.get(policy)
    }
}
