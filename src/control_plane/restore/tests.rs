//! Tests of what a restore decides and sends, without a cluster.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::check::{check_api_server, compare_fingerprints, compare_names, find_agents_behind};
use super::fence::{FieldOwner, find_owner, give_back};
use super::pods::{StoreWork, build_store_pod, check_pod, read_former_bytes};
use super::rehearsal_pod::{RehearsalSite, build_rehearsal_pod};
use super::rehearse::read_report;
use super::send::send_part;
use super::site::StoreSite;
use super::*;
use crate::api::partial_list::Age;
use crate::api::rehearsal::RehearsalReport;
use crate::api::transfer::{TransferAnswer, TransferHead, format_line};
use crate::api::util::digest::full_digest;
use crate::backup::{
    ClusterId, Contents, Header, RevisionRange, SNAPSHOT, Seal, Versions, verify_archive, write_archive,
};
use crate::check::inside::list_registered_members;
use crate::install::progress::Silent;
use crate::k8s::test_api;

pub(super) fn header(snapshot_bytes: usize) -> Header {
    Header {
        format: 1,
        control_plane: "demo".to_owned(),
        namespace: "fleet".to_owned(),
        taken: "2027-03-12T10:15:00Z".parse().unwrap(),
        install_uid: None,
        control_plane_uid: None,
        versions: Versions { api_server: Some("v1.36.3".to_owned()), ..Versions::default() },
        members: Vec::new(),
        read_from: "etcd-0".to_owned(),
        quorum: true,
        quota_bytes: None,
        revision: RevisionRange { from: 7, to: 9 },
        snapshot_bytes: snapshot_bytes as u64,
        keys: false,
        fingerprints: BTreeMap::new(),
        clusters: Some(["east", "west"].map(|name| ClusterId { name: name.to_owned(), id: None }).to_vec()),
        patches: None,
    }
}

fn site() -> StoreSite {
    let etcd = json!({
        "name": "etcd",
        "image": "registry.k8s.io/etcd:3.5.35-0",
        "command": ["etcd", "--data-dir=/data/etcd",
            "--initial-advertise-peer-urls=https://$(POD_NAME).etcd.fleet.svc:2380"],
        "resources": {"limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "etcd-data", "mountPath": "/data"}, {"name": "certs", "mountPath": "/etc/etcd/pki"}],
    });
    let pod = json!({"containers": [etcd], "securityContext": {"runAsUser": 65532, "fsGroup": 65532},
        "serviceAccountName": "fleet-control-plane"});
    let set = json!({"metadata": {}, "spec": {"selector": {}, "serviceName": "etcd", "template": {"spec": pod}}});
    let program = json!({"containers": [{"name": "scheduler", "image": "fleet-scheduler:v1.2.0"}]});
    let program = json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": program}}});
    let site =
        StoreSite::from_workloads(serde_json::from_value(set).unwrap(), serde_json::from_value(program).unwrap(), 3);
    let mut site = site.unwrap();
    "demo".clone_into(&mut site.name);
    "fleet".clone_into(&mut site.namespace);
    site
}

/// A pod with a container, listed in `statuses`, that has ended.
fn build_ended_pod(statuses: &str, container: &str, code: i32, message: Option<&str>) -> Pod {
    let status = json!({"name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "message": message}}});
    serde_json::from_value(json!({"metadata": {"name": "fleet-r1"}, "status": {statuses: [status]}})).unwrap()
}

#[test]
fn each_member_gets_a_store_of_the_same_new_cluster() {
    let work = StoreWork::Prepare { snapshot_bytes: 1000 };
    let pod = build_store_pod(&site(), "etcd-1", &work, "r1", None);
    let containers: Vec<&str> = ["/spec/initContainers/0", "/spec/initContainers/1", "/spec/initContainers/2"]
        .iter()
        .chain(&["/spec/containers/0"])
        .map(|place| pod.pointer(place).unwrap()["name"].as_str().unwrap())
        .collect();
    assert_eq!(containers, ["room", "receive", "restore", "store"]);
    let command = pod["spec"]["initContainers"][2]["command"].as_array().unwrap();
    for argument in [
        "--name=etcd-1",
        "--data-dir=/data/etcd.new-r1",
        "--initial-advertise-peer-urls=https://etcd-1.etcd.fleet.svc:2380",
        "--initial-cluster=etcd-0=https://etcd-0.etcd.fleet.svc:2380,etcd-1=https://etcd-1.etcd.fleet.svc:2380,\
         etcd-2=https://etcd-2.etcd.fleet.svc:2380",
        "--initial-cluster-token=fleet-demo-r1",
        "--bump-revision=1000000000",
        "--mark-compacted",
    ] {
        assert!(command.iter().any(|one| one == argument), "{argument}: {command:?}");
    }
    assert_eq!(pod["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"], "etcd-data-etcd-1");
    // It is read as a pod, and reaches no Service.
    let read: Pod = serde_json::from_value(pod.clone()).unwrap();
    assert_eq!(read.spec.unwrap().restart_policy.as_deref(), Some("Never"));
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], "restore");
    assert_eq!(pod["spec"]["securityContext"]["fsGroup"], 65532);
    let swap = build_store_pod(&site(), "etcd-1", &StoreWork::Swap, "r1", None);
    assert_eq!(swap["spec"]["initContainers"], json!([]));
    assert_eq!(
        swap["spec"]["containers"][0]["args"],
        json!(["store", "swap", "--data-dir=/data/etcd", "--run=r1", "--report=/dev/termination-log"])
    );
    let messages = [Some("4096\n"), Some("-1"), Some("4 KiB"), None];
    let bytes = messages.map(|message| read_former_bytes(&build_ended_pod("containerStatuses", "store", 0, message)));
    assert_eq!(bytes, [Some(4096), None, None, None]);
    let beside = build_store_pod(&site(), "etcd-1", &StoreWork::Commit, "r1", Some("node-2"));
    assert!(beside["spec"]["affinity"].to_string().contains("node-2"), "{beside}");
}

#[test]
fn a_rehearsal_runs_the_api_server_as_it_is_but_alone() {
    let command = json!([
        "kube-apiserver",
        "--secure-port=6443",
        "--etcd-servers=https://etcd-client.fleet.svc:2379",
        "--encryption-provider-config=/etc/fleet/pki/encryption.yaml",
        "--audit-log-path=-",
        "--feature-gates=A=true",
        "--shutdown-delay-duration=5s",
        "--etcd-compaction-interval=1m"
    ]);
    let api_server = json!({"name": "apiserver", "image": "registry.k8s.io/kube-apiserver:v1.36.3", "command": command,
        "volumeMounts": [{"name": "pki", "mountPath": "/etc/fleet/pki"}, {"name": "audit", "mountPath": "/a"}]});
    let deployment =
        json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": {"containers": [api_server]}}}});
    let rehearsal = RehearsalSite::from_api_server(site(), serde_json::from_value(deployment).unwrap()).unwrap();
    let pod = build_rehearsal_pod(&rehearsal, &header(5000), "r1");
    let read: Pod = serde_json::from_value(pod.clone()).unwrap();
    let spec = read.spec.unwrap();
    assert_eq!((spec.active_deadline_seconds, spec.automount_service_account_token), (Some(600), Some(false)));
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names: Vec<&str> = containers.map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["receive-keys", "receive", "restore", "etcd", "apiserver", "probe"]);
    assert_eq!(spec.containers.len(), 3);
    let api_server = &spec.containers[1];
    let expected = [
        "kube-apiserver",
        "--encryption-provider-config=/etc/fleet/pki/encryption.yaml",
        "--feature-gates=A=true",
        "--etcd-servers=https://127.0.0.1:2379",
        "--bind-address=127.0.0.1",
        "--secure-port=6443",
        "--watch-cache=false",
        "--etcd-compaction-interval=0",
    ];
    assert_eq!(api_server.command.as_deref().unwrap(), expected);
    let mounts = api_server.volume_mounts.as_deref().unwrap();
    assert_eq!((mounts.len(), mounts[0].name.as_str(), mounts[0].mount_path.as_str()), (1, "keys", "/etc/fleet/pki"));
    // Keys are in memory, and nothing of the cluster is mounted.
    assert!(spec.volumes.unwrap().iter().all(|volume| volume.empty_dir.is_some()), "{pod}");
    assert_eq!(pod["spec"]["volumes"][0]["emptyDir"]["medium"], "Memory");
}

fn read_probe_report(code: i32, message: &str) -> Option<Result<RehearsalReport, RestoreError>> {
    read_report(&build_ended_pod("containerStatuses", "probe", code, Some(message)))
}

#[test]
fn a_report_is_taken_only_of_a_probe_that_ended_well() {
    let report = RehearsalReport { revision: 7, kinds: 2, objects: 3, ..RehearsalReport::default() };
    assert_eq!(read_probe_report(0, &report.to_line()).unwrap().unwrap(), report);
    assert!(read_probe_report(1, &report.to_line()).is_none());
    for broken in ["", "{}", r#"{"revision": "x"}"#] {
        let why = read_probe_report(0, broken).unwrap().unwrap_err().to_string();
        assert!(why.contains("the report of container probe cannot be read"), "{why}");
    }
}

#[test]
fn what_a_container_said_last_is_the_reason_of_a_pod() {
    let [failed, full] = ["first\nlast \u{1b}[2J\n", "the volume has 5 bytes free, and more"]
        .map(|message| check_pod(&build_ended_pod("initContainerStatuses", "room", 1, Some(message))).unwrap_err());
    assert_eq!(failed.to_string(), "pod fleet-r1 failed: container room exited with code 1: last \\u{1b}[2J");
    assert_eq!(full.reason(), "NoSpaceToRestore");
}

fn build_managed_entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "fieldsV1": fields})
}

#[test]
fn fields_are_given_back_to_who_owned_them() {
    let before = vec![
        build_managed_entry("fleetctl", "Apply", json!({"f:spec": {"f:replicas": {}, "f:template": {}}})),
        build_managed_entry("kube-controller-manager", "Update", json!({"f:status": {}})),
    ];
    let owner = find_owner(&before, ".spec.replicas").unwrap();
    assert_eq!(owner, FieldOwner { manager: "fleetctl".to_owned(), operation: "Apply".to_owned() });
    assert_eq!(find_owner(&before, ".spec.selector"), None);
    let taken = vec![
        build_managed_entry("fleetctl", "Apply", json!({"f:spec": {"f:template": {}}})),
        before[1].clone(),
        build_managed_entry("fleetctl-restore", "Update", json!({"f:spec": {"f:replicas": {}}})),
    ];
    assert_eq!(give_back(taken, &owner).unwrap(), before);
    assert_eq!(give_back(before, &owner), None, "nothing was taken");
}

fn build_fingerprints(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(file, print)| ((*file).to_owned(), (*print).to_owned())).collect()
}

#[test]
fn a_backup_fits_by_its_keys_and_its_api_server() {
    let here = build_fingerprints(&[("ca.crt", "a"), ("etcd-ca.crt", "b")]);
    assert!(compare_fingerprints(&build_fingerprints(&[("ca.crt", "a")]), &here).is_empty());
    let other = build_fingerprints(&[("ca.crt", "z"), ("encryption.yaml/key1", "c"), ("etcd-ca.crt", "b")]);
    assert_eq!(compare_fingerprints(&other, &here), ["ca.crt", "encryption.yaml/key1"]);
    assert_eq!(compare_fingerprints(&build_fingerprints(&[]), &here).len(), 1, "a backup that names none fits nothing");
    for (image, fits) in [
        ("registry.k8s.io/kube-apiserver:v1.36.0", true),
        ("r:5000/kube-apiserver:v1.37.2", true),
        ("r:5000/kube-apiserver:v1.35.4", false),
        // A digest names no version.
        ("kube-apiserver@sha256:00", true),
    ] {
        assert_eq!(check_api_server(&header(0), Some(image)).is_ok(), fits, "{image}");
    }
}

#[test]
fn clusters_that_come_back_and_that_are_missing_are_named() {
    let names = compare_names(&header(0), &["west".to_owned(), "north".to_owned()]);
    assert_eq!((names.returning, names.missing), (vec!["east".to_owned()], vec!["north".to_owned()]));
}

#[tokio::test]
async fn agents_that_do_not_count_copies_are_behind() {
    let clusters = [("new", "True", Some(0)), ("old", "True", None), ("away", "Unknown", None)];
    let clusters = clusters.map(|(name, ready, count)| {
        let ready = json!({"type": "Ready", "status": ready, "reason": "", "message": ""});
        json!({"metadata": {"name": name}, "status": {"conditions": [ready], "copiesWithoutSchedule": count}})
    });
    let hub = test_api::api(move |_, _| json!({"metadata": {}, "items": clusters}));
    let members = list_registered_members(&hub, Age::Now).await.unwrap();
    assert_eq!(find_agents_behind(&members), ["old"]);
}

#[test]
fn stages_go_on_where_they_stopped() {
    let facts = json!({"archive": "ff", "replicas": {"etcd": 3, "apiserver": 2, "fleet-scheduler": 1,
        "kube-controller-manager": 1}, "owners": {}, "forget": ["west"]});
    let mut operation = Operation::new(COMMAND, "r1".to_owned(), "swap", facts);
    let read = RestoreFacts::of_operation(&operation).unwrap();
    assert_eq!((read.members(), RestoreFacts::find_stage(&operation).unwrap()), (3, RestoreStage::Swap));
    stage::ROLLBACK.clone_into(&mut operation.stage);
    assert_eq!(RestoreFacts::find_stage(&operation).unwrap_err().reason(), "OperationOpen");
    assert_eq!(find_former_stores(&operation), None, "it is open");
    operation.open = false;
    for bytes in [None, Some(4096)] {
        operation.facts["formerBytes"] = json!(bytes);
        let kept = FormerStores { since: operation.started.clone(), bytes };
        assert_eq!(find_former_stores(&operation), Some(kept));
    }
    operation.facts["replicas"]["etcd"] = 4711.into();
    assert_eq!(RestoreFacts::of_operation(&operation).unwrap_err().reason(), "OperationOpen");
    assert!(
        RestoreStage::ALL.is_sorted()
            && RestoreStage::ALL.iter().all(|stage| RestoreStage::from_name(stage.name()) == Some(*stage))
    );
}

/// Sends the snapshot of an archive to somebody who answers so. Returns what arrived.
async fn send_to(answer: impl Fn(&TransferHead, &[u8]) -> String) -> (Vec<u8>, io::Result<()>) {
    let mut snapshot: Vec<u8> = (0..512 * 600_u32).map(|at| at.to_le_bytes()[0]).collect();
    let hash = Sha256::digest(&snapshot);
    snapshot.extend_from_slice(&hash);
    let contents = Contents { header: header(snapshot.len()), keys: Vec::new(), values: None, record: None };
    let (archive, _) = write_archive(Vec::new(), &Seal::Open, &contents, snapshot.as_slice()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &archive).unwrap();
    let verified = verify_archive(archive.as_slice(), &Opening::default()).unwrap();
    let part = verified.parts.iter().find(|part| part.name == SNAPSHOT).unwrap().clone();
    let source = ArchiveSource { path: file.path().to_owned(), opening: Arc::new(Opening::default()), verified };
    let (here, there) = tokio::io::duplex(4096);
    let receiving = async {
        let mut there = BufReader::new(there);
        let mut line = String::new();
        there.read_line(&mut line).await.unwrap();
        let head: TransferHead = serde_json::from_str(&line).unwrap();
        let mut bytes = vec![0; usize::try_from(head.bytes).unwrap()];
        there.read_exact(&mut bytes).await.unwrap();
        there.write_all(answer(&head, &bytes).as_bytes()).await.unwrap();
        bytes
    };
    let (sent, received) = tokio::join!(send_part(here, &source, &part, &Silent), receiving);
    assert_eq!(received, snapshot);
    (received, sent)
}

#[tokio::test]
async fn a_snapshot_arrives_as_it_was_stored() {
    let sent = send_to(|head, bytes| {
        assert_eq!(head.sha256, full_digest(bytes));
        format_line(&TransferAnswer::Received(head.bytes))
    });
    sent.await.1.unwrap();
    let refused = send_to(|_, _| format_line(&TransferAnswer::Refused("full\u{7}".to_owned()))).await.1.unwrap_err();
    assert_eq!(refused.to_string(), "the pod refused the data: full\\u{7}");
    assert!(send_to(|_, _| "\n".to_owned()).await.1.is_err());
}
