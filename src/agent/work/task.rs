//! A Schedule, as far as the agent needs it: parsed, and without what only people read.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::Value;

use crate::api::Schedule;
use crate::api::crd::schedule::{ApplyPolicy, ScheduleStatus};
use crate::api::kinds::split_api_version;
use crate::api::placeable::{Kinds, Placeable};
use crate::api::util::digest;
use crate::api::util::text::visible_cell;
use crate::k8s::object::text_at;

/// The object that a copy is: its kind and name in the workload cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyKey {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Namespace; `None` for objects without one.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl CopyKey {
    /// Returns the key of `name` of a kind; the namespace is dropped for cluster-scoped kinds.
    pub fn new(kind: &'static Placeable, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|_| kind.namespaced).map(str::to_owned);
        Self { group: kind.group, kind: kind.kind, namespace, name: name.to_owned() }
    }

    /// Returns the key of a namespace.
    pub fn for_namespace(name: &str) -> Self {
        Self { group: "", kind: "Namespace", namespace: None, name: name.to_owned() }
    }

    /// Returns true for the core kind `kind`.
    pub fn is_core(&self, kind: &str) -> bool {
        self.group.is_empty() && self.kind == kind
    }

    /// Returns true for the ServiceAccount that every namespace has by itself.
    pub fn is_default_account(&self) -> bool {
        self.is_core("ServiceAccount") && self.name == "default"
    }

    /// Returns true for kinds whose objects run once: they are never recreated after they finished.
    pub fn runs_once(&self) -> bool {
        self.is_core("Pod") || (self.group == "batch" && self.kind == "Job")
    }

    /// Returns true for kinds whose copies may be replaced: all but what contains data, and what is deleted along with
    /// much else.
    pub fn is_recreatable(&self) -> bool {
        !["Namespace", "PersistentVolumeClaim", "PersistentVolume", "CustomResourceDefinition"].contains(&self.kind)
    }
}

impl fmt::Display for CopyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Object as which a copy is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The object.
    pub key: CopyKey,
    /// Its kind in the table.
    pub kind: &'static Placeable,
    /// The version that the manifest is of: `apps/v1`.
    pub api_version: String,
}

/// Reason that a manifest cannot be applied anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It is no object.
    Invalid(String),
    /// It is of a kind that this agent does not place.
    UnknownKind(String),
}

/// A Schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Name of the Schedule.
    pub name: String,
    /// UID of the Schedule.
    pub uid: String,
    /// `spec.hash`.
    pub hash: String,
    /// Digest of everything by which the copy is made, however `spec.hash` was computed.
    pub content: String,
    /// The object to apply, as JSON text.
    pub manifest: Arc<str>,
    /// Object that the manifest describes, or the reason that it cannot be applied.
    pub target: Result<Target, Unusable>,
    /// UID of the source.
    pub source_uid: String,
    /// Generation of the source.
    pub source_generation: i64,
    /// `spec.epoch`.
    pub epoch: i64,
    /// The amount that is asked for: the pods of a divided workload, else 1.
    pub amount: i64,
    /// The copy is a part of its source, and what is available of it is counted in pods.
    pub is_divided: bool,
    /// Policy by which it is applied.
    pub policy: ApplyPolicy,
    /// The manifest is another one than the scheduler wrote.
    pub is_edited: bool,
    /// The Schedule is being deleted, whoever it still waits for.
    pub deleting: bool,
}

impl Task {
    /// Reads a Schedule; with its status, from which a new agent begins.
    pub fn from_schedule(kinds: &Kinds, schedule: Schedule) -> (Self, ScheduleStatus) {
        let spec = &schedule.spec;
        let policy = spec.apply_policy.clone().unwrap_or_default();
        let about = format!("{}\n{}\n{}", spec.hash, spec.source_ref.uid, policy.leave_fields.join("\n"));
        let task = Self {
            name: schedule.name_any(),
            uid: schedule.uid().unwrap_or_default(),
            hash: spec.hash.clone(),
            content: digest::short_digest(format!("{about}\n{}\n{}", policy.adopt, spec.manifest).as_bytes()),
            manifest: Arc::from(spec.manifest.as_str()),
            target: parse_manifest_target(kinds, &spec.manifest),
            source_uid: spec.source_ref.uid.clone(),
            source_generation: spec.source_ref.generation,
            epoch: spec.epoch,
            amount: spec.share.as_ref().and_then(|share| share.replicas).unwrap_or(1),
            is_divided: spec.share.as_ref().is_some_and(|share| share.replicas.is_some()),
            policy,
            is_edited: spec
                .manifest_digest
                .as_ref()
                .is_some_and(|written| *written != digest::full_digest(spec.manifest.as_bytes())),
            deleting: schedule.metadata.deletion_timestamp.is_some(),
        };
        (task, schedule.status.unwrap_or_default())
    }

    /// Returns the object, where the manifest is usable.
    pub fn key(&self) -> Option<&CopyKey> {
        self.target.as_ref().ok().map(|target| &target.key)
    }

    /// Returns whether an object that already exists becomes the copy: as asked, or because every cluster has it. What
    /// another control plane placed is taken only as asked.
    pub fn is_adopting(&self, is_placed: bool) -> bool {
        self.policy.adopt || (!is_placed && self.key().is_some_and(CopyKey::is_default_account))
    }

    /// Returns when the copy is first applied: those of a lower wave come before.
    pub fn wave(&self) -> u8 {
        self.target.as_ref().map_or(0, |target| target.kind.wave)
    }
}

/// Returns whether a name stays one part of a path, as API servers ask of every name.
fn is_path_part(name: &str) -> bool {
    !name.is_empty()
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| matches!(c, '/' | '%' | '?' | '#' | '\\') || c.is_control() || c.is_whitespace())
}

fn parse_manifest_target(kinds: &Kinds, manifest: &str) -> Result<Target, Unusable> {
    let object: Value = serde_json::from_str(manifest)
        .map_err(|error| Unusable::Invalid(format!("the manifest is not JSON: {error}")))?;
    let (Some(api_version), Some(kind), Some(name)) =
        (text_at(&object, "/apiVersion"), text_at(&object, "/kind"), text_at(&object, "/metadata/name"))
    else {
        return Err(Unusable::Invalid("the manifest lacks `apiVersion`, `kind` or `metadata.name`".to_owned()));
    };
    let row = kinds.find_placeable(split_api_version(api_version).0, kind).ok_or_else(|| {
        let text = "add the kind to the agent's value `placement.extraKinds`; this cluster must serve it";
        Unusable::UnknownKind(format!("this agent does not place {kind} of {api_version}: {text}"))
    })?;
    let namespace = text_at(&object, "/metadata/namespace");
    if row.namespaced && namespace.is_none() {
        return Err(Unusable::Invalid("the manifest lacks `metadata.namespace`".to_owned()));
    }
    // Both become parts of a path: a request must not reach another object than the one that is judged.
    if let Some(wrong) = [Some(name), namespace].into_iter().flatten().find(|name| !is_path_part(name)) {
        return Err(Unusable::Invalid(format!("{} cannot be the name of an object", visible_cell(wrong))));
    }
    Ok(Target { key: CopyKey::new(row, namespace, name), kind: row, api_version: api_version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_its_object() {
        let found = parse_manifest_target(
            &Kinds::default(),
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{}}"#,
        );
        assert_eq!(found.unwrap().key.to_string(), "Deployment shop/web");
        let class =
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","metadata":{"name":"a","namespace":"x"}}"#;
        assert_eq!(
            parse_manifest_target(&Kinds::default(), class).unwrap().key.namespace,
            None,
            "cluster-scoped kinds ignore a namespace"
        );
    }

    #[test]
    fn an_unusable_manifest_says_why() {
        for text in [
            "",
            "[]",
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"kube-system?b="}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a/../../../kube-system/pods/b","namespace":"c"}}"#,
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":".."}}"#,
        ] {
            assert!(matches!(parse_manifest_target(&Kinds::default(), text), Err(Unusable::Invalid(_))), "{text}");
        }
        let foreign = r#"{"apiVersion":"example.com/v1","kind":"Pod","metadata":{"name":"a","namespace":"b"}}"#;
        assert!(matches!(parse_manifest_target(&Kinds::default(), foreign), Err(Unusable::UnknownKind(_))));
    }
}
