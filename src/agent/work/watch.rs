//! Watches of Schedules in the control plane and of copies in the workload cluster, as messages to one receiver.

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::Sender;

use super::context::{Context, object_json};
use super::index::Seen;
use super::namespaces::SeenNamespace;
use super::task::{CopyKey, Task};
use super::warnings::reduce_warning;
use crate::api::crd::schedule::ScheduleStatus;
use crate::api::labels::{ANNOTATION_ASK, API_VERSION, CLUSTER_GROUP, LABEL_INSTALL_KIND, LABEL_PLACED_BY};
use crate::api::placeable::{Kinds, Placeable};
use crate::api::{Cluster, Schedule};
use crate::daemon::log::OnChange;

/// Change that a watch brought.
#[derive(Debug)]
pub enum Change<T> {
    /// Everything there is.
    All(Vec<T>),
    /// One object as it is now.
    One(T),
    /// One object as it was before it was deleted.
    Gone(T),
}

/// Message of a watch to the receiver.
#[derive(Debug)]
pub enum Input {
    /// Schedules.
    Schedules(Box<Change<(Task, ScheduleStatus)>>),
    /// Copies of one kind.
    Copies(&'static Placeable, Box<Change<(CopyKey, Seen)>>),
    /// UIDs of objects of one kind that have pods, each with the UID of its controller.
    Owners(&'static str, Change<(String, Option<String>)>),
    /// Warnings about what keeps pods from running.
    Warnings(Box<Change<core::v1::Event>>),
    /// Namespaces of the workload cluster.
    Namespaces(Change<(String, SeenNamespace)>),
    /// UIDs of the workloads of installations of the service, each with its namespace.
    Installations(Change<(String, String)>),
    /// The question of the scheduler, if there is one.
    Ask(Change<Option<String>>),
}

/// Follows objects until dropped. Those that `read` cannot read are left out.
async fn follow_stream<K, T>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    subject: &'static str,
    read: impl Fn(K) -> Option<T>,
    inputs: Sender<Input>,
    input: impl Fn(Change<T>) -> Input,
) {
    let logged = OnChange::default();
    let mut stream = std::pin::pin!(stream.default_backoff());
    let mut all = Vec::new();
    loop {
        let change = match stream.try_next().await {
            Ok(Some(Event::Init)) => {
                all.clear();
                None
            }
            Ok(Some(Event::InitApply(object))) => {
                all.extend(read(object));
                None
            }
            Ok(Some(Event::InitDone)) => Some(Change::All(std::mem::take(&mut all))),
            Ok(Some(Event::Apply(object))) => read(object).map(Change::One),
            Ok(Some(Event::Delete(object))) => read(object).map(Change::Gone),
            Ok(None) => return,
            Err(error) => {
                if logged.record_if_changed(subject, &error.to_string()) {
                    tracing::warn!(%error, subject, "watch failed");
                }
                None
            }
        };
        if let Some(change) = change {
            logged.record_if_changed(subject, "");
            if inputs.send(input(change)).await.is_err() {
                return;
            }
        }
    }
}

/// Follows the cluster's Schedules.
pub async fn watch_schedules(context: Context, inputs: Sender<Input>) {
    let resource = kube::core::ApiResource {
        group: CLUSTER_GROUP.to_owned(),
        version: API_VERSION.to_owned(),
        api_version: format!("{CLUSTER_GROUP}/{API_VERSION}"),
        kind: "Schedule".to_owned(),
        plural: "schedules".to_owned(),
    };
    let api = Api::namespaced_with(context.control_plane.clone(), &context.namespace, &resource);
    let kinds = context.kinds.clone();
    follow_stream(
        watcher(api, Config::default()),
        "schedules",
        |object| read_schedule(&kinds, object),
        inputs,
        |change| Input::Schedules(Box::new(change)),
    )
    .await;
}

/// Reads a Schedule, each by itself, so that one that cannot be read does not fail the watch.
fn read_schedule(kinds: &Kinds, object: DynamicObject) -> Option<(Task, ScheduleStatus)> {
    let name = object.name_any();
    match object.try_parse::<Schedule>() {
        Ok(schedule) => Some(Task::from_schedule(kinds, schedule)),
        Err(error) => {
            tracing::warn!(%error, schedule = name, "a Schedule cannot be read");
            None
        }
    }
}

/// Follows the copies of one kind.
pub async fn watch_copies(context: Context, kind: &'static Placeable, inputs: Sender<Input>) {
    let config =
        Config::default().labels(&format!("{LABEL_PLACED_BY}={}", context.placed_by)).any_semantic().page_size(100);
    let version = kind.api_version();
    follow_stream(
        watcher(context.all_namespaces_api(kind), config),
        kind.plural,
        |object| {
            let key = CopyKey::new(kind, object.namespace().as_deref(), &object.name_any());
            Some((key, Seen::of(&object_json(&object, &version, kind.kind))))
        },
        inputs,
        |change| Input::Copies(kind, Box::new(change)),
    )
    .await;
}

/// Follows the metadata of all objects of a kind that lies between a copy and its pods.
pub async fn watch_owners(context: Context, kind: &'static Placeable, inputs: Sender<Input>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = kind.objects_api(&context.local, None);
    let stream = watcher(api, Config::default().any_semantic());
    follow_stream(stream, kind.plural, read_controller_uid, inputs, |change| Input::Owners(kind.plural, change)).await;
}

/// The uid of an object, with that of its controller.
fn read_controller_uid(object: PartialObjectMeta<DynamicObject>) -> Option<(String, Option<String>)> {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    let controller = controller.map(|owner| owner.uid.clone());
    Some((object.uid()?, controller))
}

/// Follows the warnings of the workload cluster.
pub async fn watch_warnings(context: Context, inputs: Sender<Input>) {
    let api: Api<core::v1::Event> = Api::all(context.local.clone());
    let config = Config::default().fields("type=Warning").any_semantic().page_size(200);
    follow_stream(watcher(api, config), "events", reduce_warning, inputs, |change| Input::Warnings(Box::new(change)))
        .await;
}

/// Follows the labels of all namespaces of the workload cluster.
pub async fn watch_namespaces(context: Context, inputs: Sender<Input>) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(context.local.clone());
    follow_stream(
        watcher(api, Config::default().any_semantic()),
        "namespaces",
        |object| Some((object.name_any(), SeenNamespace::from_labels(object.labels()))),
        inputs,
        Input::Namespaces,
    )
    .await;
}

/// Follows the workloads of installations of the service: each of them has a Deployment, also in a namespace that its operator
/// made and that has no label.
pub async fn watch_installations(context: Context, inputs: Sender<Input>) {
    let api: Api<PartialObjectMeta<Deployment>> = Api::all(context.local.clone());
    let config = Config::default().labels(LABEL_INSTALL_KIND).any_semantic();
    follow_stream(
        watcher(api, config),
        "installations",
        |object| Some((object.uid()?, object.namespace()?)),
        inputs,
        Input::Installations,
    )
    .await;
}

/// Follows the question of the scheduler, an annotation of the own Cluster.
pub async fn watch_ask(context: Context, inputs: Sender<Input>) {
    let api: Api<PartialObjectMeta<Cluster>> = Api::all(context.control_plane.clone());
    let config = Config::default().fields(&format!("metadata.name={}", context.cluster));
    follow_stream(
        watcher(api, config),
        "cluster",
        |object| Some(object.annotations().get(ANNOTATION_ASK).cloned()),
        inputs,
        Input::Ask,
    )
    .await;
}
