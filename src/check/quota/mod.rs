//! Room that the ResourceQuotas and LimitRanges of a namespace leave for objects that an install makes.

pub mod limits;
pub mod needs;
pub mod quotas;

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::Client;
use kube::api::{Api, ListParams};

use self::limits::LimitFacts;
use self::needs::{Needs, PodNeeds};
use self::quotas::{Asked, QuotaFacts, QuotaProblem};
use super::CheckResult;
use crate::api::rbac::{Right, Scope};
use crate::api::remedy::{Flag, Remedy};
use crate::k8s::describe_error;

/// ResourceQuotas and LimitRanges of a namespace: what it allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Its ResourceQuotas.
    pub quotas: Vec<QuotaFacts>,
    /// Its LimitRanges.
    pub limits: Vec<LimitFacts>,
    /// Reason that the ResourceQuotas could not be read.
    pub quotas_unread: Option<String>,
    /// Reason that the LimitRanges could not be read.
    pub limits_unread: Option<String>,
}

/// Part of an [`Allowance`] that an install takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Needs of the objects that it makes.
    pub needs: Needs,
    /// Pods of workloads that exist and will be replaced.
    pub replaced: Vec<PodNeeds>,
}

/// Facts of the namespace and the cluster that decide beside [`Taken`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// Names of claims that already exist.
    pub claims: &'a [String],
    /// The StorageClass of claims that name none.
    pub default_class: Option<&'a str>,
}

impl Allowance {
    /// Reads what a namespace allows; what may not be read is noted.
    pub async fn from_namespace(client: &Client, namespace: &str) -> Self {
        let all = ListParams::default();
        let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
        let ranges: Api<LimitRange> = Api::namespaced(client.clone(), namespace);
        let (quotas, ranges) = tokio::join!(quotas.list(&all), ranges.list(&all));
        let mut allowance = Self::default();
        match quotas {
            Ok(list) => allowance.quotas = list.iter().map(quotas::read_quota_facts).collect(),
            Err(error) => allowance.quotas_unread = Some(describe_error(&error)),
        }
        match ranges {
            Ok(list) => allowance.limits = limits::read_limit_facts(list),
            Err(error) => allowance.limits_unread = Some(describe_error(&error)),
        }
        allowance
    }

    /// The rights of [`Self::from_namespace`].
    pub(super) fn allowance_rights() -> Vec<Right> {
        [
            Right::optional_rights(Scope::Namespace, "", "resourcequotas", &["list"]),
            Right::optional_rights(Scope::Namespace, "", "limitranges", &["list"]),
        ]
        .concat()
    }

    /// Judges whether an install gets what it takes.
    pub(super) fn evaluate_install(&self, taken: &Taken, place: Place<'_>) -> CheckResult {
        let name = place.namespace;
        let volumes = if taken.needs.claims.is_empty() { "" } else { " or the size of etcd's volume" };
        // LimitRanges are about each pod that is made, quotas about how many there are.
        let made = [&taken.needs.pods[..], &taken.replaced[..]].concat();
        let mut unsure = None;
        for order in limits::list_range_orders(&self.limits) {
            let pods = limits::fill_limit_defaults(&made, &order);
            let contradictions = limits::find_contradictions(&pods);
            if !contradictions.is_empty() {
                let mend = format!(
                    "raise the default limits of the LimitRanges of namespace {name}, or set limits in the `resources` of the components"
                );
                return refuse_install(contradictions, true, mend);
            }
            let limited = limits::find_limit_problems(&self.limits, &pods, &taken.needs.claims);
            if !limited.is_empty() {
                let mend = format!(
                    "change the LimitRanges of namespace {name}, set allowed values in the `resources` of the components{volumes}"
                );
                return refuse_install(limited, true, mend);
            }
            let problems = self.list_quota_refusals(&taken.needs, &pods[..taken.needs.pods.len()], place);
            let mend = format!("raise the quota of namespace {name} (a LimitRange can set default limits)");
            let sure = problems.iter().any(|problem| problem.sure);
            let what: Vec<String> = problems.into_iter().map(|problem| problem.what).collect();
            if sure {
                return refuse_install(what, true, mend);
            }
            if !what.is_empty() {
                unsure = Some(refuse_install(what, false, mend));
            }
        }
        unsure.or_else(|| self.evaluate_rollout(taken, place)).or_else(|| self.report_unread_facts()).unwrap_or_else(
            || {
                let none = self.quotas.is_empty() && self.limits.is_empty();
                CheckResult::Passed(if none { "none" } else { "enough is left" }.to_owned())
            },
        )
    }

    /// What could not be read, and so was not judged.
    fn report_unread_facts(&self) -> Option<CheckResult> {
        let parts =
            [("quotas", "resourcequotas", &self.quotas_unread), ("LimitRanges", "limitranges", &self.limits_unread)];
        let unread = parts.iter().filter_map(|(what, resource, error)| Some((what, resource, error.as_ref()?)));
        let (what, resources): (Vec<String>, Vec<&str>) =
            unread.map(|(what, resource, error)| (format!("{what} could not be listed: {error}"), *resource)).unzip();
        let remedy = format!("allow `list` on {}", resources.join(" and "));
        (!what.is_empty()).then(|| CheckResult::new_warning(what.join("; "), remedy))
    }

    fn list_quota_refusals(&self, needs: &Needs, pods: &[PodNeeds], place: Place<'_>) -> Vec<QuotaProblem> {
        let Place { claims, default_class, .. } = place;
        let asked = Asked { needs, pods, default_class, claims, defaults_unread: self.limits_unread.is_some() };
        quotas::find_quota_problems(&self.quotas, asked)
    }

    /// The quotas that leave no room for the pods that a rolling update makes beside those that run.
    fn evaluate_rollout(&self, taken: &Taken, place: Place<'_>) -> Option<CheckResult> {
        let beside: Vec<PodNeeds> =
            taken.replaced.iter().map(|pod| PodNeeds { replicas: pod.surge, ..pod.clone() }).collect();
        let order = limits::list_range_orders(&self.limits).swap_remove(0);
        let mut found = Vec::new();
        for pod in limits::fill_limit_defaults(&beside, &order) {
            let problems = self.list_quota_refusals(&Needs::default(), std::slice::from_ref(&pod), place).into_iter();
            found.extend(
                problems.map(|problem| format!("{} in addition to the running pods of {}", problem.what, pod.name)),
            );
        }
        let what = if found.is_empty() { return None } else { found.join("; ") };
        let remedy =
            format!("if this install replaces these pods, raise the quota of namespace {} first", place.namespace);
        Some(CheckResult::new_warning(what, remedy))
    }
}

/// Result for an install that a namespace refuses; a warning where that is not sure.
fn refuse_install(problems: Vec<String>, sure: bool, remedy: String) -> CheckResult {
    let remedy = Remedy::new(format!("{remedy}, or choose another namespace with ")).flag(Flag::Namespace(None));
    let what = problems.join("; ");
    if sure { CheckResult::new_failure(what, remedy) } else { CheckResult::new_warning(what, remedy) }
}
