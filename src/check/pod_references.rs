//! Objects that pods of an install name and the cluster has to have: Secrets to pull images with, and classes.
//!
//! A pod with a missing priority class or runtime class is refused. A missing Secret for pulls, or one of a type that nodes do
//! not read, is passed over by the kubelet: the pull then fails where the registry needs a login.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::Api;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CheckResult;
use crate::api::rbac::{Right, Scope};
use crate::api::remedy::{Flag, Remedy};
use crate::k8s::describe_error;

/// The types of Secrets that nodes read for pulls.
const PULL_TYPES: [&str; 2] = ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"];

/// Names in the pods of an install.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodReferences {
    /// Secrets of the namespace to pull images with, without those that the install creates.
    pub pull_secrets: BTreeSet<String>,
    /// PriorityClasses.
    pub priority_classes: BTreeSet<String>,
    /// RuntimeClasses.
    pub runtime_classes: BTreeSet<String>,
}

impl PodReferences {
    /// Collects the names in the pods that objects make.
    pub fn from_objects<'o>(objects: impl IntoIterator<Item = &'o Value> + Clone) -> Self {
        let mut references = Self::default();
        for spec in objects.clone().into_iter().filter_map(pod_spec) {
            references.priority_classes.extend(find_pod_name(spec, "priorityClassName"));
            references.runtime_classes.extend(find_pod_name(spec, "runtimeClassName"));
            let secrets = spec["imagePullSecrets"].as_array().into_iter().flatten();
            references.pull_secrets.extend(secrets.filter_map(|secret| Some(secret["name"].as_str()?.to_owned())));
        }
        for object in objects.into_iter().filter(|object| object["kind"] == "Secret") {
            references.pull_secrets.remove(object["metadata"]["name"].as_str().unwrap_or_default());
        }
        references
    }
}

/// The name that a field of the spec of a pod has.
fn find_pod_name(spec: &Value, key: &str) -> Option<String> {
    spec[key].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the spec of the pods that a workload makes; none for an object of another kind.
pub(crate) fn pod_spec(object: &Value) -> Option<&Value> {
    let path = match object["kind"].as_str()? {
        "StatefulSet" | "Deployment" | "DaemonSet" | "Job" => "/spec/template/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        _ => return None,
    };
    object.pointer(path)
}

/// What the cluster has of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An object that serves.
    Found,
    /// No object.
    Missing,
    /// A Secret of a type that nodes do not read for pulls.
    WrongType(String),
    /// It could not be read, for this reason.
    Unread(String),
}

impl Reference {
    fn from_answer<T>(answer: Result<Option<T>, kube::Error>, judge: impl FnOnce(T) -> Self) -> Self {
        match answer {
            Ok(Some(found)) => judge(found),
            Ok(None) => Self::Missing,
            Err(error) => Self::Unread(describe_error(&error)),
        }
    }
}

/// What the cluster has of all names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReferenceFacts {
    /// Secrets to pull images with, by name.
    pub pull_secrets: BTreeMap<String, Reference>,
    /// PriorityClasses, by name.
    pub priority_classes: BTreeMap<String, Reference>,
    /// RuntimeClasses, by name.
    pub runtime_classes: BTreeMap<String, Reference>,
}

impl ReferenceFacts {
    /// Reads each object that is named, by a request each; none where none is named.
    pub(super) async fn from_cluster(client: &Client, namespace: &str, references: &PodReferences) -> Self {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let mut facts = Self::default();
        for name in &references.pull_secrets {
            let found = Reference::from_answer(secrets.get_opt(name).await, |secret| {
                let kind = secret.type_.unwrap_or_default();
                if PULL_TYPES.contains(&kind.as_str()) { Reference::Found } else { Reference::WrongType(kind) }
            });
            facts.pull_secrets.insert(name.clone(), found);
        }
        facts.priority_classes = find_classes::<PriorityClass>(client, &references.priority_classes).await;
        facts.runtime_classes = find_classes::<RuntimeClass>(client, &references.runtime_classes).await;
        facts
    }

    /// The rights of [`Self::from_cluster`].
    pub(super) fn reference_rights() -> Vec<Right> {
        [
            Right::optional_rights(Scope::Namespace, "", "secrets", &["get"]),
            Right::optional_rights(Scope::Cluster, "scheduling.k8s.io", "priorityclasses", &["get"]),
            Right::optional_rights(Scope::Cluster, "node.k8s.io", "runtimeclasses", &["get"]),
        ]
        .concat()
    }

    /// Evaluates whether nodes can pull with the Secrets that pods name.
    pub(super) fn evaluate_pull_secrets(&self, namespace: &str) -> CheckResult {
        let problems = self.pull_secrets.iter().filter_map(|(name, found)| match found {
            Reference::Found | Reference::Unread(_) => None,
            Reference::Missing => Some(format!("Secret {name} does not exist in namespace {namespace}")),
            Reference::WrongType(kind) => Some(format!(
                "Secret {name} in namespace {namespace} has the type `{kind}`, which the kubelet does not use for \
                     image pulls"
            )),
        });
        let problems: Vec<String> = problems.collect();
        if !problems.is_empty() {
            return CheckResult::new_warning(
                format!("{}; the kubelet then pulls images without credentials", problems.join("; ")),
                Remedy::new(format!(
                    "create it: `kubectl --namespace {namespace} create secret docker-registry NAME --docker-server \
                     REGISTRY --docker-username USER --docker-password PASSWORD`, or set credentials with "
                ))
                .flag(Flag::set_value("registryCredentials", "JSON")),
            );
        }
        let unread = self.pull_secrets.iter().find_map(|(name, found)| match found {
            Reference::Unread(error) => Some(format!("Secret {name} could not be read: {error}")),
            _ => None,
        });
        match unread {
            Some(what) => CheckResult::new_warning(what, format!("allow `get` on secrets in namespace {namespace}")),
            None if self.pull_secrets.is_empty() => CheckResult::Passed("none are named".to_owned()),
            None => CheckResult::Passed(format!("{} found", self.pull_secrets.len())),
        }
    }

    /// Evaluates whether the classes that pods name exist.
    pub(super) fn evaluate_classes(&self) -> CheckResult {
        let kinds = [("PriorityClass", &self.priority_classes), ("RuntimeClass", &self.runtime_classes)];
        let all =
            || kinds.iter().flat_map(|(kind, classes)| classes.iter().map(move |(name, found)| (kind, name, found)));
        let missing: Vec<String> = all()
            .filter(|(_, _, found)| **found == Reference::Missing)
            .map(|(kind, name, _)| format!("{kind} `{name}` does not exist"))
            .collect();
        if !missing.is_empty() {
            return CheckResult::new_failure(
                format!("{}, so the API server refuses the pods", missing.join("; ")),
                "create it, or name an existing one: `kubectl get priorityclasses,runtimeclasses`",
            );
        }
        let unread = all().find_map(|(kind, name, found)| match found {
            Reference::Unread(error) => Some(format!("{kind} `{name}` could not be read: {error}")),
            _ => None,
        });
        match unread {
            Some(what) => CheckResult::new_warning(what, "allow `get` on priorityclasses and runtimeclasses"),
            None if all().next().is_none() => CheckResult::Passed("none are named".to_owned()),
            None => CheckResult::Passed("all exist".to_owned()),
        }
    }
}

async fn find_classes<K>(client: &Client, names: &BTreeSet<String>) -> BTreeMap<String, Reference>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let classes: Api<K> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    for name in names {
        found.insert(name.clone(), Reference::from_answer(classes.get_opt(name).await, |_| Reference::Found));
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::k8s::test_api;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The references to one object that does not exist.
    pub(in crate::check) fn missing_reference(name: &str) -> BTreeMap<String, Reference> {
        BTreeMap::from([(name.to_owned(), Reference::Missing)])
    }

    fn pod_with_names(secret: &str, class: &str) -> Value {
        json!({"priorityClassName": class, "imagePullSecrets": [{"name": secret}, {"name": "own"}]})
    }

    #[test]
    fn names_come_from_every_pod_but_for_what_is_created() {
        let mut job = pod_with_names("c", "night");
        job["runtimeClassName"] = "gvisor".into();
        let objects = [
            json!({"kind": "Deployment", "spec": {"template": {"spec": pod_with_names("a", "high")}}}),
            json!({"kind": "StatefulSet", "spec": {"template": {"spec": pod_with_names("b", "high")}}}),
            json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": job}}}}}),
            json!({"kind": "Secret", "metadata": {"name": "own"}}),
            json!({"kind": "Service", "spec": {}}),
        ];
        let expected = PodReferences {
            pull_secrets: names(&["a", "b", "c"]),
            priority_classes: names(&["high", "night"]),
            runtime_classes: names(&["gvisor"]),
        };
        assert_eq!(PodReferences::from_objects(&objects), expected);
    }

    fn pod_references(secrets: &[&str], priority: &[&str], runtime: &[&str]) -> PodReferences {
        PodReferences {
            pull_secrets: names(secrets),
            priority_classes: names(priority),
            runtime_classes: names(runtime),
        }
    }

    #[tokio::test]
    async fn each_name_is_read_and_judged() {
        let client = test_api::api(|uri, _| match uri.path() {
            "/api/v1/namespaces/fleet/secrets/good" => {
                json!({"metadata": {"name": "good"}, "type": "kubernetes.io/dockerconfigjson"})
            }
            "/api/v1/namespaces/fleet/secrets/opaque" => json!({"metadata": {"name": "opaque"}, "type": "Opaque"}),
            "/apis/scheduling.k8s.io/v1/priorityclasses/high" => json!({"metadata": {"name": "high"}, "value": 1}),
            "/apis/node.k8s.io/v1/runtimeclasses/hidden" | "/api/v1/namespaces/fleet/secrets/hidden" => {
                test_api::failure(403)
            }
            _ => test_api::failure(404),
        });

        let good = ReferenceFacts::from_cluster(&client, "fleet", &pod_references(&["good"], &["high"], &[])).await;
        assert_eq!(good.evaluate_pull_secrets("fleet"), CheckResult::Passed("1 found".to_owned()));
        assert_eq!(good.evaluate_classes(), CheckResult::Passed("all exist".to_owned()));

        let bad = ReferenceFacts::from_cluster(
            &client,
            "fleet",
            &pod_references(&["opaque", "typo"], &["high", "typo"], &[]),
        )
        .await;
        let CheckResult::Warned(problem) = bad.evaluate_pull_secrets("fleet") else { panic!("{bad:?}") };
        assert!(problem.what.contains("Secret opaque in namespace fleet has the type `Opaque`"), "{}", problem.what);
        assert!(problem.what.contains("Secret typo does not exist in namespace fleet"), "{}", problem.what);
        let CheckResult::Failed(problem) = bad.evaluate_classes() else { panic!("{bad:?}") };
        assert_eq!(problem.what, "PriorityClass `typo` does not exist, so the API server refuses the pods");

        let hidden =
            ReferenceFacts::from_cluster(&client, "fleet", &pod_references(&["good", "hidden"], &[], &["hidden"]))
                .await;
        assert!(matches!(hidden.evaluate_classes(), CheckResult::Warned(_)), "{hidden:?}");
        let CheckResult::Warned(problem) = hidden.evaluate_pull_secrets("fleet") else { panic!("{hidden:?}") };
        assert!(problem.what.starts_with("Secret hidden could not be read: "), "{}", problem.what);
        assert!(!problem.what.contains("Status {"), "the answer, and not a dump of it: {}", problem.what);
        assert!(!problem.what.contains("without credentials"), "{}", problem.what);
        assert_eq!(problem.remedy, Remedy::from("allow `get` on secrets in namespace fleet"));
        let none = ReferenceFacts::from_cluster(&client, "fleet", &PodReferences::default()).await;
        assert_eq!(none, ReferenceFacts::default());
        assert_eq!(none.evaluate_classes(), CheckResult::Passed("none are named".to_owned()));
    }
}
