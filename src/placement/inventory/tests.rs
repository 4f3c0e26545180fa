use serde_json::{Value, json};

use super::*;
use crate::api::ClusterReport;
use crate::api::lenient::Lenient;
use crate::placement::fleet::Fleet;
use crate::placement::live;

/// A Cluster with a status, as a list brings it.
fn cluster(mut status: Value) -> Cluster {
    status["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "ClusterReady" }]);
    let cluster = json!({ "metadata": { "name": "evil" }, "spec": { "name": "evil" }, "status": status });
    serde_json::from_str::<Lenient<Cluster>>(&cluster.to_string()).unwrap().0
}

fn part(spec: Value) -> Part {
    let report = json!({ "metadata": { "name": "nodes-0" }, "spec": spec });
    Part::of_report(&serde_json::from_str::<Lenient<ClusterReport>>(&report.to_string()).unwrap().0.spec)
}

fn read_alone(cluster: &Cluster) -> Inventory {
    read_inventory(cluster, std::iter::empty())
}

/// Numbers that a cluster of this inventory has in the fleet, and resources that have a number.
fn numbers(inventory: Inventory) -> (usize, usize) {
    let mut fleet = Fleet::default();
    let read = live::read_cluster(&mut fleet, &cluster(json!({})), inventory);
    fleet.set_cluster(read);
    (fleet.get("evil").unwrap().room.amount_count(), fleet.resources().len())
}

#[test]
fn a_report_of_many_nodes_and_resources_is_cut() {
    let nodes: Value =
        (0..9000).map(|n| (format!("n{n}"), json!({ format!("r{n}"): "1" }))).collect::<serde_json::Map<_, _>>().into();
    let cluster = cluster(json!({ "availableResources": nodes, "capacityResources": nodes }));
    let inventory = read_alone(&cluster);
    assert_eq!(inventory.nodes.len(), 200);
    assert!(inventory.left_out().unwrap().contains("nodes beyond the first 200 of one report"));
    let (numbers, resources) = numbers(inventory);
    assert!(numbers <= 3 * 200 * 256 && resources <= 256 + 3, "{numbers} {resources}");
}

#[test]
fn a_large_set_of_labels_is_not_known_and_others_are_shared() {
    let nodes: Value = (0..200).map(|n| (format!("n{n:03}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let [large, small] = [200_000, 8_000].map(|length| {
        let labels = json!({ "sets": [{ "k": "x".repeat(length) }], "of": vec![0; 10_000] });
        read_alone(&cluster(json!({ "capacityResources": nodes, "nodeLabels": labels })))
    });
    assert!(large.nodes.iter().all(|node| node.labels.is_none()));
    assert!(large.left_out().unwrap().contains("8 KiB"));
    let first = small.nodes[0].labels.as_ref().unwrap();
    assert!(small.nodes.iter().all(|node| Arc::ptr_eq(node.labels.as_ref().unwrap(), first)));
    assert_eq!(small.left_out(), None);
}

/// Amounts of so many resources beside the usual ones.
fn resource_amounts(from: usize, count: usize) -> Value {
    let own = (from..from + count).map(|n| (format!("example.com/r{n}"), json!("1")));
    let all = own.chain(["cpu", "memory", "pods"].map(|name| (name.to_owned(), json!("1"))));
    all.collect::<serde_json::Map<_, _>>().into()
}

/// A report of ten nodes, whose resources are in part the same.
fn report_with_resources(first: usize) -> Part {
    let nodes = (0..10).map(|n| (format!("n{n}"), resource_amounts(first + n * 60, 100)));
    let nodes: Value = nodes.collect::<serde_json::Map<_, _>>().into();
    part(json!({ "availableResources": nodes, "capacityResources": nodes }))
}

#[test]
fn a_node_and_a_cluster_have_so_many_resources() {
    let parts = [report_with_resources(0), report_with_resources(10_000), report_with_resources(20_000)];
    let inventory = read_inventory(&cluster(json!({})), parts.iter());
    let mut names = BTreeSet::new();
    for node in &inventory.nodes {
        let own: Vec<&str> = node.capacity.iter().map(|(name, _)| &**name).collect();
        assert!(own.len() <= 64 && FIRST.iter().all(|name| own.contains(name)));
        names.extend(own);
    }
    assert!(names.len() <= 256, "{}", names.len());
    assert!(inventory.left_out().unwrap().contains("resources beyond 64"));
}

#[test]
fn amounts_names_and_taints_are_those_of_nodes_that_exist() {
    let of = json!({ "cpu": "1000000000", "memory": "1E", "pods": "1000000000", "x": "-5", "y".repeat(400): "1" });
    let long = "n".repeat(300);
    let no_schedule = json!({ "key": "k", "effect": "NoSchedule" });
    let taints = json!({ "n": [no_schedule, { "key": "k", "effect": "Other" }], "o": vec![no_schedule.clone(); 65] });
    let status = json!({ "capacityResources": { "n": of, long: of, "o": of }, "nodeTaints": taints });
    let inventory = read_alone(&cluster(status));
    let [node] = inventory.nodes.as_slice() else { panic!("{:?}", inventory.nodes) };
    let amounts: Vec<(String, i64)> = node.capacity.iter().map(|(name, amount)| (name.to_string(), amount)).collect();
    let expected = [("cpu", 4_096_000), ("memory", (1 << 46) * 1000), ("pods", 1_000_000), ("x", 0)];
    assert_eq!(amounts, expected.map(|(name, amount)| (name.to_owned(), amount)));
    assert_eq!(node.taints.len(), 1);
    for text in ["amounts above", "longer than Kubernetes allows", "too many taints"] {
        assert!(inventory.left_out().unwrap().contains(text), "{text}");
    }
}

#[test]
fn reports_of_a_whole_cluster_are_bounded() {
    let nodes: Value = (0..200)
        .map(|n| {
            (format!("n{n}"), (0..64).map(|r| (format!("r{r}"), json!("1"))).collect::<serde_json::Map<_, _>>().into())
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let one = part(json!({ "availableResources": nodes, "capacityResources": nodes }));
    let inventory = read_inventory(&cluster(json!({})), std::iter::repeat_n(&one, 64));
    assert_eq!(inventory.nodes.len(), 5_000);
    assert!(inventory.left_out().unwrap().contains("nodes beyond the first 5,000"));
    let (numbers, _) = numbers(inventory);
    assert!(numbers <= 3 * NUMBERS, "{numbers} numbers of 8 bytes");
}

#[test]
fn nothing_is_read_of_a_cluster_that_takes_no_part_yet() {
    let nodes = json!({ "capacityResources": { "n": { "cpu": "1" } } });
    let known = cluster(nodes);
    assert_eq!(read_alone(&known).nodes.len(), 1);
    let mut refused = known.clone();
    refused.spec.accepted = false;
    let mut silent = known.clone();
    silent.status.as_mut().unwrap().conditions.clear();
    let mut never = known;
    "ClusterStatusNeverUpdated".clone_into(&mut never.status.as_mut().unwrap().conditions[0].reason);
    for cluster in [refused, silent, never] {
        assert_eq!(read_alone(&cluster), Inventory::default());
    }
}

#[test]
fn names_that_one_cluster_makes_up_take_nothing_from_others() {
    let mut fleet = Fleet::default();
    let mut report = |round: usize| {
        let own: Value =
            (0..64).map(|n| (format!("example.com/{round}-{n}"), json!("1"))).collect::<serde_json::Map<_, _>>().into();
        let cluster =
            cluster(json!({ "capacityResources": { "n": own }, "observed": { "apis": [format!("a{round}/v1")] } }));
        let inventory = read_alone(&cluster);
        let read = live::read_cluster(&mut fleet, &cluster, inventory);
        fleet.set_cluster(read);
        fleet.resources().len()
    };
    let sizes: BTreeSet<usize> = (0..1_200).map(&mut report).collect();
    assert_eq!(sizes, [67].into(), "76,800 names, one after the other");
    assert!(fleet.known_apis() <= 2, "{}", fleet.known_apis());
    assert!(fleet.remove_cluster("evil"));
    assert_eq!(fleet.resources().len(), 3);
}
