//! What an object itself says of its place, for users who may read it and not the state of the control plane.

use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::report::Report;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_TARGET_CLUSTER};
use crate::diagnose::evidence::event_time;
use crate::placement::facts::ObjectKey;

/// Most events that are shown, the last ones.
const MOST_EVENTS: usize = 10;

/// Describes an object by its labels and status, and by its events as far as they can be read.
pub(super) async fn read_own_words(client: &Client, key: &ObjectKey, object: &Value) -> Report {
    // Events about what has no namespace are in this one.
    let namespace = if key.namespace().is_empty() { "default" } else { key.namespace() };
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = events.list(&about).await.map(|list| list.items).unwrap_or_default();
    report_own_words(&key.format_title(), object, events)
}

fn report_own_words(title: &str, object: &Value, mut events: Vec<Event>) -> Report {
    let metadata = &object["metadata"];
    let clusters = metadata["annotations"][ANNOTATION_TARGET_CLUSTERS].as_str();
    let clusters = clusters.or_else(|| metadata["labels"][LABEL_TARGET_CLUSTER].as_str());
    // The scheduler sets it to the newest generation only when every copy has that.
    let observed = object["status"]["observedGeneration"].as_i64();
    let is_observed = observed.is_none_or(|observed| Some(observed) == metadata["generation"].as_i64());
    let headline = match &clusters {
        Some(clusters) => format!("{title} is placed on {}, by its label", clusters.replace(',', ", ")),
        None => format!("{title} has no label that names a cluster"),
    };
    events.sort_by_key(event_time);
    let first = events.len().saturating_sub(MOST_EVENTS);
    let events = events.into_iter().skip(first);
    Report {
        object: title.to_owned(),
        headline: Some(headline),
        placed: clusters.is_some(),
        applied: clusters.is_some() && is_observed,
        why: events
            .filter_map(|one| Some(format!("event {}: {}", one.reason?, one.message.unwrap_or_default())))
            .collect(),
        notes: vec![
            "you may not read the copies of other namespaces, so the output shows only the labels and events \
             of the object; the ClusterRoles view and fleet:reader, both bound for the whole control plane, give that \
             right"
                .to_owned(),
        ],
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An event as the scheduler writes it, at a second.
    fn event(reason: &str, message: &str, second: usize) -> Event {
        let time = format!("2026-01-01T00:00:{second:02}.000000Z");
        serde_json::from_value(json!({ "metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
            "eventTime": time }))
        .unwrap()
    }

    #[test]
    fn the_last_events_are_shown() {
        let events = (0..=MOST_EVENTS).rev().map(|second| event("Moving", &second.to_string(), second)).collect();
        let why = report_own_words("Deployment shop/web", &json!({}), events).why;
        assert_eq!((why.len(), why[0].as_str()), (MOST_EVENTS, "event Moving: 1"), "the first one is left out");
    }

    #[test]
    fn the_object_says_where_it_is_and_its_events_say_why() {
        let object = json!({ "metadata": { "name": "web",
            "labels": { LABEL_TARGET_CLUSTER: "2_clusters" },
            "annotations": { ANNOTATION_TARGET_CLUSTERS: "a,b" } } });
        let events = vec![event("Placed", "2 of 2 clusters", 30), event("NotPlaced", "0 of 2 clusters", 20)];
        let report = report_own_words("Deployment shop/web", &object, events);
        assert!(report.placed && report.applied && report.policy.is_none());
        assert_eq!(report.why, ["event NotPlaced: 0 of 2 clusters", "event Placed: 2 of 2 clusters"]);
        let shown = report.format_why_report();
        assert!(shown.starts_with("Deployment shop/web is placed on a, b, by its label.\n"), "{shown}");
        let mut edited = object;
        edited["metadata"]["generation"] = json!(2);
        edited["status"] = json!({ "observedGeneration": 1 });
        assert!(!report_own_words("Deployment shop/web", &edited, Vec::new()).applied, "not every copy has the edit");
        let without = json!({ "metadata": { "name": "web" } });
        assert!(!report_own_words("Deployment shop/web", &without, Vec::new()).placed);
    }
}
