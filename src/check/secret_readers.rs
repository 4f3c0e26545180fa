//! Check for role bindings from outside of the installation that grant read access to the Secrets of its namespace,
//! which contain its private keys.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::CheckResult;
use crate::api::first_of::first_of;
use crate::api::labels::LABEL_INSTALL;
use crate::api::rbac::{Right, Scope};
use crate::api::remedy::{Flag, Remedy};
use crate::k8s::describe_error;

const RBAC: &str = "rbac.authorization.k8s.io";

/// ClusterRoles that every cluster has and that read Secrets.
const WELL_KNOWN: [&str; 3] = ["admin", "cluster-admin", "edit"];

/// Most role bindings that are looked at.
const LARGEST: u32 = 500;

/// Number of subjects that are named at most.
const NAMED: usize = 5;

/// A subject that may read Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReader {
    /// Its kind and name: `User ann`, `ServiceAccount ci/deployer`.
    pub subject: String,
    /// Name of the RoleBinding.
    pub binding: String,
    /// Name of the role.
    pub role: String,
}

/// Subjects that may read the Secrets of a namespace by role bindings in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretReaders {
    /// Those of bindings of others.
    pub found: Vec<SecretReader>,
    /// Reason that the bindings could not be listed.
    pub unread: Option<String>,
}

impl SecretReaders {
    /// Reads the bindings of a namespace, and the roles that they name. A role that cannot be read is assumed not to
    /// read Secrets, except the well-known ones.
    pub(super) async fn find_in_namespace(client: &Client, namespace: &str) -> Self {
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
        let list = match bindings.list(&ListParams::default().limit(LARGEST)).await {
            Ok(list) => list,
            Err(error) => return Self { unread: Some(describe_error(&error)), ..Self::default() },
        };
        let mut found = Vec::new();
        for binding in list.iter().filter(|binding| !is_own(binding, namespace)) {
            if !reads_secrets(client, namespace, &binding.role_ref).await {
                continue;
            }
            found.extend(binding.subjects.iter().flatten().map(|subject| SecretReader {
                subject: format_subject(subject, namespace),
                binding: binding.name_any(),
                role: binding.role_ref.name.clone(),
            }));
        }
        Self { found, unread: None }
    }

    /// The rights of [`Self::find_in_namespace`].
    pub(super) fn secret_reader_rights() -> Vec<Right> {
        [
            Right::optional_rights(Scope::Namespace, RBAC, "rolebindings", &["list"]),
            Right::optional_rights(Scope::Namespace, RBAC, "roles", &["get"]),
            Right::optional_rights(Scope::Cluster, RBAC, "clusterroles", &["get"]),
        ]
        .concat()
    }

    /// Evaluates whether subjects outside of the installation can read its Secrets.
    pub(super) fn evaluate_readers(&self, namespace: &str) -> CheckResult {
        if let Some(error) = &self.unread {
            return CheckResult::Passed(format!("unknown: role bindings could not be listed: {error}"));
        }
        if self.found.is_empty() {
            return CheckResult::Passed(format!("role bindings in namespace {namespace} grant access to nobody else"));
        }
        let reader =
            |reader: &SecretReader| format!("{} by RoleBinding {} to {}", reader.subject, reader.binding, reader.role);
        CheckResult::new_warning(
            format!(
                "others may read the Secrets of namespace {namespace}, and so the private keys of its installations: {}",
                first_of(self.found.iter().map(reader), NAMED, ", ")
            ),
            Remedy::new("delete the RoleBindings unless they are intended, or choose another namespace with ")
                .flag(Flag::Namespace(None)),
        )
    }
}

/// Returns whether the binding belongs to an installation and is for its own service accounts.
fn is_own(binding: &RoleBinding, namespace: &str) -> bool {
    binding.labels().contains_key(LABEL_INSTALL)
        && binding.subjects.iter().flatten().all(|subject| {
            subject.kind == "ServiceAccount" && subject.namespace.as_deref().is_none_or(|other| other == namespace)
        })
}

/// Returns the kind and name of a subject.
fn format_subject(subject: &Subject, namespace: &str) -> String {
    match subject.kind.as_str() {
        "ServiceAccount" => {
            format!("ServiceAccount {}/{}", subject.namespace.as_deref().unwrap_or(namespace), subject.name)
        }
        kind => format!("{kind} {}", subject.name),
    }
}

/// Returns whether a role is known to read Secrets.
async fn reads_secrets(client: &Client, namespace: &str, role: &RoleRef) -> bool {
    if role.kind == "ClusterRole" {
        if WELL_KNOWN.contains(&role.name.as_str()) {
            return true;
        }
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let read = roles.get_opt(&role.name).await.ok().flatten();
        return read.is_some_and(|role| role.rules.iter().flatten().any(may_read_secrets));
    }
    let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
    let read = roles.get_opt(&role.name).await.ok().flatten();
    read.is_some_and(|role| role.rules.iter().flatten().any(may_read_secrets))
}

/// Returns whether a rule reads Secrets, be it some by their names.
fn may_read_secrets(rule: &PolicyRule) -> bool {
    lists_any_word(rule.api_groups.as_deref(), &["", "*"])
        && lists_any_word(rule.resources.as_deref(), &["secrets", "*"])
        && lists_any_word(Some(&rule.verbs), &["get", "list", "watch", "*"])
}

/// Returns whether a list of a rule has one of these words.
pub(super) fn lists_any_word(list: Option<&[String]>, wanted: &[&str]) -> bool {
    list.into_iter().flatten().any(|entry| wanted.contains(&entry.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn binding(labels: &Value, subjects: &Value) -> RoleBinding {
        serde_json::from_value(json!({
            "metadata": {"name": "b", "labels": labels},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
            "subjects": subjects,
        }))
        .unwrap()
    }

    #[test]
    fn a_binding_is_the_installations_own_only_for_its_own_service_accounts() {
        let own = json!({LABEL_INSTALL: "demo"});
        let account = json!({"kind": "ServiceAccount", "name": "fleet-keys", "namespace": "fleet"});
        let user = json!({"kind": "User", "name": "eve", "apiGroup": RBAC});
        let elsewhere = json!({"kind": "ServiceAccount", "name": "fleet-keys", "namespace": "other"});
        assert!(is_own(&binding(&own, &json!([account])), "fleet"));
        assert!(!is_own(&binding(&json!({}), &json!([account])), "fleet"));
        for other in [user, elsewhere] {
            assert!(!is_own(&binding(&own, &json!([account, other])), "fleet"), "{other}");
        }
    }

    fn rule_reads_secrets(groups: &[&str], resources: &[&str], verbs: &[&str]) -> bool {
        let rule = json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        may_read_secrets(&serde_json::from_value(rule).unwrap())
    }

    #[test]
    fn a_rule_that_reads_secrets_is_found_however_it_is_written() {
        assert!(rule_reads_secrets(&[""], &["secrets"], &["get"]) && rule_reads_secrets(&["*"], &["*"], &["*"]));
        assert!(rule_reads_secrets(&["apps", ""], &["configmaps", "secrets"], &["create", "watch"]));
        assert!(
            !rule_reads_secrets(&[""], &["configmaps"], &["get"])
                && !rule_reads_secrets(&["apps"], &["secrets"], &["get"])
        );
        assert!(!rule_reads_secrets(&[""], &["secrets"], &["create", "patch"]));
    }

    #[test]
    fn readers_are_warned_of_and_what_cannot_be_read_is_not() {
        let found = (0..7).map(|number| SecretReader {
            subject: format!("User ann-{number}"),
            binding: "team".to_owned(),
            role: "edit".to_owned(),
        });
        let readers = SecretReaders { found: found.collect(), unread: None };
        let CheckResult::Warned(problem) = readers.evaluate_readers("fleet") else { panic!("{readers:?}") };
        assert!(problem.what.contains("User ann-0 by RoleBinding team to edit") && problem.what.contains("ann-4"));
        assert!(!problem.what.contains("ann-5"), "{}", problem.what);
        let unread = SecretReaders { found: Vec::new(), unread: Some("forbidden".to_owned()) };
        assert!(matches!(unread.evaluate_readers("fleet"), CheckResult::Passed(seen) if seen.contains("forbidden")));
        assert!(matches!(SecretReaders::default().evaluate_readers("fleet"), CheckResult::Passed(_)));
    }
}
