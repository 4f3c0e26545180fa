//! Kinds that an operator adds: a custom resource and its definition, and roles, with the rights of the chart.

use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};

use super::*;
use crate::copies::rights;
use crate::support::Program;

/// A custom resource of a group that nobody else uses.
pub(super) struct Widgets {
    pub(super) group: String,
    resource: ApiResource,
}

impl Widgets {
    pub(super) fn new() -> Self {
        let group = format!("{}.example.com", fresh("added"));
        let resource = ApiResource {
            group: group.clone(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: "Widget".to_owned(),
            plural: "widgets".to_owned(),
        };
        Self { group, resource }
    }

    pub(super) fn name(&self) -> String {
        format!("widgets.{}", self.group)
    }

    pub(super) fn definition(&self) -> CustomResourceDefinition {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        serde_json::from_value(json!({"metadata": {"name": self.name()}, "spec": {
            "group": self.group, "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        }}))
        .unwrap()
    }

    pub(super) fn object(&self, namespace: &str, size: i32) -> Value {
        json!({"apiVersion": self.resource.api_version, "kind": "Widget",
            "metadata": {"name": "one", "namespace": namespace}, "spec": {"size": size}})
    }

    pub(super) fn of(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource)
    }
}

#[tokio::test]
async fn a_custom_resource_its_definition_and_roles_are_placed_once_they_are_allowed() {
    let widgets = Widgets::new();
    let definitions = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let kinds = format!("--extra-kinds={definitions},{}/v1/Widget", widgets.group);
    let flags = [kinds.as_str(), "--allow-rbac-kinds"];
    let scene = Scene::set_with("", &flags).await;
    let hub = scene.stage.hub.client.clone();
    let (account, folder) = (fresh("rights"), tempfile::tempdir().unwrap());
    let added = format!(
        r#"placement.extraKinds=[{{"group":"apiextensions.k8s.io","version":"v1","kind":"CustomResourceDefinition","resource":"customresourcedefinitions"}},{{"group":"{}","version":"v1","kind":"Widget","resource":"widgets"}}]"#,
        widgets.group
    );
    let values = ["--set-json", added.as_str(), "--set", "placement.allowRBACKinds=true"];
    let by = rights::kubeconfig(&scene, &account, folder.path(), &values).await;
    let init = scene.control_plane.init_file.clone();
    let mut agent = Program::agent_with(&by, &init, &scene.name, "pod-1", &flags);
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;

    // Both run, and neither API server serves the kind yet.
    let place = fresh("shop");
    let namespace = json!({"metadata": {"name": place, "labels": {"team": place}}});
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let policies: Api<SchedulePolicy> = Api::all(hub.clone());
    let policy = async |kinds: Value| {
        let name = fresh("policy");
        let spec = json!({"namespaceSelector": {"matchLabels": {"team": place}},
            "resourceSelectors": {"labelSelectors": [{}], "kinds": kinds},
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.name}}});
        let body = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy",
            "metadata": {"name": name}, "spec": spec});
        policies.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        name
    };
    let valid = async |name: &str| {
        let status = policies.get(name).await.unwrap().status.unwrap_or_default();
        find_condition(&status.conditions, "Valid").map(|valid| (valid.is_true(), valid.reason.clone()))
    };
    let of_widgets = policy(json!([{"group": widgets.group, "kind": "Widget"}])).await;
    wait("the policy says so", async || valid(&of_widgets).await == Some((false, "KindNotPlaceable".to_owned()))).await;

    // The definition is made in the control plane, and comes to the member before what it defines.
    let crds = |client: &Client| Api::<CustomResourceDefinition>::all(client.clone());
    crds(&hub).create(&PostParams::default(), &widgets.definition()).await.unwrap();
    wait("the control plane serves it", async || {
        let one = serde_json::from_value(widgets.object(&place, 1)).unwrap();
        widgets.of(&hub, &place).create(&PostParams::default(), &one).await.is_ok()
    })
    .await;
    let of_definitions = policy(json!([{"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition"}])).await;
    let member = scene.member.client.clone();
    let size = async || {
        let found = widgets.of(&member, &place).get_opt("one").await.ok().flatten();
        found.and_then(|one| one.data["spec"]["size"].as_i64())
    };
    wait("the copy is in the member", async || size().await == Some(1)).await;
    wait("the policy can be applied", async || valid(&of_widgets).await == Some((true, "Valid".to_owned()))).await;
    let schedules: Api<Schedule> = Api::namespaced(hub.clone(), &cluster_namespace(&scene.name));
    for schedule in schedules.list(&ListParams::default()).await.unwrap().items {
        assert!(!schedule.spec.source_ref.name.ends_with("fleet-scheduler.io"), "{:?}", schedule.spec.source_ref);
    }
    let resize = json!({"spec": {"size": 2}});
    widgets.of(&hub, &place).patch("one", &PatchParams::default(), &Patch::Merge(&resize)).await.unwrap();
    wait("the edit is in the member", async || size().await == Some(2)).await;
    wait("it is told", async || {
        let status = schedules.list(&ListParams::default()).await.unwrap().items;
        status.iter().any(|one| {
            one.spec.source_ref.kind == "Widget" && one.status.as_ref().is_some_and(|s| s.applied_generation == Some(2))
        })
    })
    .await;
    let report = why(&scene.stage.hub.kubeconfig, "widget/one", &place, 0);
    assert_eq!(report["placed"], true, "{report}");

    // A change by others is put back: copies of the kind are watched.
    let by_others = json!({"spec": {"size": 9}});
    widgets.of(&member, &place).patch("one", &PatchParams::default(), &Patch::Merge(&by_others)).await.unwrap();
    wait("the change is put back", async || size().await == Some(2)).await;

    // A role that gives more than the agent holds.
    let roles = |client: &Client| Api::<Role>::namespaced(client.clone(), &place);
    let of_roles = policy(json!([{"group": "rbac.authorization.k8s.io", "kind": "Role"},
        {"group": "rbac.authorization.k8s.io", "kind": "ClusterRole"}]))
    .await;
    let role = json!({"metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["batch.example.com"], "resources": ["reports"], "verbs": ["get"]}]});
    roles(&hub).create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    wait("the role is in the member", async || roles(&member).get_opt("reader").await.unwrap().is_some()).await;
    // Those of Kubernetes and of the service itself stay where they are.
    let placed: Api<PartialObjectMeta<ClusterRole>> = Api::all(member.clone());
    let label = ListParams::default().labels(fleetctl::api::labels::LABEL_PLACED_BY);
    assert_eq!(placed.list_metadata(&label).await.unwrap().items.len(), 0);

    // What an uninstall has to look for.
    let secrets: Api<Secret> = Api::namespaced(member.clone(), "fleet");
    let identity = secrets.get("fleet-agent-identity").await.unwrap();
    let recorded = &identity.annotations()[fleetctl::api::labels::ANNOTATION_PLACED_KINDS];
    for kind in [definitions, "Widget", "rbac.authorization.k8s.io/v1/RoleBinding"] {
        assert!(recorded.contains(kind), "{recorded}");
    }

    // The sources go, and all copies with them.
    widgets.of(&hub, &place).delete("one", &DeleteParams::default()).await.unwrap();
    wait("the copy is gone", async || widgets.of(&member, &place).get_opt("one").await.unwrap().is_none()).await;
    crds(&hub).delete(&widgets.name(), &DeleteParams::default()).await.unwrap();
    namespaces.delete(&place, &DeleteParams::default()).await.unwrap();
    wait_until_none("Schedules", async || schedules.list(&ListParams::default()).await.unwrap().items).await;
    assert!(crds(&member).get_opt(&widgets.name()).await.unwrap().is_none(), "the definition is gone");
    for name in [of_widgets, of_definitions, of_roles] {
        policies.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    rights::remove(&scene, &account).await;
}

#[tokio::test]
async fn a_policy_that_would_take_kinds_that_are_not_placed_says_how_many() {
    let fleet = Fleet::new().await;
    let all = json!({"namespaceSelector": {"matchLabels": {"team": fleet.namespace}},
        "resourceSelectors": {"labelSelectors": [{}]}});
    let policy = fleet.policy_with(&all).await;
    let roles: Api<Role> = Api::namespaced(fleet.client(), &fleet.namespace);
    for name in ["reader", "writer"] {
        let role = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        roles.create(&PostParams::default(), &role).await.unwrap();
    }
    let policies: Api<SchedulePolicy> = Api::all(fleet.client());
    let expected = "2 Role: the value `placement.allowRBACKinds` places these kinds";
    wait("the policy says it", async || {
        let status = policies.get(&policy).await.unwrap().status.unwrap_or_default();
        find_condition(&status.conditions, "KindsPlaced").is_some_and(|one| one.message == expected)
    })
    .await;
    let events: Api<Event> = Api::all(fleet.client());
    wait("an event says it", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| {
            event.involved_object.name.as_ref() == Some(&policy) && event.reason.as_deref() == Some("KindsNotPlaced")
        })
    })
    .await;
    roles.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    wait("the policy says it no more", async || {
        let status = policies.get(&policy).await.unwrap().status.unwrap_or_default();
        find_condition(&status.conditions, "KindsPlaced").is_none()
    })
    .await;
    fleet.end(&[policy]).await;
}
