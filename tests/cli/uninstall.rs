//! `uninstall control-plane` and `install` beside a control plane of the same name: what is asked, refused, deleted and left.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::install::documents;
use crate::server::{Answer, admin_kubeconfig, list, not_found, serve, use_cluster};
use crate::status::inside;
use crate::{Ran, Sandbox};

/// An address where nobody answers.
const NOBODY: &str = "http://127.0.0.1:1";

const DELETE_DATA: [&str; 5] = ["uninstall", "cp", "demo", "--delete-data", "--yes"];

/// The plan, as it is printed.
const PLAN: &str = "This permanently deletes:";

/// A hosting cluster with control plane `demo`, of which objects go when they are deleted.
#[derive(Clone, Default)]
struct Hosting {
    /// By path.
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    /// The paths of what was deleted.
    deleted: Arc<Mutex<Vec<String>>>,
    /// The file that an install of it has written.
    kubeconfig: String,
}

impl Hosting {
    /// With the workload clusters `east` and `west`, and no record.
    fn with_clusters() -> Self {
        let hub = serve(|_, path| inside(path));
        Self::reached_at(&hub)
    }

    /// Whose control plane is reached there; with data, and without a record.
    fn reached_at(hub: &str) -> Self {
        let elsewhere = Sandbox::new();
        let given = ["exposure.type=NodePort", "exposure.host=192.0.2.10", "exposure.port=32222"];
        let given = given.iter().flat_map(|given| ["--set", given]);
        let args: Vec<&str> = ["template", "cp", "demo"].into_iter().chain(given).collect();
        let manifests = elsewhere.run(&args);
        let made = fs::read_to_string(elsewhere.path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
        let hosting = Self { kubeconfig: made, ..Self::default() };
        for mut object in documents(manifests.succeeds()) {
            let kind = object["kind"].as_str().unwrap().to_owned();
            if !["StatefulSet", "Deployment", "Service", "Secret"].contains(&kind.as_str()) {
                continue;
            }
            if object["metadata"]["name"] == "fleet-pki" {
                object["metadata"]["annotations"]["fleet-scheduler.io/keep"] = "true".into();
            }
            if object["metadata"]["name"] == "fleet-kubeconfig" {
                object["data"]["kubeconfig"] = STANDARD.encode(admin_kubeconfig("demo", hub)).into();
            }
            object["metadata"]["managedFields"] =
                json!([{"manager": "fleetctl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
            if object["metadata"]["name"] == "etcd" && kind == "StatefulSet" {
                let of = |label: &str| object["metadata"]["labels"][label].clone();
                let (name, kind) = ("fleet-scheduler.io/install", "fleet-scheduler.io/install-kind");
                hosting.has(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "etcd-data-etcd-0", "namespace": "fleet", "labels": {name: of(name), kind: of(kind)}},
                    "status": {"phase": "Bound"}}));
            }
            hosting.has(object);
        }
        hosting
    }

    fn has(&self, mut object: Value) {
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let root = if version.contains('/') { "apis" } else { "api" };
        let place = object["metadata"]["namespace"].as_str().map(|namespace| format!("/namespaces/{namespace}"));
        let path = format!("/{root}/{version}{}/{}s/{name}", place.unwrap_or_default(), kind.to_lowercase());
        object["metadata"]["uid"] = path.clone().into();
        self.objects.lock().unwrap().insert(path, object);
    }

    fn lacks(&self, path: &str) {
        self.objects.lock().unwrap().remove(path).unwrap();
    }

    /// The record of a control plane in this phase.
    fn is_recorded(&self, phase: &str) {
        let record = json!({"format": 1, "owner": {"kind": "control-plane", "name": "demo", "namespace": "fleet"},
            "installUid": "u", "phase": phase, "release": {"chart": "control-plane/v0.6", "version": "v0.6.1", "valuesDigest": ""},
            "namespaceCreated": false, "written": "2026-01-31T12:00:00Z", "inventory": []});
        self.has(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo", "namespace": "fleet"},
            "data": {"record": STANDARD.encode(record.to_string())}}),
        );
    }

    fn answer(&self, method: &str, path: &str) -> Answer {
        let path = path.split('?').next().unwrap();
        let mut objects = self.objects.lock().unwrap();
        match (method, path) {
            ("GET", "/apis") => (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
            ("GET", "/api/v1") => {
                (200, json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": []}))
            }
            // Of what is written, the record, only that it was written is told.
            ("POST", "/api/v1/namespaces/fleet/secrets")
            | ("PATCH", "/api/v1/namespaces/fleet/secrets/fleetctl.demo") => {
                let code = if method == "POST" { 201 } else { 200 };
                (code, json!({"kind": "Secret", "metadata": {"uid": "r", "resourceVersion": "1"}}))
            }
            ("DELETE", _) => {
                self.deleted.lock().unwrap().push(path.to_owned());
                objects.remove(path).map_or_else(not_found, |object| (200, object))
            }
            ("GET", _) => {
                if let Some(object) = objects.get(path) {
                    return (200, object.clone());
                }
                let of = |object: &str| {
                    let (collection, _) = object.rsplit_once('/').unwrap();
                    collection == path || collection.replace("/namespaces/fleet", "") == path
                };
                let found: Vec<Value> =
                    objects.iter().filter(|(object, _)| of(object)).map(|(_, value)| value.clone()).collect();
                if found.is_empty() { not_found() } else { list(&found) }
            }
            _ => not_found(),
        }
    }

    /// Somebody with this cluster, who has installed the control plane from here.
    fn user(&self) -> Sandbox {
        let sandbox = Sandbox::new();
        let this = self.clone();
        use_cluster(&sandbox, &serve(move |method, path| this.answer(method, path)));
        fs::create_dir_all(sandbox.path().join(".fleet/demo")).unwrap();
        sandbox.file(".fleet/demo/fleet-kubeconfig", &self.kubeconfig);
        sandbox
    }

    /// The names of what was deleted.
    fn deleted(&self) -> Vec<String> {
        let deleted = self.deleted.lock().unwrap();
        deleted.iter().map(|path| path.rsplit_once('/').unwrap().1.to_owned()).collect()
    }

    #[track_caller]
    fn is_untouched(&self) {
        assert_eq!(self.deleted(), Vec::<String>::new());
    }

    #[track_caller]
    fn is_gone_with_its_data(&self) {
        let deleted = self.deleted();
        for name in ["etcd", "etcd-data-etcd-0", "fleet-pki"] {
            assert!(deleted.iter().any(|gone| gone == name), "{name} is not in {deleted:?}");
        }
    }
}

/// The reason in the error of a run with `-o json`.
fn reason(ran: &Ran) -> String {
    let last: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
    last["error"]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn a_plain_removal_warns_about_registered_clusters_and_goes_on() {
    let hosting = Hosting::with_clusters();
    hosting.has(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}));
    let sandbox = hosting.user();
    let ran = sandbox.run(&["uninstall", "cp", "demo"]);
    assert!(ran.succeeds().contains("PersistentVolumeClaim fleet/etcd-data-etcd-0: it contains the data"), "{ran:?}");
    let warning = "warning: registered workload clusters lose their control plane: east, west";
    assert!(ran.stderr.contains(warning) && !ran.stderr.contains(PLAN), "{ran:?}");
    let deleted = hosting.deleted();
    assert!(deleted.iter().any(|name| name == "etcd"), "{deleted:?}");
    assert!(!deleted.iter().any(|name| name == "fleet-pki" || name == "etcd-data-etcd-0"), "{deleted:?}");
    assert!(sandbox.path().join(".fleet/demo/fleet-kubeconfig").exists());
}

#[test]
fn data_is_not_deleted_while_clusters_are_registered() {
    let hosting = Hosting::with_clusters();
    let sandbox = hosting.user();
    let ran = sandbox.run(&DELETE_DATA);
    ran.fails(6, &["workload clusters are registered: east, west", "`fleetctl uninstall agent NAME`", "`--force`"]);
    assert_eq!(reason(&sandbox.run(&[&DELETE_DATA[..], &["-o", "json"]].concat())), "ClustersRegistered");
    hosting.is_untouched();
    assert!(sandbox.path().join(".fleet/demo/fleet-kubeconfig").exists());
}

#[test]
fn by_force_data_is_deleted_and_who_is_orphaned_is_told() {
    let hosting = Hosting::with_clusters();
    let sandbox = hosting.user();
    let ran = sandbox.run(&[&DELETE_DATA[..], &["--force"]].concat());
    let folder = sandbox.path().join(".fleet/demo");
    assert!(ran.succeeds().contains(&format!("Removed the folder {}", folder.display())), "{ran:?}");
    assert!(ran.stderr.contains("registered workload clusters lose their control plane: east, west"), "{ran:?}");
    hosting.is_gone_with_its_data();
    assert!(!folder.exists());
}

#[test]
fn the_plan_is_printed_whether_it_is_asked_for_or_not_and_names_everything_that_goes() {
    let hosting = Hosting::reached_at(NOBODY);
    hosting.is_recorded("removed");
    let sandbox = hosting.user();
    let set = hosting.objects.lock().unwrap()["/apis/apps/v1/namespaces/fleet/statefulsets/etcd"].clone();
    let annotations = json!({"fleet-scheduler.io/namespace-created-by": "u"});
    hosting.has(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "fleet", "labels": set["metadata"]["labels"], "annotations": annotations}}));
    let keys = sandbox.path().join(".fleet/demo/pki");
    fs::create_dir(&keys).unwrap();
    let folder = format!("the folder {}", sandbox.path().join(".fleet/demo").display());
    let with_keys = format!("{folder}, with the keys that `template` stores in it");
    let named =
        ["StatefulSet fleet/etcd", "PersistentVolumeClaim fleet/etcd-data-etcd-0", "Secret fleet/fleet-pki", PLAN];
    let asked = sandbox.run(&DELETE_DATA[..4]);
    asked.fails(6, &["no terminal to ask on", "Namespace fleet, unless it contains something else", &with_keys]);
    asked.fails(6, &named);
    hosting.is_untouched();

    // Without the namespace nothing of the removal is written into the cluster before it is done.
    hosting.lacks("/api/v1/namespaces/fleet");
    fs::remove_dir(&keys).unwrap();
    let ran = sandbox.run(&[&DELETE_DATA[..], &["-o", "json"]].concat());
    let document: Value = serde_json::from_str(ran.succeeds()).unwrap();
    assert_eq!(document["folder"], sandbox.path().join(".fleet/demo").display().to_string());
    let messages: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let plan = messages.iter().filter_map(|event| event["message"].as_str()).find(|text| text.starts_with(PLAN));
    let plan = plan.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(named.iter().all(|part| plan.contains(part)) && plan.ends_with(&folder), "{plan}");
    hosting.is_gone_with_its_data();
}

#[test]
fn the_plan_names_the_volumes_that_keep_the_data_although_their_claims_go() {
    let hosting = Hosting::reached_at(NOBODY);
    hosting.is_recorded("removed");
    let at = "/api/v1/namespaces/fleet/persistentvolumeclaims/etcd-data-etcd-0";
    let mut claim = hosting.objects.lock().unwrap()[at].clone();
    claim["spec"] = json!({"volumeName": "disk-1"});
    hosting.has(claim);
    let asked = |policy: &str| {
        hosting.has(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk-1"},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"uid": at}}}));
        hosting.user().run(&DELETE_DATA[..4])
    };
    asked("Retain").fails(
        6,
        &["These are kept because of their reclaim policy Retain, and contain the data:\n  PersistentVolume disk-1\n"],
    );
    let reclaimed = asked("Delete");
    reclaimed.fails(6, &["PersistentVolumeClaim fleet/etcd-data-etcd-0"]);
    assert!(!reclaimed.stderr.contains("disk-1"), "{reclaimed:?}");
    hosting.is_untouched();
}

#[test]
fn with_the_record_lost_data_is_not_deleted_on_a_guess() {
    let hosting = Hosting::reached_at(NOBODY);
    let sandbox = hosting.user();
    let refused = || {
        let ran = sandbox.run(&[&DELETE_DATA[..], &["-o", "json"]].concat());
        assert_eq!((ran.code, reason(&ran).as_str()), (6, "ClustersUnknown"), "{ran:?}");
        hosting.is_untouched();
        ran
    };
    refused();
    // Nor where the control plane's kubeconfig is lost, too.
    hosting.lacks("/api/v1/namespaces/fleet/secrets/fleet-kubeconfig");
    assert!(refused().stderr.contains("Secret fleet-kubeconfig does not exist"));
    let ran = sandbox.run(&[&DELETE_DATA[..], &["--force"]].concat());
    ran.succeeds();
    assert!(ran.stderr.contains("the registered workload clusters cannot be read from the control plane"), "{ran:?}");
    hosting.is_gone_with_its_data();
}

#[test]
fn what_a_removal_has_kept_is_deleted_without_a_question_to_the_control_plane() {
    let hosting = Hosting::reached_at(NOBODY);
    hosting.is_recorded("removed");
    let path = "/api/v1/namespaces/fleet/secrets/fleet-kubeconfig";
    hosting.lacks(path);
    hosting.user().run(&DELETE_DATA).succeeds();
    hosting.is_gone_with_its_data();
}

#[test]
fn the_folder_stays_where_it_is_that_of_a_control_plane_in_another_cluster() {
    let other = Hosting::reached_at(NOBODY).kubeconfig;
    for as_data in [&[][..], &["-o", "json"]] {
        let hosting = Hosting::reached_at(NOBODY);
        hosting.is_recorded("removed");
        let sandbox = hosting.user();
        let file = sandbox.file(".fleet/demo/fleet-kubeconfig", &other);
        let ran = sandbox.run(&[&DELETE_DATA[..], as_data].concat());
        let stays = format!("The folder {} is kept", sandbox.path().join(".fleet/demo").display());
        let (told, planned) =
            if as_data.is_empty() { (ran.succeeds(), &ran.stderr) } else { (&*ran.stderr, &ran.stderr) };
        assert!(ran.code == 0 && told.contains(&stays) && !planned.contains("  the folder "), "{ran:?}");
        assert_eq!(fs::read_to_string(file).unwrap(), other);
        hosting.is_gone_with_its_data();
    }
}

#[test]
fn the_folder_stays_where_nothing_in_the_cluster_tells_that_it_is_its_own() {
    let hosting = Hosting::reached_at(NOBODY);
    // A first install that was cut off before it had made keys.
    hosting.objects.lock().unwrap().retain(|path, _| path.contains("/services/"));
    let journal = json!({"run": "r", "command": "install", "started": "", "installUid": "u", "steps": []});
    hosting
        .has(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleetctl.demo", "namespace": "fleet"},
        "data": {"journal": STANDARD.encode(journal.to_string())}}));
    let sandbox = hosting.user();
    let ran = sandbox.run(&DELETE_DATA);
    let stays = format!("The folder {} is kept", sandbox.path().join(".fleet/demo").display());
    assert!(ran.succeeds().contains(&stays) && !ran.stderr.contains("the folder "), "{ran:?}");
    assert!(hosting.deleted().contains(&"apiserver".to_owned()), "{:?}", hosting.deleted());
    let file = sandbox.path().join(".fleet/demo/fleet-kubeconfig");
    assert_eq!(fs::read_to_string(file).unwrap(), hosting.kubeconfig);
}
