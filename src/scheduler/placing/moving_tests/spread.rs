//! Moves of groups that are divided over clusters, or copied to all: what leaves a cluster is made up for first.

use super::once::complete;
use super::*;
use crate::api::crd::condition::find_condition;
use crate::placement::moves::{ClusterAmounts, MoveCause};

const NAMES: [&str; 3] = ["east", "north", "west"];

/// Three clusters, and what each of them runs now; a cluster that is `slow` gets no more pods.
struct Spread {
    scene: Scene,
    web: ObjectKey,
    pods: BTreeMap<String, i64>,
    replicas: i64,
    slow: Vec<&'static str>,
}

fn amounts(all: &[(&str, i64)]) -> ClusterAmounts {
    all.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

impl Spread {
    fn new(constraints: &Value, replicas: i64) -> Self {
        let mut scene = Scene::new();
        let mut north = scene.clusters["east"].clone();
        (north["metadata"]["name"], north["metadata"]["uid"]) = (json!("north"), json!("north"));
        north["spec"]["name"] = json!("north");
        scene.clusters.insert("north".to_owned(), north);
        for name in NAMES {
            scene.edit_cluster(name, |one| one["metadata"]["labels"] = json!({"region": name}));
        }
        scene.policy["spec"]["spreadConstraints"] = constraints.clone();
        scene.put_policy();
        let web = scene.web("shop", replicas);
        scene.settle(&web);
        let mut spread = Self { scene, web, pods: BTreeMap::new(), replicas, slow: Vec::new() };
        spread.play();
        spread
    }

    fn sum(&self) -> i64 {
        self.pods.values().sum()
    }

    /// Plays each agent once, and the scheduler after each. A copy runs what it is asked for: more comes up, less goes at once.
    fn turn(&mut self, floor: i64) {
        for name in NAMES.into_iter().filter(|name| self.scene.clusters.contains_key(*name)).collect::<Vec<_>>() {
            let asked: i64 = self.shares(name).iter().sum();
            let has = self.pods.get(name).copied().unwrap_or(0);
            let now = if self.slow.contains(&name) { has.min(asked) } else { asked };
            self.pods.insert(name.to_owned(), now);
            assert!(self.sum() >= floor, "{:?} after a turn of {name}", self.pods);
            self.scene.agent(name, true);
            for mut schedule in self.scene.schedules(name) {
                let is_divided = schedule.spec.share.as_ref().is_some_and(|share| share.replicas.is_some());
                if is_divided && schedule.metadata.deletion_timestamp.is_none() {
                    schedule.metadata.resource_version = Some(self.scene.next_version());
                    let status = schedule.status.as_mut().unwrap();
                    (status.available, status.served) = (Some(now), Some(now.min(asked)));
                    self.scene.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), Instant::now());
                }
            }
            let web = self.web.clone();
            self.scene.settle(&web);
        }
    }

    fn play(&mut self) {
        for _ in 0..6 {
            self.turn(0);
        }
    }

    /// Returns the shares of the live copies in a cluster.
    fn shares(&self, name: &str) -> Vec<i64> {
        let live = self.scene.schedules(name).into_iter().filter(|one| one.metadata.deletion_timestamp.is_none());
        live.map(|schedule| schedule.spec.share.and_then(|share| share.replicas).unwrap_or(self.replicas)).collect()
    }

    fn target(&self) -> ClusterAmounts {
        self.scene.record(&self.web).target
    }

    fn cause(&self) -> Option<MoveCause> {
        self.scene.record(&self.web).running.map(|running| running.cause)
    }

    fn scale(&mut self, replicas: i64) {
        self.replicas = replicas;
        self.web = self.scene.web("shop", replicas);
        let web = self.web.clone();
        self.scene.settle(&web);
    }
}

fn evenly() -> Value {
    json!({"topologyKey": "region", "spreadMode": "Divide"})
}

#[tokio::test]
async fn a_drained_share_comes_up_elsewhere_before_it_goes() {
    let mut spread = Spread::new(&evenly(), 9);
    assert_eq!(spread.target(), amounts(&[("east", 3), ("north", 3), ("west", 3)]));
    spread.scene.drain("north", true);
    spread.slow = vec!["east"];
    for _ in 0..3 {
        spread.turn(9);
    }
    assert_eq!((spread.scene.phase(&spread.web), spread.cause()), (Some(MovePhase::Up), Some(MoveCause::Drain)));
    assert_eq!(spread.shares("north"), [3], "east does not have its pods");
    spread.slow.clear();
    for _ in 0..6 {
        spread.turn(9);
    }
    assert_eq!(spread.scene.phase(&spread.web), None);
    let target = spread.target();
    assert_eq!((target.len(), target.values().sum::<i64>(), target.get("north")), (2, 9, None));
    assert!(spread.scene.schedules("north").is_empty());
    assert_eq!(spread.scene.reasons("ScheduleGroup"), ["Moving", "Moved"]);
}

#[tokio::test]
async fn a_drained_share_that_does_not_come_up_stays() {
    let mut spread = Spread::new(&evenly(), 9);
    spread.scene.drain("north", true);
    spread.slow = vec!["east", "west"];
    spread.turn(9);
    spread.scene.advance(DEADLINE);
    for _ in 0..6 {
        spread.turn(9);
    }
    assert_eq!(
        (spread.scene.phase(&spread.web), spread.target()),
        (None, amounts(&[("east", 3), ("north", 3), ("west", 3)]))
    );
    assert_eq!((spread.shares("east"), spread.shares("north")), (vec![3], vec![3]));
    assert_eq!(spread.scene.reasons("ScheduleGroup"), ["Moving", "MoveFailed"]);
    // What waits is scaled where it is.
    spread.slow.clear();
    spread.scale(12);
    spread.play();
    assert_eq!(spread.target().values().sum::<i64>(), 12);
}

#[tokio::test]
async fn scaling_is_no_move() {
    let mut spread = Spread::new(&evenly(), 9);
    for (replicas, shares) in [(12, 4), (3, 1), (0, 0), (6, 2)] {
        spread.scale(replicas);
        assert_eq!(spread.scene.phase(&spread.web), None);
        spread.play();
        assert_eq!(spread.target(), amounts(&NAMES.map(|name| (name, shares))), "{replicas}");
        assert_eq!(NAMES.map(|name| spread.shares(name)), [vec![shares], vec![shares], vec![shares]]);
    }
    assert_eq!(spread.scene.reasons("ScheduleGroup"), Vec::<&str>::new());
}

#[tokio::test]
async fn other_percentages_move_pods_and_lose_none() {
    let [before, after] = [(80, 20), (20, 80)].map(|(east, west)| {
        json!({"topologyKey": "region", "percentageSplit": [
            {"topologyValue": "east", "percentage": east}, {"topologyValue": "west", "percentage": west}]})
    });
    let mut spread = Spread::new(&before, 10);
    assert_eq!(spread.target(), amounts(&[("east", 8), ("west", 2)]));
    spread.scene.policy["spec"]["spreadConstraints"] = after;
    spread.scene.put_policy();
    let web = spread.web.clone();
    spread.scene.settle(&web);
    assert_eq!(
        (spread.cause(), spread.shares("east"), spread.shares("west")),
        (Some(MoveCause::Policy), vec![8], vec![8])
    );
    for _ in 0..6 {
        spread.turn(10);
    }
    assert_eq!((spread.scene.phase(&web), spread.target()), (None, amounts(&[("east", 2), ("west", 8)])));
    assert_eq!((spread.shares("east"), spread.shares("west")), (vec![2], vec![8]));
}

#[tokio::test]
async fn copies_that_are_divided_lose_no_pod_while_that_waits() {
    let mut spread = Spread::new(&json!({"topologyKey": "region", "spreadMode": "Duplicate"}), 6);
    // The first minute of a term begins no move.
    spread.scene.restart();
    spread.scene.policy["spec"]["spreadConstraints"] = json!({"topologyKey": "region", "percentageSplit": [
        {"topologyValue": "north", "percentage": 34}, {"topologyValue": "west", "percentage": 66}]});
    spread.scene.put_policy();
    for _ in 0..6 {
        spread.turn(6);
    }
    spread.scene.advance(GATE);
    for _ in 0..6 {
        spread.turn(6);
    }
    assert_eq!((spread.target(), spread.sum()), (amounts(&[("north", 2), ("west", 4)]), 6));
}

#[tokio::test]
async fn a_copy_in_every_cluster_leaves_a_drained_one() {
    let mut spread = Spread::new(&json!({"topologyKey": "region", "spreadMode": "Duplicate"}), 2);
    assert_eq!(spread.target(), amounts(&NAMES.map(|name| (name, 1))));
    spread.scene.drain("north", true);
    spread.play();
    assert_eq!(spread.target(), amounts(&[("east", 1), ("west", 1)]));
    assert!(spread.scene.schedules("north").is_empty());
    spread.scene.drain("north", false);
    // A cluster that joins, or is taken again, is noticed with the next look at what waits.
    let name = spread.scene.group_name(&spread.web);
    spread.scene.placing.store.mark_undecided(name, Instant::now());
    spread.play();
    assert_eq!(spread.target(), amounts(&NAMES.map(|name| (name, 1))));
}

#[tokio::test]
async fn a_lost_share_goes_elsewhere_only_with_failover() {
    for has_failover in [false, true] {
        let mut spread = Spread::new(&evenly(), 9);
        if has_failover {
            spread.scene.policy["spec"]["failover"] = json!({"enabled": true, "afterSeconds": 60});
            spread.scene.put_policy();
        }
        spread.scene.set_ready("north", false);
        for _ in 0..4 {
            spread.scene.advance(GATE);
            spread.turn(9);
        }
        assert_eq!(spread.target().contains_key("north"), !has_failover);
        assert_eq!(spread.target().values().sum::<i64>(), 9);
    }
}

#[tokio::test]
async fn a_policy_that_divides_or_no_longer_does_loses_no_pod() {
    let (mut scene, web) = Scene::placed();
    scene.policy["spec"]["spreadConstraints"] = json!({"spreadMode": "Divide"});
    scene.put_policy();
    let pods = BTreeMap::from([("east".to_owned(), 3)]);
    let mut spread = Spread { scene, web, pods, replicas: 3, slow: Vec::new() };
    for _ in 0..6 {
        spread.turn(3);
    }
    assert_eq!((spread.target().len(), spread.sum()), (2, 3), "{:?}", spread.target());
    spread.scene.policy["spec"]["spreadConstraints"] = json!(null);
    spread.scene.put_policy();
    for _ in 0..6 {
        spread.turn(3);
    }
    assert_eq!((spread.target().values().collect::<Vec<_>>(), spread.sum()), (vec![&1], 3));
}

#[tokio::test]
async fn a_share_of_a_job_that_is_complete_says_nothing_of_the_others() {
    let mut scene = Spread::new(
        &json!({"spreadMode": "Divide", "topologyKey": "region", "percentageSplit": [
        {"topologyValue": "east", "percentage": 60}, {"topologyValue": "west", "percentage": 40}]}),
        2,
    )
    .scene;
    let job = scene.job("shop");
    scene.settle(&job);
    let completions = |scene: &Scene, cluster: &str| {
        let copies = scene.schedules(cluster);
        let copy = copies.iter().find(|one| one.spec.source_ref.kind == "Job")?;
        copy.spec.share.as_ref().and_then(|share| share.completions)
    };
    assert_eq!((completions(&scene, "east"), completions(&scene, "west")), (Some(1), Some(0)));
    scene.report_resource("west", "Job", &complete());
    // Somebody deletes the copy that has not run yet.
    let lost = scene.schedules("east").into_iter().find(|one| one.spec.source_ref.kind == "Job").unwrap();
    scene.placing.store.apply_change(Change::Schedule(Seen::Gone(lost)), Instant::now());
    scene.settle(&job);
    assert_eq!(completions(&scene, "east"), Some(1), "it is made again");
}

#[tokio::test]
async fn a_finished_job_is_recorded_where_it_is_when_its_policy_is_back() {
    let mut scene = Spread::new(&Value::Null, 2).scene;
    // In a group of its own.
    let job = scene.job("tools");
    scene.settle(&job);
    let home = scene.record(&job).target.into_keys().next().unwrap();
    scene.report_resource(&home, "Job", &complete());
    scene.report_source(&job, &complete());
    scene.settle(&job);
    let both = json!({"spreadMode": "Duplicate", "topologyKey": "region"});
    for constraints in [both, Value::Null] {
        scene.policy["spec"]["spreadConstraints"] = constraints;
        scene.put_policy();
        scene.settle(&job);
    }
    let gone: SchedulePolicy = serde_json::from_value(scene.policy.clone()).unwrap();
    scene.placing.store.apply_change(Change::Policy(Seen::Gone(gone)), Instant::now());
    scene.settle(&job);
    scene.put_policy();
    scene.settle(&job);
    assert_eq!(scene.record(&job).target, amounts(&[(&home, 1)]));
    let conditions = scene.group(&job).status.unwrap().conditions;
    assert_eq!(find_condition(&conditions, "Scheduled").unwrap().reason, "Placed");
    assert_eq!(NAMES.map(|name| scene.copies_of_kind(name, "Job")).iter().sum::<usize>(), 1);
    // A policy that wants it elsewhere changes nothing but the reason.
    scene.policy["spec"]["clusterSelector"] = json!({"matchLabels": {"region": other(&home)}});
    scene.put_policy();
    scene.settle(&job);
    let status = scene.group(&job).status.unwrap();
    let scheduled = find_condition(&status.conditions, "Scheduled").unwrap();
    let stays = format!("Stays on {home:?}: it has ended");
    assert_eq!((&*scheduled.reason, &*scheduled.message), ("Placed", &*stays));
    assert_eq!(status.target_clusters, [home]);
}

#[tokio::test]
async fn what_was_divided_and_is_copied_to_all_comes_to_rest() {
    let mut spread = Spread::new(&evenly(), 9);
    for constraints in [json!({"topologyKey": "region", "spreadMode": "Duplicate"}), evenly()] {
        spread.scene.policy["spec"]["spreadConstraints"] = constraints.clone();
        spread.scene.put_policy();
        let web = spread.web.clone();
        spread.scene.settle(&web);
        spread.play();
        spread.play();
        let asked = NAMES.map(|name| spread.scene.clusters[name]["metadata"]["annotations"][ANNOTATION_ASK].clone());
        spread.play();
        let again = NAMES.map(|name| spread.scene.clusters[name]["metadata"]["annotations"][ANNOTATION_ASK].clone());
        assert_eq!(asked, again, "nobody is asked when nothing changes");
    }
}
