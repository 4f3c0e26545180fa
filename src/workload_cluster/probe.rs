//! A short-lived pod that tests the connection to the control plane from inside the workload cluster, before the agent
//! is installed.
//!
//! It is the agent's own pod with another command: the same image, node, Secret and network.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api::probe::Outcome;
use crate::inventory::{INSTALL_LABEL, OWNER_KIND_LABEL};
use crate::k8s::await_object::await_object;

/// Name of the pod.
pub const POD: &str = "fleet-agent-probe";
/// Time to wait for the pod, its image included.
pub const LIMIT: Duration = Duration::from_secs(90);
/// Time that the pod may live, in seconds, whatever becomes of us.
const LIFE: i64 = 120;

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probed {
    /// The pod ran, and says this.
    Said(Outcome),
    /// It did not run, or is of an image that has no probe; with the reason, as a clause.
    Unknown(String),
}

/// The pod, made of the Deployment of the agent.
fn build_probe_pod(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut spec = template["spec"].clone();
    spec["restartPolicy"] = json!("Never");
    spec["activeDeadlineSeconds"] = json!(LIFE);
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(0);
    if let Some(container) = spec["containers"].get_mut(0).and_then(Value::as_object_mut) {
        for key in ["startupProbe", "livenessProbe", "readinessProbe", "ports"] {
            container.remove(key);
        }
        // The way to the control plane may be a proxy's. What stands for flags of the agent is none of the probe's.
        if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
            env.retain(|variable| {
                let name = variable["name"].as_str().unwrap_or_default();
                !["POD_", "FLEET_"].iter().any(|own| name.starts_with(own))
            });
        }
        let file = "/dev/termination-log";
        let way = "--control-plane-kubeconfig=/etc/fleet/kubeconfig";
        container.insert("args".to_owned(), json!(["probe", way, format!("--result={file}")]));
        container.insert("terminationMessagePath".to_owned(), json!(file));
    }
    // The labels by which it is known as ours, and not those by which agents are found.
    let labels = &template["metadata"]["labels"];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": POD,
            "namespace": deployment["metadata"]["namespace"],
            "labels": {
                "app.kubernetes.io/name": POD,
                "app.kubernetes.io/part-of": "fleet",
                INSTALL_LABEL: labels[INSTALL_LABEL],
                OWNER_KIND_LABEL: labels[OWNER_KIND_LABEL],
            },
        },
        "spec": spec,
    })
}

/// The state of the pod's only container, as far as a decision is possible.
fn evaluate_probe(pod: &Pod) -> Option<Probed> {
    let status = pod.status.as_ref()?;
    let state = status.container_statuses.as_ref().and_then(|all| all.first()?.state.as_ref());
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        let said = ended.message.as_deref().and_then(|text| serde_json::from_str(text).ok());
        return Some(match said {
            Some(outcome) => Probed::Said(outcome),
            None => Probed::Unknown(format!("the agent's image has no probe command (exit code {})", ended.exit_code)),
        });
    }
    // The install meets the same in a moment, and explains it.
    let waits = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    match waits {
        Some(reason) if !matches!(reason, "ContainerCreating" | "PodInitializing") => {
            Some(Probed::Unknown(format!("the probe pod does not start: {reason}")))
        }
        _ if status.phase.as_deref() == Some("Failed") => Some(Probed::Unknown(format!(
            "the probe pod failed: {}",
            status.reason.as_deref().unwrap_or("no reason given")
        ))),
        _ => None,
    }
}

/// Runs the probe to its end and removes its pod.
///
/// # Errors
/// An API that does not answer or refuses the pod.
pub async fn run_probe(client: &Client, deployment: &Value, limit: Duration) -> Result<Probed, kube::Error> {
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // One may be left of a run that was interrupted.
    remove_probe_pod(client, namespace).await?;
    let object: Pod = serde_json::from_value(build_probe_pod(deployment)).map_err(kube::Error::SerdeError)?;
    pods.create(&PostParams::default(), &object).await?;
    let ended = await_object(pods, POD, |pod: Option<&Pod>| pod.is_some_and(|pod| evaluate_probe(pod).is_some()));
    let probed = match tokio::time::timeout(limit, ended).await {
        Ok(Ok(Some(pod))) => {
            evaluate_probe(&pod).unwrap_or_else(|| Probed::Unknown("the probe pod was deleted".to_owned()))
        }
        Ok(Ok(None)) => Probed::Unknown("the probe pod was deleted".to_owned()),
        Ok(Err(error)) => Probed::Unknown(format!("the probe pod cannot be watched: {error}")),
        Err(_) => Probed::Unknown(format!("the probe pod did not finish within {} s", limit.as_secs())),
    };
    remove_probe_pod(client, namespace).await?;
    Ok(probed)
}

/// Removes the pod, if there is one, and waits until it is gone.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn remove_probe_pod(client: &Client, namespace: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let deleted = pods.delete(POD, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await;
    let uid = match deleted {
        Ok(found) => found.left().and_then(|pod| pod.metadata.uid),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error),
    };
    if let Some(uid) = uid {
        let gone = await_object(pods, POD, |pod: Option<&Pod>| pod.is_none_or(|pod| pod.uid().as_ref() != Some(&uid)));
        let _ = tokio::time::timeout(Duration::from_secs(30), gone).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_is_the_agents_with_another_command() {
        let deployment = json!({
            "metadata": {"name": "fleet-agent", "namespace": "fleet"},
            "spec": {"template": {
                "metadata": {"labels": {INSTALL_LABEL: "m", OWNER_KIND_LABEL: "agent", "app.kubernetes.io/name": "fleet-agent"}},
                "spec": {"serviceAccountName": "fleet-agent", "containers": [{
                    "image": "i", "args": ["--cluster-name=m"], "readinessProbe": {},
                    "env": [{"name": "POD_UID"}, {"name": "FLEET_SERVICE_VERSION", "value": "v0.6.1"},
                        {"name": "HTTPS_PROXY", "value": "http://p:1"}],
                    "volumeMounts": [{"name": "init"}],
                }]},
            }},
        });
        let pod = build_probe_pod(&deployment);
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], POD, "the agent's log is not its log");
        assert_eq!(pod["metadata"]["labels"][INSTALL_LABEL], "m");
        let container = &pod["spec"]["containers"][0];
        assert_eq!((&container["image"], &container["args"][0]), (&json!("i"), &json!("probe")));
        assert!(container.get("readinessProbe").is_none() && container.get("volumeMounts").is_some());
        assert_eq!(
            container["env"],
            json!([{"name": "HTTPS_PROXY", "value": "http://p:1"}]),
            "it goes the agent's way"
        );
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    }

    fn ended(status: Value) -> Option<Probed> {
        evaluate_probe(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
    }

    fn status_with_container(state: &Value) -> Value {
        let container =
            json!({"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        json!({"containerStatuses": [container]})
    }

    #[test]
    fn the_pods_word_is_taken_and_a_pod_without_one_is_no_refusal() {
        let said = r#"{"passed": false, "hop": "TCP", "message": "m"}"#;
        let said = ended(status_with_container(&json!({"terminated": {"exitCode": 1, "message": said}})));
        assert!(matches!(said, Some(Probed::Said(outcome)) if outcome.hop == "TCP" && !outcome.passed));
        let old =
            ended(status_with_container(&json!({"terminated": {"exitCode": 2, "message": "unrecognized subcommand"}})));
        assert!(matches!(old, Some(Probed::Unknown(_))));
        let pull = ended(status_with_container(&json!({"waiting": {"reason": "ErrImagePull"}})));
        assert!(matches!(pull, Some(Probed::Unknown(why)) if why.contains("ErrImagePull")));
        assert_eq!(ended(status_with_container(&json!({"waiting": {"reason": "ContainerCreating"}}))), None);
        assert_eq!(ended(status_with_container(&json!({"running": {}}))), None);
    }
}
