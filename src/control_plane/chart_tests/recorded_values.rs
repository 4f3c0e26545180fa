//! Values that an install of a control plane remembers of the one before.

use crate::chart::embedded_versions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{charts, containers, pods, render_with};
use crate::chart::patch::Patches;
use crate::chart::values::{ImageLock, still_locked};
use crate::chart::versions::select::{Request, select_row};
use crate::chart::{Chart, Kind, SetKind, ValuesBuilder};
use crate::control_plane::charts::SECRET_VALUES;
use crate::control_plane::values::ControlPlaneValues;
use crate::install::recorded_values::{RecordedRelease, ValuesForgotten, next_version};
use crate::install::release_spec::{Package, load_chart};
use crate::inventory::{Item, Origin, Phase, Policy, Record, Release};
use crate::k8s::ObjectRef;
use crate::pki::placeholder_files;

pub(super) fn package(version: &str, lay: impl FnOnce(ValuesBuilder, &Chart) -> ValuesBuilder) -> Package {
    let selection = select_row(embedded_versions(), Request { version: Some(version), ..Request::default() }).unwrap();
    let chart = load_chart(Kind::ControlPlane, &selection).unwrap();
    let values = lay(chart.values_of(&selection.version), &chart);
    let tree = values.build(ControlPlaneValues::schema).unwrap_or_else(|problems| panic!("{problems}"));
    Package::new("demo", "fleet".parse().unwrap(), &selection, chart, tree)
}

pub(super) fn given(version: &str, sets: &[&str]) -> Package {
    package(version, |values, _| sets.iter().fold(values, |values, set| values.set(SetKind::Value, set)))
}

pub(super) fn recorded(package: &Package, secrets: Value) -> RecordedRelease {
    let release = package.build_release(BTreeMap::new());
    RecordedRelease { version: release.version, phase: Phase::Installed, values: release.values, secrets }
}

/// Returns the values of `before` that an install of `now` would reset, a clause each.
fn forgotten(before: &Package, secrets: Value, now: &Package) -> Vec<String> {
    let release = before.build_release(BTreeMap::new());
    let found = ValuesForgotten::compare_release(now, &release, &recorded(before, secrets));
    found.map(|found| found.format_clauses()).unwrap_or_default()
}

const GIVEN: [&str; 12] = [
    "exposure.type=NodePort",
    "exposure.nodePort=32222",
    "exposure.extraSANs={a.example,b.example}",
    "exposure.host=192.0.2.10",
    "etcd.storage.size=20Gi",
    "scheduler.registration=Manual",
    "scheduler.initTokenTTL=10d",
    "networkPolicy.enabled=false",
    "apiserver.extraArgs={--v=4}",
    "namespace.podSecurity=baseline",
    "nodeSelector.disk=fast",
    "imageRegistry=registry.example.com",
];

#[test]
fn twelve_values_are_all_remembered_through_every_line() {
    let before = given("v0.6.1", &GIVEN);
    let mut release = recorded(&before, json!({}));
    for _ in 1..embedded_versions().rows().len() {
        let next = next_version(embedded_versions(), &release.version).unwrap();
        let upgraded = package(&next, |values, chart| values.with_recorded(&release.values_for(chart)));
        assert_eq!(forgotten(&before, json!({}), &upgraded), Vec::<String>::new(), "{next}");
        assert_eq!(upgraded.given_values(), before.given_values(), "{next}");
        assert_eq!(forgotten(&before, json!({}), &given(&next, &[])).len(), GIVEN.len(), "{next}");
        release = recorded(&upgraded, json!({}));
    }
    assert_eq!(
        next_version(embedded_versions(), &release.version).as_deref(),
        Some(&*release.version),
        "the newest stays"
    );
}

/// Returns the values of `before` that an install with only these would reset.
fn list_forgotten(before: &Package, sets: &[&str]) -> Vec<String> {
    forgotten(before, json!({}), &given("v0.8.0", sets))
}

#[test]
fn a_value_is_forgotten_only_where_it_would_change_without_a_word() {
    let before = given("v0.8.0", &["scheduler.replicas=2", "etcd.replicas=1", "exposure.nodePort=32222"]);
    assert_eq!(
        list_forgotten(&before, &[]),
        ["exposure.nodePort: 32222, would become unset", "scheduler.replicas: 2, would become 1"],
        "one that equals the default is not named"
    );
    assert_eq!(
        list_forgotten(&before, &["scheduler.replicas=3", "exposure.nodePort=null"]),
        Vec::<String>::new(),
        "said otherwise"
    );
    assert_eq!(list_forgotten(&before, &["exposure.nodePort=32222"]), ["scheduler.replicas: 2, would become 1"]);
}

#[test]
fn a_null_takes_back_what_was_recorded_and_brings_the_default() {
    let before = given(
        "v0.8.0",
        &[
            "nodeSelector.disk=fast",
            "scheduler.replicas=2",
            "exposure.host=192.0.2.1",
            "namespace.podSecurity=baseline",
        ],
    );
    let release = recorded(&before, json!({}));
    let sets = ["nodeSelector=null", "scheduler.replicas=null", "exposure.host=null", "namespace.podSecurity=null"];
    let again = package("v0.8.0", |values, chart| {
        let values = values.with_recorded(&release.values_for(chart));
        sets.iter().fold(values, |values, set| values.set(SetKind::Value, set))
    });
    assert_eq!(again.tree().to_json(), given("v0.8.0", &[]).tree().to_json());
    assert_eq!(forgotten(&before, json!({}), &again), Vec::<String>::new(), "that was said");
}

#[test]
fn the_tag_that_chose_a_version_does_not_choose_the_next_one() {
    let before = given("v0.6.1", &["scheduler.image.tag=v0.6.1"]);
    assert_eq!(forgotten(&before, json!({}), &given("v0.7.1", &[])), Vec::<String>::new());
    let release = recorded(&before, json!({}));
    let upgraded = package("v0.7.1", |values, chart| values.with_recorded(&release.values_for(chart)));
    assert_eq!(upgraded.tree().to_json()["scheduler"]["image"]["tag"], "v0.7.1");
    // Another one is the user's own.
    let before = given("v0.6.1", &["scheduler.image.tag=v0.6.2"]);
    assert_eq!(forgotten(&before, json!({}), &given("v0.7.1", &[])).len(), 1);
}

fn repeat_digest(digit: &str) -> String {
    format!("sha256:{}", digit.repeat(64))
}

/// Lays a lock over values, in which every image of a version has the same digest.
fn lay_image_lock(values: ValuesBuilder, version: &str, digit: &str) -> ValuesBuilder {
    let chart = charts().iter().find(|chart| version.starts_with(&chart.line().to_string())).unwrap();
    let images: BTreeMap<String, String> = pods(&render_with(chart, None, &[], &placeholder_files()))
        .iter()
        .flat_map(|(_, pod)| containers(pod))
        .map(|container| (container["image"].as_str().unwrap().to_owned(), repeat_digest(digit)))
        .collect();
    let lock = ImageLock::parse_lock("images.lock", json!({"images": images}).to_string().as_bytes()).unwrap();
    lock.apply_digests(values).unwrap_or_else(|problems| panic!("{problems}"))
}

fn list_image_tags(package: &Package) -> [String; 4] {
    let values = package.tree().to_json();
    ["etcd", "apiserver", "controllerManager", "scheduler"]
        .map(|name| values[name]["image"]["tag"].as_str().unwrap().to_owned())
}

#[test]
fn images_that_were_locked_bring_no_older_line_with_them_and_stay_locked() {
    let before = package("v0.8.0", |values, _| lay_image_lock(values, "v0.8.0", "a"));
    assert!(list_image_tags(&before).iter().all(|tag| tag.ends_with(&repeat_digest("a"))));
    let release = recorded(&before, json!({}));
    let [same, next] = ["v0.8.0", "v0.9.0"].map(|version| version.parse().unwrap());
    // The same version keeps its lock, and a later one wins over it.
    let again = package("v0.8.0", |values, chart| values.with_recorded(&release.values_for_version(chart, &same).0));
    assert_eq!(list_image_tags(&again), list_image_tags(&before));
    let later = package("v0.8.0", |values, chart| {
        lay_image_lock(values.with_recorded(&release.values_for_version(chart, &same).0), "v0.8.0", "b")
    });
    assert!(list_image_tags(&later).iter().all(|tag| tag.ends_with(&repeat_digest("b"))));
    // Of the next line's images those that are other ones have no digest before there is a lock of them.
    let mut unlocked = Vec::new();
    let upgraded = package("v0.9.0", |values, chart| {
        let (recorded, found) = release.values_for_version(chart, &next);
        unlocked = found;
        let values = values.with_recorded(&recorded);
        let problems = still_locked(&values, &unlocked).unwrap_err();
        assert_eq!(problems.0.len(), unlocked.len(), "{problems}");
        values
    });
    assert_eq!(unlocked, ["scheduler.image"]);
    assert_eq!(
        list_image_tags(&upgraded)[..3],
        list_image_tags(&before)[..3],
        "the API server and its store are the same in both"
    );
    assert_eq!(list_image_tags(&upgraded)[3], "v0.9.0");
    let locked = package("v0.9.0", |values, chart| {
        let values = lay_image_lock(values.with_recorded(&release.values_for_version(chart, &next).0), "v0.9.0", "b");
        still_locked(&values, &unlocked).unwrap_or_else(|problems| panic!("{problems}"));
        values
    });
    assert!(list_image_tags(&locked).iter().all(|tag| tag.ends_with(&repeat_digest("b"))));
    // Without the recorded values the digests are forgotten, and that is told.
    assert_eq!(forgotten(&before, json!({}), &given("v0.9.0", &[])).len(), 4);
}

#[test]
fn a_secret_is_recorded_nowhere_and_forgotten_like_any_other_value() {
    let canary = r#"{"auths":{"registry.example.com":{"auth":"Y2FuYXJ5OmNhbmFyeQ=="}}}"#;
    let before = package("v0.6.1", |values, _| values.flag("--x", "registryCredentials", canary));
    let release = before.build_release(BTreeMap::new());
    assert!(!serde_json::to_string(&release).unwrap().contains("Y2FuYXJ5"), "{release:?}");
    let secrets = json!({"registryCredentials": canary});
    let found = forgotten(&before, secrets.clone(), &given("v0.6.1", &[]));
    assert_eq!(found, ["registryCredentials: (a secret), would become unset"]);
    let kept = recorded(&before, secrets.clone());
    assert!(!format!("{kept:?}").contains("Y2FuYXJ5"));
    let again = package("v0.6.1", |values, chart| values.with_recorded(&kept.values_for(chart)));
    assert_eq!(forgotten(&before, secrets, &again), Vec::<String>::new());
    assert_eq!(again.tree().to_json()["registryCredentials"], canary);
}

#[test]
fn a_record_without_values_is_compared_by_their_digest() {
    let before = given("v0.6.1", &["priorityClassName=high"]);
    let release = Release {
        values: None,
        facts: [("etcdMembers".to_owned(), "1".to_owned())].into(),
        ..before.build_release(BTreeMap::new())
    };
    let kept = RecordedRelease { values: None, ..recorded(&before, json!({})) };
    assert_eq!(ValuesForgotten::compare_release(&before, &release, &kept), None);
    let refused = ValuesForgotten::compare_release(&given("v0.6.1", &[]), &release, &kept).unwrap();
    assert_eq!(refused.format_clauses(), ["etcdMembers is 1"]);
}

#[test]
fn patches_that_are_not_given_again_are_forgotten() {
    let before = given("v0.6.1", &[]);
    let facts = BTreeMap::from([("patches".to_owned(), "web.yaml sha256:0".to_owned())]);
    let release = before.build_release(facts);
    let recorded = recorded(&before, json!({}));
    let forgotten = ValuesForgotten::compare_release(&before, &release, &recorded).unwrap();
    assert_eq!(forgotten.format_clauses(), ["patches: web.yaml sha256:0, would become unset"]);
    let patch = "kind: Deployment\nmetadata: {name: apiserver}\nspec: {minReadySeconds: 5}\n";
    let patches = Patches::read_patch_files([("web.yaml".to_owned(), Ok(patch.as_bytes().to_vec()))]).unwrap();
    let patched = given("v0.6.1", &[]).with_patches(patches);
    assert_eq!(ValuesForgotten::compare_release(&patched, &release, &recorded), None);
}

#[test]
fn name_and_version_are_no_values() {
    let before = given("v0.6.1", &["name=demo", "version=v0.6.1"]);
    assert_eq!(before.given_values(), json!({}));
}

#[tokio::test]
async fn only_secrets_of_the_inventory_are_read() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        let body = Body::from(missing.to_string().into_bytes());
        async { http::Response::builder().status(404).body(body) }
    });
    let client = Client::new(service, "fleet");
    let before = given("v0.6.1", &[]);
    let owner = before.owner();
    let mut record = Record::new(&owner, "u".into(), before.build_release(BTreeMap::new()));
    RecordedRelease::from_record(&record, &client, &SECRET_VALUES).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    record.inventory.push(Item {
        object: ObjectRef {
            group: String::new(),
            kind: "Secret".into(),
            namespace: Some("fleet".into()),
            name: "fleet-registry".into(),
        },
        uid: "u".into(),
        origin: Origin::Created,
        policy: Policy::Delete,
        digest: String::new(),
        fields: 0,
    });
    RecordedRelease::from_record(&record, &client, &SECRET_VALUES).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
