//! Writes of placement: what a plan asks for, stage after stage.
//!
//! An object is created by POST and changed by PUT with the version that was read, so what another writer changed
//! meanwhile is seen first. Nothing here decides anything.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::event_queue::EventQueue;
use super::refusals::{self, Refusal};
use super::turns::Permits;
use super::write::{Address, Stages, TargetMark, Write, Written};
use crate::api::crd::policy::SchedulePolicyStatus;
use crate::api::labels::{
    ANNOTATION_ASK, ANNOTATION_TARGET_CLUSTERS, FINALIZER_AGENT_CLEANUP, LABEL_TARGET_CLUSTER, SCHEDULER_MANAGER,
    cluster_namespace,
};
use crate::api::lenient::Lenient;
use crate::api::{Cluster, Schedule, ScheduleGroup, SchedulePolicy};
use crate::daemon::metrics::Metrics;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::placement::tenant::Tenant;
use crate::scheduler::events::{NewEvent, publish_event};

/// Requests in progress at a time, of all plans together.
const IN_FLIGHT: usize = 32;

/// Writes for all plans. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    permits: Permits,
    events: EventQueue<Write>,
    metrics: Metrics,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(super) struct WriteOutcome {
    pub(super) written: Vec<Written>,
    /// Writes that the API server refuses as they are.
    pub(super) refused: Vec<Refusal>,
    /// The first failure that may be none the next time.
    pub(super) failure: Option<CallError>,
}

/// Events that are to be written: one after the other, beside everything else, which waits for none of them.
pub(super) struct Events {
    recorder: Recorder,
    waiting: EventQueue<Write>,
}

impl Events {
    /// Writes them until dropped.
    pub(super) async fn write_events(self) {
        loop {
            if let Write::Event { about, warning, reason, message, .. } = self.waiting.wait_for_event().await {
                let type_ = if warning { EventType::Warning } else { EventType::Normal };
                publish_event(
                    &self.recorder,
                    &about,
                    NewEvent { type_, action: "Scheduling", reason, message: &message },
                )
                .await;
            }
        }
    }
}

impl Writer {
    pub(super) fn new(client: Client, recorder: Recorder, metrics: Metrics) -> (Self, Events) {
        let (permits, events) = (Permits::new(IN_FLIGHT), EventQueue::default());
        let waiting = events.clone();
        (Self { client, permits, events, metrics }, Events { recorder, waiting })
    }

    /// Executes a plan of a tenant. What is refused or answered otherwise of one object holds up nothing else; the plan ends
    /// with a stage in which the API server did not answer, or the group itself could not be written: its events come after
    /// it.
    pub(super) async fn execute_stages(&self, stages: Stages, tenant: &Tenant) -> WriteOutcome {
        let mut outcome = WriteOutcome::default();
        for stage in stages {
            let writes = stage.into_iter().map(async |write| {
                let answer = self.execute_write(&write, tenant).await;
                (write, answer)
            });
            let mut answers = futures::stream::iter(writes).buffer_unordered(IN_FLIGHT);
            let mut ends = false;
            while let Some((write, answer)) = answers.next().await {
                let error = match answer {
                    Ok(written) => {
                        outcome.written.extend(written);
                        continue;
                    }
                    Err(error) => error,
                };
                ends |= matches!(write, Write::Group(_));
                if let Some(refusal) = refusals::classify_refusal(&write, &error) {
                    outcome.refused.push(refusal);
                } else {
                    ends |= matches!(error.status_code(), None | Some(401 | 429 | 503 | 504));
                    outcome.failure.get_or_insert(error);
                }
            }
            if ends {
                break;
            }
        }
        outcome
    }

    /// Has an event written, beside everything else.
    pub(super) fn enqueue_event(&self, event: Write, tenant: &Tenant) {
        let Write::Event { agent, .. } = &event else { return };
        let (kind, agent) = (event.kind(), agent.clone());
        let is_kept = self.events.push_event(event, tenant, agent.as_deref(), Instant::now());
        let labels = [("kind", kind), ("code", if is_kept { "ok" } else { "lost" })];
        self.metrics.increment_counter(
            "fleet_placement_writes_total",
            "Writes that the scheduler makes for placement, by kind and result.",
            &labels,
        );
    }

    async fn execute_write(&self, write: &Write, tenant: &Tenant) -> Result<Option<Written>, CallError> {
        let kind = write.kind();
        if matches!(write, Write::Event { .. }) {
            self.enqueue_event(write.clone(), tenant);
            return Ok(None);
        }
        let _permit = self.permits.acquire_permit(tenant).await;
        let answer = self.dispatch_write(write).await;
        let code = match &answer {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.status_code().map_or_else(|| "unreachable".to_owned(), |code| code.to_string()),
        };
        let labels = [("kind", kind), ("code", code.as_str())];
        self.metrics.increment_counter(
            "fleet_placement_writes_total",
            "Writes that the scheduler makes for placement, by kind and result.",
            &labels,
        );
        answer
    }

    async fn dispatch_write(&self, write: &Write) -> Result<Option<Written>, CallError> {
        match write {
            Write::Schedule(schedule, secret) => self
                .write_schedule(schedule, secret.as_ref())
                .await
                .map(|written| Some(Written::Schedule(Box::new(written)))),
            Write::RemoveSchedule { cluster, name, uid, version, gone, class: _ } => {
                if let Some(source) = gone
                    && self.is_source_present(source).await?
                {
                    tracing::warn!(?source, "a source that was missing in a list exists; its copies are kept");
                    return Ok(None);
                }
                let schedules: Api<Lenient<Schedule>> = self.schedules_api(cluster);
                delete_in_version(&schedules, name, uid, version.clone()).await.map(|()| None)
            }
            Write::Keep { cluster, name, uid, version, epoch } => {
                self.keep_schedule(cluster, name, uid, version.as_deref(), *epoch).await
            }
            Write::Ask { cluster, uid, text } => self.ask_cluster(cluster, uid, text).await,
            Write::Regroup { cluster, name, uid, group } => self.regroup_schedule(cluster, name, uid, group).await,
            Write::Release { cluster, name, uid } => self.release_schedule(cluster, name, uid).await.map(|()| None),
            Write::Group(group) => self.write_group(group).await.map(|written| Some(Written::Group(Box::new(written)))),
            Write::RemoveGroup { name, uid } => {
                let groups: Api<Lenient<ScheduleGroup>> = Api::all(self.client.clone());
                delete_in_version(&groups, name, uid, None).await.map(|()| None)
            }
            Write::Label(source, mark) => self.patch_target_marks(source, mark).await,
            Write::Status(source, status) => self.apply_source_status(source, status).await.map(|()| None),
            Write::PolicyStatus { name, uid, status } => self.policy_status(name, uid, status).await.map(|()| None),
            // They are written beside all this.
            Write::Event { .. } => Ok(None),
        }
    }

    fn schedules_api<K>(&self, cluster: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &cluster_namespace(cluster))
    }

    /// Writes a Schedule and the Secret with what its manifest must not hold. A new Schedule is written first, as it owns
    /// the Secret; the agent waits for that.
    async fn write_schedule(
        &self,
        schedule: &Schedule,
        secret: Option<&Map<String, Value>>,
    ) -> Result<Schedule, CallError> {
        let namespace = schedule.namespace().unwrap_or_default();
        let api: Api<Schedule> = Api::namespaced(self.client.clone(), &namespace);
        if schedule.metadata.resource_version.is_none() {
            let written = call_with_timeout(api.create(&post_params(), schedule)).await?;
            if let Some(data) = secret {
                self.write_payload_secret(&written, data).await?;
            }
            return Ok(written);
        }
        if let Some(data) = secret {
            self.write_payload_secret(schedule, data).await?;
        }
        call_with_timeout(api.replace(&schedule.name_any(), &post_params(), schedule)).await
    }

    /// Writes the Secret of a Schedule.
    async fn write_payload_secret(&self, schedule: &Schedule, data: &Map<String, Value>) -> Result<(), CallError> {
        let owner = OwnerReference {
            api_version: Schedule::api_version(&()).into_owned(),
            kind: Schedule::kind(&()).into_owned(),
            name: schedule.name_any(),
            uid: schedule.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: Some(schedule.name_any()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let mut body = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata });
        if let Some(body) = body.as_object_mut() {
            body.extend(data.clone());
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &schedule.namespace().unwrap_or_default());
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        call_with_timeout(secrets.patch(&schedule.name_any(), &params, &Patch::Apply(&body))).await.map(drop)
    }

    async fn regroup_schedule(
        &self,
        cluster: &str,
        name: &str,
        uid: &str,
        group: &str,
    ) -> Result<Option<Written>, CallError> {
        let schedules: Api<Lenient<Schedule>> = self.schedules_api(cluster);
        let change = json!({ "metadata": { "uid": uid }, "spec": { "group": group } });
        match call_with_timeout(schedules.patch(name, &patch_params(), &Patch::Merge(&change))).await {
            Ok(written) => Ok(Some(Written::Schedule(Box::new(written.0)))),
            Err(error) => ignore_gone(Err(error)).map(|()| None),
        }
    }

    async fn keep_schedule(
        &self,
        cluster: &str,
        name: &str,
        uid: &str,
        version: Option<&str>,
        epoch: i64,
    ) -> Result<Option<Written>, CallError> {
        let schedules: Api<Lenient<Schedule>> = self.schedules_api(cluster);
        let change = json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "epoch": epoch } });
        let written = call_with_timeout(schedules.patch(name, &patch_params(), &Patch::Merge(&change))).await?;
        Ok(Some(Written::Schedule(Box::new(written.0))))
    }

    async fn ask_cluster(&self, name: &str, uid: &str, text: &str) -> Result<Option<Written>, CallError> {
        let clusters: Api<Lenient<Cluster>> = Api::all(self.client.clone());
        let change = json!({ "metadata": { "uid": uid, "annotations": { ANNOTATION_ASK: text } } });
        match call_with_timeout(clusters.patch(name, &patch_params(), &Patch::Merge(&change))).await {
            Ok(written) => Ok(Some(Written::Cluster(Box::new(written.0)))),
            Err(error) => ignore_gone(Err(error)).map(|()| None),
        }
    }

    async fn release_schedule(&self, cluster: &str, name: &str, uid: &str) -> Result<(), CallError> {
        let schedules: Api<Lenient<Schedule>> = self.schedules_api(cluster);
        let found = match call_with_timeout(schedules.get_opt(name)).await? {
            Some(found) if found.0.uid().as_deref() == Some(uid) => found.0,
            _ => return Ok(()),
        };
        let left: Vec<_> = found.finalizers().iter().filter(|one| *one != FINALIZER_AGENT_CLEANUP).collect();
        let metadata = json!({ "uid": uid, "resourceVersion": found.resource_version(), "finalizers": left });
        let change = json!({ "metadata": metadata });
        ignore_gone(call_with_timeout(schedules.patch(name, &patch_params(), &Patch::Merge(&change))).await.map(drop))
    }

    /// Writes a group. Of one that is there the status comes first: mostly nothing else differs, and the answer says so.
    async fn write_group(&self, group: &ScheduleGroup) -> Result<ScheduleGroup, CallError> {
        let api: Api<ScheduleGroup> = Api::all(self.client.clone());
        let name = group.name_any();
        if group.metadata.resource_version.is_none() {
            let mut written = call_with_timeout(api.create(&post_params(), group)).await?;
            if written.status == group.status {
                return Ok(written);
            }
            written.status.clone_from(&group.status);
            return call_with_timeout(api.replace_status(&name, &post_params(), &written)).await;
        }
        let written = call_with_timeout(api.replace_status(&name, &post_params(), group)).await?;
        if written.spec == group.spec
            && written.labels() == group.labels()
            && written.annotations() == group.annotations()
        {
            return Ok(written);
        }
        let mut rest = group.clone();
        rest.metadata.resource_version.clone_from(&written.metadata.resource_version);
        call_with_timeout(api.replace(&name, &post_params(), &rest)).await
    }

    /// A merge patch, since a server-side apply would create what has been deleted meanwhile.
    async fn patch_target_marks(&self, source: &Address, target: &TargetMark) -> Result<Option<Written>, CallError> {
        let metadata = json!({ "uid": source.uid, "labels": { LABEL_TARGET_CLUSTER: target.label },
            "annotations": { ANNOTATION_TARGET_CLUSTERS: target.clusters } });
        let change = json!({ "metadata": metadata });
        let api = source.source_api(&self.client);
        match call_with_timeout(api.patch_metadata(&source.name, &patch_params(), &Patch::Merge(&change))).await {
            Ok(written) => {
                let version = written.resource_version().and_then(|version| version.parse().ok());
                Ok(Some(Written::Label(source.clone(), target.clone(), version)))
            }
            Err(error) => ignore_gone(Err(error)).map(|()| None),
        }
    }

    async fn apply_source_status(&self, source: &Address, status: &Value) -> Result<(), CallError> {
        let body = json!({
            "apiVersion": source.kind.api_version(),
            "kind": source.kind.kind,
            "metadata": { "name": source.name, "namespace": source.namespace, "uid": source.uid },
            "status": status,
        });
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        let api = source.source_api(&self.client);
        ignore_gone(call_with_timeout(api.patch_status(&source.name, &params, &Patch::Apply(&body))).await.map(drop))
    }

    async fn policy_status(&self, name: &str, uid: &str, status: &SchedulePolicyStatus) -> Result<(), CallError> {
        let body = json!({
            "apiVersion": SchedulePolicy::api_version(&()),
            "kind": SchedulePolicy::kind(&()),
            "metadata": { "name": name, "uid": uid },
            "status": status,
        });
        let api: Api<Lenient<SchedulePolicy>> = Api::all(self.client.clone());
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        ignore_gone(call_with_timeout(api.patch_status(name, &params, &Patch::Apply(&body))).await.map(drop))
    }

    async fn is_source_present(&self, source: &Address) -> Result<bool, CallError> {
        // Another one of the name has its copies brought up to date, not deleted and made again.
        Ok(call_with_timeout(source.source_api(&self.client).get_metadata_opt(&source.name)).await?.is_some())
    }
}

fn post_params() -> PostParams {
    PostParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PostParams::default() }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PatchParams::default() }
}

/// An object that was deleted meanwhile, or has another UID by now, needs no write any more.
fn ignore_gone(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.is_gone() => Ok(()),
        answer => answer,
    }
}

/// Deletes an object; where a version is given, only in it.
async fn delete_in_version<K>(api: &Api<K>, name: &str, uid: &str, version: Option<String>) -> Result<(), CallError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let this = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
    ignore_gone(call_with_timeout(api.delete(name, &DeleteParams::background().preconditions(this))).await.map(drop))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::runtime::events::Reporter;

    use super::*;
    use crate::api::placeable;
    use crate::k8s::test_api;

    fn schedule(name: &str) -> Write {
        let schedule = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": name, "namespace": "fleet-cluster-east"},
            "spec": {"manifest": "{}", "hash": "a", "sourceRef": {"group": "", "version": "v1", "kind": "ConfigMap",
                "namespace": "shop", "name": name, "uid": "u", "generation": 0}}});
        Write::Schedule(Box::new(serde_json::from_value(schedule).unwrap()), None)
    }

    fn group(name: &str) -> Write {
        let group = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": name}, "spec": {"policy": {"name": "p"}}});
        Write::Group(Box::new(serde_json::from_value(group).unwrap()))
    }

    fn label() -> Write {
        let kind = placeable::find_builtin_kind("", "ConfigMap").unwrap();
        let source = Address { kind, namespace: Some("shop".to_owned()), name: "page".to_owned(), uid: "u".to_owned() };
        Write::Label(source, TargetMark::default())
    }

    /// Numbers of what was written and refused, and whether something failed.
    async fn execute(stages: Stages) -> (usize, usize, bool) {
        let client = test_api::api(|uri, body| match body["metadata"]["name"].as_str() {
            Some("refused") => test_api::failure(422),
            Some("conflict") => test_api::failure(409),
            Some("overloaded") => test_api::failure(503),
            _ if uri.path().ends_with("/page") => json!({"metadata": {"name": "page", "resourceVersion": "7"}}),
            _ => body,
        });
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let (writer, _events) = Writer::new(client.clone(), Recorder::new(client, reporter), Metrics::default());
        let outcome = writer.execute_stages(stages, &Tenant::Namespace("shop".to_owned())).await;
        (outcome.written.len(), outcome.refused.len(), outcome.failure.is_some())
    }

    /// A group that is there is written with one request where its status alone differs.
    #[tokio::test]
    async fn a_group_is_written_with_as_few_requests_as_differ() {
        let stored = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": "web", "resourceVersion": "8", "labels": {"a": "b"}},
            "spec": {"policy": {"name": "p"}}, "status": {"scheduled": true}});
        for (version, label, expected) in
            [(None, "b", vec!["", "/status"]), (Some("7"), "b", vec!["/status"]), (Some("7"), "c", vec!["/status", ""])]
        {
            let sent = Arc::new(Mutex::new(Vec::new()));
            let (seen, kept) = (Arc::clone(&sent), stored.clone());
            let client = test_api::api(move |uri, body| {
                let path = uri.path().trim_start_matches("/apis/policy.fleet-scheduler.io/v1alpha1/schedulegroups");
                let path = path.trim_start_matches("/web").to_owned();
                let is_status = path == "/status";
                seen.lock().unwrap().push((path, body["metadata"]["resourceVersion"].clone()));
                let mut answer = kept.clone();
                if !is_status {
                    answer["metadata"]["labels"] = body["metadata"]["labels"].clone();
                    answer["status"] = Value::Null;
                }
                answer
            });
            let reporter = Reporter { controller: "test".to_owned(), instance: None };
            let (writer, _events) = Writer::new(client.clone(), Recorder::new(client, reporter), Metrics::default());
            let mut group: ScheduleGroup = serde_json::from_value(stored.clone()).unwrap();
            group.metadata.resource_version = version.map(str::to_owned);
            group.labels_mut().insert("a".to_owned(), label.to_owned());
            let written = writer.write_group(&group).await.unwrap();
            assert_eq!(written.labels()["a"], label);
            let sent = sent.lock().unwrap().clone();
            let paths: Vec<_> = sent.iter().map(|(path, _)| path.as_str()).collect();
            assert_eq!(paths, expected, "{version:?} {label}");
            if sent.len() == 2 {
                assert_eq!(sent[1].1, "8", "the second request is about what the first one wrote");
            }
        }
    }

    #[tokio::test]
    async fn what_is_refused_of_one_object_holds_up_nothing_else() {
        for (name, expected, why) in [
            ("refused", (2, 1, false), ""),
            ("conflict", (2, 0, true), "somebody who is faster each time holds up nothing"),
            ("overloaded", (1, 0, true), "the API server is not asked for more"),
        ] {
            let stages = vec![vec![schedule(name), schedule("whole")], vec![label()]];
            assert_eq!(execute(stages).await, expected, "{name}: {why}");
        }
        // What is said of a group is said once it is recorded.
        assert_eq!(execute(vec![vec![group("refused")], vec![label()]]).await, (0, 1, false));
        assert_eq!(execute(vec![vec![group("whole")], vec![label()]]).await, (2, 0, false));
    }

    #[tokio::test]
    async fn what_is_deleted_in_a_version_and_has_another_is_not_gone() {
        let uid = "Precondition failed: UID in precondition: u, UID in object meta: v";
        let version = "Precondition failed: ResourceVersion in precondition: 7, ResourceVersion in object meta: 8";
        for (code, message, is_done) in [(404, "", true), (409, uid, true), (409, version, false), (503, "", false)] {
            let answer = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Conflict",
                "code": code, "message": message});
            let client = test_api::api(move |_, _| answer.clone());
            let api: Api<Schedule> = Api::namespaced(client, "shop");
            let answer = delete_in_version(&api, "page", "u", Some("7".to_owned())).await;
            assert_eq!(answer.is_ok(), is_done, "{code} {message}");
        }
    }
}
