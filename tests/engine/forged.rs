//! A record or a journal that somebody forged, who may edit Secrets in the namespace and nothing else: nothing outside of what
//! the charts render is made, changed or deleted by it.

use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Error, Planned, Removal};
use fleetctl::k8s::{Event, ObjectRef};
use serde_json::{Value, json};

use super::actors::{bind, delete_wholly, edit, kubectl_made, made_by_kubectl};
use super::data_retention::{CLAIM, applied, is_bound, wipe};
use super::kill::settled;
use super::support::{Case, dump, kubeconfig, objects, release};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Creates an object, wherever it says.
async fn create(case: &Case, object: &Value) -> Value {
    let kind = Kind::find_known_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
    case.server().create_object(&kind, object).await.unwrap().object
}

/// The object as it is, without what a read may change.
async fn live(case: &Case, object: &ObjectRef) -> Option<Value> {
    let kind = Kind::needed_versions(&object.group, &object.kind).remove(0);
    case.server().get_object(&kind, object.namespace.as_deref(), &object.name).await.unwrap()
}

async fn remove(case: &Case, object: &ObjectRef) {
    let kind = Kind::needed_versions(&object.group, &object.kind).remove(0);
    if let Some(found) = live(case, object).await {
        case.server().delete_object(&kind, object, found["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    }
}

fn reference(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef::new(&Kind::needed_versions(group, kind).remove(0), namespace, name)
}

/// A journal of an install with these steps.
fn journal(steps: &[Value]) -> Value {
    json!({"run": "r", "command": "install", "started": "2026-11-25T00:00:00Z", "installUid": "u", "steps": steps})
}

/// Puts a part into the Secret of the record, as somebody does who may edit Secrets; makes the Secret where there is none.
async fn plant(case: &Case, part: &str, content: &Value) {
    let name = case.engine.owner().record_name();
    let data = json!({part: STANDARD.encode(content.to_string())});
    if case.get("", "Secret", &name).await.is_some() {
        edit(case, "kubectl-edit", "", "Secret", &name, json!({"data": data})).await;
    } else {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": case.namespace}, "data": data});
        create(case, &secret).await;
    }
}

/// The part of the Secret as it is.
async fn part(case: &Case, part: &str) -> Value {
    let secret = case.get("", "Secret", &case.engine.owner().record_name()).await.unwrap();
    serde_json::from_slice(&STANDARD.decode(secret["data"][part].as_str().unwrap()).unwrap()).unwrap()
}

/// What the real program says, started as an administrator of the cluster would.
fn fleetctl(case: &Case, args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_fleetctl"))
        .args(args)
        .args(["--namespace", &case.namespace])
        .env_clear()
        .env("HOME", case.folder.path())
        .env("KUBECONFIG", kubeconfig())
        .output()
        .unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code().unwrap(), said)
}

/// A namespace of others, with a Deployment and a ConfigMap in it.
async fn victims(case: &Case) -> (String, [ObjectRef; 2]) {
    let place = format!("{}-victim", case.namespace);
    create(case, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})).await;
    let metadata = |name: &str| json!({"name": name, "namespace": place});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("d"),
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "example.com/theirs"}]}}}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("config"), "data": {"a": "theirs"}});
    create(case, &deployment).await;
    create(case, &map).await;
    let made = [("apps", "Deployment", "d"), ("", "ConfigMap", "config")];
    let made = made.map(|(group, kind, name)| reference(group, kind, Some(&place), name));
    (place, made)
}

/// Steps that no run can have written, each with what is wrong about it.
fn forged(case: &Case, place: &str) -> Vec<(Value, &'static str)> {
    let own = &case.namespace;
    let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": own},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "attacker"}]});
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": own}, "webhooks": []});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": place}});
    let own_map = json!({"kind": "ConfigMap", "namespace": own, "name": "fleet-bootstrap", "apiVersion": "v1"});
    let with = |step: &Value, more: Value| {
        let mut step = step.clone();
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example.com/attacker"}]}}}});
    let data = json!({"data": {"a": "attacker"}});
    let theirs = json!({"kind": "ConfigMap", "namespace": place, "name": "config", "apiVersion": "v1"});
    vec![
        (
            json!({"group": RBAC, "kind": "ClusterRoleBinding", "name": own, "apiVersion": format!("{RBAC}/v1"),
                "undo": "recreate", "manifest": binding}),
            "no chart of any version renders this kind of object",
        ),
        (
            json!({"group": "admissionregistration.k8s.io", "kind": "MutatingWebhookConfiguration", "name": own,
                "apiVersion": "admissionregistration.k8s.io/v1", "undo": "recreate", "manifest": hook}),
            "no chart of any version renders this kind of object",
        ),
        (
            json!({"group": "apps", "kind": "Deployment", "namespace": place, "name": "d", "apiVersion": "apps/v1",
                "undo": "reapply", "patch": image, "theirs": {"manager": "kubectl", "patch": image}}),
            "no chart of any version renders an object of this kind with that name",
        ),
        (with(&theirs, json!({"undo": "release", "patch": data})), "with that name"),
        (
            with(&theirs, json!({"undo": "reapply", "patch": data, "theirs": {"manager": "kubectl", "patch": data}})),
            "with that name",
        ),
        (with(&theirs, json!({"undo": "delete"})), "with that name"),
        (
            json!({"kind": "Namespace", "name": place, "apiVersion": "v1", "undo": "delete"}),
            "no chart of any version renders an object of this kind with that name",
        ),
        (with(&own_map, json!({"undo": "recreate", "manifest": binding})), "would write to another"),
        (with(&own_map, json!({"undo": "recreate", "manifest": map})), "would write to another"),
        (
            with(
                &own_map,
                json!({"undo": "reapply", "patch": {"metadata": {"name": "config", "namespace": place}, "data": {"a": "attacker"}}}),
            ),
            "would write to another",
        ),
        (
            with(
                &own_map,
                json!({"undo": "release", "patch": data, "entries": [{"manager": "attacker", "operation": "Apply"}]}),
            ),
            "neither kubectl nor Helm",
        ),
        (with(&own_map, json!({"apiVersion": format!("{RBAC}/v1"), "undo": "delete"})), "its API version is not"),
        (
            json!({"kind": "ConfigMap", "namespace": own, "name": "../../../../namespaces/x\u{1b}[2J", "apiVersion": "v1", "undo": "delete"}),
            "with that name",
        ),
    ]
}

#[tokio::test]
async fn a_forged_step_is_refused_by_rollback_and_uninstall_and_nothing_is_written() {
    let case = Case::new("forged").await;
    create(&case, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}})).await;
    let (place, victims) = victims(&case).await;
    let binding = reference(RBAC, "ClusterRoleBinding", None, &case.namespace);
    let hook = reference("admissionregistration.k8s.io", "MutatingWebhookConfiguration", None, &case.namespace);
    let namespace = reference("", "Namespace", None, &place);
    let mut before = Vec::new();
    for victim in victims.iter().chain([&namespace]) {
        before.push(live(&case, victim).await.unwrap()["metadata"]["uid"].clone());
    }
    let spec = async |victim: &ObjectRef| {
        let found = live(&case, victim).await.unwrap();
        (found["metadata"]["uid"].clone(), found["spec"]["template"].clone(), found["data"].clone())
    };
    let (deployment, map) = (spec(&victims[0]).await, spec(&victims[1]).await);
    let record = case.engine.owner().record_name();
    // The program installs a control plane; here its name is that of the namespace.
    let name = &case.namespace.clone();
    for (step, why) in forged(&case, &place) {
        plant(&case, "journal", &journal(std::slice::from_ref(&step))).await;
        let planted = case.get("", "Secret", &record).await.unwrap()["metadata"]["resourceVersion"].clone();
        let (kind, object) =
            (step["kind"].as_str().unwrap(), step["name"].as_str().unwrap().replace('\u{1b}', "\\u{1b}"));
        for command in [&["rollback", name, "--yes"][..], &["uninstall", "control-plane", name]] {
            let (code, said) = fleetctl(&case, command);
            for part in [why, kind, &object, "kubectl -n ", "/data/journal"] {
                assert!(said.contains(part), "{command:?} on {step}: `{part}` is not in: {said}");
            }
            assert_eq!(code, 6, "{command:?} on {step}: {said}");
            assert!(!said.contains('\u{1b}'), "{said:?}");
        }
        let now = case.get("", "Secret", &record).await.unwrap()["metadata"]["resourceVersion"].clone();
        assert_eq!(now, planted, "something was written for {step}");
        for made in [&binding, &hook] {
            assert!(live(&case, made).await.is_none(), "{made} was made by {step}");
        }
        assert_eq!((spec(&victims[0]).await, spec(&victims[1]).await), (deployment.clone(), map.clone()), "{step}");
        assert!(live(&case, &namespace).await.unwrap()["metadata"]["deletionTimestamp"].is_null(), "{step}");
    }
    // Whoever looks at it and takes it out, as the error says, goes on.
    edit(&case, "kubectl-patch", "", "Secret", &record, json!({"data": {"journal": null}})).await;
    let (code, said) = fleetctl(&case, &["rollback", name]);
    assert!(code == 0 && said.contains("nothing to undo"), "{said}");
    remove(&case, &namespace).await;
    case.sweep().await;
}

#[tokio::test]
async fn rights_and_workloads_are_restored_from_the_recorded_release_whatever_a_journal_says() {
    let case = Case::new("rights").await;
    case.install(&objects(&case)).await.unwrap();
    let installed = settled(&case).await;
    let name = case.namespace.clone();
    // By somebody who knows what the labels are.
    let labelled = |mut manifest: Value| {
        case.engine.owner().set_owner_labels(&mut manifest);
        manifest
    };
    let attacker = json!([{"apiGroup": RBAC, "kind": "User", "name": "attacker"}]);
    let binding =
        labelled(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": attacker}));
    let pod = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "example.com/attacker"}]}});
    let deployment =
        labelled(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": name},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": pod}}));
    let rights = |kind: &str| json!({"group": RBAC, "kind": kind, "name": name, "apiVersion": format!("{RBAC}/v1")});
    let of_deployment =
        json!({"group": "apps", "kind": "Deployment", "namespace": name, "name": "d", "apiVersion": "apps/v1"});
    let with = |step: Value, more: Value| {
        let mut step = step;
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let steps = [
        with(rights("ClusterRoleBinding"), json!({"undo": "recreate", "manifest": binding})),
        with(
            rights("ClusterRole"),
            json!({"undo": "reapply", "patch": {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}}),
        ),
        with(of_deployment.clone(), json!({"undo": "recreate", "manifest": deployment})),
    ];
    // Where one is missing it is made, as the record has it.
    for (planted, missing) in
        [(&steps[..], None), (&steps[..], Some(reference(RBAC, "ClusterRoleBinding", None, &name)))]
    {
        if let Some(object) = &missing {
            remove(&case, object).await;
        }
        plant(&case, "journal", &journal(planted)).await;
        let state = case.engine.read_state().await.unwrap();
        let plan = case.engine.plan_undo(&state, None).await.unwrap();
        assert!(plan.steps.iter().all(|step| step.source == Some(fleetctl::apply::Source::Release)), "{plan:?}");
        let undone = case.engine.rollback_interrupted_run().await.unwrap();
        assert!(undone.problems.is_empty(), "{undone:?}");
        assert_eq!(settled(&case).await, installed);
    }
    // Fields given to others, and an adoption that never was.
    let given = with(
        of_deployment.clone(),
        json!({"undo": "reapply", "patch": {}, "theirs": {"manager": "kubectl", "patch": {"spec": {"template": pod}}}}),
    );
    plant(&case, "journal", &journal(&[given])).await;
    assert!(case.engine.rollback_interrupted_run().await.unwrap().problems.is_empty());
    assert_eq!(settled(&case).await, installed);
    // Without a release that can be rendered again nothing of it is done, and the way on is said.
    let mut record = part(&case, "record").await;
    record["release"]["version"] = "v9.9.9".into();
    plant(&case, "record", &record).await;
    plant(&case, "journal", &journal(&steps)).await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert_eq!(undone.problems.len(), steps.len(), "{undone:?}");
    for problem in &undone.problems {
        assert_eq!(problem.reason(), "NotRendered", "{problem}");
        let remedy = format!("{:?}", problem.remedy().unwrap());
        assert!(remedy.contains("install the recorded version `v9.9.9` again"), "{problem}");
    }
    assert_eq!(settled(&case).await, installed);
    // An install goes on from there.
    case.install(&objects(&case)).await.unwrap();
    assert!(case.engine.plan_install(&release(), &objects(&case)).await.unwrap().is_noop());
    wipe(&case).await;
}

#[tokio::test]
async fn what_is_not_of_this_installation_is_not_changed_although_a_chart_renders_its_name() {
    let case = Case::with("names", |options| options.adopt = true).await;
    create(&case, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}})).await;
    let data = json!({"a": "theirs"});
    kubectl_made(&case, "config", &data).await;
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": case.namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "example.com/theirs"}]}}}});
    made_by_kubectl(&case, "apps", "Deployment", &theirs).await;
    let before = dump(&case).await;
    let map = json!({"kind": "ConfigMap", "namespace": case.namespace, "name": "config", "apiVersion": "v1"});
    let deployment = json!({"group": "apps", "kind": "Deployment", "namespace": case.namespace, "name": "d", "apiVersion": "apps/v1"});
    let patch = json!({"data": {"a": "attacker"}});
    let with = |step: &Value, more: Value| {
        let mut step = step.clone();
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    for steps in [
        [
            with(&map, json!({"undo": "reapply", "patch": patch, "theirs": {"manager": "helm", "patch": patch}})),
            with(&deployment, json!({"undo": "delete"})),
        ],
        [
            with(&map, json!({"undo": "release", "patch": patch})),
            with(&deployment, json!({"undo": "release", "patch": {"spec": {"replicas": 9}}})),
        ],
        [
            with(&map, json!({"undo": "delete"})),
            with(&deployment, json!({"undo": "reapply", "patch": {"spec": {"replicas": 9}}})),
        ],
    ] {
        plant(&case, "journal", &journal(&steps)).await;
        let undone = case.engine.rollback_interrupted_run().await.unwrap();
        assert!(undone.problems.is_empty() && undone.undone.is_empty(), "{undone:?}");
        assert_eq!(dump(&case).await, before, "{steps:?}");
        plant(&case, "journal", &journal(&steps)).await;
        case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
        assert_eq!(dump(&case).await, before, "{steps:?}");
    }
    // A record that has it, by its uid, is no better than the journal beside it.
    let uid = case.get("", "ConfigMap", "config").await.unwrap()["metadata"]["uid"].clone();
    let item =
        json!({"kind": "ConfigMap", "namespace": case.namespace, "name": "config", "uid": uid, "origin": "created"});
    let record = json!({"format": 1, "owner": case.engine.owner(), "installUid": "u", "phase": "installed",
        "release": release(), "namespaceCreated": false, "written": "", "inventory": [item]});
    plant(&case, "record", &record).await;
    plant(&case, "journal", &journal(&[with(&map, json!({"undo": "reapply", "patch": patch}))])).await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty() && undone.undone.is_empty() && undone.kept.len() == 1, "{undone:?}");
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"], data);
    case.sweep().await;
}

#[tokio::test]
async fn a_forged_inventory_deletes_and_takes_over_nothing_of_others() {
    let case = Case::new("inventory").await;
    case.install(&objects(&case)).await.unwrap();
    let (place, victims) = victims(&case).await;
    let role = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": format!("{place}-role")}, "rules": []});
    let role = ObjectRef::of(&create(&case, &role).await).unwrap();
    let mut record = part(&case, "record").await;
    let mut uids = Vec::new();
    for victim in victims.iter().chain([&role]) {
        let uid = live(&case, victim).await.unwrap()["metadata"]["uid"].clone();
        let mut item = serde_json::to_value(victim).unwrap();
        item.as_object_mut()
            .unwrap()
            .extend([("uid".to_owned(), uid.clone()), ("origin".to_owned(), "created".into())]);
        record["inventory"].as_array_mut().unwrap().push(item);
        uids.push(uid);
    }
    record["namespaceCreated"] = true.into();
    plant(&case, "record", &record).await;
    let stands = async || {
        let mut now = Vec::new();
        for victim in victims.iter().chain([&role]) {
            let found = live(&case, victim).await.unwrap_or_else(|| panic!("{victim} is gone"));
            assert!(found["metadata"]["deletionTimestamp"].is_null(), "{victim}");
            now.push(found["metadata"]["uid"].clone());
        }
        assert_eq!(now, uids);
    };
    // A prune is of what the record has and the inputs do not.
    case.install(&objects(&case)).await.unwrap();
    stands().await;
    let told = |event: &Event| matches!(event, Event::Warning { object, .. } if *object == role);
    assert!(case.events.lock().unwrap().iter().any(told), "it is said that it stays");
    plant(&case, "record", &record).await;
    // By a journal that has it, and by an uninstall.
    let step = json!({"group": RBAC, "kind": "ClusterRole", "name": role.name, "apiVersion": format!("{RBAC}/v1"), "undo": "delete"});
    plant(&case, "journal", &journal(&[step])).await;
    let refused = case.engine.rollback_interrupted_run().await.unwrap_err();
    assert!(matches!(refused, Error::JournalRefused { .. }), "{refused}");
    edit(&case, "kubectl-edit", "", "Secret", &case.engine.owner().record_name(), json!({"data": {"journal": null}}))
        .await;
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    stands().await;
    assert!(dump(&case).await.keys().all(|key| key.contains("-victim")), "{:?}", dump(&case).await.keys());
    remove(&case, &role).await;
    remove(&case, &reference("", "Namespace", None, &place)).await;
}

#[tokio::test]
async fn an_object_of_the_same_name_elsewhere_is_not_ours_because_a_record_says_so() {
    let case = Case::new("taken").await;
    let name = case.namespace.clone();
    let role =
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
    let theirs = create(&case, &role).await;
    let mut few = objects(&case);
    few.retain(|planned| planned.object["kind"] != "ClusterRole");
    case.install(&few).await.unwrap();
    let mut record = part(&case, "record").await;
    record["inventory"].as_array_mut().unwrap().push(json!({"group": RBAC, "kind": "ClusterRole", "name": name,
        "uid": theirs["metadata"]["uid"], "origin": "created"}));
    plant(&case, "record", &record).await;
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert_eq!(plan.foreign.iter().map(|foreign| foreign.object.kind.as_str()).collect::<Vec<_>>(), ["ClusterRole"]);
    let step = json!({"group": RBAC, "kind": "ClusterRole", "name": name, "apiVersion": format!("{RBAC}/v1"), "undo": "delete"});
    plant(&case, "journal", &journal(&[step])).await;
    assert!(case.engine.rollback_interrupted_run().await.unwrap().undone.is_empty());
    let object = reference(RBAC, "ClusterRole", None, &name);
    assert_eq!(live(&case, &object).await.unwrap()["metadata"]["uid"], theirs["metadata"]["uid"]);
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    assert_eq!(live(&case, &object).await.unwrap()["metadata"]["uid"], theirs["metadata"]["uid"]);
    remove(&case, &object).await;
}

#[tokio::test]
async fn a_namespace_is_not_deleted_because_a_record_or_a_journal_says_that_it_was_made() {
    let case = Case::new("made").await;
    // With all labels, as manifests of a template have it.
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace}});
    case.engine.owner().set_owner_labels(&mut namespace);
    create(&case, &namespace).await;
    let mut record = json!({"format": 1, "owner": case.engine.owner(), "installUid": "u", "phase": "installed",
        "release": release(), "namespaceCreated": true, "written": "", "inventory": []});
    let mut began = journal(&[]);
    began["namespaceCreated"] = true.into();
    let stands = async || {
        let namespace = live(&case, &reference("", "Namespace", None, &case.namespace)).await.unwrap();
        assert!(namespace["metadata"]["deletionTimestamp"].is_null());
    };
    plant(&case, "journal", &began).await;
    assert!(case.engine.rollback_interrupted_run().await.unwrap().undone.is_empty());
    stands().await;
    for parts in [&["record"][..], &["journal"], &["record", "journal"]] {
        for part in parts {
            plant(&case, part, if *part == "record" { &record } else { &began }).await;
        }
        let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
        assert!(removed.deleted.is_empty(), "{removed:?}");
        stands().await;
    }
    // The record of another is no record of this one.
    record["owner"]["name"] = "other".into();
    plant(&case, "record", &record).await;
    for refused in [
        case.engine.rollback_interrupted_run().await.map(drop),
        case.engine.uninstall(Removal::default()).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().reason(), "BadRecord");
    }
    case.sweep().await;
}

/// A journal in which the whole installation was made by a run just now, and no record.
async fn as_if_begun(case: &Case) {
    let record = part(case, "record").await;
    let items = record["inventory"].as_array().unwrap().iter().filter(|item| item["kind"] != "Namespace");
    let steps: Vec<Value> = items
        .map(|item| {
            let group = item["group"].as_str().unwrap_or_default();
            let kind = Kind::needed_versions(group, item["kind"].as_str().unwrap()).remove(0);
            json!({"group": group, "kind": item["kind"], "namespace": item["namespace"], "name": item["name"],
                "apiVersion": kind.api_version(), "undo": "delete"})
        })
        .collect();
    let name = case.engine.owner().record_name();
    let mut begun = journal(&steps);
    begun["namespaceCreated"] = true.into();
    begun["installUid"] = record["installUid"].clone();
    plant(case, "journal", &begun).await;
    edit(case, "kubectl-edit", "", "Secret", &name, json!({"data": {"record": null}})).await;
}

#[tokio::test]
async fn a_forged_first_install_takes_no_data_and_no_keys() {
    let case = Case::new("begun").await;
    case.install(&objects(&case)).await.unwrap();
    bind(&case, CLAIM).await;
    as_if_begun(&case).await;
    let state = case.engine.read_state().await.unwrap();
    let plan = case.engine.plan_undo(&state, None).await.unwrap();
    assert!(plan.claims.is_empty() && plan.kept.len() == 1 && plan.namespace.is_none(), "{plan:?}");
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    let kept: Vec<&str> = undone.kept.iter().map(|kept| kept.object.kind.as_str()).collect();
    assert_eq!(kept, ["PersistentVolumeClaim", "Secret", "Namespace"]);
    assert!(is_bound(&case).await, "the data is gone");
    assert!(case.get("", "Secret", "pki").await.is_some(), "the keys are gone");
    // Nor where a journal of this machine tells of the set, and the claim was there before.
    case.install(&objects(&case)).await.unwrap();
    case.engine.uninstall(Removal::default()).await.unwrap();
    applied(&case).await.release_run().await.unwrap();
    let mut begun = part(&case, "journal").await;
    begun["claims"] = json!([]);
    plant(&case, "journal", &begun).await;
    edit(&case, "kubectl-edit", "", "Secret", &case.engine.owner().record_name(), json!({"data": {"record": null}}))
        .await;
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    assert!(is_bound(&case).await, "the data is gone");
    wipe(&case).await;
}

/// The objects with other rights, another pod, another value, and one object less.
fn upgraded(case: &Case) -> Vec<Planned> {
    let mut next = objects(case);
    next.retain(|planned| planned.object["kind"] != "PodDisruptionBudget");
    for planned in &mut next {
        let object = &mut planned.object;
        match object["kind"].as_str() {
            Some("ConfigMap") => object["data"] = json!({"a": "2", "c": "3"}),
            Some("ClusterRole") => object["rules"][0]["verbs"] = json!(["get", "list"]),
            Some("Deployment" | "StatefulSet") => {
                object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "B", "value": "2"}]);
            }
            _ => {}
        }
    }
    next
}

#[tokio::test]
async fn an_honest_journal_is_undone_from_another_machine_to_what_was_there_before() {
    let case = Case::new("elsewhere").await;
    case.install(&objects(&case)).await.unwrap();
    let before = settled(&case).await;
    let plan = case.engine.plan_install(&release(), &upgraded(&case)).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    assert_ne!(settled(&case).await, before);
    let other = Case::again(&case.namespace, tempfile::tempdir().unwrap(), |_| {}).await;
    let undone = other.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty() && undone.kept.is_empty(), "{undone:?}");
    assert_eq!(settled(&other).await, before);
    assert_eq!(other.engine.find_drift().await.unwrap(), []);
    assert!(other.engine.plan_install(&release(), &objects(&other)).await.unwrap().is_noop());
    wipe(&other).await;
}

#[tokio::test]
async fn an_install_drops_what_a_run_cannot_have_written_and_mends_the_rest() {
    let case = Case::new("dropped").await;
    case.install(&objects(&case)).await.unwrap();
    let other = reference("", "ConfigMap", Some("kube-system"), "none-such");
    let step = json!({"kind": "ConfigMap", "namespace": "kube-system", "name": other.name, "apiVersion": "v1",
        "undo": "recreate", "manifest": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": other.name, "namespace": "kube-system"}}});
    let binding = json!({"group": RBAC, "kind": "ClusterRole", "name": case.namespace, "apiVersion": format!("{RBAC}/v1"),
        "undo": "reapply", "patch": {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}});
    plant(&case, "journal", &journal(&[step.clone(), binding.clone()])).await;
    // Also where that install is undone: nothing of what it found becomes its own.
    let plan = case.engine.plan_install(&release(), &upgraded(&case)).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    let told = |event: &Event| matches!(event, Event::Warning { object, message } if *object == other && message.contains("is ignored"));
    assert!(case.events.lock().unwrap().iter().any(told), "{:?}", case.events.lock().unwrap());
    run.apply_all_stages().await.unwrap();
    let undone = run.rollback_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    let rules = case
        .server()
        .get_object(&Kind::needed_versions(RBAC, "ClusterRole").remove(0), None, &case.namespace)
        .await
        .unwrap();
    assert_eq!(rules.unwrap()["rules"][0]["verbs"], json!(["get"]));
    assert!(live(&case, &other).await.is_none());
    // What the journal on this machine was told by the cluster is not believed for that.
    plant(&case, "journal", &journal(std::slice::from_ref(&binding))).await;
    applied(&case).await.release_run().await.unwrap();
    let undone = case.engine.rollback_interrupted_run().await.unwrap();
    assert!(undone.problems.is_empty(), "{undone:?}");
    let rules = case
        .server()
        .get_object(&Kind::needed_versions(RBAC, "ClusterRole").remove(0), None, &case.namespace)
        .await
        .unwrap();
    assert_eq!(rules.unwrap()["rules"][0]["verbs"], json!(["get"]));
    plant(&case, "journal", &journal(&[step])).await;
    case.install(&objects(&case)).await.unwrap();
    assert!(case.engine.read_state().await.unwrap().journal.is_none());
    delete_wholly(&case, "", "ConfigMap", "config").await;
    wipe(&case).await;
}
