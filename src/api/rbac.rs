//! Rights in a cluster, as each part of the program states those that its requests need, and as RBAC writes them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Scope in which a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// In the whole cluster, or on objects without a namespace.
    Cluster,
    /// In the namespace of the installation.
    Namespace,
    /// In the other namespaces that some objects of the installation are in.
    Elsewhere,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// The scope in which it holds.
    pub scope: Scope,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource, such as `secrets` or `pods/log`; `*` for all.
    pub resource: String,
    /// The verb, such as `get`.
    pub verb: &'static str,
    /// Whether the program only says less without it, and works nevertheless.
    pub optional: bool,
}

impl Right {
    /// Rights without which the program stops.
    pub fn needed_rights(scope: Scope, group: &str, resource: &str, verbs: &[&'static str]) -> Vec<Self> {
        Self::expand_verbs(scope, group, resource, verbs, false)
    }

    /// Rights in one namespace without which the program stops.
    pub fn needed_namespace_rights(group: &str, resource: &str, verbs: &[&'static str]) -> Vec<Self> {
        Self::needed_rights(Scope::Namespace, group, resource, verbs)
    }

    /// Rights without which it explains or checks less.
    pub fn optional_rights(scope: Scope, group: &str, resource: &str, verbs: &[&'static str]) -> Vec<Self> {
        Self::expand_verbs(scope, group, resource, verbs, true)
    }

    fn expand_verbs(scope: Scope, group: &str, resource: &str, verbs: &[&'static str], optional: bool) -> Vec<Self> {
        let rights = verbs.iter().map(|verb| Self {
            scope,
            group: group.to_owned(),
            resource: resource.to_owned(),
            verb,
            optional,
        });
        rights.collect()
    }
}

/// Returns each right once; one that anything needs is not optional.
pub fn merge_rights(rights: impl IntoIterator<Item = Right>) -> Vec<Right> {
    let mut known: BTreeMap<(Scope, String, String, &'static str), bool> = BTreeMap::new();
    for right in rights {
        let optional = known.entry((right.scope, right.group, right.resource, right.verb)).or_insert(true);
        *optional &= right.optional;
    }
    known
        .into_iter()
        .map(|((scope, group, resource, verb), optional)| Right { scope, group, resource, verb, optional })
        .collect()
}

/// The rules of a ClusterRole or Role: resources of one group that have the same verbs share a rule.
pub fn build_rules<'r>(rights: impl IntoIterator<Item = &'r Right>) -> Vec<Value> {
    let mut verbs: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for right in rights {
        verbs.entry((&right.group, &right.resource)).or_default().insert(right.verb);
    }
    let mut shared: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        shared.entry((group, verbs.into_iter().collect())).or_default().push(resource);
    }
    shared
        .into_iter()
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect()
}

/// A Role with `rules`; without a namespace, a ClusterRole.
pub fn build_role(name: &str, namespace: Option<&str>, rules: &Value) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    if let Some(namespace) = namespace {
        role["kind"] = "Role".into();
        role["metadata"]["namespace"] = namespace.into();
    }
    role
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_become_few_rules_and_what_anything_needs_is_needed() {
        let rights = merge_rights(
            [
                Right::optional_rights(Scope::Namespace, "", "secrets", &["get", "list"]),
                Right::needed_rights(Scope::Namespace, "", "secrets", &["get"]),
                Right::needed_rights(Scope::Namespace, "", "services", &["list", "get"]),
            ]
            .concat(),
        );
        assert_eq!(rights.iter().filter(|right| right.optional).count(), 1);
        assert_eq!(
            build_rules(&rights),
            [json!({"apiGroups": [""], "resources": ["secrets", "services"], "verbs": ["get", "list"]})]
        );
    }
}
