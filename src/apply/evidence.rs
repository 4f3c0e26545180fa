//! Reading what a diagnosis needs. What may not be read is left out: a diagnosis then says less, and nothing fails.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::causes::{Evidence, event_time, worth_reading};
use super::engine::Engine;
use super::kinds::Kind;
use super::object::{ObjectRef, text};
use super::server::{Selection, Server};

/// Older events are of former tries.
const EVENT_AGE: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);
/// The lines of a log that are shown.
const LOG_LINES: usize = 8;
/// A line of a log that is longer is cut.
const LOG_LINE: usize = 600;

impl Engine {
    /// Reads pods, claims, classes, events and the logs of crashing containers around objects that are not ready.
    pub(crate) async fn evidence<'a>(&self, server: &Server, waiting: impl Iterator<Item = &'a ObjectRef>) -> Evidence {
        let waiting: Vec<&ObjectRef> = waiting.collect();
        let namespaces: BTreeSet<&str> = waiting.iter().filter_map(|object| object.namespace.as_deref()).collect();
        let sets = waiting.iter().any(|object| object.kind == "Deployment");
        let mut evidence = Evidence::default();
        for namespace in namespaces {
            let selector = self.owner.selector();
            let labelled = Selection { namespace: Some(namespace), labels: Some(&selector), ..Selection::default() };
            let all = Selection { namespace: Some(namespace), ..Selection::default() };
            let (pods_kind, events_kind) = (Kind::known("", "Pod"), Kind::known("", "Event"));
            let (sets_kind, claims_kind) =
                (Kind::known("apps", "ReplicaSet"), Kind::known("", "PersistentVolumeClaim"));
            let (pods, claims, events, replica_sets) = futures::join!(
                server.list(&pods_kind, &labelled),
                server.list(&claims_kind, &all),
                server.list(&events_kind, &all),
                async { if sets { server.list(&sets_kind, &labelled).await } else { Ok(Vec::new()) } },
            );
            evidence.pods.extend(pods.unwrap_or_default());
            evidence.claims.extend(claims.unwrap_or_default());
            evidence.events.extend(events.unwrap_or_default().into_iter().filter(is_recent));
            evidence.replica_sets.extend(replica_sets.unwrap_or_default());
        }
        let unbound = evidence.claims.iter().any(|claim| text(claim, "/status/phase") != Some("Bound"));
        if unbound {
            let classes = Kind::known("storage.k8s.io", "StorageClass");
            evidence.classes = server.list(&classes, &Selection::default()).await.ok();
        }
        evidence.logs = logs(server, &evidence.pods).await;
        evidence
    }
}

fn is_recent(event: &Value) -> bool {
    event_time(event)
        .parse::<jiff::Timestamp>()
        .map_or(true, |at| jiff::Timestamp::now().duration_since(at) <= EVENT_AGE)
}

/// The last lines of containers that are not ready: of the run at work, and of the one that ended where that has said
/// nothing yet.
async fn logs(server: &Server, pods: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut logs = BTreeMap::new();
    for pod in pods {
        let (Some(namespace), Some(name)) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name")) else {
            continue;
        };
        for container in worth_reading(pod) {
            let path =
                format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&tailLines={LOG_LINES}");
            let mut text = server.get_text(&path).await;
            if text.as_ref().map_or(true, |text| text.lines().count() < LOG_LINES) {
                let former = server.get_text(&format!("{path}&previous=true")).await;
                text = match (former, text) {
                    (Ok(former), Ok(now)) => Ok(former + &now),
                    (former, now) => now.or(former),
                };
            }
            let Ok(text) = text else { continue };
            let lines = text.lines().map(|line| line.chars().take(LOG_LINE).collect()).collect();
            logs.insert(format!("{namespace}/{name}/{container}"), lines);
        }
    }
    logs
}
