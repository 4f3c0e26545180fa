//! Amounts that a set of objects takes from the quotas of a namespace.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::api::quantity::{self, Milli};

/// Amounts by resource, e.g. `cpu`, in thousandths of its unit.
pub(super) type Amounts = BTreeMap<String, Milli>;

/// Amounts that objects take from the quotas of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Objects by the resource that counts them, e.g. `secrets`, `replicasets.apps`, `services.nodeports`; in thousandths.
    pub objects: Amounts,
    /// The pods of each workload.
    pub pods: Vec<PodNeeds>,
    /// PersistentVolumeClaims.
    pub claims: Vec<ClaimNeeds>,
}

/// The pods of a workload as they ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodNeeds {
    /// Kind and name of the workload.
    pub name: String,
    /// Number of the pods.
    pub replicas: i128,
    /// Most pods that a rolling update makes beside them.
    pub surge: i128,
    /// True if they end by themselves (`activeDeadlineSeconds`).
    pub deadline: bool,
    /// Their PriorityClass, empty for the default one of the cluster.
    pub priority_class: String,
    /// True if they ask for the company of pods of other namespaces.
    pub across_namespaces: bool,
    /// The containers of each.
    pub containers: Vec<ContainerNeeds>,
}

/// A container with what it states, by resource, e.g. `cpu`, in thousandths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNeeds {
    /// Its name.
    pub name: String,
    /// True if it starts the pod and ends before the others begin.
    pub starts: bool,
    /// Its requests.
    pub requests: BTreeMap<String, Milli>,
    /// Its limits.
    pub limits: BTreeMap<String, Milli>,
}

/// PersistentVolumeClaims of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimNeeds {
    /// Their name, or the name of their template.
    pub name: String,
    /// The names that they get, where a StatefulSet makes them.
    pub names: Vec<String>,
    /// The size of each, in thousandths of a byte.
    pub size: Milli,
    /// Their StorageClass; `None` is the default one of the cluster.
    pub class: Option<String>,
}

/// Returns the amounts that `objects` take: pods with their requests and limits, claims with their sizes, and the
/// objects themselves, with those that controllers make of them.
pub fn collect_needs<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Needs {
    let mut needs = Needs::default();
    for object in objects {
        let (version, kind) = (text_or_empty(&object["apiVersion"]), text_or_empty(&object["kind"]));
        match kind {
            "Deployment" => {
                needs.add_workload(object);
                needs.add_objects("replicasets.apps", 1);
            }
            "StatefulSet" => {
                needs.add_workload(object);
                needs.add_objects("controllerrevisions.apps", 1);
            }
            // One pod at a time.
            "Job" => needs.add_workload(object),
            "Service" => {
                needs.add_service(&object["spec"]);
                needs.add_objects("endpoints", 1);
                needs.add_objects("endpointslices.discovery.k8s.io", 1);
                continue;
            }
            "PersistentVolumeClaim" => {
                let name = text_or_empty(&object["metadata"]["name"]).to_owned();
                needs.claims.push(volume_claim_needs(name.clone(), vec![name], &object["spec"]));
                continue;
            }
            _ => {}
        }
        if let Some(kind) = Kind::find_known_kind(version, kind).filter(|kind| kind.namespaced) {
            let dot = if kind.group.is_empty() { "" } else { "." };
            needs.add_objects(&format!("{}{dot}{}", kind.plural, kind.group), 1);
        }
    }
    needs
}

fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Needs {
    /// Counts more objects of a kind.
    pub fn add_objects(&mut self, resource: &str, number: usize) {
        *self.objects.entry(resource.to_owned()).or_default() +=
            1000 * i128::try_from(number).unwrap_or(i128::MAX / 1000);
    }

    fn add_workload(&mut self, object: &Value) {
        let pods = PodNeeds::from_workload(object);
        for template in object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let (template_name, set) =
                (text_or_empty(&template["metadata"]["name"]), text_or_empty(&object["metadata"]["name"]));
            let names = (0..pods.replicas).map(|ordinal| format!("{template_name}-{set}-{ordinal}"));
            self.claims.push(volume_claim_needs(
                format!("{template_name} of {}", pods.name),
                names.collect(),
                &template["spec"],
            ));
        }
        self.pods.push(pods);
    }

    fn add_service(&mut self, spec: &Value) {
        self.add_objects("services", 1);
        let ports = spec["ports"].as_array().map_or(0, Vec::len);
        match spec["type"].as_str() {
            Some("NodePort") => self.add_objects("services.nodeports", ports),
            Some("LoadBalancer") => {
                self.add_objects("services.loadbalancers", 1);
                if spec["allocateLoadBalancerNodePorts"] != false {
                    self.add_objects("services.nodeports", ports);
                }
            }
            _ => {}
        }
    }
}

impl PodNeeds {
    /// The pods of a Deployment, StatefulSet or Job.
    pub(super) fn from_workload(workload: &Value) -> Self {
        let spec = &workload["spec"];
        let replicas = spec["replicas"].as_i64().unwrap_or(1).into();
        let pod = &spec["template"]["spec"];
        let containers = [("initContainers", true), ("containers", false)].into_iter().flat_map(|(list, first)| {
            pod[list].as_array().into_iter().flatten().map(move |container| ContainerNeeds {
                name: text_or_empty(&container["name"]).to_owned(),
                // One that goes on beside the others counts as one of them.
                starts: first && container["restartPolicy"] != "Always",
                requests: parse_stated_amounts(&container["resources"]["requests"]),
                limits: parse_stated_amounts(&container["resources"]["limits"]),
            })
        });
        Self {
            name: format!("{} {}", text_or_empty(&workload["kind"]), text_or_empty(&workload["metadata"]["name"])),
            replicas,
            surge: if workload["kind"] == "Deployment" { rollout_surge(&spec["strategy"], replicas) } else { 0 },
            deadline: pod["activeDeadlineSeconds"].is_i64(),
            priority_class: text_or_empty(&pod["priorityClassName"]).to_owned(),
            across_namespaces: ["podAffinity", "podAntiAffinity"]
                .iter()
                .any(|side| names_namespaces(&pod["affinity"][side])),
            containers: containers.collect(),
        }
    }
}

/// Pods that a Deployment makes beside `replicas` of them; a quarter, rounded up, where it says nothing.
fn rollout_surge(strategy: &Value, replicas: i128) -> i128 {
    if strategy["type"] == "Recreate" {
        return 0;
    }
    let percent = match &strategy["rollingUpdate"]["maxSurge"] {
        Value::Number(pods) => return pods.as_i64().unwrap_or(1).into(),
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(25),
        _ => 25,
    };
    (replicas * percent + 99) / 100
}

/// Returns whether a term of an affinity to pods names namespaces.
fn names_namespaces(terms: &Value) -> bool {
    match terms {
        Value::Object(map) => map.iter().any(|(key, inner)| {
            let is_term = matches!(key.as_str(), "namespaceSelector" | "namespaces");
            (is_term && !inner.is_null()) || names_namespaces(inner)
        }),
        Value::Array(list) => list.iter().any(names_namespaces),
        _ => false,
    }
}

fn volume_claim_needs(name: String, names: Vec<String>, spec: &Value) -> ClaimNeeds {
    let size = spec["resources"]["requests"]["storage"].as_str().and_then(quantity::parse_quantity).unwrap_or_default();
    ClaimNeeds { name, names, size, class: spec["storageClassName"].as_str().map(str::to_owned) }
}

/// Amounts of a container, by resource.
fn parse_stated_amounts(resources: &Value) -> Amounts {
    let all = resources.as_object().into_iter().flatten();
    all.filter_map(|(resource, amount)| Some((resource.clone(), quantity::parse_quantity(amount.as_str()?)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn collect_deployment(strategy: Value) -> PodNeeds {
        let object = json!({"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 5, "strategy": strategy,
            "template": {"spec": {
                "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}],
                "containers": [{"name": "a"}]}}}});
        collect_needs(&[object]).pods.remove(0)
    }

    #[test]
    fn pods_are_counted_with_what_a_rolling_update_adds() {
        let pods = collect_deployment(Value::Null);
        assert_eq!((pods.name.as_str(), pods.replicas, pods.surge), ("Deployment a", 5, 2));
        assert_eq!(pods.containers.iter().map(|container| container.starts).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(collect_deployment(json!({"type": "Recreate"})).surge, 0);
        let surges = [json!(0), json!(3), json!("50%")]
            .map(|surge| collect_deployment(json!({"rollingUpdate": {"maxSurge": surge}})).surge);
        assert_eq!(surges, [0, 3, 3]);
    }

    fn crosses_namespaces(term: Value) -> bool {
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let spec = json!({"template": {"spec": {"affinity": affinity}}});
        PodNeeds::from_workload(&json!({"kind": "Deployment", "spec": spec})).across_namespaces
    }

    #[test]
    fn company_of_other_namespaces_is_seen() {
        assert!(!crosses_namespaces(json!({"topologyKey": "zone", "labelSelector": {}})));
        assert!(crosses_namespaces(json!({"topologyKey": "zone", "namespaceSelector": {}})));
    }

    #[test]
    fn objects_are_counted_by_the_names_that_quotas_have_for_them() {
        let object =
            |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        let objects = [
            object("v1", "Secret"),
            object("v1", "ConfigMap"),
            object("v1", "ServiceAccount"),
            object("apps/v1", "Deployment"),
            object("rbac.authorization.k8s.io/v1", "Role"),
            object("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object("networking.k8s.io/v1", "NetworkPolicy"),
            object("batch/v1", "Job"),
        ];
        let needs = collect_needs(&objects);
        let amounts = &needs.objects;
        for (resource, amount) in [
            ("secrets", 1000),
            ("configmaps", 1000),
            ("serviceaccounts", 1000),
            ("deployments.apps", 1000),
            ("replicasets.apps", 1000),
            ("jobs.batch", 1000),
            ("roles.rbac.authorization.k8s.io", 1000),
            ("networkpolicies.networking.k8s.io", 1000),
        ] {
            assert_eq!(amounts.get(resource), Some(&amount), "{resource}");
        }
        assert!(!amounts.keys().any(|resource| resource.starts_with("clusterroles")), "no quota counts it");
        assert_eq!(needs.pods.iter().map(|pods| pods.replicas).sum::<i128>(), 2);
    }
}
