//! A scheduler that takes over from an earlier version: groups are renamed once, names of Schedules stay, what is the
//! service's own is taken back, and nothing that runs is touched.

use super::*;

/// What an agent rolls a copy for, and what it is told apart by.
fn essence(schedule: &Schedule) -> (String, Option<String>, String, String, Option<Value>) {
    let spec = &schedule.spec;
    let source = serde_json::to_value(&spec.source_ref).ok();
    (schedule.name_any(), schedule.uid(), spec.hash.clone(), spec.manifest.clone(), source)
}

#[tokio::test]
async fn groups_of_before_are_renamed_once_and_nothing_is_decided_or_rolled() {
    let mut fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let client = fleet.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let second = fresh("shop");
    let body = json!({"metadata": {"name": second, "labels": {"team": fleet.namespace}}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let clusters: Api<fleetctl::api::Cluster> = Api::all(client.clone());
    let fence = async |name: &str, taints: Value| {
        let change = json!({"spec": {"taints": taints}});
        clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    let full = json!([{"key": "example.com/full", "effect": "NoSchedule"}]);
    fence(&east.name, full.clone()).await;
    let in_these = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [west.name, east.name]});
    // Over all namespaces, as all groups by label were.
    let group_by = json!({"labelKey": "app", "acrossNamespaces": true});
    let selector = json!({"matchExpressions": [in_these]});
    let policy = fleet.policy(json!({"clusterSelector": selector, "groupBy": group_by})).await;
    fleet.deployment("web", 1, json!({})).await;
    let mut other = fleet.deployments().get("web").await.unwrap();
    (other.metadata.namespace, other.metadata.resource_version, other.metadata.uid) =
        (Some(second.clone()), None, None);
    Api::<Deployment>::namespaced(client.clone(), &second).create(&PostParams::default(), &other).await.unwrap();
    let schedules = fleet.schedules(&west.name);
    let webs = async || {
        let all = schedules.list(&ListParams::default()).await.unwrap().items;
        let webs = all.into_iter().filter(|one| one.spec.source_ref.kind == "Deployment");
        let by = |schedule: &Schedule| schedule.spec.source_ref.namespace.clone().unwrap();
        webs.map(|schedule| (by(&schedule), schedule)).collect::<BTreeMap<String, Schedule>>()
    };
    wait("both have a copy", async || webs().await.len() == 2).await;
    for schedule in webs().await.values() {
        let ready = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "observedGeneration": 1});
        fleet.report(schedule, ready, true).await;
    }
    wait("the group is recorded", async || {
        let groups = fleet.groups(&policy).await;
        groups.iter().any(|group| group.status.clone().is_some_and(|status| status.object_refs.len() == 2))
    })
    .await;
    let [old] = &fleet.groups(&policy).await[..] else { panic!("one group") };
    assert_eq!(old.spec.key, "label/app/web");
    fleet.control_plane.stop().await;

    // As an earlier version has left it: a short name, the token copied, and a policy that says nothing of namespaces. Where
    // both would go now is not where they are.
    let mut renamed = webs().await.remove(&second).unwrap();
    let (name, status) = (renamed.name_any(), renamed.status.take());
    let freed = json!({"metadata": {"finalizers": null}});
    schedules.patch(&name, &PatchParams::default(), &Patch::Merge(&freed)).await.unwrap();
    schedules.delete(&name, &DeleteParams::default()).await.unwrap();
    wait("it is gone", async || schedules.get_opt(&name).await.unwrap().is_none()).await;
    renamed.metadata.name = Some(name[..name.len() - 24].to_owned());
    (renamed.metadata.resource_version, renamed.metadata.uid, renamed.metadata.managed_fields) = (None, None, None);
    let renamed = schedules.create(&PostParams::default(), &renamed).await.unwrap();
    let reported = json!({"status": status});
    schedules.patch_status(&renamed.name_any(), &PatchParams::default(), &Patch::Merge(&reported)).await.unwrap();
    let mut token = renamed.clone();
    let source = &mut token.spec.source_ref;
    (source.group, source.version, source.kind) = (String::new(), "v1".to_owned(), "Secret".to_owned());
    (source.namespace, source.name) = (Some("fleet".to_owned()), "fleet-cluster-init-kubeconfig".to_owned());
    token.metadata.name = Some("secret.fleet.fleet-cluster-init-kubeconfig-1a2b3c4d".to_owned());
    (token.metadata.resource_version, token.metadata.uid, token.metadata.managed_fields) = (None, None, None);
    let token = schedules.create(&PostParams::default(), &token).await.unwrap();
    let change = json!({"spec": {"groupBy": {"acrossNamespaces": null}}});
    let policies: Api<SchedulePolicy> = Api::all(client.clone());
    policies.patch(&policy, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    fence(&west.name, full).await;
    fence(&east.name, json!([])).await;
    let before: BTreeMap<_, _> =
        webs().await.iter().map(|(namespace, one)| (namespace.clone(), essence(one))).collect();

    fleet.control_plane = ControlPlane::start_with(&fleet.stage, "", &[]).await;
    wait("the copy of the token is taken back", async || {
        schedules.get(&token.name_any()).await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    fleet.report_deleted(&token).await;
    wait("its Schedule is gone", async || schedules.get_opt(&token.name_any()).await.unwrap().is_none()).await;
    wait("the old group is gone", async || {
        fleet.groups(&policy).await.iter().all(|group| group.name_any() != old.name_any())
    })
    .await;
    let groups = fleet.groups(&policy).await;
    let keys: Vec<&str> = groups.iter().map(|group| group.spec.key.as_str()).collect();
    for namespace in [&fleet.namespace, &second] {
        assert!(keys.contains(&format!("label/app/web/{namespace}").as_str()), "{keys:?}");
    }
    for group in &groups {
        let (status, was) = (group.status.clone().unwrap(), old.status.clone().unwrap());
        assert_eq!((status.scheduled, status.object_refs.len()), (true, 1), "{status:?}");
        assert_eq!(status.target_clusters, was.target_clusters, "it stays where it is");
    }
    let after = webs().await;
    for schedule in after.values() {
        let group = schedule.spec.group.as_deref().unwrap();
        assert!(groups.iter().any(|one| one.name_any() == group), "{group}");
    }
    assert_eq!(
        after.iter().map(|(namespace, one)| (namespace.clone(), essence(one))).collect::<BTreeMap<_, _>>(),
        before
    );
    assert!(!fleet.copies(&east.name).await.contains_key("Deployment web"));
    namespaces.delete(&second, &DeleteParams::default()).await.unwrap();
    fleet.end(&[policy]).await;
}
