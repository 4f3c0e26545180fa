//! Pods on the volumes of etcd, one for each member, while no member runs: all of them end well, or the stage does not.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::components::LABEL_COMPONENT;
use super::error::RestoreError;
use super::pod_parts::{
    LOG_BYTES, RECEIVE, SPARE_BYTES, build_pod, etcd_container, program_container, receive_arguments,
};
use super::send::send_snapshot;
use super::site::StoreSite;
use super::{ArchiveSource, RestoreTarget};
use crate::api::labels::LABEL_INSTANCE;
use crate::api::readiness_log::log_message;
use crate::api::util::text::visible_line;
use crate::diagnose::pod::{
    all_statuses, current_termination, describe_pod_state, init_statuses, is_running, main_statuses, pod_phase,
    waiting_message, waiting_reason,
};

/// Component of these pods, in their labels.
const COMPONENT: &str = "restore";
/// The snapshot in a pod, on a volume of its own.
const SNAPSHOT_FOLDER: &str = "/restore";
const SNAPSHOT_FILE: &str = "/restore/snapshot.db";
/// Longest life of such a pod, in seconds, if nobody deletes it.
const LIFE_SECONDS: u32 = 4 * 60 * 60;
/// Revisions that a restored store is ahead: more than any client has seen since the backup.
const REVISIONS_AHEAD: u32 = 1_000_000_000;
/// What `fleet-scheduler store` says of a volume without room.
const NO_ROOM: &str = "bytes free";

/// Work on the volume of each member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreWork {
    /// Make a store from a snapshot of this size beside the present one.
    Prepare {
        /// Size of the snapshot.
        snapshot_bytes: u64,
    },
    /// Put the new store in the place of the present one.
    Swap,
    /// Put the former store back.
    Rollback,
    /// Delete former stores, beside a member that runs.
    Commit,
}

/// Runs a pod for each member, and sends it the snapshot where it takes one. Returns when all have ended well, and are gone,
/// with the bytes that former stores take after a swap.
pub(super) async fn run_store_pods(
    target: &RestoreTarget<'_>,
    site: &StoreSite,
    work: &StoreWork,
    run: &str,
    source: Option<&ArchiveSource>,
) -> Result<Option<u64>, RestoreError> {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &site.namespace);
    // Those of an attempt that was interrupted: each work can be repeated, and two pods may not share a volume.
    delete_pods(target, &pods, COMPONENT).await?;
    for member in site.member_names() {
        let node = match work {
            StoreWork::Commit => pods.get(&member).await?.spec.and_then(|spec| spec.node_name),
            _ => None,
        };
        let pod = build_store_pod(site, &member, work, run, node.as_deref());
        let pod: Pod = serde_json::from_value(pod).map_err(|error| RestoreError::Unsuitable(error.to_string()))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    if let Some(source) = source {
        for member in site.member_names() {
            let name = pod_name(&member);
            wait_for_receiver(target, &pods, &name, RECEIVE).await?;
            target.progress.update_step(&format!("sending the snapshot to {name}"));
            send_snapshot(target, &pods, &name, source).await?;
        }
    }
    let mut former = None;
    for member in site.member_names() {
        let pod = wait_for_success(target, &pods, &pod_name(&member)).await?;
        former = read_former_bytes(&pod).map(|bytes| bytes.saturating_add(former.unwrap_or_default())).or(former);
    }
    delete_pods(target, &pods, COMPONENT).await?;
    Ok(former)
}

/// The bytes that the pod of a swap says former stores take.
pub(super) fn read_former_bytes(pod: &Pod) -> Option<u64> {
    main_statuses(pod).filter_map(current_termination).find_map(|ended| ended.message.as_deref()?.trim().parse().ok())
}

/// Name of the pod on the volume of a member.
pub(super) fn pod_name(member: &str) -> String {
    format!("fleet-restore-{member}")
}

/// Deletes the pods of a component. Returns when they are gone.
pub(super) async fn delete_pods(
    target: &RestoreTarget<'_>,
    pods: &Api<Pod>,
    component: &str,
) -> Result<(), RestoreError> {
    let ours = ListParams::default().labels(&format!("{LABEL_COMPONENT}={component},{LABEL_INSTANCE}={}", target.name));
    loop {
        let found = pods.list(&ours).await?;
        let Some(first) = found.items.first() else { return Ok(()) };
        for pod in found.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            match pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(1)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted?),
            }
        }
        target.wait_a_moment(&format!("pod {} still exists", first.name_any())).await?;
    }
}

/// Waits until a container of a pod takes a file.
pub(super) async fn wait_for_receiver(
    target: &RestoreTarget<'_>,
    pods: &Api<Pod>,
    name: &str,
    container: &str,
) -> Result<(), RestoreError> {
    loop {
        let pod = pods.get(name).await?;
        check_pod(&pod)?;
        let mut receivers = init_statuses(&pod).filter(|status| status.name == container);
        if receivers.any(is_running) {
            return Ok(());
        }
        target.wait_a_moment(&describe_wait(&pod)).await?;
    }
}

async fn wait_for_success(target: &RestoreTarget<'_>, pods: &Api<Pod>, name: &str) -> Result<Pod, RestoreError> {
    loop {
        let pod = pods.get(name).await?;
        check_pod(&pod)?;
        if pod_phase(&pod) == Some("Succeeded") {
            return Ok(pod);
        }
        target.wait_a_moment(&describe_wait(&pod)).await?;
    }
}

/// Fails if a pod has failed, with what its container said last.
pub(super) fn check_pod(pod: &Pod) -> Result<(), RestoreError> {
    let (name, why) = (pod.name_any(), all_statuses(pod).find_map(explain_container_failure));
    match why {
        Some(why) if why.contains(NO_ROOM) => Err(RestoreError::VolumeFull { pod: name, why }),
        Some(why) => Err(RestoreError::PodFailed { pod: name, why }),
        None if pod_phase(pod) == Some("Failed") => {
            let status = pod.status.as_ref();
            let why = status.and_then(|status| status.message.as_deref().or(status.reason.as_deref()));
            let why = visible_line(why.unwrap_or("no reason was given")).into_owned();
            Err(RestoreError::PodFailed { pod: name, why })
        }
        None => Ok(()),
    }
}

fn explain_container_failure(status: &ContainerStatus) -> Option<String> {
    let ended = current_termination(status).filter(|ended| ended.exit_code != 0)?;
    let said = ended.message.as_deref().or(ended.reason.as_deref()).unwrap_or("no reason was given").trim();
    // The last line is what ended it.
    let last = log_message(said.lines().next_back().unwrap_or(said));
    Some(format!("container {} exited with code {}: {}", status.name, ended.exit_code, visible_line(&last)))
}

pub(super) fn describe_wait(pod: &Pod) -> String {
    let name = pod.name_any();
    let waiting = all_statuses(pod).find_map(|status| {
        let reason = waiting_reason(status).filter(|reason| *reason != "PodInitializing")?;
        Some(format!("{reason} {}", waiting_message(status).unwrap_or_default()))
    });
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut unscheduled = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False");
    let unscheduled = unscheduled.find_map(|condition| condition.message.clone());
    let why = waiting.or(unscheduled).unwrap_or_else(|| describe_pod_state(pod).to_owned());
    format!("pod {name}: {}", visible_line(why.trim()))
}

/// The pod on the volume of a member. It takes over what decides where and as whom etcd's own pods run.
pub(super) fn build_store_pod(
    site: &StoreSite,
    member: &str,
    work: &StoreWork,
    run: &str,
    node: Option<&str>,
) -> Value {
    let (mut first, last, mut volumes) = (Vec::new(), last_container(site, work, run), Vec::new());
    if let StoreWork::Prepare { snapshot_bytes } = work {
        first = prepare_containers(site, member, *snapshot_bytes, run);
        let size = (snapshot_bytes + SPARE_BYTES).to_string();
        volumes.push(json!({"name": "snapshot", "emptyDir": {"sizeLimit": size}}));
    }
    volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": StoreSite::claim(member)}}));
    let mut pod = build_pod(site, (&pod_name(member), COMPONENT), LIFE_SECONDS, [first, vec![last], volumes]);
    if let Some(node) = node {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        pod["spec"]["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    }
    pod
}

fn prepare_containers(site: &StoreSite, member: &str, snapshot_bytes: u64, run: &str) -> Vec<Value> {
    let need = format!("--need-bytes={}", snapshot_bytes + LOG_BYTES);
    let prepare = store_container(site, "room", "prepare", run, Some(&need));
    let snapshot = json!({"name": "snapshot", "mountPath": SNAPSHOT_FOLDER});
    let arguments = receive_arguments(SNAPSHOT_FILE, snapshot_bytes);
    let resources = site.etcd.resources.as_ref();
    let receive = program_container(site, RECEIVE, &arguments, resources, std::slice::from_ref(&snapshot));
    let command = [
        "etcdctl".to_owned(),
        "snapshot".to_owned(),
        "restore".to_owned(),
        SNAPSHOT_FILE.to_owned(),
        format!("--name={member}"),
        format!("--data-dir={}.new-{run}", site.data_dir),
        format!("--initial-cluster={}", site.initial_cluster()),
        format!("--initial-advertise-peer-urls={}", site.peer_url(member)),
        // Members that were not restored never join these.
        format!("--initial-cluster-token={}-{}-{run}", site.namespace, site.name),
        // Clients that have watched see a jump forward, and read everything again.
        format!("--bump-revision={REVISIONS_AHEAD}"),
        "--mark-compacted".to_owned(),
    ];
    let restore = etcd_container(site, "restore", &command, &[data_mount(site), snapshot]);
    vec![prepare, receive, restore]
}

fn last_container(site: &StoreSite, work: &StoreWork, run: &str) -> Value {
    let action = match work {
        StoreWork::Prepare { .. } => "confirm",
        StoreWork::Swap => "swap",
        StoreWork::Rollback => "rollback",
        StoreWork::Commit => "commit",
    };
    // What former stores take is known here alone: `status` asks no pod.
    let report = matches!(work, StoreWork::Swap).then_some("--report=/dev/termination-log");
    store_container(site, "store", action, run, report)
}

/// A container that works on the volume of a member.
fn store_container(site: &StoreSite, name: &str, action: &str, run: &str, further: Option<&str>) -> Value {
    let arguments = ["store", action].map(str::to_owned).into_iter();
    let named = [format!("--data-dir={}", site.data_dir), format!("--run={run}")];
    let arguments: Vec<String> = arguments.chain(named).chain(further.map(str::to_owned)).collect();
    program_container(site, name, &arguments, site.etcd.resources.as_ref(), &[data_mount(site)])
}

fn data_mount(site: &StoreSite) -> Value {
    json!({"name": "data", "mountPath": site.mount_path})
}
