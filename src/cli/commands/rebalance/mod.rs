//! `rebalance`: moves groups to clusters that fit them better. It decides as the scheduler does, shows what would move and
//! why, and then annotates the groups that it has shown. It also allows removals that the scheduler holds back.

mod mass_removal;

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgGroup, Args};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::api::ScheduleGroup;
use crate::api::labels::ANNOTATION_REBALANCE;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::commands::why::fleet::{self, Known};
use crate::cli::commands::why::followers::Followers;
use crate::cli::connect::{control_plane_client, request_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, table_row};
use crate::cli::output::terminal::Ui;
use crate::placement::decide::{self, Decision, Group, Mode, Target};
use crate::placement::explain;
use crate::placement::facts::Facts;
use crate::placement::fleet::Fleet;
use crate::placement::follow::is_follower;
use crate::placement::live;
use crate::placement::matching::{Match, Policy};
use crate::placement::names::GroupKey;
use crate::placement::proposal::list_excluded_clusters;

/// Move groups to clusters that fit them better
#[derive(Debug, Args)]
#[command(after_help = "\
The scheduler does not move a placed group only because another cluster has more room. This command repeats the decision
with the scheduler's rules. A group moves if the order of its policy prefers another cluster, or if the free share of
the scarcest resource would be larger in another cluster, by at least 10 percentage points. Divided groups are divided
again. The command lists these groups with the reasons and annotates them. The scheduler then moves them within its
limits, each without an interruption.

Examples:
  fleetctl rebalance --all --dry-run --context demo
  fleetctl rebalance shop-1a2b3c4d --context demo
  fleetctl rebalance --policy shop --context demo

If an edit of a policy or of a cluster would remove more than a tenth of all copies, the scheduler removes none, and
`fleetctl status` names the cause. This command allows the removals:
  fleetctl rebalance --continue policy/shop:7 --context demo")]
#[command(group = ArgGroup::new("which").args(["groups", "policy", "all", "cause"]).required(true))]
pub(crate) struct RebalanceArgs {
    /// Names of schedule groups
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,

    /// All groups of this policy
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// All groups of all policies
    #[arg(long)]
    all: bool,

    /// Allow the removals that the scheduler holds back for this cause
    #[arg(long = "continue", value_name = "CAUSE")]
    cause: Option<String>,

    /// Only list the copies that would move or be removed
    #[arg(long)]
    dry_run: bool,

    /// Allow the removals without a prompt
    #[arg(long, requires = "cause")]
    yes: bool,
}

/// A group that would move.
struct MovingGroup {
    name: String,
    from: String,
    to: String,
    why: String,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: &RebalanceArgs) -> Result<Exit, CliError> {
    let client = control_plane_client(global).await?;
    if let Some(cause) = &args.cause {
        let asked = mass_removal::Asked { is_dry_run: args.dry_run, is_confirmed: args.yes };
        return mass_removal::continue_removals(ui, global, client, (cause, asked)).await;
    }
    let Some(said) = fleet::read_scheduler_facts(&client).await? else { return Err(not_readable()) };
    let Some(known) = Known::read_known_state(&client, said).await? else { return Err(not_readable()) };
    let chosen = choose_groups(&known, args, global)?;
    let moving = find_moving_groups(&client, &known, &chosen).await?;
    if moving.is_empty() {
        let text = format!("None of {} has a better place.\n", count_groups(chosen.len()));
        ui.write_stdout(&text)?;
        return Ok(Exit::Ok);
    }
    let mut text = format_moving_groups(&moving);
    let rest = chosen.len() - moving.len();
    if rest > 0 {
        text += &format!("{} {} no better place.\n", count_groups(rest), if rest == 1 { "has" } else { "have" });
    }
    ui.write_stdout(&text)?;
    if args.dry_run {
        return Ok(Exit::Ok);
    }
    let groups: Api<ScheduleGroup> = Api::all(client);
    // A value that was never there.
    let value = k8s_openapi::jiff::Timestamp::now().to_string();
    let change = json!({ "metadata": { "annotations": { ANNOTATION_REBALANCE: value } } });
    for group in &moving {
        let written = groups.patch(&group.name, &PatchParams::default(), &Patch::Merge(&change)).await;
        written.map_err(|error| request_failed(&format!("cannot annotate ScheduleGroup {}", group.name), &error))?;
    }
    let follow = format!("fleetctl get schedulegroups -o wide{}", global.tail_flags());
    ui.write_stdout(&format!("The scheduler moves {} now: `{follow}`\n", count_groups(moving.len())))?;
    Ok(Exit::Ok)
}

fn not_readable() -> CliError {
    CliError::new(
        Exit::Failed,
        "RequestFailed",
        "cannot repeat the decisions: this user may not read copies and inventories",
    )
    .hint("bind the ClusterRoles `view` and `fleet:reader` to this user, for the whole control plane")
}

fn count_groups(count: usize) -> String {
    if count == 1 { "1 group".to_owned() } else { format!("{count} groups") }
}

/// Returns the groups that the command line names.
fn choose_groups(known: &Known, args: &RebalanceArgs, global: &Global) -> Result<BTreeSet<String>, CliError> {
    let unknown_group = args.groups.iter().find(|name| !known.groups.contains_key(*name));
    let unknown_policy = args.policy.as_ref().filter(|policy| known.policies.get(policy).is_none());
    let missing = match (unknown_group, unknown_policy) {
        (Some(group), _) => Some(("ScheduleGroup", group, "schedulegroups")),
        (None, Some(policy)) => Some(("SchedulePolicy", policy, "schedulepolicies")),
        (None, None) => None,
    };
    if let Some((what, name, kinds)) = missing {
        let headline = format!("there is no {what} {}", visible_cell(name));
        return Err(CliError::new(Exit::Failed, "NoSuchObject", headline)
            .hint(format!("list them: `kubectl get {kinds}{}`", global.tail_flags())));
    }
    let chosen = known.groups.iter().filter(|(name, group)| {
        args.all || args.groups.contains(name) || args.policy.as_ref() == Some(&group.spec.policy.name)
    });
    Ok(chosen.map(|(name, _)| name.clone()).collect())
}

/// Decides the groups as the scheduler would, the oldest first, and returns those that would move.
async fn find_moving_groups(
    client: &Client,
    known: &Known,
    chosen: &BTreeSet<String>,
) -> Result<Vec<MovingGroup>, CliError> {
    let mut members: BTreeMap<String, (&Policy, GroupKey, Vec<Facts>)> = BTreeMap::new();
    for facts in fleet::list_candidates(client, &known.kinds, None, None).await? {
        let Match::Policy { policy, .. } = known.policies.match_object(&facts, &known.labels_of_namespace(&facts.key))
        else {
            continue;
        };
        let key = GroupKey::new(&facts, policy);
        let name = known.group_name(&key, policy);
        if chosen.contains(&name) && !policy.spec.suspend && (policy.duplicates() || !is_follower(&facts.key)) {
            members.entry(name).or_insert_with(|| (policy, key, Vec::new())).2.push(facts);
        }
    }
    let mut followers: BTreeMap<String, Followers> = BTreeMap::new();
    for facts in members.values().flat_map(|(.., members)| members) {
        let namespace = facts.key.namespace().to_owned();
        if !namespace.is_empty() && !followers.contains_key(&namespace) {
            let planned = Followers::plan_namespace(client, known, &namespace).await?;
            followers.insert(namespace, planned);
        }
    }
    let mut fleet = known.build_fleet(client, &BTreeSet::new()).await?;
    let mut groups: Vec<(Group<'_>, &Policy, &GroupKey, &Vec<Facts>)> = Vec::new();
    for (name, (policy, key, members)) in &members {
        let namespaces: BTreeSet<&str> = members.iter().map(|facts| facts.key.namespace()).collect();
        let belonging = namespaces.into_iter().filter_map(|namespace| followers.get(namespace));
        let group = Group::with_followers(name, policy, members, belonging.flat_map(Followers::facts));
        groups.push((group, *policy, key, members));
    }
    groups.sort_by(|(a, ..), (b, ..)| decide::deciding_order(a).cmp(&decide::deciding_order(b)));
    let mut moving = Vec::new();
    for (group, policy, key, members) in &groups {
        let recorded = known.groups.get(&*group.name).and_then(|group| group.status.as_ref());
        if recorded.is_none_or(|status| status.record.running.is_some()) {
            continue;
        }
        let copies = members.iter().flat_map(|one| {
            known.schedules_of_object(&one.key).map(move |(cluster, schedule)| (cluster, schedule, one))
        });
        let mut current = live::current_placement(copies, recorded, policy, group.is_held());
        current.mode = Mode::Rebalance;
        current.is_settled = true;
        if let Some(status) = recorded {
            current.excluded =
                list_excluded_clusters(&status.record, Timestamp::now().as_second(), |name| known.clusters.get(name));
        }
        let of_namespace = members.first().and_then(|facts| followers.get(facts.key.namespace()));
        current.only = of_namespace.and_then(|followers| followers.only_of(&policy.name, key));
        let decision = decide::decide_group(policy, group, &fleet, &current);
        if !current.targets.is_empty() && is_placed_elsewhere(&decision, &current.targets) {
            moving.push(MovingGroup {
                name: group.name.to_string(),
                from: format_targets(&current.targets),
                to: format_targets(&decision.targets),
                why: explain_move(policy, group, &fleet, &decision),
            });
            fleet.reserve_decision(group, &decision, &current);
        }
    }
    Ok(moving)
}

/// Returns whether a decision puts a group elsewhere, or divides it in another way.
fn is_placed_elsewhere(decision: &Decision, current: &[Target]) -> bool {
    let [decided, current] = [&decision.targets[..], current].map(|targets| {
        let shares =
            targets.iter().map(|target| (&target.cluster, format!("{:?} {:?}", target.replicas, target.whole)));
        shares.collect::<BTreeMap<_, _>>()
    });
    decision.scheduled && decided != current
}

fn format_targets(targets: &[Target]) -> String {
    let mut names: Vec<&str> = targets.iter().map(|target| target.cluster.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

/// Returns why a move is worth it.
fn explain_move(policy: &Policy, group: &Group<'_>, fleet: &Fleet, decision: &Decision) -> String {
    let Some(gain) = decision.gain else { return explain::format_decision(policy, group, fleet, decision) };
    if gain.better_rank {
        return "preferred by orderedClusterSelector".to_owned();
    }
    let resource = decision.chosen.as_ref().and_then(|chosen| chosen.scarcest.as_ref());
    let resource = resource.map_or("the scarcest resource", |(resource, _)| resource);
    let [there, here] =
        [gain.there, gain.here].map(|left| left.map_or(0, crate::placement::fraction::Fraction::as_percent));
    format!("{there} % of {resource} would be free there; only {here} % of the scarcest resource is free here")
}

fn format_moving_groups(moving: &[MovingGroup]) -> String {
    let mut rows = vec![table_row(["GROUP", "FROM", "TO", "WHY"])];
    rows.extend(moving.iter().map(|one| table_row([&one.name, &one.from, &one.to, &one.why])));
    Columns::from_rows(&rows).format_lines(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_a_table() {
        let group = MovingGroup {
            name: "shop-1".to_owned(),
            from: "east".to_owned(),
            to: "west".to_owned(),
            why: "preferred by orderedClusterSelector".to_owned(),
        };
        let lines = "GROUP    FROM   TO     WHY\nshop-1   east   west   preferred by orderedClusterSelector\n";
        assert_eq!(format_moving_groups(&[group]), lines);
    }
}
