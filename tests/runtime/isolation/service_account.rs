//! The agent's service account in a workload cluster, as the chart of each line binds it.

use std::process::Command;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::{AuthInfo, Kubeconfig};

use super::table::{Credential, grants};
use super::{Trial, served};
use crate::support::{Stage, client_of};

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
    kubectl(&["delete", "--ignore-not-found"], &bound);
}
