//! Groups that leave a cluster though nobody asked for a drain: it is lost, its pods find no node, a kind is not served, or
//! somebody asks for a better place.

use super::*;
use crate::api::crd::cluster::reasons;
use crate::api::labels::ANNOTATION_REBALANCE;
use crate::placement::moves::{ExclusionReason, MoveCause};

impl Scene {
    /// Places a Deployment, which serves in east, by a policy whose groups leave lost clusters after a minute.
    fn with_failover() -> (Self, ObjectKey) {
        let (mut scene, web) = Self::placed();
        scene.policy["spec"]["failover"] = json!({"enabled": true, "afterSeconds": 60});
        scene.put_policy();
        scene.settle(&web);
        (scene, web)
    }

    pub(super) fn set_ready(&mut self, name: &str, is_ready: bool) {
        let now = Timestamp::from_second(self.now).unwrap().to_string();
        let reason = if is_ready { reasons::READY } else { reasons::HEARTBEAT_LOST };
        let ready = json!({"type": "Ready", "status": if is_ready { "True" } else { "False" }, "reason": reason,
            "message": "", "lastTransitionTime": now});
        self.edit_cluster(name, |cluster| cluster["status"]["conditions"][0] = ready);
    }

    fn cause(&self, key: &ObjectKey) -> Option<MoveCause> {
        self.record(key).running.map(|running| running.cause)
    }

    fn target(&self, key: &ObjectKey) -> Vec<String> {
        self.record(key).target.into_keys().collect()
    }

    fn scheduled_reason(&self, key: &ObjectKey) -> String {
        let conditions = self.group(key).status.unwrap().conditions;
        conditions.into_iter().find(|one| one.type_ == "Scheduled").unwrap().reason
    }

    /// Plays the agent of a cluster that reports something else of each copy.
    fn report(&mut self, cluster: &str, edit: impl Fn(&mut Value)) {
        for schedule in self.schedules(cluster) {
            let version = self.next_version();
            let mut body = serde_json::to_value(schedule).unwrap();
            body["metadata"]["resourceVersion"] = json!(version);
            edit(&mut body["status"]);
            let schedule: Schedule = serde_json::from_value(body).unwrap();
            self.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), Instant::now());
        }
    }

    /// Plays an agent with two of three pods without a node since then.
    fn report_pending(&mut self, cluster: &str, since: i64) {
        let since = Timestamp::from_second(since).unwrap().to_string();
        self.report(cluster, |status| {
            status["pods"] = json!({"desired": 3, "bound": 1, "counted": 1, "unschedulableSince": since});
        });
    }

    fn count_events(&self, reason: &str) -> usize {
        self.events.iter().filter(|(about, one)| about == "ScheduleGroup" && *one == reason).count()
    }

    fn annotate_group(&mut self, key: &ObjectKey, value: &str) {
        let mut group = self.group(key);
        group.annotations_mut().insert(ANNOTATION_REBALANCE.to_owned(), value.to_owned());
        group.metadata.resource_version = Some(self.next_version());
        self.placing.store.apply_change(Change::Group(Seen::There(group)), Instant::now());
    }

    fn fill(&mut self, cluster: &str, free: &str) {
        self.edit_cluster(cluster, |one| one["status"]["availableResources"]["n"]["cpu"] = json!(free));
    }
}

#[tokio::test]
async fn a_lost_cluster_is_left_after_its_time_where_the_policy_says_so() {
    let (mut scene, web) = Scene::placed();
    scene.set_ready("east", false);
    scene.advance(3_600);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.hashes("west").len()), (None, 0), "nobody asked for it");

    let (mut scene, web) = Scene::with_failover();
    scene.set_ready("east", false);
    scene.settle(&web);
    scene.advance(59);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), None, "it may come back");
    scene.advance(1);
    scene.settle(&web);
    assert_eq!((scene.cause(&web), scene.hashes("west").len()), (Some(MoveCause::Failover), 1));
    assert!(scene.deleted.is_empty(), "what is there is not given up before the new copy serves");
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!((scene.target(&web), &scene.deleted[..]), (vec!["west".to_owned()], &[("east".to_owned(), true)][..]));
    // Its agent comes back, and removes what was given up meanwhile.
    scene.set_ready("east", true);
    scene.play(&web);
    assert_eq!((scene.schedules("east").len(), scene.target(&web)), (0, vec!["west".to_owned()]));
    assert_eq!(scene.reasons("ScheduleGroup"), ["Moving", "Moved"]);
}

#[tokio::test]
async fn a_cluster_that_is_back_in_time_keeps_its_groups() {
    let (mut scene, web) = Scene::with_failover();
    scene.set_ready("east", false);
    scene.advance(60);
    scene.settle(&web);
    assert_eq!(scene.cause(&web), Some(MoveCause::Failover));
    scene.set_ready("east", true);
    for _ in 0..4 {
        scene.settle(&web);
        scene.agent("east", true);
        scene.agent("west", false);
    }
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.target(&web)), (None, vec!["east".to_owned()]));
    assert_eq!((scene.schedules("west").len(), scene.record(&web).retry), (0, None), "that is no failure");
    assert_eq!(scene.reasons("ScheduleGroup"), ["Moving", "MoveWithdrawn"]);
}

#[tokio::test]
async fn nothing_leaves_when_most_clusters_are_lost() {
    let (mut scene, web) = Scene::with_failover();
    scene.placing.index.set_frozen(true);
    scene.set_ready("east", false);
    scene.advance(600);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.scheduled_reason(&web).as_str()), (None, "Frozen"));
    assert!(scene.group(&web).status.unwrap().scheduled, "it has its place");
    scene.placing.index.set_frozen(false);
    scene.set_ready("east", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.scheduled_reason(&web).as_str()), (None, "Placed"));
    scene.placing.index.set_frozen(true);
    scene.drain("east", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.scheduled_reason(&web).as_str()), (None, "Frozen"));
    scene.placing.index.set_frozen(false);
    scene.advance(1);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.scheduled_reason(&web).as_str()), (Some(MovePhase::Up), "Placed"));
}

#[tokio::test]
async fn one_group_leaves_a_lost_cluster_in_two_seconds() {
    let mut scene = Scene::new();
    scene.policy["spec"]["failover"] = json!({"enabled": true, "afterSeconds": 60});
    scene.put_policy();
    let webs: Vec<ObjectKey> = (0..3).map(|number| scene.web(&format!("shop-{number}"), 1)).collect();
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(false));
    for web in &webs {
        scene.settle(web);
    }
    scene.agent("east", true);
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(true));
    scene.set_ready("east", false);
    scene.advance(60);
    for (second, expected) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3)] {
        for web in &webs {
            scene.settle(web);
        }
        let moving = webs.iter().filter(|web| scene.phase(web).is_some()).count();
        assert_eq!(moving, expected, "second {second}");
        scene.advance(1);
    }
}

#[tokio::test]
async fn volumes_stay_in_a_lost_cluster() {
    let (mut scene, web) = Scene::with_failover();
    let spec = json!({"serviceName": "s", "selector": {"matchLabels": {"a": "d"}},
        "template": {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]});
    scene.put("shop", "apps", "StatefulSet", json!({"metadata": {"name": "data"}, "spec": spec}));
    scene.settle(&web);
    scene.set_ready("east", false);
    scene.advance(3_600);
    scene.settle(&web);
    assert_eq!((scene.hashes("east").len(), scene.hashes("west").len(), &scene.deleted), (2, 0, &Vec::new()));
}

#[tokio::test]
async fn a_failover_of_seconds_is_not_valid() {
    let (mut scene, web) = Scene::placed();
    scene.policy["spec"]["failover"] = json!({"enabled": true, "afterSeconds": 5});
    scene.put_policy();
    let plan = scene.placing.plan_request(&ReconcileRequest::Policy("all".to_owned()));
    let statuses = plan.stages.into_iter().flatten().filter_map(|write| match write {
        Write::PolicyStatus { status, .. } => Some(status),
        _ => None,
    });
    let valid = statuses.flat_map(|status| status.conditions).find(|one| one.type_ == "Valid").unwrap();
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "FailoverTooShort"));
    scene.set_ready("east", false);
    scene.advance(3_600);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), None);
}

#[tokio::test]
async fn pods_without_a_node_leave_after_two_minutes() {
    let (mut scene, web) = Scene::placed();
    scene.report_pending("east", scene.now);
    scene.advance(119);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.record(&web).excluded.len()), (None, 0));
    scene.advance(1);
    scene.settle(&web);
    let record = scene.record(&web);
    assert_eq!((scene.cause(&web), scene.hashes("west").len()), (Some(MoveCause::Unschedulable), 1));
    assert_eq!((&*record.excluded[0].cluster, record.excluded[0].reason), ("east", ExclusionReason::Unschedulable));
    assert_eq!(scene.count_events("ReschedulingTriggered"), 1);
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.target(&web)), (None, vec!["west".to_owned()]));
}

#[tokio::test]
async fn pods_without_a_node_stay_where_no_other_cluster_has_room() {
    let (mut scene, web) = Scene::placed();
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(false));
    scene.settle(&web);
    scene.report_pending("east", scene.now);
    scene.advance(120);
    scene.settle(&web);
    let status = scene.group(&web).status.unwrap();
    assert_eq!((status.record.excluded.len(), status.record.running, status.scheduled), (1, None, true));
    assert_eq!((scene.target(&web), scene.deleted.len()), (vec!["east".to_owned()], 0));
    // A further node ends that, and the pods get their time again.
    scene.edit_cluster("east", |one| {
        for field in ["availableResources", "capacityResources"] {
            one["status"][field]["m"] = json!({"cpu": "8", "memory": "8Gi", "pods": "10"});
        }
    });
    scene.advance(1);
    scene.settle(&web);
    assert!(scene.record(&web).excluded.is_empty());
    scene.advance(119);
    scene.settle(&web);
    assert_eq!((scene.record(&web).excluded.len(), scene.count_events("ReschedulingTriggered")), (0, 1));
    scene.advance(1);
    scene.settle(&web);
    assert_eq!((scene.record(&web).excluded.len(), scene.count_events("ReschedulingTriggered")), (1, 2));
}

#[tokio::test]
async fn the_last_report_of_a_lost_cluster_moves_nothing() {
    let (mut scene, web) = Scene::placed();
    scene.report_pending("east", scene.now);
    scene.set_ready("east", false);
    scene.advance(600);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.record(&web).excluded.len()), (None, 0));
}

#[tokio::test]
async fn a_rollout_without_room_moves_nothing() {
    let (mut scene, web) = Scene::placed();
    let since = Timestamp::from_second(scene.now).unwrap().to_string();
    scene.report("east", |status| {
        status["pods"] = json!({"desired": 3, "bound": 3, "counted": 3, "unschedulableSince": since});
    });
    scene.advance(600);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.record(&web).excluded.len()), (None, 0));
}

#[tokio::test]
async fn pods_of_an_older_template_that_serve_keep_their_group() {
    let (mut scene, web) = Scene::placed();
    scene.report_pending("east", scene.now);
    scene.report("east", |status| status["resource"] = json!(r#"{"replicas":3,"updatedReplicas":2}"#));
    scene.advance(600);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.record(&web).excluded.len()), (None, 0));
    scene.report("east", |status| status["resource"] = json!(r#"{"replicas":3,"updatedReplicas":3}"#));
    scene.settle(&web);
    assert_eq!(scene.cause(&web), Some(MoveCause::Unschedulable), "all are of one template");
}

#[tokio::test]
async fn a_daemonset_stays_where_a_node_takes_it() {
    for (bound, cause) in [(1, None), (0, Some(MoveCause::Unschedulable))] {
        let mut scene = Scene::new();
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
        let log = scene.put("shop", "apps", "DaemonSet", json!({"metadata": {"name": "log"}, "spec": spec}));
        scene.settle(&log);
        let at = scene.target(&log).remove(0);
        scene.agent(&at, true);
        scene.settle(&log);
        scene.report_pending(&at, scene.now);
        scene.report(&at, |status| status["pods"]["bound"] = json!(bound));
        scene.advance(120);
        scene.settle(&log);
        assert_eq!(scene.cause(&log), cause, "{bound}");
    }
}

#[tokio::test]
async fn what_failed_elsewhere_is_tried_again_before_the_place_that_was_left() {
    let (mut scene, web) = Scene::placed();
    scene.report_pending("east", scene.now);
    scene.advance(120);
    scene.settle(&web);
    assert_eq!(scene.cause(&web), Some(MoveCause::Unschedulable));
    for _ in 0..4 {
        scene.advance(DEADLINE);
        scene.agent("east", true);
        scene.agent("west", false);
        scene.report_pending("east", scene.now - 120);
        scene.settle(&web);
    }
    scene.agent("west", false);
    scene.settle(&web);
    let retry = scene.record(&web).retry.unwrap();
    assert_eq!((scene.target(&web), retry.attempt > 0), (vec!["east".to_owned()], true));
    // Nothing is reported: the time alone brings it back.
    while scene.now < retry.not_before {
        scene.advance(1);
        if !scene.placing.moves.take_alarms(scene.now).is_empty() {
            scene.settle(&web);
        }
    }
    assert_eq!((scene.cause(&web), scene.hashes("west").len()), (Some(MoveCause::Unschedulable), 1));
}

#[tokio::test]
async fn a_decision_whose_record_was_not_written_is_written_again() {
    let mut scene = Scene::new();
    for name in ["east", "west"] {
        scene.edit_cluster(name, |one| one["spec"]["accepted"] = json!(false));
    }
    let web = scene.web("shop", 3);
    scene.settle(&web);
    scene.edit_cluster("west", |one| one["spec"]["accepted"] = json!(true));
    scene.put_policy();
    let lost = scene.plan(&web);
    assert!(!lost.stages.is_empty());
    scene.settle(&web);
    assert_eq!(scene.target(&web), ["west"]);
}

#[tokio::test]
async fn a_kind_that_is_not_served_leaves_at_once() {
    let (mut scene, web) = Scene::placed();
    scene.report("east", |status| {
        status["conditions"] =
            json!([{"type": "Applied", "status": "False", "reason": "KindNotServed", "message": ""}]);
    });
    scene.settle(&web);
    assert_eq!((scene.cause(&web), scene.count_events("ReschedulingTriggered")), (Some(MoveCause::KindNotServed), 1));
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!(scene.target(&web), ["west"]);
}

#[tokio::test]
async fn a_better_place_is_taken_only_when_somebody_asks() {
    let (mut scene, web) = Scene::placed();
    scene.fill("east", "8");
    scene.settle(&web);
    scene.advance(60);
    scene.settle(&web);
    assert_eq!(scene.phase(&web), None, "nobody asked");
    scene.annotate_group(&web, "1");
    scene.settle(&web);
    assert_eq!(scene.cause(&web), Some(MoveCause::Rebalance));
    // The places are as good as each other by now: the move goes on.
    scene.fill("west", "8");
    scene.settle(&web);
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.target(&web)), (None, vec!["west".to_owned()]));
    scene.fill("east", "64");
    scene.restart();
    scene.advance(GATE);
    scene.play(&web);
    assert_eq!(scene.target(&web), ["west"], "what was asked is done");
    scene.policy["metadata"]["annotations"] = json!({ ANNOTATION_REBALANCE: "1" });
    scene.put_policy();
    scene.play(&web);
    assert_eq!(scene.target(&web), ["east"]);
}

#[tokio::test]
async fn a_place_that_is_hardly_better_is_not_taken() {
    let (mut scene, web) = Scene::placed();
    scene.fill("east", "58");
    scene.annotate_group(&web, "1");
    scene.play(&web);
    assert_eq!((scene.target(&web), scene.reasons("ScheduleGroup")), (vec!["east".to_owned()], vec![]));
    scene.fill("east", "8");
    scene.play(&web);
    assert_eq!(scene.target(&web), ["east"], "it was asked once");
}
