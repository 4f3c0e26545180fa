//! What holds of every plan of followers, on random namespaces.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleetctl::placement::facts::ObjectKey;
use fleetctl::placement::follow::{FollowCopy, FollowPlan, PlaceState, SourceRecord, is_follower};
use fleetctl::placement::matching::Policies;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::follow::{Source, plan};
use crate::support::policies;

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 3] = ["x", "y", "z"];

/// Kind and name of an object, what it names of the others, its clusters, its copies.
type Part = (usize, usize, Vec<usize>, Vec<usize>, Vec<(usize, bool, bool)>);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let copies = prop::collection::vec((0_usize..3, any::<bool>(), any::<bool>()), 0..3);
    let part = (
        0_usize..7,
        0_usize..3,
        prop::collection::vec(0_usize..3, 0..3),
        prop::collection::vec(0_usize..3, 0..3),
        copies,
    );
    prop::collection::vec(part, 1..14)
}

fn manifest(part: &Part) -> Value {
    let (kind, name, names, ..) = part;
    let metadata = json!({ "name": NAMES[*name], "namespace": "shop", "labels": { "app": NAMES[*name] } });
    let named = |kind: &str, field: &str| -> Vec<Value> {
        names
            .iter()
            .enumerate()
            .map(|(at, name)| json!({ "name": format!("{kind}{at}"), kind: { field: NAMES[*name] } }))
            .collect()
    };
    let deployment = |volumes: Vec<Value>| {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": { "template": {
            "metadata": { "labels": { "app": NAMES[*name] } },
            "spec": { "containers": [], "serviceAccountName": NAMES[*name], "volumes": volumes } } } })
    };
    match kind {
        0 => deployment([named("secret", "secretName"), named("configMap", "name")].concat()),
        1 => deployment(named("persistentVolumeClaim", "claimName")),
        2 => json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata }),
        3 => json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata }),
        4 => json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {} }),
        5 => json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "selector": { "app": NAMES[*name] } } }),
        _ => json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata,
            "imagePullSecrets": names.iter().map(|name| json!({ "name": NAMES[*name] })).collect::<Vec<_>>() }),
    }
}

/// Policies of several forms: of everything, of what runs pods alone, suspended, with groups, none.
fn policy_form(form: usize) -> Policies {
    let mut spec = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
    match form {
        0 => {}
        1 => spec["resourceSelectors"]["kinds"] = json!([{ "group": "apps", "kind": "Deployment" }]),
        2 => spec["suspend"] = json!(true),
        3 => spec["groupBy"] = json!({ "labelKey": "app" }),
        4 => spec["groupBy"] = json!({ "namespace": true }),
        5 => spec["spreadConstraints"] = json!({ "spreadMode": "Duplicate" }),
        6 => spec["followers"] = json!("Matched"),
        _ => return policies(&json!([])),
    }
    policies(&json!([{ "apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
        "metadata": { "name": "all", "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec }]))
}

fn sources(parts: &[Part]) -> Vec<(Source, Part)> {
    let mut found: BTreeMap<ObjectKey, (Source, Part)> = BTreeMap::new();
    for part in parts {
        let source = Source::new(&manifest(part));
        found.entry(source.facts.key.clone()).or_insert((source, part.clone()));
    }
    found.into_values().collect()
}

fn record((source, (_, _, _, targets, copies)): &(Source, Part)) -> SourceRecord<'_> {
    let targets: Vec<&str> = targets.iter().map(|at| CLUSTERS[*at]).collect();
    let mut found = BTreeMap::new();
    for (at, follows, unsettled) in copies {
        let follows = *follows && is_follower(&source.facts.key);
        found.insert(CLUSTERS[*at].to_owned(), FollowCopy { follows, unsettled: *unsettled, uses: None });
    }
    source.record(&targets, found)
}

fn records(sources: &[(Source, Part)]) -> Vec<SourceRecord<'_>> {
    sources.iter().map(record).collect()
}

/// What pods have in a cluster: a copy, or a target of a policy that is not suspended.
fn find_user_clusters<'r>(record: &'r SourceRecord<'_>, has_targets: bool) -> Vec<&'r str> {
    let targets = record.targets.iter().filter(|_| has_targets);
    record.copies.keys().chain(targets).map(String::as_str).collect()
}

/// Does what a plan says: makes what is Written, takes away what Leaves.
fn carry_out<'a>(records: &[SourceRecord<'a>], plan: &FollowPlan) -> Vec<SourceRecord<'a>> {
    let mut after = records.to_vec();
    for record in &mut after {
        let Some(follower) = plan.followers.get(&record.facts.key) else { continue };
        for (cluster, place) in &follower.places {
            match place.state {
                PlaceState::Leaves => drop(record.copies.remove(cluster)),
                PlaceState::Written => {
                    let new = FollowCopy { follows: true, unsettled: false, uses: None };
                    record.copies.entry(cluster.clone()).or_insert(new);
                }
                PlaceState::Frozen | PlaceState::Stays | PlaceState::Lingers => {}
            }
        }
    }
    after
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_pods_name_is_not_removed(parts in parts(), form in 0_usize..8) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let records = records(&sources);
        let plan = plan(&policies, &records);
        for user in records.iter().filter(|record| !is_follower(&record.facts.key)) {
            for cluster in find_user_clusters(user, form != 2 && form != 7) {
                for (key, _) in &user.relations.names {
                    let Some(used) = records.iter().find(|record| record.facts.key == *key) else { continue };
                    if used.copies.contains_key(cluster) {
                        let state = plan.followers[key].places[cluster].state;
                        prop_assert!(matches!(state, PlaceState::Written | PlaceState::Frozen), "{key} {state:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_copy_is_forgotten(parts in parts(), form in 0_usize..8) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let records = records(&sources);
        let plan = plan(&policies, &records);
        for record in records.iter().filter(|record| is_follower(&record.facts.key)) {
            for cluster in record.copies.keys() {
                prop_assert!(plan.followers[&record.facts.key].places.contains_key(cluster));
            }
        }
    }

    #[test]
    fn a_claim_is_not_removed_nor_made_again(parts in parts(), form in 0_usize..8) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let records = records(&sources);
        let plan = plan(&policies, &records);
        let is_claim = |key: &ObjectKey| key.kind() == "PersistentVolumeClaim";
        for record in records.iter().filter(|record| is_claim(&record.facts.key)) {
            let Some(follower) = plan.followers.get(&record.facts.key) else { continue };
            for (cluster, place) in &follower.places {
                prop_assert!(!matches!(place.state, PlaceState::Leaves | PlaceState::Lingers));
                let is_new = !record.copies.contains_key(cluster);
                prop_assert!(!is_new || form == 5 || follower.places.len() == 1, "a second, empty one");
            }
        }
    }

    #[test]
    fn a_plan_that_is_carried_out_is_the_same(parts in parts(), form in 0_usize..8) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let records = records(&sources);
        let first = plan(&policies, &records);
        let after = carry_out(&records, &first);
        let second = plan(&policies, &after);
        let third = carry_out(&after, &second);
        let made = |records: &[SourceRecord<'_>]| -> Vec<Vec<String>> {
            records.iter().map(|record| record.copies.keys().cloned().collect()).collect()
        };
        // What leaving things used goes in the next turn; what is written stays written.
        for (key, follower) in &first.followers {
            for (cluster, place) in follower.places.iter().filter(|(_, place)| place.state == PlaceState::Written) {
                let state = second.followers.get(key).and_then(|follower| follower.places.get(cluster));
                let by_leaving = place.because.iter().all(|because| match because {
                    fleetctl::placement::follow::Because::Object(user) => is_follower(user),
                    _ => false,
                });
                prop_assert!(by_leaving || state.is_some_and(|place| place.state == PlaceState::Written), "{key}");
            }
        }
        let fourth = carry_out(&third, &plan(&policies, &third));
        let last = carry_out(&fourth, &plan(&policies, &fourth));
        let again = carry_out(&last, &plan(&policies, &last));
        prop_assert_eq!(made(&last), made(&again), "no copy comes and goes");
    }

    #[test]
    fn the_order_of_records_does_not_matter(parts in parts(), form in 0_usize..8, seed in any::<Index>()) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let records = records(&sources);
        let mut other = records.clone();
        other.rotate_left(seed.index(records.len()));
        other.reverse();
        prop_assert_eq!(plan(&policies, &records), plan(&policies, &other));
    }

    #[test]
    fn what_runs_no_pods_pins_no_group(parts in parts(), form in 0_usize..8) {
        let (policies, sources) = (policy_form(form), sources(&parts));
        let without_claims: Vec<(Source, Part)> = sources
            .into_iter()
            .filter(|(source, _)| source.facts.key.kind() != "PersistentVolumeClaim")
            .collect();
        let records = records(&without_claims);
        for group in plan(&policies, &records).groups {
            prop_assert_eq!(group.only, None);
            prop_assert!(group.decided.iter().all(|key| !is_follower(key)));
            prop_assert!(group.followers.iter().all(is_follower));
        }
    }
}

fn deployment(number: usize, configs: usize) -> Value {
    let volumes: Vec<Value> = (0..10)
        .map(|at| json!({ "name": format!("v{at}"), "configMap": { "name": format!("c{}", (number * 10 + at) % configs) } }))
        .collect();
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": format!("d{number}"), "namespace": "shop" },
        "spec": { "template": { "metadata": { "labels": { "app": "one" } }, "spec": { "containers": [], "volumes": volumes } } } })
}

/// The time of a plan of one namespace in the group `all`, which one credential can fill.
fn time_plan(others: impl Iterator<Item = Value>, deployments: usize) -> Duration {
    let policies = policy_form(4);
    let all = (0..deployments).map(|number| deployment(number, 10_000)).chain(others);
    let sources: Vec<Source> = all.map(|manifest| Source::new(&manifest)).collect();
    let records: Vec<SourceRecord<'_>> = sources.iter().map(|source| source.record(&["a"], BTreeMap::new())).collect();
    let begun = Instant::now();
    let plan = plan(&policies, &records);
    assert!(plan.followers.len() >= 10_000);
    begun.elapsed()
}

/// A bound, not a measurement: pairs of all with all take minutes.
#[test]
fn ten_thousand_followers_of_a_thousand_users() {
    let metadata = |name: String| json!({ "name": name, "namespace": "shop" });
    let configs = (0..10_000)
        .map(|number| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(format!("c{number}")) }));
    let took = time_plan(configs, 1_000);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let services = (0..10_000).map(|number| {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(format!("s{number}")),
            "spec": { "selector": { "app": "one" } } })
    });
    let took = time_plan(services, 1_000);
    assert!(took < Duration::from_secs(20), "{took:?}");
}
