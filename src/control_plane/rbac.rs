//! The rights that installing, checking and removing a control plane takes, as a ClusterRole and a Role.

use serde_json::{Value, json};

use super::endpoint::exposure;
use super::endpoint::exposure::unknown;
use super::plan::Plan;
use super::values::ExposureType;
use crate::api::kinds::Kind;
use crate::api::rbac::{Right, Scope, merged, role, rules};
use crate::chart::Diagnostics;
use crate::install::session::is_awaited;
use crate::{apply, check, pki};

/// Every right, each once: those of the plan's objects, and those of the reads around them.
///
/// # Errors
/// Values with which the chart cannot be rendered.
pub fn rights(plan: &Plan) -> Result<Vec<Right>, Diagnostics> {
    let wanted = &plan.values.exposure;
    let endpoint = exposure::endpoint_from_values(wanted).unwrap_or_else(|_| unknown(ExposureType::NodePort));
    let rendered = plan.render(&endpoint, &pki::placeholders())?;
    let kinds: Vec<Kind> = rendered.objects.iter().map(|object| Kind::known(object.group(), object.kind())).collect();
    let awaited = |kind: &Kind| is_awaited(&kind.kind);
    let parts = [
        apply::rights(&kinds, awaited),
        check::hosting::rights(),
        check::inside::rights(),
        // The keys, and the Service that decides where the API is reached.
        Right::needed(Scope::Namespace, "", "secrets", &["get", "list"]),
        Right::needed(Scope::Namespace, "", "services", &["get"]),
        // Those of a store that has never worked, when it is changed.
        Right::optional(Scope::Namespace, "", "pods", &["delete"]),
        // Those that try the images before an install, and their login.
        Right::optional(Scope::Namespace, "", "pods", &["create", "get", "list", "watch"]),
        Right::optional(Scope::Namespace, "", "secrets", &["create", "delete"]),
        // Whether replicas that somebody has scaled are an autoscaler's.
        Right::optional(Scope::Namespace, "autoscaling", "horizontalpodautoscalers", &["list"]),
        // What other values have, and is pruned when it is planned no more.
        Right::optional(Scope::Namespace, "policy", "poddisruptionbudgets", &["get", "list", "delete"]),
        Right::optional(Scope::Namespace, "networking.k8s.io", "networkpolicies", &["get", "list", "delete"]),
    ];
    Ok(merged(parts.concat()))
}

/// A ClusterRole and a Role with these rights.
pub fn roles(plan: &Plan, rights: &[Right]) -> [Value; 2] {
    let of = |scope: Scope| rules(rights.iter().filter(|right| right.scope == scope));
    let name = format!("fleetctl-{}", plan.name);
    let namespace = plan.package.namespace.as_str();
    [role(&name, None, &json!(of(Scope::Cluster))), role(&name, Some(namespace), &json!(of(Scope::Namespace)))]
}
