//! A definition that begins to be served changes nothing that runs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::added_kinds::Widgets;
use super::*;

/// All that is decided: Schedules but those of Widgets with their versions, targets of the groups of these policies, labels of
/// sources.
async fn snapshot(fleet: &Fleet, members: &[String], policies: &[String]) -> (BTreeMap<String, String>, Value, Value) {
    let mut schedules = BTreeMap::new();
    for name in members {
        for (what, schedule) in fleet.copies(name).await {
            let meta = &schedule.metadata;
            if !what.starts_with("Widget ") {
                let version = format!("{:?} {:?} {:?}", meta.uid, meta.resource_version, meta.deletion_timestamp);
                schedules.insert(format!("{what} on {name}"), version);
            }
        }
    }
    let groups: Api<ScheduleGroup> = Api::all(fleet.client());
    let groups = groups.list(&ListParams::default()).await.unwrap().items.into_iter();
    let groups =
        groups.filter(|group| policies.contains(&group.spec.policy.name) && !group.spec.key.contains("Widget"));
    let groups = groups.map(|group| {
        let status = group.status.clone().unwrap_or_default();
        (group.name_any(), (status.scheduled, status.target_clusters))
    });
    let groups: BTreeMap<_, _> = groups.collect();
    let sources = fleet.deployments().list(&ListParams::default()).await.unwrap().items.into_iter();
    let labels: BTreeMap<_, _> =
        sources.map(|one| (one.name_any(), one.labels().get(LABEL_TARGET_CLUSTER).cloned())).collect();
    (schedules, json!(groups), json!(labels))
}

/// Returns whether each copy of a Deployment is of its newest generation. The annotation that names several clusters makes a
/// new one, so what is spread has its Schedules written a second time.
async fn are_current(fleet: &Fleet, members: &[String]) -> bool {
    let sources = fleet.deployments().list(&ListParams::default()).await.unwrap().items.into_iter();
    let newest: BTreeMap<_, _> = sources.map(|one| (one.name_any(), one.metadata.generation)).collect();
    for name in members {
        let copies = fleet.copies(name).await.into_values().map(|schedule| schedule.spec.source_ref);
        let mut copies = copies.filter(|source| source.kind == "Deployment");
        if !copies.all(|source| newest.get(&source.name) == Some(&Some(source.generation))) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_definition_that_comes_and_goes_changes_no_schedule() {
    let widgets = Widgets::new();
    let added = format!("--extra-kinds={}/v1/Widget", widgets.group);
    let fleet = Fleet::new_with(&[&added]).await;
    let (one, two, three) = (fleet.join(4).await, fleet.join(4).await, fleet.join(4).await);
    let names = [&one, &two, &three].map(|member| member.name.clone());
    let by_name = "kubernetes.io/metadata.name";
    let in_these = json!({"matchExpressions": [{"key": by_name, "operator": "In", "values": names}]});
    let mut policies = Vec::new();
    let split = json!([{"topologyValue": names[0], "percentage": 50}, {"topologyValue": names[1], "percentage": 50}]);
    for (app, spread) in [
        ("everywhere", json!({"spreadMode": "Duplicate", "topologyKey": by_name})),
        ("divided", json!({"spreadMode": "Divide", "topologyKey": by_name, "percentageSplit": split})),
        ("single", Value::Null),
    ] {
        let selectors = json!({"labelSelectors": [{"matchLabels": {"app": app}}],
        "kinds": [{"group": "apps", "kind": "Deployment"}]});
        let mut spec = json!({"resourceSelectors": selectors, "clusterSelector": in_these});
        if !spread.is_null() {
            spec["spreadConstraints"] = spread;
        }
        policies.push(fleet.policy(spec).await);
        fleet.deployment(app, 4, json!({})).await;
    }
    fleet.deployment("direct", 1, json!({"fleet-scheduler.io/cluster": names[2]})).await;
    let selectors = json!({"labelSelectors": [{}], "kinds": [{"group": widgets.group, "kind": "Widget"}]});
    let only = json!({"matchLabels": {by_name: names[0]}});
    let of_widgets = fleet.policy(json!({"resourceSelectors": selectors, "clusterSelector": only})).await;
    policies.push(of_widgets.clone());
    let of_policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let is_valid = async || {
        let status = of_policies.get(&of_widgets).await.unwrap().status.unwrap_or_default();
        find_condition(&status.conditions, "Valid").map(Condition::is_true)
    };
    wait("all are placed", async || {
        let (schedules, _, labels) = snapshot(&fleet, &names, &policies).await;
        let is_labelled = labels.as_object().unwrap().values().all(|label| !label.is_null());
        let deployments = schedules.keys().filter(|what| what.starts_with("Deployment ")).count();
        is_labelled
            && deployments == 3 + 2 + 1 + 1
            && are_current(&fleet, &names).await
            && is_valid().await == Some(false)
    })
    .await;
    let before = snapshot(&fleet, &names, &policies).await;

    let definitions: Api<CustomResourceDefinition> = Api::all(fleet.client());
    definitions.create(&PostParams::default(), &widgets.definition()).await.unwrap();
    wait("the control plane serves it", async || {
        let one = serde_json::from_value(widgets.object(&fleet.namespace, 1)).unwrap();
        widgets.of(&fleet.client(), &fleet.namespace).create(&PostParams::default(), &one).await.is_ok()
    })
    .await;
    fleet.copy(&names[0], "Widget one").await;
    wait("its policy can be applied", async || is_valid().await == Some(true)).await;
    // Whatever is planned because of it is planned before this.
    fleet.deployment("after", 1, json!({"fleet-scheduler.io/cluster": names[0]})).await;
    fleet.copy(&names[0], "Deployment after").await;
    fleet.deployments().delete("after", &DeleteParams::default()).await.unwrap();
    let leaving =
        async |what: &str| fleet.copies(&names[0]).await.remove(what).expect("it is there until that is told");
    wait("it leaves", async || leaving("Deployment after").await.metadata.deletion_timestamp.is_some()).await;
    fleet.report_deleted(&leaving("Deployment after").await).await;
    wait("it is gone", async || !fleet.copies(&names[0]).await.contains_key("Deployment after")).await;
    assert_eq!(snapshot(&fleet, &names, &policies).await, before);

    // It goes, with its objects in the control plane; what is placed stays as it is.
    definitions.delete(&widgets.name(), &DeleteParams::default()).await.unwrap();
    wait("the definition is gone", async || definitions.get_opt(&widgets.name()).await.unwrap().is_none()).await;
    fleet.deployment("last", 1, json!({"fleet-scheduler.io/cluster": names[0]})).await;
    fleet.copy(&names[0], "Deployment last").await;
    fleet.deployments().delete("last", &DeleteParams::default()).await.unwrap();
    wait("it leaves", async || leaving("Deployment last").await.metadata.deletion_timestamp.is_some()).await;
    fleet.report_deleted(&leaving("Deployment last").await).await;
    wait("it is gone", async || !fleet.copies(&names[0]).await.contains_key("Deployment last")).await;
    assert_eq!(snapshot(&fleet, &names, &policies).await, before);
    fleet.end(&policies).await;
}
