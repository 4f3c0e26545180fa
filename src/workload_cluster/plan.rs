//! The plan of an install: name, namespace, version, chart and checked values; from there to objects, without a cluster.
//! The order in which components are installed is that of `stages:` in the chart's `chart.yaml`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use serde_json::{Value, json};

use super::values::{AdmissionPolicy, AgentValues};
use crate::api::kinds;
use crate::api::names::{ClusterName, NamespaceName};
use crate::api::namespace_pattern::NamespacePattern;
use crate::api::version::KubeMinor;
use crate::apply::{Charts, Planned};
use crate::chart::inspect::explain::{ExplainError, Explanation};
use crate::chart::patch::Patches;
use crate::chart::values::{PodFields, check_annotations, check_peers, check_pods, check_proxy};
use crate::chart::versions::agent_skew::check_skew;
use crate::chart::versions::select::Selection;
use crate::chart::{self, Chart, Diagnostic, Diagnostics, Object, Rendered, ValuesBuilder, ValuesTree};
use crate::check::pod_references::PodReferences;
use crate::check::quota::needs;
use crate::check::workload::WantedAgent;
use crate::install::release_spec::{Package, list_needed_writes, to_planned_objects};
use crate::install::{validate_extra_kinds, validate_registry, validate_resources};
use crate::inventory::Release;
use crate::pki;

/// The kind of owner that an agent is to the engine.
pub const OWNER_KIND: &str = "agent";

/// The variables that the chart gives to the agent.
const OWN_ENV: [&str; 3] = ["POD_NAMESPACE", "POD_UID", "FLEET_SERVICE_VERSION"];

/// Fact of a recorded release: the Kubernetes version of the workload cluster that it was rendered for.
pub(super) const KUBERNETES: &str = "kubernetes";

/// The stage of namespace and init Secret; those of the chart follow.
pub const FIRST_STAGE: u32 = 0;

/// Everything that decides what is installed but the cluster.
#[derive(Debug)]
pub struct Plan {
    /// Name of the workload cluster.
    pub name: ClusterName,
    /// Chart, version and namespace.
    pub package: Package,
    /// The checked values.
    pub values: AgentValues,
    /// Kubernetes version of the workload cluster, where it is known.
    kubernetes: Option<KubeMinor>,
}

impl Plan {
    /// A plan from the chosen version and the user's values on top of the chart's.
    ///
    /// # Errors
    /// Wrong values, each at its place.
    pub fn new(
        name: ClusterName,
        namespace: NamespaceName,
        selection: &Selection<'_>,
        chart: Chart,
        values: ValuesBuilder,
    ) -> Result<Self, Diagnostics> {
        let mut tree = values.build(AgentValues::schema)?;
        let values: AgentValues = tree.deserialize()?;
        let mut wrong = validate_resources::check_resources(&[], &values.resources, &tree);
        let kinds = values.placement.extra_kinds.iter().map(|one| [&*one.group, &*one.version, &*one.kind]);
        wrong.extend(validate_extra_kinds::check_extra_kinds(kinds, &tree));
        wrong.extend(wrong_namespaces(&values.placement.protected_namespaces, &tree));
        let account = &values.service_account.annotations;
        wrong.extend(check_pods(&[], agent_pod_fields(&values), &tree));
        wrong.extend(check_annotations(&["serviceAccount", "annotations"], account, &tree));
        wrong.extend(check_proxy(&values.proxy, &tree));
        let policies = &values.network_policy;
        wrong.extend(check_peers(&["networkPolicy", "metricsFrom"], &policies.metrics_from, &tree));
        wrong.extend(check_peers(&["networkPolicy", "egressTo"], &policies.egress_to, &tree));
        if !wrong.is_empty() {
            return Err(Diagnostics(wrong));
        }
        tree.add_warning(validate_registry::check_registry_credentials(values.registry_credentials.as_ref(), &tree));
        let package = Package::new(name.as_str(), namespace, selection, chart, tree);
        Ok(Self { name, package, values, kubernetes: None })
    }

    /// The same for a workload cluster of a Kubernetes version, where it is known.
    #[must_use]
    pub fn with_kubernetes(self, kubernetes: Option<KubeMinor>) -> Self {
        Self { kubernetes: kubernetes.or(self.kubernetes), ..self }
    }

    /// Returns whether what is rendered depends on the Kubernetes version of the workload cluster, which is not known.
    pub fn asks_kubernetes(&self) -> bool {
        let minors = self.package.kubernetes_minors();
        let serving = minors.iter().filter(|minor| serves_admission_policies(**minor)).count();
        self.values.admission_policy == AdmissionPolicy::Auto
            && self.kubernetes.is_none()
            && (1..minors.len()).contains(&serving)
    }

    /// Returns the facts about the workload cluster that templates see.
    fn cluster_facts(&self) -> Value {
        let served = match self.kubernetes {
            Some(minor) => serves_admission_policies(minor),
            None => self.package.kubernetes_minors().iter().all(|minor| serves_admission_policies(*minor)),
        };
        facts_of(served)
    }

    /// The same with patches of the rendered objects.
    #[must_use]
    pub fn with_patches(self, patches: Patches) -> Self {
        Self { package: self.package.with_patches(patches), ..self }
    }

    /// Renders the chart and applies the patches. The same inputs give the same objects.
    ///
    /// # Errors
    /// Values that the templates cannot be rendered with, and patches that cannot be applied, each at its place.
    pub fn render_agent(&self) -> Result<Rendered, Diagnostics> {
        self.package.render_chart(&self.values, self.cluster_facts(), &pki::Files::new())
    }

    /// Renders the chart for the newest Kubernetes version that it may be installed on, where the version is not known: with
    /// the rights for all of that an install for any version succeeds.
    ///
    /// # Errors
    /// The same.
    pub fn render_for_rights(&self) -> Result<Rendered, Diagnostics> {
        let newest = self.kubernetes.or_else(|| self.package.kubernetes_minors().iter().max().copied());
        self.package.render_chart(
            &self.values,
            facts_of(newest.is_some_and(serves_admission_policies)),
            &pki::Files::new(),
        )
    }

    /// The same objects as YAML documents.
    ///
    /// # Errors
    /// The same.
    pub fn render_agent_manifests(&self) -> Result<Vec<String>, Diagnostics> {
        self.package.render_manifests(&self.values, self.cluster_facts(), &pki::Files::new(), |_| ())
    }

    /// Explains the origin of a field of an object, named as in `deployment/fleet-agent#spec.replicas`.
    ///
    /// # Errors
    /// A field that is not there, or values that the templates cannot be rendered with.
    pub fn explain_agent_field(&self, field: &str) -> Result<Vec<Explanation>, ExplainError> {
        self.package.explain_field(&self.values, self.cluster_facts(), &pki::Files::new(), &[], field)
    }

    /// The charts as an engine sees them.
    pub(super) fn build_agent_charts(&self, client: &Client) -> Arc<dyn Charts> {
        super::charts::agent_charts(&self.name, &self.package.namespace, client, self.package.patches())
    }

    /// The objects as the engine takes them: `first` before those of the chart.
    pub fn plan_agent_objects(first: Vec<Value>, objects: &[Object]) -> Vec<Planned> {
        let mut all: Vec<Planned> = first.into_iter().map(|object| Planned::new(FIRST_STAGE, object)).collect();
        all.extend(
            to_planned_objects(objects).into_iter().map(|planned| Planned { stage: planned.stage + 1, ..planned }),
        );
        all
    }

    /// Returns the release of this install for the record; `server` is the address of the control plane.
    pub fn agent_release(&self, server: &str) -> Release {
        let kubernetes = self.kubernetes.map(|minor| (KUBERNETES.to_owned(), minor.to_string()));
        self.package.build_release([("server".to_owned(), server.to_owned())].into_iter().chain(kubernetes).collect())
    }

    /// Returns the requirements of the plan on the workload cluster; `objects` are the rendered chart.
    pub fn build_wanted_agent(&self, objects: &[Object]) -> WantedAgent {
        let table = chart::embedded_versions();
        let mut needs = needs::collect_needs(objects.iter().map(|object| &object.json));
        // The Secret of the record.
        needs.add_objects("secrets", 1);
        let joins = table.rows().iter().map(|row| {
            let agents = table.rows().iter().filter(|agent| check_skew(table, row.version, agent.version).is_ok());
            (row.version, agents.map(|agent| agent.version.to_string()).collect())
        });
        WantedAgent {
            support: self.package.support(),
            joins: joins.collect(),
            name: self.name.to_string(),
            namespace: self.package.namespace.to_string(),
            writes: list_needed_writes(objects),
            needs,
            references: PodReferences::from_objects(objects.iter().map(|object| &object.json)),
            ..WantedAgent::default()
        }
    }
}

/// Returns the values that are given for the agent's pods.
fn agent_pod_fields(values: &AgentValues) -> PodFields<'_> {
    PodFields {
        labels: &values.pod_labels,
        annotations: &values.pod_annotations,
        env: &values.extra_env,
        node_selector: &values.node_selector,
        spread: &values.topology_spread_constraints,
        own_env: &OWN_ENV,
        proxy: Some(&values.proxy),
    }
}

fn facts_of(admission_policies: bool) -> Value {
    json!({ "admissionPolicies": admission_policies })
}

/// Returns whether a Kubernetes version serves admission policies.
fn serves_admission_policies(kubernetes: KubeMinor) -> bool {
    let served = kinds::check_served("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", kubernetes.minor);
    served.is_ok()
}

/// Checks `placement.protectedNamespaces`; `tree` knows where each was given.
fn wrong_namespaces(patterns: &[String], tree: &ValuesTree) -> Vec<Diagnostic> {
    let wrong = patterns.iter().enumerate().filter_map(|(index, text)| {
        let error = text.parse::<NamespacePattern>().err()?;
        let diagnostic = Diagnostic::error("wrong-namespace", error.to_string());
        Some(tree.locate_diagnostic(&["placement", "protectedNamespaces", &index.to_string()], diagnostic))
    });
    wrong.collect()
}

/// The namespace of an agent, as it is made where it is missing: the agent's pods keep to the strictest level of Pod Security.
pub(super) fn agent_namespace_manifest(name: &str) -> Value {
    let levels = ["enforce", "warn", "audit"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "restricted"));
    let labels: BTreeMap<String, &str> = levels.into_iter().collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}
