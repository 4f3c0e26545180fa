//! What the LimitRanges of a namespace refuse, as the API server's admission decides it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;

use super::needs::{ContainerNeeds, Needs};
use crate::api::quantity::{self, Milli};

/// Amounts by resource, e.g. `cpu`, in thousandths.
type Amounts = BTreeMap<String, Milli>;

/// What a LimitRange is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedBy {
    /// Each container.
    Container,
    /// All containers of a pod together.
    Pod,
    /// Each PersistentVolumeClaim.
    Claim,
}

/// One item of a LimitRange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFacts {
    /// Name of the LimitRange.
    pub name: String,
    /// What it is about.
    pub by: LimitedBy,
    /// The least that may be asked for.
    pub min: Amounts,
    /// The most that may be asked for, which has to be stated.
    pub max: Amounts,
    /// The most by which a limit may exceed its request, in thousandths.
    pub ratio: Amounts,
    /// Limits of containers that state none.
    pub default: Amounts,
    /// Requests of containers that state none.
    pub default_request: Amounts,
}

/// Reads LimitRanges, in the order of their names, in which the API server is most likely to take them.
pub fn facts(ranges: impl IntoIterator<Item = LimitRange>) -> Vec<LimitFacts> {
    let amounts = |given: Option<BTreeMap<String, Quantity>>| -> Amounts {
        let given = given.unwrap_or_default().into_iter();
        given.filter_map(|(resource, amount)| Some((resource, quantity::parse(&amount.0)?))).collect()
    };
    let mut found = Vec::new();
    for range in ranges {
        let name = range.name_any();
        for item in range.spec.into_iter().flat_map(|spec| spec.limits) {
            let by = match item.type_.as_str() {
                "Container" => LimitedBy::Container,
                "Pod" => LimitedBy::Pod,
                "PersistentVolumeClaim" => LimitedBy::Claim,
                _ => continue,
            };
            found.push(LimitFacts {
                name: name.clone(),
                by,
                min: amounts(item.min),
                max: amounts(item.max),
                ratio: amounts(item.max_limit_request_ratio),
                default: amounts(item.default),
                default_request: amounts(item.default_request),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Each way in which the pods and claims are refused, once, with the value that would pass.
pub(super) fn problems(ranges: &[LimitFacts], needs: &Needs) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut note = |range: &LimitFacts, who: &str, problem: String| {
        let text = format!("LimitRange {} {problem} for {who}", range.name);
        if !found.contains(&text) {
            found.push(text);
        }
    };
    let pods: Vec<(String, Vec<ContainerNeeds>)> = needs
        .pods
        .iter()
        .map(|pod| {
            (pod.name.clone(), pod.containers.iter().map(|container| with_defaults(container, ranges)).collect())
        })
        .collect();
    for range in ranges {
        match range.by {
            LimitedBy::Container => {
                for (pod, containers) in &pods {
                    for container in containers {
                        let who = format!("the container {} of {pod}", container.name);
                        for problem in refused(range, &container.requests, &container.limits) {
                            note(range, &who, problem);
                        }
                    }
                }
            }
            LimitedBy::Pod => {
                for (pod, containers) in &pods {
                    let requests = together(containers, |container| &container.requests);
                    let limits = together(containers, |container| &container.limits);
                    for problem in refused(range, &requests, &limits) {
                        note(range, &format!("the pods of {pod}"), problem);
                    }
                }
            }
            LimitedBy::Claim => {
                for (claim, size) in &needs.claims {
                    let asked = Amounts::from([("storage".to_owned(), *size)]);
                    for problem in refused(range, &asked, &asked) {
                        note(range, &format!("the PersistentVolumeClaim {claim}"), problem);
                    }
                }
            }
        }
    }
    found
}

/// A container with what LimitRanges state in its place. A request that nobody states is the limit.
fn with_defaults(container: &ContainerNeeds, ranges: &[LimitFacts]) -> ContainerNeeds {
    let mut filled = container.clone();
    let of_request = |limits: &Amounts, requests: &mut Amounts| {
        for (resource, limit) in limits {
            requests.entry(resource.clone()).or_insert(*limit);
        }
    };
    // The API server fills in requests from limits that are stated before it comes to LimitRanges.
    of_request(&filled.limits, &mut filled.requests);
    for range in ranges.iter().filter(|range| range.by == LimitedBy::Container) {
        for (resource, amount) in &range.default {
            filled.limits.entry(resource.clone()).or_insert(*amount);
        }
        of_request(&range.default_request, &mut filled.requests);
    }
    filled
}

/// Amounts of a pod: those of its containers, or of the largest one that starts it.
fn together(containers: &[ContainerNeeds], of: impl Fn(&ContainerNeeds) -> &Amounts) -> Amounts {
    let (mut running, mut starting) = (Amounts::new(), Amounts::new());
    for container in containers {
        for (resource, amount) in of(container) {
            if container.starts {
                let known = starting.entry(resource.clone()).or_default();
                *known = amount.max(known).to_owned();
            } else {
                *running.entry(resource.clone()).or_default() += amount;
            }
        }
    }
    for (resource, amount) in starting {
        let known = running.entry(resource).or_default();
        *known = amount.max(*known);
    }
    running
}

/// An amount as people write it: `512Mi`, not `524288Ki`.
fn print(resource: &str, amount: Milli) -> String {
    let units: [(&str, Milli); 2] = [("Gi", 1000 << 30), ("Mi", 1000 << 20)];
    let unit = units.into_iter().find(|(_, size)| resource != "cpu" && amount > 0 && amount % size == 0);
    unit.map_or_else(|| quantity::print(resource, amount), |(suffix, size)| format!("{}{suffix}", amount / size))
}

/// What an item of a LimitRange refuses of these amounts.
fn refused(range: &LimitFacts, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut found = Vec::new();
    for (resource, min) in &range.min {
        let least = print(resource, *min);
        match (requests.get(resource), limits.get(resource)) {
            (None, _) => found.push(format!("demands a request of at least {least} of {resource}, and there is none")),
            (Some(request), _) if request < min => {
                found.push(format!(
                    "demands at least {least} of {resource}, and {} is asked",
                    print(resource, *request)
                ));
            }
            (_, Some(limit)) if limit < min => {
                found.push(format!(
                    "demands at least {least} of {resource}, and the limit is {}",
                    print(resource, *limit)
                ));
            }
            _ => {}
        }
    }
    for (resource, max) in &range.max {
        let most = print(resource, *max);
        match (requests.get(resource), limits.get(resource)) {
            (_, None) => found.push(format!("demands a limit of at most {most} of {resource}, and there is none")),
            (_, Some(limit)) if limit > max => {
                found.push(format!("allows at most {most} of {resource}, and {} is asked", print(resource, *limit)));
            }
            (Some(request), _) if request > max => {
                found.push(format!("allows at most {most} of {resource}, and {} is asked", print(resource, *request)));
            }
            _ => {}
        }
    }
    for (resource, ratio) in &range.ratio {
        match (requests.get(resource), limits.get(resource)) {
            (Some(request), Some(limit)) if *request > 0 && limit * 1000 > ratio * request => {
                let (limit, request) = (print(resource, *limit), print(resource, *request));
                let most = quantity::print("ratio", *ratio);
                found.push(format!(
                    "allows a limit of {most} times the request of {resource}, and {limit} is one of {request}"
                ));
            }
            (Some(request), Some(_)) if *request > 0 => {}
            _ => found.push(format!("demands a request and a limit of {resource}, and one of them is not stated")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::needs;
    use super::*;
    use serde_json::json;

    fn range(limits: serde_json::Value) -> Vec<LimitFacts> {
        let range = json!({"metadata": {"name": "floor"}, "spec": {"limits": limits}});
        facts([serde_json::from_value(range).unwrap()])
    }

    fn needed() -> Needs {
        needs::of(&[json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"}, "spec": {
            "template": {"spec": {
                "initContainers": [{"name": "keys", "resources": {"requests": {"cpu": "400m"}}}],
                "containers": [
                    {"name": "etcd", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}},
                    {"name": "side", "resources": {"limits": {"cpu": "200m"}}}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}})])
    }

    #[test]
    fn each_item_is_held_against_what_it_is_about() {
        for (limits, expected) in [
            (
                json!([{"type": "Container", "min": {"cpu": "100m"}}]),
                &["at least 100m of cpu, and 50m is asked for the container etcd of StatefulSet etcd"][..],
            ),
            (json!([{"type": "Container", "min": {"cpu": "50m"}}]), &[]),
            (
                json!([{"type": "Container", "max": {"memory": "512Mi"}}]),
                &[
                    "a limit of at most 512Mi of memory, and there is none for the container keys",
                    "at most 512Mi of memory, and 1Gi is asked for the container etcd",
                    "there is none for the container side",
                ],
            ),
            // What is stated for those that state nothing counts.
            (json!([{"type": "Container", "max": {"memory": "2Gi"}, "default": {"memory": "2Gi"}}]), &[]),
            (
                json!([{"type": "Container", "min": {"memory": "32Mi"}, "defaultRequest": {"memory": "16Mi"}}]),
                &["and 16Mi is asked for the container keys", "and 16Mi is asked for the container side"],
            ),
            (
                json!([{"type": "Container", "maxLimitRequestRatio": {"memory": "4"}, "default": {"memory": "1Gi"}, "defaultRequest": {"memory": "1Gi"}}]),
                &["a limit of 4 times the request of memory, and 1Gi is one of 64Mi for the container etcd"],
            ),
            // The request of the one that starts the pod is more than those of the others together.
            (
                json!([{"type": "Pod", "min": {"cpu": "400m"}, "max": {"cpu": "200m"}}]),
                &[
                    "at least 400m of cpu, and the limit is 200m for the pods",
                    "at most 200m of cpu, and 400m is asked for the pods",
                ],
            ),
            (
                json!([{"type": "PersistentVolumeClaim", "max": {"storage": "512Mi"}}]),
                &["at most 512Mi of storage, and 1Gi is asked for the PersistentVolumeClaim data of StatefulSet etcd"],
            ),
            (
                json!([{"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}]),
                &["at least 2Gi of storage, and 1Gi is asked"],
            ),
            (json!([{"type": "openshift.io/Image", "max": {"storage": "1"}}]), &[]),
        ] {
            let found = problems(&range(limits.clone()), &needed());
            assert_eq!(found.len(), expected.len(), "{limits}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected) && found.starts_with("LimitRange floor "), "{found}");
            }
        }
    }
}
