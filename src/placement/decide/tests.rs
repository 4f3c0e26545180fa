use super::*;
use crate::api::crd::policy::SchedulePolicySpec;
use crate::placement::facts::Facts;
use crate::placement::fleet::Cluster;
use crate::placement::matching::Direct;
use crate::placement::room::{Node, NodeAmounts};
use serde_json::{Value, json};

fn policy(spec: Value) -> Policy {
    let mut whole = json!({ "namespaceSelector": {}, "resourceSelectors": { "labelSelectors": [{}] } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let spec: SchedulePolicySpec = serde_json::from_value(whole).unwrap();
    Policy::new("p".to_owned(), None, spec).unwrap()
}

fn spread(constraints: Value) -> Policy {
    policy(json!({ "spreadConstraints": constraints }))
}

fn object(api: &str, kind: &str, name: &str, spec: Value) -> Facts {
    Facts::from_manifest(
        &json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name, "namespace": "n" }, "spec": spec }),
    )
    .unwrap()
}

fn template() -> Value {
    json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } })
}

fn web(replicas: i64) -> Facts {
    object("apps/v1", "Deployment", "web", json!({ "replicas": replicas, "template": template() }))
}

fn job(completions: i64) -> Facts {
    object("batch/v1", "Job", "job", json!({ "completions": completions, "parallelism": 2, "template": template() }))
}

fn claim() -> Facts {
    object("v1", "PersistentVolumeClaim", "data", json!({}))
}

/// Clusters of one node with so many CPUs.
fn fleet(clusters: &[(&str, i64)]) -> Fleet {
    let mut fleet = Fleet::default();
    for (name, cpus) in clusters {
        let amounts: NodeAmounts =
            [("cpu", cpus * 1000), ("pods", 110_000)].map(|(name, amount)| (name.to_owned(), amount)).into();
        let node = Node { name: "n".to_owned(), capacity: amounts.clone(), available: amounts, ..Node::default() };
        let room = fleet.build_capacity(vec![node], Vec::new());
        fleet.set_cluster(Cluster::new(name, room));
    }
    fleet
}

fn taint(fleet: &mut Fleet, name: &str, effect: &str) {
    let taint = json!([{ "key": "k", "effect": effect }]);
    fleet.get_mut(name).unwrap().taints = serde_json::from_value(taint).unwrap();
}

fn target(cluster: &str) -> Target {
    Target { cluster: cluster.to_owned(), ..Target::default() }
}

fn share(cluster: &str, facts: &Facts, share: Share) -> Target {
    Target { domain: Some(cluster.to_owned()), replicas: [(facts.key.clone(), share)].into(), ..target(cluster) }
}

fn at(targets: &[Target]) -> Current {
    Current { targets: targets.to_vec(), ..Current::default() }
}

fn run(policy: &Policy, objects: &[Facts], fleet: &Fleet, current: &Current) -> Decision {
    decide_group(policy, &Group::new("g", policy, objects), fleet, current)
}

fn clusters(decision: &Decision) -> Vec<&str> {
    decision.targets.iter().map(|target| target.cluster.as_str()).collect()
}

/// Returns the part of the one divided object that each target gets.
fn numbers(decision: &Decision) -> Vec<(&str, i64)> {
    let numbers = decision.targets.iter().map(|target| {
        let shares = target.replicas.values().map(|share| match share {
            Share::Replicas(replicas) => *replicas,
            Share::Job { completions, .. } => *completions,
        });
        (target.cluster.as_str(), shares.sum())
    });
    numbers.collect()
}

#[test]
fn volumes_of_a_leaving_cluster_keep_their_copies() {
    let mut fleet = fleet(&[("a", 8), ("b", 8)]);
    fleet.get_mut("a").unwrap().leaving = true;
    let decision = run(&policy(json!({})), &[claim(), web(1)], &fleet, &at(&[target("a")]));
    assert_eq!((decision.scheduled, decision.outcome, clusters(&decision)), (false, Outcome::HasVolumes, vec!["a"]));
    let moves = run(&policy(json!({})), &[web(1)], &fleet, &at(&[target("a")]));
    assert_eq!((clusters(&moves), moves.moving_from.as_slice()), (vec!["b"], &["a".to_owned()][..]));
}

#[test]
fn a_drain_takes_everything_but_volumes() {
    let mut fleet = fleet(&[("a", 8), ("b", 8)]);
    taint(&mut fleet, "a", "NoExecute");
    let here = at(&[target("a")]);
    assert_eq!(clusters(&run(&policy(json!({})), &[web(1)], &fleet, &here)), ["b"]);
    let held = run(&policy(json!({})), &[web(1), claim()], &fleet, &here);
    assert_eq!((held.how, clusters(&held)), (Some(How::Volumes), vec!["a"]));
    let twice = spread(json!({ "spreadMode": "Duplicate" }));
    let both = at(&[share("a", &web(1), Share::Replicas(1)), share("b", &web(1), Share::Replicas(1))]);
    assert_eq!(clusters(&run(&twice, &[web(1)], &fleet, &both)), ["b"]);
    taint(&mut fleet, "b", "NoExecute");
    let nowhere = run(&twice, &[web(1)], &fleet, &both);
    assert_eq!((nowhere.how, clusters(&nowhere)), (Some(How::KeptUntilPlaced), vec!["a", "b"]));
    assert_eq!((nowhere.scheduled, nowhere.outcome), (false, Outcome::NoCandidates));
}

#[test]
fn an_edited_policy_keeps_the_cluster_within_its_rank() {
    let fleet = fleet(&[("a", 8), ("b", 80)]);
    let edit = Current { mode: Mode::PolicyEdit, ..at(&[target("a")]) };
    assert_eq!(clusters(&run(&policy(json!({})), &[web(1)], &fleet, &edit)), ["a"]);
    let order = json!({ "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["b", "a"] }] });
    let ordered = run(&policy(json!({ "orderedClusterSelector": order })), &[web(1)], &fleet, &edit);
    assert_eq!((clusters(&ordered), ordered.moving_from.as_slice()), (vec!["b"], &["a".to_owned()][..]));
}

#[test]
fn of_several_clusters_the_one_with_most_of_the_pods_is_current() {
    let fleet = fleet(&[("a", 8), ("b", 8)]);
    let both = at(&[share("a", &web(5), Share::Replicas(1)), share("b", &web(5), Share::Replicas(4))]);
    let decision = run(&policy(json!({})), &[web(5)], &fleet, &both);
    assert_eq!((decision.how, clusters(&decision)), (Some(How::Kept), vec!["b"]));
}

#[test]
fn what_wakes_up_is_waited_for() {
    let mut fleet = fleet(&[("a", 8), ("b", 1)]);
    let cluster = fleet.get_mut("b").unwrap();
    (cluster.standby, cluster.ready) = (true, false);
    let decision = run(&policy(json!({})), &[web(4)], &fleet, &at(&[target("b")]));
    assert_eq!((decision.how, clusters(&decision)), (Some(How::Kept), vec!["b"]));
}

fn job_part(cluster: &str, completions: i64) -> Target {
    share(cluster, &job(10), Share::Job { completions, parallelism: 1 })
}

#[test]
fn a_job_that_is_there_keeps_its_parts() {
    let fleet = fleet(&[("a", 8), ("b", 8)]);
    let halves = spread(json!({ "percentageSplit": [
        { "topologyValue": "a", "percentage": 50 }, { "topologyValue": "b", "percentage": 50 }] }));
    let decision = run(&halves, &[job(10)], &fleet, &at(&[job_part("a", 7), job_part("b", 3)]));
    assert_eq!(numbers(&decision), [("a", 7), ("b", 3)]);
    let lost = run(&halves, &[job(10)], &fleet, &at(&[job_part("a", 7)]));
    assert_eq!((numbers(&lost), lost.withheld), (vec![("a", 7), ("b", 0)], 3));
    let new = run(&halves, &[job(9)], &fleet, &Current::default());
    assert_eq!(numbers(&new).iter().map(|(_, completions)| completions).sum::<i64>(), 9);
}

fn make_cron_job() -> Facts {
    let job = json!({ "spec": { "template": template() } });
    object("batch/v1", "CronJob", "cron", json!({ "schedule": "* * * * *", "jobTemplate": job }))
}

/// Returns the cluster of what is not divided.
fn find_undivided_home(decision: &Decision) -> String {
    let whole = decision.targets.iter().find(|target| !target.whole.is_empty());
    whole.map(|target| target.cluster.clone()).unwrap_or_default()
}

#[test]
fn what_cannot_be_divided_stays_in_its_domain() {
    let fleet = fleet(&[("a", 8), ("b", 9)]);
    let even = spread(json!({}));
    let first = run(&even, &[make_cron_job(), web(4)], &fleet, &Current::default());
    assert_eq!((find_undivided_home(&first).as_str(), numbers(&first)), ("b", vec![("a", 2), ("b", 2)]));
    let mut current = at(&first.targets);
    current.targets.iter_mut().for_each(|target| target.whole.clear());
    current.targets[0].whole.push(make_cron_job().key);
    assert_eq!(find_undivided_home(&run(&even, &[make_cron_job(), web(4)], &fleet, &current)), "a");
}

#[test]
fn what_no_domain_has_room_for_goes_where_nodes_are_added() {
    let mut fleet = fleet(&[("a", 2), ("b", 2)]);
    let even = spread(json!({}));
    let full = run(&even, &[web(9)], &fleet, &Current::default());
    assert_eq!((numbers(&full), full.withheld), (vec![("a", 2), ("b", 2)], 5));
    fleet.get_mut("b").unwrap().autoscaled = true;
    let grows = run(&even, &[web(9)], &fleet, &Current::default());
    assert_eq!((numbers(&grows), grows.withheld), (vec![("a", 2), ("b", 7)], 0));
}

#[test]
fn a_domain_that_is_not_ready_keeps_what_it_has() {
    let mut fleet = fleet(&[("a", 8), ("b", 8)]);
    fleet.get_mut("b").unwrap().ready = false;
    let current = at(&[share("a", &web(4), Share::Replicas(2)), share("b", &web(4), Share::Replicas(2))]);
    let grown = run(&spread(json!({})), &[web(7)], &fleet, &current);
    assert_eq!((numbers(&grown), grown.moving_from.len()), (vec![("a", 5), ("b", 2)], 0));
    let shrunk = run(&spread(json!({})), &[web(1)], &fleet, &current);
    assert_eq!(numbers(&shrunk).iter().map(|(_, replicas)| replicas).sum::<i64>(), 1);
    assert!(shrunk.moving_from.is_empty(), "nothing has to come up first");
}

#[test]
fn the_promise_of_a_decision_replaces_the_one_before() {
    let mut fleet = fleet(&[("a", 8)]);
    let all = policy(json!({}));
    let mut current = Current::default();
    for replicas in [3, 5, 2] {
        let objects = [web(replicas)];
        let group = Group::new("g", &all, &objects);
        let decision = decide_group(&all, &group, &fleet, &current);
        fleet.reserve_decision(&group, &decision, &current);
        current = at(&decision.targets);
        let free: i64 = fleet.get("a").unwrap().room.free_by_node(fleet.resources()).map(|(_, free)| free["cpu"]).sum();
        assert_eq!(free, (8 - replicas) * 1000);
    }
}

#[test]
fn too_many_members_change_nothing() {
    let many: Vec<Facts> =
        (0..=LARGEST_GROUP).map(|n| object("v1", "ConfigMap", &format!("m{n}"), json!({}))).collect();
    let decision = run(&policy(json!({})), &many, &fleet(&[("a", 8), ("b", 9)]), &at(&[target("a")]));
    assert_eq!((decision.outcome, clusters(&decision), decision.scheduled), (Outcome::GroupTooLarge, vec!["a"], false));
}

#[test]
fn replicas_of_an_annotation_are_even_again_when_a_cluster_is_back() {
    let fleet = fleet(&[("a", 1), ("b", 1)]);
    let onto = crate::placement::facts::SpreadOnto { clusters: vec!["a".to_owned(), "b".to_owned()], duplicate: false };
    // While `b` was blocked, `a` was scaled to three.
    let current = BTreeMap::from([("a".to_owned(), 3)]);
    let decision = decide_direct(&web(3), &Direct::SpreadOnto(onto), &fleet, &current);
    let shares: Vec<_> = decision.targets.iter().map(|target| (target.cluster.as_str(), target.share)).collect();
    assert_eq!(shares, [("a", Some(Share::Replicas(2))), ("b", Some(Share::Replicas(1)))]);
}

fn decide_spread_onto(fleet: &Fleet, list: &str) -> DirectDecision {
    let manifest = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web",
        "annotations": { "fleet-scheduler.io/spread-onto": list } }, "spec": { "replicas": 5, "template": template() } });
    let facts = Facts::from_manifest(&manifest).unwrap();
    let direct = Direct::SpreadOnto(facts.asks.spread_onto.clone().unwrap());
    decide_direct(&facts, &direct, fleet, &BTreeMap::new())
}

#[test]
fn annotations_do_not_walk_around_fences() {
    let mut fleet = fleet(&[("a", 1), ("b", 1), ("c", 1)]);
    taint(&mut fleet, "b", "NoSchedule");
    let decision = decide_spread_onto(&fleet, "b,a,x");
    let targets: Vec<_> = decision.targets.iter().map(|one| (one.cluster.as_str(), one.share)).collect();
    assert_eq!((targets, decision.withheld), (vec![("a", Some(Share::Replicas(2)))], Some(3)));
    let why: Vec<String> = decision.blocked.values().map(ToString::to_string).collect();
    assert_eq!(why, ["Tainted k", "ClusterUnknown"]);
    assert_eq!(
        decide_spread_onto(&fleet, "c::Duplicate").targets,
        [DirectTarget { cluster: "c".to_owned(), share: None }]
    );
}

fn replicas_by_cluster(targets: &[Target]) -> Vec<(String, BTreeMap<ObjectKey, Share>)> {
    targets.iter().map(|one| (one.cluster.clone(), one.replicas.clone())).collect()
}

#[test]
fn a_group_with_volumes_leaves_no_domain() {
    let even = spread(json!({ "topologyKey": "name" }));
    let set = object(
        "apps/v1",
        "StatefulSet",
        "db",
        json!({ "replicas": 4, "template": template(), "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] }),
    );
    let mut fleet = fleet(&[("a", 10), ("b", 10)]);
    for name in ["a", "b"] {
        fleet.get_mut(name).unwrap().labels = [("name".to_owned(), name.to_owned())].into();
    }
    let both = [share("a", &set, Share::Replicas(2)), share("b", &set, Share::Replicas(2))];
    let decide = |fleet: &Fleet| {
        let decision = decide_group(&even, &Group::new("g", &even, [&set]), fleet, &at(&both));
        (decision.outcome, decision.how, replicas_by_cluster(&decision.targets))
    };
    fleet.get_mut("b").unwrap().labels.clear();
    assert_eq!(decide(&fleet), (Outcome::Placed, Some(How::Volumes), replicas_by_cluster(&both)), "its label is gone");
    fleet.remove_cluster("b");
    assert_eq!(
        decide(&fleet),
        (Outcome::HasVolumes, Some(How::Volumes), replicas_by_cluster(&both[..1])),
        "and now the cluster"
    );
}

fn deployment_with_claim(annotations: &Value) -> Facts {
    let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    let pods = json!({ "spec": { "containers": [{ "name": "c" }], "volumes": [volume] } });
    let metadata = json!({ "name": "web", "namespace": "n", "annotations": annotations });
    let manifest = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": { "template": pods } });
    Facts::from_manifest(&manifest).unwrap()
}

fn is_group_held(policy: &Policy, members: &[&Facts]) -> bool {
    Group::new("g", policy, members.iter().copied()).is_held()
}

#[test]
fn what_mounts_a_claim_has_volumes() {
    let policy = policy(json!({}));
    let consent = json!({ "fleet-scheduler.io/allow-volume-move": "true" });
    assert!(
        is_group_held(&policy, &[&deployment_with_claim(&json!({}))]),
        "the claim may be in the workload cluster alone"
    );
    assert!(!is_group_held(&policy, &[&deployment_with_claim(&consent)]), "then the workload speaks for it");
    let web = deployment_with_claim(&consent);
    assert!(is_group_held(&policy, &[&web, &claim()]), "a claim speaks for itself");
    let data = claim();
    assert!(Group::with_followers("g", &policy, [&web], [&data]).is_held(), "also one that follows");
}

#[test]
fn a_settled_group_asks_for_no_room() {
    let policy = policy(json!({}));
    let fleet = fleet(&[("a", 2), ("b", 10)]);
    let web = web(4);
    let group = Group::new("g", &policy, [&web]);
    for (is_settled, cluster) in [(false, "b"), (true, "a")] {
        let current = Current { is_settled, ..at(&[target("a")]) };
        assert_eq!(decide_group(&policy, &group, &fleet, &current).targets[0].cluster, cluster);
    }
}

#[test]
fn a_domain_has_one_target_while_one_of_its_clusters_is_drained() {
    let parts = json!([{ "topologyValue": "z", "percentage": 100 }]);
    let split = spread(json!({ "topologyKey": "zone", "percentageSplit": parts }));
    let mut fleet = fleet(&[("a", 10), ("b", 10)]);
    for name in ["a", "b"] {
        fleet.get_mut(name).unwrap().labels = [("zone".to_owned(), "z".to_owned())].into();
    }
    taint(&mut fleet, "a", "NoExecute");
    let web = web(4);
    let current =
        at(&["a", "b"]
            .map(|cluster| Target { domain: Some("z".to_owned()), ..share(cluster, &web, Share::Replicas(4)) }));
    let decision = decide_group(&split, &Group::new("g", &split, [&web]), &fleet, &current);
    assert_eq!(clusters(&decision), ["b"]);
}

#[test]
fn a_fence_that_does_not_drain_freezes_annotated_copies() {
    let mut fleet = fleet(&[("a", 10), ("b", 10), ("c", 10)]);
    taint(&mut fleet, "a", "NoSchedule");
    taint(&mut fleet, "b", "NoExecute");
    fleet.get_mut("c").unwrap().accepted = false;
    let named = ["a", "b", "c", "unknown"].map(str::to_owned).to_vec();
    let onto = Direct::SpreadOnto(crate::placement::facts::SpreadOnto { clusters: named, duplicate: true });
    let decision = decide_direct(&web(2), &onto, &fleet, &BTreeMap::new());
    assert_eq!(decision.frozen, ["a", "c"].map(str::to_owned).into());
    assert_eq!(decision.blocked.len(), 4);
}
