use std::collections::BTreeMap;

use super::*;
use crate::api::remedy::Part;
use crate::check::pod_references::tests::missing_reference;
use crate::check::quota::Allowance;
use crate::check::quota::needs::PodNeeds;
use crate::check::quota::quotas::{QuotaFacts, ResourceFacts};
use crate::check::secret_readers::SecretReader;
use crate::check::sidecars::tests::injected;
use crate::check::support::Support;
use crate::check::workload::EarlierCopies;
use crate::check::workload::{AgentFacts, MemberFacts, WantedAgent};
use crate::check::{
    CheckResult, Judged, change_facts, evaluate_failing_check, only_failure, result_of_check, run_checks,
};
use crate::k8s::connect::init_kubeconfig::Init;

fn init() -> Init {
    Init::parse(
        "clusters: [{cluster: {server: 'https://hub:1', certificate-authority-data: QQ==}}]\nusers: [{user: {token: t}}]",
    )
    .unwrap()
}

/// Lines of agents that may join a control plane of each line, for four lines.
fn joins() -> BTreeMap<ServiceLine, Vec<String>> {
    let row =
        |line: &str, agents: &[&str]| (line.parse().unwrap(), agents.iter().map(|one| (*one).to_owned()).collect());
    BTreeMap::from([
        row("v0.6", &["v0.7", "v0.6"]),
        row("v0.7", &["v1.1", "v0.7", "v0.6"]),
        row("v1.1", &["v1.2", "v1.1", "v0.7"]),
        row("v1.2", &["v1.2", "v1.1"]),
    ])
}

fn fit() -> WorkloadFacts {
    WorkloadFacts {
        wanted: WantedAgent {
            support: Support { line: "v0.6".to_owned(), supported: vec![KubeMinor::new(1, 25)], ..Support::default() },
            joins: joins(),
            name: "m".to_owned(),
            namespace: "fleet".to_owned(),
            needs: Needs { pods: vec![PodNeeds { replicas: 1, surge: 1, ..PodNeeds::default() }], ..Needs::default() },
            ..WantedAgent::default()
        },
        git_version: "v1.25.4".to_owned(),
        namespace_exists: true,
        cluster_id: "id".to_owned(),
        init: InitFacts::Usable {
            init: Box::new(init()),
            version: Some("v0.7.1".to_owned()),
            token: TokenFacts::Accepted,
        },
        ..WorkloadFacts::default()
    }
}

fn agent(name: &str, namespace: &str, is_of_same_fleet: Option<bool>) -> AgentFacts {
    AgentFacts { name: name.to_owned(), namespace: namespace.to_owned(), is_of_same_fleet }
}

/// A namespace in which no pod has room.
fn full() -> Allowance {
    let resources = vec![ResourceFacts { name: "pods".to_owned(), hard: 2000, used: 2000 }];
    let quota = QuotaFacts { name: "small".to_owned(), resources, ..QuotaFacts::default() };
    Allowance { quotas: vec![quota], ..Allowance::default() }
}

#[test]
fn an_agent_that_is_here_is_counted_already() {
    let mut facts = fit();
    facts.allowance = full();
    assert_eq!(failure(&facts).0, "quota");
    facts.agents = vec![agent("m", "fleet", None)];
    let report = run_checks(&CHECKS, &facts, &[]);
    assert_eq!((report.failures().count(), report.warnings().count()), (0, 1), "no room to replace it: {report:?}");
}

fn failure(facts: &WorkloadFacts) -> (&'static str, String, Remedy) {
    only_failure(&CHECKS, facts)
}

/// What an earlier agent left.
fn left_behind() -> EarlierCopies {
    EarlierCopies { claims: vec!["shop/data".to_owned()], workloads: 3, are_more: false }
}

fn usable_init(version: &str, token: TokenFacts) -> InitFacts {
    InitFacts::Usable { init: Box::new(init()), version: Some(version.to_owned()), token }
}

fn member_facts(name: &str, id: &str) -> MemberFacts {
    MemberFacts { name: name.to_owned(), id: id.to_owned() }
}

pub(in crate::check) fn examples() -> Vec<Judged> {
    let reader =
        SecretReader { subject: "Group developers".to_owned(), binding: "team".to_owned(), role: "edit".to_owned() };
    vec![
        ("kubernetes-version", change_facts(fit(), |facts| facts.git_version = "v1.31.4".to_owned())),
        ("autopilot", change_facts(fit(), |facts| facts.autopilot_evidence = vec!["API group auto.gke.io".to_owned()])),
        ("clock", change_facts(fit(), |facts| facts.clock_ahead = Some(-7200))),
        ("access", change_facts(fit(), |facts| facts.forbidden = vec!["create clusterroles".to_owned()])),
        ("namespace", change_facts(fit(), |facts| facts.namespace_exists = false)),
        ("secret-readers", change_facts(fit(), |facts| facts.readers.found = vec![reader])),
        ("quota", change_facts(fit(), |facts| facts.allowance = full())),
        ("pull-secrets", change_facts(fit(), |facts| facts.references.pull_secrets = missing_reference("regcred"))),
        ("classes", change_facts(fit(), |facts| facts.references.priority_classes = missing_reference("high"))),
        ("sidecars", change_facts(fit(), |facts| facts.sidecars = injected())),
        ("init-secret", change_facts(fit(), |facts| facts.init = InitFacts::Missing)),
        ("init-token", change_facts(fit(), |facts| facts.init = usable_init("v0.7.1", TokenFacts::Refused))),
        ("skew", change_facts(fit(), |facts| facts.init = usable_init("v1.1.0", TokenFacts::Accepted))),
        ("existing-agent", change_facts(fit(), |facts| facts.agents = vec![agent("other", "fleet", None)])),
        ("earlier-copies", change_facts(fit(), |facts| facts.earlier_copies = left_behind())),
        (
            "registered-elsewhere",
            change_facts(fit(), |facts| {
                facts.agents = vec![agent("m", "fleet", None)];
                facts.registered_with = "another".to_owned();
            }),
        ),
        ("cluster-name", change_facts(fit(), |facts| facts.members = Some(vec![member_facts("m", "other-id")]))),
    ]
    .into_iter()
    .map(|(id, facts)| evaluate_failing_check(&CHECKS, id, &facts))
    .collect()
}

fn judge_agents(agents: Vec<AgentFacts>) -> CheckResult {
    result_of_check(&CHECKS, "existing-agent", &WorkloadFacts { agents, ..fit() })
}

#[test]
fn an_agent_of_another_fleet_is_no_obstacle_in_another_namespace() {
    assert!(matches!(
        judge_agents(vec![agent("m", "fleet", None), agent("m", "two", Some(false))]),
        CheckResult::Passed(_)
    ));
    assert!(matches!(judge_agents(vec![agent("other", "two", Some(false))]), CheckResult::Passed(_)));
    assert!(matches!(judge_agents(vec![agent("other", "two", Some(true))]), CheckResult::Failed(_)));
    assert!(
        matches!(judge_agents(vec![agent("other", "fleet", Some(false))]), CheckResult::Failed(_)),
        "one a namespace"
    );
    let CheckResult::Warned(problem) = judge_agents(vec![agent("m", "fleet", None), agent("other", "two", None)])
    else {
        panic!()
    };
    assert!(problem.what.ends_with("is not known: `other` in namespace two"), "{}", problem.what);
}

#[test]
fn an_init_secret_with_an_address_that_nobody_connects_to_is_refused() {
    for (server, expected) in [
        ("https://0.0.0.0:443", true),
        ("https://[::ffff:0.0.0.0]:443", true),
        ("https://[::]:443", true),
        ("https://192.0.2.1:443", false),
        ("https://[2001:db8::1]:443", false),
        ("https://hub:1", false),
    ] {
        assert_eq!(is_unspecified(server), expected, "{server}");
    }
    let mut facts = fit();
    let InitFacts::Usable { init, .. } = &mut facts.init else { panic!() };
    init.server = "https://0.0.0.0:443".to_owned();
    assert_eq!(failure(&facts).0, "init-secret");
}

#[test]
fn a_fit_cluster_passes_every_check() {
    let report = run_checks(&CHECKS, &fit(), &[]);
    assert!(report.judged.iter().all(|j| matches!(j.result, CheckResult::Passed(_))), "{report:?}");
}

/// A remedy's words, with the place behind each `kubectl`.
fn shown(remedy: &Remedy) -> String {
    let parts = remedy.parts().iter().map(|part| match part {
        Part::Text(text) => text.clone(),
        Part::Kubectl(Place::Cluster) => "kubectl HERE".to_owned(),
        Part::Kubectl(_) => "kubectl THERE".to_owned(),
        other => format!("{other:?}"),
    });
    parts.collect()
}

#[test]
fn without_namespace_or_secret_the_two_commands_are_shown() {
    let create = "kubectl HERE create namespace fleet";
    let copy = "kubectl THERE -n fleet get secret fleet-cluster-init-kubeconfig -o yaml | kubectl HERE apply -f -";
    let mut facts = fit();
    facts.init = InitFacts::Missing;
    let (id, _, remedy) = failure(&facts);
    assert!(id == "init-secret" && shown(&remedy).contains(copy), "{remedy:?}");
    facts.namespace_exists = false;
    let (id, _, remedy) = failure(&facts);
    let remedy = shown(&remedy);
    assert!(id == "namespace" && remedy.contains(create) && remedy.contains(copy), "{remedy}");
    facts.wanted.namespace = "agents".to_owned();
    let moved = "-n fleet get secret fleet-cluster-init-kubeconfig -o yaml | sed 's/^  namespace: fleet$/  namespace: agents/' | kubectl";
    assert!(shown(&failure(&facts).2).contains(moved), "{:?}", failure(&facts));
    facts.wanted.copies = true;
    facts.init = fit().init;
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
}

#[test]
fn an_expired_token_stops_only_an_agent_that_needs_it() {
    let mut facts = fit();
    facts.init = InitFacts::Usable { init: Box::new(init()), version: None, token: TokenFacts::Refused };
    let (id, _, remedy) = failure(&facts);
    assert_eq!(id, "init-token");
    // Applied over the one that is there, the copy would be refused.
    let delete = "kubectl HERE -n fleet delete secret fleet-cluster-init-kubeconfig --ignore-not-found\n";
    let remedy = shown(&remedy);
    let (first, then) = remedy.split_once(delete).unwrap();
    assert!(first.ends_with("copy it again:\n  ") && then.contains("| kubectl HERE apply -f -\n"), "{remedy}");
    facts.wanted.copies = true;
    let (_, _, remedy) = failure(&facts);
    assert_eq!(remedy.lone_flags(), [&Flag::ControlPlane("CONTROL_PLANE".to_owned())]);
    assert!(!remedy.joined_text().contains("delete"), "{remedy:?}");
    facts.wanted.copies = false;
    facts.registered_with = init().control_plane_digest();
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
    assert_eq!(run_checks(&CHECKS, &facts, &[]).warnings().count(), 1);
}

/// The problem, the remedy and the lines that it suggests for a cluster that the line of the control plane does not support.
fn suggest_lines(control_plane: Option<&str>, git_version: &str) -> (String, String, Vec<String>) {
    let mut facts = fit();
    facts.git_version = git_version.to_owned();
    // An agent of the control plane's own line, so that nothing but the cluster is at fault.
    if let Some(line) = control_plane.and_then(|version| version.parse::<ServiceLine>().ok()) {
        facts.wanted.support.line = line.to_string();
    }
    let alternatives = [(31, &["v1.2", "v1.1"][..]), (36, &["v1.2"]), (27, &["v0.7"])];
    facts.wanted.support.alternatives = alternatives
        .iter()
        .map(|(minor, lines)| (KubeMinor::new(1, *minor), lines.iter().map(|one| (*one).to_owned()).collect()))
        .collect();
    let version = control_plane.map(str::to_owned);
    facts.init = InitFacts::Usable { init: Box::new(init()), version, token: TokenFacts::Accepted };
    let (id, what, remedy) = failure(&facts);
    assert_eq!(id, "kubernetes-version");
    let versions = remedy.lone_flags().into_iter().filter_map(|flag| match flag {
        Flag::Version(version) => Some(version.clone()),
        _ => None,
    });
    (what, remedy.joined_text(), versions.collect())
}

#[test]
fn a_line_that_is_suggested_for_a_kubernetes_can_join_the_control_plane() {
    let (what, remedy, versions) = suggest_lines(Some("v0.6.1"), "v1.36.3");
    assert!(what.ends_with("; no agent for v1.36.3 can join a control plane of v0.6"), "{what}");
    assert_eq!(remedy, "upgrade the control plane to v1.1 first, one line at a time");
    assert!(versions.is_empty());
    let (_, remedy, versions) = suggest_lines(Some("v0.7.1"), "v1.31.4");
    assert_eq!(versions, ["v1.1"], "`auto` would take v1.2, which cannot join");
    assert!(remedy.ends_with("the newest version that also fits the control plane of v0.7"), "{remedy}");
    for (control_plane, git_version, line) in
        [(Some("v0.6.1"), "v1.27.8", "v0.7"), (Some("v1.1.0"), "v1.31.4", "v1.2"), (None, "v1.36.3", "v1.2")]
    {
        assert_eq!(suggest_lines(control_plane, git_version).2, [line, "auto"], "{control_plane:?}");
    }
}

#[test]
fn lines_that_are_not_neighbours_are_refused() {
    let mut facts = fit();
    facts.init =
        InitFacts::Usable { init: Box::new(init()), version: Some("v1.1.0".to_owned()), token: TokenFacts::Accepted };
    let (id, what, _) = failure(&facts);
    assert!(id == "skew" && what.contains("v0.6") && what.contains("v1.1"), "{what}");
}

fn delete_at_control_plane(access: Access) -> Command {
    Command::at_place(Place::ControlPlane(access), Action::DeleteCluster("m".to_owned()))
}

#[test]
fn a_second_agent_another_control_plane_and_a_taken_name_are_refused() {
    let mut facts = fit();
    facts.agents = vec![agent("other", "two", Some(true))];
    assert_eq!(failure(&facts).0, "existing-agent");
    let command = uninstall_command;
    assert_eq!(failure(&facts).2.commands(), [&command("other", "two")]);
    facts.agents[0].namespace = "fleet".to_owned();
    facts.agents[0].name = "m".to_owned();
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
    facts.registered_with = "another".to_owned();
    assert_eq!(failure(&facts).0, "registered-elsewhere");
    assert_eq!(failure(&facts).2.commands(), [&command("m", "fleet")]);
    // At another address it is the same one, and its certificate is good there, whatever becomes of the token.
    facts.same_authority = true;
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
    let mut facts = fit();
    facts.members = Some(vec![member_facts("m", "other-id")]);
    assert_eq!(failure(&facts).0, "cluster-name");
    assert_eq!(failure(&facts).2.commands(), [&delete_at_control_plane(Access::Unknown)]);
    facts.wanted.hub = Some(Access::Context("demo".to_owned()));
    assert_eq!(failure(&facts).2.commands(), [&delete_at_control_plane(Access::Context("demo".to_owned()))]);
    facts.members = Some(vec![member_facts("n", "id")]);
    assert!(failure(&facts).1.contains("as n"), "{facts:?}");
    assert_eq!(failure(&facts).2.commands(), [&command("n", "fleet")]);
    facts.members = Some(vec![member_facts("m", "id"), member_facts("n", "other-id")]);
    assert_eq!(run_checks(&CHECKS, &facts, &[]).failures().count(), 0);
}
