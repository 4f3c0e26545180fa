//! The agent's service account in a workload cluster, as the chart of each line binds it.

use std::process::Command;

use fleetctl::api::placeable;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, Kubeconfig};

use super::table::{Credential, grants};
use super::{Trial, served};
use crate::support::{Stage, client_of, wait};

/// Kinds of the chart that say who may do what, with the namespace that they are in.
const RIGHTS: [&str; 6] = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_service_account_may_do_in_its_cluster_what_the_page_says() {
    let stage = Stage::hub().await;
    let member = stage.member().await;
    let folder = tempfile::tempdir().unwrap();
    let rendered = Command::new(env!("CARGO_BIN_EXE_fleetctl"))
        .args(["template", "agent", "west", "--version", "v1.2", "-o", "json"])
        .env("HOME", folder.path())
        .output()
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&rendered.stdout).unwrap();
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}});
    let of_rights = |object: &&serde_json::Value| RIGHTS.iter().any(|kind| object["kind"] == *kind);
    let rights: Vec<_> = list["items"].as_array().unwrap().iter().filter(of_rights).cloned().collect();
    let bound = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": rights});
    let file = folder.path().join("rights.json");
    let kubectl = |args: &[&str], object: &serde_json::Value| {
        fs_err::write(&file, object.to_string()).unwrap();
        let mut command = Command::new(stage.kubectl());
        command.arg("--kubeconfig").arg(&member.kubeconfig).args(args).arg("-f").arg(&file);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    kubectl(&["apply"], &namespace);
    kubectl(&["apply"], &bound);

    let accounts: Api<ServiceAccount> = Api::namespaced(member.client.clone(), "fleet");
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let token = accounts.create_token_request("fleet-agent", &PostParams::default(), &request).await.unwrap();
    let mut kubeconfig = Kubeconfig::read_from(&member.kubeconfig).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info =
            Some(AuthInfo { token: Some(token.status.clone().unwrap().token.into()), ..AuthInfo::default() });
    }
    let trial = Trial {
        client: client_of(kubeconfig).await,
        grants: grants(Credential::ServiceAccount, "west"),
        namespaces: ["fleet", "kube-system", "default"].map(ToString::to_string).into(),
        names: ["fleet-agent", "fleet-agent-identity", "kube-system", "cluster-admin"].map(ToString::to_string).into(),
        all_names: false,
        served: served(&member.client).await,
        admin: member.client.clone(),
    };
    trial.run().await;

    // What no role can tell apart, with the admission policy of the chart and without.
    let policies: Vec<_> = list["items"].as_array().unwrap().iter().filter(|one| is_policy(one)).cloned().collect();
    assert_eq!(policies.len(), 2, "the version is served everywhere");
    let policies = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": policies});
    kubectl(
        &["apply"],
        &serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-agent-identity",
        "namespace": "fleet", "labels": {"fleet-scheduler.io/install-kind": "agent"}}}),
    );
    let writes = |namespace: &'static str, body: serde_json::Value| {
        let api: Api<DynamicObject> = Api::namespaced_with(trial.client.clone(), namespace, &resource_of(&body));
        async move {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            match api.create(&params, &serde_json::from_value(body).unwrap()).await {
                Ok(_) => 201,
                Err(kube::Error::Api(status)) => status.code,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let token = || {
        serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "pwn", "annotations": {"kubernetes.io/service-account.name": "default"}}})
    };
    let map = || serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for namespace in ["default", "kube-system", "fleet"] {
        assert_eq!(writes(namespace, map()).await, 201, "{namespace}");
    }
    assert_eq!(writes("default", token()).await, 201);
    kubectl(&["apply"], &policies);
    wait("the policy is in force", async || writes("kube-system", token()).await == 403).await;
    for namespace in ["kube-system", "fleet"] {
        assert_eq!(writes(namespace, map()).await, 403, "{namespace}");
    }
    assert_eq!((writes("default", map()).await, writes("default", token()).await), (201, 403));
    let identity: Api<Secret> = Api::namespaced(trial.client.clone(), "fleet");
    let change = serde_json::json!({"metadata": {"annotations": {"a": "b"}}});
    identity.patch("fleet-agent-identity", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    // What exists: a copy from before the namespace was protected, what is no copy, and a part of the service.
    let labelled = |name: &str, namespace: &str, labels: serde_json::Value| {
        let metadata = serde_json::json!({"name": name, "namespace": namespace, "labels": labels});
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        kubectl(&["apply"], &object);
        object
    };
    let copy = serde_json::json!({"fleet-scheduler.io/placed-by": "anybody"});
    let existing = [
        labelled("copy", "kube-system", copy.clone()),
        labelled("other", "kube-system", serde_json::json!({})),
        labelled("part", "default", serde_json::json!({"fleet-scheduler.io/install-kind": "agent"})),
        labelled("plain", "default", copy),
    ];
    let edit = serde_json::json!({"data": {"a": "b"}});
    let release = serde_json::json!({"metadata": {"labels": {"fleet-scheduler.io/placed-by": null}}});
    let mut answers = Vec::new();
    for object in &existing {
        let (namespace, name) =
            (object["metadata"]["namespace"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let api: Api<ConfigMap> = Api::namespaced(trial.client.clone(), namespace);
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let edited = api.patch(name, &params, &Patch::Merge(&edit)).await.is_ok();
        let released = api.patch(name, &params, &Patch::Merge(&release)).await.is_ok();
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        answers.push((name, edited, released, api.delete(name, &params).await.is_ok()));
    }
    // Edited; its label removed; deleted.
    let right = [
        ("copy", false, true, true),
        ("other", false, false, false),
        ("part", false, false, false),
        ("plain", true, true, true),
    ];
    assert_eq!(answers, right);
    let existing = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": existing});
    kubectl(&["delete", "--ignore-not-found"], &existing);
    kubectl(&["delete", "--ignore-not-found"], &policies);
    kubectl(&["delete", "--ignore-not-found"], &bound);
}

fn is_policy(object: &serde_json::Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

fn resource_of(object: &serde_json::Value) -> ApiResource {
    placeable::find_builtin_kind("", object["kind"].as_str().unwrap()).unwrap().api_resource()
}
