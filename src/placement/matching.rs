//! Search for the policy that decides about an object.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::canonical::to_canonical_json;
use super::facts::{Facts, Never, SpreadOnto};
use super::selector::{Selector, SelectorError, Toleration};
use crate::api::SchedulePolicy;
use crate::api::crd::policy::SchedulePolicySpec;
use crate::api::labels::{LABEL_INSTALL_KIND, LABEL_NAME};
use crate::api::util::digest;

/// Fewest seconds after which groups leave a lost cluster: a Lease that is late is no loss.
pub const FEWEST_FAILOVER_SECONDS: i64 = 60;

/// A policy, its selectors ready to be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Name.
    pub name: String,
    /// Time of its creation; absent for one that is not in the control plane yet, which counts as the youngest.
    pub created: Option<Timestamp>,
    /// Number of its edits; 0 for one that is not in the control plane yet.
    pub generation: i64,
    /// As it was written.
    pub spec: SchedulePolicySpec,
    /// Tolerations of cluster taints.
    pub tolerations: Vec<Toleration>,
    /// Clusters that may be chosen.
    pub clusters: Selector,
    /// Clusters in order of preference.
    pub order: Option<Selector>,
    namespaces: Selector,
    labels: Vec<Selector>,
}

/// The clause of a policy that keeps it from matching an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clause {
    /// `spec.namespaceSelector`.
    NamespaceSelector,
    /// `spec.resourceSelectors.kinds`.
    Kinds,
    /// `spec.resourceSelectors.labelSelectors`.
    LabelSelectors,
}

impl Clause {
    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        match self {
            Self::NamespaceSelector => "namespaceSelector",
            Self::Kinds => "kinds",
            Self::LabelSelectors => "labelSelectors",
        }
    }
}

/// Placement that an annotation of the object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direct {
    /// One cluster, by the annotation `cluster`.
    Cluster(String),
    /// Several clusters, by the annotation `spread-onto`.
    SpreadOnto(SpreadOnto),
}

/// Party that decides about an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Match<'a> {
    /// Nobody: it is never placed.
    Never(Never),
    /// The object's own annotation keeps it in the control plane.
    Nowhere {
        /// Policies that would match, in the order in which they would decide.
        losers: Vec<&'a Policy>,
    },
    /// The object's own annotation.
    Annotation {
        /// Placement that it asks for.
        direct: Direct,
        /// Policies that would match, in the order in which they would decide.
        losers: Vec<&'a Policy>,
        /// Whether `spread-onto` is there too and does not count.
        ignores_spread_onto: bool,
    },
    /// A policy.
    Policy {
        /// The one that decides.
        policy: &'a Policy,
        /// The others that match, in the order in which they would decide.
        losers: Vec<&'a Policy>,
    },
    /// Nobody: the object stays in the control plane.
    Nothing {
        /// Every policy with its first clause that fails.
        failing: Vec<(&'a Policy, Clause)>,
    },
}

impl Policy {
    /// Returns whether it copies everything to every cluster.
    pub fn duplicates(&self) -> bool {
        self.spec.spread_constraints.as_ref().is_some_and(|spread| spread.spread_mode == "Duplicate")
    }

    /// Returns whether each target gets a part of what can be divided.
    pub fn divides(&self) -> bool {
        self.spec.spread_constraints.is_some() && !self.duplicates()
    }

    /// Returns the seconds after which groups leave a lost cluster; `None` where they do not, or where these are too few.
    pub fn failover_seconds(&self) -> Option<i64> {
        let failover = self.spec.failover.as_ref().filter(|failover| failover.enabled)?;
        Some(failover.after_seconds.into()).filter(|seconds| *seconds >= FEWEST_FAILOVER_SECONDS)
    }

    /// Reads a policy of the control plane's API.
    ///
    /// # Errors
    /// A selector that cannot be evaluated.
    pub fn from_schedule_policy(policy: &SchedulePolicy) -> Result<Self, SelectorError> {
        let name = policy.metadata.name.clone().unwrap_or_default();
        let created = policy.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let generation = policy.metadata.generation.unwrap_or_default();
        Ok(Self { generation, ..Self::new(name, created, policy.spec.clone())? })
    }

    /// Makes a policy ready to be evaluated.
    ///
    /// # Errors
    /// A selector that cannot be evaluated.
    pub fn new(name: String, created: Option<Timestamp>, spec: SchedulePolicySpec) -> Result<Self, SelectorError> {
        let labels = spec.resource_selectors.label_selectors.iter().map(Selector::new);
        Ok(Self {
            tolerations: spec.cluster_tolerations.iter().map(Toleration::of_policy).collect(),
            clusters: spec.cluster_selector.as_ref().map(Selector::new).transpose()?.unwrap_or_default(),
            order: spec.ordered_cluster_selector.as_ref().map(Selector::new).transpose()?,
            namespaces: Selector::new(&spec.namespace_selector)?,
            labels: labels.collect::<Result<_, _>>()?,
            name,
            created,
            generation: 0,
            spec,
        })
    }

    /// Returns a digest of what decides about clusters: selectors, order, tolerations and spread, but no overrides.
    /// Another digest than the recorded one means that groups are decided again.
    pub fn placement_hash(&self) -> String {
        let mut spread = json!(self.spec.spread_constraints);
        if let Some(spread) = spread.as_object_mut() {
            spread.remove("overrides");
        }
        let parts = json!({
            "clusterSelector": self.spec.cluster_selector,
            "orderedClusterSelector": self.spec.ordered_cluster_selector,
            "spreadConstraints": spread,
            "clusterTolerations": self.spec.cluster_tolerations,
        });
        digest::short_digest(to_canonical_json(&parts).as_bytes())
    }

    /// Returns the first clause that an object in a namespace with these labels does not satisfy. A Namespace lies in
    /// itself; any other object without a namespace is matched only by a policy that names its kind.
    fn first_failing_clause(&self, facts: &Facts, namespace: &BTreeMap<String, String>) -> Option<Clause> {
        let is_namespace = facts.key.is_of_kind("", "Namespace");
        let (name, namespace) =
            if is_namespace { (facts.key.name(), &facts.labels) } else { (facts.key.namespace(), namespace) };
        if !name.is_empty()
            && !self.namespaces.matches_labels(|key| {
                if key == LABEL_NAME { Some(name) } else { namespace.get(key).map(String::as_str) }
            })
        {
            return Some(Clause::NamespaceSelector);
        }
        let kinds = &self.spec.resource_selectors.kinds;
        if name.is_empty() && kinds.is_empty() {
            return Some(Clause::Kinds);
        }
        let is_selected = kinds.iter().any(|one| {
            facts.key.is_of_kind(&one.group, &one.kind) && (one.version.is_empty() || one.version == facts.version)
        });
        if !kinds.is_empty() && !is_selected {
            return Some(Clause::Kinds);
        }
        (!self.labels.iter().any(|selector| selector.matches_labels(|key| facts.labels.get(key).map(String::as_str))))
            .then_some(Clause::LabelSelectors)
    }
}

/// All policies, in the order in which they decide: higher priority, then older, then by name.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    all: Vec<Policy>,
    denies_direct: bool,
    own_namespace: Option<String>,
}

impl Policies {
    /// Sorts policies into the order in which they decide.
    pub fn new(mut policies: Vec<Policy>) -> Self {
        // Without a time, a policy is younger than all others.
        policies.sort_by(|a, b| {
            let [rank_a, rank_b] = [a, b].map(|p| (Reverse(p.spec.priority), p.created.is_none(), p.created));
            rank_a.cmp(&rank_b).then_with(|| a.name.cmp(&b.name))
        });
        Self { all: policies, ..Self::default() }
    }

    /// Sets whether annotations of objects count for nothing; an empty `cluster` keeps an object in the control plane
    /// nevertheless.
    #[must_use]
    pub fn with_direct_placement_denied(self, denied: bool) -> Self {
        Self { denies_direct: denied, ..self }
    }

    /// Sets the namespace in which the control plane keeps what is its own, whatever it is called: nothing of it is placed.
    #[must_use]
    pub fn with_own_namespace(self, namespace: Option<String>) -> Self {
        Self { own_namespace: namespace, ..self }
    }

    /// Returns why an object in a namespace with these labels is never placed, whatever asks for it; `None` where it may be.
    pub fn never_placed_reason(&self, facts: &Facts, namespace: &BTreeMap<String, String>) -> Option<Never> {
        let is_namespace = facts.key.is_of_kind("", "Namespace");
        let name = if is_namespace { facts.key.name() } else { facts.key.namespace() };
        let is_own = self.own_namespace.as_deref() == Some(name) || namespace.contains_key(LABEL_INSTALL_KIND);
        match facts.never {
            // In an own namespace all is taken back, whatever else keeps it from being placed.
            never if is_own && never.is_none_or(|never| !never.is_taken_back()) => Some(Never::SystemNamespace),
            never => never,
        }
    }

    /// Returns whether an object names clusters in an annotation that does not count.
    pub fn is_annotation_denied(&self, facts: &Facts) -> bool {
        let names = facts.asks.cluster.as_ref().map_or(facts.asks.spread_onto.is_some(), |cluster| !cluster.is_empty());
        self.denies_direct && names && facts.never.is_none()
    }

    /// Returns the policies in the order in which they decide.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.all.iter()
    }

    /// Returns a policy by name.
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.all.iter().find(|policy| policy.name == name)
    }

    /// Finds who decides about an object, by the labels of its namespace; nothing is remembered from one call to the next.
    pub fn match_object(&self, facts: &Facts, namespace: &BTreeMap<String, String>) -> Match<'_> {
        if let Some(never) = self.never_placed_reason(facts, namespace) {
            return Match::Never(never);
        }
        let (mut matching, mut failing) = (Vec::new(), Vec::new());
        for policy in &self.all {
            match policy.first_failing_clause(facts, namespace) {
                None => matching.push(policy),
                Some(clause) => failing.push((policy, clause)),
            }
        }
        let asks = if self.is_annotation_denied(facts) {
            (&None, &None)
        } else {
            (&facts.asks.cluster, &facts.asks.spread_onto)
        };
        match asks {
            (Some(cluster), _) if cluster.is_empty() => Match::Nowhere { losers: matching },
            (Some(cluster), spread) => Match::Annotation {
                direct: Direct::Cluster(cluster.clone()),
                losers: matching,
                ignores_spread_onto: spread.is_some(),
            },
            (None, Some(spread)) => Match::Annotation {
                direct: Direct::SpreadOnto(spread.clone()),
                losers: matching,
                ignores_spread_onto: false,
            },
            (None, None) if matching.is_empty() => Match::Nothing { failing },
            (None, None) => {
                let policy = matching.remove(0);
                Match::Policy { policy, losers: matching }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn hash(change: impl FnOnce(&mut Value)) -> String {
        let mut spec = json!({
            "namespaceSelector": {},
            "resourceSelectors": { "labelSelectors": [{}] },
            "spreadConstraints": { "overrides": [] },
        });
        change(&mut spec);
        Policy::new("p".to_owned(), None, serde_json::from_value(spec).unwrap()).unwrap().placement_hash()
    }

    #[test]
    fn only_what_decides_about_clusters_changes_the_hash() {
        let plain = hash(|_| {});
        for field in ["suspend", "priority"] {
            let value = if field == "suspend" { json!(true) } else { json!(3) };
            assert_eq!(hash(|spec| spec[field] = value), plain, "{field}");
        }
        let edit = json!([{ "topologyValue": "a", "resources": [] }]);
        assert_eq!(hash(|spec| spec["spreadConstraints"]["overrides"] = edit), plain);
        assert_ne!(hash(|spec| spec["clusterSelector"] = json!({ "matchLabels": { "a": "b" } })), plain);
        assert_ne!(hash(|spec| spec["clusterTolerations"] = json!([{ "operator": "Exists" }])), plain);
        assert_ne!(hash(|spec| spec["spreadConstraints"]["spreadMode"] = json!("Duplicate")), plain);
    }

    #[test]
    fn what_groups_are_made_of_changes_no_hash() {
        let plain = hash(|_| {});
        assert_eq!(hash(|spec| spec["groupBy"] = json!({ "labelKey": "app" })), plain);
        assert_eq!(hash(|spec| spec["groupBy"] = json!({ "labelKey": "app", "acrossNamespaces": true })), plain);
    }

    fn facts_of_object(kind: &str, namespace: Option<&str>, name: &str) -> Facts {
        let mut metadata = json!({ "name": name, "annotations": { "fleet-scheduler.io/cluster": "east" } });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        Facts::from_manifest(&json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata })).unwrap()
    }

    #[test]
    fn nothing_of_the_own_namespace_is_placed() {
        let spec = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
        let policy = Policy::new("p".to_owned(), None, serde_json::from_value(spec).unwrap()).unwrap();
        let policies = Policies::new(vec![policy]).with_own_namespace(Some("bugs-cp".to_owned()));
        let none = BTreeMap::new();
        for own in [facts_of_object("Secret", Some("bugs-cp"), "a"), facts_of_object("Namespace", None, "bugs-cp")] {
            assert_eq!(
                policies.match_object(&own, &none),
                Match::Never(Never::SystemNamespace),
                "whatever asks for it"
            );
        }
        for other in
            [facts_of_object("Secret", Some("shop"), "bugs-cp"), facts_of_object("Namespace", None, "bugs-cp-2")]
        {
            assert!(matches!(policies.match_object(&other, &none), Match::Annotation { .. }), "{}", other.key);
        }
    }

    fn facts_with_annotations(annotations: &Value) -> Facts {
        Facts::from_manifest(&json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "a", "namespace": "n", "annotations": annotations } }))
        .unwrap()
    }

    #[test]
    fn an_annotation_that_is_denied_counts_for_nothing() {
        let spec = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
        let policy = Policy::new("p".to_owned(), None, serde_json::from_value(spec).unwrap()).unwrap();
        let allowed = Policies::new(vec![policy]);
        let denied = allowed.clone().with_direct_placement_denied(true);
        let none = BTreeMap::new();
        for annotations in
            [json!({ "fleet-scheduler.io/cluster": "east" }), json!({ "fleet-scheduler.io/spread-onto": "east,west" })]
        {
            let facts = facts_with_annotations(&annotations);
            assert!(
                matches!(allowed.match_object(&facts, &none), Match::Annotation { .. })
                    && !allowed.is_annotation_denied(&facts)
            );
            assert!(
                matches!(denied.match_object(&facts, &none), Match::Policy { .. })
                    && denied.is_annotation_denied(&facts)
            );
        }
        let kept = facts_with_annotations(&json!({ "fleet-scheduler.io/cluster": "" }));
        assert!(
            matches!(denied.match_object(&kept, &none), Match::Nowhere { .. }) && !denied.is_annotation_denied(&kept)
        );
    }

    #[test]
    fn a_selector_that_cannot_be_evaluated_is_refused() {
        let selector = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
        let spec = json!({ "namespaceSelector": selector, "resourceSelectors": { "labelSelectors": [] } });
        assert!(Policy::new("p".to_owned(), None, serde_json::from_value(spec).unwrap()).is_err());
    }
}
