//! Shares of groups and objects without a record of amounts: none falls before what goes is available elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::decide::Decided;
use super::object_plan;
use super::plan::Plan;
use super::queue::{Queue, ReconcileRequest};
use super::schedule_deletions_tests::{Hub, decided, decided_directly, none, writes};
use super::sources::{Change, Seen};
use super::write::Write;
use crate::placement::copy::Share;
use crate::placement::decide::Target;
use crate::placement::facts::ObjectKey;
use crate::placement::tenant::Tenant;

const REPLICAS: i64 = 6;

fn put_web(hub: &mut Hub, annotations: &Value) -> ObjectKey {
    let spec = json!({"replicas": REPLICAS, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}});
    hub.put("apps", "Deployment", json!({"metadata": {"name": "web", "annotations": annotations}, "spec": spec}))
}

/// Reports that so many pods of the copies in a cluster are available; of copies of all pods, whether they are.
fn report_available(hub: &mut Hub, cluster: &str, available: i64) {
    report_status(hub, cluster, available, &json!({}));
}

fn report_status(hub: &mut Hub, cluster: &str, available: i64, resource: &Value) {
    hub.report(cluster, resource);
    for mut schedule in hub.schedules(cluster) {
        hub.version += 1;
        schedule.metadata.resource_version = Some(hub.version.to_string());
        let status = schedule.status.as_mut().unwrap();
        (status.epoch, status.available) = (Some(schedule.spec.epoch), Some(available));
        hub.store.apply_change(Change::Schedule(Seen::There(schedule)), hub.now);
    }
}

/// Shares of the Deployment in a cluster; none: all of it.
fn shares(hub: &Hub, cluster: &str) -> Vec<Option<i64>> {
    let copies = hub.schedules(cluster).into_iter().filter(|copy| copy.spec.source_ref.kind == "Deployment");
    copies.map(|copy| copy.spec.share.and_then(|share| share.replicas)).collect()
}

/// Carries out what is planned until `west` has its half, and sees that `east` gives up nothing before that.
fn divide(hub: &mut Hub, annotations: &Value, plan: impl Fn(&Hub) -> Plan) {
    put_web(hub, annotations);
    report_available(hub, "east", 1);
    let first = plan(hub);
    assert!(writes(&first).0.contains(&"Deployment west".to_owned()), "{:?}", writes(&first));
    hub.execute(&first);
    assert_eq!((shares(hub, "east"), shares(hub, "west")), (vec![None], vec![Some(3)]));
    report_available(hub, "east", 1);
    report_available(hub, "west", 2);
    assert_eq!(writes(&plan(hub)).0, none(), "a pod is missing");
    report_available(hub, "west", 3);
    put_web(hub, annotations);
    let last = plan(hub);
    assert_eq!(writes(&last).0, ["Deployment east"]);
    hub.execute(&last);
    assert_eq!((shares(hub, "east"), shares(hub, "west")), (vec![Some(3)], vec![Some(3)]));
}

#[test]
fn a_share_of_an_annotated_object_falls_last() {
    let mut hub = Hub::new();
    let web = put_web(&mut hub, &json!({"fleet-scheduler.io/cluster": "east"}));
    let whole = decided_directly(&web, &[("east", None)]);
    let made = object_plan::plan_object(&hub.store, &web, Some(&whole));
    hub.execute(&made);
    let halves = decided_directly(&web, &[("east", Some(3)), ("west", Some(3))]);
    let onto = json!({"fleet-scheduler.io/spread-onto": "east,west"});
    divide(&mut hub, &onto, |hub| object_plan::plan_object(&hub.store, &web, Some(&halves)));
}

#[test]
fn a_share_of_a_group_without_amounts_falls_last() {
    let mut hub = Hub::new();
    let web = put_web(&mut hub, &json!({}));
    let whole = decided(&["east"]);
    let made = hub.plan(&web, Some(&whole));
    hub.execute(&made);
    hub.policy(json!({"spreadConstraints": {"topologyKey": "region"}}));
    let targets = ["east", "west"].map(|name| Target {
        cluster: name.to_owned(),
        domain: Some(name.to_owned()),
        replicas: BTreeMap::from([(web.clone(), Share::Replicas(3))]),
        whole: Vec::new(),
    });
    let halves = Decided { targets: targets.into(), ..decided(&[]) };
    divide(&mut hub, &json!({}), |hub| hub.plan(&web, Some(&halves)));
}

#[test]
fn a_copy_of_all_pods_that_lacks_some_gives_up_none_of_the_others() {
    let mut hub = Hub::new();
    let web = put_web(&mut hub, &json!({"fleet-scheduler.io/cluster": "east"}));
    let whole = decided_directly(&web, &[("east", None)]);
    let made = object_plan::plan_object(&hub.store, &web, Some(&whole));
    hub.execute(&made);
    // It was scaled a moment ago.
    let some = json!({"availableReplicas": 4});
    report_status(&mut hub, "east", 0, &some);
    let onto = json!({"fleet-scheduler.io/spread-onto": "east,west"});
    put_web(&mut hub, &onto);
    let halves = decided_directly(&web, &[("east", Some(3)), ("west", Some(3))]);
    let first = object_plan::plan_object(&hub.store, &web, Some(&halves));
    hub.execute(&first);
    assert_eq!((shares(&hub, "east"), shares(&hub, "west")), (vec![None], vec![Some(3)]));
    report_status(&mut hub, "east", 0, &some);
    report_available(&mut hub, "west", 2);
    put_web(&mut hub, &onto);
    let second = object_plan::plan_object(&hub.store, &web, Some(&halves));
    assert_eq!(writes(&second).0, none(), "a pod is missing");
    report_available(&mut hub, "west", 3);
    put_web(&mut hub, &onto);
    let last = object_plan::plan_object(&hub.store, &web, Some(&halves));
    hub.execute(&last);
    assert_eq!((shares(&hub, "east"), shares(&hub, "west")), (vec![Some(3)], vec![Some(3)]));
}

/// Places the Deployment, and returns the replicas that its new copy begins with.
fn begin_scaled_copy(hub: &mut Hub, cluster: &str) -> Vec<i64> {
    let web = put_web(hub, &json!({}));
    let plan = hub.plan(&web, Some(&decided(&[cluster])));
    hub.execute(&plan);
    let manifests = plan.stages.iter().flatten().filter_map(|write| match write {
        Write::Schedule(schedule, _) if schedule.spec.source_ref.kind == "Deployment" => {
            serde_json::from_str::<Value>(&schedule.spec.manifest).unwrap()["spec"]["replicas"].as_i64()
        }
        _ => None,
    });
    manifests.collect()
}

#[test]
fn a_copy_that_is_scaled_begins_with_what_others_have() {
    let mut hub = Hub::new();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9});
    hub.put("autoscaling", "HorizontalPodAutoscaler", json!({"metadata": {"name": "web"}, "spec": spec}));
    assert_eq!(begin_scaled_copy(&mut hub, "east"), [REPLICAS]);
    hub.report("east", &json!({"replicas": 8}));
    assert_eq!(begin_scaled_copy(&mut hub, "west"), [8]);
    hub.report("west", &json!({"replicas": 2_000_000_000}));
    hub.store.clusters.insert("north".to_owned(), true);
    assert_eq!(begin_scaled_copy(&mut hub, "north"), [9], "not more than it may have");
}

#[test]
fn an_annotated_object_leaves_its_replicas_to_an_autoscaler_that_comes_later() {
    let mut hub = Hub::new();
    let web = put_web(&mut hub, &json!({"fleet-scheduler.io/spread-onto": "east,west"}));
    let halves = decided_directly(&web, &[("east", Some(3)), ("west", Some(3))]);
    let plan = object_plan::plan_object(&hub.store, &web, Some(&halves));
    hub.execute(&plan);
    let left = |hub: &Hub| -> Vec<Vec<String>> {
        let copies = ["east", "west"].into_iter().flat_map(|name| hub.schedules(name));
        let copies = copies.filter(|copy| copy.spec.source_ref.kind == "Deployment");
        copies.map(|copy| copy.spec.apply_policy.map(|policy| policy.leave_fields).unwrap_or_default()).collect()
    };
    assert_eq!(left(&hub), [none(), none()]);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9});
    hub.store.queue = Queue::default();
    hub.put("autoscaling", "HorizontalPodAutoscaler", json!({"metadata": {"name": "web"}, "spec": spec}));
    let (soon, queue) = (hub.now + Duration::from_secs(60), &mut hub.store.queue);
    let due: Vec<_> = std::iter::from_fn(|| queue.take_request(soon, |_| (Tenant::ClusterScoped, None))).collect();
    assert!(due.iter().any(|taken| taken.request == ReconcileRequest::Object(web.clone())), "it is planned again");
    put_web(&mut hub, &json!({"fleet-scheduler.io/spread-onto": "east,west"}));
    let plan = object_plan::plan_object(&hub.store, &web, Some(&halves));
    hub.execute(&plan);
    assert_eq!(left(&hub), [["spec.replicas"], ["spec.replicas"]]);
}
