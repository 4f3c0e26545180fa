//! The roles that `show rbac` prints: enough for every command, and when a right is missing it is named.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bed::Bed;
use fleetctl::api::rbac::{Right, Scope, build_rules};
use fleetctl::apply::{Engine, Options, Planned, Removal};
use fleetctl::chart::versions::select::{Request, select_row};
use fleetctl::chart::{Kind, SetKind, embedded_versions};
use fleetctl::check::inside;
use fleetctl::control_plane::endpoint::exposure::Endpoint;
use fleetctl::control_plane::keys::find_keys;
use fleetctl::control_plane::keys::find_keys::AdminKubeconfigError;
use fleetctl::control_plane::plan::Plan;
use fleetctl::control_plane::rbac::{build_install_roles, list_install_rights};
use fleetctl::control_plane::values::ExposureType;
use fleetctl::control_plane::{installed_status, preflight};
use fleetctl::install::release_spec::{load_chart, to_planned_objects};
use fleetctl::inventory::Owner;
use fleetctl::k8s::{Event, Events};
use fleetctl::pki;
use futures::stream::{self, StreamExt as _};
use kube::Client;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};

use super::kill::TOGETHER;
use super::support::{Case, among_others, client_of, cluster, kubeconfig, objects, release};

pub(crate) fn plan(namespace: &str, version: &str) -> Plan {
    let request = Request { version: Some(version), image_tag: None, server: None };
    let selection = select_row(embedded_versions(), request).unwrap();
    let chart = load_chart(Kind::ControlPlane, &selection).unwrap();
    let values = chart.values_builder().set(SetKind::Value, "exposure.type=NodePort");
    Plan::new(namespace.parse().unwrap(), namespace.parse().unwrap(), &selection, chart, values).unwrap()
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint {
        kind: ExposureType::NodePort,
        host: "192.0.2.1".into(),
        port: 32222,
        node_port: None,
        found_node_port: None,
        sans: Vec::new(),
    }
}

pub(crate) fn apply(object: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    Bed::here().unwrap().kubectl(&cluster(), &["apply", "-f", &file.display().to_string()]).unwrap();
}

pub(crate) fn binding(kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let role = if kind == "ClusterRoleBinding" { "ClusterRole" } else { "Role" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]})
}

/// A user of the cluster who has no right but those that are bound to it afterwards.
pub(crate) async fn user(name: &str) -> Client {
    apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}));
    let token = Bed::here().unwrap().kubectl(&cluster(), &["-n", "default", "create", "token", name]).unwrap();
    let mut config = Kubeconfig::read_from(kubeconfig()).unwrap();
    for entry in &mut config.auth_infos {
        entry.auth_info = Some(AuthInfo { token: Some(token.trim().to_owned().into()), ..AuthInfo::default() });
    }
    client_of(config).await.0
}

/// Takes away what a test made for a user.
pub(crate) fn forget(name: &str) {
    let bed = Bed::here().unwrap();
    for kind in ["clusterrolebinding", "clusterrole"] {
        let _ = bed.kubectl(&cluster(), &["delete", kind, name, "--ignore-not-found"]);
    }
    let _ = bed.kubectl(&cluster(), &["-n", "default", "delete", "serviceaccount", name, "--ignore-not-found"]);
    let _ = bed.kubectl(&cluster(), &["delete", "namespace", name, "--ignore-not-found", "--wait=false"]);
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Everything that install, status and uninstall ask of the hosting cluster, but for waiting: no pod ever runs here.
async fn life(client: &Client, plan: &Plan) -> Result<bool, String> {
    let _turn = among_others().await;
    let options = Options { deadline: Some(Instant::now() + Duration::from_secs(120)), ..Options::default() };
    let engine = Engine::new(client.clone(), plan.package.owner(), options, Events::none());
    let rendered = plan.render_control_plane(&endpoint(), &pki::placeholder_files()).unwrap();
    let examined = preflight::collect_preflight_facts(plan, client, &engine, &rendered.objects, false, &mut |_| ())
        .await
        .map_err(|e| chain(&e))?;
    if !examined.0.forbidden.is_empty() {
        return Err(format!("you may not {}", examined.0.forbidden.join(", ")));
    }
    examined.1.map_err(|e| chain(&e))?;
    let whole = to_planned_objects(&rendered.objects);
    let release = plan.control_plane_release(&endpoint());
    let compared = engine.plan_install(&release, &whole).await.map_err(|e| chain(&e))?;
    let mut run = engine.begin_run(compared).await.map_err(|e| chain(&e))?;
    let applied = run.apply_all_stages().await.map_err(|e| chain(&e));
    if let Err(error) = applied {
        let _ = run.release_run().await;
        return Err(error);
    }
    run.commit_run().await.map_err(|e| chain(&e))?;
    assert!(engine.plan_install(&release, &whole).await.map_err(|e| chain(&e))?.is_noop());
    let namespace = plan.package.namespace.as_str();
    let services: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::namespaced(client.clone(), namespace);
    services.get("apiserver").await.map_err(|e| chain(&e))?;
    find_keys::from_cluster(client, namespace, plan.name.as_str()).await.map_err(|e| chain(&e))?;
    // Placeholders are no kubeconfig; it counts that the Secret may be read.
    if let Err(AdminKubeconfigError::Api(error)) = find_keys::admin_kubeconfig(client, namespace, namespace).await {
        return Err(chain(&error));
    }
    inside::read_components(client, namespace).await.map_err(|e| chain(&e))?;
    let sets: kube::Api<k8s_openapi::api::apps::v1::StatefulSet> = kube::Api::namespaced(client.clone(), namespace);
    sets.list(&kube::api::ListParams::default()).await.map_err(|e| chain(&e))?;
    let report = installed_status::observe_installation(client, &plan.name, &plan.package.namespace).await.report;
    let objects = report.judged.iter().find(|judged| judged.id == "objects").unwrap();
    if !matches!(objects.result, fleetctl::check::CheckResult::Passed(_)) {
        return Err(format!("{:?}", objects.result));
    }
    // The claim of etcd follows its set a moment later, and is a part of what an uninstall may delete.
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        kube::Api::namespaced(client.clone(), namespace);
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client.clone(), namespace);
    for _ in 0..100 {
        let all = kube::api::ListParams::default();
        let there = !claims.list(&all).await.map_err(|e| chain(&e))?.items.is_empty()
            && pods.list(&all).await.map_err(|e| chain(&e))?.items.len() > 1;
        if there {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let removed = engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.map_err(|e| chain(&e))?;
    assert!(removed.leftovers.is_empty(), "{:?}", removed.leftovers);
    Ok(removed.kept.is_empty())
}

/// Gives a user rights in the whole cluster, so that the namespace can come and go.
fn grant<'r>(name: &str, rights: impl IntoIterator<Item = &'r Right>) {
    apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": build_rules(rights)}));
    apply(&binding("ClusterRoleBinding", name, None));
}

pub(crate) fn unique(name: &str) -> String {
    super::support::unique("r", name)
}

#[tokio::test]
async fn the_printed_roles_are_enough_in_a_namespace_that_is_there() {
    let name = unique("roles");
    let plan = plan(&name, "v0.6");
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let client = user(&name).await;
    let [cluster_role, role] = build_install_roles(&plan, &list_install_rights(&plan).unwrap()).unwrap();
    let own = format!("fleetctl-{name}-{name}");
    for mut object in [cluster_role, role] {
        assert_eq!(object["metadata"]["name"], own.as_str());
        object["metadata"]["name"] = name.clone().into();
        apply(&object);
    }
    apply(&binding("ClusterRoleBinding", &name, None));
    apply(&binding("RoleBinding", &name, Some(&name)));
    let namespace_gone = life(&client, &plan).await.unwrap();
    assert!(!namespace_gone, "it was there before");
    forget(&name);
}

#[tokio::test]
async fn with_all_rights_everywhere_the_namespace_comes_and_goes_and_without_the_optional_ones_it_stays() {
    let (all, few) = (unique("all"), unique("few"));
    for (name, gone) in [(&all, true), (&few, false)] {
        let plan = plan(name, "v0.6");
        let rights = list_install_rights(&plan).unwrap();
        let client = user(name).await;
        grant(name, rights.iter().filter(|right| gone || !right.optional));
        assert_eq!(life(&client, &plan).await, Ok(gone));
        forget(name);
    }
}

async fn without(right: Right) {
    let name = unique("less");
    let plan = plan(&name, "v0.6");
    let client = user(&name).await;
    let all = list_install_rights(&plan).unwrap();
    // The right to list everything would hide that one kind may not be listed, and here all hold in the whole cluster.
    let same =
        |other: &Right| (&other.group, &other.resource, other.verb) == (&right.group, &right.resource, right.verb);
    let hides = |other: &Right| same(other) || other.resource == "*" && right.verb == "list";
    grant(&name, all.iter().filter(|other| **other != right && !hides(other)));
    let outcome = life(&client, &plan).await;
    let error = outcome.expect_err(&format!("it does without {right:?}"));
    let long = format!("cannot {} resource \"{}\"", right.verb, right.resource);
    let short = format!("{} {}", right.verb, right.resource);
    assert!(error.contains(&long) || error.contains(&short), "{right:?}: {error}");
    forget(&name);
}

/// Rights that the program needs and that are its own, not granted by another right.
fn needed() -> Vec<Right> {
    let all = list_install_rights(&plan("any", "v0.6")).unwrap().into_iter().filter(|right| !right.optional);
    // Pods are read to see that they are gone, and without a node they are gone before that.
    all.filter(|right| (right.resource.as_str(), right.verb) != ("pods", "get")).collect()
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_named() {
    let some: Vec<Right> = needed()
        .into_iter()
        .filter(|right| {
            matches!(
                (right.resource.as_str(), right.verb),
                ("namespaces", "create") | ("secrets", "patch") | ("services", "delete") | ("pods", "list")
            )
        })
        .collect();
    assert_eq!(some.len(), 4);
    assert!(some.iter().any(|right| right.scope == Scope::Cluster));
    stream::iter(some).for_each_concurrent(TOGETHER, without).await;
}

#[tokio::test]
async fn what_may_not_be_deleted_stays_recorded_and_is_told_until_it_may_be() {
    let case = Case::new("kept-back").await;
    let (whole, name) = (objects(&case), case.namespace.as_str());
    case.install(&whole).await.unwrap();
    let is_budget = |planned: &&Planned| planned.object["kind"] == "PodDisruptionBudget";
    let fewer: Vec<Planned> = whole.iter().filter(|planned| !is_budget(planned)).cloned().collect();
    assert_eq!(whole.len() - fewer.len(), 1);

    let narrow = unique("narrow");
    let client = user(&narrow).await;
    let everything_but_delete = ["get", "list", "watch", "create", "update", "patch"];
    apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": narrow},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": everything_but_delete}]}));
    apply(&binding("ClusterRoleBinding", &narrow, None));
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let options = Options { deadline: Some(Instant::now() + Duration::from_secs(120)), ..Options::default() };
    let events = Events::new(move |event| sink.lock().unwrap().push(event.event));
    let engine = Engine::new(client, Owner::new("control-plane", name, name), options, events);
    for _ in 0..2 {
        let mut run = engine.begin_run(engine.plan_install(&release(), &fewer).await.unwrap()).await.unwrap();
        run.apply_all_stages().await.unwrap();
        run.commit_run().await.unwrap();
        let told = std::mem::take(&mut *told.lock().unwrap());
        let stays = |event: &&Event| {
            matches!(event, Event::Warning { object, message } if object.kind == "PodDisruptionBudget"
                && message.contains("no longer part of the release, but kept") && message.contains("cannot delete"))
        };
        assert_eq!(told.iter().filter(stays).count(), 1, "{told:?}");
        assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_some());
    }
    case.install(&fewer).await.unwrap();
    assert!(case.get("policy", "PodDisruptionBudget", "b").await.is_none(), "it was still recorded");
    case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    forget(&narrow);
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn every_right_is_needed_and_is_named_when_it_is_taken_away() {
        stream::iter(needed()).for_each_concurrent(TOGETHER, without).await;
    }
}
