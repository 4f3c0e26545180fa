//! What others do to our objects, and what holds them: drift, leftovers without labels, finalizers, a full journal.

use std::time::{Duration, Instant};

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Drifted, Error, Planned, Removal};
use fleetctl::inventory;
use fleetctl::k8s::{Done, Event, ObjectRef};
use serde_json::{Value, json};

use super::actors::{delete, edit, made_by_kubectl};
use super::support::{Case, alone, dump, objects};

#[tokio::test]
async fn what_others_changed_removed_or_replaced_is_drift_until_the_next_install() {
    let case = Case::new("stray").await;
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    // A field of their own is no drift of ours.
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"theirs": "x"}})).await;
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    edit(&case, "kubectl-edit", "", "ConfigMap", "config", json!({"data": {"a": "edited"}})).await;
    edit(&case, "kubectl-edit", "apps", "Deployment", "d", json!({"metadata": {"labels": null}})).await;
    delete(&case, "policy", "PodDisruptionBudget", "b").await;
    delete(&case, "", "ServiceAccount", "a").await;
    let accounts = Kind::needed_versions("", "ServiceAccount").remove(0);
    let twin =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": case.namespace}});
    case.server().create_object(&accounts, &twin).await.unwrap();
    let mut drift = case.engine.find_drift().await.unwrap();
    drift.sort_by_key(|drift| drift.object.kind.clone());
    let by = || Drifted::Fields { by: vec!["kubectl-edit".to_owned()] };
    let found: Vec<(&str, &Drifted)> = drift.iter().map(|d| (d.object.kind.as_str(), &d.strayed)).collect();
    let Drifted::Fields { by: deployment } = found[1].1 else { panic!("{found:?}") };
    assert!(!deployment.iter().any(|manager| manager == "fleetctl"), "{deployment:?}");
    assert_eq!(
        [found[0], found[2], found[3]],
        [("ConfigMap", &by()), ("PodDisruptionBudget", &Drifted::Missing), ("ServiceAccount", &Drifted::Replaced)]
    );
    delete(&case, "", "ServiceAccount", "a").await;
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn what_lost_its_labels_is_found_by_its_fields_after_an_uninstall() {
    let turn = alone().await;
    let case = Case::alone("bare", &turn).await;
    case.install(&objects(&case)).await.unwrap();
    let roles = Kind::needed_versions("rbac.authorization.k8s.io", "ClusterRole").remove(0);
    let role = case.server().get_object(&roles, None, &case.namespace).await.unwrap().unwrap();
    let object = ObjectRef::of(&role).unwrap();
    let labels = role["metadata"]["labels"].as_object().unwrap();
    let none: serde_json::Map<String, Value> = labels.keys().map(|key| (key.clone(), Value::Null)).collect();
    case.server().patch_object(&roles, &object, &json!({"metadata": {"labels": none}})).await.unwrap();
    let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    let left: Vec<String> = removed.leftovers.iter().map(|left| format!("{}: {}", left.object, left.reason)).collect();
    assert_eq!(
        left,
        [format!(
            "ClusterRole {}: this installation manages fields of it, but its labels were removed",
            case.namespace
        )]
    );
    case.server().delete_object(&roles, &object, role["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    let again = case.engine.uninstall(Removal::default()).await.unwrap();
    assert!(again.nothing_found && again.leftovers.is_empty(), "{again:?}");
}

#[tokio::test]
async fn one_of_the_same_name_in_another_namespace_is_neither_touched_nor_left_over() {
    let case = Case::new("one").await;
    let other = case.namesake().await;
    case.install(&objects(&case)).await.unwrap();
    other.install(&objects(&other)).await.unwrap();
    let before = dump(&other).await;
    // The second time there is nothing in its namespace, which is not to say that there is nothing.
    for again in [false, true] {
        let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
        assert_eq!((removed.nothing_found, &removed.leftovers), (again, &vec![]), "{removed:?}");
        assert_eq!(removed.elsewhere, std::slice::from_ref(&other.namespace));
    }
    assert_eq!(dump(&other).await, before);
    let removed = other.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert_eq!((removed.leftovers, removed.elsewhere), (vec![], vec![]));
}

/// Installs and removes an installation beside another of its name that has no record, and looks again.
async fn comes_and_goes_beside(case: &Case, other: &Case) {
    case.install(&objects(case)).await.unwrap();
    let before = dump(other).await;
    for again in [false, true] {
        let removed = case.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
        assert_eq!((removed.nothing_found, &removed.leftovers), (again, &vec![]), "{removed:?}");
    }
    assert_eq!(dump(other).await, before);
}

#[tokio::test]
async fn one_of_the_same_name_whose_record_is_lost_is_neither_touched_nor_left_over() {
    let case = Case::new("one-lost").await;
    let other = case.namesake().await;
    other.install(&objects(&other)).await.unwrap();
    delete(&other, "", "Secret", &other.engine.owner().record_name()).await;
    comes_and_goes_beside(&case, &other).await;
    let removed = other.engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.unwrap();
    assert_eq!((removed.leftovers, removed.elsewhere), (vec![], vec![]));
}

#[tokio::test]
async fn one_of_the_same_name_that_kubectl_has_applied_is_neither_touched_nor_left_over() {
    let case = Case::new("one-theirs").await;
    let other = case.namesake().await;
    for planned in objects(&other) {
        let mut manifest = planned.object;
        other.engine.owner().set_owner_labels(&mut manifest);
        let kind = Kind::find_known_kind(manifest["apiVersion"].as_str().unwrap(), manifest["kind"].as_str().unwrap())
            .unwrap();
        made_by_kubectl(&other, &kind.group, &kind.kind, &manifest).await;
    }
    comes_and_goes_beside(&case, &other).await;
    for kind in ["ClusterRoleBinding", "ClusterRole"] {
        delete(&other, "rbac.authorization.k8s.io", kind, &other.namespace).await;
    }
    other.sweep().await;
}

fn stuck(case: &Case) -> Vec<String> {
    let events = case.events.lock().unwrap();
    let stuck = events.iter().filter_map(|event| match event {
        Event::Stuck { object, message } => Some(format!("{object}: {message}")),
        _ => None,
    });
    stuck.collect()
}

/// A finalizer that no controller removes.
pub(crate) const HELD: &str = "example.com/held";

/// Puts the finalizer on an object, or takes all of them off.
pub(crate) async fn hold(case: &Case, kind: &str, name: &str, held: bool) {
    let finalizers = if held { json!([HELD]) } else { Value::Null };
    edit(case, "example", "", kind, name, json!({"metadata": {"finalizers": finalizers}})).await;
}

/// Ends when `case` has told such an event, which it must in that time.
pub(crate) async fn told(case: &Case, seconds: u64, what: impl Fn(&Event) -> bool) {
    let told = async {
        while !case.events.lock().unwrap().iter().any(&what) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(seconds), told).await;
    assert!(in_time.is_ok(), "not told within {seconds} s: {:?}", case.events.lock().unwrap());
}

/// Ends when it is told that the finalizer holds such an object.
pub(crate) async fn told_stuck(case: &Case, kind: &str, seconds: u64) {
    let stuck = |event: &Event| matches!(event, Event::Stuck { object, message } if object.kind == kind && message.contains(HELD));
    told(case, seconds, stuck).await;
}

/// Ends when an object was deleted and it is told, within the twenty seconds that this may take, that the finalizer holds it.
pub(crate) async fn told_stuck_once_deleted(case: &Case, kind: &str, name: &str) {
    let deleted = |event: &Event| matches!(event, Event::Object { object, done: Done::Deleted } if object.kind == kind && object.name == name);
    told(case, 90, deleted).await;
    told_stuck(case, kind, 20).await;
}

#[tokio::test]
async fn a_finalizer_that_nobody_removes_is_named_within_twenty_seconds() {
    let case = Case::new("held").await;
    case.install(&objects(&case)).await.unwrap();
    hold(&case, "ConfigMap", "config", true).await;
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(120)));
    let removal = engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() });
    let named = async {
        told_stuck_once_deleted(&case, "ConfigMap", "config").await;
        hold(&case, "ConfigMap", "config", false).await;
    };
    let (removed, ()) = futures::join!(removal, named);
    removed.unwrap();
    let told = stuck(&case).into_iter().filter(|line| line.contains("ConfigMap")).count();
    assert_eq!(told, 1, "{:?}", stuck(&case));
    assert!(dump(&case).await.is_empty(), "it goes on once nothing holds it");
}

#[tokio::test]
async fn a_namespace_that_does_not_go_away_is_explained_to_an_install() {
    let case = Case::new("going").await;
    case.install(&objects(&case)[..1]).await.unwrap();
    let maps = Kind::needed_versions("", "ConfigMap").remove(0);
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": case.namespace, "finalizers": [HELD]}});
    case.server().create_object(&maps, &theirs).await.unwrap();
    case.sweep().await;
    let engine = case.engine.with_deadline(Some(Instant::now() + Duration::from_secs(120)));
    let (release, all) = (super::support::release(), objects(&case));
    let explained = async {
        told_stuck(&case, "Namespace", 20).await;
        hold(&case, "ConfigMap", "theirs", false).await;
    };
    let (plan, ()) = futures::join!(engine.plan_install(&release, &all), explained);
    assert_eq!(plan.unwrap().count_writes(), all.len(), "there is nothing of it any more");
}

#[tokio::test]
async fn an_object_that_does_not_go_away_is_explained_to_an_install_over_it() {
    let case = Case::new("over").await;
    case.install(&objects(&case)).await.unwrap();
    hold(&case, "ConfigMap", "config", true).await;
    delete(&case, "", "ConfigMap", "config").await;
    let explained = async {
        // Before the install gives up, which it does after a minute.
        told_stuck(&case, "ConfigMap", 50).await;
        hold(&case, "ConfigMap", "config", false).await;
    };
    let all = objects(&case);
    let (installed, ()) = futures::join!(case.install(&all), explained);
    installed.unwrap();
    assert_eq!(stuck(&case).len(), 1, "{:?}", stuck(&case));
    let live = case.get("", "ConfigMap", "config").await.unwrap();
    assert!(live["metadata"]["deletionTimestamp"].is_null(), "{live}");
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}

#[tokio::test]
async fn a_change_whose_undo_fits_no_secret_is_refused_before_it_is_made() {
    let case = Case::new("large").await;
    let with = |text: &str| {
        let mut all = objects(&case);
        let config = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"large": text.repeat(600 * 1024)}});
        all.extend([Planned::new(2, config("one")), Planned::new(2, config("two"))]);
        all
    };
    // New objects need no former values.
    case.install(&with("a")).await.unwrap();
    let error = case.install(&with("b")).await.unwrap_err();
    assert!(
        matches!(error, Error::Inventory(inventory::Error::Record { .. })) && error.to_string().contains("undo"),
        "{error}"
    );
    let kept = case.get("", "ConfigMap", "one").await.unwrap();
    assert!(kept["data"]["large"].as_str().unwrap().starts_with("aaa"), "nothing was written");
    case.engine.rollback_interrupted_run().await.unwrap();
    assert!(case.engine.plan_install(&super::support::release(), &with("a")).await.unwrap().is_noop());
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
}
