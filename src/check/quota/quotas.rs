//! Objects that the ResourceQuotas of a namespace refuse, as the API server's admission decides it.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt as _;

use super::limits::{format_limit_amount, sum_pod_amounts};
use super::needs::{Amounts, Needs, PodNeeds};
use crate::api::quantity::{self, Milli};

/// A ResourceQuota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaFacts {
    /// Its name.
    pub name: String,
    /// Scopes; the quota counts only the pods to which all of these apply.
    pub scopes: Vec<ScopeFacts>,
    /// Resources that it limits. Some have two names, and may be limited by both.
    pub resources: Vec<ResourceFacts>,
}

/// A scope of a ResourceQuota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScopeFacts {
    /// Its name, e.g. `NotBestEffort`.
    pub name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for the first two operators.
    pub values: Vec<String>,
}

/// A resource that a ResourceQuota limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceFacts {
    /// Its name: `requests.cpu` for `cpu`, `pods` for `count/pods`.
    pub name: String,
    /// The most that is allowed, in thousandths.
    pub hard: Milli,
    /// Amount that is used already, in thousandths.
    pub used: Milli,
}

/// Limit or demand of a quota that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuotaProblem {
    /// The quota with what it leaves or demands.
    pub what: String,
    /// False where something that could not be read would decide.
    pub sure: bool,
}

impl QuotaProblem {
    fn new(quota: &QuotaFacts, what: &str, sure: bool) -> Self {
        Self { what: format!("ResourceQuota {} {what}", quota.name), sure }
    }
}

/// Reads a ResourceQuota.
pub(in crate::check) fn read_quota_facts(quota: &ResourceQuota) -> QuotaFacts {
    let status = quota.status.as_ref();
    let used = status.and_then(|status| status.used.as_ref());
    let hard = status.and_then(|status| status.hard.as_ref());
    let hard = hard.or_else(|| quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()));
    let resources = hard.into_iter().flatten().filter_map(|(resource, hard)| {
        let used = used.and_then(|used| used.get(resource)).and_then(|used| quantity::parse_quantity(&used.0));
        let hard = quantity::parse_quantity(&hard.0)?;
        Some(ResourceFacts { name: canonical_resource(resource), hard, used: used.unwrap_or_default() })
    });
    let spec = quota.spec.as_ref();
    let names = spec.and_then(|spec| spec.scopes.as_ref()).into_iter().flatten();
    let named = names.map(|name| ScopeFacts { name: name.clone(), operator: "Exists".to_owned(), values: Vec::new() });
    let selector = spec.and_then(|spec| spec.scope_selector.as_ref()?.match_expressions.as_ref());
    let selected = selector.into_iter().flatten().map(|expression| ScopeFacts {
        name: expression.scope_name.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    QuotaFacts { name: quota.name_any(), scopes: named.chain(selected).collect(), resources: resources.collect() }
}

/// The resource of a quota under one of its two names: `cpu` means `requests.cpu`, `count/pods` means `pods`.
fn canonical_resource(resource: &str) -> String {
    match resource {
        "cpu" | "memory" | "ephemeral-storage" => format!("requests.{resource}"),
        other => other.strip_prefix("count/").unwrap_or(other).to_owned(),
    }
}

/// Needs that are held against the quotas, and what decides beside them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The objects by number, and the claims.
    pub needs: &'a Needs,
    /// The pods with what LimitRanges state in their place.
    pub pods: &'a [PodNeeds],
    /// The StorageClass of claims that name none.
    pub default_class: Option<&'a str>,
    /// Names of claims that already exist.
    pub claims: &'a [String],
    /// True if what LimitRanges state could not be read.
    pub defaults_unread: bool,
}

/// Returns the limits and requirements of these quotas that the objects do not meet.
pub(super) fn find_quota_problems(quotas: &[QuotaFacts], asked: Asked<'_>) -> Vec<QuotaProblem> {
    let mut found = Vec::new();
    for quota in quotas {
        for resource in &quota.resources {
            found.extend(find_resource_problem(quota, resource, asked));
        }
    }
    found
}

/// Whether a quota counts something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    No,
    Unknown,
    Yes,
}

impl From<bool> for Counts {
    fn from(counts: bool) -> Self {
        if counts { Self::Yes } else { Self::No }
    }
}

fn find_resource_problem(quota: &QuotaFacts, resource: &ResourceFacts, asked: Asked<'_>) -> Option<QuotaProblem> {
    let name = resource.name.as_str();
    let counted: Vec<(&PodNeeds, Counts)> = asked
        .pods
        .iter()
        .map(|pod| (pod, quota.scopes.iter().map(|scope| evaluate_scope(scope, pod)).min().unwrap_or(Counts::Yes)))
        .filter(|(_, counts)| *counts != Counts::No)
        .collect();
    let sure = counted.iter().all(|(_, counts)| *counts == Counts::Yes);
    if let Some((side, of)) = name.split_once('.').filter(|(side, of)| needs_stated_amounts(side, of))
        && let Some((container, pod)) =
            counted.iter().find_map(|(pod, _)| Some((find_unstated_container(pod, side, of)?, &pod.name)))
    {
        let what = format!("requires {name} for every container, and container {container} of {pod} does not set it");
        return Some(if asked.defaults_unread {
            let what = format!("{what}; the LimitRanges, which may set it, could not be read");
            QuotaProblem::new(quota, &what, false)
        } else {
            QuotaProblem::new(quota, &what, sure)
        });
    }
    let pods = counted.iter().map(|(pod, _)| *pod);
    let needed = match name {
        "pods" => pods.map(|pod| pod.replicas * 1000).sum(),
        _ if !quota.scopes.is_empty() => of_pods(name, pods),
        _ => of_claims(name, asked)
            .unwrap_or_else(|| asked.needs.objects.get(name).copied().unwrap_or_default() + of_pods(name, pods)),
    };
    let left = resource.hard - resource.used;
    if needed > 0 && needed > left {
        let unit = name.split_once('.').map_or(name, |(_, of)| of);
        let [left, needed] = [left, needed].map(|amount| format_limit_amount(unit, amount.max(0)));
        return Some(QuotaProblem::new(quota, &format!("has {left} {name} left, {needed} needed"), sure));
    }
    None
}

/// The first container that does not state an amount on which a quota insists.
fn find_unstated_container<'p>(pod: &'p PodNeeds, side: &str, resource: &str) -> Option<&'p String> {
    let unstated = pod.containers.iter().find(|container| {
        let stated = if side == "limits" { &container.limits } else { &container.requests };
        !stated.contains_key(resource)
    });
    unstated.map(|container| &container.name)
}

/// Returns whether a quota on this resource demands that each container states it.
fn needs_stated_amounts(side: &str, of: &str) -> bool {
    ["requests", "limits"].contains(&side) && ["cpu", "memory"].contains(&of)
}

/// Returns the amount that all pods take of a resource such as `limits.cpu`, in thousandths; 0 for a resource of
/// another kind.
fn of_pods<'p>(resource: &str, pods: impl Iterator<Item = &'p PodNeeds>) -> Milli {
    let Some((side, of)) = resource.split_once('.') else { return 0 };
    pods.map(|pod| pod.replicas * sum_side_amounts(pod, side).get(of).copied().unwrap_or_default()).sum()
}

fn sum_side_amounts(pod: &PodNeeds, side: &str) -> Amounts {
    match side {
        "requests" => sum_pod_amounts(&pod.containers, |container| &container.requests),
        "limits" => sum_pod_amounts(&pod.containers, |container| &container.limits),
        _ => Amounts::new(),
    }
}

/// Returns the amount that PersistentVolumeClaims not yet created will take, in thousandths; `None` if a quota's
/// resource is not about claims.
fn of_claims(resource: &str, asked: Asked<'_>) -> Option<Milli> {
    /// Separator between the name of a StorageClass and the resource that is limited of it.
    const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
    let (class, what) = match resource.split_once(OF_CLASS) {
        Some((class, what)) => (Some(class), what),
        None => (None, resource),
    };
    let claims = asked
        .needs
        .claims
        .iter()
        .filter(|claim| class.is_none_or(|class| claim.class.as_deref().or(asked.default_class) == Some(class)));
    let numbered = claims.map(|claim| {
        let number = claim.names.iter().filter(|name| !asked.claims.contains(name)).count();
        (claim, i128::try_from(number).unwrap_or_default())
    });
    match what {
        "persistentvolumeclaims" => Some(numbered.map(|(_, number)| number * 1000).sum()),
        "requests.storage" => Some(numbered.map(|(claim, number)| number * claim.size).sum()),
        _ => None,
    }
}

/// Returns whether a scope applies to pods, which are as LimitRanges leave them.
fn evaluate_scope(scope: &ScopeFacts, pod: &PodNeeds) -> Counts {
    match scope.name.as_str() {
        "Terminating" => pod.deadline.into(),
        "NotTerminating" => (!pod.deadline).into(),
        "BestEffort" => is_best_effort(pod).into(),
        "NotBestEffort" => (!is_best_effort(pod)).into(),
        "CrossNamespacePodAffinity" => pod.across_namespaces.into(),
        // Is about claims, and about those that name such a class.
        "VolumeAttributesClass" => Counts::No,
        // The cluster may have a default one.
        "PriorityClass" if pod.priority_class.is_empty() => Counts::Unknown,
        "PriorityClass" => match scope.operator.as_str() {
            "In" => scope.values.contains(&pod.priority_class).into(),
            "NotIn" => (!scope.values.contains(&pod.priority_class)).into(),
            "Exists" => Counts::Yes,
            _ => Counts::No,
        },
        _ => Counts::Unknown,
    }
}

fn is_best_effort(pod: &PodNeeds) -> bool {
    let mut amounts = pod.containers.iter().flat_map(|container| [&container.requests, &container.limits]);
    !amounts.any(|amounts| ["cpu", "memory"].iter().any(|of| amounts.get(*of).is_some_and(|amount| *amount > 0)))
}

#[cfg(test)]
mod tests {
    use super::super::needs;
    use super::*;
    use serde_json::{Value, json};

    fn quota(spec: Value) -> QuotaFacts {
        read_quota_facts(&serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap())
    }

    fn needed() -> Needs {
        needs::collect_needs(&[
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"}, "spec": {"replicas": 3,
                "template": {"spec": {
                    "initContainers": [{"name": "keys", "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Mi"}}}],
                    "containers": [{"name": "etcd", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}}),
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{}, {}]}}),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "keys"}, "spec": {"template": {"spec": {
                "activeDeadlineSeconds": 60, "priorityClassName": "high", "containers": [{"name": "keys"}]}}}}),
        ])
    }

    fn found(spec: Value, claims: &[&str]) -> Vec<QuotaProblem> {
        let needs = needed();
        let pods = super::super::limits::fill_limit_defaults(&needs.pods, &[]);
        let claims: Vec<String> = claims.iter().map(ToString::to_string).collect();
        let asked =
            Asked { needs: &needs, pods: &pods, default_class: Some("std"), claims: &claims, defaults_unread: false };
        find_quota_problems(&[quota(spec)], asked)
    }

    #[test]
    fn quotas_count_pods_claims_and_objects() {
        let exactly = [
            ("pods", "4"),
            ("count/pods", "4"),
            ("requests.ephemeral-storage", "0"),
            ("persistentvolumeclaims", "3"),
            ("requests.storage", "3Gi"),
            ("std.storageclass.storage.k8s.io/requests.storage", "3Gi"),
            ("other.storageclass.storage.k8s.io/requests.storage", "0"),
            ("services.loadbalancers", "1"),
            ("services.nodeports", "2"),
            ("count/controllerrevisions.apps", "1"),
            ("count/endpointslices.discovery.k8s.io", "1"),
            ("count/jobs.batch", "1"),
        ];
        for (resource, hard) in exactly {
            let more = found(json!({"hard": {resource: hard}}), &[]);
            assert_eq!(more, [], "{resource}");
            if hard != "0" {
                let less = (quantity::parse_quantity(hard).unwrap() / 1000 - 1).to_string();
                assert_eq!(found(json!({"hard": {resource: less}}), &[]).len(), 1, "{resource}: {less}");
            }
        }
        let kept = found(json!({"hard": {"persistentvolumeclaims": "2", "requests.storage": "2Gi"}}), &["data-etcd-1"]);
        assert_eq!(kept, [], "what an uninstall kept is counted already");
    }

    #[test]
    fn each_container_has_to_state_what_a_quota_limits() {
        for (resource, who) in
            [("cpu", "container keys of Job keys"), ("limits.cpu", "container keys of StatefulSet etcd")]
        {
            let problems = found(json!({"hard": {resource: "100"}}), &[]);
            assert!(problems.len() == 1 && problems[0].what.contains(who) && problems[0].sure, "{problems:?}");
        }
    }

    #[test]
    fn both_names_of_a_resource_are_held() {
        let two = quota(json!({"hard": {"cpu": "1", "requests.cpu": "100"}}));
        assert_eq!(two.resources.len(), 2);
    }

    fn find_scoped(scopes: Value, hard: Value) -> Vec<QuotaProblem> {
        found(json!({"hard": hard, "scopes": scopes}), &[])
    }

    #[test]
    fn a_scope_counts_the_pods_that_it_is_about() {
        let problems =
            find_scoped(json!(["NotBestEffort"]), json!({"pods": "2", "requests.cpu": "6", "limits.memory": "192Mi"}));
        assert_eq!(problems.len(), 1, "the Job of best effort does not count: {problems:?}");
        assert!(problems[0].what.contains("has 2 pods left, 3 needed"));
        assert_eq!(find_scoped(json!(["NotTerminating"]), json!({"requests.cpu": "5999m"})).len(), 1);
        assert_eq!(find_scoped(json!(["BestEffort"]), json!({"pods": "0"})).len(), 1);
        assert_eq!(find_scoped(json!(["Terminating", "NotBestEffort"]), json!({"pods": "0"})), []);
        assert_eq!(find_scoped(json!(["CrossNamespacePodAffinity"]), json!({"pods": "0"})), []);
        let expression = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["low"]});
        let unsure = found(json!({"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}}), &[]);
        assert!(unsure.len() == 1 && !unsure[0].sure, "the cluster's default class is not known: {unsure:?}");
    }
}
