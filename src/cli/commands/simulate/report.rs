//! The outcome of a simulation as tables for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::api::first_of::first_of;
use crate::api::util::text::visible_line;
use crate::cli::output::table::{Columns, table_row};
use crate::placement::explain::format_amount;
use crate::placement::proposal::cause_text;
use crate::placement::simulate::{ClusterOutcome, Placement, Simulation, TargetOutcome};

/// Most names in a cell.
const NAMED: usize = 5;
/// Most rows of a table that is not asked for as a whole.
const ROWS: usize = 50;
/// Resources that every table shows.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// Formats the outcome; `is_wide` shows also what does not change.
pub(super) fn format_simulation(outcome: &Simulation, is_wide: bool) -> String {
    let mut text = String::new();
    let most = if is_wide { usize::MAX } else { ROWS };
    let shown = outcome.placements.iter().filter(|one| is_wide || one.asked || is_changed(one));
    push_table(&mut text, "", ["OBJECTS", "POLICY", "NOW", "THEN", "WHY"], shown.map(placement_row), most);
    let without: Vec<&Placement> = outcome.placements.iter().filter(|one| !one.placed).collect();
    let without = without.into_iter().filter(|one| is_wide || one.asked || !one.before.is_empty());
    let rows = without.flat_map(|one| {
        let title = one.format_title();
        let rows = one
            .rejected
            .iter()
            .map(|row| table_row([&title, &first_of(row.clusters.clone(), NAMED, ", "), &row.reason, &row.detail]));
        rows.collect::<Vec<_>>()
    });
    push_table(&mut text, "Unplaced groups, by cluster:", ["OBJECTS", "CLUSTER", "REASON", "DETAIL"], rows, most);
    let unplaced = outcome.unplaced.iter().map(|one| table_row([&one.object, &one.why]));
    push_table(&mut text, "Unplaced objects:", ["OBJECT", "WHY"], unplaced, most);
    let moves = outcome.moves.iter().filter(|one| is_wide || !one.follows);
    let moves = moves.map(|one| {
        let cause = one.cause.map_or_else(|| "-".to_owned(), cause_text);
        table_row([&one.object, &format_names(&one.from), &format_names(&one.to), &cause])
    });
    push_table(&mut text, "Copies that change their clusters:", ["OBJECT", "LEAVE", "GET", "CAUSE"], moves, most);
    let clusters = outcome
        .clusters
        .iter()
        .filter(|one| is_wide || one.state == "Removed" || one.before != one.after || one.groups_before != one.groups);
    let titles = ["CLUSTER", "STATE", "NODES", "CPU FREE", "MEMORY FREE", "PODS FREE", "GROUPS"];
    push_table(&mut text, "Clusters, before and after:", titles, clusters.map(cluster_row), most);
    for note in &outcome.notes {
        let _ = writeln!(text, "note: {}", visible_line(note));
    }
    let _ = writeln!(text, "{}", format_simulation_summary(outcome));
    text
}

/// Returns whether a group leaves or gets a cluster.
fn is_changed(placement: &Placement) -> bool {
    let targets: BTreeSet<&String> = placement.targets.iter().map(|target| &target.cluster).collect();
    !placement.before.is_empty() && placement.before.iter().collect::<BTreeSet<_>>() != targets
}

fn push_table<const N: usize>(
    text: &mut String,
    heading: &str,
    titles: [&str; N],
    rows: impl Iterator<Item = Vec<String>>,
    most: usize,
) {
    let all: Vec<Vec<String>> = rows.collect();
    if all.is_empty() {
        return;
    }
    let shown = std::iter::once(table_row(titles)).chain(all.iter().take(most).cloned());
    let shown: Vec<Vec<String>> = shown.collect();
    if !heading.is_empty() {
        let _ = writeln!(text, "{heading}");
    }
    text.push_str(&Columns::from_rows(&shown).format_lines(&shown));
    if all.len() > most {
        let _ = writeln!(text, "and {} more: `-o wide` shows all", all.len() - most);
    }
    text.push('\n');
}

fn format_names(names: &BTreeSet<String>) -> String {
    if names.is_empty() { "-".to_owned() } else { first_of(names.iter().cloned().collect::<Vec<_>>(), NAMED, ", ") }
}

fn format_target(target: &TargetOutcome) -> String {
    let shares: Vec<String> = target.replicas.values().map(ToString::to_string).collect();
    if shares.is_empty() { target.cluster.clone() } else { format!("{}: {}", target.cluster, shares.join(" + ")) }
}

fn placement_row(placement: &Placement) -> Vec<String> {
    let policy = placement.policy.as_deref().unwrap_or("-");
    let targets: Vec<String> = placement.targets.iter().map(format_target).collect();
    let then = if targets.is_empty() { "-".to_owned() } else { first_of(targets, NAMED, ", ") };
    table_row([&placement.format_title(), policy, &format_names(&placement.before), &then, &placement.message])
}

fn cluster_row(cluster: &ClusterOutcome) -> Vec<String> {
    let [cpu, memory, pods] = RESOURCES.map(|name| {
        let [before, after] = [&cluster.before, &cluster.after].map(|amounts| {
            let found = amounts.iter().find(|one| one.resource == name);
            found.map_or_else(|| "-".to_owned(), |one| format_amount(name, one.free))
        });
        if before == after { after } else { format!("{before} -> {after}") }
    });
    let groups = match (cluster.groups_before.len(), cluster.groups.len()) {
        (before, after) if before == after => after.to_string(),
        (before, after) => format!("{before} -> {after}"),
    };
    table_row([&cluster.name, &cluster.state, &cluster.nodes.to_string(), &cpu, &memory, &pods, &groups])
}

fn format_simulation_summary(outcome: &Simulation) -> String {
    let moved = outcome.moves.iter().filter(|one| !one.follows).count();
    let asked = outcome.placements.iter().filter(|one| one.asked);
    let without = asked.clone().filter(|one| !one.placed).count();
    let lost = outcome.placements.iter().filter(|one| !one.asked && !one.placed && !one.before.is_empty()).count();
    let bare = outcome.unplaced.iter().filter(|one| one.lacks_place).count();
    let mut text = format!("{} of {} groups placed", asked.clone().count() - without, asked.count());
    for (count, words) in [
        (bare, "objects that no policy matches"),
        (lost, "groups that lose their place"),
        (moved, "objects that change their clusters"),
    ] {
        if count > 0 {
            let _ = write!(text, "; {words}: {count}");
        }
    }
    text + "."
}
