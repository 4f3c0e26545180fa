//! Label sync: copies what an agent observed to spec fields and labels of its Cluster, so that an agent cannot give itself any
//! other label that a policy selects by.
//!
//! What somebody else has set stays: an operator who says where a cluster is knows better than its agent, which may be
//! anybody with an init token. So a field of the spec that an operator has set makes the label, too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::api::crd::cluster::Observed;
use crate::api::labels::{
    API_VERSION, CLUSTER_GROUP, LABEL_NAME, LABEL_PROVIDER, LABEL_REGION, LABEL_VERSION, LABEL_ZONE, SCHEDULER_MANAGER,
};
use crate::api::version::KubeMinor;
use crate::api::{Cluster, ClusterSpec};
use crate::k8s::request::api_error::ApiError;

/// Maximum length of a field of the spec, in characters.
const LONGEST: usize = 63;

/// Returns an observed text as far as the spec takes it: nothing of one with control characters, which an agent wrote
/// before the API server refused them. One that is refused would fail the whole update.
fn sanitize_observed_text(text: &str) -> String {
    if text.chars().any(char::is_control) { String::new() } else { text.to_owned() }
}

/// Returns the fields that are copied.
fn copied_fields(cluster: &Cluster) -> Option<[(&'static str, &'static str, String); 5]> {
    let observed = cluster.status.as_ref()?.observed.as_ref()?;
    let version =
        observed.git_version.parse::<KubeMinor>().map(|v| format!("{}.{}", v.major, v.minor)).unwrap_or_default();
    let (region, zone) = find_region_and_zone(cluster, observed);
    Some([
        ("kubernetesversion", LABEL_VERSION, version),
        ("kubernetescluster", "", sanitize_observed_text(&observed.kubernetescluster)),
        ("provider", LABEL_PROVIDER, sanitize_observed_text(&observed.provider)),
        ("region", LABEL_REGION, region),
        ("zone", LABEL_ZONE, zone),
    ])
}

/// Returns the region and the zone of a cluster. No nodes, or nodes in two zones, say nothing about where it is: what was
/// observed last is kept; of the zone only while no other region is observed, which does not have it.
fn find_region_and_zone(cluster: &Cluster, observed: &Observed) -> (String, String) {
    let spec = &cluster.spec;
    let region = sanitize_observed_text(&observed.region);
    // Zones alone have no maximum length in the status; one that is too long for the spec would fail the whole update.
    let zone = match observed.zones.as_slice() {
        [one] if one.chars().count() <= LONGEST => sanitize_observed_text(one),
        _ => String::new(),
    };
    let region = if region.is_empty() { spec.region.clone() } else { region };
    // An operator's word for the region says nothing of where the zone was observed.
    let is_elsewhere = region != spec.region && is_owned(cluster, &["spec", "region"]);
    let zone = if zone.is_empty() && !is_elsewhere { spec.zone.clone() } else { zone };
    (region, zone)
}

fn value_of<'a>(spec: &'a ClusterSpec, field: &str) -> &'a str {
    match field {
        "kubernetesversion" => &spec.kubernetesversion,
        "kubernetescluster" => &spec.kubernetescluster,
        "provider" => &spec.provider,
        "region" => &spec.region,
        _ => &spec.zone,
    }
}

/// Returns true for a valid label value.
fn fits_label(value: &str) -> bool {
    value.len() <= 63
        && value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.ends_with(|c: char| c.is_ascii_alphanumeric())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns true for a field that was applied here. Any other was set by an operator and is kept.
fn is_owned(cluster: &Cluster, path: &[&str]) -> bool {
    let mut applied = cluster.managed_fields().iter().filter(|entry| {
        let subresource = entry.subresource.as_deref().unwrap_or_default();
        entry.manager.as_deref() == Some(SCHEDULER_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && subresource.is_empty()
    });
    applied.any(|entry| {
        let Some(FieldsV1(fields)) = &entry.fields_v1 else { return false };
        path.iter().try_fold(fields, |fields, name| fields.get(format!("f:{name}"))).is_some()
    })
}

/// Returns the object to apply when spec or labels differ from what was observed. It holds the UID, without which applying
/// it would recreate a deleted Cluster.
pub fn plan_observed_update(cluster: &Cluster) -> Option<Value> {
    let fields = copied_fields(cluster)?;
    let name = cluster.name_any();
    let mut spec = Map::from_iter([("name".to_owned(), json!(name))]);
    let mut labels = BTreeMap::from([(LABEL_NAME, name.clone())]);
    let mut same = cluster.labels().get(LABEL_NAME) == Some(&name) || is_operators_label(cluster, LABEL_NAME);
    for (field, label, value) in fields {
        let is_operators = !value_of(&cluster.spec, field).is_empty() && !is_owned(cluster, &["spec", field]);
        if !is_operators {
            same &= value_of(&cluster.spec, field) == value;
            if !value.is_empty() {
                spec.insert(field.to_owned(), json!(value));
            }
        }
        if !label.is_empty() && !is_operators_label(cluster, label) {
            let said = if is_operators { value_of(&cluster.spec, field).to_owned() } else { value };
            let wanted = fits_label(&said).then_some(said);
            same &= cluster.labels().get(label) == wanted.as_ref();
            labels.extend(wanted.map(|value| (label, value)));
        }
    }
    if same {
        return None;
    }
    Some(json!({
        "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
        "kind": "Cluster",
        "metadata": { "name": name, "uid": cluster.metadata.uid, "labels": labels },
        "spec": spec,
    }))
}

/// Returns whether somebody else has set a label.
fn is_operators_label(cluster: &Cluster, label: &str) -> bool {
    cluster.labels().contains_key(label) && !is_owned(cluster, &["metadata", "labels", label])
}

/// Takes the fields out of an [`plan_observed_update`] that others have set, too, as the answer to it said. The label of such a field has
/// their value.
pub fn leave_out(update: &mut Value, cluster: &Cluster, conflict: &ApiError) {
    for (place, of) in [("/spec", ".spec"), ("/metadata/labels", ".metadata.labels")] {
        if let Some(fields) = update.pointer_mut(place).and_then(Value::as_object_mut) {
            fields.retain(|field, _| !names_field(conflict, &format!("{of}.{field}")));
        }
    }
    let Some(labels) = update.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) else { return };
    for (field, label, _) in copied_fields(cluster).into_iter().flatten() {
        if names_field(conflict, &format!(".spec.{field}")) && labels.remove(label).is_some() {
            let theirs = Some(value_of(&cluster.spec, field)).filter(|value| fits_label(value));
            labels.extend(theirs.map(|value| (label.to_owned(), json!(value))));
        }
    }
}

/// Returns whether a conflict is about a field.
fn names_field(conflict: &ApiError, path: &str) -> bool {
    conflict.causes.iter().any(|cause| cause.field == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ClusterStatus;

    fn cluster(observed: Observed) -> Cluster {
        let mut cluster = Cluster::new("a", ClusterSpec { name: "a".to_owned(), ..ClusterSpec::default() });
        cluster.status = Some(ClusterStatus { observed: Some(observed), ..ClusterStatus::default() });
        cluster
    }

    #[test]
    fn observations_become_spec_and_labels() {
        let update = plan_observed_update(&cluster(Observed {
            git_version: "v1.29.4-gke.100".to_owned(),
            provider: "gce".to_owned(),
            zones: vec!["z1".to_owned(), "z2".to_owned()],
            kubernetescluster: "prod".to_owned(),
            ..Observed::default()
        }))
        .unwrap();
        assert_eq!(
            update["spec"],
            json!({ "name": "a", "kubernetesversion": "1.29", "kubernetescluster": "prod", "provider": "gce" })
        );
        assert_eq!(
            update["metadata"]["labels"],
            json!({ LABEL_NAME: "a", LABEL_VERSION: "1.29", LABEL_PROVIDER: "gce" }),
            "two zones are no zone"
        );
    }

    fn observe_region(region: &str, zones: &[&str]) -> Observed {
        let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        Observed { region: region.to_owned(), zones, ..Observed::default() }
    }

    fn label_entry(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    /// Records who applied fields of a Cluster.
    fn applied(cluster: &mut Cluster, fields: &Value) {
        let entry = json!([{"manager": SCHEDULER_MANAGER, "operation": "Apply", "fieldsV1": fields}]);
        cluster.metadata.managed_fields = serde_json::from_value(entry).unwrap();
    }

    #[test]
    fn nothing_with_control_characters_is_copied() {
        let [provider, region, zone, cluster_name] = ["gce", "eu", "z", "prod"].map(|text| format!("{text}\u{1b}[2J"));
        let update = plan_observed_update(&cluster(Observed {
            provider,
            region,
            zones: vec![zone],
            kubernetescluster: cluster_name,
            ..Observed::default()
        }))
        .unwrap();
        assert_eq!(update["spec"], json!({ "name": "a" }), "the API server would refuse all of it");
    }

    #[test]
    fn nothing_is_written_when_all_is_said() {
        let mut same = cluster(Observed { provider: "gce".to_owned(), ..Observed::default() });
        let update_once = plan_observed_update(&same).unwrap();
        same.spec.provider = "gce".to_owned();
        same.metadata.labels = serde_json::from_value(update_once["metadata"]["labels"].clone()).unwrap();
        assert_eq!(plan_observed_update(&same), None, "whoever set it");
        let labels = json!({format!("f:{LABEL_NAME}"): {}, format!("f:{LABEL_PROVIDER}"): {}});
        applied(&mut same, &json!({"f:spec": {"f:name": {}, "f:provider": {}}, "f:metadata": {"f:labels": labels}}));
        assert_eq!(plan_observed_update(&same), None);
    }

    #[test]
    fn what_an_operator_set_stays() {
        let observed = Observed { provider: "gce".to_owned(), region: "eu-1".to_owned(), ..Observed::default() };
        let mut set = cluster(observed);
        set.spec = ClusterSpec { provider: "aws".to_owned(), zone: "z".to_owned(), ..set.spec };
        set.metadata.labels = Some([label_entry(LABEL_NAME, "a"), label_entry(LABEL_REGION, "us-1")].into());
        let all = plan_observed_update(&set).unwrap();
        assert_eq!(all["spec"], json!({"name": "a", "region": "eu-1"}));
        assert_eq!(all["metadata"]["labels"], json!({LABEL_NAME: "a", LABEL_PROVIDER: "aws", LABEL_ZONE: "z"}));
        set.spec.region = "eu-1".to_owned();
        set.metadata
            .labels
            .as_mut()
            .unwrap()
            .extend([label_entry(LABEL_PROVIDER, "aws"), label_entry(LABEL_ZONE, "z")]);
        assert_eq!(plan_observed_update(&set), None, "applying it would change nothing, again and again");
    }

    #[test]
    fn what_an_operator_set_makes_the_label() {
        let observed = Observed {
            git_version: "v1.29.4".to_owned(),
            provider: "gce".to_owned(),
            region: "eu-1".to_owned(),
            zones: vec!["eu-1-a".to_owned()],
            ..Observed::default()
        };
        let mut set = cluster(observed);
        let labels = json!({format!("f:{LABEL_REGION}"): {}, format!("f:{LABEL_ZONE}"): {}});
        // As it is after the operator's edit: what was applied before is the operator's now, and the labels are ours.
        applied(&mut set, &json!({"f:spec": {"f:provider": {}}, "f:metadata": {"f:labels": labels}}));
        let theirs = ("us-1".to_owned(), "us-1-b".to_owned(), "1.30".to_owned());
        (set.spec.region, set.spec.zone, set.spec.kubernetesversion) = theirs;
        set.spec.provider = "gce".to_owned();
        set.metadata.labels = Some([label_entry(LABEL_REGION, "eu-1"), label_entry(LABEL_ZONE, "eu-1-a")].into());
        let all = plan_observed_update(&set).unwrap();
        assert_eq!(all["spec"], json!({"name": "a", "provider": "gce"}));
        let wanted = json!({LABEL_NAME: "a", LABEL_REGION: "us-1", LABEL_ZONE: "us-1-b", LABEL_VERSION: "1.30",
            LABEL_PROVIDER: "gce"});
        assert_eq!(all["metadata"]["labels"], wanted);
        set.spec.region = "not a label".to_owned();
        let all = plan_observed_update(&set).unwrap();
        assert_eq!(all["metadata"]["labels"].get(LABEL_REGION), None, "the agent's word is no better");
    }

    #[test]
    fn what_was_applied_follows_what_is_observed() {
        let mut set = cluster(Observed { provider: "gce".to_owned(), ..Observed::default() });
        set.spec = ClusterSpec { provider: "aws".to_owned(), region: "r".to_owned(), ..set.spec };
        set.metadata.labels = Some([label_entry(LABEL_NAME, "a"), label_entry(LABEL_ZONE, "z")].into());
        let labels = json!({format!("f:{LABEL_ZONE}"): {}});
        applied(&mut set, &json!({"f:spec": {"f:provider": {}, "f:region": {}}, "f:metadata": {"f:labels": labels}}));
        let update = plan_observed_update(&set).unwrap();
        assert_eq!(
            update["spec"],
            json!({"name": "a", "provider": "gce", "region": "r"}),
            "without nodes nothing is observed of a region"
        );
        let labels = json!({LABEL_NAME: "a", LABEL_PROVIDER: "gce", LABEL_REGION: "r"});
        assert_eq!(update["metadata"]["labels"], labels, "a label that no field of the spec has goes");
    }

    #[test]
    fn a_region_and_a_zone_stay_until_others_are_observed() {
        let mut set = cluster(observe_region("eu-1", &["a"]));
        (set.spec.region, set.spec.zone) = ("eu-1".to_owned(), "a".to_owned());
        set.metadata.labels = Some(
            [label_entry(LABEL_NAME, "a"), label_entry(LABEL_REGION, "eu-1"), label_entry(LABEL_ZONE, "a")].into(),
        );
        let keys = [LABEL_NAME, LABEL_REGION, LABEL_ZONE].map(|key| (format!("f:{key}"), json!({})));
        let labels: Map<String, Value> = keys.into_iter().collect();
        let spec = json!({"f:name": {}, "f:region": {}, "f:zone": {}});
        applied(&mut set, &json!({"f:spec": spec, "f:metadata": {"f:labels": labels}}));
        for (region, zones) in [("eu-1", &["a"][..]), ("", &[]), ("eu-1", &["a", "b"]), ("eu-1", &[])] {
            set.status =
                Some(ClusterStatus { observed: Some(observe_region(region, zones)), ..ClusterStatus::default() });
            assert_eq!(plan_observed_update(&set), None, "{region:?} {zones:?}");
        }
        set.status = Some(ClusterStatus { observed: Some(observe_region("us-1", &["b"])), ..ClusterStatus::default() });
        let update = plan_observed_update(&set).unwrap();
        assert_eq!(update["spec"], json!({"name": "a", "region": "us-1", "zone": "b"}));
        set.status =
            Some(ClusterStatus { observed: Some(observe_region("us-1", &["b", "c"])), ..ClusterStatus::default() });
        let update = plan_observed_update(&set).unwrap();
        assert_eq!(update["spec"], json!({"name": "a", "region": "us-1"}), "its zone of before is none of that region");
        assert_eq!(update["metadata"]["labels"], json!({LABEL_NAME: "a", LABEL_REGION: "us-1"}));
    }

    #[test]
    fn what_others_applied_too_is_left_to_them() {
        let observed = Observed { provider: "gce".to_owned(), region: "eu-1".to_owned(), ..Observed::default() };
        let mut held = cluster(observed);
        held.spec.provider = "aws".to_owned();
        applied(&mut held, &json!({"f:spec": {"f:provider": {}}}));
        let mut update = plan_observed_update(&held).unwrap();
        let causes = [".spec.provider".to_owned(), format!(".metadata.labels.{LABEL_REGION}")]
            .map(|field| json!({"reason": "FieldManagerConflict", "message": "conflict", "field": field}));
        let status = json!({"code": 409, "reason": "Conflict", "message": "m", "details": {"causes": causes}});
        let status = serde_json::from_value(status).unwrap();
        leave_out(&mut update, &held, &ApiError::of_status(&status));
        assert_eq!(update["spec"], json!({"name": "a", "region": "eu-1"}));
        assert_eq!(update["metadata"]["labels"], json!({LABEL_NAME: "a", LABEL_PROVIDER: "aws"}));
    }

    #[test]
    fn a_long_zone_is_omitted() {
        for (length, is_copied) in [(63, true), (64, false)] {
            let zone = "z".repeat(length);
            let observed = Observed { zones: vec![zone.clone()], ..Observed::default() };
            let update = plan_observed_update(&cluster(observed)).unwrap();
            assert_eq!(update["spec"].get("zone"), is_copied.then_some(&json!(zone)), "{length}");
        }
    }

    #[test]
    fn an_invalid_label_is_omitted() {
        let update =
            plan_observed_update(&cluster(Observed { region: "a b\nc".to_owned(), ..Observed::default() })).unwrap();
        assert!(update["metadata"]["labels"].get(LABEL_REGION).is_none());
    }
}
