//! Status of an object against its manifest: a pure function of the live object.
//!
//! The rules follow those of kstatus (sigs.k8s.io/cli-utils) and kubectl's rollout status where these agree, and are
//! stricter where they are early: an object counts only when its controller has observed the generation of our own
//! write, a started Job is not a finished one, and a kind without a rule is unknown.

use serde_json::Value;

use crate::api::kinds::split_api_version;
use crate::k8s::object::{condition, is_terminating, list, number, text};

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

    fn current(message: impl Into<String>) -> Self {
        Self::new(State::Current, message)
    }

    fn waiting(message: impl Into<String>) -> Self {
        Self::new(State::InProgress, message)
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(State::Failed, message)
    }

    /// Returns whether a wait for the object is over.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Current | State::Unknown)
    }
}

/// Evaluates a live object. `generation` is that of our own write; a controller that has only observed an earlier one
/// has not reconciled it yet.
pub fn evaluate(object: &Value, generation: Option<i64>) -> Status {
    if is_terminating(object) {
        return Status::new(State::Terminating, holds(object));
    }
    let (group, _) = split_api_version(text(object, "/apiVersion").unwrap_or_default());
    let kind = text(object, "/kind").unwrap_or_default();
    let wanted = number(object, "/metadata/generation").max(generation);
    if let (Some(wanted), Some(observed)) = (wanted, number(object, "/status/observedGeneration"))
        && observed < wanted
    {
        return Status::waiting(format!("its controller has not seen generation {wanted} yet"));
    }
    if number(object, "/metadata/generation") < generation {
        return Status::waiting("the server has not shown our change yet");
    }
    match (group, kind) {
        ("apps", "Deployment") => unobserved(object).unwrap_or_else(|| deployment(object)),
        ("apps", "StatefulSet") => unobserved(object).unwrap_or_else(|| stateful_set(object)),
        ("apps", "DaemonSet") => unobserved(object).unwrap_or_else(|| daemon_set(object)),
        ("apps", "ReplicaSet") => unobserved(object).unwrap_or_else(|| replica_set(object)),
        ("batch", "Job") => job(object),
        ("policy", "PodDisruptionBudget") => unobserved(object).unwrap_or_else(|| disruption_budget(object)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd(object),
        ("apiregistration.k8s.io", "APIService") => by_condition(object, "Available"),
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => pvc(object),
        ("", "PersistentVolume") => volume(object),
        ("", "Service") => service(object),
        ("", "Namespace") => namespace(object),
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
        ) => Status::current("exists"),
        _ => custom(object),
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
fn unobserved(object: &Value) -> Option<Status> {
    let observed = number(object, "/status/observedGeneration");
    observed.is_none().then(|| Status::waiting("its controller has not looked at it yet"))
}

fn count(object: &Value, field: &str) -> i64 {
    number(object, &format!("/status/{field}")).unwrap_or(0)
}

fn replicas(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(1)
}

fn is_true(condition: &Value) -> bool {
    text(condition, "/status") == Some("True")
}

fn condition_text(condition: &Value) -> String {
    let reason = text(condition, "/reason").unwrap_or_default();
    match text(condition, "/message").filter(|message| !message.is_empty()) {
        Some(message) if !reason.is_empty() => format!("{reason}: {message}"),
        Some(message) => message.to_owned(),
        None => reason.to_owned(),
    }
}

fn deployment(object: &Value) -> Status {
    let wanted = replicas(object);
    let progressing = condition(object, "Progressing");
    if let Some(progressing) = progressing.filter(|c| text(c, "/reason") == Some("ProgressDeadlineExceeded")) {
        return Status::failed(condition_text(progressing));
    }
    let (all, updated, ready, available) = (
        count(object, "replicas"),
        count(object, "updatedReplicas"),
        count(object, "readyReplicas"),
        count(object, "availableReplicas"),
    );
    if updated < wanted {
        Status::waiting(format!("{updated} of {wanted} pods updated"))
    } else if all > updated {
        Status::waiting(match all - updated {
            1 => "1 old pod is still there".to_owned(),
            old => format!("{old} old pods are still there"),
        })
    } else if ready < wanted {
        Status::waiting(format!("{ready} of {wanted} pods ready"))
    } else if available < wanted {
        Status::waiting(format!("{available} of {wanted} pods available"))
    } else if condition(object, "Available").is_some_and(|c| !is_true(c)) {
        Status::waiting("not available yet")
    } else {
        Status::current(format!("{ready} of {wanted} pods ready"))
    }
}

fn stateful_set(object: &Value) -> Status {
    let wanted = replicas(object);
    let (updated, ready) = (count(object, "updatedReplicas"), count(object, "readyReplicas"));
    let available = number(object, "/status/availableReplicas").unwrap_or(ready);
    if text(object, "/spec/updateStrategy/type") == Some("OnDelete") {
        return if ready < wanted {
            Status::waiting(format!("{ready} of {wanted} pods ready"))
        } else {
            Status::current(format!("{ready} of {wanted} pods ready; pods are replaced when they are deleted"))
        };
    }
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    if ready < wanted {
        Status::waiting(format!("{ready} of {wanted} pods ready"))
    } else if available < wanted {
        Status::waiting(format!("{available} of {wanted} pods available"))
    } else if count(object, "replicas") > wanted {
        Status::waiting(format!("{} pods too many", count(object, "replicas") - wanted))
    } else if updated < wanted - partition.min(wanted) {
        Status::waiting(format!("{updated} of {} pods updated", wanted - partition))
    } else if partition == 0 && text(object, "/status/currentRevision") != text(object, "/status/updateRevision") {
        Status::waiting("the new revision is not complete")
    } else {
        Status::current(format!("{ready} of {wanted} pods ready"))
    }
}

fn daemon_set(object: &Value) -> Status {
    let wanted = count(object, "desiredNumberScheduled");
    let (updated, available) = (count(object, "updatedNumberScheduled"), count(object, "numberAvailable"));
    let on_delete = text(object, "/spec/updateStrategy/type") == Some("OnDelete");
    if updated < wanted && !on_delete {
        Status::waiting(format!("{updated} of {wanted} pods updated"))
    } else if available < wanted {
        Status::waiting(format!("{available} of {wanted} pods available"))
    } else {
        Status::current(format!("{available} of {wanted} pods available"))
    }
}

fn replica_set(object: &Value) -> Status {
    let (wanted, available) = (replicas(object), count(object, "availableReplicas"));
    let state = if available < wanted { State::InProgress } else { State::Current };
    Status::new(state, format!("{available} of {wanted} pods available"))
}

fn job(object: &Value) -> Status {
    for kind in ["Failed", "FailureTarget"] {
        if let Some(failed) = condition(object, kind).filter(|c| is_true(c)) {
            return Status::failed(condition_text(failed));
        }
    }
    if condition(object, "Complete").is_some_and(is_true) {
        return Status::current("complete");
    }
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return Status::current("suspended");
    }
    let wanted = number(object, "/spec/completions").unwrap_or(1);
    Status::waiting(format!(
        "{} of {wanted} pods succeeded, {} failed",
        count(object, "succeeded"),
        count(object, "failed")
    ))
}

fn disruption_budget(object: &Value) -> Status {
    let (healthy, wanted) = (count(object, "currentHealthy"), count(object, "desiredHealthy"));
    let state = if healthy < wanted { State::InProgress } else { State::Current };
    Status::new(state, format!("{healthy} of {wanted} pods healthy"))
}

fn crd(object: &Value) -> Status {
    if let Some(refused) = condition(object, "NamesAccepted").filter(|c| text(c, "/status") == Some("False")) {
        return Status::failed(condition_text(refused));
    }
    match condition(object, "Established") {
        Some(established) if is_true(established) => Status::current("established"),
        Some(waiting) => Status::waiting(condition_text(waiting)),
        None => Status::waiting("not established yet"),
    }
}

fn signing_request(object: &Value) -> Status {
    for kind in ["Denied", "Failed"] {
        if let Some(refused) = condition(object, kind).filter(|c| text(c, "/status") != Some("False")) {
            return Status::failed(condition_text(refused));
        }
    }
    if text(object, "/status/certificate").is_some_and(|certificate| !certificate.is_empty()) {
        Status::current("issued")
    } else if condition(object, "Approved").is_some() {
        Status::waiting("approved, not issued yet")
    } else {
        Status::waiting("not approved yet")
    }
}

fn pod(object: &Value) -> Status {
    match text(object, "/status/phase") {
        Some("Succeeded") => Status::current("succeeded"),
        Some("Failed") => Status::failed(
            text(object, "/status/message")
                .or_else(|| text(object, "/status/reason"))
                .unwrap_or("its containers failed"),
        ),
        Some("Running") if condition(object, "Ready").is_some_and(is_true) => Status::current("ready"),
        Some("Running") => {
            let all = list(object, "/status/containerStatuses");
            let ready = all.iter().filter(|c| c.get("ready").and_then(Value::as_bool) == Some(true)).count();
            Status::waiting(format!("{ready} of {} containers ready", all.len()))
        }
        Some(phase) => Status::waiting(phase),
        None => Status::waiting("no kubelet has looked at it yet"),
    }
}

fn pvc(object: &Value) -> Status {
    match text(object, "/status/phase") {
        Some("Bound") => Status::current("bound"),
        Some("Lost") => Status::failed("its volume is lost"),
        phase => Status::waiting(phase.unwrap_or("not looked at yet")),
    }
}

fn volume(object: &Value) -> Status {
    match text(object, "/status/phase") {
        Some("Available" | "Bound") => Status::current("available"),
        Some("Failed") => Status::failed(text(object, "/status/message").unwrap_or("failed")),
        phase => Status::waiting(phase.unwrap_or("not looked at yet")),
    }
}

fn service(object: &Value) -> Status {
    if text(object, "/spec/type") != Some("LoadBalancer") {
        return Status::current("exists");
    }
    let address = list(object, "/status/loadBalancer/ingress")
        .iter()
        .find_map(|ingress| text(ingress, "/ip").or_else(|| text(ingress, "/hostname")));
    address.map_or_else(
        || Status::waiting("no load balancer has given it an address yet"),
        |address| Status::current(format!("reached at {address}")),
    )
}

fn namespace(object: &Value) -> Status {
    match text(object, "/status/phase") {
        Some("Terminating") => Status::new(State::Terminating, holds(object)),
        Some("Active") => Status::current("active"),
        _ => Status::waiting("not active yet"),
    }
}

fn by_condition(object: &Value, kind: &str) -> Status {
    match condition(object, kind) {
        Some(found) if is_true(found) => Status::current(kind.to_lowercase()),
        Some(found) => Status::waiting(condition_text(found)),
        None => Status::waiting("its controller has not looked at it yet"),
    }
}

/// Custom resources: the usual conditions where there are any, else it merely exists.
fn custom(object: &Value) -> Status {
    if let Some(stalled) = condition(object, "Stalled").filter(|c| is_true(c)) {
        return Status::failed(condition_text(stalled));
    }
    if let Some(reconciling) = condition(object, "Reconciling").filter(|c| is_true(c)) {
        return Status::waiting(condition_text(reconciling));
    }
    match condition(object, "Ready").or_else(|| condition(object, "Available")) {
        Some(ready) if is_true(ready) => Status::current("ready"),
        Some(ready) => Status::waiting(condition_text(ready)),
        None => Status::new(State::Unknown, "exists; there is no rule for when this kind is ready"),
    }
}

/// The reason why an object still exists that is being deleted: its finalizers, the conditions of a namespace, or its
/// grace period.
pub(crate) fn holds(live: &Value) -> String {
    let remaining: Vec<&str> = list(live, "/status/conditions")
        .iter()
        .filter(|condition| text(condition, "/status") == Some("True"))
        .filter(|condition| text(condition, "/type").is_some_and(|kind| kind.starts_with("Namespace")))
        .filter_map(|condition| text(condition, "/message"))
        .collect();
    let finalizers: Vec<&str> = list(live, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if !remaining.is_empty() {
        remaining.join("; ")
    } else if !finalizers.is_empty() {
        format!("its finalizer {} has not been removed by its controller", finalizers.join(", "))
    } else if is_terminating(live) {
        "it is being deleted".to_owned()
    } else {
        "its deletion has not begun".to_owned()
    }
}

#[cfg(test)]
mod tests;
