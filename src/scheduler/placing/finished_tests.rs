//! What runs once: it never runs again, nor beside itself.

use std::collections::BTreeMap;

use serde_json::json;

use super::decide::Decided;
use super::object_plan;
use super::plan::Plan;
use super::schedule_deletions_tests::{Hub, decided, decided_directly, none, writes};
use super::sources::{Change, Seen};
use super::write::Write;
use crate::placement::copy::Share;
use crate::placement::decide::Target;
use crate::placement::facts::ObjectKey;

/// The names of the objects that are said to start again.
fn restarted(plan: &Plan) -> Vec<&str> {
    let writes = plan.stages.iter().flatten();
    writes
        .filter_map(|write| match write {
            Write::Event { about, reason, .. } if *reason == "Restarted" => about.name.as_deref(),
            _ => None,
        })
        .collect()
}

#[test]
fn a_finished_job_never_runs_again() {
    let mut hub = Hub::new();
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut body = json!({"metadata": {"name": "once"}, "spec": {"template": template}, "status": {}});
    let job = hub.put("batch", "Job", body.clone());
    hub.settle(&job, &decided(&["east"]));
    let over = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    hub.report("east", &over);
    let plan = hub.plan(&job, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), none()), "its copy alone says that it is over");
    body["status"] = over;
    hub.put("batch", "Job", body);
    let plan = hub.plan(&job, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), vec!["east".to_owned()]), "it is known to be over");
    hub.lose("east");
    assert_eq!(writes(&hub.plan(&job, Some(&decided(&["west"])))), (none(), none()));
}

#[test]
fn a_job_that_its_claim_keeps_is_not_said_to_start_again() {
    let mut hub = Hub::new();
    hub.job("kept", &json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]));
    let moved = hub.job("moved", &json!([]));
    hub.settle(&moved, &decided(&["east"]));
    hub.report("east", &json!({"startTime": "2026-01-01T00:00:00Z"}));
    hub.job("moved", &json!([]));
    hub.store.drained.insert("east".to_owned());
    let plan = hub.plan(&moved, Some(&decided(&["west"])));
    assert_eq!(writes(&plan), (none(), vec!["east".to_owned()]), "it is stopped first");
    assert_eq!(restarted(&plan), ["moved"]);
}

#[test]
fn a_job_runs_beside_no_copy_of_its_own() {
    let mut hub = Hub::new();
    let job = hub.job("once", &json!([]));
    hub.settle(&job, &decided(&["east"]));
    hub.report("east", &json!({"startTime": "2026-01-01T00:00:00Z"}));
    hub.job("once", &json!([]));
    assert_eq!(
        writes(&hub.plan(&job, Some(&decided(&["west"])))),
        (none(), none()),
        "another group or policy is no drain"
    );
    assert_eq!(writes(&hub.plan(&job, Some(&divided_job(&job)))), (none(), none()), "nor are other shares");
}

/// A decision that gives one completion to west, and none to east.
fn divided_job(job: &ObjectKey) -> Decided {
    let targets = [("east", 0), ("west", 1)].map(|(cluster, completions)| Target {
        cluster: cluster.to_owned(),
        domain: Some(cluster.to_owned()),
        replicas: BTreeMap::from([(job.clone(), Share::Job { completions, parallelism: completions })]),
        whole: Vec::new(),
    });
    Decided { targets: targets.into(), ..decided(&[]) }
}

#[test]
fn a_job_that_a_divided_group_has_not_decided_is_not_copied_whole() {
    let mut hub = Hub::new();
    hub.policy(json!({"spreadConstraints": {"topologyKey": "k", "spreadMode": "Divide"}}));
    let job = hub.job("once", &json!([]));
    let targets = ["east", "west"].map(|cluster| Target {
        cluster: cluster.to_owned(),
        domain: Some(cluster.to_owned()),
        ..Target::default()
    });
    let earlier = Decided { targets: targets.into(), ..decided(&[]) };
    assert_eq!(writes(&hub.plan(&job, Some(&earlier))), (none(), none()), "it would run in both");
    assert_eq!(writes(&hub.plan(&job, Some(&divided_job(&job)))).0, ["Job east", "Job west"]);
}

#[test]
fn a_job_that_was_copied_whole_is_not_divided_when_a_copy_is_over() {
    let mut hub = Hub::new();
    let job = hub.job("once", &json!([]));
    hub.settle(&job, &decided(&["east", "west"]));
    hub.report("east", &json!({"startTime": "2026-01-01T00:00:00Z"}));
    hub.report("west", &json!({"conditions": [{"type": "Complete", "status": "True"}]}));
    assert_eq!(writes(&hub.plan(&job, Some(&divided_job(&job)))), (none(), none()), "no API server takes that edit");
}

#[test]
fn a_divided_group_that_has_ended_stays_where_it_ended() {
    let mut hub = Hub::new();
    let job = hub.job("once", &json!([]));
    hub.settle(&job, &decided(&["east"]));
    hub.policy(json!({"spreadConstraints": {"topologyKey": "k", "spreadMode": "Divide"}}));
    let mut elsewhere = divided_job(&job);
    assert!(!hub.store.keep_ended_group(&hub.group_name(&job), &mut elsewhere), "it runs");
    hub.report("east", &json!({"conditions": [{"type": "Complete", "status": "True"}]}));
    assert!(hub.store.keep_ended_group(&hub.group_name(&job), &mut elsewhere));
    let targets: Vec<&str> = elsewhere.targets.iter().map(|target| target.cluster.as_str()).collect();
    assert_eq!((targets, elsewhere.message.as_str()), (vec!["east"], "Stays on \"east\": it has ended"));
    let plan = hub.plan(&job, Some(&elsewhere));
    assert_eq!(writes(&plan), (none(), none()));
    hub.execute(&plan);
    let status = hub.store.groups[&hub.group_name(&job)].status.clone().unwrap();
    assert_eq!(status.target_clusters, ["east"]);
    // A drain is no decision of the policy: what is left is taken away.
    hub.store.drained.insert("east".to_owned());
    let mut drained = divided_job(&job);
    assert!(hub.store.keep_ended_group(&hub.group_name(&job), &mut drained));
    assert_eq!(drained.message, "It has ended, and no cluster has a copy");
}

#[test]
fn a_cron_job_that_its_annotation_moves_is_stopped_before_it_begins_elsewhere() {
    let mut hub = Hub::new();
    let put = |hub: &mut Hub, cluster: &str| {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
        let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
        let metadata = json!({"name": "nightly", "annotations": {"fleet-scheduler.io/cluster": cluster}});
        hub.put("batch", "CronJob", json!({"metadata": metadata, "spec": spec}))
    };
    let plan = |hub: &Hub, key: &ObjectKey, cluster: &str| {
        object_plan::plan_object(&hub.store, key, Some(&decided_directly(key, &[(cluster, None)])))
    };
    let nightly = put(&mut hub, "east");
    let first = plan(&hub, &nightly, "east");
    hub.execute(&first);
    hub.report("east", &json!({"active": [{"kind": "Job", "name": "nightly-1"}]}));
    put(&mut hub, "west");
    assert_eq!(writes(&plan(&hub, &nightly, "west")), (none(), none()), "its Job runs");
    hub.report("east", &json!({}));
    let stop = plan(&hub, &nightly, "west");
    assert_eq!(writes(&stop), (none(), vec!["east".to_owned()]));
    hub.execute(&stop);
    for schedule in hub.schedules("east") {
        hub.store.apply_change(Change::Schedule(Seen::Gone(schedule)), hub.now);
    }
    assert_eq!(writes(&plan(&hub, &nightly, "west")).0, ["CronJob west"]);
}
