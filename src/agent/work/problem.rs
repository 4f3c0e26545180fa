//! Problem of a copy that is not as its Schedule says: the reason, what to do about it, and when it is tried again.

use std::time::Duration;

use super::fields;
use super::task::{CopyKey, Unusable};
use crate::api::crd::schedule::applied;
use crate::k8s::ApiError;
use crate::k8s::connect::daemon_client::CallError;

/// Time to the next attempt where nothing but a change of objects helps.
pub const LATE: Duration = Duration::from_secs(300);

/// Time after which an attempt is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// With a back-off from 1 s to 60 s.
    Soon,
    /// After [`LATE`].
    Late,
}

/// Reason that a copy could not be applied or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// One of [`applied`].
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Time of the next attempt.
    pub again: Again,
    /// A field cannot be changed: only another object of the name can have it.
    pub is_immutable: bool,
}

impl Problem {
    /// Creates one that is tried again soon.
    pub fn retry_soon(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: Again::Soon, is_immutable: false }
    }

    /// Creates one that only a change of objects solves.
    pub fn retry_on_change(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: Again::Late, is_immutable: false }
    }

    /// Returns what is wrong with a manifest.
    pub fn of_manifest(unusable: &Unusable) -> Self {
        match unusable {
            Unusable::Invalid(why) => Self::retry_on_change(applied::INVALID, why),
            Unusable::UnknownKind(why) => Self::retry_on_change(applied::KIND_NOT_SERVED, why),
        }
    }

    /// Returns true where the API server was not reached, or had a fault of its own: the copy may be as it was.
    pub fn is_unreachable(&self) -> bool {
        self.reason == applied::UNREACHABLE
    }

    /// The namespace of a copy does not exist.
    pub fn missing_namespace(key: &CopyKey) -> Self {
        Self::unusable_namespace(key, "does not exist in the workload cluster")
    }

    fn unusable_namespace(key: &CopyKey, how: &str) -> Self {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        Self::retry_soon(applied::NAMESPACE_MISSING, format!("namespace {namespace} {how}"))
    }

    /// Explains the answer to a request that wrote a copy.
    pub fn of_answer(key: &CopyKey, error: &CallError) -> Self {
        let Some(answer) = error.to_api_error() else {
            return Self::retry_soon(
                applied::UNREACHABLE,
                format!("the workload cluster's API server does not answer: {error}"),
            );
        };
        // Values of the object there are other people's, whatever its kind.
        let answer = answer.without_values();
        let message = &answer.message;
        if message.contains("request is too large") || answer.code == 413 {
            return Self::retry_on_change(
                applied::TOO_LARGE,
                format!("{key} is too large for the workload cluster's API server: {message}"),
            );
        }
        match answer.code {
            404 if is_missing_namespace(error) => Self::missing_namespace(key),
            404 => Self::retry_soon(
                applied::KIND_NOT_SERVED,
                format!("the cluster does not serve {} in the API version of the source", key.kind),
            ),
            403 if answer.is_namespace_terminating() => {
                Self::unusable_namespace(key, "is terminating in the workload cluster")
            }
            403 if message.contains(" cannot ") => Self::retry_soon(
                applied::FORBIDDEN,
                format!("the agent lacks a right in its cluster; upgrade the agent. {message}"),
            ),
            _ if answer.is_denied_by_policy() => {
                Self::retry_soon(applied::REFUSED, format!("an admission rule of the cluster refuses {key}: {message}"))
            }
            // Quotas, and what else admission plug-ins refuse.
            403 => Self::retry_soon(applied::REFUSED, format!("the cluster refuses {key}: {message}")),
            422 if is_immutable(&answer) => {
                let again = if key.is_recreatable() {
                    "create the source again, as with `kubectl replace --force`, "
                } else {
                    ""
                };
                let message = format!(
                    "{message}. A field of {key} cannot be changed once it is set: {again}delete the copy in the \
                     workload cluster, or give the source a new name"
                );
                Self { is_immutable: true, ..Self::retry_on_change(applied::REFUSED, message) }
            }
            _ if message.contains(fields::TYPED) => Self::retry_on_change(
                applied::INVALID,
                format!("the workload cluster's API server cannot read {key}: {message}"),
            ),
            400 | 422 => Self::retry_soon(
                applied::INVALID,
                format!("the workload cluster's API server rejects {key} as invalid: {message}"),
            ),
            _ => Self::retry_soon(applied::UNREACHABLE, format!("the workload cluster's API server failed: {answer}")),
        }
    }
}

fn is_missing_namespace(error: &CallError) -> bool {
    let CallError::Kube(kube::Error::Api(status)) = error else { return false };
    status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

/// Returns whether an answer says that a field cannot be changed; for the kinds that users have, beyond those that the
/// engine has to know.
fn is_immutable(answer: &ApiError) -> bool {
    let says = |text: &str| {
        ["may not change", "may not be changed", "cannot be changed", "updates to "]
            .iter()
            .any(|part| text.contains(part))
    };
    answer.is_immutable() || says(&answer.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reason(code: u16, reason: &str, message: &str, details: serde_json::Value) -> (&'static str, Again) {
        let status =
            json!({"status": "Failure", "code": code, "reason": reason, "message": message, "details": details});
        let error = CallError::Kube(kube::Error::Api(serde_json::from_value(status).unwrap()));
        let key = CopyKey { group: "apps", kind: "Deployment", namespace: Some("n".to_owned()), name: "a".to_owned() };
        let problem = Problem::of_answer(&key, &error);
        (problem.reason, problem.again)
    }

    #[test]
    fn only_what_can_be_replaced_is_told_to_be_created_again() {
        let status = json!({"status": "Failure", "code": 422, "reason": "Invalid",
            "message": "spec: Forbidden: spec is immutable after creation", "details": {}});
        let error = CallError::Kube(kube::Error::Api(serde_json::from_value(status).unwrap()));
        let message = |group: &'static str, kind: &'static str| {
            let key = CopyKey { group, kind, namespace: Some("n".to_owned()), name: "a".to_owned() };
            Problem::of_answer(&key, &error).message
        };
        for (group, kind, is_told) in [("apps", "Deployment", true), ("", "PersistentVolumeClaim", false)] {
            let message = message(group, kind);
            assert_eq!(message.contains("kubectl replace --force"), is_told, "{message}");
            assert!(message.contains("delete the copy in the workload cluster"), "{message}");
        }
    }

    #[test]
    fn each_answer_has_its_reason() {
        let none = || json!({});
        for (code, word, message, details, expected) in [
            (
                404,
                "NotFound",
                "namespaces \"n\" not found",
                json!({"name": "n", "kind": "namespaces"}),
                (applied::NAMESPACE_MISSING, Again::Soon),
            ),
            (
                404,
                "NotFound",
                "the server could not find the requested resource",
                none(),
                (applied::KIND_NOT_SERVED, Again::Soon),
            ),
            (
                403,
                "Forbidden",
                "x",
                json!({"causes": [{"reason": "NamespaceTerminating"}]}),
                (applied::NAMESPACE_MISSING, Again::Soon),
            ),
            (
                403,
                "Forbidden",
                "deployments.apps \"a\" is forbidden: User \"u\" cannot patch resource \"deployments\"",
                none(),
                (applied::FORBIDDEN, Again::Soon),
            ),
            (403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: q", none(), (applied::REFUSED, Again::Soon)),
            (
                400,
                "BadRequest",
                "admission webhook \"w\" denied the request: no",
                none(),
                (applied::REFUSED, Again::Soon),
            ),
            (
                422,
                "Invalid",
                "spec.selector: Invalid value: x: field is immutable",
                none(),
                (applied::REFUSED, Again::Late),
            ),
            (
                422,
                "Invalid",
                "spec: Forbidden: pod updates may not change fields other than",
                none(),
                (applied::REFUSED, Again::Late),
            ),
            (
                422,
                "Invalid",
                "spec.replicas: Invalid value: -1: must be positive",
                none(),
                (applied::INVALID, Again::Soon),
            ),
            (500, "InternalError", "etcdserver: request is too large", none(), (applied::TOO_LARGE, Again::Late)),
            (
                500,
                "InternalError",
                "failed to create typed patch object (a/b; apps/v1, Kind=Deployment): .spec.replicas: expected numeric, got string",
                none(),
                (applied::INVALID, Again::Late),
            ),
            (503, "ServiceUnavailable", "x", none(), (applied::UNREACHABLE, Again::Soon)),
        ] {
            assert_eq!(reason(code, word, message, details), expected, "{message}");
        }
    }
}
