//! Writes of placement: what a plan asks for, stage after stage.
//!
//! An object is created by POST and changed by PUT with the version that was read, so what another writer changed
//! meanwhile is seen first. Nothing here decides anything.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::events::Limit;
use super::source::TargetMark;
use crate::api::labels::{
    ANNOTATION_TARGET_CLUSTERS, FINALIZER_AGENT_CLEANUP, LABEL_TARGET_CLUSTER, SCHEDULER_MANAGER, cluster_namespace,
};
use crate::api::lenient::Lenient;
use crate::api::placeable::Placeable;
use crate::api::policy::SchedulePolicyStatus;
use crate::api::{Schedule, ScheduleGroup, SchedulePolicy};
use crate::daemon::metrics::Metrics;
use crate::k8s::daemon_client::{CallError, call};
use crate::scheduler::events::{NewEvent, publish};

/// Requests under way at a time, of all plans together.
const IN_FLIGHT: usize = 32;
/// Events that wait to be written; what is above it is lost.
const EVENTS: usize = 256;

/// A source object, as a request addresses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: &'static Placeable,
    /// Absent for kinds without one.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Address {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.api(client, self.namespace.as_deref())
    }

    /// A reference for events.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version()),
            kind: Some(self.kind.kind.to_owned()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// One write.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// A Schedule that is new, or whose metadata has the version that it replaces; with the data of a Secret that it is
    /// about, which its manifest does not hold.
    Schedule(Box<Schedule>, Option<Map<String, Value>>),
    /// Deletes a Schedule; where its source is believed gone, only if it is.
    RemoveSchedule { cluster: String, name: String, uid: String, gone: Option<Address> },
    /// Puts a Schedule into another group, and leaves the rest of it as it is.
    Regroup { cluster: String, name: String, uid: String, group: String },
    /// Lets a Schedule go whose copy is gone.
    Release { cluster: String, name: String, uid: String },
    /// A group with its status, as above.
    Group(Box<ScheduleGroup>),
    /// Deletes a group.
    RemoveGroup { name: String, uid: String },
    /// The marks of a source that say where it went.
    Label(Address, TargetMark),
    /// The status of a source.
    Status(Address, Value),
    /// The status of a policy.
    PolicyStatus { name: String, uid: String, status: Box<SchedulePolicyStatus> },
    /// An event.
    Event { about: ObjectReference, warning: bool, reason: &'static str, message: String },
}

impl Write {
    /// Returns the kind of the write, for metrics.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Schedule(..) => "schedule",
            Self::RemoveSchedule { .. } => "schedule-deletion",
            Self::Regroup { .. } => "schedule-group",
            Self::Release { .. } => "finalizer",
            Self::Group(_) => "group",
            Self::RemoveGroup { .. } => "group-deletion",
            Self::Label(..) => "label",
            Self::Status(..) => "status",
            Self::PolicyStatus { .. } => "policy-status",
            Self::Event { .. } => "event",
        }
    }
}

/// Result of a write: the object, or the marks of a source, as they are now.
#[derive(Debug)]
pub(super) enum Written {
    Schedule(Schedule),
    Group(ScheduleGroup),
    /// The marks of a source, with the version that it has by them.
    Label(Address, TargetMark, Option<u64>),
}

/// Writes of one plan, in stages: a stage begins when the one before it is done.
pub(super) type Stages = Vec<Vec<Write>>;

/// Writes for all plans. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    permits: Arc<Semaphore>,
    limit: Arc<Limit>,
    events: Sender<Write>,
    metrics: Metrics,
}

/// Events that are to be written: one after the other, beside everything else, which waits for none of them.
pub(super) struct Events {
    recorder: Recorder,
    waiting: Receiver<Write>,
}

impl Events {
    /// Writes them until dropped.
    pub(super) async fn write(mut self) {
        while let Some(write) = self.waiting.recv().await {
            if let Write::Event { about, warning, reason, message } = write {
                let type_ = if warning { EventType::Warning } else { EventType::Normal };
                publish(&self.recorder, &about, NewEvent { type_, action: "Scheduling", reason, message: &message })
                    .await;
            }
        }
    }
}

impl Writer {
    pub(super) fn new(client: Client, recorder: Recorder, metrics: Metrics) -> (Self, Events) {
        let (events, waiting) = channel(EVENTS);
        let permits = Arc::new(Semaphore::new(IN_FLIGHT));
        (Self { client, permits, limit: Arc::default(), events, metrics }, Events { recorder, waiting })
    }

    /// Executes a plan up to the first stage in which a write failed. Returns what was written and the first failure.
    pub(super) async fn execute(&self, stages: Stages) -> (Vec<Written>, Option<CallError>) {
        let mut written = Vec::new();
        for stage in stages {
            let answers: Vec<_> = futures::stream::iter(stage.into_iter().map(|write| self.write(write)))
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            let mut failure = None;
            for answer in answers {
                match answer {
                    Ok(object) => written.extend(object),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if failure.is_some() {
                return (written, failure);
            }
        }
        (written, None)
    }

    async fn write(&self, write: Write) -> Result<Option<Written>, CallError> {
        let kind = write.kind();
        if matches!(write, Write::Event { .. }) {
            let is_kept = self.limit.take(Instant::now()) && self.events.try_send(write).is_ok();
            let labels = [("kind", kind), ("code", if is_kept { "ok" } else { "lost" })];
            self.metrics.count("fleet_placement_writes_total", "Writes of placement, by what is written.", &labels);
            return Ok(None);
        }
        let _permit = self.permits.acquire().await;
        let answer = self.request(write).await;
        let code = match &answer {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.code().map_or_else(|| "unreachable".to_owned(), |code| code.to_string()),
        };
        let labels = [("kind", kind), ("code", code.as_str())];
        self.metrics.count("fleet_placement_writes_total", "Writes of placement, by what is written.", &labels);
        answer
    }

    async fn request(&self, write: Write) -> Result<Option<Written>, CallError> {
        match write {
            Write::Schedule(schedule, secret) => {
                self.schedule(&schedule, secret).await.map(|written| Some(Written::Schedule(written)))
            }
            Write::RemoveSchedule { cluster, name, uid, gone } => {
                if let Some(source) = gone
                    && self.exists(&source).await?
                {
                    tracing::warn!(?source, "a source that a list did not name is there, and its copies stay");
                    return Ok(None);
                }
                let schedules: Api<Lenient<Schedule>> = self.schedules(&cluster);
                delete(&schedules, &name, &uid).await.map(|()| None)
            }
            Write::Regroup { cluster, name, uid, group } => self.regroup(&cluster, &name, &uid, &group).await,
            Write::Release { cluster, name, uid } => self.release(&cluster, &name, &uid).await.map(|()| None),
            Write::Group(group) => self.group(&group).await.map(|written| Some(Written::Group(written))),
            Write::RemoveGroup { name, uid } => {
                let groups: Api<Lenient<ScheduleGroup>> = Api::all(self.client.clone());
                delete(&groups, &name, &uid).await.map(|()| None)
            }
            Write::Label(source, mark) => self.label(source, mark).await,
            Write::Status(source, status) => self.status(&source, &status).await.map(|()| None),
            Write::PolicyStatus { name, uid, status } => self.policy_status(&name, &uid, &status).await.map(|()| None),
            // They are written beside all this.
            Write::Event { .. } => Ok(None),
        }
    }

    fn schedules<K>(&self, cluster: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &cluster_namespace(cluster))
    }

    /// Writes a Schedule and the Secret with what its manifest must not hold. A new Schedule is written first, as it owns
    /// the Secret; the agent waits for that.
    async fn schedule(&self, schedule: &Schedule, secret: Option<Map<String, Value>>) -> Result<Schedule, CallError> {
        let namespace = schedule.namespace().unwrap_or_default();
        let api: Api<Schedule> = Api::namespaced(self.client.clone(), &namespace);
        if schedule.metadata.resource_version.is_none() {
            let written = call(api.create(&post(), schedule)).await?;
            if let Some(data) = secret {
                self.payload(&written, &data).await?;
            }
            return Ok(written);
        }
        if let Some(data) = secret {
            self.payload(schedule, &data).await?;
        }
        call(api.replace(&schedule.name_any(), &post(), schedule)).await
    }

    /// Writes the Secret of a Schedule.
    async fn payload(&self, schedule: &Schedule, data: &Map<String, Value>) -> Result<(), CallError> {
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
        call(secrets.patch(&schedule.name_any(), &params, &Patch::Apply(&body))).await.map(drop)
    }

    async fn regroup(&self, cluster: &str, name: &str, uid: &str, group: &str) -> Result<Option<Written>, CallError> {
        let schedules: Api<Lenient<Schedule>> = self.schedules(cluster);
        let change = json!({ "metadata": { "uid": uid }, "spec": { "group": group } });
        match call(schedules.patch(name, &params(), &Patch::Merge(&change))).await {
            Ok(written) => Ok(Some(Written::Schedule(written.0))),
            Err(error) => ignore_gone(Err(error)).map(|()| None),
        }
    }

    async fn release(&self, cluster: &str, name: &str, uid: &str) -> Result<(), CallError> {
        let schedules: Api<Lenient<Schedule>> = self.schedules(cluster);
        let found = match call(schedules.get_opt(name)).await? {
            Some(found) if found.0.uid().as_deref() == Some(uid) => found.0,
            _ => return Ok(()),
        };
        let left: Vec<_> = found.finalizers().iter().filter(|one| *one != FINALIZER_AGENT_CLEANUP).collect();
        let metadata = json!({ "uid": uid, "resourceVersion": found.resource_version(), "finalizers": left });
        let change = json!({ "metadata": metadata });
        ignore_gone(call(schedules.patch(name, &params(), &Patch::Merge(&change))).await.map(drop))
    }

    async fn group(&self, group: &ScheduleGroup) -> Result<ScheduleGroup, CallError> {
        let api: Api<ScheduleGroup> = Api::all(self.client.clone());
        let name = group.name_any();
        let mut written = if group.metadata.resource_version.is_none() {
            call(api.create(&post(), group)).await?
        } else {
            call(api.replace(&name, &post(), group)).await?
        };
        if written.status == group.status {
            return Ok(written);
        }
        written.status.clone_from(&group.status);
        call(api.replace_status(&name, &post(), &written)).await
    }

    /// A merge patch, since a server-side apply would create what has been deleted meanwhile.
    async fn label(&self, source: Address, target: TargetMark) -> Result<Option<Written>, CallError> {
        let metadata = json!({ "uid": source.uid, "labels": { LABEL_TARGET_CLUSTER: target.label },
            "annotations": { ANNOTATION_TARGET_CLUSTERS: target.clusters } });
        let change = json!({ "metadata": metadata });
        let api = source.api(&self.client);
        match call(api.patch_metadata(&source.name, &params(), &Patch::Merge(&change))).await {
            Ok(written) => {
                let version = written.resource_version().and_then(|version| version.parse().ok());
                Ok(Some(Written::Label(source, target, version)))
            }
            Err(error) => ignore_gone(Err(error)).map(|()| None),
        }
    }

    async fn status(&self, source: &Address, status: &Value) -> Result<(), CallError> {
        let body = json!({
            "apiVersion": source.kind.api_version(),
            "kind": source.kind.kind,
            "metadata": { "name": source.name, "namespace": source.namespace, "uid": source.uid },
            "status": status,
        });
        let params = PatchParams::apply(SCHEDULER_MANAGER).force();
        let api = source.api(&self.client);
        ignore_gone(call(api.patch_status(&source.name, &params, &Patch::Apply(&body))).await.map(drop))
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
        ignore_gone(call(api.patch_status(name, &params, &Patch::Apply(&body))).await.map(drop))
    }

    async fn exists(&self, source: &Address) -> Result<bool, CallError> {
        // Another one of the name has its copies brought up to date, not deleted and made again.
        Ok(call(source.api(&self.client).get_metadata_opt(&source.name)).await?.is_some())
    }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PostParams::default() }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(SCHEDULER_MANAGER.to_owned()), ..PatchParams::default() }
}

/// An object that was deleted meanwhile, or has another UID by now, needs no write any more.
fn ignore_gone(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.is_gone() => Ok(()),
        answer => answer,
    }
}

async fn delete<K>(api: &Api<K>, name: &str, uid: &str) -> Result<(), CallError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let this = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    ignore_gone(call(api.delete(name, &DeleteParams::background().preconditions(this))).await.map(drop))
}
