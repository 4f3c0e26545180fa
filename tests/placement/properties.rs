//! What holds of every decision, on random fleets and groups.

use std::collections::BTreeMap;

use fleetctl::api::crd::cluster::Taint;
use fleetctl::placement::copy::Share;
use fleetctl::placement::decide::{Current, Decision, Group, How, Target, decide_group};
use fleetctl::placement::divide::{Domain, Ties, divide_replicas, fill_domains};
use fleetctl::placement::facts::Facts;
use fleetctl::placement::fleet::{Cluster, Fleet};
use fleetctl::placement::matching::Policy;
use fleetctl::placement::room::Node;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{facts, policy};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Weight, what it has, and its cap.
type Part = (i64, i64, Option<i64>);

/// Small weights, so that many domains have the same claim, and large ones, so that shares are odd.
fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = (prop_oneof![0_i64..4, 0_i64..100], 0_i64..8, prop::option::weighted(0.4, 0_i64..30));
    prop::collection::vec(part, 1..6)
}

fn domains(parts: &[Part]) -> Vec<Domain<'static>> {
    let one = |(value, (weight, prev, cap)): (&&'static str, &Part)| Domain {
        value,
        weight: *weight,
        prev: *prev,
        cap: *cap,
    };
    NAMES.iter().zip(parts).map(one).collect()
}

/// Free and whole CPUs of a node, and whether it is tainted.
type NodePart = (i64, i64, bool);

fn fleets() -> impl Strategy<Value = Vec<Vec<NodePart>>> {
    let node = (0_i64..=8, 0_i64..=4, prop::bool::weighted(0.1))
        .prop_map(|(free, more, tainted)| (free, free + more, tainted));
    prop::collection::vec(prop::collection::vec(node, 1..5), 1..6)
}

/// Replicas and thousandths of a CPU by Deployment.
fn groups() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((0_i64..8, 250_i64..3000), 1..4)
}

fn spec(mode: u8) -> Value {
    let ordered = json!({ "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "In",
        "values": ["c", "a", "b", "d", "e"] }] });
    let split = json!([{ "topologyValue": "a", "percentage": 60 }, { "topologyValue": "b", "percentage": 40 }]);
    match mode {
        0 => json!({}),
        1 => json!({ "orderedClusterSelector": ordered }),
        2 => json!({ "spreadConstraints": {} }),
        3 => json!({ "spreadConstraints": {}, "orderedClusterSelector": ordered }),
        4 => json!({ "spreadConstraints": { "percentageSplit": split } }),
        _ => json!({ "spreadConstraints": { "spreadMode": "Duplicate" } }),
    }
}

fn policy_of(mode: u8) -> Policy {
    let mut spec = spec(mode);
    spec["namespaceSelector"] = json!({});
    spec["resourceSelectors"] = json!({ "labelSelectors": [{}] });
    policy(&json!({ "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": { "name": "p" }, "spec": spec }))
}

fn objects(group: &[(i64, i64)]) -> Vec<Facts> {
    let object = |(at, (replicas, cpu)): (usize, &(i64, i64))| {
        let containers = json!([{ "name": "c", "resources": { "requests": { "cpu": format!("{cpu}m") } } }]);
        facts(&json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": format!("w{at}"), "namespace": "shop" },
            "spec": { "replicas": replicas, "template": { "spec": { "containers": containers } } } }))
    };
    group.iter().enumerate().map(object).collect()
}

fn fleet<'a>(clusters: impl IntoIterator<Item = (&'a str, &'a Vec<NodePart>)>) -> Fleet {
    let mut fleet = Fleet::default();
    for (name, nodes) in clusters {
        let node = |(at, (free, whole, tainted)): (usize, &NodePart)| {
            let of = |cpu: i64| {
                [("cpu", cpu * 1000), ("memory", 1 << 40), ("pods", 20_000)].map(|(k, v)| (k.to_owned(), v)).into()
            };
            let taint = json!([{ "key": "k", "effect": "NoSchedule" }]);
            let taints: Vec<Taint> = if *tainted { serde_json::from_value(taint).unwrap() } else { Vec::new() };
            Node {
                name: format!("n{at}"),
                capacity: of(*whole),
                available: of(*free),
                labels: None,
                taints: taints.into(),
            }
        };
        let room = fleet.build_capacity(nodes.iter().enumerate().map(node).collect(), Vec::new());
        fleet.set_cluster(Cluster::new(name, room));
    }
    fleet
}

fn named(clusters: &[Vec<NodePart>]) -> Vec<(&'static str, &Vec<NodePart>)> {
    NAMES.into_iter().zip(clusters).collect()
}

fn replicas(targets: &[Target]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (key, share) in targets.iter().flat_map(|target| &target.replicas) {
        if let Share::Replicas(replicas) = share {
            *sums.entry(key.to_string()).or_default() += replicas;
        }
    }
    sums
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_replica_is_placed_or_withheld(n in 0_i64..200, parts in parts(), fills: bool) {
        let domains = domains(&parts);
        let division = if fills { fill_domains(n, &domains) } else { divide_replicas(n, &domains, Ties::Hash("seed")) };
        prop_assert_eq!(division.replicas.iter().sum::<i64>() + division.withheld, n);
        for (domain, replicas) in domains.iter().zip(&division.replicas) {
            prop_assert!(*replicas >= 0 && domain.cap.is_none_or(|cap| *replicas <= cap));
            prop_assert!(fills || domain.weight > 0 || *replicas == 0);
        }
        let is_full = |(domain, replicas): (&Domain<'_>, &i64)| {
            (!fills && domain.weight == 0) || domain.cap.is_some_and(|cap| *replicas >= cap)
        };
        prop_assert!(division.withheld == 0 || domains.iter().zip(&division.replicas).all(is_full));
    }

    #[test]
    fn scaling_takes_from_nobody_who_may_keep(n in 0_i64..100, more in 0_i64..4, parts in parts(), fills: bool) {
        let mut domains = domains(&parts);
        let run = |n: i64, domains: &[Domain<'_>]| {
            if fills { fill_domains(n, domains) } else { divide_replicas(n, domains, Ties::Hash("seed")) }
        };
        let first = run(n, &domains);
        domains.iter_mut().zip(&first.replicas).for_each(|(domain, has)| domain.prev = *has);
        prop_assert_eq!(&run(n, &domains), &first, "dividing again changes nothing");
        let up = run(n + more, &domains);
        prop_assert!(up.replicas.iter().zip(&first.replicas).all(|(up, first)| up >= first));
        let down = run(n - more.min(n), &domains);
        prop_assert!(down.replicas.iter().zip(&first.replicas).all(|(down, first)| down <= first));
    }

    #[test]
    fn from_nothing_everybody_gets_the_share_to_one_replica(n in 0_i64..1000, weights in prop::collection::vec(1_i64..100, 1..6)) {
        let parts: Vec<Part> = weights.iter().map(|weight| (*weight, 0, None)).collect();
        let domains = domains(&parts);
        let whole: i64 = weights.iter().sum();
        for (weight, replicas) in weights.iter().zip(divide_replicas(n, &domains, Ties::Hash("seed")).replicas) {
            prop_assert!((replicas * whole - n * weight).abs() < whole);
        }
    }

    #[test]
    fn the_order_of_domains_does_not_matter(n in 0_i64..100, parts in parts(), turn in 0_usize..6) {
        let domains = domains(&parts);
        let mut turned = domains.clone();
        turned.rotate_left(turn % domains.len());
        let by_name = |domains: &[Domain<'_>]| -> BTreeMap<String, i64> {
            let replicas = divide_replicas(n, domains, Ties::Hash("seed")).replicas;
            domains.iter().map(|domain| domain.value.to_owned()).zip(replicas).collect()
        };
        prop_assert_eq!(by_name(&domains), by_name(&turned));
    }

    #[test]
    fn what_is_placed_fits_and_all_of_it_is_taken(clusters in fleets(), group in groups(), mode in 0_u8..6) {
        let (policy, objects) = (policy_of(mode), objects(&group));
        let mut fleet = fleet(named(&clusters));
        let before = fleet.clone();
        let group = Group::new("g", &policy, &objects);
        let decision = decide_group(&policy, &group, &fleet, &Current::default());
        fleet.reserve_decision(&group, &decision, &Current::default());
        for target in &decision.targets {
            let (before, after) = (before.get(&target.cluster).unwrap(), fleet.get(&target.cluster).unwrap());
            let mut taken = 0;
            for ((_, before), (node, after)) in before.room.free_by_node(fleet.resources()).zip(after.room.free_by_node(fleet.resources())) {
                prop_assert!(after["cpu"] >= 0 && after["pods"] >= 0, "{} of {} is oversubscribed", node, target.cluster);
                taken += before["cpu"] - after["cpu"];
            }
            let share = |facts: &Facts| match target.replicas.get(&facts.key) {
                Some(Share::Replicas(replicas)) => *replicas,
                _ => facts.workload.pods_at_once(),
            };
            let asked: i64 =
                objects.iter().map(|facts| facts.shape.as_ref().unwrap().requested_amount("cpu") * share(facts)).sum();
            prop_assert_eq!(taken, asked, "all pods of a target have room there");
        }
        if matches!(decision.how, Some(How::Divide)) {
            let wanted: i64 = objects.iter().map(|facts| facts.workload.pods_at_once()).sum();
            prop_assert_eq!(replicas(&decision.targets).values().sum::<i64>() + decision.withheld, wanted);
        }
    }

    #[test]
    fn the_order_of_clusters_and_objects_does_not_matter(clusters in fleets(), group in groups(), mode in 0_u8..6) {
        let (policy, mut objects) = (policy_of(mode), objects(&group));
        let run = |objects: &[Facts], fleet: &Fleet| -> Decision {
            decide_group(&policy, &Group::new("g", &policy, objects), fleet, &Current::default())
        };
        let first = format!("{:?}", run(&objects, &fleet(named(&clusters))));
        objects.reverse();
        let turned = named(&clusters).into_iter().rev();
        prop_assert_eq!(first, format!("{:?}", run(&objects, &fleet(turned))));
    }

    #[test]
    fn a_decision_that_is_made_again_changes_nothing(clusters in fleets(), group in groups(), mode in 0_u8..6) {
        let (policy, objects) = (policy_of(mode), objects(&group));
        let mut fleet = fleet(named(&clusters));
        let group = Group::new("g", &policy, &objects);
        let first = decide_group(&policy, &group, &fleet, &Current::default());
        fleet.reserve_decision(&group, &first, &Current::default());
        let current = Current { targets: first.targets.clone(), ..Current::default() };
        let again = decide_group(&policy, &group, &fleet, &current);
        prop_assert_eq!(&again.targets, &first.targets);
        prop_assert_eq!((again.withheld, &again.moving_from), (first.withheld, &Vec::new()));
    }

    #[test]
    fn clusters_that_were_not_chosen_are_not_missed(clusters in fleets(), group in groups(), mode in 0_u8..6) {
        let (policy, objects) = (policy_of(mode), objects(&group));
        let fleet = fleet(named(&clusters));
        let group = Group::new("g", &policy, &objects);
        let first = decide_group(&policy, &group, &fleet, &Current::default());
        for name in NAMES {
            let mut without = fleet.clone();
            if first.targets.iter().any(|target| target.cluster == name) || !without.remove_cluster(name) {
                continue;
            }
            let again = decide_group(&policy, &group, &without, &Current::default());
            prop_assert_eq!(&again.targets, &first.targets, "without {}", name);
        }
    }
}
