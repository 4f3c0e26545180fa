//! Namespaces of the workload cluster: which of them nothing is placed into, and whose the others are.
//!
//! The agent decides this by itself, whatever a Schedule says: those of Kubernetes, its own, those of installations of
//! the service, and those that its operator names are protected. A namespace that already existed has other owners.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;

use super::problem::Problem;
use super::task::{CopyKey, Target};
use super::watch::Change;
use crate::api::crd::schedule::applied;
use crate::api::labels::{ANNOTATION_ADOPT, LABEL_INSTALL_KIND, LABEL_PART_OF, LABEL_PLACED_BY};
use crate::api::namespace_pattern::NamespacePattern;
use crate::api::placeable;
use crate::api::util::text::visible_cell;
use crate::k8s::object::{items_at, object_label, text_at};

/// Prefix of the namespaces of Kubernetes.
const KUBERNETES: &str = "kube-";
/// Label of a namespace: the level of the Pod Security Standards that it enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// The service's own name in [`LABEL_PART_OF`].
const SERVICE: &str = "fleet";
/// API group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Whether copies go into namespaces that already existed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum ExistingNamespaces {
    /// Copies are placed, and the Schedule of the namespace reports it
    #[default]
    Allow,
    /// Copies are placed only if the Namespace in the control plane asks for its adoption
    Deny,
}

/// Rules of an agent about namespaces.
#[derive(Debug, Clone)]
pub struct NamespaceRules {
    /// Namespace of the agent.
    pub own: String,
    /// Further protected namespaces.
    pub protected: Vec<NamespacePattern>,
    /// Whether copies go into namespaces that already existed.
    pub existing: ExistingNamespaces,
}

/// Level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurity {
    /// Every pod runs.
    #[default]
    Privileged,
    /// Pods without known ways out of their node run.
    Baseline,
    /// Pods without any privilege run.
    Restricted,
}

impl PodSecurity {
    /// Reads the label of a namespace; without a known value everything runs.
    fn from_label(level: Option<&str>) -> Self {
        match level {
            Some("restricted") => Self::Restricted,
            Some("baseline") => Self::Baseline,
            _ => Self::Privileged,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// A namespace, reduced to what is decided by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNamespace {
    placed_by: Option<String>,
    is_of_service: bool,
    enforces: PodSecurity,
}

impl SeenNamespace {
    /// Reduces a namespace to its labels.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        Self::from_label_lookup(|key| labels.get(key).map(String::as_str))
    }

    /// Reduces a namespace, as an API server answered with it.
    fn from_object(object: &serde_json::Value) -> Self {
        Self::from_label_lookup(|key| object_label(object, key))
    }

    fn from_label_lookup<'a>(find_label: impl Fn(&str) -> Option<&'a str>) -> Self {
        // A copy of a tenant's namespace may have the common label of an application of this name.
        let is_part = find_label(LABEL_PART_OF) == Some(SERVICE) && find_label(LABEL_PLACED_BY).is_none();
        Self {
            placed_by: find_label(LABEL_PLACED_BY).map(str::to_owned),
            is_of_service: is_part || find_label(LABEL_INSTALL_KIND).is_some(),
            enforces: PodSecurity::from_label(find_label(ENFORCE)),
        }
    }
}

/// All namespaces of the workload cluster, and the rules about them.
#[derive(Debug)]
pub struct Namespaces {
    rules: NamespaceRules,
    placed_by: String,
    /// By name; `None` until they were listed.
    seen: Option<BTreeMap<String, SeenNamespace>>,
    /// Namespaces of the workloads of installations, by the UID of the workload; `None` until these were listed.
    installations: Option<BTreeMap<String, String>>,
}

impl Namespaces {
    /// Creates one that knows no namespace yet; `placed_by` is the label of the control plane's copies.
    pub fn new(rules: NamespaceRules, placed_by: &str) -> Self {
        Self { rules, placed_by: placed_by.to_owned(), seen: None, installations: None }
    }

    /// Returns whether the namespaces were listed: nothing is applied or deleted before.
    pub fn are_known(&self) -> bool {
        self.seen.is_some() && self.installations.is_some()
    }

    /// Takes a change of namespaces. Returns the names of those about which something else is decided now.
    pub fn take_namespace_change(&mut self, change: Change<(String, SeenNamespace)>) -> Vec<String> {
        let known = self.seen.get_or_insert_default();
        match change {
            Change::All(all) => {
                let before = std::mem::replace(known, all.into_iter().collect());
                let changed = known.iter().filter(|(name, seen)| before.get(*name) != Some(*seen));
                changed.map(|(name, _)| name.clone()).collect()
            }
            Change::One((name, seen)) => {
                let before = known.insert(name.clone(), seen.clone());
                if before.as_ref() == Some(&seen) { Vec::new() } else { vec![name] }
            }
            Change::Gone((name, _)) => {
                known.remove(&name);
                Vec::new()
            }
        }
    }

    /// Takes a namespace as it was answered to an apply, unless the watch knows it: that may be newer. Returns its name if it
    /// is new.
    pub fn take_applied_namespace(&mut self, name: &str, object: &serde_json::Value) -> Vec<String> {
        if self.get(name).is_some() {
            return Vec::new();
        }
        self.take_namespace_change(Change::One((name.to_owned(), SeenNamespace::from_object(object))))
    }

    /// Takes a change of workloads of installations, each with its UID and namespace. Returns the namespaces that are protected
    /// by them from now on.
    pub fn take_installations(&mut self, change: Change<(String, String)>) -> Vec<String> {
        let known = self.installations.get_or_insert_default();
        let before: BTreeSet<String> = known.values().cloned().collect();
        match change {
            Change::All(all) => *known = all.into_iter().collect(),
            Change::One((uid, namespace)) => drop(known.insert(uid, namespace)),
            Change::Gone((uid, _)) => drop(known.remove(&uid)),
        }
        let now: BTreeSet<String> = known.values().cloned().collect();
        now.difference(&before).cloned().collect()
    }

    /// Returns why nothing is placed into a namespace, as a clause; `None` for one that is not protected.
    fn protection_reason(&self, namespace: &str) -> Option<String> {
        let is_installed = || self.installations.iter().flatten().any(|(_, place)| place == namespace);
        if namespace.starts_with(KUBERNETES) {
            return Some("it belongs to Kubernetes".to_owned());
        }
        if namespace == self.rules.own {
            return Some("the agent runs in it".to_owned());
        }
        if let Some(pattern) = self.rules.protected.iter().find(|pattern| pattern.matches_namespace(namespace)) {
            return Some(format!("the agent's value placement.protectedNamespaces contains `{pattern}`"));
        }
        let is_of_service = self.get(namespace).is_some_and(|seen| seen.is_of_service) || is_installed();
        is_of_service.then(|| "the service itself is installed in it".to_owned())
    }

    fn get(&self, namespace: &str) -> Option<&SeenNamespace> {
        self.seen.as_ref()?.get(namespace)
    }

    /// Returns the namespace that protects an object, and why, as a clause: the one that it is, or lies in.
    pub fn find_protecting_namespace(&self, key: &CopyKey) -> Option<(String, String)> {
        let namespace = if key.is_core("Namespace") { Some(&key.name) } else { key.namespace.as_ref() }?;
        Some((namespace.clone(), self.protection_reason(namespace)?))
    }

    /// Returns why a copy is refused whatever is done to it in the workload cluster.
    pub fn check_refusal(&self, target: &Target, manifest: &str) -> Option<Problem> {
        let key = &target.key;
        let remedy = "use another namespace in the control plane, or annotate the object in the control \
            plane with fleet-scheduler.io/cluster=\"\" to keep it out of workload clusters";
        if let Some((namespace, why)) = self.find_protecting_namespace(key) {
            let message = format!("nothing is placed in namespace {namespace} of this cluster because {why}: {remedy}");
            return Some(Problem::retry_on_change(applied::REFUSED, message));
        }
        if key.group != RBAC || key.kind != "ClusterRoleBinding" {
            return None;
        }
        let object: serde_json::Value = serde_json::from_str(manifest).ok()?;
        let mut places = items_at(&object, "/subjects").iter().filter_map(|subject| text_at(subject, "/namespace"));
        let (namespace, why) = places.find_map(|place| Some((place, self.protection_reason(place)?)))?;
        let message = format!(
            "{key} grants rights to a service account of namespace {namespace}, where nothing is placed because {why}"
        );
        Some(Problem::retry_on_change(applied::REFUSED, message))
    }

    /// Returns why a copy waits for its namespace: what is not seen may have been created a moment ago by anybody.
    pub fn check_existence(&self, key: &CopyKey) -> Option<Problem> {
        let is_unseen = self.get(key.namespace.as_ref()?).is_none();
        is_unseen.then(|| Problem::missing_namespace(key))
    }

    /// Returns why a copy does not go into a namespace that already existed. `source` is the namespace's own source:
    /// what it enforces, and whether it asks for the adoption.
    pub fn check_adoption(&self, target: &Target, source: Option<NamespaceSource>) -> Option<Problem> {
        let key = &target.key;
        let is_namespace = key.is_core("Namespace");
        let name = if is_namespace { &key.name } else { key.namespace.as_ref()? };
        let seen = self.get(name).filter(|seen| seen.placed_by.as_deref() != Some(self.placed_by.as_str()))?;
        if is_namespace && source.is_some_and(|source| source.adopt) {
            return None;
        }
        if let Some(other) = &seen.placed_by {
            let message = format!(
                "namespace {name} already exists and belongs to the control plane {}: nothing is placed in it; use \
                 another namespace",
                visible_cell(other)
            );
            return Some(Problem::retry_on_change(applied::ALREADY_EXISTS, message));
        }
        let remedy =
            format!("annotate the Namespace {name} of the control plane with {ANNOTATION_ADOPT}=true to adopt it");
        if self.rules.existing == ExistingNamespaces::Deny {
            let message = format!("namespace {name} already existed, and the agent places nothing in it: {remedy}");
            return Some(Problem::retry_on_change(applied::NAMESPACE_NOT_OWNED, message));
        }
        let wanted = source.map(|source| source.enforces).unwrap_or_default();
        if !is_namespace && placeable::runs_pods(key.group, key.kind) && seen.enforces < wanted {
            let message = format!(
                "namespace {name} already existed and enforces the Pod Security level {}, but its source enforces {}: \
                 label it in the workload cluster with {ENFORCE}={}, or {remedy}",
                seen.enforces.as_str(),
                wanted.as_str(),
                wanted.as_str()
            );
            return Some(Problem::retry_on_change(applied::NAMESPACE_NOT_OWNED, message));
        }
        None
    }
}

/// The source of a namespace, as its Schedule has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceSource {
    enforces: PodSecurity,
    adopt: bool,
}

impl NamespaceSource {
    /// Reads the manifest of a namespace.
    pub fn from_namespace_manifest(manifest: &str, adopt: bool) -> Self {
        let object: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
        Self { enforces: PodSecurity::from_label(object_label(&object, ENFORCE)), adopt }
    }
}

/// Returns the note about a namespace that already existed and is used nevertheless.
pub fn not_owned(name: &str) -> String {
    format!(
        "{}: namespace {name} already existed. The agent does not apply the labels of its source, including those of \
         Pod Security, and keeps the namespace when the source is deleted. To adopt the namespace, annotate the \
         source with {ANNOTATION_ADOPT}=true",
        applied::NAMESPACE_NOT_OWNED
    )
}

#[cfg(test)]
mod tests;
