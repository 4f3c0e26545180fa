//! What a group says of itself beside its place: that it moves, and what its pods lack.

use super::*;

impl Fleet {
    /// A condition of the only group of a policy: status, reason and message.
    async fn group_condition(&self, policy: &str, type_: &str) -> Option<(String, String, String)> {
        let [group] = &self.groups(policy).await[..] else { return None };
        let conditions = group.status.clone().unwrap_or_default().conditions;
        find_condition(&conditions, type_).map(|one| (one.status.clone(), one.reason.clone(), one.message.clone()))
    }
}

#[tokio::test]
async fn a_group_names_what_its_pods_lack_until_it_is_placed_too() {
    let fleet = Fleet::new().await;
    let west = fleet.join(2).await;
    let only = json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": west.name}}});
    let policy = fleet.policy(only).await;
    let from = |name: &str, optional: bool| json!({"secretRef": {"name": name, "optional": optional}});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": fleet.namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "x", "envFrom": [from("db", false), from("more", true)]}]}}},
    });
    fleet.deployments().create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let place = &fleet.namespace;
    let text = format!("Secret {place}/db is used by Deployment {place}/web but is not placed on {}", west.name);
    let missing = Some(("False".to_owned(), "Missing".to_owned(), format!("{text}: NotThere")));
    let condition = async || fleet.group_condition(&policy, "DependenciesPlaced").await;
    wait("it is missed", async || condition().await == missing).await;
    fleet.copy(&west.name, "Deployment web").await;
    let report = why(&fleet.stage.hub.kubeconfig, "deployment/web", place, 7).to_string();
    assert!(report.contains(&text), "{report}");

    let secrets: Api<Secret> = Api::namespaced(fleet.client(), place);
    let body = json!({"metadata": {"name": "db", "annotations": {"fleet-scheduler.io/cluster": west.name}}});
    secrets.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    wait("nothing is missed", async || condition().await.is_some_and(|(_, reason, _)| reason == "AllPlaced")).await;
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn a_group_says_that_it_moves_until_the_old_copies_are_gone() {
    let fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let on = |name: &str| json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
    let policy = fleet.policy(on(&west.name)).await;
    fleet.deployment("web", 1, json!({})).await;
    let first = fleet.copy(&west.name, "Deployment web").await;
    let available = json!({"replicas": 1, "availableReplicas": 1, "observedGeneration": 1});
    fleet.report(&first, available.clone(), true).await;
    assert_eq!(fleet.group_condition(&policy, "Moving").await, None);

    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let there = json!({"spec": on(&east.name)});
    policies.patch(&policy, &PatchParams::default(), &Patch::Merge(&there)).await.unwrap();
    let second = fleet.copy(&east.name, "Deployment web").await;
    let way = format!("from {} to {}", west.name, east.name);
    wait("it moves", async || {
        let moving = fleet.group_condition(&policy, "Moving").await;
        moving.is_some_and(|(status, _, message)| status == "True" && message.starts_with(&way))
    })
    .await;
    fleet.report(&second, available, true).await;
    wait("the old copy goes", async || {
        let old = fleet.copies(&west.name).await.remove("Deployment web");
        old.is_some_and(|old| old.metadata.deletion_timestamp.is_some())
    })
    .await;
    fleet.report_deleted(&first).await;
    wait("it has moved", async || fleet.group_condition(&policy, "Moving").await.is_none()).await;
    let group = fleet.groups(&policy).await.remove(0).name_any();
    wait("both ends are told", async || {
        let events: Api<Event> = Api::namespaced(fleet.client(), "default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let has = |reason: &str| {
            all.iter().any(|event| {
                event.involved_object.name.as_ref() == Some(&group) && event.reason.as_deref() == Some(reason)
            })
        };
        has("Moving") && has("Moved")
    })
    .await;
    fleet.end(&[policy]).await;
}
