//! The preflight checks of an agent install: pure functions of the facts.

use super::{InitFacts, TokenFacts, WorkloadFacts};
use crate::api::keys::INIT_SECRET;
use crate::api::version::ServiceLine;
use crate::check::{Check, Finding, access, autopilot};

/// The preflight checks of an agent install, in the order in which they are shown.
pub const CHECKS: [Check<WorkloadFacts>; 10] = [
    Check::required("kubernetes-version", "Kubernetes version", "cluster", &[], |facts| {
        facts.wanted.support.judge(&facts.git_version)
    }),
    Check::required("autopilot", "managed mode", "cluster", &[], |facts| autopilot::judge(&facts.autopilot_evidence)),
    Check::required("access", "rights", "access", &[], rights),
    Check::required("namespace", "namespace", "namespace", &[], namespace),
    Check::required("init-secret", "init Secret", "control plane", &["namespace"], init_secret),
    Check::required("init-token", "init token", "control plane", &["namespace", "init-secret"], init_token),
    Check::required(
        "skew",
        "versions of agent and control plane",
        "control plane",
        &["namespace", "init-secret"],
        skew,
    ),
    Check::required("existing-agent", "existing agent", "cluster", &[], existing_agent),
    Check::required(
        "registered-elsewhere",
        "control plane of the agent that is here",
        "control plane",
        &["init-secret"],
        registered_elsewhere,
    ),
    Check::required("cluster-name", "name of the cluster", "control plane", &[], cluster_name),
];

fn rights(facts: &WorkloadFacts) -> Finding {
    let source = format!(" (`fleetctl show rbac agent {}` prints all that are needed)", facts.wanted.name);
    access::judge(&facts.forbidden, facts.wanted.writes.len(), &source)
}

/// The two commands of the operator workflow, each on its line.
fn copy_commands(facts: &WorkloadFacts) -> [String; 2] {
    let wanted = &facts.wanted;
    let here = wanted.context.as_ref().map(|context| format!(" --context {context}")).unwrap_or_default();
    let there = wanted.control_plane.as_deref().unwrap_or("CONTROL_PLANE");
    let namespace = &wanted.namespace;
    [
        format!("kubectl{here} create namespace {namespace}"),
        format!("kubectl --context {there} -n {namespace} get secret {INIT_SECRET} -o yaml | kubectl{here} apply -f -"),
    ]
}

fn short_way(facts: &WorkloadFacts) -> String {
    let there = facts.wanted.control_plane.as_deref().unwrap_or("CONTROL_PLANE");
    format!("or let this program copy it: `--control-plane {there}`")
}

fn namespace(facts: &WorkloadFacts) -> Finding {
    let name = &facts.wanted.namespace;
    if let Some(error) = facts.unread.get("namespace") {
        return Finding::doubtful(format!("namespace {name} could not be read: {error}"), "allow `get` on namespaces");
    }
    if facts.namespace_terminating {
        return Finding::bad(
            format!("namespace {name} is being deleted"),
            format!("wait for it to go (`kubectl get namespace {name}`), or choose another with `--namespace`"),
        );
    }
    if facts.namespace_exists {
        return Finding::Good(format!("{name} exists"));
    }
    if facts.wanted.copies {
        return Finding::Good(format!("{name} will be created"));
    }
    let [create, copy] = copy_commands(facts);
    Finding::bad(
        format!("there is no namespace {name} in this cluster, and so no Secret {INIT_SECRET}"),
        format!("make the namespace and copy the Secret into it:\n  {create}\n  {copy}\n{}", short_way(facts)),
    )
}

fn init_secret(facts: &WorkloadFacts) -> Finding {
    let namespace = &facts.wanted.namespace;
    let [_, copy] = copy_commands(facts);
    match &facts.init {
        InitFacts::Usable { init, .. } => Finding::Good(format!("leads to {}", init.server)),
        InitFacts::Missing => Finding::bad(
            format!("there is no Secret {INIT_SECRET} in namespace {namespace}"),
            format!("copy it from the control plane:\n  {copy}\n{}", short_way(facts)),
        ),
        InitFacts::Malformed(why) => Finding::bad(
            format!("the Secret {INIT_SECRET} in namespace {namespace} cannot be used: {why}"),
            format!("copy it again:\n  {copy}"),
        ),
        InitFacts::Elsewhere(server) => Finding::bad(
            format!("the Secret {INIT_SECRET} in namespace {namespace} leads to another control plane, {server}"),
            format!(
                "if that control plane is not meant, remove the Secret first: `kubectl -n {namespace} delete secret {INIT_SECRET}`"
            ),
        ),
    }
}

fn init_token(facts: &WorkloadFacts) -> Finding {
    let InitFacts::Usable { init, token, .. } = &facts.init else { return Finding::Good(String::new()) };
    match token {
        TokenFacts::Accepted => Finding::Good("taken by the control plane".to_owned()),
        // Agents may reach what this machine does not; the probe in the cluster knows.
        TokenFacts::Unreached(_) => Finding::Good(format!("{} is not reached from here", init.server)),
        // An agent that is registered already has a certificate and needs no token.
        TokenFacts::Refused if facts.registered_with == init.hub() => Finding::doubtful(
            "the token in the init Secret has expired; the agent that is here goes on with its certificate",
            format!("copy the Secret again before that agent is replaced:\n  {}", copy_commands(facts)[1]),
        ),
        TokenFacts::Refused => Finding::bad(
            format!("the control plane at {} does not take the token in the Secret: it has expired", init.server),
            format!("copy the Secret again:\n  {}", copy_commands(facts)[1]),
        ),
    }
}

fn skew(facts: &WorkloadFacts) -> Finding {
    let InitFacts::Usable { version, .. } = &facts.init else { return Finding::Good(String::new()) };
    let line = version.as_deref().and_then(|version| version.parse::<ServiceLine>().ok());
    let Some(line) = line.map(|line| line.to_string()) else {
        return Finding::Good("the init Secret does not say the control plane's version".to_owned());
    };
    let wanted = &facts.wanted;
    if wanted.joins.contains(&line) {
        return Finding::Good(format!("agent {}, control plane {line}", wanted.support.line));
    }
    Finding::bad(
        format!(
            "an agent of {} cannot join a control plane of {line}: it may be one line older or newer, not more",
            wanted.support.line
        ),
        format!(
            "install an agent that fits both (`--version {line}` where this cluster's Kubernetes is in its row), or bring \
             the control plane nearer first"
        ),
    )
}

fn existing_agent(facts: &WorkloadFacts) -> Finding {
    if let Some(error) = facts.unread.get("agents") {
        return Finding::doubtful(
            format!("other agents could not be looked for: {error}"),
            "allow `list` on deployments",
        );
    }
    let wanted = &facts.wanted;
    let other = facts.agents.iter().find(|a| a.name != wanted.name || a.namespace != wanted.namespace);
    match other {
        None if facts.agents.is_empty() => Finding::Good("none in this cluster".to_owned()),
        None => Finding::Good(format!("{} is installed and will be brought up to date", wanted.name)),
        Some(other) => Finding::bad(
            format!("this cluster has an agent already: `{}` in namespace {}", other.name, other.namespace),
            format!(
                "a cluster is registered once; remove that agent first: `fleetctl uninstall agent {} --namespace {}`",
                other.name, other.namespace
            ),
        ),
    }
}

fn registered_elsewhere(facts: &WorkloadFacts) -> Finding {
    match facts.init() {
        Some(init) if !facts.registered_with.is_empty() && facts.registered_with != init.hub() => Finding::bad(
            format!("the agent here is registered with another control plane than the one at {}", init.server),
            format!(
                "if the control plane only has another address now, go on with `--skip-preflight registered-elsewhere`; \
                 else `fleetctl uninstall agent {}` first, with the former Secret in place",
                facts.wanted.name
            ),
        ),
        _ => Finding::Good("the one of the init Secret, or none yet".to_owned()),
    }
}

fn cluster_name(facts: &WorkloadFacts) -> Finding {
    let name = &facts.wanted.name;
    let Some(members) = &facts.members else {
        return Finding::Good("the control plane itself decides when the agent registers".to_owned());
    };
    if let Some(holder) = members.iter().find(|member| &member.name == name) {
        if holder.id.is_empty() || holder.id == facts.cluster_id {
            return Finding::Good(format!("{name} is this cluster"));
        }
        return Finding::bad(
            format!("another cluster is registered as {name}"),
            format!("choose another name, or remove that one if it is gone: `fleetctl delete cluster {name}`"),
        );
    }
    match members.iter().find(|member| !member.id.is_empty() && member.id == facts.cluster_id) {
        Some(other) => Finding::bad(
            format!("this cluster is registered already, as {}", other.name),
            format!("use that name, or remove it first: `fleetctl uninstall agent {}`", other.name),
        ),
        None => Finding::Good(format!("{name} is free")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::init_kubeconfig::Init;
    use crate::api::version::KubeMinor;
    use crate::check::support::Support;
    use crate::check::workload::{AgentFacts, MemberFacts, Wanted};
    use crate::check::{Verdict, only_failure, run};

    fn init() -> Init {
        Init::parse(
            "clusters: [{cluster: {server: 'https://hub:1', certificate-authority-data: QQ==}}]\nusers: [{user: {token: t}}]",
        )
        .unwrap()
    }

    fn fit() -> WorkloadFacts {
        WorkloadFacts {
            wanted: Wanted {
                support: Support {
                    line: "v0.6".to_owned(),
                    supported: vec![KubeMinor::new(1, 25)],
                    ..Support::default()
                },
                joins: vec!["v0.6".to_owned(), "v0.7".to_owned()],
                name: "m".to_owned(),
                namespace: "fleet".to_owned(),
                context: Some("west".to_owned()),
                ..Wanted::default()
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

    fn failure(facts: &WorkloadFacts) -> (&'static str, String, String) {
        only_failure(&CHECKS, facts)
    }

    #[test]
    fn a_fit_cluster_passes_every_check() {
        let report = run(&CHECKS, &fit(), &[]);
        assert!(report.judged.iter().all(|j| matches!(j.verdict, Verdict::Passed(_))), "{report:?}");
    }

    #[test]
    fn without_namespace_or_secret_the_two_commands_are_shown() {
        let create = "kubectl --context west create namespace fleet";
        let copy = "kubectl --context CONTROL_PLANE -n fleet get secret fleet-cluster-init-kubeconfig -o yaml | kubectl --context west apply -f -";
        let mut facts = fit();
        facts.init = InitFacts::Missing;
        let (id, _, remedy) = failure(&facts);
        assert!(id == "init-secret" && remedy.contains(copy), "{remedy}");
        facts.namespace_exists = false;
        let (id, _, remedy) = failure(&facts);
        assert!(id == "namespace" && remedy.contains(create) && remedy.contains(copy), "{remedy}");
        facts.wanted.copies = true;
        facts.init = fit().init;
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }

    #[test]
    fn an_expired_token_stops_only_an_agent_that_needs_it() {
        let mut facts = fit();
        facts.init = InitFacts::Usable { init: Box::new(init()), version: None, token: TokenFacts::Refused };
        assert_eq!(failure(&facts).0, "init-token");
        facts.registered_with = init().hub();
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        assert_eq!(run(&CHECKS, &facts, &[]).warnings().count(), 1);
    }

    #[test]
    fn lines_that_are_not_neighbours_are_refused() {
        let mut facts = fit();
        facts.init = InitFacts::Usable {
            init: Box::new(init()),
            version: Some("v1.1.0".to_owned()),
            token: TokenFacts::Accepted,
        };
        let (id, what, _) = failure(&facts);
        assert!(id == "skew" && what.contains("v0.6") && what.contains("v1.1"), "{what}");
    }

    #[test]
    fn a_second_agent_another_control_plane_and_a_taken_name_are_refused() {
        let mut facts = fit();
        facts.agents = vec![AgentFacts { name: "other".to_owned(), namespace: "fleet".to_owned() }];
        assert_eq!(failure(&facts).0, "existing-agent");
        facts.agents[0].name = "m".to_owned();
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        facts.registered_with = "another".to_owned();
        assert_eq!(failure(&facts).0, "registered-elsewhere");
        let mut facts = fit();
        let member = |name: &str, id: &str| MemberFacts { name: name.to_owned(), id: id.to_owned() };
        facts.members = Some(vec![member("m", "other-id")]);
        assert_eq!(failure(&facts).0, "cluster-name");
        facts.members = Some(vec![member("n", "id")]);
        assert!(failure(&facts).1.contains("as n"));
        facts.members = Some(vec![member("m", "id"), member("n", "other-id")]);
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }
}
