//! What an object itself says of its place, for users who may read it and not the state of the control plane.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};

use super::report::Report;
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_MATCHING_POLICY, LABEL_TARGET_CLUSTER};
use crate::api::placeable::Placeable;
use crate::cli::connect::request_failed;
use crate::cli::output::error::{CliError, Exit};
use crate::placement::facts::ObjectKey;

/// Most events that are shown, the last ones.
const MOST_EVENTS: usize = 10;

/// Reads the labels, annotations and events of an object.
pub(super) async fn read_own_words(client: &Client, kind: &Placeable, key: &ObjectKey) -> Result<Report, CliError> {
    let api: Api<DynamicObject> = kind.objects_api(client, kind.namespaced.then(|| key.namespace()));
    let title = key.format_title();
    let found = api.get_opt(key.name()).await;
    let found = found.map_err(|error| request_failed(&format!("cannot read {title}"), &error))?;
    let Some(object) = found else {
        return Err(CliError::new(Exit::Failed, "NoSuchObject", format!("there is no {title}"))
            .hint("name its namespace with `--namespace`, and the control plane with `--context`"));
    };
    let events: Api<Event> = Api::namespaced(client.clone(), key.namespace());
    let about = ListParams::default().fields(&format!("involvedObject.uid={}", object.uid().unwrap_or_default()));
    let events = events.list(&about).await.map(|list| list.items).unwrap_or_default();
    Ok(report_own_words(title, &object, events))
}

fn report_own_words(title: String, object: &DynamicObject, mut events: Vec<Event>) -> Report {
    let clusters =
        object.annotations().get(ANNOTATION_TARGET_CLUSTERS).or_else(|| object.labels().get(LABEL_TARGET_CLUSTER));
    let mut report =
        Report { object: title, placed: clusters.is_some(), applied: clusters.is_some(), ..Report::default() };
    report.policy = object.labels().get(LABEL_MATCHING_POLICY).cloned();
    if let Some(clusters) = clusters {
        report.why.push(format!("its label says that it is placed on {}", clusters.replace(',', ", ")));
    }
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    let first = events.len().saturating_sub(MOST_EVENTS);
    report.why.extend(
        events
            .into_iter()
            .skip(first)
            .filter_map(|event| Some(format!("event {}: {}", event.reason?, event.message.unwrap_or_default()))),
    );
    report.notes.push(
        "you may not read the copies of other namespaces, so only what the object itself says is shown; \
         the ClusterRole fleet:reader, bound for the whole control plane, gives that right"
            .to_owned(),
    );
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_object_says_where_it_is_and_its_events_say_why() {
        let object: DynamicObject = serde_json::from_value(json!({ "metadata": { "name": "web",
            "labels": { LABEL_TARGET_CLUSTER: "2_clusters", LABEL_MATCHING_POLICY: "shop" },
            "annotations": { ANNOTATION_TARGET_CLUSTERS: "a,b" } } }))
        .unwrap();
        let event: Event = serde_json::from_value(json!({ "metadata": {}, "involvedObject": {}, "reason": "NotPlaced",
            "message": "0 of 2 clusters" }))
        .unwrap();
        let report = report_own_words("Deployment shop/web".to_owned(), &object, vec![event]);
        assert!(report.placed && report.policy.as_deref() == Some("shop"));
        assert_eq!(report.why, ["its label says that it is placed on a, b", "event NotPlaced: 0 of 2 clusters"]);
        let without: DynamicObject = serde_json::from_value(json!({ "metadata": { "name": "web" } })).unwrap();
        assert!(!report_own_words("Deployment shop/web".to_owned(), &without, Vec::new()).placed);
    }
}
