//! `get schedulegroups`: what is placed together, in which cluster, and by which policy.

use clap::Args;
use kube::ResourceExt;
use kube::api::Api;

use super::{WideFormat, format_objects, selector_params};
use crate::api::ScheduleGroup;
use crate::api::crd::condition;
use crate::api::crd::group::conditions::{MOVING, SCHEDULED};
use crate::api::labels::LABEL_TARGET_CLUSTER;
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;
use crate::cli::connect::{control_plane_client, list_failed};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::table::{Columns, pad_cell, table_row, text_width};
use crate::cli::output::terminal::Ui;

pub(super) const EXAMPLES: &str = "Examples:
  fleetctl get schedulegroups --context demo
  fleetctl get schedulegroups --context demo -o wide
  fleetctl get schedulegroups --context demo -o json";

const TITLES: [&str; 3] = ["NAME", "FLEET WORKLOAD CLUSTER", "FLEET POLICY NAME"];
const WIDTHS: [usize; 3] = [22, 40, 20];

/// List schedule groups: the objects that are placed together, their clusters and their policy
#[derive(Debug, Args)]
pub(crate) struct GetGroupsArgs {
    /// Show only groups with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<WideFormat>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &GetGroupsArgs) -> Result<Exit, CliError> {
    let groups: Api<ScheduleGroup> = Api::all(control_plane_client(global).await?);
    let found = groups.list(&selector_params(args.selector.as_deref())).await;
    let found = found.map_err(|error| list_failed("schedulegroups", &error))?.items;
    let text = match (args.output, args.output.and_then(WideFormat::for_programs)) {
        (_, Some(format)) => format_objects(format, &found, "schedulegroup.policy.fleet-scheduler.io"),
        _ if found.is_empty() => "There are no schedule groups.\n".to_owned(),
        (Some(_), None) => format_wide_groups(&found),
        (None, None) => format_groups(&found),
    };
    ui.write_stdout(&text)?;
    Ok(Exit::Ok)
}

fn group_cells(group: &ScheduleGroup) -> [String; 3] {
    let cluster = group.labels().get(LABEL_TARGET_CLUSTER);
    let cluster = cluster.cloned().unwrap_or_else(|| "Not assigned yet.".to_owned());
    [&group.name_any(), &cluster, &group.spec.policy.name].map(|cell| visible_cell(cell).into_owned())
}

/// A row for each group, and below it one for each cluster that it looked at.
fn format_wide_groups(groups: &[ScheduleGroup]) -> String {
    let mut rows = vec![table_row(["NAME", "CLUSTER", "POLICY", "STATE", "OBJECTS", "APPLIED", "AVAILABLE", "REASON"])];
    for group in groups {
        let status = group.status.clone().unwrap_or_default();
        let scheduled = condition::find_condition(&status.conditions, SCHEDULED).map(|one| one.reason.clone());
        let [name, cluster, policy] = group_cells(group);
        rows.push(table_row([&name, &cluster, &policy, "", "", "", "", &scheduled.unwrap_or_default()]));
        if let Some(running) = &status.record.running {
            let to: Vec<&str> = running.to.keys().map(String::as_str).collect();
            let moving = condition::find_condition(&status.conditions, MOVING).map(|one| one.message.as_str());
            let phase = format!("{:?}", running.phase);
            rows.push(table_row(["", &to.join(","), "", &phase, "", "", "", moving.unwrap_or_default()]));
        }
        for one in &status.clusters {
            let why = [&one.reason, &one.detail, &one.message].map(String::as_str);
            let why = why.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
            let stale = if one.stale { format!("{} (stale)", one.state) } else { one.state.clone() };
            let [objects, applied, available] = [one.objects, one.applied, one.available]
                .map(|count| count.map(|count| count.to_string()).unwrap_or_default());
            rows.push(table_row(["", &one.name, "", &stale, &objects, &applied, &available, &why]));
        }
    }
    Columns::from_rows(&rows).format_lines(&rows)
}

/// A rule below the titles and at the end, a blank line between two groups.
fn format_groups(groups: &[ScheduleGroup]) -> String {
    let rows: Vec<[String; 3]> = groups.iter().map(group_cells).collect();
    let widths: [usize; 3] =
        std::array::from_fn(|i| rows.iter().map(|row| text_width(&row[i]) + 2).fold(WIDTHS[i], usize::max));
    let titles = format_group_line(&TITLES.map(str::to_owned), widths);
    let rule = format!(" {}\n", widths.map(|width| "-".repeat(width - 2)).join("  "));
    let body = rows.iter().map(|row| format_group_line(row, widths)).collect::<Vec<_>>().join("\n");
    format!("{titles}{rule}{body}{rule}")
}

fn format_group_line(cells: &[String; 3], widths: [usize; 3]) -> String {
    let mut line = String::from(" ");
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&pad_cell(cell, width));
    }
    line.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_of_policy(name: &str, labels: serde_json::Value, policy: &str) -> ScheduleGroup {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": name, "labels": labels}, "spec": {"policy": {"name": policy}},
        }))
        .unwrap()
    }

    #[test]
    fn a_group_without_a_cluster_says_so_and_long_names_keep_the_columns() {
        let placed = serde_json::json!({LABEL_TARGET_CLUSTER: "west"});
        let shown = format_groups(&[
            group_of_policy("spread-0011aabb", placed, "spread"),
            group_of_policy("a-policy-with-a-long-name-0011aabb", serde_json::json!({}), "spread"),
        ]);
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn the_wide_table_has_a_row_for_each_cluster() {
        let group: ScheduleGroup = serde_json::from_value(serde_json::json!({
            "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": "shop-0011aabb", "labels": {LABEL_TARGET_CLUSTER: "2_clusters"}},
            "spec": {"policy": {"name": "shop"}},
            "status": {"scheduled": true,
                "conditions": [{"type": "Scheduled", "status": "True", "reason": "Placed"},
                    {"type": "Moving", "status": "True", "reason": "WaitingForAvailable", "message": "from east to west"}],
                "move": {"phase": "Up", "from": {"east": 1}, "to": {"west": 1}, "uids": {}, "cause": "drain",
                    "since": 1, "deadline": 601, "consent": false},
                "clusters": [
                    {"name": "east", "state": "Target", "objects": 3, "applied": 3, "available": 3},
                    {"name": "west", "state": "Target", "objects": 3, "applied": 2, "available": 1, "stale": true,
                        "message": "Deployment shop/web: Refused: no"},
                    {"name": "small", "state": "Rejected", "reason": "Insufficient cpu",
                     "detail": "6 requested, 4 free"}]},
        }))
        .unwrap();
        insta::assert_snapshot!(format_wide_groups(&[group]));
    }

    fn group_of_length(length: usize) -> ScheduleGroup {
        let labels = serde_json::json!({LABEL_TARGET_CLUSTER: "\u{1b}".repeat(length)});
        group_of_policy(&"g".repeat(length), labels, &"p\n".repeat(length))
    }

    #[test]
    fn names_of_any_length_keep_the_columns() {
        let shown = format_groups(&[0, 65_535, 65_536, 70_000].map(group_of_length));
        assert_eq!(shown.lines().count(), 10, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 3 * 260), "{shown}");
        let many = format_groups(&vec![group_of_length(300); 20_000]);
        assert!(many.len() < 20_000 * 3 * 300, "{}", many.len());
    }
}
