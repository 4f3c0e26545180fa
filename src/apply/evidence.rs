//! Reading what a diagnosis needs. What may not be read is left out: a diagnosis then says less, and nothing fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::causes::{Evidence, event_time, worth_reading};
use super::engine::Engine;
use super::kinds::Kind;
use super::object::{ObjectRef, text};
use super::server::{Selection, Server};

/// Older events are of former tries, but for those about Services: whoever makes a load balancer says so once, and may take
/// longer for it.
const EVENT_AGE: SignedDuration = SignedDuration::from_mins(5);
/// How long the logs may take, all of them. A server that cannot reach a node's kubelet answers none of that node.
const LOGS_WITHIN: Duration = Duration::from_secs(3);
/// The lines of a log that are read; fewer are shown.
const LOG_LINES: usize = 24;
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
            evidence.events.extend(events.unwrap_or_default().into_iter().filter(counts));
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

fn counts(event: &Value) -> bool {
    let young = |at: Timestamp| Timestamp::now().duration_since(at) <= EVENT_AGE;
    event_time(event).is_none_or(young) || text(event, "/involvedObject/kind") == Some("Service")
}

/// The last lines of containers that are not ready: of the run that ended before, and of the one at work. What cannot be read
/// at once is left out.
async fn logs(server: &Server, pods: &[Value]) -> BTreeMap<String, Vec<String>> {
    let end = Instant::now() + LOGS_WITHIN;
    let server = &server.until(Some(server.deadline.map_or(end, |deadline| deadline.min(end))));
    let containers = pods.iter().flat_map(|pod| worth_reading(pod).into_iter().map(move |container| (pod, container)));
    let reads = containers.map(|(pod, container)| async move {
        let (namespace, name) = (text(pod, "/metadata/namespace")?, text(pod, "/metadata/name")?);
        let path =
            format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&tailLines={LOG_LINES}");
        let previous = format!("{path}&previous=true");
        // A run that has just begun has not met yet what ended the one before.
        let (now, former) = futures::join!(server.get_text(&path), server.get_text(&previous));
        let text = of_both_runs(former.ok(), now.ok())?;
        let lines = text.lines().map(|line| line.chars().take(LOG_LINE).collect()).collect();
        Some((format!("{namespace}/{name}/{container}"), lines))
    });
    join_all(reads).await.into_iter().flatten().collect()
}

/// What two runs have printed, one after the other. Between runs the server gives the last one for both.
fn of_both_runs(former: Option<String>, now: Option<String>) -> Option<String> {
    match (former, now) {
        (Some(former), Some(now)) if former != now => Some(former + &now),
        (former, now) => former.or(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn old_events_do_not_count_but_for_those_about_services() {
        let about = |kind: &str, minutes: i64| {
            let at = (Timestamp::now() - SignedDuration::from_mins(minutes)).to_string();
            counts(&json!({"involvedObject": {"kind": kind}, "lastTimestamp": at}))
        };
        assert!(about("Pod", 4) && !about("Pod", 6));
        assert!(about("Service", 4) && about("Service", 50));
        assert!(counts(&json!({"involvedObject": {"kind": "Pod"}})), "one that does not say when");
    }

    #[test]
    fn the_log_of_one_run_is_not_told_twice() {
        let log = |text: &str| Some(text.to_owned());
        assert_eq!(of_both_runs(log("a\nb\n"), log("a\n")), log("a\nb\na\n"));
        assert_eq!(of_both_runs(log("a\n"), log("a\n")), log("a\n"));
        assert_eq!(of_both_runs(log("a\n"), None), log("a\n"));
        assert_eq!(of_both_runs(None, log("a\n")), log("a\n"));
        assert_eq!(of_both_runs(None, None), None);
    }
}
