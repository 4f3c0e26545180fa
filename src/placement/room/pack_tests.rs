//! Packing of needs that are larger than what a decision may look at.

use serde_json::json;

use super::super::{Node, NodeAmounts};
use super::*;
use crate::placement::facts::Facts;

fn deployment(name: &str, replicas: i64, cpu: &str) -> Facts {
    Facts::from_manifest(
        &json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "n" },
        "spec": { "replicas": replicas, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": cpu } } }] } } } }),
    )
    .unwrap()
}

/// Nodes with so many CPUs and pods each.
fn room(resources: &mut Resources, nodes: usize, cpus: i64, pods: i64) -> Room {
    let amounts: NodeAmounts = [("cpu", cpus * 1000), ("pods", pods * 1000)].into();
    let nodes = (0..nodes).map(|at| Node {
        name: format!("n{at}"),
        capacity: amounts.clone(),
        available: amounts.clone(),
        ..Node::default()
    });
    Room::new(resources, nodes.collect(), Vec::new())
}

fn need<'a>(resources: &Resources, facts: &'a Facts) -> Need<'a> {
    Need::new(resources, &facts.key, facts.shape.as_ref().unwrap(), facts.workload.pods_at_once(), 0, false)
}

fn fit(resources: &Resources, room: &Room, objects: &[Facts]) -> (Fit, usize) {
    let needs = Needs::new(resources, objects.iter().map(|facts| need(resources, facts)).collect());
    let steps = Steps::default();
    (room.fit_within(resources, &needs, &steps), steps.steps_taken())
}

#[test]
fn pods_without_number_are_not_put_onto_nodes_one_by_one() {
    let mut resources = Resources::default();
    // A node as nobody has one, which no reader of reports believes.
    let lie = room(&mut resources, 1, 1_000_000_000, 1_000_000_000);
    let huge = [deployment("spin1", 200_000_000, "1m"), deployment("spin2", 200_000_000, "2m")];
    let (found, steps) = fit(&resources, &lie, &huge);
    assert_eq!(found, Fit::Tight);
    assert!(steps <= 1_000_000, "{steps}");
    let mut resources = Resources::default();
    let large = room(&mut resources, 5_000, 64, 110);
    let many = [deployment("a", 250_000, "100m"), deployment("b", 250_000, "200m")];
    assert_eq!(fit(&resources, &large, &many).0, Fit::Tight);
    let few = [deployment("a", 500, "100m"), deployment("b", 500, "200m")];
    let (found, steps) = fit(&resources, &large, &few);
    assert_eq!(found, Fit::Fits);
    assert!(steps < 50_000, "{steps}: not pods times nodes");
}

#[test]
fn a_decision_that_has_spent_its_steps_packs_nothing_more() {
    let mut resources = Resources::default();
    let room = room(&mut resources, 10, 64, 110);
    let objects = [deployment("a", 5, "100m"), deployment("b", 5, "200m")];
    let needs = Needs::new(&resources, objects.iter().map(|facts| need(&resources, facts)).collect());
    let spent = Steps::default();
    assert!(!spent.take_steps(usize::MAX) && spent.are_spent());
    assert_eq!(room.fit_within(&resources, &needs, &spent), Fit::Tight);
    let one = need(&resources, &objects[0]);
    let more =
        room.max_pods_beside(&resources, &Needs::new(&resources, vec![need(&resources, &objects[1])]), &one, &spent);
    assert_eq!(more.ok(), Some(10 * 110 - 5), "by totals");
}
