//! An installation whose objects came back from a backup: other uids, the name of the backup's tool in their fields.

use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Action, Drifted, Error, Removal};
use fleetctl::inventory::Owner;
use serde_json::{Value, json};

use super::support::{Case, dump, objects, release};

/// The name under which the tool writes; none that the program knows.
const TOOL: &str = "backup-server";

/// What a backup holds: the objects of an installation with their record, without what a cluster says of them.
async fn backed_up(case: &Case) -> Vec<Value> {
    let mut all = Vec::new();
    let planned = objects(case).into_iter().map(|planned| planned.object);
    let record = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": Owner::new("control-plane", &case.namespace, &case.namespace).record_name()}});
    for object in planned.chain([record]) {
        let (group, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let group = group.split_once('/').map_or("", |(group, _)| group);
        let mut live = case.get(group, kind, object["metadata"]["name"].as_str().unwrap()).await.unwrap();
        live.as_object_mut().unwrap().remove("status");
        let metadata = live["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"] {
            metadata.remove(field);
        }
        if kind == "Service" {
            let spec = live["spec"].as_object_mut().unwrap();
            spec.retain(|field, _| !field.starts_with("clusterIP"));
        }
        all.push(live);
    }
    all
}

async fn lose(case: &Case, all: &[Value]) {
    let server = case.server();
    let (namespace, cluster_scoped): (Vec<&Value>, Vec<&Value>) = all
        .iter()
        .filter(|object| object["metadata"]["namespace"].is_null())
        .partition(|object| object["kind"] == "Namespace");
    for object in cluster_scoped.into_iter().chain(namespace) {
        let kind =
            Kind::find_known_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{}/{name}", kind.collection_path(None));
        let request = http::Request::delete(path).body(Vec::new()).unwrap();
        server.client().request::<Value>(request).await.unwrap();
        while server.get_object(&kind, None, name).await.unwrap().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

async fn restore(case: &Case, all: &[Value]) {
    for object in all {
        let kind =
            Kind::find_known_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
        let path = kind.collection_path(object["metadata"]["namespace"].as_str());
        let request = http::Request::post(format!("{path}?fieldManager={TOOL}"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        // An API server that still has the former namespace in its cache takes nothing into the new one.
        let restored = async {
            while let Err(error) = case.server().client().request::<Value>(request.clone()).await {
                assert!(error.to_string().contains("because it is being terminated"), "{error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), restored).await.expect("the namespace is seen");
    }
}

#[tokio::test]
async fn objects_from_a_backup_are_adopted_and_a_removal_before_that_forgets_nothing() {
    let case = Case::new("restored").await;
    case.install(&objects(&case)).await.unwrap();
    let backup = backed_up(&case).await;
    lose(&case, &backup).await;
    restore(&case, &backup).await;

    let drift = case.engine.find_drift().await.unwrap();
    let copied = Drifted::Copied { by: vec![TOOL.to_owned()] };
    assert!(!drift.is_empty() && drift.iter().all(|drift| drift.strayed == copied), "{drift:?}");
    let before = dump(&case).await;
    let removal = || Removal { delete_data: true, skip_search: true, ..Removal::default() };
    let refused = case.engine.uninstall(removal()).await.unwrap_err();
    assert!(matches!(refused, Error::MadeByOthers { .. }), "{refused:?}");
    assert!(format!("{:?}", refused.remedy()).contains("Adopt"), "{refused:?}");
    assert_eq!(dump(&case).await, before, "the record is there as all else is");
    let refused = case.install(&objects(&case)).await.unwrap_err();
    assert!(matches!(refused, Error::NotOurs { .. }), "{refused:?}");

    let case = case.reborn_with(|options| options.adopt = true).await;
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    assert!(plan.count_steps(Action::Adopt) > 0);
    case.install(&objects(&case)).await.unwrap();
    assert_eq!(case.engine.find_drift().await.unwrap(), []);
    // What the tool wrote is ours now: it changes and goes as we say.
    let case = case.reborn().await;
    let mut next = objects(&case);
    for planned in next.iter_mut().filter(|planned| planned.object["kind"] == "ConfigMap") {
        planned.object["data"] = json!({"a": "2"});
    }
    case.install(&next).await.unwrap();
    assert_eq!(case.get("", "ConfigMap", "config").await.unwrap()["data"], json!({"a": "2"}));
    case.engine.uninstall(removal()).await.unwrap();
    // The namespace is another one than the install made, and stays; nothing is left in it.
    case.sweep().await;
    let left: Vec<String> = dump(&case).await.into_keys().collect();
    assert!(
        left.iter().all(|name| name.starts_with("Namespace/")
            || name.contains("kube-root-ca.crt")
            || name.ends_with("/default")),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_backup_whose_adoption_did_not_end_is_removed_with_the_installation() {
    let case = Case::new("half-adopted").await;
    case.install(&objects(&case)).await.unwrap();
    let backup = backed_up(&case).await;
    lose(&case, &backup).await;
    restore(&case, &backup).await;
    let case = case.reborn_with(|options| options.adopt = true).await;
    let plan = case.engine.plan_install(&release(), &objects(&case)).await.unwrap();
    let mut run = case.engine.begin_run(plan).await.unwrap();
    run.apply_all_stages().await.unwrap();
    run.release_run().await.unwrap();
    let case = case.reborn().await;
    let removal = Removal { delete_data: true, ..Removal::default() };
    let removed = case.engine.uninstall(removal).await.unwrap();
    let kinds: Vec<&str> = removed.deleted.iter().map(|object| object.kind.as_str()).collect();
    assert!(kinds.contains(&"StatefulSet") && kinds.contains(&"Secret"), "{removed:?}");
    assert!(removed.leftovers.is_empty(), "{removed:?}");
    assert!(case.engine.read_state().await.unwrap().is_empty());
    case.sweep().await;
}
