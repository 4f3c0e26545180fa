//! An agent with the rights of the chart: enough for every kind, and a right that is missing is named.

use std::path::{Path, PathBuf};

use fleetctl::api::placeable::PLACEABLE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Site;
use crate::applicant::fresh;
use crate::membership::Scene;
use crate::support::wait;

/// The roles that the chart renders with some flags that give values, with other names.
pub(crate) fn roles(name: &str, values: &[&str]) -> Vec<Value> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    command.args(["template", "agent", "member", "--version", "v0.6"]).args(values);
    let answer = command.env_remove("KUBECONFIG").output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(answer.stdout).unwrap()).unwrap();
    let is_role = |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"));
    let mut roles: Vec<Value> = objects.into_iter().filter(is_role).collect();
    // `withhold` takes the first for the role of the whole cluster.
    roles.sort_by_key(|role| role["kind"] != "ClusterRole");
    for role in &mut roles {
        role["metadata"]["name"] = json!(name);
    }
    roles
}

/// A kubeconfig of a service account of the member that has the roles of the chart with some values.
pub(crate) async fn kubeconfig(scene: &Scene, name: &str, folder: &Path, values: &[&str]) -> PathBuf {
    let client = scene.member.client.clone();
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "fleet");
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": "fleet" }]);
    for role in roles(name, values) {
        let kind = role["kind"].as_str().unwrap();
        let binding = json!({ "metadata": { "name": name }, "subjects": subjects,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name } });
        let params = PostParams::default();
        if kind == "ClusterRole" {
            let roles: Api<ClusterRole> = Api::all(client.clone());
            roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
            let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
            bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
        } else {
            let namespace = role["metadata"]["namespace"].as_str().unwrap().to_owned();
            let roles: Api<Role> = Api::namespaced(client.clone(), &namespace);
            roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
            let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
            bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
        }
    }
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    let mut config: Value = serde_saphyr::from_str(&fs_err::read_to_string(&scene.member.kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"] = json!({ "token": token.status.unwrap().token });
    let file = folder.join("kubeconfig");
    fs_err::write(&file, config.to_string()).unwrap();
    file
}

/// Gives the chart's roles of a service account other rules, those without some API group.
pub(crate) async fn withhold(scene: &Scene, name: &str, group: Option<&str>) {
    let all = roles(name, &[])[0]["rules"].as_array().unwrap().clone();
    let rules: Vec<Value> =
        all.into_iter().filter(|rule| group.is_none_or(|group| rule["apiGroups"] != json!([group]))).collect();
    let roles: Api<ClusterRole> = Api::all(scene.member.client.clone());
    roles.patch(name, &PatchParams::default(), &Patch::Merge(&json!({ "rules": rules }))).await.unwrap();
}

/// Removes what [`kubeconfig`] made.
pub(crate) async fn remove(scene: &Scene, name: &str) {
    let (client, params) = (scene.member.client.clone(), DeleteParams::default());
    let _ = Api::<ClusterRoleBinding>::all(client.clone()).delete(name, &params).await;
    let _ = Api::<ClusterRole>::all(client.clone()).delete(name, &params).await;
    for namespace in ["fleet", "kube-system"] {
        let _ = Api::<RoleBinding>::namespaced(client.clone(), namespace).delete(name, &params).await;
        let _ = Api::<Role>::namespaced(client.clone(), namespace).delete(name, &params).await;
    }
    let _ = Api::<ServiceAccount>::namespaced(client, "fleet").delete(name, &params).await;
}

/// A manifest of each kind.
fn manifests(place: &str) -> Vec<Value> {
    let template =
        json!({ "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({ "matchLabels": { "app": "x" } });
    let workload = json!({ "selector": selector, "template": template, "replicas": 0 });
    let backend = json!({ "service": { "name": "x", "port": { "number": 80 } } });
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let specs = json!({
        "Namespace": {}, "PriorityClass": { "value": 7 }, "ConfigMap": {}, "Secret": {}, "ServiceAccount": {},
        "PersistentVolumeClaim": { "spec": claim },
        "PodDisruptionBudget": { "spec": { "selector": selector, "minAvailable": 1 } },
        "NetworkPolicy": { "spec": { "podSelector": {} } },
        "IngressClass": { "spec": { "controller": "example.com/x" } },
        "Service": { "spec": { "ports": [{ "port": 80 }] } },
        "Pod": { "spec": template["spec"] },
        "Deployment": { "spec": workload }, "ReplicaSet": { "spec": workload },
        "StatefulSet": { "spec": { "selector": selector, "template": template, "replicas": 0, "serviceName": "x" } },
        "DaemonSet": { "spec": { "selector": selector, "template": template } },
        "Job": { "spec": { "suspend": true, "template": once } },
        "CronJob": { "spec": { "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": { "template": once } } } },
        "HorizontalPodAutoscaler": { "spec": { "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "x" } } },
        "Ingress": { "spec": { "defaultBackend": backend } },
    });
    let one = |kind: &fleetctl::api::placeable::Placeable| {
        let mut manifest = specs[kind.kind].clone();
        assert!(manifest.is_object(), "{} has no manifest here", kind.kind);
        manifest["apiVersion"] = json!(kind.api_version());
        manifest["kind"] = json!(kind.kind);
        let name = if kind.namespaced { "x" } else { place };
        manifest["metadata"] = json!({ "name": name });
        if kind.namespaced {
            manifest["metadata"]["namespace"] = json!(place);
        }
        // The names of classes are not the namespace's.
        manifest
    };
    PLACEABLE.iter().map(one).collect()
}

#[tokio::test]
async fn the_rights_of_the_chart_are_enough_for_every_kind_and_a_missing_one_is_named() {
    let mut site = Site::set().await;
    drop(site.agent.take());
    let (name, folder) = (fresh("rights"), tempfile::tempdir().unwrap());
    let member = kubeconfig(&site.scene, &name, folder.path(), &[]).await;
    let accounts: Api<ServiceAccount> = site.in_place();
    let payload = json!({ "metadata": { "name": "secret" }, "stringData": { "a": "b" } });
    let payloads: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(site.scene.stage.hub.client.clone(), &format!("fleet-c-{}", site.scene.name));
    payloads.create(&PostParams::default(), &serde_json::from_value(payload).unwrap()).await.unwrap();
    let all = manifests(&site.place);
    let names: Vec<String> = all.iter().map(|manifest| manifest["kind"].as_str().unwrap().to_lowercase()).collect();
    for (name, manifest) in names.iter().zip(&all) {
        site.schedule(name, manifest, json!({})).await;
    }
    site.start_by(&member, &[]).await;
    for name in &names {
        site.until(name, "Applied").await;
    }
    assert!(accounts.get_opt("x").await.unwrap().is_some());
    // A list that server-side apply refuses is edited by the same rights.
    let mut doubled = all.iter().find(|manifest| manifest["kind"] == "Deployment").unwrap().clone();
    for port in [8080, 9090] {
        doubled["spec"]["template"]["spec"]["containers"][0]["ports"] =
            json!([{ "name": "a", "containerPort": port }, { "name": "b", "containerPort": port }]);
        site.schedule("deployment", &doubled, json!({})).await;
        wait("the ports arrive", async || {
            let copy = site.in_place::<Deployment>().get("x").await.unwrap().spec.unwrap().template.spec.unwrap();
            copy.containers[0].ports.iter().flatten().filter(|found| found.container_port == port).count() == 2
        })
        .await;
        site.until("deployment", "Applied").await;
    }
    // Each is deleted by the same rights, the namespace after all that is in it.
    for name in &names {
        site.schedules().delete(name, &DeleteParams::default()).await.unwrap();
    }
    for name in names.iter().rev() {
        assert_eq!(site.released(name).await.0, "Deleted", "{name}");
    }

    // A role that is older than a kind.
    withhold(&site.scene, &name, Some("policy")).await;
    site.place = fresh("copies");
    site.make_place().await;
    let budget = manifests(&site.place).into_iter().find(|manifest| manifest["kind"] == "PodDisruptionBudget").unwrap();
    site.schedule("budget", &budget, json!({})).await;
    let message = site.until("budget", "Forbidden").await;
    assert!(message.contains("poddisruptionbudgets") && message.contains("patch"), "{message}");
    withhold(&site.scene, &name, None).await;
    site.until("budget", "Applied").await;
    site.delete("budget").await;

    remove(&site.scene, &name).await;
    site.leave().await;
}
