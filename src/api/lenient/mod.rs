//! Objects in which others than us can write, read so that nothing in one of them fails a list or a watch.
//!
//! One object that cannot be read fails the whole list or watch that it is in, so an agent could stop the scheduler for
//! all others. The API server does not look into opaque maps, passes times that cannot be represented here, and lets
//! whoever may write an object write its managed fields.

mod crd_fields;
pub(crate) mod field;
pub mod raw;
mod written_fields;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, MicroTime, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{ObjectMeta, PartialObjectMeta};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::crd::schedule::{ApplyPolicy, ScheduleShare, SourceRef};
use super::labels::SCHEDULER_MANAGER;
use super::{
    Cluster, ClusterReport, ClusterReportSpec, ClusterSpec, ClusterStatus, Schedule, ScheduleGroup, ScheduleGroupSpec,
    ScheduleGroupStatus, SchedulePolicy, SchedulePolicySpec, SchedulePolicyStatus, ScheduleSpec, ScheduleStatus,
};
use field::{Names, field, or_empty};

/// Names of fields as managed fields have them, as deep as labels are.
type Fields = BTreeMap<String, BTreeMap<String, Names>>;

/// Entry of the managed fields: the fields that one manager set.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    subresource: String,
    #[serde(rename = "fieldsV1", default, deserialize_with = "or_empty")]
    fields: Fields,
}

/// Reads, of the managed fields, those that the scheduler applied.
fn applied<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<ManagedFieldsEntry>>, D::Error> {
    let all = Option::<Vec<Managed>>::deserialize(deserializer)?.unwrap_or_default();
    let ours = all.into_iter().filter(|entry| {
        entry.manager == SCHEDULER_MANAGER && entry.operation == "Apply" && entry.subresource.is_empty()
    });
    let ours: Vec<_> = ours.map(entry_from_managed).collect();
    Ok((!ours.is_empty()).then_some(ours))
}

fn entry_from_managed(managed: Managed) -> ManagedFieldsEntry {
    let fields = managed.fields.into_iter().map(|(name, below)| {
        let below = below
            .into_iter()
            .map(|(name, Names(names))| (name, names.into_iter().map(|name| (name, json!({}))).collect::<Value>()));
        (name, below.collect::<Value>())
    });
    ManagedFieldsEntry {
        manager: Some(managed.manager),
        operation: Some(managed.operation),
        fields_v1: Some(FieldsV1(fields.collect())),
        ..ManagedFieldsEntry::default()
    }
}

/// The metadata that is read.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    annotations: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "field")]
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "applied")]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    uid: Option<String>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            annotations: meta.annotations,
            creation_timestamp: meta.creation_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            deletion_timestamp: meta.deletion_timestamp,
            finalizers: meta.finalizers,
            generation: meta.generation,
            labels: meta.labels,
            managed_fields: meta.managed_fields,
            name: meta.name,
            namespace: meta.namespace,
            owner_references: meta.owner_references,
            resource_version: meta.resource_version,
            uid: meta.uid,
            ..Self::default()
        }
    }
}

/// A kind that is read so that nothing in one object fails a list.
pub trait Readable: Sized {
    /// Its `spec`.
    type Spec: DeserializeOwned + Default;
    /// Its `status`.
    type Status: DeserializeOwned + Default;

    /// Puts the object together.
    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self;
}

impl Readable for Cluster {
    type Spec = ClusterSpec;
    type Status = Option<ClusterStatus>;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self {
        Self { metadata, spec, status }
    }
}

/// All that is read of the `spec` of a Lease.
#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct Renewal {
    #[serde(default, deserialize_with = "field")]
    renew_time: Option<Timestamp>,
}

impl Readable for Lease {
    type Spec = Renewal;
    type Status = IgnoredAny;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, _: Self::Status) -> Self {
        let renew_time = spec.renew_time.map(MicroTime);
        Self { metadata, spec: Some(LeaseSpec { renew_time, ..LeaseSpec::default() }) }
    }
}

impl Readable for CertificateSigningRequest {
    type Spec = CertificateSigningRequestSpec;
    type Status = Option<CertificateSigningRequestStatus>;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self {
        Self { metadata, spec, status }
    }
}

/// The `spec` of a Schedule without its manifest, which is most of it.
#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct WithoutManifest {
    hash: String,
    manifest_digest: Option<String>,
    group: Option<String>,
    follows: bool,
    uses: Option<Vec<String>>,
    source_ref: SourceRef,
    share: Option<ScheduleShare>,
    apply_policy: Option<ApplyPolicy>,
    epoch: i64,
}

/// A Schedule is read without its manifest.
impl Readable for Schedule {
    type Spec = WithoutManifest;
    type Status = Option<ScheduleStatus>;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self {
        let WithoutManifest { hash, manifest_digest, group, follows, uses, source_ref, share, apply_policy, epoch } =
            spec;
        let manifest = String::new();
        Self {
            metadata,
            spec: ScheduleSpec {
                manifest,
                hash,
                manifest_digest,
                group,
                follows,
                uses,
                source_ref,
                share,
                apply_policy,
                epoch,
            },
            status,
        }
    }
}

impl Readable for ClusterReport {
    type Spec = ClusterReportSpec;
    type Status = IgnoredAny;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, _: Self::Status) -> Self {
        Self { metadata, spec }
    }
}

impl Readable for SchedulePolicy {
    type Spec = SchedulePolicySpec;
    type Status = Option<SchedulePolicyStatus>;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self {
        Self { metadata, spec, status }
    }
}

impl Readable for ScheduleGroup {
    type Spec = ScheduleGroupSpec;
    type Status = Option<ScheduleGroupStatus>;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Self::Status) -> Self {
        Self { metadata, spec, status }
    }
}

impl<K> Readable for PartialObjectMeta<K> {
    type Spec = IgnoredAny;
    type Status = IgnoredAny;

    fn from_parts(metadata: ObjectMeta, _: Self::Spec, _: Self::Status) -> Self {
        Self { metadata, types: None, _phantom: PhantomData }
    }
}

/// An object from a list or a watch that nothing in it can fail. Of its managed fields it keeps what the
/// scheduler applied.
#[derive(Debug, Clone)]
pub struct Lenient<K>(pub K);

#[derive(Deserialize)]
struct Parts<S, T> {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: S,
    #[serde(default)]
    status: T,
}

impl<'de, K: Readable> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Parts::<K::Spec, K::Status>::deserialize(deserializer)?;
        Ok(Self(K::from_parts(parts.metadata.into(), parts.spec, parts.status)))
    }
}

impl<K: Resource> Resource for Lenient<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{ObjectList, WatchEvent};
    /// Deeper than any reader follows.
    fn deep() -> String {
        format!("{}{}", r#"{"x":"#.repeat(200), "1".to_owned() + &"}".repeat(200))
    }

    /// A Cluster with `status`, and with managed fields that cannot be read.
    fn cluster(name: &str, status: &str) -> String {
        format!(
            r#"{{"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
            "metadata": {{"name": "{name}", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields":
                [{{"manager": "x", "time": "9999-12-31T23:59:59Z", "fieldsV1": {}}}]}},
            "spec": {{"name": "{name}", "region": "r"}}, "status": {status}}}"#,
            deep()
        )
    }

    #[test]
    fn what_an_agent_writes_into_its_own_status_fails_neither_a_list_nor_a_watch() {
        let good = r#"{"availableResources": {"n": {"cpu": "1"}}}"#;
        let far = r#"{"lastUpdateTime": "9999-12-31T23:59:59Z", "conditions": [{"type": "Ready", "status": "True",
            "reason": "R", "lastTransitionTime": "9999-12-31T23:59:59Z"}], "observed": {"nodeCount": 5000000000}}"#;
        let mut bad = vec![far.to_owned()];
        for map in ["availableResources", "capacityResources", "nodeTaints", "nodeLabels"] {
            for value in [r#"{"n": 5}"#, r#"{"n": [true, null, 1.5]}"#, r#"{"n": {"cpu": {"a": []}}}"#, "7", &deep()] {
                bad.push(format!(r#"{{"{map}": {value}}}"#));
            }
        }
        bad.push(format!(r#"{{"observed": {{"totals": {}}}}}"#, deep()));
        for status in bad {
            let (bad, good) = (cluster("bad", &status), cluster("good", good));
            let list = format!(r#"{{"apiVersion": "v1", "kind": "List", "metadata": {{}}, "items": [{bad}, {good}]}}"#);
            let list: ObjectList<Lenient<Cluster>> = serde_json::from_str(&list).unwrap();
            let [bad, good] = list.items.try_into().unwrap();
            assert_eq!(good.0.status.unwrap().available_resources.unwrap()["n"]["cpu"], "1");
            let read = bad.0;
            assert_eq!((read.metadata.name.as_deref(), read.spec.region.as_str()), (Some("bad"), "r"));
            assert_eq!(read.status.unwrap().last_update_time, None);
            let event = format!(r#"{{"type": "MODIFIED", "object": {}}}"#, cluster("bad", &status));
            let event: WatchEvent<Lenient<Cluster>> = serde_json::from_str(&event).unwrap();
            assert!(matches!(event, WatchEvent::Modified(read) if read.0.spec.name == "bad"));
        }
    }

    #[test]
    fn of_a_map_only_what_has_the_wrong_shape_is_absent() {
        let status = json!({
            "availableResources": {"a": {"cpu": "1", "memory": 5}, "b": 5},
            "nodeTaints": {"a": [{"key": "k", "effect": "NoSchedule"}, {"key": "k"}, 5]},
            "observed": {"nodeCount": 3, "totals": {"cpu": "1", "pods": 2, "x": {}}},
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        });
        let status: ClusterStatus = serde_json::from_value(status).unwrap();
        assert_eq!(json!(status.available_resources), json!({"a": {"cpu": "1"}}));
        assert_eq!(json!(status.node_taints), json!({"a": [{"key": "k", "effect": "NoSchedule"}]}));
        let observed = status.observed.unwrap();
        assert_eq!((observed.node_count, json!(observed.totals)), (Some(3), json!({"cpu": "1", "pods": 2})));
        assert!(status.last_update_time.is_some());
    }

    #[test]
    fn of_the_managed_fields_those_are_kept_that_the_scheduler_applied() {
        let all = [("fleet-scheduler", "Apply", ""), ("fleet-scheduler", "Apply", "status"), ("x", "Apply", "")];
        let all = all.map(|(manager, operation, subresource)| {
            json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {
                "f:metadata": {"f:labels": {"f:fleet-scheduler.io/cluster.region": {}}}, "f:spec": {"f:region": {}}}})
        });
        let cluster = json!({"metadata": {"name": "a", "managedFields": all}, "spec": {"name": "a"}}).to_string();
        let cluster: Lenient<Cluster> = serde_json::from_str(&cluster).unwrap();
        let [kept] = cluster.0.metadata.managed_fields.unwrap().try_into().unwrap();
        assert_eq!(kept.fields_v1.unwrap().0, all[0]["fieldsV1"]);
    }

    #[test]
    fn a_lease_with_a_time_that_cannot_be_is_one_that_was_never_renewed() {
        for (time, is_kept) in [("9999-12-31T23:59:59.000000Z", false), ("2026-01-01T00:00:00.000000Z", true)] {
            let lease = json!({"metadata": {"name": "fleet-agent", "namespace": "fleet-c-a"},
                "spec": {"acquireTime": "9999-12-31T23:59:59Z", "renewTime": time}});
            let lease = serde_json::from_str::<Lenient<Lease>>(&lease.to_string()).unwrap().0;
            assert_eq!(lease.spec.unwrap().renew_time.is_some(), is_kept, "{time}");
        }
    }

    fn schedule_with_status(status: &str) -> String {
        format!(
            r#"{{"metadata": {{"name": "s", "namespace": "fleet-c-a"}}, "spec": {{"manifest": "{{}}", "hash": "h",
            "sourceRef": {{"version": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "generation": 3}}}},
            "status": {status}}}"#
        )
    }

    fn read_lenient_schedule(text: &str) -> Schedule {
        serde_json::from_str::<Lenient<Schedule>>(text).unwrap().0
    }

    #[test]
    fn a_schedule_is_read_without_its_manifest_and_whatever_its_agent_writes() {
        let good = read_lenient_schedule(&schedule_with_status(
            r#"{"observedHash": "h", "appliedGeneration": 3, "resource": "{\"replicas\": 2}"}"#,
        ));
        assert_eq!((good.spec.manifest.as_str(), good.spec.hash.as_str()), ("", "h"));
        assert_eq!(good.status.unwrap().applied_generation, Some(3));
        let far =
            r#"{"type": "Applied", "status": "True", "reason": "R", "lastTransitionTime": "9999-12-31T23:59:59Z"}"#;
        for bad in [
            format!(r#"{{"resource": {}}}"#, deep()),
            r#"{"resource": 5, "pods": {"desired": 1e30}, "appliedGeneration": 1e30, "copyGeneration": "x",
                "epoch": 1e30, "available": "x", "served": {}, "finished": "yes"}"#
                .to_owned(),
            format!(r#"{{"conditions": [{far}], "pods": {{"unschedulableSince": "9999-12-31T23:59:59Z"}}}}"#),
        ] {
            let read = read_lenient_schedule(&schedule_with_status(&bad));
            assert_eq!(read.spec.source_ref.name, "c", "{bad}");
            assert!(read.status.unwrap().resource.is_none(), "{bad}");
        }
    }

    #[test]
    fn requests_and_schedules_are_read_whatever_their_managed_fields_say() {
        let managed = r#""managedFields": [{"manager": "x", "time": "9999-12-31T23:59:59Z"}]"#;
        let request = format!(
            r#"{{"metadata": {{"name": "r", {managed}}}, "spec": {{"request": "", "signerName": "s"}}, "status": {{}}}}"#
        );
        let request: Lenient<CertificateSigningRequest> = serde_json::from_str(&request).unwrap();
        assert_eq!(request.0.spec.signer_name, "s");
        let schedule = format!(r#"{{"metadata": {{"name": "s", {managed}}}}}"#);
        let schedule: Lenient<PartialObjectMeta<Schedule>> = serde_json::from_str(&schedule).unwrap();
        assert_eq!(schedule.meta().name.as_deref(), Some("s"));
    }
}
