//! Refuses a downgrade of the API server. From its start it stores objects in versions that an older Kubernetes minor
//! cannot read: 1.31 writes those of flow control as `v1`, and 1.25, which knows no such
//! version, does not become ready with them. The lines share one minor, so this is about values and about what other
//! builds of this program have installed.

use serde_json::Value;

use super::recorded_minor;
use super::upgrade::{self, UpgradeRefused};
use crate::api::kinds::Kind;
use crate::api::labels::LABEL_APP_VERSION;
use crate::api::names::NamespaceName;
use crate::api::version::KubeMinor;
use crate::apply;
use crate::apply::Engine;
use crate::chart::Object;
use crate::chart::versions::API_SERVER;
use crate::inventory::{Phase, State, Undo};
use crate::k8s::{ObjectRef, Selection};

/// JSON pointer to the containers of a Deployment.
const IN_TEMPLATE: &str = "/spec/template/spec/containers";

/// Returns the reason that the interrupted run cannot be undone; nothing where it can.
pub(in crate::control_plane) async fn from_journal(
    engine: &Engine,
    namespace: &NamespaceName,
    state: &State,
) -> Result<Option<UpgradeRefused>, apply::Error> {
    let target = api_server_deployment(namespace);
    let step = state.journal.as_ref().and_then(|journal| journal.find_step(&target));
    let former = step.and_then(|step| match &step.undo {
        // It would be restored from the recorded release, whatever the journal says.
        Undo::Reapply { .. } | Undo::Recreate { .. } if !step.witnessed => recorded_minor::minor_from_state(state),
        Undo::Reapply { patch, .. } => image_minor(container_image(patch, IN_TEMPLATE)?),
        Undo::Recreate { manifest } => image_minor(container_image(manifest, IN_TEMPLATE)?),
        // Made over data that an uninstall had kept.
        Undo::Delete => recorded_minor::minor_from_state(state),
        Undo::Release { .. } => None,
    });
    match former {
        Some(former) => check_downgrade_to(engine, &target, former).await,
        None => Ok(None),
    }
}

/// Returns the service version of the API server that has run, where it is a newer Kubernetes than that of the recorded
/// version: what an uninstall keeps is its data.
pub(in crate::control_plane) async fn version_of_data(
    engine: &Engine,
    namespace: &NamespaceName,
    state: &State,
) -> Result<Option<String>, apply::Error> {
    let Some(former) = recorded_minor::minor_from_state(state) else { return Ok(None) };
    Ok(check_downgrade_to(engine, &api_server_deployment(namespace), former).await?.and_then(|refused| match refused {
        UpgradeRefused::Stored { version, .. } if !version.is_empty() => Some(version),
        _ => None,
    }))
}

/// Returns the reason that the API server that exists, or the data that an uninstall has kept of one, cannot become
/// the API server among `objects`; nothing where it can, or where there is none. `hub` is the Kubernetes minor of the
/// API server that the version brings.
pub(in crate::control_plane) async fn from_objects(
    engine: &Engine,
    namespace: &NamespaceName,
    state: &State,
    objects: &[Object],
    hub: Option<KubeMinor>,
) -> Result<Option<UpgradeRefused>, apply::Error> {
    let wanted = objects.iter().find(|object| object.kind() == "Deployment" && object.name() == API_SERVER);
    let wanted = wanted.and_then(|object| image_minor(container_image(&object.json, IN_TEMPLATE)?));
    let (Some(wanted), Some(hub)) = (wanted, hub) else { return Ok(None) };
    let recorded = recorded_minor::minor_from_state(state);
    let Some((live, pods)) = read_running_api_server(engine, &api_server_deployment(namespace)).await? else {
        let version = state.record.as_ref().map_or("", |record| &record.release.version);
        return Ok(recorded.and_then(|kept| judge_kept(kept, version, wanted, hub)));
    };
    let is_complete = state.record.as_ref().is_some_and(|record| record.phase == Phase::Installed);
    Ok(judge_change(&live, &pods, is_complete, recorded, wanted, hub))
}

/// Judges a change to `wanted` over the data that an uninstall has kept, of an API server of the minor `kept`.
fn judge_kept(kept: KubeMinor, version: &str, wanted: KubeMinor, hub: KubeMinor) -> Option<UpgradeRefused> {
    let skipped = upgrade::check_minor(kept, wanted, hub).err();
    skipped.or_else(|| refuse_older_minor(kept, wanted, version))
}

/// Refuses an API server of the minor `former` where that is older than `now`, the minor that has run.
fn refuse_older_minor(now: KubeMinor, former: KubeMinor, version: &str) -> Option<UpgradeRefused> {
    (former < now).then(|| UpgradeRefused::Stored { now, former, version: version.to_owned() })
}

async fn check_downgrade_to(
    engine: &Engine,
    target: &ObjectRef,
    former: KubeMinor,
) -> Result<Option<UpgradeRefused>, apply::Error> {
    let found = read_running_api_server(engine, target).await?;
    Ok(found.and_then(|(live, pods)| evaluate_downgrade(&live, &pods, former)))
}

/// Reads the Deployment that exists and the pods of the control plane; nothing where there is no Deployment.
async fn read_running_api_server(
    engine: &Engine,
    target: &ObjectRef,
) -> Result<Option<(Value, Vec<Value>)>, apply::Error> {
    let server = engine.server();
    let (kind, pod) = (Kind::from_table(&target.group, &target.kind), Kind::from_table("", "Pod"));
    let namespace = target.namespace.as_deref();
    let live = server.get_object(&kind, namespace, &target.name).await;
    let live = live.map_err(|error| apply::Error::for_object("read", target, error))?;
    let Some(live) = live else { return Ok(None) };
    let selector = engine.owner().owner_selector();
    let selection = Selection { namespace, labels: Some(&selector), ..Selection::default() };
    let pods = server.list_objects(&pod, &selection).await;
    Ok(Some((live, pods.map_err(|error| apply::Error::for_object("read", target, error))?)))
}

/// Judges the way back to the minor `former`, which is barred once a pod has run a newer API server. No version is
/// older than one that cannot be seen, as in a digest.
fn evaluate_downgrade(live: &Value, pods: &[Value], former: KubeMinor) -> Option<UpgradeRefused> {
    let newer = image_minor(container_image(live, IN_TEMPLATE)?)?;
    pods.iter()
        .any(|pod| has_run_api_server(live, pod))
        .then(|| refuse_older_minor(newer, former, version_of(live).unwrap_or_default()))?
}

/// As [`evaluate_downgrade`], for a change that is asked for. The API server of an install that was completed has run,
/// whether its pods are there or not; `recorded` is the minor that its record says, if it says any. What exists may be
/// newer, of a run that has not come to its end.
fn judge_change(
    live: &Value,
    pods: &[Value],
    is_complete: bool,
    recorded: Option<KubeMinor>,
    wanted: KubeMinor,
    hub: KubeMinor,
) -> Option<UpgradeRefused> {
    let now = image_minor(container_image(live, IN_TEMPLATE)?)?;
    let is_recorded = is_complete && (wanted > now || recorded.is_some_and(|minor| minor >= now));
    if !is_recorded && !pods.iter().any(|pod| has_run_api_server(live, pod)) {
        return None;
    }
    let skipped = upgrade::check_minor(now, wanted, hub).err();
    skipped.or_else(|| refuse_older_minor(now, wanted, version_of(live).unwrap_or_default()))
}

/// Returns whether a pod has run the API server as the Deployment has it now.
fn has_run_api_server(live: &Value, pod: &Value) -> bool {
    let now = container_image(live, IN_TEMPLATE);
    now.is_some() && container_image(pod, "/spec/containers") == now && has_run(pod)
}

/// Returns whether the API server of a pod has ever been started.
fn has_run(pod: &Value) -> bool {
    let Some(status) = of_container(pod, "/status/containerStatuses") else { return false };
    ["/state/running", "/state/terminated", "/lastState/terminated"]
        .iter()
        .any(|path| status.pointer(path).is_some_and(|state| !state.is_null()))
}

fn of_container<'v>(object: &'v Value, containers: &str) -> Option<&'v Value> {
    let mut containers = object.pointer(containers)?.as_array()?.iter();
    containers.find(|container| container.get("name").and_then(Value::as_str) == Some(API_SERVER))
}

fn container_image<'v>(object: &'v Value, containers: &str) -> Option<&'v str> {
    of_container(object, containers)?.get("image")?.as_str()
}

/// The Kubernetes minor that the tag of an image names.
pub(in crate::control_plane) fn image_minor(image: &str) -> Option<KubeMinor> {
    let (name, _) = image.split_once('@').unwrap_or((image, ""));
    name.rsplit_once(':')?.1.parse().ok()
}

fn version_of(live: &Value) -> Option<&str> {
    live.pointer("/metadata/labels")?.get(LABEL_APP_VERSION)?.as_str()
}

fn api_server_deployment(namespace: &NamespaceName) -> ObjectRef {
    ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some(namespace.as_str()), API_SERVER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(image: &str) -> Value {
        json!({
            "metadata": {"labels": {"app.kubernetes.io/version": "v0.9.0"}},
            "spec": {"template": {"spec": {"containers": [{"name": "other", "image": "x:v1.40.0"}, {"name": "apiserver", "image": image}]}}},
        })
    }

    fn pod(image: &str, status: Value) -> Value {
        let mut status = status;
        status["name"] = "apiserver".into();
        json!({"spec": {"containers": [{"name": "apiserver", "image": image}]}, "status": {"containerStatuses": [status]}})
    }

    const NEW: &str = "mirror.example:5000/kube-apiserver:v1.31.4";
    const OLD: &str = "mirror.example:5000/kube-apiserver:v1.25.4";
    const AT_25: KubeMinor = KubeMinor::new(1, 25);
    const AT_31: KubeMinor = KubeMinor::new(1, 31);
    const AT_36: KubeMinor = KubeMinor::new(1, 36);

    #[test]
    fn an_api_server_that_has_run_is_not_taken_back_to_an_older_minor() {
        for status in [
            json!({"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}),
            json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}),
            json!({"state": {"terminated": {"exitCode": 0}}}),
        ] {
            let refused = evaluate_downgrade(&live(NEW), &[pod(NEW, status.clone())], AT_25);
            let (now, former) = (AT_31, AT_25);
            assert_eq!(refused, Some(UpgradeRefused::Stored { now, former, version: "v0.9.0".to_owned() }), "{status}");
        }
    }

    fn build_running_pod(image: &str) -> Value {
        pod(image, json!({"state": {"running": {}}}))
    }

    fn build_waiting_pod(image: &str) -> Value {
        pod(image, json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}}))
    }

    #[test]
    fn there_is_a_way_back_before_it_has_run_and_where_its_minor_stays() {
        // What runs is still the former one.
        assert_eq!(evaluate_downgrade(&live(NEW), &[build_waiting_pod(NEW), build_running_pod(OLD)], AT_25), None);
        assert_eq!(evaluate_downgrade(&live(NEW), &[], AT_25), None);
        assert_eq!(evaluate_downgrade(&live(NEW), &[build_running_pod(NEW)], AT_31), None);
        assert_eq!(evaluate_downgrade(&live(OLD), &[build_running_pod(OLD)], AT_31), None);
        // Of which nothing is known.
        let digest = "kube-apiserver@sha256:00";
        assert_eq!(evaluate_downgrade(&live(digest), &[build_running_pod(digest)], AT_25), None);
        assert_eq!(image_minor("localhost:5000/kube-apiserver"), None);
    }

    #[test]
    fn no_minor_is_skipped_by_an_api_server_that_has_run() {
        let (running, waiting) = ([build_running_pod(NEW)], [build_waiting_pod(NEW)]);
        let skipped = Some(UpgradeRefused::MinorSkipped { now: AT_31, wanted: AT_36, hub: AT_36 });
        assert_eq!(judge_change(&live(NEW), &running, false, None, AT_36, AT_36), skipped);
        // It is completely installed, and its node is lost.
        assert_eq!(judge_change(&live(NEW), &[], true, None, AT_36, AT_36), skipped);
        let stored = Some(UpgradeRefused::Stored { now: AT_31, former: AT_25, version: "v0.9.0".to_owned() });
        assert_eq!(judge_change(&live(NEW), &[], true, Some(AT_31), AT_25, AT_25), stored);
        // What is there is of an upgrade that never ran.
        assert_eq!(judge_change(&live(NEW), &[], true, Some(AT_25), AT_25, AT_25), None);
        // Nothing but its data is there.
        assert_eq!(judge_kept(AT_31, "v0.9.0", AT_25, AT_25), stored);
        assert_eq!(judge_kept(AT_31, "v0.9.0", AT_36, AT_36), skipped);
        assert_eq!(judge_kept(AT_31, "v0.9.0", AT_31, AT_36), None);
        // A first install with an image that cannot be pulled is mended by any other.
        assert_eq!(judge_change(&live(NEW), &waiting, false, None, AT_36, AT_36), None);
        assert_eq!(judge_change(&live(NEW), &waiting, false, None, AT_25, AT_36), None);
        assert_eq!(judge_change(&live(NEW), &running, true, Some(AT_31), AT_25, AT_25), stored);
    }

    #[test]
    fn a_digest_beside_a_tag_hides_no_version() {
        let both = format!("{NEW}@sha256:00");
        assert_eq!(image_minor(&both), Some(KubeMinor::new(1, 31)));
    }
}
