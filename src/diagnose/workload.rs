//! Root causes of a wait: pure functions over a snapshot of pods, PVCs and events.
//!
//! Causes are followed in the order of dependency, from the object that waits to its pods, their PVCs and the
//! StorageClass, so that the root is named and not its consequence.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, PersistentVolumeClaim, Pod, Service};
use serde_json::Value;

use super::diagnosis::{CauseId, Diagnosis, Link};
use super::evidence::{Evidence, Finding, Subject, event_message, event_time, events_of, has_reason, is_warning};
use super::kstatus::{State, Status};
use super::pod::{current_termination, ended_before, init_statuses, is_ready, is_running, main_statuses, pod_phase};
use super::typed::{Typed, deserialize_object};
use crate::api::shell::foreign_word;
use crate::k8s::object::{ObjectRef, number_at, object_uid, status_condition, text_at};

/// The root cause of an object that is not current, as far as there is evidence.
pub fn diagnose_object(object: &Value, status: &Status, evidence: &Evidence) -> Option<Diagnosis> {
    let reference = ObjectRef::of(object)?;
    let head = Link { object: reference.clone(), state: status.message.clone() };
    let finding = match reference.kind.as_str() {
        "Pod" => deserialize_object::<Pod>(object).and_then(|pod| super::pod::find_pod_cause(&pod, evidence)),
        "PersistentVolumeClaim" => deserialize_object::<PersistentVolumeClaim>(object)
            .and_then(|pvc| super::pvc::find_pvc_cause(&pvc, evidence)),
        "Service" => deserialize_object::<Service>(object)
            .and_then(|service| super::load_balancer::find_load_balancer_cause(&service, evidence)),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => find_workload_cause(object, evidence),
        _ => None,
    };
    if let Some(finding) = finding {
        // A pod or a PVC is the head of its own chain.
        let chain = if finding.chain.first().is_some_and(|link| link.object == reference) {
            finding.chain
        } else {
            std::iter::once(head).chain(finding.chain).collect()
        };
        let Finding { cause, remedy, logs, grace, .. } = finding;
        return Some(Diagnosis { cause, chain, remedy, logs, grace }.escape_for_output());
    }
    (status.state == State::Failed).then(|| {
        let cause = if reference.kind == "Job" { CauseId::JobFailed } else { CauseId::ControllerGaveUp };
        // The controller goes on with a Deployment after its deadline, and resets the condition once a pod is
        // available: it may be left from an install that ended long ago.
        let goes_on = reference.kind == "Deployment";
        Diagnosis {
            cause,
            grace: if goes_on { None } else { cause.default_grace() },
            remedy: format_describe_remedy(&reference).into(),
            chain: std::iter::once(head).chain(goes_on.then(|| unready_pod(object, evidence)).flatten()).collect(),
            logs: Vec::new(),
        }
        .escape_for_output()
    })
}

/// The diagnosis of an object without a known cause: its first pod that is not ready, with its state; else the events
/// about the object itself, where it has no pods.
pub fn diagnose_slow(object: &Value, status: &Status, evidence: &Evidence) -> Option<Diagnosis> {
    let mut head = Link { object: ObjectRef::of(object)?, state: status.message.clone() };
    let pod = unready_pod(object, evidence);
    if pod.is_none() {
        let texts = event_texts(Subject::from_object(object), evidence);
        if texts.is_empty() || !pods_of(object, evidence).is_empty() {
            return None;
        }
        head.state += &texts;
    }
    let remedy = format_describe_remedy(&pod.as_ref().unwrap_or(&head).object).into();
    let chain = std::iter::once(head).chain(pod).collect();
    let cause = CauseId::Slow;
    Some(Diagnosis { cause, chain, remedy, logs: Vec::new(), grace: cause.default_grace() }.escape_for_output())
}

/// The first pod of a workload that is not ready: its state, the latest event about it, and the latest warning.
fn unready_pod(object: &Value, evidence: &Evidence) -> Option<Link> {
    let pod = pods_of(object, evidence).into_iter().find(|pod| !is_ready(pod))?;
    let state = super::pod::describe_pod_state(pod).to_owned() + &event_texts(pod.event_subject(), evidence);
    Some(Link { object: pod.object_ref()?, state })
}

/// The latest warning that counts about an object or its pods that are not ready.
pub(crate) fn latest_warning<'e>(
    object: &Value,
    evidence: &'e Evidence,
    counts: impl Fn(&Event) -> bool,
) -> Option<&'e Event> {
    let pods = pods_of(object, evidence).into_iter().filter(|pod| !is_ready(pod));
    let of_pods = pods.flat_map(|pod| events_of(pod.event_subject(), evidence));
    let events = events_of(Subject::from_object(object), evidence).chain(of_pods);
    events.filter(|event| is_warning(event) && counts(event)).max_by_key(|event| event_time(event))
}

/// The latest event about an object, and the latest warning, as they are added to its state.
fn event_texts(subject: Subject<'_>, evidence: &Evidence) -> String {
    let latest = events_of(subject, evidence).next();
    let warning = events_of(subject, evidence).find(|event| is_warning(event));
    let events = latest.into_iter().chain(warning.filter(|warning| latest != Some(warning)));
    let texts = events.map(|event| {
        format!("; {}: {}", event.reason.as_deref().unwrap_or_default().trim(), event_message(event).trim())
    });
    texts.collect()
}

/// The remedy that shows an object.
fn format_describe_remedy(object: &ObjectRef) -> String {
    let (kind, name) = (foreign_word(&object.kind.to_lowercase()), foreign_word(&object.name));
    format!("see `kubectl{} describe {kind} {name}`", namespace_flag(object))
}

fn namespace_flag(object: &ObjectRef) -> String {
    object.namespace.as_ref().map_or_else(String::new, |namespace| format!(" -n {}", foreign_word(namespace)))
}

/// Pods that were refused, else the first pod with a cause; causes nearer to the root win over mere consequences.
fn find_workload_cause(object: &Value, evidence: &Evidence) -> Option<Finding> {
    let pods = pods_of(object, evidence);
    let found = pods.iter().filter_map(|pod| super::pod::find_pod_cause(pod, evidence)).min_by_key(finding_order);
    let wanted = number_at(object, "/spec/replicas").or_else(|| number_at(object, "/spec/completions")).unwrap_or(1);
    let refused =
        if i64::try_from(pods.len()).unwrap_or(i64::MAX) < wanted { find_pods_refusal(object, evidence) } else { None };
    // A pod that waits for storage is behind a StatefulSet that cannot create its next pod, never the other way round.
    match (found, refused) {
        (Some(found), Some(refused)) => {
            Some(if finding_order(&found) <= finding_order(&refused) { found } else { refused })
        }
        (found, refused) => found.or(refused),
    }
}

/// The runs of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runs {
    /// The number that have begun.
    pub begun: i32,
    /// The number of these that have ended.
    pub ended: i32,
}

impl Runs {
    fn from_container(container: &ContainerStatus) -> Self {
        let restarts = container.restart_count;
        let (begun, ended) = if is_running(container) {
            (1, 0)
        } else if ended_before(container).is_some() {
            (1, 1)
        } else {
            (0, 0)
        };
        Self { begun: restarts + begun, ended: restarts + ended }
    }
}

/// A container by its pod's UID and its name.
pub(crate) type ContainerKey = (String, String);

/// The runs of a workload's containers, in all its pods that count. Init containers that have succeeded are left out:
/// they keep nothing.
pub(crate) fn container_runs(object: &Value, evidence: &Evidence) -> BTreeMap<ContainerKey, Runs> {
    let mut runs = BTreeMap::new();
    for pod in pods_of(object, evidence) {
        let unfinished = init_statuses(pod)
            .filter(|container| current_termination(container).is_none_or(|ended| ended.exit_code != 0));
        for container in unfinished.chain(main_statuses(pod)) {
            runs.insert((pod.uid().to_owned(), container.name.clone()), Runs::from_container(container));
        }
    }
    runs
}

pub(super) fn finding_order(finding: &Finding) -> (bool, u8) {
    cause_order(finding.cause, finding.grace)
}

/// Lasting causes, those with a grace, before transient ones, and then roots before consequences.
pub(super) fn cause_order(cause: CauseId, grace: Option<Duration>) -> (bool, u8) {
    (grace.is_none(), cause_rank(cause))
}

/// Roots before consequences: storage and placement, then images, then what containers do.
fn cause_rank(cause: CauseId) -> u8 {
    match cause {
        CauseId::NoDefaultStorageClass
        | CauseId::ClaimWithoutClass
        | CauseId::StorageClassMissing
        | CauseId::NoProvisioner
        | CauseId::ProvisioningFailed => 0,
        CauseId::QuotaExceeded | CauseId::PodSecurity | CauseId::PodsRefused => 1,
        CauseId::Unschedulable => 2,
        CauseId::MountFailed | CauseId::ContainerConfig => 3,
        CauseId::ImageNotFound | CauseId::ImageArchitecture | CauseId::ImagePullDenied | CauseId::ImagePullFailed => 4,
        CauseId::NameLookupFailed
        | CauseId::CertificateUntrusted
        | CauseId::CertificateExpired
        | CauseId::VersionGuard => 5,
        CauseId::OutOfMemory | CauseId::CrashLoop => 6,
        CauseId::ComponentFailing => 7,
        CauseId::LoadBalancerUnanswered
        | CauseId::LoadBalancerFailed
        | CauseId::JobFailed
        | CauseId::ControllerGaveUp
        | CauseId::ProbeFailing
        | CauseId::Deleted
        | CauseId::Slow => 8,
    }
}

/// The pods of a workload that count: of the newest ReplicaSet, and neither terminating nor evicted.
fn pods_of<'a>(object: &Value, evidence: &'a Evidence) -> Vec<&'a Pod> {
    let owners: Vec<&str> = if text_at(object, "/kind") == Some("Deployment") {
        newest_replica_set(object, evidence).map(Typed::uid).into_iter().collect()
    } else {
        vec![object_uid(object)]
    };
    let job = text_at(object, "/kind") == Some("Job");
    evidence
        .pods
        .iter()
        .filter(|pod| pod.is_owned_by(&owners) && !pod.is_terminating())
        .filter(|pod| job || !matches!(pod_phase(pod), Some("Failed" | "Succeeded")))
        .collect()
}

fn newest_replica_set<'a>(deployment: &Value, evidence: &'a Evidence) -> Option<&'a ReplicaSet> {
    let owned = evidence.replica_sets.iter().filter(|set| set.is_owned_by(&[object_uid(deployment)]));
    owned.max_by_key(|set| {
        set.annotation("deployment.kubernetes.io/revision").and_then(|revision| revision.parse().ok()).unwrap_or(0_u64)
    })
}

/// Returns the cause of an answer that refuses pods.
pub(super) fn classify_refusal(message: &str) -> CauseId {
    if message.contains("exceeded quota") {
        CauseId::QuotaExceeded
    } else if message.contains("violates PodSecurity") {
        CauseId::PodSecurity
    } else {
        CauseId::PodsRefused
    }
}

/// The refusal of a workload's pods, which were not even created.
fn find_pods_refusal(object: &Value, evidence: &Evidence) -> Option<Finding> {
    let replica_set =
        (text_at(object, "/kind") == Some("Deployment")).then(|| newest_replica_set(object, evidence)).flatten();
    let (own, maker) =
        (ObjectRef::of(object), replica_set.map_or_else(|| Subject::from_object(object), |set| set.event_subject()));
    let failed = status_condition(object, "ReplicaFailure").filter(|c| text_at(c, "/status") == Some("True"));
    let message = events_of(maker, evidence)
        .find(|event| has_reason(event, &["FailedCreate"]))
        .and_then(|event| event.message.as_deref())
        .or_else(|| failed.and_then(|c| text_at(c, "/message")))?;
    let reference = replica_set.map_or_else(|| own.clone(), Typed::object_ref)?;
    let namespace = foreign_word(reference.namespace.as_deref().unwrap_or_default());
    let cause = classify_refusal(message);
    let remedy = match cause {
        CauseId::QuotaExceeded => format!(
            "raise the quota of the namespace or free some of it: `kubectl -n {namespace} describe resourcequota`"
        ),
        CauseId::PodSecurity => format!(
            "the namespace enforces a stricter Pod Security level than these pods meet; see `kubectl get namespace {namespace} --show-labels`"
        ),
        _ => "the API server or a webhook refuses the pods for the reason above".to_owned(),
    };
    let link = Link { object: reference.clone(), state: format!("cannot create its pods: {message}") };
    // The head of the chain is the workload itself: name it once.
    let finding = Finding::new(cause, link, remedy);
    if own.is_some_and(|own| own == reference) {
        let link = Link {
            object: ObjectRef { group: String::new(), kind: "Pod".to_owned(), namespace: None, name: String::new() },
            state: format!("cannot be created: {message}"),
        };
        return Some(Finding { chain: vec![link], ..finding });
    }
    Some(finding)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::examples;
