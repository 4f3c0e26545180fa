//! The played kubelets of the members, and the watches that see what the product does there.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::runtime::watcher::{self, Event as Watched};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::truth::Truth;
use super::*;
use crate::placing::spread_ways::{is_ours, play_node};

/// A change of an object that is watched.
pub(crate) enum Seen<K> {
    There(K),
    Gone(K),
}

/// Watches all objects of a kind for ever.
pub(crate) async fn watch_all<K>(api: Api<K>, mut tell: impl FnMut(Seen<K>))
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Watched::Apply(object) | Watched::InitApply(object)) => tell(Seen::There(object)),
            Ok(Watched::Delete(object)) => tell(Seen::Gone(object)),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Tells what becomes of the Schedules of Jobs: these must run once.
pub(super) fn watch_job_schedules(tasks: &mut JoinSet<()>, hub: &Client, truth: &Arc<Truth>) {
    let (facts, mut told) = (truth.clone(), BTreeMap::new());
    tasks.spawn(watch_all(Api::<Schedule>::all(hub.clone()), move |seen| {
        let (Seen::There(schedule) | Seen::Gone(schedule)) = &seen;
        let source = &schedule.spec.source_ref;
        let Some(namespace) = source.namespace.as_ref().filter(|name| source.kind == "Job" && is_ours(name)) else {
            return;
        };
        let text = match &seen {
            Seen::Gone(_) => "gone".to_owned(),
            Seen::There(_) => format!(
                "of group {:?} with share {:?}, deleted: {}, finished: {:?}",
                schedule.spec.group,
                schedule.spec.share,
                schedule.metadata.deletion_timestamp.is_some(),
                schedule.status.as_ref().and_then(|status| status.finished)
            ),
        };
        if told.insert(schedule.uid(), text.clone()).as_ref() != Some(&text) {
            let at = schedule.namespace().unwrap_or_default();
            facts.tell(namespace, &format!("the Schedule of the Job in {at} is {text}"));
        }
    }));
}

/// Plays the kubelet of a member, and watches what must not go there.
pub(super) fn play_member(tasks: &mut JoinSet<()>, member: usize, client: &Client, truth: &Arc<Truth>) {
    let nodes: Api<Node> = Api::all(client.clone());
    tasks.spawn(async move {
        loop {
            play_node(&nodes, "2000").await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
    let (own, facts) = (client.clone(), truth.clone());
    let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
    tasks.spawn(watch_all(Api::<Pod>::all(client.clone()), move |seen| {
        let (pod, is_gone) = match seen {
            Seen::There(pod) => (pod, false),
            Seen::Gone(pod) => (pod, true),
        };
        let (namespace, uid) = (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
        if !is_ours(&namespace) {
            return;
        }
        let is_leaving = is_gone || pod.metadata.deletion_timestamp.is_some();
        if is_leaving {
            if is_web(&pod) {
                facts.pod_is_gone(&namespace, &uid);
            }
            if !is_gone && ended.insert(uid) {
                tokio::spawn(end_pod(own.clone(), namespace, pod.name_any()));
            }
        } else if begun.insert(uid) {
            tokio::spawn(run_pod(own.clone(), member, pod, facts.clone()));
        }
    }));
    let own = client.clone();
    tasks.spawn(watch_all(Api::<PersistentVolumeClaim>::all(client.clone()), move |seen| {
        let (Seen::There(claim) | Seen::Gone(claim)) = &seen;
        if is_ours(&claim.namespace().unwrap_or_default()) {
            let is_open = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none());
            match seen {
                Seen::There(claim) if is_open => drop(tokio::spawn(make_volume(own.clone(), claim))),
                Seen::There(_) => {}
                Seen::Gone(claim) => drop(tokio::spawn(remove_volume(own.clone(), claim))),
            }
        }
    }));
    watch_volumes::<PersistentVolumeClaim>(tasks, member, client, truth, |_| true);
    watch_volumes::<StatefulSet>(tasks, member, client, truth, |_| true);
    watch_volumes::<Deployment>(tasks, member, client, truth, |name| name == "disk");
    let facts = truth.clone();
    let mut begun = BTreeSet::new();
    tasks.spawn(watch_all(Api::<Job>::all(client.clone()), move |seen| {
        let (Seen::There(job) | Seen::Gone(job)) = &seen;
        let namespace = job.namespace().unwrap_or_default();
        let (uid, asked) = (job.uid(), job.spec.as_ref().and_then(|spec| spec.completions));
        if is_ours(&namespace) {
            match &seen {
                Seen::There(_) if begun.insert(uid) => {
                    facts.tell(&namespace, &format!("a Job with {asked:?} completions begins in member {member}"));
                }
                Seen::There(_) => {}
                Seen::Gone(_) => facts.tell(&namespace, &format!("the Job is gone in member {member}")),
            }
        }
        let Seen::There(job) = seen else { return };
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        // A share of nothing is complete without a pod.
        let is_empty = job.spec.as_ref().is_some_and(|spec| spec.completions == Some(0));
        if is_ours(&namespace)
            && !is_empty
            && conditions.iter().any(|one| one.type_ == "Complete" && one.status == "True")
        {
            facts.job_is_complete(&namespace, member, &job.uid().unwrap_or_default());
        }
    }));
}

fn is_web(pod: &Pod) -> bool {
    pod.labels().get("app").is_some_and(|app| app == "web")
}

/// Watches objects of a kind of which some hold data, and whose deletion is a fault.
fn watch_volumes<K>(
    tasks: &mut JoinSet<()>,
    member: usize,
    client: &Client,
    truth: &Arc<Truth>,
    holds_data: fn(&str) -> bool,
) where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let facts = truth.clone();
    let (mut known, mut told) = (BTreeSet::new(), BTreeSet::new());
    tasks.spawn(watch_all(Api::<K>::all(client.clone()), move |seen| {
        let (object, is_gone) = match seen {
            Seen::There(object) => (object, false),
            Seen::Gone(object) => (object, true),
        };
        let (namespace, name) = (object.meta().namespace.clone().unwrap_or_default(), object.name_any());
        let uid = object.uid().unwrap_or_default();
        if !is_ours(&namespace) || !holds_data(&name) {
            return;
        }
        let kind = K::kind(&());
        if known.insert(uid.clone()) {
            facts.count(&format!("{kind}s with data"));
        }
        if (is_gone || object.meta().deletion_timestamp.is_some()) && told.insert(uid) {
            facts.volume_is_gone(&namespace, member, &format!("{kind} {name}"));
        }
    }));
}

fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("played-{}", claim.uid().unwrap_or_default())
}

/// Makes the volume of a claim, which the controller binds.
pub(crate) async fn make_volume(client: Client, claim: PersistentVolumeClaim) {
    let body = json!({ "metadata": { "name": volume_name(&claim) }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/played" }, "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": claim.namespace(), "name": claim.name_any() } } });
    let volumes: Api<PersistentVolume> = Api::all(client);
    // It may be there.
    let _ = volumes.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await;
}

pub(crate) async fn remove_volume(client: Client, claim: PersistentVolumeClaim) {
    let _ = Api::<PersistentVolume>::all(client).delete(&volume_name(&claim), &DeleteParams::default()).await;
}

async fn pause(milliseconds: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rand::random_range(milliseconds))).await;
}

async fn end_pod(client: Client, namespace: String, name: String) {
    pause(100..1500).await;
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    // What is gone meanwhile is gone.
    let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
}

/// Conditions of these types, from now on.
pub(crate) fn conditions(types: &[(&str, bool)]) -> Value {
    let now = Timestamp::now().to_string();
    let condition = |(type_, holds): &(&str, bool)| json!({ "type": type_, "status": if *holds { "True" } else { "False" }, "lastTransitionTime": now });
    types.iter().map(condition).collect()
}

async fn set_status(api: &Api<Pod>, name: &str, uid: &str, status: Value) -> kube::Result<Pod> {
    let patch = json!({ "metadata": { "uid": uid }, "status": status });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

/// Binds a pod, and runs it: one of a Job to its end.
async fn run_pod(client: Client, member: usize, pod: Pod, truth: Arc<Truth>) {
    let (namespace, name, uid) = (pod.namespace().unwrap(), pod.name_any(), pod.uid().unwrap());
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_none() {
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": "played" } });
        let _: Result<Value, _> = api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
    }
    pause(200..3000).await;
    if pod.labels().get("app").is_some_and(|app| app == "once") {
        let running =
            json!({ "phase": "Running", "conditions": conditions(&[("PodScheduled", true), ("Ready", true)]) });
        let _ = set_status(&api, &name, &uid, running).await;
        pause(1_000..30_000).await;
        let current = api.get_opt(&name).await.ok().flatten();
        if current
            .is_none_or(|current| current.uid() != Some(uid.clone()) || current.metadata.deletion_timestamp.is_some())
        {
            return;
        }
        let done =
            json!({ "phase": "Succeeded", "conditions": conditions(&[("PodScheduled", true), ("Ready", false)]) });
        if set_status(&api, &name, &uid, done).await.is_ok() {
            truth.with(&namespace, |walked| walked.effects += 1);
        }
        return;
    }
    while is_web(&pod) && truth.with(&namespace, |walked| walked.stuck.contains(&member)) {
        pause(500..1000).await;
    }
    let ready = [("PodScheduled", true), ("Initialized", true), ("ContainersReady", true), ("Ready", true)];
    if is_web(&pod) {
        truth.pod_is_ready(&namespace, &uid, member);
    }
    let running = json!({ "phase": "Running", "conditions": conditions(&ready) });
    while let Err(error) = set_status(&api, &name, &uid, running.clone()).await {
        // Of what is gone the watch has told.
        if matches!(&error, kube::Error::Api(status) if [404, 409].contains(&status.code)) {
            return;
        }
        pause(200..500).await;
    }
}
