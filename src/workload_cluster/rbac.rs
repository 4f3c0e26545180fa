//! The rights in the workload cluster that installing and removing an agent takes, as roles.
//!
//! Kubernetes prevents privilege escalation in RBAC, so whoever installs needs all permissions of the agent too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::plan::Plan;
use crate::api::kinds::Kind;
use crate::api::names::operator_role_name;
use crate::api::rbac::{Right, Scope, build_role, build_rules, merge_rights};
use crate::chart::{Diagnostics, Object};
use crate::install::session::is_awaited;
use crate::{apply, check};

/// Rights that installing and removing an agent takes.
#[derive(Debug, Clone)]
pub struct Rights {
    /// Every right of our own requests, each once.
    pub own: Vec<Right>,
    /// The rules that the agent's roles grant, by namespace; those without one hold in the whole cluster.
    pub granted: BTreeMap<Option<String>, Vec<Value>>,
    /// Namespaces beside that of the agent that some of its objects are in.
    pub elsewhere: BTreeSet<String>,
}

/// Every right: those of the plan's objects, of what they grant, and of the reads and the probe around them.
///
/// # Errors
/// Values with which the chart cannot be rendered.
pub fn list_agent_rights(plan: &Plan) -> Result<Rights, Diagnostics> {
    let objects = plan.render_for_rights()?.objects;
    let own = plan.package.namespace.as_str();
    let (there, here): (Vec<&Object>, Vec<&Object>) =
        objects.iter().partition(|object| object_namespace(object).is_some_and(|namespace| namespace != own));
    // The namespace and the init Secret, when they are copied.
    let first = ["Namespace", "Secret"].map(|kind| Kind::from_table("", kind));
    let here = [kinds_of_objects(&here), first.to_vec()].concat();
    let parts = [
        apply::engine_rights(&here, |kind| is_awaited(&kind.kind)),
        apply::rights_elsewhere(&kinds_of_objects(&there)),
        check::workload::workload_rights(),
        // What the agent says at its identity Secret, and what it is asked there.
        Right::needed_rights(Scope::Namespace, "", "secrets", &["get", "list", "watch", "patch"]),
        // Whether replicas that somebody has scaled are an autoscaler's.
        Right::optional_rights(Scope::Namespace, "autoscaling", "horizontalpodautoscalers", &["list"]),
        // The pod that tries the way, and the agent that an uninstall that was interrupted has sent away.
        Right::needed_rights(Scope::Namespace, "", "pods", &["create", "delete", "deletecollection", "list", "watch"]),
    ];
    Ok(Rights {
        own: merge_rights(parts.concat()),
        granted: collect_granted_rules(&objects),
        elsewhere: there.iter().filter_map(|object| object_namespace(object)).map(str::to_owned).collect(),
    })
}

fn kinds_of_objects(objects: &[&Object]) -> Vec<Kind> {
    objects.iter().map(|object| Kind::from_table(object.group(), object.kind())).collect()
}

fn object_namespace(object: &Object) -> Option<&str> {
    object.json["metadata"]["namespace"].as_str()
}

fn collect_granted_rules(objects: &[Object]) -> BTreeMap<Option<String>, Vec<Value>> {
    let mut granted: BTreeMap<Option<String>, Vec<Value>> = BTreeMap::new();
    for object in objects.iter().filter(|object| matches!(object.kind(), "Role" | "ClusterRole")) {
        let rules = object.json["rules"].as_array().into_iter().flatten().cloned();
        granted.entry(object_namespace(object).map(str::to_owned)).or_default().extend(rules);
    }
    granted
}

/// A ClusterRole, a Role for the agent's namespace, and one for each other namespace that it has objects in.
pub fn build_agent_roles(plan: &Plan, rights: &Rights) -> Vec<Value> {
    let name = operator_role_name(&format!("fleetctl-agent-{}", plan.name), plan.package.namespace.as_str());
    let own = Some(plan.package.namespace.as_str());
    let elsewhere =
        rights.elsewhere.iter().map(|namespace| build_scoped_role(rights, &name, Scope::Elsewhere, Some(namespace)));
    [build_scoped_role(rights, &name, Scope::Cluster, None), build_scoped_role(rights, &name, Scope::Namespace, own)]
        .into_iter()
        .chain(elsewhere)
        .collect()
}

/// Builds the role of an operator in a scope, or in one namespace.
fn build_scoped_role(rights: &Rights, name: &str, scope: Scope, namespace: Option<&str>) -> Value {
    let mut all = build_rules(rights.own.iter().filter(|right| right.scope == scope));
    all.extend(rights.granted.get(&namespace.map(str::to_owned)).into_iter().flatten().cloned());
    build_role(name, namespace, &json!(all))
}
