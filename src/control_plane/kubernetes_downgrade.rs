//! Refuses to take the API server back to a former version. From its first moment it stores objects in forms that one
//! of an older Kubernetes minor does not read: 1.31 writes those of flow control as `v1`, and 1.25, which knows no such
//! version, does not become ready with them.

use serde_json::Value;

use super::upgrade::UpgradeRefused;
use crate::api::kinds::Kind;
use crate::api::labels::LABEL_APP_VERSION;
use crate::api::names::NamespaceName;
use crate::api::version::{KubeMinor, ServiceVersion};
use crate::apply;
use crate::apply::Engine;
use crate::chart::{self, Object};
use crate::inventory::{State, Undo};
use crate::k8s::{ObjectRef, Selection};

/// The Deployment, its container, and the image in the table.
const API_SERVER: &str = "apiserver";

/// The containers of a Deployment.
const IN_TEMPLATE: &str = "/spec/template/spec/containers";

/// Why the run that was interrupted cannot be undone; nothing where it can.
pub(super) async fn from_journal(
    engine: &Engine,
    namespace: &NamespaceName,
    state: &State,
) -> Result<Option<UpgradeRefused>, apply::Error> {
    let target = deployment(namespace);
    let step = state.journal.as_ref().and_then(|journal| journal.step(&target));
    let former = step.and_then(|step| match &step.undo {
        // It would be restored from the recorded release, whatever the journal says.
        Undo::Reapply { .. } | Undo::Recreate { .. } if !step.witnessed => recorded(state),
        Undo::Reapply { patch, .. } => image(patch, IN_TEMPLATE).map(str::to_owned),
        Undo::Recreate { manifest } => image(manifest, IN_TEMPLATE).map(str::to_owned),
        // Made over data that an uninstall had kept.
        Undo::Delete => recorded(state),
        Undo::Release { .. } => None,
    });
    match former {
        Some(former) => to(engine, &target, &former).await,
        None => Ok(None),
    }
}

/// The version of the API server that has run, where it is a newer Kubernetes than that of the recorded version: what an
/// uninstall keeps is its data.
pub(super) async fn version_of_data(
    engine: &Engine,
    namespace: &NamespaceName,
    state: &State,
) -> Result<Option<String>, apply::Error> {
    let Some(former) = recorded(state) else { return Ok(None) };
    Ok(to(engine, &deployment(namespace), &former).await?.and_then(|refused| match refused {
        UpgradeRefused::Stored { version, .. } if !version.is_empty() => Some(version),
        _ => None,
    }))
}

/// The image of the API server of the recorded version, as the table has it.
fn recorded(state: &State) -> Option<String> {
    let version: ServiceVersion = state.record.as_ref()?.release.version.parse().ok()?;
    let image = chart::versions().row(version.line())?.images.get(API_SERVER)?;
    Some(format!("{}:{}", image.repository, image.tag))
}

/// Why the API server that is there cannot become the one among `objects`; nothing where it can, or where there is none.
pub(super) async fn from_objects(
    engine: &Engine,
    namespace: &NamespaceName,
    objects: &[Object],
) -> Result<Option<UpgradeRefused>, apply::Error> {
    let wanted = objects.iter().find(|object| object.kind() == "Deployment" && object.name() == API_SERVER);
    match wanted.and_then(|object| image(&object.json, IN_TEMPLATE)) {
        Some(wanted) => to(engine, &deployment(namespace), wanted).await,
        None => Ok(None),
    }
}

async fn to(engine: &Engine, target: &ObjectRef, former: &str) -> Result<Option<UpgradeRefused>, apply::Error> {
    let server = engine.server();
    let (kind, pod) = (Kind::known(&target.group, &target.kind), Kind::known("", "Pod"));
    let failed = |error| apply::Error::on("read", target, error);
    let Some(live) = server.get(&kind, target.namespace.as_deref(), &target.name).await.map_err(failed)? else {
        return Ok(None);
    };
    let selector = engine.owner().selector();
    let selection =
        Selection { namespace: target.namespace.as_deref(), labels: Some(&selector), ..Selection::default() };
    let pods = server.list(&pod, &selection).await.map_err(failed)?;
    Ok(judge(&live, &pods, former))
}

/// No version is older than one that cannot be seen, as in a digest.
fn judge(live: &Value, pods: &[Value], former: &str) -> Option<UpgradeRefused> {
    let now = image(live, IN_TEMPLATE)?;
    let (newer, older) = (minor(now)?, minor(former)?);
    let ran = |pod: &Value| image(pod, "/spec/containers") == Some(now) && has_run(pod);
    (older < newer && pods.iter().any(ran)).then(|| UpgradeRefused::Stored {
        now: newer,
        former: older,
        version: version_of(live).unwrap_or_default().to_owned(),
    })
}

/// Returns whether the API server of a pod has ever been started.
fn has_run(pod: &Value) -> bool {
    let status = of_container(pod, "/status/containerStatuses");
    let known = |path| status.is_some_and(|status| status.pointer(path).is_some_and(|state| !state.is_null()));
    known("/state/running") || known("/state/terminated") || known("/lastState/terminated")
}

fn of_container<'v>(object: &'v Value, containers: &str) -> Option<&'v Value> {
    let named = |container: &&Value| container.get("name").and_then(Value::as_str) == Some(API_SERVER);
    object.pointer(containers)?.as_array()?.iter().find(named)
}

fn image<'v>(object: &'v Value, containers: &str) -> Option<&'v str> {
    of_container(object, containers)?.get("image")?.as_str()
}

/// The Kubernetes minor that the tag of an image names.
fn minor(image: &str) -> Option<KubeMinor> {
    let (name, _) = image.split_once('@').unwrap_or((image, ""));
    name.rsplit_once(':')?.1.parse().ok()
}

fn version_of(live: &Value) -> Option<&str> {
    live.pointer("/metadata/labels")?.get(LABEL_APP_VERSION)?.as_str()
}

fn deployment(namespace: &NamespaceName) -> ObjectRef {
    ObjectRef::new(&Kind::known("apps", "Deployment"), Some(namespace.as_str()), API_SERVER)
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

    #[test]
    fn an_api_server_that_has_run_is_not_taken_back_to_an_older_minor() {
        for status in [
            json!({"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}),
            json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}),
            json!({"state": {"terminated": {"exitCode": 0}}}),
        ] {
            let refused = judge(&live(NEW), &[pod(NEW, status.clone())], OLD);
            let (now, former) = (KubeMinor::new(1, 31), KubeMinor::new(1, 25));
            assert_eq!(refused, Some(UpgradeRefused::Stored { now, former, version: "v0.9.0".to_owned() }), "{status}");
        }
    }

    #[test]
    fn there_is_a_way_back_before_it_has_run_and_where_its_minor_stays() {
        let running = || json!({"state": {"running": {}}});
        let waiting = json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}});
        // What runs is still the former one.
        assert_eq!(judge(&live(NEW), &[pod(NEW, waiting), pod(OLD, running())], OLD), None);
        assert_eq!(judge(&live(NEW), &[], OLD), None);
        assert_eq!(judge(&live(NEW), &[pod(NEW, running())], "kube-apiserver:v1.31.1"), None);
        assert_eq!(judge(&live(OLD), &[pod(OLD, running())], NEW), None);
        // Of which nothing is known.
        let digest = "kube-apiserver@sha256:00";
        assert_eq!(judge(&live(digest), &[pod(digest, running())], OLD), None);
        assert_eq!(judge(&live(NEW), &[pod(NEW, running())], "localhost:5000/kube-apiserver"), None);
    }

    #[test]
    fn a_digest_beside_a_tag_hides_no_version() {
        let both = format!("{NEW}@sha256:00");
        assert_eq!(minor(&both), Some(KubeMinor::new(1, 31)));
    }
}
