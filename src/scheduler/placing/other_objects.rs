//! Objects of kinds that are not placed, in namespaces of which a policy takes everything: they are counted now and then, and
//! the policy says how many there are.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc::Sender;

use crate::api::kinds::api_version;
use crate::api::placeable::Kinds;
use crate::k8s::describe_error;
use crate::k8s::other_kinds::discover_other_kinds;

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
pub(super) async fn count_other_objects<C>(
    client: &Client,
    placed: Kinds,
    changes: &Sender<C>,
    to_change: fn(Vec<OtherObjects>) -> C,
) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        match list_other_objects(client, &placed).await {
            Ok(found) => {
                if changes.send(to_change(found)).await.is_err() {
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
    for other in discover_other_kinds(client, placed).await? {
        let mut counts: BTreeMap<(String, BTreeMap<String, String>), usize> = BTreeMap::new();
        for metadata in other.list_uncontrolled(client, None).await? {
            let place = (metadata.namespace.unwrap_or_default(), metadata.labels.unwrap_or_default());
            *counts.entry(place).or_default() += 1;
        }
        let resource = &other.resource;
        found.extend(counts.into_iter().map(|((namespace, labels), count)| OtherObjects {
            api_version: api_version(&resource.group, &resource.version),
            kind: resource.kind.clone(),
            value: other.value,
            namespace,
            labels,
            count,
        }));
    }
    Ok(found)
}
