//! Label sync: copies what an agent observed to spec fields and labels of its Cluster, so that an agent cannot give itself a
//! label that a policy selects by.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::api::labels::{
    API_VERSION, CLUSTER_GROUP, LABEL_NAME, LABEL_PROVIDER, LABEL_REGION, LABEL_VERSION, LABEL_ZONE, SCHEDULER_MANAGER,
};
use crate::api::version::KubeMinor;
use crate::api::{Cluster, ClusterSpec};

/// Maximum length of a field of the spec, in characters.
const LONGEST: usize = 63;

/// Returns the fields that are copied.
fn fields(cluster: &Cluster) -> Option<[(&'static str, &'static str, String); 5]> {
    let observed = cluster.status.as_ref()?.observed.as_ref()?;
    let version =
        observed.git_version.parse::<KubeMinor>().map(|v| format!("{}.{}", v.major, v.minor)).unwrap_or_default();
    // Zones alone have no maximum length in the status; one that is too long for the spec would fail the whole update.
    let zone = match observed.zones.as_slice() {
        [one] if one.chars().count() <= LONGEST => one.clone(),
        _ => String::new(),
    };
    Some([
        ("kubernetesversion", LABEL_VERSION, version),
        ("kubernetescluster", "", observed.kubernetescluster.clone()),
        ("provider", LABEL_PROVIDER, observed.provider.clone()),
        ("region", LABEL_REGION, observed.region.clone()),
        ("zone", LABEL_ZONE, zone),
    ])
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
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && edge(value.chars().next())
        && edge(value.chars().last())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns true for a field that was applied here. One that an operator set is retained when it is not applied, so it is no
/// difference where nothing was observed.
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
pub fn update(cluster: &Cluster) -> Option<Value> {
    let fields = fields(cluster)?;
    let name = cluster.name_any();
    let mut spec = Map::from_iter([("name".to_owned(), json!(name))]);
    let mut labels = BTreeMap::from([(LABEL_NAME, name.clone())]);
    for (field, label, value) in &fields {
        if !value.is_empty() {
            spec.insert((*field).to_owned(), json!(value));
        }
        if !label.is_empty() && fits_label(value) {
            labels.insert(label, value.clone());
        }
    }
    let same_spec = fields.iter().all(|(field, _, value)| {
        value_of(&cluster.spec, field) == value || value.is_empty() && !is_owned(cluster, &["spec", field])
    });
    let owned = [LABEL_NAME, LABEL_PROVIDER, LABEL_REGION, LABEL_ZONE, LABEL_VERSION];
    let same_labels = owned.iter().all(|label| match (cluster.labels().get(*label), labels.get(label)) {
        (Some(_), None) => !is_owned(cluster, &["metadata", "labels", label]),
        (there, wanted) => there == wanted,
    });
    if same_spec && same_labels {
        return None;
    }
    Some(json!({
        "apiVersion": format!("{CLUSTER_GROUP}/{API_VERSION}"),
        "kind": "Cluster",
        "metadata": { "name": name, "uid": cluster.metadata.uid, "labels": labels },
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ClusterStatus;
    use crate::api::cluster::Observed;

    fn cluster(observed: Observed) -> Cluster {
        let mut cluster = Cluster::new("a", ClusterSpec { name: "a".to_owned(), ..ClusterSpec::default() });
        cluster.status = Some(ClusterStatus { observed: Some(observed), ..ClusterStatus::default() });
        cluster
    }

    #[test]
    fn observations_become_spec_and_labels() {
        let update = update(&cluster(Observed {
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

    #[test]
    fn nothing_is_written_when_all_is_said() {
        let mut same = cluster(Observed { provider: "gce".to_owned(), ..Observed::default() });
        let update_once = update(&same).unwrap();
        same.spec.provider = "gce".to_owned();
        same.metadata.labels = serde_json::from_value(update_once["metadata"]["labels"].clone()).unwrap();
        assert_eq!(update(&same), None);
    }

    #[test]
    fn foreign_fields_are_retained() {
        let mut set = cluster(Observed { provider: "gce".to_owned(), ..Observed::default() });
        set.spec = ClusterSpec { provider: "gce".to_owned(), region: "r".to_owned(), ..set.spec };
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels = [label(LABEL_NAME, "a"), label(LABEL_PROVIDER, "gce"), label(LABEL_ZONE, "z")];
        set.metadata.labels = Some(labels.into());
        assert_eq!(update(&set), None, "applying it would change nothing, again and again");
        for fields in
            [json!({"f:spec": {"f:region": {}}}), json!({"f:metadata": {"f:labels": {format!("f:{LABEL_ZONE}"): {}}}})]
        {
            let entry = json!([{"manager": SCHEDULER_MANAGER, "operation": "Apply", "fieldsV1": fields}]);
            set.metadata.managed_fields = serde_json::from_value(entry).unwrap();
            let update = update(&set).unwrap();
            assert_eq!(update["spec"], json!({"name": "a", "provider": "gce"}));
            assert_eq!(update["metadata"]["labels"], json!({LABEL_NAME: "a", LABEL_PROVIDER: "gce"}));
        }
        set.spec.provider = "other".to_owned();
        assert_eq!(update(&set).unwrap()["spec"]["provider"], "gce", "what is observed is always applied");
    }

    #[test]
    fn a_long_zone_is_omitted() {
        let observed = |length| Observed { zones: vec!["z".repeat(length)], ..Observed::default() };
        assert_eq!(update(&cluster(observed(63))).unwrap()["spec"]["zone"], "z".repeat(63));
        assert!(update(&cluster(observed(64))).unwrap()["spec"].get("zone").is_none());
    }

    #[test]
    fn an_invalid_label_is_omitted() {
        let update = update(&cluster(Observed { region: "a b\nc".to_owned(), ..Observed::default() })).unwrap();
        assert!(update["metadata"]["labels"].get(LABEL_REGION).is_none());
    }
}
