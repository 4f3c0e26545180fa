//! `why`: where an object is placed and why there, or why nowhere, by the scheduler's own rules.

pub(in crate::cli) mod fleet;
pub(in crate::cli::commands) mod followers;
pub(in crate::cli) mod kind;
mod namespace;
mod own_words;
mod report;

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::api::ScheduleGroupStatus;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::{MOVING, SCHEDULED};
use crate::chart::output;
use crate::cli::args::global::Global;
use crate::cli::connect::connect_to_control_plane;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::placement::copy::{self, CopyError};
use crate::placement::copy_state;
use crate::placement::decide::{self, Group};
use crate::placement::dependencies::{self, Missing};
use crate::placement::explain;
use crate::placement::facts::{Facts, ObjectKey};
use crate::placement::follow::is_follower;
use crate::placement::live;
use crate::placement::matching::{Clause, Direct, Match, Policy};
use crate::placement::names::GroupKey;
use crate::placement::proposal::list_excluded_clusters;
use fleet::Known;
use followers::Followers;
use report::{Copy, Now, Report, Row};

/// Explain where an object is placed and why, or why it is not
#[derive(Debug, Args)]
#[command(after_help = "\
The command repeats the decision with the scheduler's rules and state, and changes nothing. The exit code is 0 if the
object is placed and every copy is applied, 7 if not, 1 if the object does not exist.

Examples:
  fleetctl why deployment/web --namespace shop --context demo
  fleetctl why pvc/data -n shop --context demo -o json")]
pub(crate) struct WhyArgs {
    /// The object, such as deployment/web
    #[arg(value_name = "KIND/NAME")]
    object: String,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<WhyFormat>,
}

/// Formats for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhyFormat {
    Json,
    Yaml,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &WhyArgs) -> Result<Exit, CliError> {
    kind::split_kind_and_name(&args.object).map_err(|why| kind::no_such_kind_error(&args.object, why))?;
    let there = connect_to_control_plane(global).await?;
    let said = fleet::read_scheduler_facts(&there.client).await?;
    let kinds = said.as_ref().map(|said| said.kinds.clone()).unwrap_or_default();
    let found = kind::parse_kind_and_name(&kinds, &args.object);
    let (kind, name) = found.map_err(|why| kind::no_such_kind_error(&args.object, why))?;
    // The default is where the service's own components are, which is not where workloads are.
    let namespace = if global.namespace_given { global.namespace.to_string() } else { there.namespace.clone() };
    let key = ObjectKey::new(kind.group, kind.kind, if kind.namespaced { &namespace } else { "" }, name);
    let Some((facts, object)) = fleet::find_object(&there.client, &kinds, &key).await? else {
        return Err(no_such_object(&key));
    };
    let known = match said {
        Some(said) => Known::read_known_state(&there.client, said).await?,
        None => None,
    };
    let report = match known {
        Some(known) => explain_placement(&there.client, &known, &facts, &object).await?,
        None => own_words::read_own_words(&there.client, &key, &object).await,
    };
    let text = match args.output {
        Some(WhyFormat::Json) => output::format_json(&report),
        Some(WhyFormat::Yaml) => output::format_yaml(&report),
        None => report.format_why_report(),
    };
    ui.write_stdout(&text)?;
    Ok(if report.placed && report.applied { Exit::Ok } else { Exit::Unhealthy })
}

/// The error of an object that the control plane's API does not have.
pub(in crate::cli) fn no_such_object(key: &ObjectKey) -> CliError {
    CliError::new(Exit::Failed, "NoSuchObject", format!("there is no {}", key.format_title()))
        .hint("name its namespace with `--namespace`, and the control plane with `--context`")
}

async fn explain_placement(client: &Client, known: &Known, facts: &Facts, object: &Value) -> Result<Report, CliError> {
    let labels = known.labels_of_namespace(&facts.key);
    let mut report = Report::from_facts(facts);
    report.copies = describe_copies(known, &facts.key);
    let missing = report.copies.iter().map(|copy| copy.cluster.as_str()).flat_map(|cluster| {
        dependencies::find_missing_dependencies([facts], cluster, |key| {
            known.schedules_of_object(key).any(|(at, _)| at == cluster)
        })
    });
    let missing: Vec<Missing> = missing.collect();
    if !missing.is_empty() {
        report.notes.push(explain::format_missing_dependencies(&missing));
    }
    if known.policies.is_annotation_denied(facts) {
        report
            .notes
            .push("its annotation names clusters, but in this control plane only policies place objects".to_owned());
    }
    report.applied = !report.copies.is_empty() && report.copies.iter().all(|copy| copy.applied);
    let found = known.policies.match_object(facts, &labels);
    if facts.key.is_of_kind("", "Namespace")
        && let Match::Policy { .. } | Match::Nothing { .. } = found
    {
        let followers = Followers::plan_namespace(client, known, facts.key.name()).await?;
        namespace::report_namespace(client, known, &followers, &mut report).await?;
        match found {
            Match::Policy { policy, losers } => report.policy = Some(explain::format_matched_policy(policy, &losers)),
            Match::Nothing { failing } if !report.placed => report_unmatched(&failing, &mut report),
            _ => {}
        }
        return Ok(report);
    }
    let followers = match facts.key.namespace() {
        "" => None,
        namespace => Some(Followers::plan_namespace(client, known, namespace).await?),
    };
    if let Some(followers) = &followers {
        if followers.is_following(&facts.key, &found) {
            followers.report_follower(&facts.key, &found, &mut report);
            return Ok(report);
        }
        report.notes.extend(followers.format_followers(&facts.key));
    }
    match found {
        Match::Never(never) => report.why.push(format!("it is never placed, because {}", never.format_never_reason())),
        Match::Nowhere { .. } => {
            report
                .why
                .push("its annotation fleet-scheduler.io/cluster is empty: it is kept in the control plane".to_owned());
        }
        Match::Annotation { direct, .. } => {
            by_annotation(client, known, facts, &direct, &mut report).await?;
            let made = copy::leave_fields(facts, &[], false).and_then(|_| copy::make_copy(object, None, &[]));
            report.notes.extend(made.err().map(|error| format_copy_error(&error)));
        }
        Match::Nothing { failing } if report.copies.is_empty() => report_unmatched(&failing, &mut report),
        Match::Nothing { failing } => {
            report.placed = true;
            report.why.push("no policy matches any more: its copies are kept and still follow it".to_owned());
            report.why.extend(explain::format_unmatched_policies(&failing));
        }
        Match::Policy { policy, losers } => {
            report.policy = Some(explain::format_matched_policy(policy, &losers));
            by_policy(client, known, (facts, object), (policy, followers.as_ref()), &mut report).await?;
        }
    }
    Ok(report)
}

/// Adds to the report why each policy does not match.
fn report_unmatched(failing: &[(&Policy, Clause)], report: &mut Report) {
    report.why.extend(explain::format_unmatched_policies(failing));
    if failing.is_empty() {
        report.why.push("there is no SchedulePolicy".to_owned());
    }
}

/// Adds to the report the decision of an annotation of the object's own.
async fn by_annotation(
    client: &Client,
    known: &Known,
    facts: &Facts,
    direct: &Direct,
    report: &mut Report,
) -> Result<(), CliError> {
    let fleet = known.build_fleet(client, &BTreeSet::from([facts.key.clone()])).await?;
    let shares = known.schedules_of_object(&facts.key).filter_map(|(cluster, schedule)| {
        let share = schedule.spec.share.as_ref()?;
        Some((cluster.to_owned(), share.completions.or(share.replicas)?))
    });
    let decision = decide::decide_direct(facts, direct, &fleet, &shares.collect());
    report.placed = !decision.targets.is_empty();
    report.why.push("its own annotation names the clusters".to_owned());
    report.now = Some(Now {
        decision: format!(
            "{} of {} named clusters",
            decision.targets.len(),
            decision.targets.len() + decision.blocked.len()
        ),
        clusters: decision
            .blocked
            .iter()
            .map(|(name, why)| Row { clusters: vec![name.clone()], reason: why.to_string(), detail: String::new() })
            .collect(),
    });
    Ok(())
}

/// Adds to the report the decision of a policy.
async fn by_policy(
    client: &Client,
    known: &Known,
    (facts, object): (&Facts, &Value),
    (policy, followers): (&Policy, Option<&Followers>),
    report: &mut Report,
) -> Result<(), CliError> {
    let group_key = GroupKey::new(facts, policy);
    let name = known.group_name(&group_key, policy);
    let mut members = vec![facts.clone()];
    if !group_key.is_of_one_object() {
        let label = policy.spec.group_by.as_ref().and_then(|by| by.find_label(&facts.labels));
        let label = label.map(|(key, value)| format!("{key}={value}"));
        // Without a label the group is all of the namespace.
        let namespace = label.is_none().then(|| facts.key.namespace());
        members = fleet::list_candidates(client, &known.kinds, namespace, label.as_deref()).await?;
        members.retain(|one| {
            let found = known.policies.match_object(one, &known.labels_of_namespace(&one.key));
            matches!(found, Match::Policy { policy: other, .. } if other.name == policy.name)
                && GroupKey::new(one, policy) == group_key
                && (policy.duplicates() || is_follower(&one.key) == is_follower(&facts.key))
        });
    }
    let own: BTreeSet<ObjectKey> = members.iter().map(|one| one.key.clone()).collect();
    let fleet = known.build_fleet(client, &own).await?;
    let belonging: Vec<&Facts> = followers.into_iter().flat_map(Followers::facts).collect();
    let group = Group::with_followers(&name, policy, &members, belonging.iter().copied());
    let recorded = known.groups.get(&name).and_then(|group| group.status.as_ref());
    let copies = members
        .iter()
        .flat_map(|one| known.schedules_of_object(&one.key).map(move |(cluster, schedule)| (cluster, schedule, one)));
    let mut current = live::current_placement(copies, recorded, policy, group.is_held());
    current.is_settled = recorded.is_some();
    if let Some(status) = recorded {
        current.excluded =
            list_excluded_clusters(&status.record, Timestamp::now().as_second(), |name| known.clusters.get(name));
    }
    current.only = followers.and_then(|followers| followers.only_of(&policy.name, &group_key));
    let decision = decide::decide_group(policy, &group, &fleet, &current);
    report.group = Some(format!("{name}, {}", explain::format_group_demand(&group, &fleet)));
    report.notes.extend(explain::format_ignored_demands(&group));
    report.placed = decision.scheduled && decision.withheld == 0 && !decision.suspended;
    report.moving = recorded.and_then(describe_move);
    report.recorded = recorded.and_then(recorded_decision);
    // What cannot be copied has no Schedule that could say so.
    let is_scaled = is_scaled(facts, members.iter().chain(belonging));
    let mut failing = BTreeSet::new();
    for target in decision.targets.iter().filter(|target| live::has_copy_in_target(target, facts)) {
        let edits = copy::find_overrides(policy, target.domain.as_ref().unwrap_or(&target.cluster), facts);
        let made = copy::leave_fields(facts, &edits, is_scaled).and_then(|_| copy::make_copy(object, None, &edits));
        if let Err(error) = made {
            report.notes.push(format!("on {}, {}", target.cluster, format_copy_error(&error)));
            failing.insert(target.cluster.as_str());
        }
    }
    let rows = recorded.iter().flat_map(|status| &status.clusters);
    let silent = rows.filter(|row| row.state == "Target" && !row.message.is_empty());
    let silent = silent.filter(|row| report.copies.iter().all(|copy| copy.cluster != row.name));
    let silent = silent.filter(|row| !failing.contains(row.name.as_str()));
    let silent: Vec<String> = silent.map(|row| format!("on {}, {}", row.name, row.message)).collect();
    report.notes.extend(silent);
    let rows = explain::rejection_rows(policy, &fleet, &decision);
    report.now = Some(Now {
        decision: explain::format_decision(policy, &group, &fleet, &decision),
        clusters: rows
            .into_iter()
            .map(|row| Row { clusters: row.clusters, reason: row.reason, detail: row.detail })
            .collect(),
    });
    Ok(())
}

/// Returns whether an autoscaler scales an object.
fn is_scaled<'a>(facts: &Facts, mut scalers: impl Iterator<Item = &'a Facts>) -> bool {
    scalers.any(|one| {
        one.key.namespace() == facts.key.namespace()
            && one.scales.as_ref().is_some_and(|scales| scales.is_target(&facts.key))
    })
}

/// Returns why a copy cannot be made, as rows of groups say it.
fn format_copy_error(error: &CopyError) -> String {
    format!("{}: {error}", error.code())
}

/// Returns how far the move of a group is, and what it waits for.
fn describe_move(status: &ScheduleGroupStatus) -> Option<String> {
    let moving = condition::find_condition(&status.conditions, MOVING)?;
    Some(format!("{}: {}", moving.reason, moving.message))
}

/// Returns the decision that the scheduler last recorded of a group.
fn recorded_decision(status: &ScheduleGroupStatus) -> Option<report::Recorded> {
    let condition = condition::find_condition(&status.conditions, SCHEDULED)?;
    let time = status.decision.as_ref().and_then(|decision| decision.time.as_ref()).map(|time| time.0);
    Some(report::Recorded {
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        clusters: status.target_clusters.clone(),
        time,
    })
}

/// The copies of an object, with what each says.
fn describe_copies(known: &Known, key: &ObjectKey) -> Vec<Copy> {
    let copies = known.schedules_of_object(key).map(|(cluster, schedule)| {
        let state = copy_state::read_copy_state(schedule, cluster);
        let is_ready = known.clusters.get(cluster).is_some_and(live::is_ready);
        let parts = [state.problem, state.note];
        let message = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let is_silent = message.is_empty() && !state.applied;
        Copy {
            cluster: cluster.to_owned(),
            applied: state.applied,
            available: state.available,
            stale: !is_ready,
            message: if is_silent { "not applied yet".to_owned() } else { message },
        }
    });
    copies.collect()
}

/// Returns the report on a Deployment that no cluster takes, for its page.
#[cfg(test)]
pub(crate) fn example_report() -> String {
    use crate::placement::decide::Current;
    use crate::placement::fleet::{Cluster, Fleet};
    use crate::placement::room::Node;
    use serde_json::json;
    let mut fleet = Fleet::default();
    for (name, cpus) in [("east", &[4][..]), ("north", &[3, 5]), ("west", &[16])] {
        let nodes = cpus.iter().map(|cpu| {
            let amounts = [("cpu", cpu * 1000), ("memory", (64 << 30) * 1000), ("pods", 110_000)];
            Node { name: format!("n{cpu}"), capacity: amounts.into(), available: amounts.into(), ..Node::default() }
        });
        let room = fleet.build_capacity(nodes.collect(), Vec::new());
        fleet.set_cluster(Cluster::new(name, room));
    }
    if let Some(west) = fleet.get_mut("west") {
        west.taints = serde_json::from_value(json!([{ "key": "gpu", "effect": "NoSchedule" }])).expect("a taint");
    }
    let spec = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
    let policy = Policy::new("shop".to_owned(), None, serde_json::from_value(spec).expect("a spec")).expect("valid");
    let facts = Facts::from_manifest(&json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "replicas": 2, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": "4" } } }] } } } }))
    .expect("a Deployment");
    let members = [facts];
    let group = Group::new("shop-1a2b3c4d", &policy, &members);
    let decision = decide::decide_group(&policy, &group, &fleet, &Current::default());
    let mut report = Report::from_facts(&members[0]);
    report.policy = Some(explain::format_matched_policy(&policy, &[]));
    report.group = Some(format!("shop-1a2b3c4d, {}", explain::format_group_demand(&group, &fleet)));
    let rows = explain::rejection_rows(&policy, &fleet, &decision).into_iter();
    let rows = rows.map(|row| Row { clusters: row.clusters, reason: row.reason, detail: row.detail });
    report.now =
        Some(Now { decision: explain::format_decision(&policy, &group, &fleet, &decision), clusters: rows.collect() });
    report.format_why_report()
}
