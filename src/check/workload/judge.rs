//! The preflight checks of an agent install: pure functions of the facts.

use super::{AgentFacts, InitFacts, TokenFacts, WantedAgent, WorkloadFacts};
use crate::api::labels::INIT_SECRET;
use crate::api::remedy::{Access, Action, Command, Flag, Place, Remedy, Subject};
use crate::api::version::{KubeMinor, ServiceLine};
use crate::check::quota::needs::Needs;
use crate::check::quota::{Place as QuotaPlace, Taken};
use crate::check::{Check, CheckResult, access, autopilot, clock};

/// The preflight checks of an agent install, in the order in which they are shown.
pub const CHECKS: [Check<WorkloadFacts>; 17] = [
    Check::new_required("kubernetes-version", "Kubernetes version", "cluster", &[], check_agent_kubernetes),
    Check::new_required("autopilot", "managed mode", "cluster", &[], |facts| {
        autopilot::evaluate_autopilot(&facts.autopilot_evidence)
    }),
    Check::new_required("clock", "clock", "cluster", &[], |facts| clock::evaluate_agent_clock(facts.clock_ahead)),
    Check::new_required("access", "rights", "access", &[], check_agent_access),
    Check::new_required("namespace", "namespace", "namespace", &[], check_agent_namespace),
    Check::new_advisory("secret-readers", "readers of Secrets", "namespace", &["namespace"], |facts| {
        facts.readers.evaluate_readers(&facts.wanted.namespace)
    }),
    Check::new_required("quota", "quota", "namespace", &["namespace"], check_agent_quota),
    Check::new_required("pull-secrets", "image pull Secrets", "namespace", &["namespace"], |facts| {
        facts.references.evaluate_pull_secrets(&facts.wanted.namespace)
    }),
    Check::new_required("classes", "classes of the pods", "cluster", &[], |facts| facts.references.evaluate_classes()),
    Check::new_advisory("sidecars", "sidecar containers", "namespace", &["namespace"], |facts| {
        facts.sidecars.evaluate_sidecars(&facts.wanted.namespace)
    }),
    Check::new_required("init-secret", "init Secret", "control plane", &["namespace"], init_secret),
    Check::new_required("init-token", "init token", "control plane", &["namespace", "init-secret"], init_token),
    Check::new_required(
        "skew",
        "versions of agent and control plane",
        "control plane",
        &["namespace", "init-secret"],
        check_version_skew,
    ),
    Check::new_required("existing-agent", "existing agent", "cluster", &[], existing_agent),
    Check::new_advisory("earlier-copies", "copies of an earlier agent", "cluster", &[], |facts| {
        facts.earlier_copies.evaluate_copies(!facts.agents.is_empty())
    }),
    Check::new_required(
        "registered-elsewhere",
        "control plane of the existing agent",
        "control plane",
        &["init-secret"],
        registered_elsewhere,
    ),
    Check::new_required("cluster-name", "name of the cluster", "control plane", &[], cluster_name),
];

/// Returns the service line of the control plane, where the init Secret contains it.
fn control_plane_line(facts: &WorkloadFacts) -> Option<ServiceLine> {
    let InitFacts::Usable { version, .. } = &facts.init else { return None };
    version.as_deref()?.parse().ok()
}

/// Judges the Kubernetes version; a line that is suggested instead can join the control plane.
fn check_agent_kubernetes(facts: &WorkloadFacts) -> CheckResult {
    let WantedAgent { support, joins, .. } = &facts.wanted;
    let result = support.evaluate_version(&facts.git_version);
    let minor = facts.git_version.parse::<KubeMinor>().ok();
    let others = minor.and_then(|minor| support.alternatives.get(&minor)).map(Vec::as_slice).unwrap_or_default();
    let (CheckResult::Failed(problem), Some(line), [newest, ..]) = (&result, control_plane_line(facts), others) else {
        return result;
    };
    let fits =
        |control_plane: ServiceLine, agent: &&String| joins.get(&control_plane).is_some_and(|all| all.contains(agent));
    match others.iter().find(|agent| fits(line, agent)) {
        Some(agent) if agent == newest => result,
        Some(agent) => CheckResult::new_failure(
            problem.what.clone(),
            Remedy::new("install with ")
                .flag(Flag::Version(agent.clone()))
                .text(format!(", the newest version that also fits the control plane of {line}")),
        ),
        None => {
            let next = joins.keys().find(|next| **next > line && others.iter().any(|agent| fits(**next, &agent)));
            let remedy = match next {
                Some(next) => format!("upgrade the control plane to {next} first, one line at a time"),
                None => "use another cluster".to_owned(),
            };
            let what =
                format!("{}; no agent for {} can join a control plane of {line}", problem.what, facts.git_version);
            CheckResult::new_failure(what, remedy)
        }
    }
}

fn check_agent_access(facts: &WorkloadFacts) -> CheckResult {
    let WantedAgent { name, namespace, support, .. } = &facts.wanted;
    let source = Command::at_place(Place::Any, Action::ShowRbac(Subject::Agent(name.clone())))
        .with_flag(Flag::Namespace(Some(namespace.clone())))
        .with_flag(Flag::Version(support.line.clone()));
    access::evaluate_access(&facts.forbidden, facts.wanted.writes.len(), source)
}

/// The namespace of the Secret in a control plane that was installed as is usual.
const HUB_NAMESPACE: &str = "fleet";

/// The command that removes an agent of this cluster.
fn uninstall_command(name: &str, namespace: &str) -> Command {
    Command::at_place(Place::Cluster, Action::Uninstall(Subject::Agent(name.to_owned())))
        .with_flag(Flag::Namespace(Some(namespace.to_owned())))
}

/// The flag that has this program copy the Secret.
fn copy_flag(facts: &WorkloadFacts) -> Flag {
    Flag::ControlPlane(facts.wanted.control_plane.clone().unwrap_or_else(|| "CONTROL_PLANE".to_owned()))
}

/// The control plane's API.
fn control_plane_place(facts: &WorkloadFacts) -> Place {
    Place::ControlPlane(facts.wanted.hub.clone().unwrap_or(Access::Unknown))
}

/// The command of the operator workflow that makes the namespace.
fn create_command(facts: &WorkloadFacts) -> Remedy {
    Remedy::default().kubectl(Place::Cluster).text(format!(" create namespace {}", facts.wanted.namespace))
}

/// The command of the operator workflow that copies the Secret.
fn copy_command(facts: &WorkloadFacts) -> Remedy {
    let namespace = &facts.wanted.namespace;
    // What is printed there says where it is, and would be applied there.
    let moved = if namespace == HUB_NAMESPACE {
        String::new()
    } else {
        format!("sed 's/^  namespace: {HUB_NAMESPACE}$/  namespace: {namespace}/' | ")
    };
    Remedy::default()
        .kubectl(control_plane_place(facts))
        .text(format!(" -n {HUB_NAMESPACE} get secret {INIT_SECRET} -o yaml | {moved}"))
        .kubectl(Place::Cluster)
        .text(" apply -f -")
}

fn delete_command(facts: &WorkloadFacts) -> Remedy {
    let namespace = &facts.wanted.namespace;
    Remedy::default()
        .kubectl(Place::Cluster)
        .text(format!(" -n {namespace} delete secret {INIT_SECRET} --ignore-not-found"))
}

fn short_way(facts: &WorkloadFacts) -> Remedy {
    Remedy::new("or let this program copy the Secret: ").flag(copy_flag(facts))
}

/// Returns the remedy that replaces the existing Secret. The new one cannot be applied over it: the manifest from the
/// control plane contains the UID and the resourceVersion that it has there.
fn copy_again(facts: &WorkloadFacts) -> Remedy {
    if facts.wanted.copies {
        return Remedy::new("let this program copy the Secret again: ")
            .flag(copy_flag(facts))
            .text("; if it already did, ")
            .command(Command::at_place(Place::Any, Action::Status(None)))
            .text(" shows why the control plane has no newer Secret");
    }
    Remedy::new("delete the Secret and copy it again:\n  ")
        .and(delete_command(facts))
        .text("\n  ")
        .and(copy_command(facts))
        .text("\n")
        .and(short_way(facts))
        .text(" instead of the second command")
}

fn check_agent_namespace(facts: &WorkloadFacts) -> CheckResult {
    let name = &facts.wanted.namespace;
    if let Some(error) = facts.unread.get("namespace") {
        return CheckResult::new_warning(
            format!("namespace {name} could not be read: {error}"),
            "allow `get` on namespaces",
        );
    }
    if facts.namespace_terminating {
        return CheckResult::new_failure(
            format!("namespace {name} is being deleted"),
            Remedy::new(format!("wait until it is deleted (`kubectl get namespace {name}`), or choose another with "))
                .flag(Flag::Namespace(None)),
        );
    }
    if facts.namespace_exists {
        return CheckResult::Passed(format!("{name} exists"));
    }
    if facts.wanted.copies {
        return CheckResult::Passed(format!("{name} will be created"));
    }
    CheckResult::new_failure(
        format!("namespace {name} does not exist in this cluster, nor does the Secret {INIT_SECRET}"),
        Remedy::new("create the namespace and copy the Secret into it:\n  ")
            .and(create_command(facts))
            .text("\n  ")
            .and(copy_command(facts))
            .text("\n")
            .and(short_way(facts)),
    )
}

fn check_agent_quota(facts: &WorkloadFacts) -> CheckResult {
    let WantedAgent { name, namespace, needs, .. } = &facts.wanted;
    let is_here = facts.agents.iter().any(|agent| agent.name == *name && agent.namespace == *namespace);
    // What is there is counted already.
    let taken = if is_here {
        Taken { needs: Needs::default(), replaced: needs.pods.clone() }
    } else {
        Taken { needs: needs.clone(), replaced: Vec::new() }
    };
    facts.allowance.evaluate_install(&taken, QuotaPlace { namespace, claims: &[], default_class: None })
}

fn init_secret(facts: &WorkloadFacts) -> CheckResult {
    let namespace = &facts.wanted.namespace;
    match &facts.init {
        InitFacts::Usable { init, .. } if is_unspecified(&init.server) => CheckResult::new_failure(
            format!("the server {} in the init Secret is an address that no client can connect to", init.server),
            Remedy::new("install the control plane with an address that workload clusters reach (")
                .flag(Flag::set_value("exposure.agentEndpoint", "HOST:PORT"))
                .text("), then ")
                .and(copy_again(facts)),
        ),
        InitFacts::Usable { init, .. } => CheckResult::Passed(format!("server {}", init.server)),
        InitFacts::Missing => CheckResult::new_failure(
            format!("Secret {INIT_SECRET} does not exist in namespace {namespace}"),
            Remedy::new("copy it from the control plane:\n  ")
                .and(copy_command(facts))
                .text("\n")
                .and(short_way(facts)),
        ),
        InitFacts::Malformed(why) => CheckResult::new_failure(
            format!("the Secret {INIT_SECRET} in namespace {namespace} cannot be used: {why}"),
            copy_again(facts),
        ),
        InitFacts::Elsewhere(server) => CheckResult::new_failure(
            format!(
                "the Secret {INIT_SECRET} in namespace {namespace} has the server {server}, which is not the server \
                 of the named control plane"
            ),
            Remedy::new("if that address is wrong or outdated, delete the Secret first: `")
                .and(delete_command(facts))
                .text("`"),
        ),
    }
}

/// Returns whether a URL has the address that stands for all addresses of a machine, to which nobody connects.
fn is_unspecified(server: &str) -> bool {
    let host = server.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_unspecified())
}

fn init_token(facts: &WorkloadFacts) -> CheckResult {
    let InitFacts::Usable { init, token, .. } = &facts.init else { return CheckResult::Passed(String::new()) };
    match token {
        TokenFacts::Accepted => CheckResult::Passed("accepted by the control plane".to_owned()),
        // Agents may reach what this machine does not; the probe in the cluster knows.
        TokenFacts::Unreached(_) => CheckResult::Passed(format!("{} cannot be reached from here", init.server)),
        // An agent that is registered already has a certificate and needs no token.
        TokenFacts::Refused if facts.is_registered_with(init) => CheckResult::new_warning(
            "the token in the init Secret has expired; the existing agent keeps using its certificate",
            Remedy::new("before you replace that agent, ").and(copy_again(facts)),
        ),
        TokenFacts::Refused => CheckResult::new_failure(
            format!("the control plane at {} rejects the token in the Secret: it has expired", init.server),
            copy_again(facts),
        ),
    }
}

fn check_version_skew(facts: &WorkloadFacts) -> CheckResult {
    if !matches!(facts.init, InitFacts::Usable { .. }) {
        return CheckResult::Passed(String::new());
    }
    let Some(line) = control_plane_line(facts) else {
        return CheckResult::Passed("the init Secret does not contain the version of the control plane".to_owned());
    };
    let WantedAgent { support, joins, .. } = &facts.wanted;
    if joins.get(&line).is_some_and(|agents| agents.contains(&support.line)) {
        return CheckResult::Passed(format!("agent {}, control plane {line}", support.line));
    }
    CheckResult::new_failure(
        format!(
            "an agent of {} cannot join a control plane of {line}: at most one line older or newer is supported",
            support.line
        ),
        Remedy::new("install an agent version that fits the cluster and the control plane (")
            .flag(Flag::Version(line.to_string()))
            .text(" if it supports this cluster's Kubernetes), or change the version of the control plane first"),
    )
}

fn existing_agent(facts: &WorkloadFacts) -> CheckResult {
    if let Some(error) = facts.unread.get("agents") {
        return CheckResult::new_warning(
            format!("the search for other agents failed: {error}"),
            "allow `list` on deployments",
        );
    }
    let wanted = &facts.wanted;
    let others = facts.agents.iter().filter(|a| a.name != wanted.name || a.namespace != wanted.namespace);
    // One of another fleet is no obstacle, but in a namespace there is one.
    let (blocking, others): (Vec<&AgentFacts>, Vec<&AgentFacts>) =
        others.partition(|agent| agent.namespace == wanted.namespace || agent.is_of_same_fleet == Some(true));
    let unknown = others.iter().find(|agent| agent.is_of_same_fleet.is_none());
    match (blocking.first(), unknown) {
        (None, Some(other)) => CheckResult::new_warning(
            format!(
                "this cluster already has an agent whose control plane is not known: `{}` in namespace {}",
                other.name, other.namespace
            ),
            "a cluster can be registered only once with each control plane; continue if that agent belongs to another \
             control plane",
        ),
        (None, None) if !others.is_empty() => {
            CheckResult::Passed("agents of other control planes are in other namespaces".to_owned())
        }
        (None, None) if facts.agents.is_empty() => CheckResult::Passed("none in this cluster".to_owned()),
        (None, None) => CheckResult::Passed(format!("{} is installed and will be brought up to date", wanted.name)),
        (Some(other), _) => CheckResult::new_failure(
            format!("this cluster already has an agent: `{}` in namespace {}", other.name, other.namespace),
            Remedy::new("a cluster can be registered only once; remove that agent first: ")
                .command(uninstall_command(&other.name, &other.namespace)),
        ),
    }
}

fn registered_elsewhere(facts: &WorkloadFacts) -> CheckResult {
    match facts.init() {
        Some(init) if facts.registered_with.is_empty() || facts.is_registered_with(init) => {
            CheckResult::Passed("the one in the init Secret, or none yet".to_owned())
        }
        Some(init) => CheckResult::new_failure(
            format!("the existing agent is registered with a control plane other than the one at {}", init.server),
            Remedy::new("restore the init Secret of the agent's present control plane if it was replaced, then run ")
                .command(uninstall_command(&facts.wanted.name, &facts.wanted.namespace))
                .text("; if that control plane no longer exists, continue with ")
                .flag(Flag::SkipPreflight("registered-elsewhere")),
        ),
        None => CheckResult::Passed("unknown".to_owned()),
    }
}

fn cluster_name(facts: &WorkloadFacts) -> CheckResult {
    let name = &facts.wanted.name;
    let Some(members) = &facts.members else {
        return CheckResult::Passed("the control plane checks the name when the agent registers".to_owned());
    };
    if let Some(holder) = members.iter().find(|member| &member.name == name) {
        if holder.id.is_empty() || holder.id == facts.cluster_id {
            return CheckResult::Passed(format!("{name} is the name of this cluster"));
        }
        return CheckResult::new_failure(
            format!("another cluster is already registered as {name}"),
            Remedy::new("choose another name, or remove that cluster if it no longer exists: ")
                .command(Command::at_place(control_plane_place(facts), Action::DeleteCluster(name.clone()))),
        );
    }
    match members.iter().find(|member| !member.id.is_empty() && member.id == facts.cluster_id) {
        Some(other) => {
            let agent = facts.agents.iter().find(|agent| agent.name == other.name);
            let namespace = agent.map_or(&facts.wanted.namespace, |agent| &agent.namespace);
            CheckResult::new_failure(
                format!("this cluster is already registered, as {}", other.name),
                Remedy::new("use that name, or remove that registration first: ")
                    .command(uninstall_command(&other.name, namespace)),
            )
        }
        None => CheckResult::Passed(format!("{name} is free")),
    }
}

#[cfg(test)]
pub(super) mod tests;
