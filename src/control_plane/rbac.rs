//! The rights that installing, checking and removing a control plane takes, as a ClusterRole and a Role.

use serde_json::{Value, json};

use super::endpoint::exposure;
use super::endpoint::exposure::unknown_endpoint;
use super::etcd::access::etcd_rights;
use super::plan::Plan;
use super::renewal::Renewer;
use super::restore::restore_rights;
use super::values::ExposureType;
use crate::api::kinds::Kind;
use crate::api::names::operator_role_name;
use crate::api::rbac::{Right, Scope, build_role, build_rules, merge_rights};
use crate::chart::{Diagnostics, Rendered};
use crate::install::session::is_awaited;
use crate::{apply, check, pki};

/// Every right, each once: those of the plan's objects, and those of the reads around them.
///
/// # Errors
/// Values with which the chart cannot be rendered.
pub fn list_install_rights(plan: &Plan) -> Result<Vec<Right>, Diagnostics> {
    let rendered = render_for_rights(plan)?;
    let kinds: Vec<Kind> =
        rendered.objects.iter().map(|object| Kind::from_table(object.group(), object.kind())).collect();
    let parts = [
        apply::engine_rights(&kinds, |kind| is_awaited(&kind.kind)),
        check::hosting::hosting_rights(),
        check::inside::health_rights(),
        // The keys, and the Service that decides where the API is reached.
        Right::needed_rights(Scope::Namespace, "", "secrets", &["get", "list"]),
        Right::needed_rights(Scope::Namespace, "", "services", &["get"]),
        // Those of a store that has never worked, when it is changed.
        Right::optional_rights(Scope::Namespace, "", "pods", &["delete"]),
        // Those that try the images before an install, and their login.
        Right::optional_rights(Scope::Namespace, "", "pods", &["create", "get", "list", "watch"]),
        Right::optional_rights(Scope::Namespace, "", "secrets", &["create", "delete"]),
        // Whether replicas that somebody has scaled are an autoscaler's.
        Right::optional_rights(Scope::Namespace, "autoscaling", "horizontalpodautoscalers", &["list"]),
        // How the renewal of certificates goes.
        Right::optional_rights(Scope::Namespace, "batch", "cronjobs", &["get", "list", "delete"]),
        Right::optional_rights(Scope::Namespace, "", "configmaps", &["get"]),
        // What other values have, and is pruned when it is planned no more.
        Right::optional_rights(Scope::Namespace, "policy", "poddisruptionbudgets", &["get", "list", "delete"]),
        Right::optional_rights(Scope::Namespace, "networking.k8s.io", "networkpolicies", &["get", "list", "delete"]),
    ];
    Ok(merge_rights(parts.concat()))
}

/// The rights in its namespace that a renewal of certificates needs.
pub fn renewal_rights(renewer: &Renewer, recovers: bool) -> Vec<Right> {
    let mut parts = vec![
        check::inside::health_rights(),
        Right::needed_namespace_rights("", "secrets", &["get", "list"]),
        Right::needed_namespace_rights("", "configmaps", &["get"]),
        // What each pod serves; a WebSocket begins with a GET, and newer clusters ask for both.
        Right::needed_namespace_rights("", "pods/portforward", &["create", "get"]),
        Right::needed_namespace_rights("apps", "deployments", &["patch"]),
        Right::needed_namespace_rights("apps", "statefulsets", &["patch"]),
    ];
    match renewer {
        Renewer::Machine => {
            parts.extend([
                Right::needed_namespace_rights("", "secrets", &["update"]),
                Right::needed_namespace_rights("", "configmaps", &["patch"]),
            ]);
        }
        Renewer::Job => {
            parts.extend([
                Right::needed_namespace_rights("batch", "cronjobs", &["get"]),
                Right::needed_namespace_rights("batch", "jobs", &["create", "get"]),
            ]);
        }
        Renewer::Others(_) => {}
    }
    if recovers {
        parts.push(Right::needed_namespace_rights("", "pods", &["delete"]));
    }
    merge_rights(parts.concat())
}

fn render_for_rights(plan: &Plan) -> Result<Rendered, Diagnostics> {
    let wanted = &plan.values.exposure;
    let endpoint = exposure::endpoint_from_values(wanted).unwrap_or_else(|_| unknown_endpoint(ExposureType::NodePort));
    plan.render_control_plane(&endpoint, &pki::placeholder_files())
}

/// A Role with the rights of commands for an installed control plane that an install does not need: those that renew its
/// certificates, and those that reach into pods of etcd and replace its stores. They come close to those of an administrator of the control
/// plane, so they are apart.
pub fn build_day2_role(plan: &Plan) -> Value {
    let renewers = [Renewer::Machine, Renewer::Job];
    let rights = renewers.iter().flat_map(|renewer| renewal_rights(renewer, true));
    let rights = merge_rights(rights.chain(etcd_rights()).chain(restore_rights()));
    let namespace = plan.package.namespace.as_str();
    let name = operator_role_name(&format!("fleetctl-{}-day2", plan.name), namespace);
    build_role(&name, Some(namespace), &json!(build_rules(&rights)))
}

/// A ClusterRole and a Role with these rights. Kubernetes prevents privilege escalation in RBAC, so whoever installs needs
/// all permissions of who renews certificates, too: the Role has the rules of that one.
///
/// # Errors
/// Those of [`list_install_rights`].
pub fn build_install_roles(plan: &Plan, rights: &[Right]) -> Result<[Value; 2], Diagnostics> {
    let granted = render_for_rights(plan)?.objects.into_iter().filter(|object| object.kind() == "Role");
    let granted = granted.flat_map(|object| object.json["rules"].as_array().cloned().unwrap_or_default());
    let [shared, mut own] =
        [Scope::Cluster, Scope::Namespace].map(|scope| build_rules(rights.iter().filter(|right| right.scope == scope)));
    let namespace = plan.package.namespace.as_str();
    let name = operator_role_name(&format!("fleetctl-{}", plan.name), namespace);
    own.extend(granted);
    Ok([build_role(&name, None, &json!(shared)), build_role(&name, Some(namespace), &json!(own))])
}
