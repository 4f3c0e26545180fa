//! The preflight checks of an agent install: pure functions of the facts.

use std::borrow::Cow;

use super::{InitFacts, SOME_CONTROL_PLANE, TokenFacts, Wanted, WorkloadFacts};
use crate::api::labels::INIT_SECRET;
use crate::api::shell::{self, foreign_word};
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
    let Wanted { name, namespace, support, .. } = &facts.wanted;
    let source = format!(
        " (`fleetctl show rbac agent {name} --namespace {namespace} --version {}`, with the same values, prints all that are needed)",
        support.line
    );
    access::judge(&facts.forbidden, facts.wanted.writes.len(), &source)
}

/// The namespace of the Secret in a control plane that was installed as is usual.
const HUB_NAMESPACE: &str = "fleet";

/// The options of kubectl that lead to the workload cluster.
fn here(facts: &WorkloadFacts) -> &str {
    &facts.wanted.cluster
}

/// The command that removes an agent of this cluster.
fn uninstall_command(facts: &WorkloadFacts, name: &str, namespace: &str) -> String {
    let (name, namespace) = (foreign_word(name), foreign_word(namespace));
    format!("fleetctl uninstall agent {name}{} --namespace {namespace}", here(facts))
}

/// The control plane's name.
fn control_plane(facts: &WorkloadFacts) -> Cow<'_, str> {
    shell::word(facts.wanted.control_plane.as_deref().unwrap_or("CONTROL_PLANE"))
}

/// The flags that lead to the control plane.
fn there(facts: &WorkloadFacts) -> &str {
    facts.wanted.hub.as_deref().unwrap_or(SOME_CONTROL_PLANE)
}

/// The two commands of the operator workflow, each on its line.
fn copy_commands(facts: &WorkloadFacts) -> [String; 2] {
    let (here, there, namespace) = (here(facts), there(facts), &facts.wanted.namespace);
    // What is printed there says where it is, and would be applied there.
    let moved = if namespace == HUB_NAMESPACE {
        String::new()
    } else {
        format!("sed 's/^  namespace: {HUB_NAMESPACE}$/  namespace: {namespace}/' | ")
    };
    [
        format!("kubectl{here} create namespace {namespace}"),
        format!("kubectl{there} -n {HUB_NAMESPACE} get secret {INIT_SECRET} -o yaml | {moved}kubectl{here} apply -f -"),
    ]
}

fn delete_command(facts: &WorkloadFacts) -> String {
    let namespace = &facts.wanted.namespace;
    format!("kubectl{} -n {namespace} delete secret {INIT_SECRET} --ignore-not-found", here(facts))
}

fn short_way(facts: &WorkloadFacts) -> String {
    format!("or let this program copy it: `--control-plane {}`", control_plane(facts))
}

/// How a Secret that is here already comes to be another. Over the former one it cannot be applied: what is printed in the
/// control plane carries the UID and the version that it has there.
fn copy_again(facts: &WorkloadFacts) -> String {
    if facts.wanted.copies {
        return format!(
            "let this program copy it again: `--control-plane {}`; if it did, `fleetctl status` tells why the control plane \
             has no better one",
            control_plane(facts)
        );
    }
    let [_, copy] = copy_commands(facts);
    format!(
        "remove it and copy it again:\n  {}\n  {copy}\n{} in place of the second command",
        delete_command(facts),
        short_way(facts)
    )
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
            copy_again(facts),
        ),
        InitFacts::Elsewhere(server) => Finding::bad(
            format!(
                "the Secret {INIT_SECRET} in namespace {namespace} leads to {server}, and not to the control plane that is named"
            ),
            format!(
                "if that address is not meant, or is a former one, remove the Secret first: `{}`",
                delete_command(facts)
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
        TokenFacts::Refused if facts.is_registered_with(init) => Finding::doubtful(
            "the token in the init Secret has expired; the agent that is here goes on with its certificate",
            format!("before that agent is replaced, {}", copy_again(facts)),
        ),
        TokenFacts::Refused => Finding::bad(
            format!("the control plane at {} does not take the token in the Secret: it has expired", init.server),
            copy_again(facts),
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
                "a cluster is registered once; remove that agent first: `{}`",
                uninstall_command(facts, &other.name, &other.namespace)
            ),
        ),
    }
}

fn registered_elsewhere(facts: &WorkloadFacts) -> Finding {
    match facts.init() {
        Some(init) if facts.registered_with.is_empty() || facts.is_registered_with(init) => {
            Finding::Good("the one of the init Secret, or none yet".to_owned())
        }
        Some(init) => Finding::bad(
            format!("the agent here is registered with another control plane than the one at {}", init.server),
            format!(
                "`{}` first, with the former Secret in place; if that control plane is gone, go on with \
                 `--skip-preflight registered-elsewhere`",
                uninstall_command(facts, &facts.wanted.name, &facts.wanted.namespace)
            ),
        ),
        None => Finding::Good("not known".to_owned()),
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
            format!(
                "choose another name, or remove that one if it is gone: `fleetctl delete cluster {name}{}`",
                there(facts)
            ),
        );
    }
    match members.iter().find(|member| !member.id.is_empty() && member.id == facts.cluster_id) {
        Some(other) => {
            let agent = facts.agents.iter().find(|agent| agent.name == other.name);
            let namespace = agent.map_or(&facts.wanted.namespace, |agent| &agent.namespace);
            Finding::bad(
                format!("this cluster is registered already, as {}", other.name),
                format!("use that name, or remove it first: `{}`", uninstall_command(facts, &other.name, namespace)),
            )
        }
        None => Finding::Good(format!("{name} is free")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::init_kubeconfig::Init;
    use crate::api::version::KubeMinor;
    use crate::check::support::Support;
    use crate::check::workload::{AgentFacts, MemberFacts, Wanted};
    use crate::check::{Judged, Verdict, only_failure, run, unfit};

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
                cluster: " --context west".to_owned(),
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

    pub(in crate::check) fn examples() -> Vec<Judged> {
        let changed = |change: &dyn Fn(&mut WorkloadFacts)| {
            let mut facts = fit();
            change(&mut facts);
            facts
        };
        let usable = |version: &str, token| InitFacts::Usable {
            init: Box::new(init()),
            version: Some(version.to_owned()),
            token,
        };
        let agent = |name: &str| vec![AgentFacts { name: name.to_owned(), namespace: "fleet".to_owned() }];
        let member = |id: &str| vec![MemberFacts { name: "m".to_owned(), id: id.to_owned() }];
        [
            ("kubernetes-version", changed(&|facts| facts.git_version = "v1.31.4".to_owned())),
            ("autopilot", changed(&|facts| facts.autopilot_evidence = vec!["API group auto.gke.io".to_owned()])),
            ("access", changed(&|facts| facts.forbidden = vec!["create clusterroles".to_owned()])),
            ("namespace", changed(&|facts| facts.namespace_exists = false)),
            ("init-secret", changed(&|facts| facts.init = InitFacts::Missing)),
            ("init-token", changed(&|facts| facts.init = usable("v0.7.1", TokenFacts::Refused))),
            ("skew", changed(&|facts| facts.init = usable("v1.1.0", TokenFacts::Accepted))),
            ("existing-agent", changed(&|facts| facts.agents = agent("other"))),
            (
                "registered-elsewhere",
                changed(&|facts| {
                    facts.agents = agent("m");
                    facts.registered_with = "another".to_owned();
                }),
            ),
            ("cluster-name", changed(&|facts| facts.members = Some(member("other-id")))),
        ]
        .map(|(id, facts)| unfit(&CHECKS, id, &facts))
        .into()
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
        facts.wanted.namespace = "agents".to_owned();
        let moved = "-n fleet get secret fleet-cluster-init-kubeconfig -o yaml | sed 's/^  namespace: fleet$/  namespace: agents/' | kubectl";
        assert!(failure(&facts).2.contains(moved), "{:?}", failure(&facts));
        facts.wanted.copies = true;
        facts.init = fit().init;
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }

    #[test]
    fn an_expired_token_stops_only_an_agent_that_needs_it() {
        let mut facts = fit();
        facts.init = InitFacts::Usable { init: Box::new(init()), version: None, token: TokenFacts::Refused };
        let (id, _, remedy) = failure(&facts);
        assert_eq!(id, "init-token");
        // Applied over the one that is there, the copy would be refused.
        let delete = "kubectl --context west -n fleet delete secret fleet-cluster-init-kubeconfig --ignore-not-found\n";
        let (first, then) = remedy.split_once(delete).unwrap();
        assert!(
            first.ends_with("copy it again:\n  ") && then.contains("| kubectl --context west apply -f -\n"),
            "{remedy}"
        );
        facts.wanted.copies = true;
        let (_, _, remedy) = failure(&facts);
        assert!(remedy.contains("`--control-plane CONTROL_PLANE`") && !remedy.contains("delete"), "{remedy}");
        facts.wanted.copies = false;
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
        facts.agents = vec![AgentFacts { name: "other".to_owned(), namespace: "two".to_owned() }];
        assert_eq!(failure(&facts).0, "existing-agent");
        let command =
            |name: &str, place: &str| format!("`fleetctl uninstall agent {name} --context west --namespace {place}`");
        assert!(failure(&facts).2.contains(&command("other", "two")), "{facts:?}");
        facts.agents[0].namespace = "fleet".to_owned();
        facts.agents[0].name = "m".to_owned();
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        facts.registered_with = "another".to_owned();
        assert_eq!(failure(&facts).0, "registered-elsewhere");
        assert!(failure(&facts).2.contains(&command("m", "fleet")), "{facts:?}");
        // At another address it is the same one, and its certificate is good there, whatever becomes of the token.
        facts.same_authority = true;
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
        let mut facts = fit();
        let member = |name: &str, id: &str| MemberFacts { name: name.to_owned(), id: id.to_owned() };
        facts.members = Some(vec![member("m", "other-id")]);
        assert_eq!(failure(&facts).0, "cluster-name");
        assert!(failure(&facts).2.contains("`fleetctl delete cluster m --context CONTROL_PLANE`"), "{facts:?}");
        facts.wanted.hub = Some(" --context demo".to_owned());
        assert!(failure(&facts).2.contains("`fleetctl delete cluster m --context demo`"), "{facts:?}");
        facts.members = Some(vec![member("n", "id")]);
        assert!(failure(&facts).1.contains("as n") && failure(&facts).2.contains(&command("n", "fleet")), "{facts:?}");
        facts.members = Some(vec![member("m", "id"), member("n", "other-id")]);
        assert_eq!(run(&CHECKS, &facts, &[]).failures().count(), 0);
    }
}
