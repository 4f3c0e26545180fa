//! The manifest of one copy: the source without what only the control plane needs, with its share and its overrides.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

mod omitted_fields;

use omitted_fields::{strip_manifest, strip_metadata};

use super::canonical::to_canonical_json;
use super::facts::{Facts, InvalidAsk, LEAVE_FIELDS};
use super::field_path::{FieldPath, PathError};
use super::matching::Policy;
use crate::api::crd::policy::FieldOverride;
use crate::api::labels::OWN_KEY_PREFIX;
use crate::api::util::digest;

/// Largest manifest that is copied, in bytes.
pub const LARGEST: usize = 1 << 20;
/// Largest manifest as the store of an API server has it, as a text within the JSON of a Schedule. etcd takes requests of
/// 1.5 MiB; what is left is for the rest of the Schedule: 8 KiB that the agent reports of the copy and 4 KiB of
/// messages, paths of fields that are left to others, metadata, and who manages which fields.
pub const LARGEST_STORED: usize = 1_400_000;

/// A copy that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// An override that does not go with the object.
    #[error(transparent)]
    Override(#[from] PathError),
    /// An annotation that asks for more than there can be.
    #[error("{0}")]
    Ask(InvalidAsk),
    /// More than an object of the control plane's API can hold.
    #[error("the object has {bytes} bytes; at most {LARGEST} can be copied")]
    TooLarge {
        /// Its size as JSON.
        bytes: usize,
    },
    /// The name of its Schedule belongs to the copy of another object.
    #[error("the Schedule {schedule} belongs to {object}; delete that Schedule to free the name")]
    ScheduleTaken {
        /// Name of the Schedule.
        schedule: String,
        /// The object that it is a copy of.
        object: String,
    },
    /// More than a Schedule can hold.
    #[error(
        "a Schedule would store the object as {bytes} bytes, because it escapes quotes, backslashes and angle \
         brackets; at most {LARGEST_STORED} can be stored"
    )]
    TooLargeStored {
        /// Its size as the text of a Schedule.
        bytes: usize,
    },
    /// The control plane's API server does not take the Schedule.
    #[error("the control plane's API server refuses the Schedule of the copy: {message}")]
    Refused {
        /// Reason as conditions name it.
        code: &'static str,
        /// Its answer.
        message: String,
    },
}

impl CopyError {
    /// Returns the reason as conditions name it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Override(error) => error.code(),
            Self::Ask(_) => "Invalid",
            Self::TooLarge { .. } | Self::TooLargeStored { .. } => "TooLarge",
            Self::ScheduleTaken { .. } => "ScheduleTaken",
            Self::Refused { code, .. } => code,
        }
    }

    /// Returns whether the policy must be changed, and not the object.
    pub fn is_override(&self) -> bool {
        matches!(self, Self::Override(_))
    }
}

/// The part of an object's pods that one copy runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Replicas of a Deployment, StatefulSet or ReplicaSet.
    Replicas(i64),
    /// The part of a Job.
    Job {
        /// Pods that have to succeed.
        completions: i64,
        /// Pods at a time.
        parallelism: i64,
    },
}

impl Share {
    /// Returns the pods that run at the same time.
    pub fn pods(self) -> i64 {
        match self {
            Self::Replicas(pods) | Self::Job { parallelism: pods, .. } => pods,
        }
    }
}

/// One copy, ready to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// Manifest that the agent applies; of a Secret without its data.
    pub manifest: Value,
    /// `data` and `stringData` of a Secret, which never enter a Schedule.
    pub payload: Option<Map<String, Value>>,
    /// Digest of both.
    pub hash: String,
}

/// Makes a copy of an object: strips what only the control plane needs, sets the share, then applies the overrides in order.
///
/// # Errors
/// An override that does not go with the object, and an object that is too large.
pub fn make_copy(source: &Value, share: Option<Share>, overrides: &[&FieldOverride]) -> Result<Copy, CopyError> {
    let mut manifest = source.clone();
    strip_manifest(&mut manifest);
    if let (Some(share), Some(spec)) = (share, manifest.get_mut("spec").and_then(Value::as_object_mut)) {
        match share {
            Share::Replicas(replicas) => {
                spec.insert("replicas".to_owned(), replicas.into());
            }
            Share::Job { completions, parallelism } => {
                spec.insert("completions".to_owned(), completions.into());
                spec.insert("parallelism".to_owned(), parallelism.into());
            }
        }
    }
    for edit in overrides {
        let path = FieldPath::parse(&edit.field_path)?;
        path.check_allowed()?;
        path.set_field(&mut manifest, edit.value.static_value.clone())?;
    }
    strip_metadata(&mut manifest);
    let text = to_canonical_json(&manifest);
    if text.len() > LARGEST {
        return Err(CopyError::TooLarge { bytes: text.len() });
    }
    let hash = digest::full_digest(text.as_bytes());
    let payload = take_payload(&mut manifest);
    let bytes = stored_bytes(&manifest.to_string());
    if bytes > LARGEST_STORED {
        return Err(CopyError::TooLargeStored { bytes });
    }
    Ok(Copy { manifest, payload, hash })
}

/// Returns the length of a text in JSON as API servers write it: besides quotes, backslashes and control characters they
/// escape what HTML and JavaScript would read.
fn stored_bytes(text: &str) -> usize {
    text.chars()
        .map(|char| match char {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            '<' | '>' | '&' | '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => 6,
            char => char.len_utf8(),
        })
        .sum()
}

/// Returns the edits of a policy for an object in a domain, in the order in which they are written.
pub fn find_overrides<'a>(policy: &'a Policy, domain: &str, facts: &Facts) -> Vec<&'a FieldOverride> {
    let api_version = facts.api_version();
    let spread = policy.spec.spread_constraints.iter();
    let of_domain = spread.flat_map(|spread| &spread.overrides).filter(|one| one.topology_value == domain);
    let of_object = of_domain.flat_map(|one| &one.resources).filter(|one| {
        one.kind == facts.key.kind()
            && one.api_version == api_version
            && one.name == facts.key.name()
            && one.namespace.as_deref().unwrap_or_default() == facts.key.namespace()
    });
    of_object.flat_map(|one| &one.edits).collect()
}

/// Returns the paths of a policy's overrides that can never be applied, with what is wrong.
pub fn path_errors(policy: &Policy) -> Vec<PathError> {
    let domains = policy.spec.spread_constraints.iter().flat_map(|spread| &spread.overrides);
    let edits = domains.flat_map(|domain| &domain.resources).flat_map(|resource| &resource.edits);
    edits.filter_map(|edit| FieldPath::parse(&edit.field_path).and_then(|path| path.check_allowed()).err()).collect()
}

/// Returns the fields of a copy that are left to others in the workload cluster: what the source asks for, as far as no edit of
/// the policy sets it, and the replicas of what an autoscaler that is placed too scales.
///
/// # Errors
/// An annotation of the source that asks for more than there can be.
pub fn leave_fields(facts: &Facts, edits: &[&FieldOverride], is_scaled: bool) -> Result<Vec<String>, CopyError> {
    if let Some(invalid) = facts.asks.invalid {
        return Err(CopyError::Ask(invalid));
    }
    let edited: Vec<FieldPath> = edits.iter().filter_map(|edit| parse_user_path(&edit.field_path)).collect();
    let mut fields = facts.asks.leave_fields.clone();
    fields.retain(|field| {
        !parse_user_path(field).is_some_and(|field| edited.iter().any(|edit| edit.may_overlap(&field)))
    });
    let replicas = "spec.replicas";
    if is_scaled && !fields.iter().any(|field| field == replicas) {
        fields.push(replicas.to_owned());
    }
    if fields.len() > LEAVE_FIELDS { Err(CopyError::Ask(InvalidAsk::LeaveFields)) } else { Ok(fields) }
}

/// Parses a path that a user wrote, with or without a dot before it.
fn parse_user_path(path: &str) -> Option<FieldPath> {
    FieldPath::parse(path.trim_start_matches('.')).ok()
}

/// Returns the manifest of a namespace that copies need, with the labels of the source.
pub fn namespace_manifest(name: &str, labels: &BTreeMap<String, String>) -> Value {
    let labels: BTreeMap<_, _> = labels.iter().filter(|(key, _)| !key.starts_with(OWN_KEY_PREFIX)).collect();
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Takes the data out of a Secret.
fn take_payload(manifest: &mut Value) -> Option<Map<String, Value>> {
    let is_secret = manifest["apiVersion"] == "v1" && manifest["kind"] == "Secret";
    let object = manifest.as_object_mut().filter(|_| is_secret)?;
    let parts = ["data", "stringData"].into_iter();
    Some(parts.filter_map(|part| Some((part.to_owned(), object.remove(part)?))).collect())
}

#[cfg(test)]
mod tests;
