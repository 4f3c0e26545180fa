//! Status of an object against its manifest: a pure function of the live object.
//!
//! The rules follow those of kstatus (sigs.k8s.io/cli-utils) and kubectl's rollout status where these agree, and are
//! stricter where they are early: an object counts only when its controller has observed the generation of our own
//! write, a started Job is not a finished one, and a kind without a rule is unknown.

use serde_json::Value;

use crate::api::kinds::split_api_version;
use crate::k8s::object::{is_terminating, items_at, number_at, status_condition, text_at};

/// The progress of an object towards its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It is what its manifest asks for.
    Current,
    /// Its controller is at work, or has not begun.
    InProgress,
    /// Its controller gave up.
    Failed,
    /// It is being deleted.
    Terminating,
    /// It exists; there is no rule for its kind.
    Unknown,
}

/// A state with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Message, such as `0 of 1 pods ready`.
    pub message: String,
}

impl Status {
    fn new(state: State, message: impl Into<String>) -> Self {
        Self { state, message: message.into() }
    }

    fn new_current(message: impl Into<String>) -> Self {
        Self::new(State::Current, message)
    }

    fn new_in_progress(message: impl Into<String>) -> Self {
        Self::new(State::InProgress, message)
    }

    fn new_failed(message: impl Into<String>) -> Self {
        Self::new(State::Failed, message)
    }

    /// Returns whether a wait for the object is over.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Current | State::Unknown)
    }
}

/// Evaluates a live object. `generation` is that of our own write; a controller that has only observed an earlier one
/// has not reconciled it yet.
pub fn evaluate_status(object: &Value, generation: Option<i64>) -> Status {
    if is_terminating(object) {
        return Status::new(State::Terminating, format_deletion_blockers(object));
    }
    let (group, _) = split_api_version(text_at(object, "/apiVersion").unwrap_or_default());
    let kind = text_at(object, "/kind").unwrap_or_default();
    let wanted = number_at(object, "/metadata/generation").max(generation);
    if let (Some(wanted), Some(observed)) = (wanted, number_at(object, "/status/observedGeneration"))
        && observed < wanted
    {
        return Status::new_in_progress(format!("its controller has not observed generation {wanted} yet"));
    }
    if number_at(object, "/metadata/generation") < generation {
        return Status::new_in_progress("the change is not visible at the API server yet");
    }
    match (group, kind) {
        ("apps", "Deployment") => unobserved_status(object).unwrap_or_else(|| evaluate_deployment(object)),
        ("apps", "StatefulSet") => unobserved_status(object).unwrap_or_else(|| stateful_set(object)),
        ("apps", "DaemonSet") => unobserved_status(object).unwrap_or_else(|| daemon_set(object)),
        ("apps", "ReplicaSet") => unobserved_status(object).unwrap_or_else(|| replica_set(object)),
        ("batch", "Job") => evaluate_job(object),
        ("policy", "PodDisruptionBudget") => unobserved_status(object).unwrap_or_else(|| disruption_budget(object)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => evaluate_crd(object),
        ("apiregistration.k8s.io", "APIService") => by_condition(object, "Available"),
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request(object),
        ("", "Pod") => evaluate_pod(object),
        ("", "PersistentVolumeClaim") => evaluate_pvc(object),
        ("", "PersistentVolume") => evaluate_volume(object),
        ("", "Service") => evaluate_service(object),
        ("", "Namespace") => evaluate_namespace(object),
        // Kinds that are complete when they are stored.
        (
            ""
            | "batch"
            | "autoscaling"
            | "networking.k8s.io"
            | "rbac.authorization.k8s.io"
            | "storage.k8s.io"
            | "coordination.k8s.io"
            | "scheduling.k8s.io"
            | "admissionregistration.k8s.io"
            | "discovery.k8s.io"
            | "node.k8s.io"
            | "flowcontrol.apiserver.k8s.io",
            _,
        ) => Status::new_current("exists"),
        _ => evaluate_custom_resource(object),
    }
}

/// Returns whether objects of a kind become current only after they are stored, so that a wait for them makes sense.
pub fn has_rule(group: &str, kind: &str) -> bool {
    !matches!(
        (group, kind),
        ("", "ConfigMap" | "Secret" | "ServiceAccount" | "ResourceQuota" | "LimitRange" | "Endpoints")
            | ("batch", "CronJob")
            | (
                "autoscaling"
                    | "networking.k8s.io"
                    | "rbac.authorization.k8s.io"
                    | "storage.k8s.io"
                    | "coordination.k8s.io"
                    | "scheduling.k8s.io"
                    | "admissionregistration.k8s.io"
                    | "discovery.k8s.io"
                    | "flowcontrol.apiserver.k8s.io",
                _
            )
    )
}

/// Controllers of these kinds always write the generation they observed; without it they have not reconciled the
/// object.
fn unobserved_status(object: &Value) -> Option<Status> {
    let observed = number_at(object, "/status/observedGeneration");
    observed.is_none().then(|| Status::new_in_progress("its controller has not reported on it yet"))
}

fn status_count(object: &Value, field: &str) -> i64 {
    number_at(object, &format!("/status/{field}")).unwrap_or(0)
}

fn desired_replicas(object: &Value) -> i64 {
    number_at(object, "/spec/replicas").unwrap_or(1)
}

fn is_true(condition: &Value) -> bool {
    text_at(condition, "/status") == Some("True")
}

fn condition_text(condition: &Value) -> String {
    let reason = text_at(condition, "/reason").unwrap_or_default();
    match text_at(condition, "/message").filter(|message| !message.is_empty()) {
        Some(message) if !reason.is_empty() => format!("{reason}: {message}"),
        Some(message) => message.to_owned(),
        None => reason.to_owned(),
    }
}

fn evaluate_deployment(object: &Value) -> Status {
    let wanted = desired_replicas(object);
    let progressing = status_condition(object, "Progressing");
    if let Some(progressing) = progressing.filter(|c| text_at(c, "/reason") == Some("ProgressDeadlineExceeded")) {
        return Status::new_failed(condition_text(progressing));
    }
    let (all, updated, ready, available) = (
        status_count(object, "replicas"),
        status_count(object, "updatedReplicas"),
        status_count(object, "readyReplicas"),
        status_count(object, "availableReplicas"),
    );
    if updated < wanted {
        Status::new_in_progress(format!("{updated} of {wanted} pods updated"))
    } else if all > updated {
        Status::new_in_progress(match all - updated {
            1 => "1 old pod still exists".to_owned(),
            old => format!("{old} old pods still exist"),
        })
    } else if ready < wanted {
        Status::new_in_progress(format!("{ready} of {wanted} pods ready"))
    } else if available < wanted {
        Status::new_in_progress(format!("{available} of {wanted} pods available"))
    } else if status_condition(object, "Available").is_some_and(|c| !is_true(c)) {
        Status::new_in_progress("not available yet")
    } else {
        Status::new_current(format!("{ready} of {wanted} pods ready"))
    }
}

fn stateful_set(object: &Value) -> Status {
    let wanted = desired_replicas(object);
    let (updated, ready) = (status_count(object, "updatedReplicas"), status_count(object, "readyReplicas"));
    let available = number_at(object, "/status/availableReplicas").unwrap_or(ready);
    if text_at(object, "/spec/updateStrategy/type") == Some("OnDelete") {
        return if ready < wanted {
            Status::new_in_progress(format!("{ready} of {wanted} pods ready"))
        } else {
            Status::new_current(format!("{ready} of {wanted} pods ready; pods are replaced only when they are deleted"))
        };
    }
    let partition = number_at(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    if ready < wanted {
        Status::new_in_progress(format!("{ready} of {wanted} pods ready"))
    } else if available < wanted {
        Status::new_in_progress(format!("{available} of {wanted} pods available"))
    } else if status_count(object, "replicas") > wanted {
        Status::new_in_progress(format!("{} pods too many", status_count(object, "replicas") - wanted))
    } else if updated < wanted - partition.min(wanted) {
        Status::new_in_progress(format!("{updated} of {} pods updated", wanted - partition))
    } else if partition == 0 && text_at(object, "/status/currentRevision") != text_at(object, "/status/updateRevision")
    {
        Status::new_in_progress("the rollout of the new revision is not complete")
    } else {
        Status::new_current(format!("{ready} of {wanted} pods ready"))
    }
}

fn daemon_set(object: &Value) -> Status {
    let wanted = status_count(object, "desiredNumberScheduled");
    let (updated, available) =
        (status_count(object, "updatedNumberScheduled"), status_count(object, "numberAvailable"));
    let on_delete = text_at(object, "/spec/updateStrategy/type") == Some("OnDelete");
    if updated < wanted && !on_delete {
        Status::new_in_progress(format!("{updated} of {wanted} pods updated"))
    } else if available < wanted {
        Status::new_in_progress(format!("{available} of {wanted} pods available"))
    } else {
        Status::new_current(format!("{available} of {wanted} pods available"))
    }
}

fn replica_set(object: &Value) -> Status {
    let (wanted, available) = (desired_replicas(object), status_count(object, "availableReplicas"));
    let state = if available < wanted { State::InProgress } else { State::Current };
    Status::new(state, format!("{available} of {wanted} pods available"))
}

fn evaluate_job(object: &Value) -> Status {
    for kind in ["Failed", "FailureTarget"] {
        if let Some(failed) = status_condition(object, kind).filter(|c| is_true(c)) {
            return Status::new_failed(condition_text(failed));
        }
    }
    if status_condition(object, "Complete").is_some_and(is_true) {
        return Status::new_current("complete");
    }
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return Status::new_current("suspended");
    }
    let wanted = number_at(object, "/spec/completions").unwrap_or(1);
    Status::new_in_progress(format!(
        "{} of {wanted} pods succeeded, {} failed",
        status_count(object, "succeeded"),
        status_count(object, "failed")
    ))
}

fn disruption_budget(object: &Value) -> Status {
    let (healthy, wanted) = (status_count(object, "currentHealthy"), status_count(object, "desiredHealthy"));
    let state = if healthy < wanted { State::InProgress } else { State::Current };
    Status::new(state, format!("{healthy} of {wanted} pods healthy"))
}

fn evaluate_crd(object: &Value) -> Status {
    if let Some(refused) = status_condition(object, "NamesAccepted").filter(|c| text_at(c, "/status") == Some("False"))
    {
        return Status::new_failed(condition_text(refused));
    }
    match status_condition(object, "Established") {
        Some(established) if is_true(established) => Status::new_current("established"),
        Some(waiting) => Status::new_in_progress(condition_text(waiting)),
        None => Status::new_in_progress("not established yet"),
    }
}

fn signing_request(object: &Value) -> Status {
    for kind in ["Denied", "Failed"] {
        if let Some(refused) = status_condition(object, kind).filter(|c| text_at(c, "/status") != Some("False")) {
            return Status::new_failed(condition_text(refused));
        }
    }
    if text_at(object, "/status/certificate").is_some_and(|certificate| !certificate.is_empty()) {
        Status::new_current("issued")
    } else if status_condition(object, "Approved").is_some() {
        Status::new_in_progress("approved, not issued yet")
    } else {
        Status::new_in_progress("not approved yet")
    }
}

fn evaluate_pod(object: &Value) -> Status {
    match text_at(object, "/status/phase") {
        Some("Succeeded") => Status::new_current("succeeded"),
        Some("Failed") => Status::new_failed(
            text_at(object, "/status/message")
                .or_else(|| text_at(object, "/status/reason"))
                .unwrap_or("its containers failed"),
        ),
        Some("Running") if status_condition(object, "Ready").is_some_and(is_true) => Status::new_current("ready"),
        Some("Running") => {
            let all = items_at(object, "/status/containerStatuses");
            let ready = all.iter().filter(|c| c.get("ready").and_then(Value::as_bool) == Some(true)).count();
            Status::new_in_progress(format!("{ready} of {} containers ready", all.len()))
        }
        Some(phase) => Status::new_in_progress(phase),
        None => Status::new_in_progress("no kubelet has reported on it yet"),
    }
}

fn evaluate_pvc(object: &Value) -> Status {
    match text_at(object, "/status/phase") {
        Some("Bound") => Status::new_current("bound"),
        Some("Lost") => Status::new_failed("its volume is lost"),
        phase => Status::new_in_progress(phase.unwrap_or("its phase is not set yet")),
    }
}

fn evaluate_volume(object: &Value) -> Status {
    match text_at(object, "/status/phase") {
        Some("Available" | "Bound") => Status::new_current("available"),
        Some("Failed") => Status::new_failed(text_at(object, "/status/message").unwrap_or("failed")),
        phase => Status::new_in_progress(phase.unwrap_or("its phase is not set yet")),
    }
}

fn evaluate_service(object: &Value) -> Status {
    if text_at(object, "/spec/type") != Some("LoadBalancer") {
        return Status::new_current("exists");
    }
    let address = items_at(object, "/status/loadBalancer/ingress")
        .iter()
        .find_map(|ingress| text_at(ingress, "/ip").or_else(|| text_at(ingress, "/hostname")));
    address.map_or_else(
        || Status::new_in_progress("it has no load balancer address yet"),
        |address| Status::new_current(format!("reached at {address}")),
    )
}

fn evaluate_namespace(object: &Value) -> Status {
    match text_at(object, "/status/phase") {
        Some("Terminating") => Status::new(State::Terminating, format_deletion_blockers(object)),
        Some("Active") => Status::new_current("active"),
        _ => Status::new_in_progress("not active yet"),
    }
}

fn by_condition(object: &Value, kind: &str) -> Status {
    match status_condition(object, kind) {
        Some(found) if is_true(found) => Status::new_current(kind.to_lowercase()),
        Some(found) => Status::new_in_progress(condition_text(found)),
        None => Status::new_in_progress("its controller has not reported on it yet"),
    }
}

/// Custom resources: the usual conditions where there are any, else it merely exists.
fn evaluate_custom_resource(object: &Value) -> Status {
    if let Some(stalled) = status_condition(object, "Stalled").filter(|c| is_true(c)) {
        return Status::new_failed(condition_text(stalled));
    }
    if let Some(reconciling) = status_condition(object, "Reconciling").filter(|c| is_true(c)) {
        return Status::new_in_progress(condition_text(reconciling));
    }
    match status_condition(object, "Ready").or_else(|| status_condition(object, "Available")) {
        Some(ready) if is_true(ready) => Status::new_current("ready"),
        Some(ready) => Status::new_in_progress(condition_text(ready)),
        None => Status::new(State::Unknown, "exists; readiness of this kind cannot be checked"),
    }
}

/// The reason why an object still exists that is being deleted: its finalizers, the conditions of a namespace, or its
/// grace period.
pub(crate) fn format_deletion_blockers(live: &Value) -> String {
    let remaining: Vec<&str> = items_at(live, "/status/conditions")
        .iter()
        .filter(|condition| text_at(condition, "/status") == Some("True"))
        .filter(|condition| text_at(condition, "/type").is_some_and(|kind| kind.starts_with("Namespace")))
        .filter_map(|condition| text_at(condition, "/message"))
        .collect();
    let finalizers: Vec<&str> = items_at(live, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if !remaining.is_empty() {
        remaining.join("; ")
    } else if !finalizers.is_empty() {
        format!("its finalizer {} has not been removed by its controller", finalizers.join(", "))
    } else if is_terminating(live) {
        "it is being deleted".to_owned()
    } else {
        "its deletion has not started".to_owned()
    }
}

#[cfg(test)]
mod tests;
