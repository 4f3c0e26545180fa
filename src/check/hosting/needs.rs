//! What a set of objects takes from the quotas of a namespace.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::api::quantity::{self, Milli};

/// Amounts by the resource names of a ResourceQuota, in thousandths of their units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// By resource, e.g. `requests.cpu`, `pods`, `persistentvolumeclaims`.
    pub amounts: BTreeMap<String, Milli>,
    /// Resources that some containers do not state, with the number of those: a quota on one of them refuses their pods.
    pub unstated: BTreeMap<String, i128>,
    /// The largest request of a container without a limit, by resource, e.g. `cpu`: no default limit may be below it.
    pub unlimited: BTreeMap<String, Milli>,
    /// Pods, one for each workload.
    pub pods: Vec<PodNeeds>,
    /// PersistentVolumeClaims with their sizes.
    pub claims: Vec<(String, Milli)>,
}

/// A pod as its containers ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodNeeds {
    /// Kind and name of its workload.
    pub name: String,
    /// Its containers.
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

const ONE: Milli = 1000;
const STATED: [(&str, &str); 4] =
    [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")];

/// What `objects` take: pods with their requests and limits, claims with their sizes, and the objects themselves, with those
/// that controllers make of them and the Secret that remembers the installation.
pub fn of<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Needs {
    let mut needs = Needs::default();
    needs.add("secrets", ONE);
    for object in objects {
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        match kind {
            "Deployment" => {
                needs.workload(object);
                needs.add("replicasets.apps", ONE);
            }
            "StatefulSet" => {
                needs.workload(object);
                needs.add("controllerrevisions.apps", ONE);
            }
            // One pod at a time.
            "Job" => needs.workload(object),
            "Service" => {
                needs.service(&object["spec"]);
                needs.add("endpoints", ONE);
                needs.add("endpointslices.discovery.k8s.io", ONE);
                continue;
            }
            "PersistentVolumeClaim" => {
                needs.claim(text(&object["metadata"]["name"]).to_owned(), &object["spec"], 1);
                continue;
            }
            _ => {}
        }
        if let Some(kind) = Kind::find(version, kind).filter(|kind| kind.namespaced) {
            let dot = if kind.group.is_empty() { "" } else { "." };
            needs.add(&format!("{}{dot}{}", kind.plural, kind.group), ONE);
        }
    }
    needs
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Needs {
    fn add(&mut self, resource: &str, amount: Milli) {
        *self.amounts.entry(resource.to_owned()).or_default() += amount;
    }

    fn workload(&mut self, object: &Value) {
        let spec = &object["spec"];
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        let replicas = spec["replicas"].as_i64().unwrap_or(1).into();
        let pod = &spec["template"]["spec"];
        self.add("pods", ONE * replicas);
        for (side, resource) in STATED {
            let of = |container: &Value| {
                let stated = &container["resources"][side];
                // A request that is not stated is the limit.
                let stated = if stated[resource].is_null() { &container["resources"]["limits"] } else { stated };
                stated[resource].as_str().and_then(quantity::parse)
            };
            let running: Vec<_> = pod["containers"].as_array().into_iter().flatten().map(of).collect();
            let starting: Vec<_> = pod["initContainers"].as_array().into_iter().flatten().map(of).collect();
            let quota = format!("{side}.{resource}");
            // Of those that start the pod, one runs at a time.
            let starts = i128::from(starting.iter().any(Option::is_none));
            let unstated = running.iter().map(|stated| i128::from(stated.is_none())).sum::<i128>().max(starts);
            if unstated > 0 {
                *self.unstated.entry(quota.clone()).or_default() += unstated * replicas;
            }
            let running: Milli = running.into_iter().flatten().sum();
            let starting = starting.into_iter().flatten().max().unwrap_or_default();
            self.add(&quota, running.max(starting) * replicas);
        }
        for container in ["containers", "initContainers"].iter().filter_map(|list| pod[list].as_array()).flatten() {
            let of =
                |side: &str, resource: &str| container["resources"][side][resource].as_str().and_then(quantity::parse);
            for resource in ["cpu", "memory"] {
                if let (Some(request), None) = (of("requests", resource), of("limits", resource)) {
                    let largest = self.unlimited.entry(resource.to_owned()).or_default();
                    *largest = request.max(*largest);
                }
            }
        }
        for claim in spec["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let claim_name = format!("{} of {name}", text(&claim["metadata"]["name"]));
            self.claim(claim_name, &claim["spec"], replicas);
        }
        let containers = [("initContainers", true), ("containers", false)].into_iter().flat_map(|(list, starts)| {
            pod[list].as_array().into_iter().flatten().map(move |container| ContainerNeeds {
                name: text(&container["name"]).to_owned(),
                starts,
                requests: stated(&container["resources"]["requests"]),
                limits: stated(&container["resources"]["limits"]),
            })
        });
        self.pods.push(PodNeeds { containers: containers.collect(), name });
    }

    fn claim(&mut self, name: String, spec: &Value, count: i128) {
        self.add("persistentvolumeclaims", ONE * count);
        let size = spec["resources"]["requests"]["storage"].as_str().and_then(quantity::parse);
        self.add("requests.storage", size.unwrap_or_default() * count);
        self.claims.push((name, size.unwrap_or_default()));
    }

    fn service(&mut self, spec: &Value) {
        self.add("services", ONE);
        let ports = spec["ports"].as_array().map_or(0, Vec::len);
        let ports = ONE * i128::try_from(ports).unwrap_or_default();
        match spec["type"].as_str() {
            Some("NodePort") => self.add("services.nodeports", ports),
            Some("LoadBalancer") => {
                self.add("services.loadbalancers", ONE);
                if spec["allocateLoadBalancerNodePorts"] != false {
                    self.add("services.nodeports", ports);
                }
            }
            _ => {}
        }
    }
}

/// Amounts of a container, by resource.
fn stated(resources: &Value) -> BTreeMap<String, Milli> {
    let all = resources.as_object().into_iter().flatten();
    all.filter_map(|(resource, amount)| Some((resource.clone(), quantity::parse(amount.as_str()?)?))).collect()
}

/// The resource of a quota in the form in which [`Needs`] has it: `cpu` means `requests.cpu`, `count/pods` means `pods`.
pub(super) fn canonical(resource: &str) -> String {
    match resource {
        "cpu" | "memory" => format!("requests.{resource}"),
        other => other.strip_prefix("count/").unwrap_or(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_claims_and_services_are_counted_as_a_quota_counts_them() {
        let objects = [
            json!({"kind": "StatefulSet", "spec": {"replicas": 3, "template": {"spec": {
                "initContainers": [{"resources": {"requests": {"cpu": "2", "memory": "1Mi"}}}],
                "containers": [{"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}}]}},
                "volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}}),
            json!({"kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{}, {}]}}),
        ];
        let needs = of(&objects);
        let of = |name: &str| needs.amounts[name];
        assert_eq!((of("pods"), of("persistentvolumeclaims")), (3000, 3000));
        assert_eq!(of("requests.cpu"), 6000, "the start takes more than the run");
        assert_eq!(of("requests.memory"), 3 * (64 << 20) * 1000, "the limit stands for a request that is not stated");
        assert_eq!(of("requests.storage"), 3 * (1 << 30) * 1000);
        assert_eq!((of("services.loadbalancers"), of("services.nodeports")), (1000, 2000));
        // Objects by their number, with those of controllers; and the Secret that remembers the installation.
        assert_eq!((of("controllerrevisions.apps"), of("endpoints"), of("secrets")), (1000, 1000, 1000));
        assert_eq!(needs.unstated, [("limits.cpu".to_owned(), 3), ("limits.memory".to_owned(), 3)].into());
        assert_eq!(needs.unlimited, [("cpu".to_owned(), 2000), ("memory".to_owned(), (1 << 20) * 1000)].into());
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
        let amounts = of(&objects).amounts;
        for (resource, amount) in [
            ("secrets", 2000),
            ("configmaps", 1000),
            ("serviceaccounts", 1000),
            ("deployments.apps", 1000),
            ("replicasets.apps", 1000),
            ("jobs.batch", 1000),
            ("pods", 2000),
            ("roles.rbac.authorization.k8s.io", 1000),
            ("networkpolicies.networking.k8s.io", 1000),
        ] {
            assert_eq!(amounts.get(resource), Some(&amount), "{resource}");
        }
        assert!(!amounts.keys().any(|resource| resource.starts_with("clusterroles")), "no quota counts it");
    }

    #[test]
    fn the_names_of_a_quota_are_made_one() {
        assert_eq!(
            ["cpu", "count/pods", "count/deployments.apps"].map(canonical),
            ["requests.cpu", "pods", "deployments.apps"]
        );
    }
}
