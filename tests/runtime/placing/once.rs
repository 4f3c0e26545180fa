//! A Job whose cluster is drained: it begins once more in the other one, and not at all if it had finished.

use fleetctl::api::crd::move_record::MoveRecord;
use fleetctl::api::labels::ANNOTATION_ASK;
use k8s_openapi::api::batch::v1::Job;

use super::*;

/// What the agent of a member says of its copy of the Job.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Active,
    Complete,
}

impl Run {
    fn status(self) -> Value {
        let start = "2026-01-01T00:00:00Z";
        match self {
            Self::Active => json!({"startTime": start, "active": 1}),
            Self::Complete => json!({"startTime": start, "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1,
                "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}),
        }
    }
}

impl Fleet {
    /// Plays one turn of the agent of a member whose Job is that far.
    async fn play_job(&self, name: &str, run: Run) {
        for (what, copy) in self.copies(name).await {
            self.play_copy(name, &what, &copy, run).await;
        }
        self.play_answer(name).await;
    }

    /// The same where nothing that is to be deleted is deleted yet.
    async fn play_job_that_runs(&self, name: &str) {
        for (what, copy) in self.copies(name).await {
            if copy.metadata.deletion_timestamp.is_none() {
                self.play_copy(name, &what, &copy, Run::Active).await;
            }
        }
        self.play_answer(name).await;
    }

    async fn play_copy(&self, name: &str, what: &str, copy: &Schedule, run: Run) {
        let conditions = copy.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        if find_condition(conditions, "Deleted").is_some_and(Condition::is_true) {
            // The scheduler may have let go of it meanwhile.
            return;
        }
        let mut status = json!({"epoch": copy.spec.epoch, "available": 1, "served": 1});
        if what == "Job once" {
            status["resource"] = json!(run.status().to_string());
            status["finished"] = json!(run == Run::Complete);
        }
        let patch = Patch::Merge(json!({ "status": status }));
        self.schedules(name).patch_status(&copy.name_any(), &PatchParams::default(), &patch).await.unwrap();
        if copy.metadata.deletion_timestamp.is_some() {
            self.report_deleted(copy).await;
            return;
        }
        let resource = if what == "Job once" { run.status() } else { json!({}) };
        self.report(copy, resource, true).await;
    }

    /// Answers the question of the scheduler, if there is one.
    async fn play_answer(&self, name: &str) {
        let clusters: Api<fleetctl::api::Cluster> = Api::all(self.client());
        if let Some(asked) = clusters.get(name).await.unwrap().annotations().get(ANNOTATION_ASK) {
            let answer = json!({ "status": { "answered": asked } });
            clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&answer)).await.unwrap();
        }
    }

    async fn record_of(&self, policy: &str) -> MoveRecord {
        let group = self.groups(policy).await.into_iter().next();
        group.and_then(|group| group.status).unwrap_or_default().record
    }
}

/// Runs a Job in one of two members and drains that; the Job is as far as `run` when it is stopped. Returns where it was
/// and where it may go, and the policy.
async fn drain_with_job(run: Run) -> (Fleet, [String; 2], String) {
    let fleet = Fleet::new().await;
    let members = [fleet.join(2).await, fleet.join(2).await];
    let names = members.each_ref().map(|member| member.name.clone());
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": names});
    let kinds = json!([{"group": "batch", "kind": "Job"}, {"group": "apps", "kind": "Deployment"}]);
    let resources = json!({"labelSelectors": [{}], "kinds": kinds});
    let selector = json!({"matchExpressions": [in_these]});
    let policy = fleet.policy(json!({"clusterSelector": selector, "resourceSelectors": resources})).await;
    let jobs: Api<Job> = Api::namespaced(fleet.client(), &fleet.namespace);
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "labels": {"team": fleet.namespace}},
        "spec": {"template": {"spec": pod}}});
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    wait("it runs", async || {
        for name in &names {
            fleet.play_job(name, Run::Active).await;
        }
        // A control plane of the bed counts pods of its own for the Job: its status says nothing of the copy.
        let target = fleet.record_of(&policy).await.target;
        let is_active =
            |schedule: &Schedule| schedule.status.as_ref().is_some_and(|status| status.available == Some(1));
        let mut running = 0;
        for name in target.keys() {
            running += usize::from(fleet.copies(name).await.get("Job once").is_some_and(is_active));
        }
        (target.len(), running) == (1, 1)
    })
    .await;
    let from = fleet.record_of(&policy).await.target.into_keys().next().unwrap();
    let to = names.iter().find(|name| **name != from).unwrap().clone();
    let clusters: Api<fleetctl::api::Cluster> = Api::all(fleet.client());
    let drain = json!({"status": {"drainRequested": true}});
    clusters.patch_status(&from, &PatchParams::default(), &Patch::Merge(&drain)).await.unwrap();
    // The first minute of a term begins nothing.
    wait("it is stopped", async || {
        for name in [&from, &to] {
            fleet.play_job_that_runs(name).await;
        }
        let copy = fleet.copies(&from).await.remove("Job once");
        assert!(!fleet.copies(&to).await.contains_key("Job once"), "it would run twice");
        copy.is_none_or(|copy| copy.metadata.deletion_timestamp.is_some())
    })
    .await;
    wait("its old copy is gone", async || {
        fleet.play_job(&from, run).await;
        !fleet.copies(&from).await.contains_key("Job once")
    })
    .await;
    (fleet, [from, to], policy)
}

#[tokio::test]
async fn a_running_job_begins_once_more_where_it_goes() {
    let (fleet, [from, to], policy) = drain_with_job(Run::Active).await;
    wait("it begins there", async || {
        fleet.play_job(&from, Run::Active).await;
        fleet.copies(&to).await.contains_key("Job once")
    })
    .await;
    wait("it is over", async || {
        fleet.play_job(&to, Run::Complete).await;
        let job: Job = Api::namespaced(fleet.client(), &fleet.namespace).get("once").await.unwrap();
        job.status.and_then(|status| status.conditions).is_some_and(|all| all.iter().any(|one| one.type_ == "Complete"))
    })
    .await;
    assert!(!fleet.copies(&from).await.contains_key("Job once"));
    let record = fleet.record_of(&policy).await;
    assert!(record.running.is_none() && record.target.contains_key(&to), "{record:?}");
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn a_job_that_finishes_while_it_is_stopped_does_not_run_again() {
    let (fleet, [_, to], policy) = drain_with_job(Run::Complete).await;
    let job: Job = Api::namespaced(fleet.client(), &fleet.namespace).get("once").await.unwrap();
    let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().any(|one| one.type_ == "Complete"), "it says so before the last copy is let go");
    // Whatever is decided after this was decided with the Job.
    fleet.deployment("web", 1, json!({})).await;
    wait("something else is placed", async || fleet.copies(&to).await.contains_key("Deployment web")).await;
    assert!(!fleet.copies(&to).await.contains_key("Job once"));
    fleet.end(&[policy]).await;
}
