//! What follows: what pods use goes where they go, moves with them, and is kept while anything there uses it.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

const FOLLOWERS: [&str; 3] = ["ConfigMap page", "Secret key", "ServiceAccount web"];

impl Fleet {
    async fn create<K>(&self, body: Value)
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client(), &self.namespace);
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }

    /// A Deployment `web` whose pods have this in their spec beside a container.
    async fn web(&self, mut pods: Value) {
        pods["containers"] = json!([{"name": "c", "image": "x", "envFrom": pods["envFrom"].take()}]);
        pods.as_object_mut().unwrap().remove("envFrom");
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pods});
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
        self.create::<Deployment>(json!({"metadata": {"name": "web"}, "spec": spec})).await;
    }

    async fn move_policy(&self, policy: &str, cluster: &str) {
        let policies: Api<SchedulePolicy> = Api::all(self.client());
        let there = json!({"spec": only_on(cluster)});
        policies.patch(policy, &PatchParams::default(), &Patch::Merge(&there)).await.unwrap();
    }
}

fn only_on(cluster: &str) -> Value {
    json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster}}})
}

#[tokio::test]
async fn what_pods_use_goes_and_leaves_with_them() {
    let fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let policy = fleet.policy(only_on(&west.name)).await;
    fleet.create::<ConfigMap>(json!({"metadata": {"name": "page"}, "data": {"k": "v"}})).await;
    fleet.create::<Secret>(json!({"metadata": {"name": "key"}, "stringData": {"k": "first"}})).await;
    fleet.create::<ServiceAccount>(json!({"metadata": {"name": "web"}})).await;
    let from = json!([{"configMapRef": {"name": "page"}}, {"secretRef": {"name": "key"}}]);
    fleet.web(json!({"serviceAccountName": "web", "envFrom": from})).await;
    let first = fleet.copy(&west.name, "Deployment web").await;
    for what in FOLLOWERS {
        let copy = fleet.copy(&west.name, what).await;
        assert_eq!((copy.spec.follows, copy.spec.group), (true, None), "{what}");
    }
    let report = why(&fleet.stage.hub.kubeconfig, "secret/key", &fleet.namespace, 7).to_string();
    assert!(report.contains(&format!("on {} it follows Deployment {}/web", west.name, fleet.namespace)), "{report}");
    // Of the namespace: what each cluster has of it, and what no cluster has.
    fleet.create::<ConfigMap>(json!({"metadata": {"name": "spare"}})).await;
    fleet.create::<Role>(json!({"metadata": {"name": "reader"}})).await;
    let report = why(&fleet.stage.hub.kubeconfig, &format!("namespace/{}", fleet.namespace), "default", 7);
    let placed = format!("{} has 1 ConfigMap, 1 Deployment, 1 Secret, 1 ServiceAccount of it", west.name);
    assert_eq!(report["why"], json!([placed]), "{report}");
    let notes = [
        "not placed: ConfigMap spare: no policy matches it",
        "not placed: 1 Role: the value `placement.allowRBACKinds` places these kinds",
    ];
    assert_eq!(report["notes"], json!(notes), "{report}");

    let before = fleet.copy(&west.name, "Secret key").await.spec.hash;
    let secrets: Api<Secret> = Api::namespaced(fleet.client(), &fleet.namespace);
    let rotated = json!({"stringData": {"k": "second"}});
    secrets.patch("key", &PatchParams::default(), &Patch::Merge(&rotated)).await.unwrap();
    wait("a rotated Secret reaches its copy", async || fleet.copy(&west.name, "Secret key").await.spec.hash != before)
        .await;

    let available = json!({"replicas": 1, "availableReplicas": 1, "observedGeneration": 1});
    fleet.report(&first, available.clone(), true).await;
    fleet.move_policy(&policy, &east.name).await;
    let second = fleet.copy(&east.name, "Deployment web").await;
    for what in FOLLOWERS {
        fleet.copy(&east.name, what).await;
    }
    fleet.report(&second, available, true).await;
    let is_deleted = async |what: &str| fleet.copy(&west.name, what).await.metadata.deletion_timestamp.is_some();
    wait("the old copy is being deleted", async || is_deleted("Deployment web").await).await;
    for what in FOLLOWERS {
        assert!(!is_deleted(what).await, "{what} is kept while the old copy is there");
    }
    fleet.report_deleted(&first).await;
    for what in FOLLOWERS {
        wait(&format!("{what} leaves"), async || is_deleted(what).await).await;
    }
    fleet.end(&[policy]).await;
}

#[tokio::test]
async fn a_claim_has_one_home_and_what_mounts_it_stays_there() {
    let fleet = Fleet::new().await;
    let (west, east) = (fleet.join(2).await, fleet.join(2).await);
    let policy = fleet.policy(only_on(&west.name)).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    fleet.create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    fleet.web(json!({"volumes": [volume]})).await;
    fleet.copy(&west.name, "PersistentVolumeClaim data").await;
    fleet.copy(&west.name, "Deployment web").await;
    fleet.move_policy(&policy, &east.name).await;
    wait("the group says that its volumes keep it", async || {
        let groups = fleet.groups(&policy).await;
        let conditions = groups.into_iter().flat_map(|group| group.status.unwrap_or_default().conditions);
        let messages: Vec<String> = conditions.map(|one| one.message).collect();
        messages.iter().any(|message| message.contains("its volumes cannot be moved"))
    })
    .await;
    let there = fleet.copies(&east.name).await;
    assert!(!there.contains_key("PersistentVolumeClaim data") && !there.contains_key("Deployment web"), "{there:?}");
    fleet.end(&[policy]).await;
}
