//! What a set of objects takes from the quotas of a namespace.

use std::collections::BTreeMap;

use serde_json::Value;

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
}

const ONE: Milli = 1000;
const STATED: [(&str, &str); 4] =
    [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")];

/// What `objects` take: pods with their requests and limits, claims with their sizes, and the objects themselves.
pub fn of<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Needs {
    let mut needs = Needs::default();
    for object in objects {
        match object["kind"].as_str() {
            Some("Deployment" | "StatefulSet") => needs.workload(&object["spec"]),
            Some("Service") => needs.service(&object["spec"]),
            Some("Secret") => needs.add("secrets", ONE),
            Some("ConfigMap") => needs.add("configmaps", ONE),
            Some("PersistentVolumeClaim") => needs.claim(&object["spec"], 1),
            _ => {}
        }
    }
    needs
}

impl Needs {
    fn add(&mut self, resource: &str, amount: Milli) {
        *self.amounts.entry(resource.to_owned()).or_default() += amount;
    }

    fn workload(&mut self, spec: &Value) {
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
            let name = format!("{side}.{resource}");
            // Of those that start the pod, one runs at a time.
            let starts = i128::from(starting.iter().any(Option::is_none));
            let unstated = running.iter().map(|stated| i128::from(stated.is_none())).sum::<i128>().max(starts);
            if unstated > 0 {
                *self.unstated.entry(name.clone()).or_default() += unstated * replicas;
            }
            let running: Milli = running.into_iter().flatten().sum();
            let starting = starting.into_iter().flatten().max().unwrap_or_default();
            self.add(&name, running.max(starting) * replicas);
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
            self.claim(&claim["spec"], replicas);
        }
    }

    fn claim(&mut self, spec: &Value, count: i128) {
        self.add("persistentvolumeclaims", ONE * count);
        let size = spec["resources"]["requests"]["storage"].as_str().and_then(quantity::parse);
        self.add("requests.storage", size.unwrap_or_default() * count);
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
        assert_eq!(needs.unstated, [("limits.cpu".to_owned(), 3), ("limits.memory".to_owned(), 3)].into());
        assert_eq!(needs.unlimited, [("cpu".to_owned(), 2000), ("memory".to_owned(), (1 << 20) * 1000)].into());
    }

    #[test]
    fn the_names_of_a_quota_are_made_one() {
        assert_eq!(["cpu", "count/pods", "requests.cpu"].map(canonical), ["requests.cpu", "pods", "requests.cpu"]);
    }
}
