//! Tenants of the control plane: `edit` in one namespace of it, and the right to write SchedulePolicies alone.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::table::{Credential, Grant, grants};
use super::{Trial, served, title};
use crate::applicant::{ControlPlane, fresh};
use crate::support::{Stage, client_of};

/// Verbs on everything that has a name.
const ALL: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Returns what rules grant, in one namespace or everywhere.
fn granted(rules: &[PolicyRule], namespace: Option<&str>) -> Vec<Grant> {
    let of_rule = |rule: &PolicyRule| {
        let groups = rule.api_groups.clone().unwrap_or_default();
        let resources = rule.resources.clone().unwrap_or_default();
        let of_group = |group: String| {
            let of_resource = |resource: &String| {
                let (plural, sub) = resource.split_once('/').map_or((resource.as_str(), None), |(p, s)| (p, Some(s)));
                Grant::new(title(&group, plural, sub), namespace, rule.verbs.clone())
            };
            resources.iter().map(of_resource).collect::<Vec<_>>()
        };
        groups.into_iter().flat_map(of_group).collect::<Vec<_>>()
    };
    rules.iter().flat_map(of_rule).collect()
}

/// Returns the same, and the namespace itself: a request for it by its name counts as one inside.
fn granted_in(rules: &[PolicyRule], namespace: &str) -> Vec<Grant> {
    let inside = granted(rules, Some(namespace));
    let itself: Vec<Grant> = inside.iter().filter_map(|grant| grant.on_namespace(namespace)).collect();
    inside.into_iter().chain(itself).collect()
}

/// A client of a new service account of a namespace.
async fn account(stage: &Stage, namespace: &str, name: &str) -> Client {
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.hub.client.clone(), namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    let token = token.status.unwrap().token;
    let mut kubeconfig = Kubeconfig::read_from(&stage.hub.kubeconfig).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
    }
    client_of(kubeconfig).await
}

fn binding(namespace: &str, name: &str, role: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_may_do_in_its_namespace_what_its_role_says_and_nothing_elsewhere() {
    let stage = Stage::hub().await;
    let _control_plane = ControlPlane::start(&stage, "").await;
    let admin = stage.hub.client.clone();
    let (team, policies) = (fresh("team"), fresh("policies"));
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": team}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();

    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let rules = async |role: &str| roles.get(role).await.unwrap().rules.unwrap_or_default();
    for role in ["view", "edit", "admin"] {
        // Of what the service adds, all is without a namespace: a binding in a namespace gives none of it.
        let is_added =
            |rule: &PolicyRule| rule.api_groups.iter().flatten().any(|group| group.ends_with("fleet-scheduler.io"));
        for rule in rules(role).await.iter().filter(|rule| is_added(rule)) {
            let is_read = |verb: &String| ["get", "list", "watch"].contains(&verb.as_str());
            let is_shown = |kind: &String| ["clusters", "schedulepolicies", "schedulegroups"].contains(&kind.as_str());
            let is_reading = rule.verbs.iter().all(is_read) && rule.resources.iter().flatten().all(is_shown);
            assert!(is_reading, "{role} only reads clusters, policies and groups: {rule:?}");
        }
    }
    let editor = account(&stage, &team, "editor").await;
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), &team);
    let bound = serde_json::from_value(binding(&team, "editor", "edit")).unwrap();
    bindings.create(&PostParams::default(), &bound).await.unwrap();

    let author = account(&stage, &team, "author").await;
    let role = json!({"metadata": {"name": policies},
        "rules": [{"apiGroups": ["policy.fleet-scheduler.io"], "resources": ["schedulepolicies"], "verbs": ALL}]});
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let everywhere: Api<ClusterRoleBinding> = Api::all(admin.clone());
    let mut bound = binding(&team, "author", &policies);
    bound["metadata"]["name"] = json!(policies);
    everywhere.create(&PostParams::default(), &serde_json::from_value(bound).unwrap()).await.unwrap();

    let served = served(&admin).await;
    for (client, more) in
        [(editor, granted_in(&rules("edit").await, &team)), (author, granted(&rules(&policies).await, None))]
    {
        let trial = Trial {
            client,
            grants: grants(Credential::Everybody, "").into_iter().chain(more).collect(),
            namespaces: [&team, "kube-system", "fleet", "default"].map(ToString::to_string).into(),
            names: ["fleet-agent", "fleet-cluster-init-kubeconfig"].map(ToString::to_string).into(),
            all_names: false,
            served: served.clone(),
            admin: admin.clone(),
        };
        trial.run().await;
    }
    everywhere.delete(&policies, &DeleteParams::default()).await.unwrap();
    roles.delete(&policies, &DeleteParams::default()).await.unwrap();
    namespaces.delete(&team, &DeleteParams::default()).await.unwrap();
}
