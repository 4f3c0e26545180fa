//! Moves of what runs once: it is stopped first, begins again elsewhere only if it had not finished, and moves only where its
//! cluster is given up.

use super::*;

impl Scene {
    pub(super) fn job(&mut self, namespace: &str) -> ObjectKey {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
        let spec = json!({"template": {"spec": pod}});
        self.put(namespace, "batch", "Job", json!({"metadata": {"name": "once"}, "spec": spec}))
    }

    fn cron_job(&mut self, namespace: &str) -> ObjectKey {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
        let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
        self.put(namespace, "batch", "CronJob", json!({"metadata": {"name": "nightly"}, "spec": spec}))
    }

    /// The status of the source becomes what its copies say, as the watch brings it.
    pub(super) fn report_source(&mut self, key: &ObjectKey, status: &Value) {
        let (kind, mut body) = self.bodies[key].clone();
        body["metadata"]["resourceVersion"] = json!(self.next_version());
        body["status"] = status.clone();
        self.bodies.insert(key.clone(), (kind, body.clone()));
        self.placing.store.on_fetched(kind, serde_json::from_value(body).unwrap(), Instant::now());
    }

    /// Plays an agent whose copies of a kind say this.
    pub(super) fn report_resource(&mut self, cluster: &str, kind: &str, resource: &Value) {
        self.agent(cluster, true);
        for mut schedule in self.schedules(cluster) {
            if schedule.spec.source_ref.kind == kind {
                schedule.metadata.resource_version = Some(self.next_version());
                let status = schedule.status.as_mut().unwrap();
                status.resource = Some(resource.to_string());
                status.finished = live_is_over(resource).then_some(true);
                self.placing.store.apply_change(Change::Schedule(Seen::There(schedule)), Instant::now());
            }
        }
    }

    pub(super) fn copies_of_kind(&self, cluster: &str, kind: &str) -> usize {
        self.schedules(cluster).iter().filter(|one| one.spec.source_ref.kind == kind).count()
    }

    fn restarts(&self, kind: &str) -> usize {
        self.events.iter().filter(|(about, reason)| about == kind && *reason == "Restarted").count()
    }
}

fn live_is_over(resource: &Value) -> bool {
    crate::placement::live::is_finished(resource)
}

fn running() -> Value {
    json!({"startTime": "2026-01-01T00:00:00Z", "active": 1})
}

pub(super) fn complete() -> Value {
    json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]})
}

/// A Job that runs in east.
fn started() -> (Scene, ObjectKey) {
    let mut scene = Scene::new();
    let job = scene.job("shop");
    scene.settle(&job);
    assert_eq!((scene.copies_of_kind("east", "Job"), scene.record(&job).target.len()), (1, 1));
    scene.report_resource("east", "Job", &running());
    scene.settle(&job);
    (scene, job)
}

#[tokio::test]
async fn a_drained_job_is_stopped_and_begins_again_once() {
    let (mut scene, job) = started();
    scene.drain("east", true);
    scene.settle(&job);
    assert_eq!(scene.phase(&job), Some(MovePhase::Removing));
    assert_eq!((scene.deleted.len(), scene.copies_of_kind("west", "Job")), (1, 0), "it is not stopped yet");
    assert_eq!(scene.label(&job).as_deref(), Some("east"));
    for _ in 0..3 {
        scene.report_resource("east", "Job", &running());
        scene.settle(&job);
    }
    assert_eq!((scene.copies_of_kind("east", "Job"), scene.copies_of_kind("west", "Job")), (0, 1));
    assert_eq!((scene.phase(&job), scene.label(&job).as_deref()), (None, Some("west")));
    assert_eq!((scene.restarts("Job"), scene.reasons("ScheduleGroup")), (1, vec!["Moving", "Moved"]));
    // Whoever leads next leaves it.
    scene.restart();
    scene.advance(GATE);
    scene.report_resource("west", "Job", &running());
    scene.settle(&job);
    assert_eq!((scene.phase(&job), scene.copies_of_kind("west", "Job"), scene.deleted.len()), (None, 1, 1));
}

#[tokio::test]
async fn a_job_that_finishes_while_it_is_stopped_never_runs_again() {
    let (mut scene, job) = started();
    scene.drain("east", true);
    scene.settle(&job);
    scene.report_resource("east", "Job", &complete());
    for _ in 0..3 {
        scene.settle(&job);
        assert_eq!((scene.copies_of_kind("east", "Job"), scene.copies_of_kind("west", "Job")), (1, 0), "only it knows");
    }
    scene.restart();
    scene.advance(GATE);
    scene.settle(&job);
    assert_eq!(scene.copies_of_kind("west", "Job"), 0, "another leader knows too");
    scene.report_source(&job, &complete());
    scene.settle(&job);
    assert_eq!((scene.copies_of_kind("east", "Job"), scene.copies_of_kind("west", "Job")), (0, 0));
    scene.restart();
    scene.advance(GATE);
    scene.play(&job);
    assert_eq!((scene.copies_of_kind("west", "Job"), scene.restarts("Job"), scene.phase(&job)), (0, 0, None));
}

#[tokio::test]
async fn a_finished_job_leaves_a_drained_cluster_and_goes_nowhere() {
    let (mut scene, job) = started();
    scene.report_resource("east", "Job", &complete());
    scene.settle(&job);
    scene.drain("east", true);
    scene.settle(&job);
    assert_eq!((scene.phase(&job), scene.deleted.len()), (None, 0), "its source does not say so yet");
    scene.report_source(&job, &complete());
    scene.settle(&job);
    scene.report_resource("east", "Job", &complete());
    scene.settle(&job);
    assert_eq!((scene.copies_of_kind("east", "Job"), scene.copies_of_kind("west", "Job")), (0, 0));
    assert_eq!(scene.reasons("ScheduleGroup"), Vec::<&str>::new());
}

#[tokio::test]
async fn a_job_that_has_begun_moves_for_nothing_but_a_drain() {
    let (mut scene, job) = started();
    scene.policy["spec"]["clusterSelector"] =
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["west"]}]});
    scene.put_policy();
    scene.settle(&job);
    assert_eq!((scene.phase(&job), scene.copies_of_kind("east", "Job"), scene.deleted.len()), (None, 1, 0));
    let conditions = scene.group(&job).status.unwrap().conditions;
    let blocked = conditions.into_iter().find(|one| one.type_ == "MoveBlocked").unwrap();
    assert_eq!(blocked.reason, "Started");
}

#[tokio::test]
async fn a_job_beside_a_deployment_goes_with_the_old_side() {
    let (mut scene, web) = Scene::placed();
    let job = scene.job("shop");
    scene.settle(&web);
    scene.report_resource("east", "Job", &running());
    scene.settle(&web);
    scene.drain("east", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.copies_of_kind("west", "Job")), (Some(MovePhase::Up), 0));
    assert_eq!(scene.copies_of_kind("west", "Deployment"), 1);
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!((scene.phase(&web), scene.deleted.len()), (None, 2));
    assert_eq!(scene.copies_of_kind("west", "Job"), 0, "two of it would run");
    scene.report_resource("east", "Job", &running());
    scene.agent("west", true);
    scene.settle(&web);
    assert_eq!((scene.copies_of_kind("west", "Job"), scene.schedules("east").len()), (1, 0));
    assert_eq!((scene.restarts("Job"), scene.record(&job).target.contains_key("west")), (1, true));
}

#[tokio::test]
async fn a_cron_job_waits_for_its_jobs_until_the_deadline() {
    for is_late in [false, true] {
        let mut scene = Scene::new();
        let cron = scene.cron_job("shop");
        scene.settle(&cron);
        let active = json!({"active": [{"name": "nightly-1"}]});
        scene.report_resource("east", "CronJob", &active);
        scene.settle(&cron);
        scene.drain("east", true);
        scene.settle(&cron);
        assert_eq!((scene.phase(&cron), scene.deleted.len()), (Some(MovePhase::Removing), 0), "a Job is active");
        if is_late {
            scene.advance(DEADLINE);
        } else {
            scene.report_resource("east", "CronJob", &json!({}));
        }
        scene.settle(&cron);
        assert_eq!((scene.deleted.len(), scene.copies_of_kind("west", "CronJob")), (1, 0));
        scene.agent("east", true);
        scene.settle(&cron);
        assert_eq!((scene.copies_of_kind("east", "CronJob"), scene.copies_of_kind("west", "CronJob")), (0, 1));
        assert_eq!((scene.phase(&cron), scene.restarts("CronJob")), (None, 0));
    }
}
