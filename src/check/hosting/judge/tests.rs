//! A fit cluster, and what each check says of one that is not.

use std::collections::BTreeMap;

use super::*;
use crate::api::version::KubeMinor;
use crate::check::hosting::{ClassFacts, Collision, NodeFacts};
use crate::check::pod_references::tests::missing_reference;
use crate::check::quota::Allowance;
use crate::check::quota::limits::{LimitFacts, LimitedBy};
use crate::check::quota::needs::{ContainerNeeds, Needs, PodNeeds};
use crate::check::quota::quotas::{QuotaFacts, ResourceFacts, ScopeFacts};
use crate::check::secret_readers::SecretReader;
use crate::check::sidecars::tests::injected;
use crate::check::support::Support;
use crate::check::{CheckResult, Judged, change_facts, evaluate_failing_check, only_failure, run_checks};

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
        classes: vec![ClassFacts {
            name: "std".to_owned(),
            is_default: true,
            provisioner: "x.io/y".to_owned(),
            created: 0,
        }],
        nodes: vec![NodeFacts { name: "n".to_owned(), usable: true, ..NodeFacts::default() }],
        ..HostingFacts::default()
    }
}

fn failure(facts: &HostingFacts) -> (&'static str, String, Remedy) {
    only_failure(&CHECKS, facts)
}

fn quota_of(resource: &str, hard: i128, used: i128) -> QuotaFacts {
    let resources = vec![ResourceFacts { name: resource.to_owned(), hard, used }];
    QuotaFacts { name: "small".to_owned(), resources, ..QuotaFacts::default() }
}

/// For each check facts for which it does not hold.
fn unfit_facts() -> Vec<(&'static str, HostingFacts)> {
    let other_minor = change_facts(fit(), |facts| {
        facts.git_version = "v1.31.4".to_owned();
        facts.wanted.support.alternatives.insert(KubeMinor::new(1, 31), vec!["v1.2".to_owned(), "v1.1".to_owned()]);
    });
    let quota = change_facts(fit(), |facts| {
        facts.namespace.allowance.quotas = vec![quota_of("pods", 5000, 2000)];
        facts.wanted.taken.needs =
            Needs { pods: vec![PodNeeds { replicas: 4, ..PodNeeds::default() }], ..Needs::default() };
    });
    let taken = Collision { object: "Service/etcd".to_owned(), owner: "made by helm".to_owned(), installed: false };
    let port = change_facts(fit(), |facts| {
        facts.wanted.node_port = Some(32222);
        facts.node_port_holders = vec!["web/front".to_owned()];
    });
    vec![
        ("kubernetes-version", other_minor),
        ("autopilot", change_facts(fit(), |facts| facts.autopilot_evidence = vec!["API group auto.gke.io".to_owned()])),
        ("clock", change_facts(fit(), |facts| facts.clock_ahead = Some(-400))),
        ("nodes", change_facts(fit(), |facts| facts.nodes[0].usable = false)),
        ("architecture", change_facts(fit(), |facts| facts.nodes[0].architecture = "s390x".to_owned())),
        ("access", change_facts(fit(), |facts| facts.forbidden = vec!["create secrets in namespace fleet".to_owned()])),
        ("namespace", change_facts(fit(), |facts| facts.namespace.terminating = true)),
        ("pod-security", change_facts(fit(), |facts| facts.namespace.pod_security = Some("strict".to_owned()))),
        (
            "secret-readers",
            change_facts(fit(), |facts| {
                facts.namespace.readers.found = vec![SecretReader {
                    subject: "Group developers".to_owned(),
                    binding: "team".to_owned(),
                    role: "edit".to_owned(),
                }];
            }),
        ),
        ("existing", change_facts(fit(), |facts| facts.namespace.control_planes = vec!["other".to_owned()])),
        (
            "leftovers",
            change_facts(fit(), |facts| {
                drop(facts.namespace.data_of.insert("data-etcd-0".to_owned(), "other".to_owned()));
            }),
        ),
        ("names", change_facts(fit(), |facts| facts.collisions = vec![taken])),
        (
            "values",
            change_facts(fit(), |facts| {
                facts.forgotten = vec!["scheduler.replicas: 3, would become 1".to_owned()];
            }),
        ),
        ("quota", quota),
        ("pull-secrets", change_facts(fit(), |facts| facts.references.pull_secrets = missing_reference("regcred"))),
        ("classes", change_facts(fit(), |facts| facts.references.priority_classes = missing_reference("high"))),
        ("sidecars", change_facts(fit(), |facts| facts.namespace.sidecars = injected())),
        ("storage", change_facts(fit(), |facts| facts.classes[0].is_default = false)),
        ("node-port", port),
        ("load-balancer", change_facts(fit(), |facts| facts.wanted.load_balancer = true)),
        (
            "network-policies",
            change_facts(fit(), |facts| {
                facts.wanted.network_policies = true;
                facts.nodes[0].ignores_policies = true;
            }),
        ),
    ]
}

pub(in crate::check) fn examples() -> Vec<Judged> {
    unfit_facts().into_iter().map(|(id, facts)| evaluate_failing_check(&CHECKS, id, &facts)).collect()
}

/// The facts as they are while these reads have not ended.
fn before(reads: &[&'static str], facts: &HostingFacts) -> HostingFacts {
    let none = HostingFacts::default();
    let mut facts = facts.clone();
    for read in reads {
        facts.unread.remove(read);
        match *read {
            read::CLOCK => facts.clock_ahead = none.clock_ahead,
            read::NODES => {
                facts.nodes.clear();
                facts.autopilot_evidence.clear();
            }
            read::RIGHTS => facts.forbidden.clear(),
            read::NAMESPACE => {
                facts.namespace = none.namespace.clone();
            }
            read::CLASSES => facts.classes.clear(),
            read::REFERENCES => facts.references = none.references.clone(),
            read::SERVICES => {
                facts.former_node_port = None;
                facts.node_port_holders.clear();
            }
            read::NAMES => {
                facts.collisions.clear();
                facts.forgotten.clear();
            }
            other => panic!("{other}"),
        }
    }
    facts
}

#[test]
fn no_check_looks_at_what_it_does_not_wait_for() {
    let reads = [
        read::CLOCK,
        read::NODES,
        read::RIGHTS,
        read::NAMESPACE,
        read::CLASSES,
        read::REFERENCES,
        read::SERVICES,
        read::NAMES,
    ];
    let mut unread = fit();
    unread.unread = reads.into_iter().map(|read| (read, "forbidden".to_owned())).collect();
    for check in &CHECKS {
        let others: Vec<&str> = reads.into_iter().filter(|read| !check.reads.contains(read)).collect();
        for facts in unfit_facts().into_iter().map(|(_, facts)| facts).chain([fit(), unread.clone()]) {
            assert_eq!((check.evaluate)(&before(&others, &facts)), (check.evaluate)(&facts), "{}", check.id);
        }
    }
}

#[test]
fn a_fit_cluster_passes_every_check() {
    let report = run_checks(&CHECKS, &fit(), &[]);
    assert!(report.judged.iter().all(|j| matches!(j.result, CheckResult::Passed(_))), "{report:?}");
}

#[test]
fn a_version_outside_the_row_names_row_server_and_the_flag_that_works() {
    let mut facts = fit();
    facts.git_version = "v1.31.4-gke.1".to_owned();
    facts.wanted.support.alternatives.insert(KubeMinor::new(1, 31), vec!["v1.2".to_owned(), "v1.1".to_owned()]);
    let (id, what, remedy) = failure(&facts);
    assert_eq!(id, "kubernetes-version");
    assert!(what.contains("v0.6 supports Kubernetes v1.24, v1.25") && what.contains("v1.31.4-gke.1"), "{what}");
    assert_eq!(remedy.lone_flags()[0], &Flag::Version("v1.2".to_owned()));
    facts.wanted.support.unavailable = std::mem::take(&mut facts.wanted.support.alternatives);
    assert!(failure(&facts).2.joined_text().contains("does not contain its chart yet"));
}

#[test]
fn storage_is_refused_without_a_class_unless_the_claims_are_bound_already() {
    let mut facts = fit();
    facts.classes[0].is_default = false;
    assert!(failure(&facts).1.contains("existing: std"));
    facts.classes.clear();
    assert_eq!(failure(&facts).0, "storage");
    facts.namespace.bound_claims = vec!["data-etcd-0".to_owned()];
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
}

#[test]
fn another_control_plane_in_the_namespace_is_refused_and_the_same_one_is_not() {
    let mut facts = fit();
    facts.namespace.exists = true;
    facts.namespace.control_planes = vec!["demo".to_owned()];
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
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
fn a_node_port_outside_of_the_usual_range_is_doubted() {
    let mut facts = fit();
    for (port, warnings) in [(80, 1), (29_999, 1), (30_000, 0), (32_767, 0), (32_768, 1)] {
        facts.wanted.node_port = Some(port);
        let report = run_checks(&CHECKS, &facts, &[]);
        assert_eq!((report.failures().count(), report.warnings().count()), (0, warnings), "{port}");
    }
}

#[test]
fn the_node_port_of_an_earlier_install_is_refused_only_while_another_service_holds_it() {
    let mut facts = fit();
    // The cluster gave it, whatever its range is.
    for port in [20_001, 31_234] {
        facts.former_node_port = Some(port);
        let report = run_checks(&CHECKS, &facts, &[]);
        assert_eq!((report.failures().count(), report.warnings().count()), (0, 0), "{port}");
    }
    facts.node_port_holders = vec!["web/front".to_owned()];
    let (id, what, remedy) = failure(&facts);
    assert_eq!(id, "node-port");
    assert!(
        what.contains("31234")
            && what.contains("which is in the kubeconfigs of demo and of its agents")
            && what.contains("web/front"),
        "{what}"
    );
    assert_eq!(remedy.lone_flags(), [&Flag::set_value("exposure.nodePort", "PORT")]);
    assert!(!remedy.joined_text().contains("let the cluster choose"), "{remedy:?}");
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
        let report = run_checks(&CHECKS, &facts, &[]);
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
    assert_eq!(run_checks(&CHECKS, &facts, &[]).warnings().count(), 1);
}

#[test]
fn the_data_of_another_control_plane_is_never_started_on() {
    let mut facts = fit();
    facts.namespace.data_of.insert("data-etcd-0".to_owned(), "other".to_owned());
    assert_eq!(failure(&facts).0, "leftovers");
    let other = Subject::ControlPlane("other".to_owned());
    let command = Command::at_run_place(Action::Uninstall(other)).with_flag(Flag::DeleteData);
    assert_eq!(failure(&facts).2.commands(), [&command]);
    facts.namespace.data_of.insert("data-etcd-0".to_owned(), "demo".to_owned());
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
}

#[test]
fn taken_names_are_told_with_their_owner() {
    let mut facts = fit();
    let taken = Collision { object: "Service/etcd".to_owned(), owner: "helm".to_owned(), installed: false };
    facts.collisions = vec![taken.clone()];
    assert!(
        failure(&facts).1.contains("Service/etcd (helm)") && failure(&facts).2.lone_flags().contains(&&Flag::Adopt)
    );
    facts.collisions.push(Collision { installed: true, ..taken });
    assert!(!failure(&facts).2.lone_flags().contains(&&Flag::Adopt), "it would be refused");
}

/// What the warnings say about facts for which no check fails.
fn join_warnings(facts: &HostingFacts) -> String {
    let report = run_checks(&CHECKS, facts, &[]);
    assert_eq!(report.failures().count(), 0, "{report:?}");
    report.warnings().map(|(_, problem)| problem.what.clone()).collect()
}

fn range_with_default(cpu: i128) -> LimitFacts {
    LimitFacts {
        name: "range".to_owned(),
        by: LimitedBy::Container,
        min: BTreeMap::new(),
        max: BTreeMap::new(),
        ratio: BTreeMap::new(),
        default: [("cpu".to_owned(), cpu)].into(),
        default_request: BTreeMap::new(),
    }
}

#[test]
fn a_quota_is_refused_for_what_it_does_not_leave_and_for_what_nobody_states() {
    let mut facts = fit();
    let container = ContainerNeeds {
        name: "a".to_owned(),
        requests: [("cpu".to_owned(), 200), ("memory".to_owned(), 524_288_000)].into(),
        ..ContainerNeeds::default()
    };
    let pods = PodNeeds {
        name: "Deployment a".to_owned(),
        replicas: 4,
        surge: 1,
        containers: vec![container],
        ..PodNeeds::default()
    };
    facts.wanted.taken.needs = Needs { pods: vec![pods.clone()], ..Needs::default() };
    facts.namespace.allowance.quotas = vec![quota_of("pods", 5000, 1000), quota_of("gold", 0, 0)];
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
    facts.namespace.allowance.quotas = vec![quota_of("pods", 5000, 2000)];
    assert!(failure(&facts).1.contains("has 3 pods left, 4 needed"), "{}", failure(&facts).1);
    facts.namespace.allowance.quotas = vec![quota_of("requests.memory", 1_048_576_000, 0)];
    assert!(failure(&facts).1.contains("has 1Mi requests.memory left, 2Mi needed"), "{}", failure(&facts).1);
    facts.namespace.allowance.quotas = vec![quota_of("limits.cpu", 1_000_000, 0)];
    assert!(failure(&facts).1.contains("requires limits.cpu for every container"));
    // What a LimitRange does or may do about it, and a quota that may be about other pods.
    facts.namespace.allowance.limits_unread = Some("forbidden".to_owned());
    assert!(join_warnings(&facts).contains("the LimitRanges, which may set it, could not be read"));
    // What was not read was not judged, whatever else is enough.
    let quotas = std::mem::take(&mut facts.namespace.allowance.quotas);
    assert!(join_warnings(&facts).contains("LimitRanges could not be listed: forbidden"));
    facts.namespace.allowance.quotas_unread = Some("refused".to_owned());
    assert!(
        join_warnings(&facts)
            .contains("quotas could not be listed: refused; LimitRanges could not be listed: forbidden")
    );
    facts.namespace.allowance.limits_unread = None;
    facts.namespace.allowance.quotas_unread = Some("forbidden".to_owned());
    assert!(join_warnings(&facts).contains("quotas could not be listed: forbidden"));
    let low = [("memory".to_owned(), 1_000_000)].into();
    facts.namespace.allowance.limits = vec![LimitFacts {
        name: "range".to_owned(),
        by: LimitedBy::Container,
        min: BTreeMap::new(),
        max: low,
        ratio: BTreeMap::new(),
        default: BTreeMap::new(),
        default_request: BTreeMap::new(),
    }];
    assert!(failure(&facts).1.contains("range"), "a LimitRange is judged without the quotas: {}", failure(&facts).1);
    facts.namespace.allowance = Allowance { quotas, ..Allowance::default() };
    facts.namespace.allowance.quotas[0].scopes =
        vec![ScopeFacts { name: "PriorityClass".to_owned(), ..ScopeFacts::default() }];
    assert!(join_warnings(&facts).contains("small requires"));
    facts.namespace.allowance.quotas[0].scopes.clear();
    facts.namespace.allowance.limits = vec![range_with_default(250)];
    assert_eq!(join_warnings(&facts), "");
    // What it states is taken from the quota as well.
    facts.namespace.allowance.quotas = vec![quota_of("limits.cpu", 900, 0)];
    assert!(failure(&facts).1.contains("has 900m limits.cpu left, 1 needed"), "{}", failure(&facts).1);
    // And no container may ask for more than its limit, whoever sets that.
    facts.namespace.allowance.quotas = Vec::new();
    facts.namespace.allowance.limits = vec![range_with_default(100)];
    assert!(failure(&facts).1.contains("a cpu limit of 100m for container a of Deployment a, which requests 200m"));
    // What is installed is counted already, but for what a rolling update makes beside it.
    facts.namespace.allowance.limits.clear();
    facts.wanted.taken.needs = Needs::default();
    facts.namespace.allowance.quotas = vec![quota_of("pods", 4000, 4000)];
    assert_eq!(join_warnings(&facts), "");
    facts.wanted.taken.replaced = vec![pods];
    assert!(
        join_warnings(&facts).contains("has 0 pods left, 1 needed in addition to the running pods of Deployment a")
    );
    // A LimitRange refuses the pods that take their place as well.
    facts.namespace.allowance.quotas.clear();
    facts.namespace.allowance.limits = vec![range_with_default(100)];
    assert!(failure(&facts).1.contains("a cpu limit of 100m for container a of Deployment a"));
}

fn class_created_at(created: i64, name: &str, is_default: bool) -> ClassFacts {
    ClassFacts { name: name.to_owned(), is_default, provisioner: "x.io/y".to_owned(), created }
}

#[test]
fn of_several_default_classes_the_one_counts_that_this_api_server_takes() {
    let mut facts = fit();
    facts.classes = vec![
        class_created_at(1, "old", true),
        class_created_at(5, "b", true),
        class_created_at(5, "a", true),
        class_created_at(9, "newest", false),
    ];
    for (version, expected) in [
        ("v1.26.0", Ok("StorageClass a ")),
        ("v1.31.4", Ok("StorageClass a ")),
        ("v1.25.4", Err("3 StorageClasses are marked as default (old, b, a)")),
    ] {
        facts.git_version = version.to_owned();
        match (check_storage(&facts), expected) {
            (CheckResult::Passed(text), Ok(start)) => assert!(text.starts_with(start), "{text}"),
            (CheckResult::Failed(problem), Err(start)) => assert!(problem.what.starts_with(start), "{problem:?}"),
            (result, _) => panic!("{version}: {result:?}"),
        }
    }
    // One that is named needs no default.
    facts.wanted.storage_class = Some("old".to_owned());
    assert!(matches!(check_storage(&facts), CheckResult::Passed(_)));
}
