//! The detail view of workload clusters: per cluster one framed block of facts, nodes and taints.
//!
//! The order of the lines and the least widths of the columns are those that the service's users know; what is longer
//! widens the frame.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::api::Cluster;
use crate::api::crd::cluster::conditions;
use crate::api::util::text::visible_cell;
use crate::cli::output::table::{pad_cell, text_width};

const TITLES: [&str; 5] = ["CLUSTER NAME", "K8S VERSION", "CLOUD PROVIDER", "REGION", "STATUS"];
const WIDTHS: [usize; 5] = [30, 12, 15, 14, 14];
const NODE_WIDTHS: [usize; 4] = [53, 12, 12, 10];
const SEPARATOR: &str = " | ";
/// The most rows of nodes and lines of taints of one block. Kubernetes supports 5,000 nodes; what an agent reports beyond
/// that is counted.
const ROWS: usize = 5_000;

/// The resources that count as GPUs.
fn is_gpu(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
        || resource.starts_with("gpu.intel.com/")
        || resource.starts_with("nvidia.com/mig-")
}

/// The reason of the condition Ready, which is the status of a cluster.
pub(super) fn cluster_state(cluster: &Cluster) -> &str {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == conditions::READY);
    ready.map_or("Unknown", |condition| condition.reason.as_str())
}

/// Name, CPU, memory and GPUs of what is available on a node.
fn node_row(node: &str, resources: &BTreeMap<String, String>) -> [String; 4] {
    let [cpu, memory] = ["cpu", "memory"].map(|name| resources.get(name).cloned().unwrap_or_default());
    let gpus = resources.iter().filter(|(name, _)| is_gpu(name));
    let gpus = gpus.filter_map(|(_, count)| count.parse::<i64>().ok()).fold(0, i64::saturating_add);
    [visible_cell(node), visible_cell(&cpu), visible_cell(&memory), gpus.to_string().into()].map(Cow::into_owned)
}

/// A row a node; for a large cluster whose nodes could not be read, one row with the sums.
fn node_rows(cluster: &Cluster) -> Vec<[String; 4]> {
    let Some(status) = &cluster.status else { return Vec::new() };
    if let Some(available) = &status.available_resources {
        return available.iter().take(ROWS).map(|(node, resources)| node_row(node, resources)).collect();
    }
    let Some(observed) = &status.observed else { return Vec::new() };
    let Some(totals) = &observed.totals else { return Vec::new() };
    let totals = totals.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (name.clone(), text)
    });
    vec![node_row(&format!("all {} nodes together", observed.node_count.unwrap_or_default()), &totals.collect())]
}

/// Returns the line that counts the rows beyond [`ROWS`]; none where there are none.
fn overflow_line(count: usize) -> Option<String> {
    let beyond = count.saturating_sub(ROWS);
    (beyond > 0).then(|| format!("and {beyond} more (`-o json` gives all)"))
}

/// Returns the number of nodes that a cluster reports by name.
fn node_count(cluster: &Cluster) -> usize {
    let available = cluster.status.as_ref().and_then(|status| status.available_resources.as_ref());
    available.map_or(0, BTreeMap::len)
}

/// Each tainted node, then its taints.
fn taint_lines(cluster: &Cluster) -> Vec<String> {
    let taints = cluster.status.as_ref().and_then(|status| status.node_taints.as_ref());
    let tainted: Vec<_> = taints.into_iter().flatten().filter(|(_, list)| !list.is_empty()).collect();
    let mut lines = Vec::new();
    for (node, list) in &tainted {
        if lines.len() >= ROWS {
            break;
        }
        lines.push(visible_cell(node).into_owned());
        let entries = list.iter().take(ROWS - lines.len()).map(|taint| {
            let [key, value, effect] = [&taint.key, &taint.value, &taint.effect].map(|text| visible_cell(text));
            format!("    - {key}:{value}:{effect}")
        });
        let mut entries: Vec<String> = entries.collect();
        entries.sort();
        lines.extend(entries);
    }
    lines.extend(overflow_line(tainted.iter().map(|(_, list)| 1 + list.len()).sum()));
    lines
}

/// Widths that hold all rows, each at least as wide as `least`.
fn column_widths<const N: usize>(least: [usize; N], rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|i| rows.iter().map(|row| text_width(&row[i])).fold(least[i], usize::max))
}

fn total_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + SEPARATOR.len() * (widths.len() - 1)
}

/// A block that is being written, all lines of one width.
struct Frame {
    width: usize,
    text: String,
}

impl Frame {
    fn push_line(&mut self, content: &str) {
        // By hand: the width of a format string ends at 65,535, and beyond it panics.
        let missing = self.width.saturating_sub(text_width(content));
        self.text.extend(["  | ", content, &" ".repeat(missing), " |\n"]);
    }

    fn push_rule(&mut self) {
        self.text.extend(["  |", &"-".repeat(self.width + 2), "|\n"]);
    }

    fn push_row<const N: usize>(&mut self, widths: &[usize; N], cells: &[String; N]) {
        let cells = cells.iter().zip(widths).map(|(cell, width)| pad_cell(cell, *width));
        let line = cells.collect::<Vec<_>>().join(SEPARATOR);
        self.push_line(&line);
    }
}

/// The block of one cluster.
pub(super) fn format_cluster_block(cluster: &Cluster) -> String {
    let spec = &cluster.spec;
    let facts = [&cluster.name_any(), &spec.kubernetesversion, &spec.provider, &spec.region, cluster_state(cluster)];
    let facts = facts.map(|fact| visible_cell(fact).into_owned());
    let titles = TITLES.map(str::to_owned);
    let nodes = node_rows(cluster);
    let taints = taint_lines(cluster);

    let mut columns = column_widths(WIDTHS, &[titles.clone(), facts.clone()]);
    let mut node_columns = column_widths(NODE_WIDTHS, &nodes);
    let beyond = overflow_line(node_count(cluster));
    let line_width = taints.iter().chain(&beyond).map(|line| text_width(line)).max().unwrap_or_default();
    let width = total_width(&columns).max(total_width(&node_columns)).max(line_width);
    // The names take up what is left over, so that every line ends at the frame.
    columns[0] += width - total_width(&columns);
    node_columns[0] += width - total_width(&node_columns);

    let mut frame = Frame { width, text: String::new() };
    frame.push_rule();
    frame.push_row(&columns, &titles);
    frame.push_rule();
    frame.push_row(&columns, &facts);
    frame.push_rule();
    frame.push_line(&format!("{}NODES", " ".repeat((width - "NODES".len()) / 2)));
    frame.push_rule();
    frame.push_row(&node_columns, &["NAME", "AVAILABLE", "AVAILABLE", "AVAILABLE"].map(str::to_owned));
    frame.push_row(&node_columns, &["", "CPU", "MEMORY", "GPU"].map(str::to_owned));
    frame.push_line("");
    for node in &nodes {
        frame.push_row(&node_columns, node);
    }
    if let Some(beyond) = &beyond {
        frame.push_line(beyond);
    }
    frame.push_line("");
    frame.push_line("NODES' TAINTS");
    frame.push_line("");
    for line in &taints {
        frame.push_line(line);
    }
    frame.push_rule();
    frame.text + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::crd::cluster::Taint;

    fn cluster(name: &str, status: Value) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"name": name, "kubernetesversion": "1.29", "provider": "aws", "region": "us-west-2"},
            "status": status
        }))
        .unwrap()
    }

    #[track_caller]
    fn framed(cluster: &Cluster) -> String {
        let shown = format_cluster_block(cluster);
        let widths: BTreeSet<usize> =
            shown.lines().filter(|line| !line.is_empty()).map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 1, "{shown}");
        assert!(shown.lines().all(|line| line.is_empty() || line.starts_with("  |") && line.ends_with('|')), "{shown}");
        shown
    }

    #[test]
    fn a_block_shows_nodes_gpus_of_all_kinds_and_taints() {
        let shown = framed(&cluster(
            "west",
            json!({
                "conditions": [{"type": "Idle", "status": "True", "reason": "x", "message": ""},
                               {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": ""}],
                "availableResources": {
                    "node-a": {"cpu": "399m", "memory": "2332068Ki", "nvidia.com/gpu": "2", "amd.com/gpu": "1"},
                    "node-b": {"cpu": "2", "memory": "1073741824"},
                },
                "nodeTaints": {"node-a": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                                          {"key": "bare", "effect": "NoExecute"}], "node-b": []}
            }),
        ));
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn nothing_long_names_and_unknown_states_keep_the_frame() {
        let never = framed(&cluster("new", json!({})));
        for title in ["Unknown", "NODES", "AVAILABLE", "NODES' TAINTS"] {
            assert!(never.contains(title), "{never}");
        }
        let long = "n".repeat(120);
        let wide = framed(&cluster(
            &"c".repeat(50),
            json!({"availableResources": {long.clone(): {"cpu": "1"}},
                   "nodeTaints": {"t": [{"key": "k".repeat(140), "value": "v", "effect": "NoSchedule"}]}}),
        ));
        assert!(wide.contains(&long));
    }

    #[test]
    fn what_an_agent_reports_breaks_neither_the_terminal_nor_the_frame() {
        let bad = "a\u{1b}[31m\nb\u{7f}";
        let mut cluster = cluster(
            "west",
            json!({
                "conditions": [{"type": "Ready", "status": "True", "reason": bad}],
                "availableResources": {bad: {"cpu": bad, "memory": bad}},
                "nodeTaints": {bad: [{"key": bad, "value": bad, "effect": bad}]}
            }),
        );
        for field in [&mut cluster.spec.kubernetesversion, &mut cluster.spec.provider, &mut cluster.spec.region] {
            bad.clone_into(field);
        }
        let shown = framed(&cluster);
        assert_eq!(shown.matches(r"a\u{1b}[31m\nb\u{7f}").count(), 11, "{shown}");
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown}");
    }

    fn long_node_names() -> impl Iterator<Item = String> {
        (0..40_000).map(|at| format!("{at:05}-{}", "n".repeat(300)))
    }

    fn taint_of_key_length(length: usize) -> Taint {
        Taint { key: "k".repeat(length), value: "v".to_owned(), effect: "NoSchedule".to_owned() }
    }

    #[test]
    fn tens_of_thousands_of_rows_are_cut_and_counted() {
        let cpu = BTreeMap::from([("cpu".to_owned(), "1".to_owned())]);
        // More than is read of one object: the nodes of many reports come together.
        let mut large = cluster("large", json!({}));
        let status = large.status.get_or_insert_default();
        status.available_resources = Some(long_node_names().map(|name| (name, cpu.clone())).collect());
        let taints = long_node_names().take(20).map(|name| (name, vec![taint_of_key_length(70_000)]));
        status.node_taints = Some(taints.collect());
        let shown = framed(&large);
        assert!(shown.contains("| and 35000 more (`-o json` gives all) "), "{}", &shown[..4000]);
        assert!(shown.lines().count() < ROWS + 60 && shown.len() < 4 << 20, "{}", shown.len());

        let mut tainted = cluster("tainted", json!({}));
        let taint = taint_of_key_length(1);
        let taints = [("a".to_owned(), vec![taint.clone(); 30_000]), ("b".to_owned(), vec![taint])];
        tainted.status.get_or_insert_default().node_taints = Some(taints.into());
        let shown = framed(&tainted);
        assert!(shown.contains("| and 25003 more (`-o json` gives all) "), "{}", shown.lines().count());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn names_of_any_length_keep_the_frame(
            lengths in vec(prop_oneof![0..600_usize, select(vec![0, 65_535, 65_536, 70_000])], 0..6),
            letter in select(vec!["n", "ü", "\u{1b}", "\n"]),
        ) {
            let names: Vec<String> = lengths.iter().map(|length| letter.repeat(*length)).collect();
            let status = json!({
                "conditions": [{"type": "Ready", "status": "True", "reason": names.first().cloned().unwrap_or_default()}],
                "availableResources": names.iter().map(|name| (name.clone(), json!({"cpu": name, "memory": name}))).collect::<BTreeMap<_, _>>(),
                "nodeTaints": names.iter().map(|name| (name.clone(), json!([{"key": name, "value": name, "effect": name}]))).collect::<BTreeMap<_, _>>(),
            });
            let name = names.last().cloned().unwrap_or_default();
            let cluster: Cluster = serde_json::from_value(json!({
                "apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {"name": name, "kubernetesversion": name, "provider": name, "region": name},
                "status": status,
            })).unwrap();
            let shown = framed(&cluster);
            prop_assert!(shown.lines().all(|line| line.chars().count() < 2_000));
        }
    }

    #[test]
    fn a_cluster_too_large_for_rows_shows_its_sums() {
        let status =
            json!({"observed": {"nodeCount": 250, "totals": {"cpu": "1000", "memory": "1Ti", "nvidia.com/gpu": "8"}}});
        let shown = framed(&cluster("large", status));
        let line = shown.lines().find(|line| line.contains("all 250 nodes together")).unwrap();
        assert!(line.contains("1000") && line.contains("1Ti") && line.contains("| 8 "), "{shown}");
    }
}
