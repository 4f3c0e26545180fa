//! The preflight checks: pure judgements over the facts of a hosting cluster.

use std::ops::RangeInclusive;

use super::{DEFAULT_CLASS, HostingFacts, NamespaceFacts, Wanted, is_cloud, read};
use crate::api::first_of::first_of;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::version::KubeMinor;
use crate::check::quota::Place;
use crate::check::{Check, CheckResult, access, autopilot, clock};

/// The preflight checks of a control plane install, in the order in which they are shown.
pub const CHECKS: [Check<HostingFacts>; 21] = [
    Check::new_required("kubernetes-version", "Kubernetes version", "cluster", &[], check_kubernetes_version),
    Check::new_required("autopilot", "managed mode", "cluster", &[], check_autopilot).after_reads(&[read::NODES]),
    Check::new_required("clock", "clock", "cluster", &[], check_clock).after_reads(&[read::CLOCK]),
    Check::new_required("nodes", "nodes", "cluster", &[], check_nodes).after_reads(&[read::NODES]),
    Check::new_required("architecture", "architecture of the nodes", "cluster", &["nodes"], check_architecture)
        .after_reads(&[read::NODES]),
    Check::new_required("access", "rights", "namespace", &[], check_access).after_reads(&[read::RIGHTS]),
    Check::new_required("namespace", "namespace", "namespace", &[], check_namespace).after_reads(&[read::NAMESPACE]),
    Check::new_required("pod-security", "Pod Security", "namespace", &["namespace"], pod_security)
        .after_reads(&[read::NAMESPACE]),
    Check::new_advisory("secret-readers", "readers of Secrets", "namespace", &["namespace"], check_secret_readers)
        .after_reads(&[read::NAMESPACE]),
    Check::new_required("existing", "existing installation", "namespace", &["namespace"], check_existing_install)
        .after_reads(&[read::NAMESPACE]),
    Check::new_required(
        "leftovers",
        "data of an earlier installation",
        "namespace",
        &["namespace"],
        check_orphaned_data,
    )
    .after_reads(&[read::NAMESPACE]),
    Check::new_required("names", "names of the objects", "namespace", &["namespace", "existing"], check_object_names)
        .after_reads(&[read::NAMES]),
    Check::new_required("values", "values of the last install", "namespace", &["names"], check_forgotten_values)
        .after_reads(&[read::NAMES]),
    Check::new_required("quota", "quota", "namespace", &["namespace"], check_quota).after_reads(&[
        read::NAMESPACE,
        read::CLASSES,
        read::NAMES,
    ]),
    Check::new_required("pull-secrets", "image pull Secrets", "namespace", &["namespace"], check_pull_secrets)
        .after_reads(&[read::REFERENCES, read::NAMESPACE]),
    Check::new_required("classes", "classes of the pods", "cluster", &[], check_classes)
        .after_reads(&[read::REFERENCES]),
    Check::new_advisory("sidecars", "sidecar containers", "namespace", &["namespace"], check_sidecars)
        .after_reads(&[read::NAMESPACE]),
    Check::new_required("storage", "storage", "storage", &[], check_storage)
        .after_reads(&[read::CLASSES, read::NAMESPACE]),
    Check::new_required("node-port", "node port", "exposure", &[], node_port).after_reads(&[read::SERVICES]),
    Check::new_advisory("load-balancer", "load balancer", "exposure", &["nodes"], load_balancer)
        .after_reads(&[read::NODES]),
    Check::new_advisory("network-policies", "network policies", "exposure", &["nodes"], network_policies)
        .after_reads(&[read::NODES]),
];

fn check_kubernetes_version(facts: &HostingFacts) -> CheckResult {
    facts.wanted.support.evaluate_version(&facts.git_version)
}

fn check_clock(facts: &HostingFacts) -> CheckResult {
    clock::evaluate_issuer_clock(facts.clock_ahead)
}

fn check_pull_secrets(facts: &HostingFacts) -> CheckResult {
    facts.references.evaluate_pull_secrets(&facts.wanted.namespace)
}

fn check_classes(facts: &HostingFacts) -> CheckResult {
    facts.references.evaluate_classes()
}

fn check_sidecars(facts: &HostingFacts) -> CheckResult {
    facts.namespace.sidecars.evaluate_sidecars(&facts.wanted.namespace)
}

fn check_autopilot(facts: &HostingFacts) -> CheckResult {
    autopilot::evaluate_autopilot(&facts.autopilot_evidence)
}

fn check_access(facts: &HostingFacts) -> CheckResult {
    let Wanted { name, support, .. } = &facts.wanted;
    let source = Command::at_run_place(Action::ShowRbac(Subject::ControlPlane(name.clone())));
    access::evaluate_access(
        &facts.forbidden,
        facts.wanted.writes.len(),
        source.with_flag(Flag::Version(support.line.clone())),
    )
}

fn check_forgotten_values(facts: &HostingFacts) -> CheckResult {
    match &facts.forgotten[..] {
        [] => CheckResult::Passed("none would be reset".to_owned()),
        forgotten => CheckResult::new_failure(
            format!("these values are not given again and would be reset: {}", forgotten.join("; ")),
            Remedy::default()
                .flag(Flag::ReuseValues)
                .text(" keeps them, ")
                .flag(Flag::ResetValues)
                .text(" resets them"),
        ),
    }
}

fn check_namespace(facts: &HostingFacts) -> CheckResult {
    let name = &facts.wanted.namespace;
    if let Some(error) = facts.unread.get(read::NAMESPACE) {
        return CheckResult::new_warning(
            format!("namespace {name} could not be read: {error}"),
            "allow `get` on namespaces",
        );
    }
    match &facts.namespace {
        NamespaceFacts { terminating: true, .. } => CheckResult::new_failure(
            format!("namespace {name} is being deleted"),
            Remedy::new(format!("wait until it is deleted (`kubectl get namespace {name}`), or choose another with "))
                .flag(Flag::Namespace(None)),
        ),
        NamespaceFacts { exists: true, .. } => CheckResult::Passed(format!("{name} exists")),
        _ => CheckResult::Passed(format!("{name} will be created")),
    }
}

fn check_secret_readers(facts: &HostingFacts) -> CheckResult {
    facts.namespace.readers.evaluate_readers(&facts.wanted.namespace)
}

fn check_existing_install(facts: &HostingFacts) -> CheckResult {
    let wanted = &facts.wanted;
    match facts.namespace.control_planes.iter().find(|other| **other != wanted.name) {
        Some(other) => CheckResult::new_failure(
            format!("namespace {} already contains control plane `{other}`", wanted.namespace),
            Remedy::new("choose another namespace with ")
                .flag(Flag::Namespace(None))
                .text(", or give that name to change the existing installation"),
        ),
        None if facts.namespace.control_planes.is_empty() => CheckResult::Passed("none in this namespace".to_owned()),
        None => CheckResult::Passed(format!("{} is installed and will be brought up to date", wanted.name)),
    }
}

fn check_nodes(facts: &HostingFacts) -> CheckResult {
    if let Some(error) = facts.unread.get(read::NODES) {
        return CheckResult::new_warning(format!("nodes could not be listed: {error}"), "allow `list` on nodes");
    }
    let usable = facts.nodes.iter().filter(|node| node.usable).count();
    if usable > 0 {
        return CheckResult::Passed(format!("{usable} ready"));
    }
    CheckResult::new_failure(
        match facts.nodes.len() {
            1 => "the only node is not ready or is cordoned".to_owned(),
            count => format!("{count} nodes, but none is ready and schedulable"),
        },
        "see `kubectl get nodes`; make one ready or uncordon it",
    )
}

/// The value that chooses the StorageClass of etcd's volumes.
const STORAGE_CLASS: &str = "etcd.storage.storageClass";
/// The value that chooses the node port.
const NODE_PORT: &str = "exposure.nodePort";

fn check_architecture(facts: &HostingFacts) -> CheckResult {
    let known = &facts.wanted.architectures;
    let usable = facts.nodes.iter().filter(|node| node.usable && !node.architecture.is_empty());
    let (good, bad): (Vec<_>, Vec<_>) = usable.partition(|node| known.contains(&node.architecture));
    let others: Vec<String> = bad.iter().map(|node| format!("{} ({})", node.name, node.architecture)).collect();
    match (good.is_empty(), others.is_empty()) {
        (_, true) => {
            let seen: std::collections::BTreeSet<_> = good.iter().map(|node| node.architecture.as_str()).collect();
            CheckResult::Passed(seen.into_iter().collect::<Vec<_>>().join(", "))
        }
        (true, false) => CheckResult::new_failure(
            format!("images exist for {} only; the nodes are {}", known.join(" and "), others.join(", ")),
            format!("add a node of architecture {}", known.join(" or ")),
        ),
        (false, false) => CheckResult::new_warning(
            format!("no images exist for the architecture of these nodes: {}", others.join(", ")),
            Remedy::new("keep the components away from them: ")
                .flag(Flag::set_value(r"nodeSelector.kubernetes\.io/arch", "amd64")),
        ),
    }
}

fn pod_security(facts: &HostingFacts) -> CheckResult {
    match facts.namespace.pod_security.as_deref() {
        None => CheckResult::Passed("no level is enforced".to_owned()),
        Some(level @ ("privileged" | "baseline" | "restricted")) => {
            CheckResult::Passed(format!("`{level}` is enforced; all pods meet `restricted`"))
        }
        Some(other) => CheckResult::new_warning(
            format!("namespace {} enforces the unknown level `{other}`", facts.wanted.namespace),
            "label it `pod-security.kubernetes.io/enforce: restricted`",
        ),
    }
}

fn check_orphaned_data(facts: &HostingFacts) -> CheckResult {
    let wanted = &facts.wanted;
    let other = facts.namespace.data_of.iter().find(|(_, owner)| **owner != wanted.name);
    match other {
        Some((claim, owner)) => CheckResult::new_failure(
            format!(
                "PersistentVolumeClaim {claim} in namespace {} contains the data of control plane `{owner}`; `{}` would start with it",
                wanted.namespace, wanted.name
            ),
            Remedy::new(format!("install `{owner}` to continue with it, delete it with "))
                .command(
                    Command::at_run_place(Action::Uninstall(Subject::ControlPlane(owner.clone())))
                        .with_flag(Flag::DeleteData),
                )
                .text(", or choose another namespace with ")
                .flag(Flag::Namespace(None)),
        ),
        None if facts.namespace.data_of.is_empty() => CheckResult::Passed("none".to_owned()),
        None if facts.namespace.control_planes.is_empty() => {
            CheckResult::Passed(format!("{} continues with the data that its uninstall kept", wanted.name))
        }
        None => CheckResult::Passed(format!("{} keeps its data", wanted.name)),
    }
}

fn check_object_names(facts: &HostingFacts) -> CheckResult {
    if let Some(error) = facts.unread.get(read::NAMES) {
        return CheckResult::new_warning(
            format!("the search failed: {error}"),
            "fix the error above and run the check again",
        );
    }
    if facts.collisions.is_empty() {
        return CheckResult::Passed("all are free".to_owned());
    }
    let shown = facts.collisions.iter().map(|taken| format!("{} ({})", taken.object, taken.owner));
    CheckResult::new_failure(
        format!(
            "these objects already exist and do not belong to this installation: {}",
            shown.collect::<Vec<_>>().join(", ")
        ),
        if facts.collisions.iter().any(|taken| taken.installed) {
            Remedy::new("choose another name, or another namespace with ")
                .flag(Flag::Namespace(None))
                .text("; objects of another installation are not adopted")
        } else {
            Remedy::new("remove or rename them, choose another namespace with ")
                .flag(Flag::Namespace(None))
                .text(", or adopt them with ")
                .flag(Flag::Adopt)
        },
    )
}

fn check_quota(facts: &HostingFacts) -> CheckResult {
    let (namespace, wanted) = (&facts.namespace, &facts.wanted);
    if facts.unread.contains_key(read::NAMES) && namespace.control_planes.contains(&wanted.name) {
        return CheckResult::Passed(format!("{} is already counted", wanted.name));
    }
    let place = Place { namespace: &wanted.namespace, claims: &namespace.claims, default_class: facts.default_class() };
    namespace.allowance.evaluate_install(&wanted.taken, place)
}

fn check_storage(facts: &HostingFacts) -> CheckResult {
    let wanted = &facts.wanted;
    if !wanted.claims.is_empty() && wanted.claims.iter().all(|claim| facts.namespace.bound_claims.contains(claim)) {
        return CheckResult::Passed(format!("{} is already bound", wanted.claims.join(", ")));
    }
    if let Some(error) = facts.unread.get(read::CLASSES) {
        return CheckResult::new_warning(
            format!("StorageClasses could not be listed: {error}"),
            "allow `list` on storageclasses",
        );
    }
    let names = facts.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
    let defaults: Vec<&str> = facts.default_classes().map(|class| class.name.as_str()).collect();
    if wanted.storage_class.is_none() && defaults.len() > 1 && refuses_two_defaults(&facts.git_version) {
        return CheckResult::new_failure(
            format!(
                "{} StorageClasses are marked as default ({}); Kubernetes before 1.26 then provisions no volume",
                defaults.len(),
                defaults.join(", ")
            ),
            Remedy::new(format!("remove the annotation `{}` from all but one, or choose one with ", DEFAULT_CLASS[0]))
                .flag(Flag::set_value(STORAGE_CLASS, "NAME")),
        );
    }
    match (facts.storage_class(), &wanted.storage_class) {
        (Some(class), _) if class.provisioner == "kubernetes.io/no-provisioner" => CheckResult::new_warning(
            format!("StorageClass {} does not provision volumes dynamically", class.name),
            Remedy::new("create a PersistentVolume for etcd, or choose another class with ")
                .flag(Flag::set_value(STORAGE_CLASS, "NAME")),
        ),
        (Some(class), _) => CheckResult::Passed(format!("StorageClass {} ({})", class.name, class.provisioner)),
        (None, Some(name)) => CheckResult::new_failure(
            format!("StorageClass `{name}` does not exist, so etcd's volume cannot be provisioned"),
            if facts.classes.is_empty() {
                "install a storage provisioner; the cluster has no StorageClass at all".to_owned()
            } else {
                format!("choose one of: {names}")
            },
        ),
        (None, None) if facts.classes.is_empty() => CheckResult::new_failure(
            "the cluster has no StorageClass, so etcd's volume cannot be provisioned",
            "configure a storage provisioner with a default StorageClass, then install again",
        ),
        (None, None) => CheckResult::new_failure(
            format!("no StorageClass is the default (existing: {names}), so etcd's volume cannot be provisioned"),
            Remedy::new(format!(
                "make one the default (annotation `{}: \"true\"`), or choose one with ",
                DEFAULT_CLASS[0]
            ))
            .flag(Flag::set_value(STORAGE_CLASS, "NAME")),
        ),
    }
}

/// Returns whether an API server refuses claims without a class where several are the default one; later ones take the
/// newest.
fn refuses_two_defaults(git_version: &str) -> bool {
    git_version.parse::<KubeMinor>().is_ok_and(|version| (version.major, version.minor) < (1, 26))
}

/// Range from which an API server takes node ports when its `--service-node-port-range` says nothing else.
pub const USUAL_NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

fn node_port(facts: &HostingFacts) -> CheckResult {
    let holder = facts.node_port_holders.first();
    match (facts.former_node_port, holder) {
        (None, _) => {}
        (Some(port), None) => return CheckResult::Passed(format!("{port}, as before")),
        (Some(port), Some(holder)) => {
            return CheckResult::new_failure(
                format!(
                    "Service {holder} uses node port {port}, which is in the kubeconfigs of {} and of its agents",
                    facts.wanted.name
                ),
                Remedy::new("give that Service another port, or choose another one here with ")
                    .flag(Flag::set_value(NODE_PORT, "PORT"))
                    .text("; clients then need the new port"),
            );
        }
    }
    match (facts.wanted.node_port, holder) {
        (None, _) => CheckResult::Passed("chosen by the cluster".to_owned()),
        (Some(port), None) if !USUAL_NODE_PORTS.contains(&port) => CheckResult::new_warning(
            format!(
                "node port {port} is outside of the default range {} to {}",
                USUAL_NODE_PORTS.start(),
                USUAL_NODE_PORTS.end()
            ),
            Remedy::new("choose one of these with ")
                .flag(Flag::set_value(NODE_PORT, "PORT"))
                .text(", unless the API server of this cluster has another range of node ports"),
        ),
        (Some(port), None) => CheckResult::Passed(format!("{port} is free")),
        (Some(port), Some(holder)) => CheckResult::new_failure(
            format!("node port {port} is used by Service {holder}"),
            Remedy::new("choose another with ")
                .flag(Flag::set_value(NODE_PORT, "PORT"))
                .text(", or let the cluster choose"),
        ),
    }
}

fn network_policies(facts: &HostingFacts) -> CheckResult {
    if !facts.wanted.network_policies {
        return CheckResult::Passed("none are created".to_owned());
    }
    let ignoring = facts.nodes.iter().filter(|node| node.ignores_policies).map(|node| node.name.as_str());
    let first = first_of(ignoring, 1, ", ");
    if first.is_empty() {
        return CheckResult::Passed("no network plugin that ignores network policies was found".to_owned());
    }
    CheckResult::new_warning(
        format!("flannel is the network plugin of node {first}; by itself it does not enforce network policies"),
        "unless something else enforces them, every pod of the cluster can reach the ports of etcd and of the components; install a network plugin that enforces policies, or an add-on that does",
    )
}

fn load_balancer(facts: &HostingFacts) -> CheckResult {
    if !facts.wanted.load_balancer {
        return CheckResult::Passed("not needed".to_owned());
    }
    if facts.nodes.iter().any(|node| is_cloud(&node.provider_id)) {
        return CheckResult::Passed("the nodes belong to a cloud that provides load balancers".to_owned());
    }
    CheckResult::new_warning(
        "no node names a cloud (`spec.providerID`), so a Service of type LoadBalancer may never get an address",
        Remedy::new("if no load balancer is installed, use ").flag(Flag::set_value("exposure.type", "NodePort")),
    )
}

#[cfg(test)]
pub(super) mod tests;
