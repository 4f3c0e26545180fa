//! The preflight checks: pure judgements over the facts of a hosting cluster.

use super::{DEFAULT_CLASS, HostingFacts, NamespaceFacts, is_cloud};
use crate::api::quantity::print;
use crate::check::{Check, Finding, Severity, autopilot};

/// The preflight checks of a control plane install, in the order in which they are shown.
pub const CHECKS: [Check<HostingFacts>; 15] = [
    Check {
        id: "kubernetes-version",
        title: "Kubernetes version",
        category: "cluster",
        severity: Severity::Error,
        needs: &[],
        evaluate: |facts| facts.wanted.support.judge(&facts.git_version),
    },
    Check {
        id: "autopilot",
        title: "managed mode",
        category: "cluster",
        severity: Severity::Error,
        needs: &[],
        evaluate: |facts| autopilot::judge(&facts.autopilot_evidence),
    },
    Check { id: "clock", title: "clock", category: "cluster", severity: Severity::Error, needs: &[], evaluate: clock },
    Check { id: "nodes", title: "nodes", category: "cluster", severity: Severity::Error, needs: &[], evaluate: nodes },
    Check {
        id: "architecture",
        title: "architecture of the nodes",
        category: "cluster",
        severity: Severity::Error,
        needs: &["nodes"],
        evaluate: architecture,
    },
    Check {
        id: "access",
        title: "rights",
        category: "namespace",
        severity: Severity::Error,
        needs: &[],
        evaluate: access,
    },
    Check {
        id: "namespace",
        title: "namespace",
        category: "namespace",
        severity: Severity::Error,
        needs: &[],
        evaluate: namespace,
    },
    Check {
        id: "pod-security",
        title: "Pod Security",
        category: "namespace",
        severity: Severity::Error,
        needs: &["namespace"],
        evaluate: pod_security,
    },
    Check {
        id: "existing",
        title: "existing installation",
        category: "namespace",
        severity: Severity::Error,
        needs: &["namespace"],
        evaluate: existing,
    },
    Check {
        id: "leftovers",
        title: "data of an earlier installation",
        category: "namespace",
        severity: Severity::Error,
        needs: &["namespace"],
        evaluate: leftovers,
    },
    Check {
        id: "names",
        title: "names of the objects",
        category: "namespace",
        severity: Severity::Error,
        needs: &["namespace", "existing"],
        evaluate: names,
    },
    Check {
        id: "quota",
        title: "quota",
        category: "namespace",
        severity: Severity::Error,
        needs: &["namespace"],
        evaluate: quota,
    },
    Check {
        id: "storage",
        title: "storage",
        category: "storage",
        severity: Severity::Error,
        needs: &[],
        evaluate: storage,
    },
    Check {
        id: "node-port",
        title: "node port",
        category: "exposure",
        severity: Severity::Error,
        needs: &[],
        evaluate: node_port,
    },
    Check {
        id: "load-balancer",
        title: "load balancer",
        category: "exposure",
        severity: Severity::Warning,
        needs: &["nodes"],
        evaluate: load_balancer,
    },
];

fn access(facts: &HostingFacts) -> Finding {
    if facts.forbidden.is_empty() {
        return Finding::Good(format!("may write all {} kinds that are needed", facts.wanted.writes.len()));
    }
    Finding::bad(
        format!("you may not {}", facts.forbidden.join(", ")),
        "ask for these rights (`fleetctl show rbac` prints all that are needed), or use a context that has them (`--context`)",
    )
}

fn namespace(facts: &HostingFacts) -> Finding {
    let name = &facts.wanted.namespace;
    if let Some(error) = facts.unread.get("namespace") {
        return Finding::doubtful(format!("namespace {name} could not be read: {error}"), "allow `get` on namespaces");
    }
    match &facts.namespace {
        NamespaceFacts { terminating: true, .. } => Finding::bad(
            format!("namespace {name} is being deleted"),
            format!("wait for it to go (`kubectl get namespace {name}`), or choose another with `--namespace`"),
        ),
        NamespaceFacts { exists: true, .. } => Finding::Good(format!("{name} exists")),
        _ => Finding::Good(format!("{name} will be created")),
    }
}

fn existing(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    match facts.namespace.control_planes.iter().find(|other| **other != wanted.name) {
        Some(other) => Finding::bad(
            format!("namespace {} already holds control plane `{other}`", wanted.namespace),
            "choose another namespace with `--namespace`, or that name to change what is installed",
        ),
        None if facts.namespace.control_planes.is_empty() => Finding::Good("none in this namespace".to_owned()),
        None => Finding::Good(format!("{} is installed and will be brought up to date", wanted.name)),
    }
}

fn nodes(facts: &HostingFacts) -> Finding {
    if let Some(error) = facts.unread.get("nodes") {
        return Finding::doubtful(format!("nodes could not be listed: {error}"), "allow `list` on nodes");
    }
    let usable = facts.nodes.iter().filter(|node| node.usable).count();
    if usable > 0 {
        return Finding::Good(format!("{usable} ready"));
    }
    Finding::bad(
        format!("none of the {} nodes is ready and schedulable", facts.nodes.len()),
        "see `kubectl get nodes`; make one ready or uncordon it",
    )
}

/// Certificates are valid from five minutes before the local clock's time on.
const CLOCK_ALLOWANCE: i64 = 5 * 60;
/// What the resolution of the `Date` header and a slow answer can make of equal clocks, in seconds.
const CLOCK_NOISE: i64 = 5;

fn clock(facts: &HostingFacts) -> Finding {
    let Some(ahead) = facts.clock_ahead else {
        return Finding::doubtful(
            "the API server told no time",
            "see that the clocks of this machine and of the cluster agree",
        );
    };
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    let what = format!("the cluster's clock is {} s {way} this machine's", ahead.abs());
    let remedy = "set both clocks, for example by NTP: certificates made here would not be valid there";
    match ahead.abs() {
        0..=CLOCK_NOISE => Finding::Good("agrees with this machine's".to_owned()),
        _ if ahead < -CLOCK_ALLOWANCE + CLOCK_NOISE => Finding::bad(what, remedy),
        _ => Finding::doubtful(what, "set both clocks, for example by NTP"),
    }
}

fn architecture(facts: &HostingFacts) -> Finding {
    let known = &facts.wanted.architectures;
    let usable = || facts.nodes.iter().filter(|node| node.usable && !node.architecture.is_empty());
    let (good, bad): (Vec<_>, Vec<_>) = usable().partition(|node| known.contains(&node.architecture));
    let others: Vec<String> = bad.iter().map(|node| format!("{} ({})", node.name, node.architecture)).collect();
    match (good.is_empty(), others.is_empty()) {
        (_, true) => {
            let seen: std::collections::BTreeSet<_> = good.iter().map(|node| node.architecture.as_str()).collect();
            Finding::Good(seen.into_iter().collect::<Vec<_>>().join(", "))
        }
        (true, false) => Finding::bad(
            format!("there are images for {} only; the nodes are {}", known.join(" and "), others.join(", ")),
            format!("add a node of architecture {}", known.join(" or ")),
        ),
        (false, false) => Finding::doubtful(
            format!("there are no images for the nodes {}", others.join(", ")),
            "keep the components away from them: `--set 'nodeSelector.kubernetes\\.io/arch=amd64'`",
        ),
    }
}

fn pod_security(facts: &HostingFacts) -> Finding {
    match facts.namespace.pod_security.as_deref() {
        None => Finding::Good("no level is enforced".to_owned()),
        Some(level @ ("privileged" | "baseline" | "restricted")) => {
            Finding::Good(format!("`{level}` is enforced; all pods meet `restricted`"))
        }
        Some(other) => Finding::doubtful(
            format!("namespace {} enforces the unknown level `{other}`", facts.wanted.namespace),
            "label it `pod-security.kubernetes.io/enforce: restricted`",
        ),
    }
}

fn leftovers(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    let other = facts.namespace.data_of.iter().find(|(_, owner)| **owner != wanted.name);
    match other {
        Some((claim, owner)) => Finding::bad(
            format!(
                "PersistentVolumeClaim {claim} in namespace {} holds the data of control plane `{owner}`; `{}` would start on it",
                wanted.namespace, wanted.name
            ),
            format!(
                "install `{owner}` to go on with it, delete it with `fleetctl uninstall control-plane {owner} --delete-data`, \
                 or choose another namespace with `--namespace`"
            ),
        ),
        None if facts.namespace.data_of.is_empty() => Finding::Good("none".to_owned()),
        None if facts.namespace.control_planes.is_empty() => {
            Finding::Good(format!("{} goes on with the data that its uninstall kept", wanted.name))
        }
        None => Finding::Good(format!("{} keeps its data", wanted.name)),
    }
}

fn names(facts: &HostingFacts) -> Finding {
    if facts.collisions.is_empty() {
        return Finding::Good("none is taken".to_owned());
    }
    let shown = facts.collisions.iter().map(|taken| format!("{} ({})", taken.object, taken.owner));
    Finding::bad(
        format!("these exist and are not ours: {}", shown.collect::<Vec<_>>().join(", ")),
        "remove or rename them, choose another namespace with `--namespace`, or take them over with `--adopt`",
    )
}

fn quota(facts: &HostingFacts) -> Finding {
    if let Some(error) = facts.unread.get("quota") {
        return Finding::doubtful(format!("quotas could not be listed: {error}"), "allow `list` on resourcequotas");
    }
    let quotas = &facts.namespace.quotas;
    if quotas.is_empty() {
        return Finding::Good("none".to_owned());
    }
    if facts.namespace.control_planes.contains(&facts.wanted.name) {
        return Finding::Good(format!("{} is counted in it already", facts.wanted.name));
    }
    let needs = &facts.wanted.needs;
    let mut refused = Vec::new();
    for quota in quotas {
        for (resource, (hard, used)) in &quota.resources {
            let needed = needs.amounts.get(resource).copied().unwrap_or_default();
            let show = |amount| print(resource.trim_start_matches("requests.").trim_start_matches("limits."), amount);
            if needs.unstated.contains(resource) {
                refused.push(format!("ResourceQuota {} demands that every container states {resource}", quota.name));
            } else if needed > 0 && used + needed > *hard {
                refused.push(format!(
                    "ResourceQuota {} leaves {} of {resource}, and {} is needed",
                    quota.name,
                    show(hard - used),
                    show(needed)
                ));
            }
        }
    }
    if refused.is_empty() {
        return Finding::Good("leaves enough".to_owned());
    }
    Finding::bad(
        refused.join("; "),
        format!(
            "raise the quota of namespace {} (a LimitRange can state limits), or choose another namespace with `--namespace`",
            facts.wanted.namespace
        ),
    )
}

fn storage(facts: &HostingFacts) -> Finding {
    let wanted = &facts.wanted;
    if !wanted.claims.is_empty() && wanted.claims.iter().all(|claim| facts.namespace.bound_claims.contains(claim)) {
        return Finding::Good(format!("{} is bound already", wanted.claims.join(", ")));
    }
    if let Some(error) = facts.unread.get("storage") {
        return Finding::doubtful(
            format!("StorageClasses could not be listed: {error}"),
            "allow `list` on storageclasses",
        );
    }
    let names = || facts.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
    match (facts.class(), &wanted.storage_class) {
        (Some(class), _) if class.provisioner == "kubernetes.io/no-provisioner" => Finding::doubtful(
            format!("StorageClass {} makes no volumes by itself", class.name),
            "have a PersistentVolume ready for etcd, or choose another class with `--set etcd.storage.storageClass=NAME`",
        ),
        (Some(class), _) => Finding::Good(format!("StorageClass {} ({})", class.name, class.provisioner)),
        (None, Some(name)) => Finding::bad(
            format!("there is no StorageClass `{name}`; etcd's volume could not be made"),
            if facts.classes.is_empty() {
                "install a storage provisioner; the cluster has no StorageClass at all".to_owned()
            } else {
                format!("choose one of: {}", names())
            },
        ),
        (None, None) if facts.classes.is_empty() => Finding::bad(
            "the cluster has no StorageClass; etcd's volume could not be made",
            "configure a storage provisioner with a default StorageClass, then install again",
        ),
        (None, None) => Finding::bad(
            format!("no StorageClass is the default one (there are: {}); etcd's volume could not be made", names()),
            format!(
                "make one the default (annotation `{}: \"true\"`), or choose one with `--set etcd.storage.storageClass=NAME`",
                DEFAULT_CLASS[0]
            ),
        ),
    }
}

fn node_port(facts: &HostingFacts) -> Finding {
    match (facts.wanted.node_port, facts.node_port_holders.first()) {
        (None, _) => Finding::Good("chosen by the cluster".to_owned()),
        (Some(port), None) => Finding::Good(format!("{port} is free")),
        (Some(port), Some(holder)) => Finding::bad(
            format!("node port {port} is held by Service {holder}"),
            "choose another with `--set exposure.nodePort=PORT`, or leave it to the cluster",
        ),
    }
}

fn load_balancer(facts: &HostingFacts) -> Finding {
    if !facts.wanted.load_balancer {
        return Finding::Good("not needed".to_owned());
    }
    if facts.nodes.iter().any(|node| is_cloud(&node.provider_id)) {
        return Finding::Good("the nodes belong to a cloud that makes load balancers".to_owned());
    }
    Finding::doubtful(
        "no node names a cloud (`spec.providerID`), so nothing may answer a Service of type LoadBalancer",
        "if no load balancer is installed, use `--set exposure.type=NodePort`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::version::KubeMinor;
    use crate::check::hosting::needs::Needs;
    use crate::check::hosting::{ClassFacts, Collision, NodeFacts, QuotaFacts, Wanted};
    use crate::check::support::Support;
    use crate::check::{Verdict, run};

    fn fit() -> HostingFacts {
        HostingFacts {
            wanted: Wanted {
                support: Support {
                    line: "v0.6".to_owned(),
                    supported: vec![KubeMinor::new(1, 24), KubeMinor::new(1, 25)],
                    ..Support::default()
                },
                namespace: "fleet".to_owned(),
                name: "demo".to_owned(),
                claims: vec!["data-etcd-0".to_owned()],
                architectures: vec!["amd64".to_owned(), "arm64".to_owned()],
                ..Wanted::default()
            },
            clock_ahead: Some(0),
            git_version: "v1.25.4".to_owned(),
            classes: vec![ClassFacts { name: "std".to_owned(), is_default: true, provisioner: "x.io/y".to_owned() }],
            nodes: vec![NodeFacts { name: "n".to_owned(), usable: true, ..NodeFacts::default() }],
            ..HostingFacts::default()
        }
    }

    fn failure(facts: &HostingFacts) -> (&'static str, String, String) {
        let report = run(&CHECKS, facts, &[]);
        let failures: Vec<_> = report.failures().collect();
        assert_eq!(failures.len(), 1, "{report:?}");
        (failures[0].0.id, failures[0].1.what.clone(), failures[0].1.remedy.clone())
    }

    #[test]
    fn a_fit_cluster_passes_every_check() {
        let report = run(&CHECKS, &fit(), &[]);
        assert!(report.judged.iter().all(|j| matches!(j.verdict, Verdict::Passed(_))), "{report:?}");
    }

    #[test]
    fn a_version_outside_the_row_names_row_server_and_the_flag_that_works() {
        let mut facts = fit();
        facts.git_version = "v1.31.4-gke.1".to_owned();
        facts.wanted.support.alternatives.insert(KubeMinor::new(1, 31), vec!["v1.1".to_owned(), "v1.0".to_owned()]);
        let (id, what, remedy) = failure(&facts);
        assert_eq!(id, "kubernetes-version");
        assert!(what.contains("v0.6 supports Kubernetes v1.24, v1.25") && what.contains("v1.31.4-gke.1"), "{what}");
        assert!(remedy.contains("--version v1.1"), "{remedy}");
        facts.wanted.support.unavailable = std::mem::take(&mut facts.wanted.support.alternatives);
        assert!(failure(&facts).2.contains("does not carry its chart yet"));
    }

    #[test]
    fn storage_is_refused_without_a_class_unless_the_claims_are_bound_already() {
        let mut facts = fit();
        facts.classes[0].is_default = false;
        assert!(failure(&facts).1.contains("there are: std"));
        facts.classes.clear();
        assert_eq!(failure(&facts).0, "storage");
        facts.namespace.bound_claims = vec!["data-etcd-0".to_owned()];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }

    #[test]
    fn another_control_plane_in_the_namespace_is_refused_and_the_same_one_is_not() {
        let mut facts = fit();
        facts.namespace.exists = true;
        facts.namespace.control_planes = vec!["demo".to_owned()];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        facts.namespace.control_planes = vec!["other".to_owned()];
        assert_eq!(failure(&facts).0, "existing");
        facts.namespace.terminating = true;
        assert_eq!(failure(&facts).0, "namespace");
    }

    #[test]
    fn missing_rights_taken_ports_dead_nodes_and_autopilot_are_refused() {
        let mut facts = fit();
        facts.forbidden = vec!["create secrets in namespace fleet".to_owned()];
        assert_eq!(failure(&facts).0, "access");
        let mut facts = fit();
        facts.wanted.node_port = Some(32222);
        facts.node_port_holders = vec!["web/front".to_owned()];
        assert_eq!(failure(&facts).0, "node-port");
        let mut facts = fit();
        facts.nodes[0].usable = false;
        assert_eq!(failure(&facts).0, "nodes");
        let mut facts = fit();
        facts.autopilot_evidence = vec!["API group auto.gke.io".to_owned()];
        assert_eq!(failure(&facts).0, "autopilot");
    }

    #[test]
    fn a_load_balancer_is_expected_only_where_nodes_name_a_cloud() {
        assert!(is_cloud("aws:///eu-west-1a/i-0") && is_cloud("gce://p/z/i"));
        assert!(!is_cloud("") && !is_cloud("kind://docker/kind/x") && !is_cloud("k3s://n"));
    }

    #[test]
    fn a_clock_so_far_behind_that_new_certificates_are_not_yet_valid_is_refused() {
        let mut facts = fit();
        for (ahead, failures, warnings) in [(0, 0, 0), (4, 0, 0), (60, 0, 1), (-60, 0, 1), (-300, 1, 0), (4000, 0, 1)] {
            facts.clock_ahead = Some(ahead);
            let report = run(&CHECKS, &facts, &[]);
            assert_eq!((report.failures().count(), report.warnings().count()), (failures, warnings), "{ahead}");
        }
        facts.clock_ahead = Some(-400);
        assert!(failure(&facts).1.contains("400 s behind"), "{:?}", failure(&facts));
    }

    #[test]
    fn nodes_without_an_image_are_refused_when_they_are_all_and_named_when_some() {
        let mut facts = fit();
        facts.nodes[0].architecture = "s390x".to_owned();
        assert_eq!(failure(&facts).0, "architecture");
        let good = NodeFacts { architecture: "arm64".to_owned(), ..facts.nodes[0].clone() };
        facts.nodes.push(good);
        assert_eq!(run(&CHECKS, &facts, &[]).warnings().count(), 1);
    }

    #[test]
    fn the_data_of_another_control_plane_is_never_started_on() {
        let mut facts = fit();
        facts.namespace.data_of.insert("data-etcd-0".to_owned(), "other".to_owned());
        assert_eq!(failure(&facts).0, "leftovers");
        facts.namespace.data_of.insert("data-etcd-0".to_owned(), "demo".to_owned());
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }

    #[test]
    fn taken_names_are_told_with_their_owner() {
        let mut facts = fit();
        facts.collisions = vec![Collision { object: "Service/etcd".to_owned(), owner: "helm".to_owned() }];
        assert!(failure(&facts).1.contains("Service/etcd (helm)"));
    }

    #[test]
    fn a_quota_is_refused_for_what_it_does_not_leave_and_for_what_nobody_states() {
        let quota = |resource: &str, hard, used| {
            let resources = [(resource.to_owned(), (hard, used))].into();
            QuotaFacts { name: "small".to_owned(), resources }
        };
        let mut facts = fit();
        let amounts = [("pods".to_owned(), 4000), ("requests.memory".to_owned(), 2_097_152_000)].into();
        facts.wanted.needs = Needs { amounts, unstated: vec!["limits.cpu".to_owned()] };
        facts.namespace.quotas = vec![quota("pods", 5000, 1000), quota("gold", 0, 0)];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        facts.namespace.quotas = vec![quota("pods", 5000, 2000)];
        assert!(failure(&facts).1.contains("leaves 3 of pods, and 4 is needed"), "{}", failure(&facts).1);
        facts.namespace.quotas = vec![quota("requests.memory", 1_048_576_000, 0)];
        assert!(failure(&facts).1.contains("leaves 1024Ki of requests.memory, and 2048Ki"), "{}", failure(&facts).1);
        facts.namespace.quotas = vec![quota("limits.cpu", 1_000_000, 0)];
        assert!(failure(&facts).1.contains("every container states limits.cpu"));
        facts.namespace.control_planes = vec!["demo".to_owned()];
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0, "what is installed is counted already");
    }
}
