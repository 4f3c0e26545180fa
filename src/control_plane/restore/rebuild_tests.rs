//! Tests of what a backup gives to an install of a lost control plane, without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::backup::{Contents, KeyFile, Opening, Seal, verify_archive, write_archive};
use crate::control_plane::endpoint::exposure::unknown_endpoint;
use crate::control_plane::restore::tests::header;
use crate::control_plane::values::ExposureType;
use crate::inventory::Operation;
use crate::pki::{Authorities, Lifetimes, SecretText};

/// The record of a control plane with these values.
fn record(values: &Value) -> Value {
    json!({"format": 1, "owner": {"kind": "control-plane", "name": "demo", "namespace": "fleet"}, "installUid": "u",
        "phase": "installed", "namespaceCreated": true, "written": "2027-03-12T10:15:00Z", "inventory": [],
        "release": {"chart": "control-plane/v1.2", "version": "v1.2.0", "valuesDigest": "", "values": values,
            "facts": {"exposure": "NodePort", "server": "https://10.0.0.9:31234", "host": "10.0.0.9"}}})
}

fn secret(name: &str, install: Option<&str>, data: BTreeMap<&str, String>) -> KeyFile {
    let data: BTreeMap<&str, String> =
        data.into_iter().map(|(key, text)| (key, BASE64_STANDARD.encode(text))).collect();
    let labels = install.map(|install| json!({LABEL_INSTALL: install}));
    let manifest =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": data});
    KeyFile { secret: name.to_owned(), manifest: SecretText::new(manifest.to_string()) }
}

/// An archive, in a file that is deleted with the first part.
struct Archived {
    _file: tempfile::NamedTempFile,
    source: ArchiveSource,
}

/// The archive of a control plane with these keys and this record.
fn archived(files: &Files, keys: Vec<KeyFile>, record: Option<&Value>) -> Archived {
    let mut snapshot = vec![7; 512];
    let hash = Sha256::digest(&snapshot);
    snapshot.extend_from_slice(&hash);
    let mut header = header(snapshot.len());
    (header.keys, header.fingerprints) = (!keys.is_empty(), fingerprint_keys(files));
    let contents = Contents { header, keys, values: None, record: record.map(Value::to_string) };
    let (archive, _) = write_archive(Vec::new(), &Seal::Open, &contents, snapshot.as_slice()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &archive).unwrap();
    let verified = verify_archive(archive.as_slice(), &Opening::default()).unwrap();
    let source = ArchiveSource { path: file.path().to_owned(), opening: Arc::new(Opening::default()), verified };
    Archived { _file: file, source }
}

fn authorities() -> Files {
    Authorities::generate_authorities(Timestamp::now(), &Lifetimes::default()).unwrap().to_map()
}

fn kept_secret(files: &Files) -> KeyFile {
    let data = files.expose_all().map(|(file, text)| (file, text.to_owned())).collect();
    secret(KEPT_SECRET, Some("demo"), data)
}

async fn read(archived: &Archived, own: Option<&Kubeconfig>) -> Result<LostPlane, RestoreError> {
    let (name, namespace) = ("demo".parse().unwrap(), "fleet".parse().unwrap());
    LostPlane::read_from_archive(&archived.source, (&name, &namespace), Patches::default(), own, |values| values).await
}

#[tokio::test]
async fn a_lost_control_plane_has_the_keys_values_and_version_of_its_backup() {
    let files = authorities();
    let registry = BTreeMap::from([(".dockerconfigjson", r#"{"auths":{"r.example":{"auth":"YTpi"}}}"#.to_owned())]);
    let keys = vec![kept_secret(&files), secret("fleet-registry", Some("demo"), registry.clone())];
    let archived = archived(&files, keys, Some(&record(&json!({"scheduler": {"replicas": 2}}))));
    let lost = read(&archived, None).await.unwrap();
    assert_eq!(lost.plan.package.version.to_string(), "v1.2.0");
    assert_eq!(lost.plan.package.tree().to_json().pointer("/scheduler/replicas"), Some(&json!(2)));
    assert!(lost.plan.values.registry_credentials.is_some());
    assert_eq!(lost.server.as_deref(), Some("https://10.0.0.9:31234"));
    assert!(lost.secrets.is_empty(), "an install applies them");
    let facts = lost.plan.control_plane_release(&unknown_endpoint(ExposureType::NodePort)).facts;
    assert_eq!(facts[AWAITED_BACKUP], archived.source.verified.sha256);
    assert_eq!(lost.plan.former_facts(&State::default()).unwrap()["host"], "10.0.0.9");

    // Credentials that were put there by hand, and keys that a Job completes, are written as they are.
    let values = json!({"pki": {"source": "InCluster"}});
    let keys = vec![kept_secret(&files), secret("fleet-registry", None, registry)];
    let lost = read(&self::archived(&files, keys, Some(&record(&values))), None).await.unwrap();
    let written: Vec<(String, &str)> =
        lost.secrets.iter().map(|(secret, manager)| (secret.name_any(), *manager)).collect();
    assert_eq!(written, [("fleet-registry".to_owned(), RESTORE_MANAGER), (KEPT_SECRET.to_owned(), KEYS_MANAGER)]);
}

async fn refuse_archived(archived: Archived) -> RestoreError {
    read(&archived, None).await.unwrap_err()
}

#[tokio::test]
async fn a_backup_that_cannot_be_installed_is_refused() {
    let files = authorities();
    let plain = record(&json!({}));
    assert_eq!(refuse_archived(archived(&files, Vec::new(), Some(&plain))).await.reason(), "KeysMissing");
    let others = vec![kept_secret(&authorities())];
    assert_eq!(refuse_archived(archived(&files, others, Some(&plain))).await.reason(), "KeysMissing");
    let registry = vec![secret("fleet-registry", None, BTreeMap::new())];
    assert_eq!(refuse_archived(archived(&files, registry, Some(&plain))).await.reason(), "KeysMissing");
    assert_eq!(
        refuse_archived(archived(&files, vec![kept_secret(&files)], None)).await.reason(),
        "BackupNotInstallable"
    );
    for (place, value) in [
        ("/release/version", json!("v9.9.9")),
        ("/release/chart", json!("control-plane/v0.6")),
        ("/release/values", json!({"scheduler": {"replicas": "many"}})),
        ("/release/values", Value::Null),
    ] {
        let mut record = plain.clone();
        *record.pointer_mut(place).unwrap() = value;
        let error = refuse_archived(archived(&files, vec![kept_secret(&files)], Some(&record))).await;
        assert_eq!(error.reason(), "BackupNotInstallable", "{place}: {error}");
    }
}

#[tokio::test]
async fn the_operator_of_this_machine_stays_the_same_user() {
    let files = authorities();
    let archived = archived(&files, vec![kept_secret(&files)], Some(&record(&json!({}))));
    for (of_machine, is_kept) in [(&files, true), (&authorities(), false)] {
        let own = Kubeconfig {
            context: "demo".to_owned(),
            server: "https://10.0.0.9:31234".to_owned(),
            authority: of_machine.get("ca.crt").unwrap().to_owned(),
            user: "fleet-admin@demo".to_owned(),
            credential: crate::pki::KubeconfigUser::Token(SecretText::new("t".to_owned())),
        };
        let lost = read(&archived, Some(&own)).await.unwrap();
        assert_eq!(lost.plan.origin.as_ref().unwrap().keys.contains(ADMIN_KUBECONFIG), is_kept);
    }
}

/// The state of a record with these facts, and what else a run has left.
fn state(facts: &[&str], journal: Option<Value>, operation: Option<Operation>) -> State {
    let mut written = record(&json!({}));
    for fact in facts {
        written["release"]["facts"][AWAITED_BACKUP] = json!(fact);
    }
    State {
        record: Some(serde_json::from_value(written).unwrap()),
        journal: journal.map(|journal| serde_json::from_value(journal).unwrap()),
        operation,
        ..State::default()
    }
}

fn journal(command: &str, archive: Option<&str>) -> Value {
    let release = archive
        .map(|archive| json!({"chart": "", "version": "", "valuesDigest": "", "facts": {AWAITED_BACKUP: archive}}));
    json!({"run": "r", "command": command, "started": "", "installUid": "u", "release": release, "steps": []})
}

fn judge_state(state: &State) -> Result<RebuildStage, &'static str> {
    judge_rebuild(state, "ff", "demo", "fleet").map_err(|error| error.reason())
}

fn build_restore_operation(open: bool, archive: &str) -> Operation {
    let facts = json!({"archive": archive, "replicas": {"etcd": 1, "apiserver": 1, "fleet-scheduler": 1,
        "kube-controller-manager": 1}, "owners": {}, "forget": []});
    Operation { open, ..Operation::new("restore", "r1".to_owned(), "swap", facts) }
}

/// The state of a first run that has not ended.
fn build_begun_state(journal: Value) -> State {
    State { record: None, ..state(&[], Some(journal), None) }
}

#[test]
fn a_rebuild_goes_on_with_what_it_began_and_replaces_nothing_else() {
    assert_eq!(judge_state(&State::default()), Ok(RebuildStage::Empty));
    assert_eq!(judge_state(&build_begun_state(journal("install", None))), Ok(RebuildStage::Begun));
    assert_eq!(judge_state(&build_begun_state(journal("install", Some("ff")))), Ok(RebuildStage::Begun));
    assert_eq!(judge_state(&build_begun_state(journal("install", Some("00")))), Err("AlreadyInstalled"));
    assert_eq!(judge_state(&build_begun_state(journal("uninstall", None))), Err("AlreadyInstalled"));
    assert_eq!(judge_state(&state(&["ff"], None, None)), Ok(RebuildStage::Installed));
    assert_eq!(judge_state(&state(&["00"], None, None)), Err("AlreadyInstalled"));
    assert_eq!(judge_state(&state(&[], None, None)), Err("AlreadyInstalled"));
    assert_eq!(judge_state(&state(&[], Some(journal("install", None)), None)), Err("AlreadyInstalled"));
    assert_eq!(judge_state(&state(&[], None, Some(build_restore_operation(true, "ff")))), Ok(RebuildStage::Restoring));
    assert_eq!(judge_state(&state(&[], None, Some(build_restore_operation(true, "00")))), Err("OperationOpen"));
    assert_eq!(judge_state(&state(&[], None, Some(build_restore_operation(false, "ff")))), Ok(RebuildStage::Restored));
    assert_eq!(judge_state(&state(&[], None, Some(build_restore_operation(false, "00")))), Err("AlreadyInstalled"));
    let mut removed = state(&["ff"], None, None);
    removed.record.as_mut().unwrap().phase = Phase::Removed;
    assert_eq!(judge_state(&removed), Err("AlreadyInstalled"));
}
