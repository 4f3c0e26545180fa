//! Objects that the LimitRanges of a namespace refuse, as the API server's admission decides it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;

use super::needs::{Amounts, ClaimNeeds, ContainerNeeds, PodNeeds};
use crate::api::quantity::{self, Milli};

/// Objects that an item of a LimitRange is about.
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
    /// Objects that it is about.
    pub by: LimitedBy,
    /// The least that may be asked for.
    pub min: Amounts,
    /// The most that may be asked for, which must be stated.
    pub max: Amounts,
    /// The most by which a limit may exceed its request, in thousandths.
    pub ratio: Amounts,
    /// Limits of containers that state none.
    pub default: Amounts,
    /// Requests of containers that state none.
    pub default_request: Amounts,
}

/// Reads LimitRanges, in the order of their names, in which the API server is most likely to take them.
pub fn read_limit_facts(ranges: impl IntoIterator<Item = LimitRange>) -> Vec<LimitFacts> {
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
                min: parse_range_amounts(item.min),
                max: parse_range_amounts(item.max),
                ratio: parse_range_amounts(item.max_limit_request_ratio),
                default: parse_range_amounts(item.default),
                default_request: parse_range_amounts(item.default_request),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn parse_range_amounts(given: Option<BTreeMap<String, Quantity>>) -> Amounts {
    let given = given.unwrap_or_default().into_iter();
    given.filter_map(|(resource, amount)| Some((resource, quantity::parse_quantity(&amount.0)?))).collect()
}

/// Number of LimitRanges with defaults up to which every order is tried, because the API server applies them in an
/// undefined order.
const MOST_TRIED: usize = 4;

/// The orders in which the API server may take LimitRanges. Only those that state defaults make a difference; where these are
/// many, they are taken by their names, and backwards.
pub(super) fn list_range_orders(ranges: &[LimitFacts]) -> Vec<Vec<&LimitFacts>> {
    let mut names: Vec<&str> = Vec::new();
    for range in ranges.iter().filter(|range| !(range.default.is_empty() && range.default_request.is_empty())) {
        if !names.contains(&range.name.as_str()) {
            names.push(&range.name);
        }
    }
    let orders = if names.len() <= MOST_TRIED {
        permute_names(&names)
    } else {
        vec![names.clone(), names.iter().rev().copied().collect()]
    };
    let sorted = orders.iter().map(|order| {
        let mut all: Vec<&LimitFacts> = ranges.iter().collect();
        all.sort_by_key(|range| order.iter().position(|name| *name == range.name));
        all
    });
    sorted.collect()
}

fn permute_names<'n>(names: &[&'n str]) -> Vec<Vec<&'n str>> {
    if names.is_empty() {
        return vec![Vec::new()];
    }
    let all = (0..names.len()).flat_map(|first| {
        let mut others = names.to_vec();
        let name = others.remove(first);
        permute_names(&others).into_iter().map(move |rest| [vec![name], rest].concat())
    });
    all.collect()
}

/// Pods with the defaults of LimitRanges, applied in this order, for containers without requests or limits.
pub(super) fn fill_limit_defaults(pods: &[PodNeeds], ranges: &[&LimitFacts]) -> Vec<PodNeeds> {
    let filled = pods.iter().map(|pod| {
        let containers = pod.containers.iter().map(|container| with_defaults(container, ranges)).collect();
        PodNeeds { containers, ..pod.clone() }
    });
    filled.collect()
}

/// Containers whose request exceeds the default limit of a LimitRange: such a pod is invalid.
pub(super) fn find_contradictions(pods: &[PodNeeds]) -> Vec<String> {
    let mut found = Vec::new();
    for pod in pods {
        for container in &pod.containers {
            for (resource, request) in &container.requests {
                let Some(limit) = container.limits.get(resource).filter(|limit| *limit < request) else { continue };
                let (limit, request) = (format_limit_amount(resource, *limit), format_limit_amount(resource, *request));
                found.push(format!(
                    "a LimitRange sets a {resource} limit of {limit} for container {} of {}, which requests {request}",
                    container.name, pod.name
                ));
            }
        }
    }
    found
}

/// Each way in which LimitRanges refuse pods, with what is [fill_limit_defaults] in, and claims, once, with the value that would pass.
pub(super) fn find_limit_problems(ranges: &[LimitFacts], pods: &[PodNeeds], claims: &[ClaimNeeds]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut note = |range: &LimitFacts, who: &str, problem: String| {
        let text = format!("LimitRange {} {problem} for {who}", range.name);
        if !found.contains(&text) {
            found.push(text);
        }
    };
    for range in ranges {
        match range.by {
            LimitedBy::Container => {
                for pod in pods {
                    for container in &pod.containers {
                        let who = format!("container {} of {}", container.name, pod.name);
                        for problem in find_limit_refusals(range, &container.requests, &container.limits) {
                            note(range, &who, problem);
                        }
                    }
                }
            }
            LimitedBy::Pod => {
                for pod in pods {
                    let requests = sum_pod_amounts(&pod.containers, |container| &container.requests);
                    let limits = sum_pod_amounts(&pod.containers, |container| &container.limits);
                    for problem in find_limit_refusals(range, &requests, &limits) {
                        note(range, &format!("pods of {}", pod.name), problem);
                    }
                }
            }
            LimitedBy::Claim => {
                for claim in claims {
                    let asked = Amounts::from([("storage".to_owned(), claim.size)]);
                    for problem in find_limit_refusals(range, &asked, &asked) {
                        note(range, &format!("PersistentVolumeClaim {}", claim.name), problem);
                    }
                }
            }
        }
    }
    found
}

/// A container with what LimitRanges state in its place. A request that nobody states is the limit.
fn with_defaults(container: &ContainerNeeds, ranges: &[&LimitFacts]) -> ContainerNeeds {
    let mut filled = container.clone();
    // The API server fills in requests from limits that are stated before it comes to LimitRanges.
    fill_missing_amounts(&mut filled.requests, &filled.limits);
    for range in ranges.iter().filter(|range| range.by == LimitedBy::Container) {
        fill_missing_amounts(&mut filled.limits, &range.default);
        fill_missing_amounts(&mut filled.requests, &range.default_request);
    }
    filled
}

fn fill_missing_amounts(amounts: &mut Amounts, defaults: &Amounts) {
    for (resource, amount) in defaults {
        amounts.entry(resource.clone()).or_insert(*amount);
    }
}

/// Amounts of a pod: those of its containers, or of the largest one that starts it.
pub(super) fn sum_pod_amounts(containers: &[ContainerNeeds], of: impl Fn(&ContainerNeeds) -> &Amounts) -> Amounts {
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
pub(super) fn format_limit_amount(resource: &str, amount: Milli) -> String {
    let units: [(&str, Milli); 2] = [("Gi", 1000 << 30), ("Mi", 1000 << 20)];
    let unit = units.into_iter().find(|(_, size)| resource != "cpu" && amount > 0 && amount % size == 0);
    unit.map_or_else(
        || quantity::format_quantity(resource, amount),
        |(suffix, size)| format!("{}{suffix}", amount / size),
    )
}

/// Returns the ways in which an item of a LimitRange refuses these amounts.
fn find_limit_refusals(range: &LimitFacts, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut found = Vec::new();
    for (resource, min) in &range.min {
        let least = format_limit_amount(resource, *min);
        match (requests.get(resource), limits.get(resource)) {
            (None, _) => found.push(format!("requires a {resource} request of at least {least}, but none is set")),
            (Some(request), _) if request < min => {
                found.push(format!(
                    "requires a {resource} request of at least {least}, but {} is requested",
                    format_limit_amount(resource, *request)
                ));
            }
            (_, Some(limit)) if limit < min => {
                found.push(format!(
                    "requires a {resource} limit of at least {least}, but the limit is {}",
                    format_limit_amount(resource, *limit)
                ));
            }
            _ => {}
        }
    }
    for (resource, max) in &range.max {
        let most = format_limit_amount(resource, *max);
        match (requests.get(resource), limits.get(resource)) {
            (_, None) => found.push(format!("requires a {resource} limit of at most {most}, but none is set")),
            (_, Some(limit)) if limit > max => {
                found.push(format!(
                    "allows at most {most} of {resource}, but {} is requested",
                    format_limit_amount(resource, *limit)
                ));
            }
            (Some(request), _) if request > max => {
                found.push(format!(
                    "allows at most {most} of {resource}, but {} is requested",
                    format_limit_amount(resource, *request)
                ));
            }
            _ => {}
        }
    }
    for (resource, ratio) in &range.ratio {
        match (requests.get(resource), limits.get(resource)) {
            (Some(request), Some(limit)) if *request > 0 && limit * 1000 > ratio * request => {
                let (limit, request) = (format_limit_amount(resource, *limit), format_limit_amount(resource, *request));
                let most = quantity::format_quantity("ratio", *ratio);
                found.push(format!(
                    "allows a {resource} limit of at most {most} times the request, but the limit is {limit} and the request {request}"
                ));
            }
            (Some(request), Some(_)) if *request > 0 => {}
            _ => found.push(format!("requires a request and a limit for {resource}, but one of them is not set")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::needs::{self, Needs};
    use super::*;
    use serde_json::json;

    fn range(limits: serde_json::Value) -> Vec<LimitFacts> {
        let range = json!({"metadata": {"name": "floor"}, "spec": {"limits": limits}});
        read_limit_facts([serde_json::from_value(range).unwrap()])
    }

    fn needed() -> Needs {
        needs::collect_needs(&[
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"}, "spec": {
            "template": {"spec": {
                "initContainers": [{"name": "keys", "resources": {"requests": {"cpu": "400m"}}}],
                "containers": [
                    {"name": "etcd", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}},
                    {"name": "side", "resources": {"limits": {"cpu": "200m"}}}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ])
    }

    #[test]
    fn each_item_is_held_against_what_it_is_about() {
        for (limits, expected) in [
            (
                json!([{"type": "Container", "min": {"cpu": "100m"}}]),
                &["cpu request of at least 100m, but 50m is requested for container etcd of StatefulSet etcd"][..],
            ),
            (json!([{"type": "Container", "min": {"cpu": "50m"}}]), &[]),
            (
                json!([{"type": "Container", "max": {"memory": "512Mi"}}]),
                &[
                    "a memory limit of at most 512Mi, but none is set for container keys",
                    "at most 512Mi of memory, but 1Gi is requested for container etcd",
                    "none is set for container side",
                ],
            ),
            // What is stated for those that state nothing counts.
            (json!([{"type": "Container", "max": {"memory": "2Gi"}, "default": {"memory": "2Gi"}}]), &[]),
            (
                json!([{"type": "Container", "min": {"memory": "32Mi"}, "defaultRequest": {"memory": "16Mi"}}]),
                &["but 16Mi is requested for container keys", "but 16Mi is requested for container side"],
            ),
            (
                json!([{"type": "Container", "maxLimitRequestRatio": {"memory": "4"}, "default": {"memory": "1Gi"}, "defaultRequest": {"memory": "1Gi"}}]),
                &["at most 4 times the request, but the limit is 1Gi and the request 64Mi for container etcd"],
            ),
            // The request of the one that starts the pod is more than those of the others together.
            (
                json!([{"type": "Pod", "min": {"cpu": "400m"}, "max": {"cpu": "200m"}}]),
                &[
                    "cpu limit of at least 400m, but the limit is 200m for pods",
                    "at most 200m of cpu, but 400m is requested for pods",
                ],
            ),
            (
                json!([{"type": "PersistentVolumeClaim", "max": {"storage": "512Mi"}}]),
                &["at most 512Mi of storage, but 1Gi is requested for PersistentVolumeClaim data of StatefulSet etcd"],
            ),
            (
                json!([{"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}]),
                &["storage request of at least 2Gi, but 1Gi is requested"],
            ),
            (json!([{"type": "openshift.io/Image", "max": {"storage": "1"}}]), &[]),
        ] {
            let (ranges, needed) = (range(limits.clone()), needed());
            let filled = fill_limit_defaults(&needed.pods, &list_range_orders(&ranges)[0]);
            let found = find_limit_problems(&ranges, &filled, &needed.claims);
            assert_eq!(found.len(), expected.len(), "{limits}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected) && found.starts_with("LimitRange floor "), "{found}");
            }
        }
    }

    fn named_limit_range(name: &str, limits: serde_json::Value) -> LimitRange {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"limits": limits}})).unwrap()
    }

    fn default_cpu_limit(cpu: &str) -> serde_json::Value {
        json!([{"type": "Container", "default": {"cpu": cpu}}])
    }

    #[test]
    fn every_order_of_ranges_with_defaults_is_tried() {
        let ranges = read_limit_facts([
            named_limit_range("b", default_cpu_limit("1")),
            named_limit_range("a", default_cpu_limit("2")),
            named_limit_range("c", json!([{"type": "Container", "max": {"memory": "1Gi"}}])),
        ]);
        let orders = list_range_orders(&ranges);
        let limits: Vec<_> = orders
            .iter()
            .map(|order| fill_limit_defaults(&needed().pods, order)[0].containers[1].limits["cpu"])
            .collect();
        assert_eq!(limits, [2000, 1000], "the first that states it counts, whichever that is");
        assert!(orders.iter().all(|order| order.len() == 3));
        let many = (0..6).map(|number| named_limit_range(&number.to_string(), default_cpu_limit("1")));
        assert_eq!(super::list_range_orders(&read_limit_facts(many)).len(), 2);
    }

    #[test]
    fn a_default_limit_below_a_request_contradicts_it() {
        let pods = fill_limit_defaults(
            &needed().pods,
            &list_range_orders(&range(json!([{"type": "Container", "default": {"cpu": "40m"}}])))[0],
        );
        let found = find_contradictions(&pods);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].contains("a cpu limit of 40m for container etcd of StatefulSet etcd, which requests 50m"));
    }
}
