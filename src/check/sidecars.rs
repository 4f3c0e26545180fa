//! Check for service meshes that add a container to pods of the namespace: pods that have to end do not end then, and the
//! connections between components go through a proxy.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::CheckResult;
use super::secret_readers::lists_any_word;
use crate::api::first_of::first_of;
use crate::api::rbac::{Right, Scope};
use crate::api::remedy::{Flag, Remedy};
use crate::k8s::describe_error;

/// Labels and annotations of a namespace by which a mesh adds its container, with the values that turn it on; without any, each
/// value does.
const MARKS: [(&str, &[&str]); 6] = [
    ("istio-injection", &["enabled"]),
    ("istio.io/rev", &[]),
    ("linkerd.io/inject", &["enabled", "ingress"]),
    ("kuma.io/sidecar-injection", &["enabled", "true"]),
    ("openservicemesh.io/sidecar-injection", &["enabled", "yes", "true"]),
    ("consul.hashicorp.com/connect-inject", &["true"]),
];

/// Number of reasons that are named at most.
const NAMED: usize = 3;

/// What of the cluster decides whether containers are added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SidecarFacts {
    /// Labels of the namespace; those that each has where it does not exist.
    labels: BTreeMap<String, String>,
    /// Annotations of the namespace.
    annotations: BTreeMap<String, String>,
    /// Webhooks that are named after injecting and are called for new pods.
    injectors: Vec<Injector>,
    /// The reason that the webhooks could not be read.
    unread: Option<String>,
}

/// A webhook that adds containers to pods.
#[derive(Debug, Clone, PartialEq)]
struct Injector {
    /// Name of its configuration.
    configuration: String,
    namespaces: LabelSelector,
    pods: LabelSelector,
}

impl SidecarFacts {
    /// Reads the webhooks.
    pub(super) async fn list_injectors(client: &Client) -> Result<Vec<MutatingWebhookConfiguration>, kube::Error> {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        Ok(configurations.list(&ListParams::default()).await?.items)
    }

    /// Facts from what was read; `namespace` is none where it does not exist.
    pub(super) fn new(
        name: &str,
        namespace: Option<&Namespace>,
        webhooks: &Result<Vec<MutatingWebhookConfiguration>, kube::Error>,
    ) -> Self {
        let mut labels = namespace.map(|namespace| namespace.labels().clone()).unwrap_or_default();
        labels.entry("kubernetes.io/metadata.name".to_owned()).or_insert_with(|| name.to_owned());
        let annotations = namespace.map(|namespace| namespace.annotations().clone()).unwrap_or_default();
        let injectors = webhooks.iter().flatten().flat_map(|configuration| {
            let name = configuration.name_any();
            let webhooks = configuration.webhooks.iter().flatten();
            let configuration = configuration.name_any();
            webhooks.filter(move |webhook| is_injector(&name, webhook)).map(move |webhook| Injector {
                configuration: configuration.clone(),
                namespaces: webhook.namespace_selector.clone().unwrap_or_default(),
                pods: webhook.object_selector.clone().unwrap_or_default(),
            })
        });
        let unread = webhooks.as_ref().err().map(describe_error);
        Self { labels, annotations, injectors: injectors.collect(), unread }
    }

    /// The rights of [`Self::list_injectors`].
    pub(super) fn sidecar_rights() -> Vec<Right> {
        Right::optional_rights(
            Scope::Cluster,
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            &["list"],
        )
    }

    /// Evaluates whether pods of the namespace get containers that do not end.
    pub(super) fn evaluate_sidecars(&self, namespace: &str) -> CheckResult {
        let marks =
            MARKS.iter().filter_map(|(key, values)| Some(format!("`{key}: {}`", self.find_mark_value(key, values)?)));
        let marks: Vec<String> = marks.collect();
        let calling = self.injectors.iter().filter(|injector| {
            // Those of the chart have none of the labels by which single pods are chosen.
            selects(&injector.namespaces, &self.labels) && selects(&injector.pods, &BTreeMap::new())
        });
        let mut webhooks: Vec<String> =
            calling.map(|injector| format!("MutatingWebhookConfiguration {}", injector.configuration)).collect();
        webhooks.dedup();
        let reasons: Vec<String> = marks.into_iter().chain(webhooks).collect();
        if reasons.is_empty() {
            return match &self.unread {
                Some(error) => CheckResult::new_warning(
                    format!("the webhooks of the cluster could not be read: {error}"),
                    "allow `list` on mutatingwebhookconfigurations",
                ),
                None => CheckResult::Passed("nothing was found that adds containers to pods".to_owned()),
            };
        }
        CheckResult::new_warning(
            format!(
                "pods in namespace {namespace} get a sidecar container from {}; pods that should complete, such as \
                 those of Jobs and of the probe, then keep running",
                first_of(&reasons, NAMED, ", ")
            ),
            Remedy::new("turn the injection off for this namespace in the mesh, or choose another namespace with ")
                .flag(Flag::Namespace(None)),
        )
    }

    /// The value of a label or an annotation of the namespace that is one of `values`, or any where these are empty.
    fn find_mark_value(&self, key: &str, values: &[&str]) -> Option<&String> {
        let found = self.labels.get(key).or_else(|| self.annotations.get(key));
        found.filter(|value| values.is_empty() || values.contains(&value.as_str()))
    }
}

/// Returns whether a webhook is named after injecting and is called for new pods.
fn is_injector(configuration: &str, webhook: &MutatingWebhook) -> bool {
    let is_named = [configuration, webhook.name.as_str()].iter().any(|name| name.contains("inject"));
    is_named
        && webhook.rules.iter().flatten().any(|rule| {
            lists_any_word(rule.api_groups.as_deref(), &["", "*"])
                && lists_any_word(rule.operations.as_deref(), &["CREATE", "*"])
                && lists_any_word(rule.resources.as_deref(), &["pods", "*", "*/*"])
        })
}

/// Returns whether a selector selects labels, as Kubernetes defines it; an unknown operator selects nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let is_in = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match expression.operator.as_str() {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::k8s::test_api;

    fn facts(labels: Value, annotations: Value, webhooks: Value) -> SidecarFacts {
        let namespace = json!({"metadata": {"name": "fleet", "labels": labels, "annotations": annotations}});
        let configurations =
            json!([{"metadata": {"name": "mesh-sidecar-injector"}, "webhooks": webhooks}, {"metadata": {"name": "x"}}]);
        SidecarFacts::new(
            "fleet",
            Some(&serde_json::from_value(namespace).unwrap()),
            &Ok(serde_json::from_value(configurations).unwrap()),
        )
    }

    /// A namespace in which a mesh adds its container to each pod.
    pub(in crate::check) fn injected() -> SidecarFacts {
        facts(json!({"istio-injection": "enabled"}), json!({}), json!([]))
    }

    fn webhook(namespaces: Value, pods: Value, resource: &str) -> Value {
        json!([{"name": "w.example", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {},
            "namespaceSelector": namespaces, "objectSelector": pods,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]}])
    }

    fn reason(facts: &SidecarFacts) -> Option<String> {
        match facts.evaluate_sidecars("fleet") {
            CheckResult::Warned(problem) => Some(problem.what),
            CheckResult::Passed(_) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_namespace_says_that_a_mesh_adds_containers() {
        for (labels, annotations, expected) in [
            (json!({"istio-injection": "enabled"}), json!({}), true),
            (json!({"istio-injection": "disabled"}), json!({}), false),
            (json!({"istio.io/rev": "canary"}), json!({}), true),
            (json!({}), json!({"linkerd.io/inject": "enabled"}), true),
            (json!({}), json!({"linkerd.io/inject": "disabled"}), false),
            (json!({"kuma.io/sidecar-injection": "enabled"}), json!({}), true),
            (json!({"team": "a"}), json!({}), false),
        ] {
            let found = reason(&facts(labels.clone(), annotations.clone(), json!([])));
            assert_eq!(found.is_some(), expected, "{labels} {annotations}");
        }
    }

    fn label_expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_webhook_adds_containers_where_it_selects_the_namespace_and_its_pods() {
        let own = "kubernetes.io/metadata.name";
        for (namespaces, pods, resource, expected) in [
            (json!({}), json!({}), "pods", true),
            (json!({}), json!({}), "services", false),
            (label_expression(own, "NotIn", &["kube-system"]), json!({}), "pods", true),
            (label_expression(own, "NotIn", &["fleet"]), json!({}), "pods", false),
            (label_expression("mesh", "Exists", &[]), json!({}), "pods", false),
            (label_expression("mesh", "DoesNotExist", &[]), json!({}), "*", true),
            (json!({"matchLabels": {"mesh": "on"}}), json!({}), "pods", false),
            (json!({}), label_expression("sidecar", "NotIn", &["false"]), "pods", true),
            (json!({}), label_expression("sidecar", "In", &["true"]), "pods", false),
        ] {
            let found = reason(&facts(json!({}), json!({}), webhook(namespaces.clone(), pods.clone(), resource)));
            assert_eq!(found.is_some(), expected, "{namespaces} {pods} {resource}: {found:?}");
            assert!(found.is_none_or(|what| what.contains("mesh-sidecar-injector")));
        }
        let mut policy = facts(json!({}), json!({}), json!([]));
        assert_eq!(reason(&policy), None);
        policy.labels.insert("istio.io/rev".to_owned(), "x".to_owned());
        assert!(reason(&policy).is_some());
    }

    #[tokio::test]
    async fn webhooks_that_cannot_be_read_are_not_taken_for_none() {
        let client = test_api::api(|_, _| test_api::failure(403));
        let webhooks = SidecarFacts::list_injectors(&client).await;
        let mut unread = SidecarFacts::new("fleet", None, &webhooks);
        let CheckResult::Warned(problem) = unread.evaluate_sidecars("fleet") else { panic!("{unread:?}") };
        assert!(problem.what.starts_with("the webhooks of the cluster could not be read: "), "{}", problem.what);
        assert_eq!(problem.remedy, Remedy::from("allow `list` on mutatingwebhookconfigurations"));
        // What the namespace itself says comes first.
        unread.labels.insert("istio-injection".to_owned(), "enabled".to_owned());
        let what = reason(&unread).unwrap();
        assert!(what.contains("`istio-injection: enabled`") && !what.contains("could not be read"), "{what}");
    }
}
