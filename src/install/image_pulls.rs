//! Check that the nodes can pull and run every image of an installation, with a short-lived pod for each workload.
//!
//! Such a pod is the workload's own with another command, `--version`: the same images, nodes, login and limits, and none of
//! its Secrets, volumes and rights.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::api::labels::LABEL_PART_OF;
use crate::api::remedy::{Place, Remedy};
use crate::chart::Object;
use crate::check::Problem;
use crate::check::pod_references::pod_spec;
use crate::check::pulls::{PullFacts, Pulled};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::image::{find_foreign_architecture, find_pull_failure};
use crate::diagnose::pod::{
    all_statuses, current_termination, describe_pod_state, ended_before, find_pod_cause, is_running, pod_phase,
    waiting_reason,
};
use crate::k8s::await_object::await_object;

/// Longest time for all pods together, images included.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Time for a container that runs to end: a node may report that a program of another architecture runs, before it fails.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Time that a pod may live, in seconds, whatever becomes of us.
const LIFE: i64 = 360;
/// Label by which the objects of a run are found; its value is the name of the run.
const LABEL: &str = "fleet-scheduler.io/image-check";
/// Type of the Secret that a chart makes of the values' registry login.
const LOGIN: &str = "kubernetes.io/dockerconfigjson";

/// Pods that try the images of an installation, and their login.
pub struct ImagePulls<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// Part of the names of all that is made here.
    run: String,
    pods: Vec<Value>,
    login: Option<Value>,
    images: BTreeSet<String>,
}

impl<'a> ImagePulls<'a> {
    /// Plans a pod for each workload among `objects`.
    pub fn new(client: &'a Client, namespace: &'a str, objects: &[Object]) -> Self {
        let run = format!("fleet-image-check-{:08x}", rand::random::<u32>());
        let login = objects.iter().map(|object| &object.json).find(|object| object["type"] == LOGIN);
        let of_chart = login.map(|secret| &secret["metadata"]["name"]);
        let templates = objects.iter().filter_map(|object| pod_spec(&object.json));
        let pods = templates.enumerate().map(|(n, spec)| build_pull_pod(&format!("{run}-{n}"), &run, spec, of_chart));
        let pods: Vec<Value> = pods.collect();
        let login = login.map(|secret| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": build_metadata(&run, &run),
                "type": secret["type"], "data": secret["data"]})
        });
        let images = pods.iter().flat_map(list_container_images).map(|(_, image)| image.to_owned()).collect();
        Self { client, namespace, run, pods, login, images }
    }

    /// Number of different images.
    pub fn image_count(&self) -> usize {
        self.images.len()
    }

    /// Returns whether a login to a registry is written.
    pub fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Makes the pods, and waits until each image was pulled or refused, up to `limit`. What was made stays for
    /// [`Self::remove_created_objects`], which is to be called however this ends.
    pub async fn pull_images(&self, limit: Duration) -> PullFacts {
        if let Some(login) = &self.login {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
            let made = match serde_json::from_value(login.clone()) {
                Ok(secret) => api.create(&PostParams::default(), &secret).await.map(drop),
                Err(error) => Err(kube::Error::SerdeError(error)),
            };
            if let Err(error) = made {
                let problem = self.refusal_problem("Secret", &error);
                let images = self.images.iter().map(|image| (image.clone(), Pulled::Unknown(problem.clone())));
                return PullFacts { images: images.collect() };
            }
        }
        let mut found: BTreeMap<String, Pulled> = BTreeMap::new();
        for (image, pulled) in
            join_all(self.pods.iter().map(|pod| self.try_pod(pod, limit))).await.into_iter().flatten()
        {
            if found.get(&image).is_none_or(|before| rank_pulled(&pulled) > rank_pulled(before)) {
                found.insert(image, pulled);
            }
        }
        PullFacts { images: found.into_iter().collect() }
    }

    /// Tries the images of one pod.
    async fn try_pod(&self, manifest: &Value, limit: Duration) -> Vec<(String, Pulled)> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let images: Vec<(&str, &str)> = list_container_images(manifest).collect();
        let made = match serde_json::from_value::<Pod>(manifest.clone()) {
            Ok(pod) => pods.create(&PostParams::default(), &pod).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        let name = match made {
            Ok(pod) => pod.name_any(),
            Err(error) => return mark_all_unknown(&images, &self.refusal_problem("pod", &error)),
        };
        let names: Vec<&str> = images.iter().map(|(container, _)| *container).collect();
        let ended =
            await_object(pods.clone(), &name, |pod: Option<&Pod>| pod.is_none_or(|pod| is_decided(pod, &names)));
        let seen = match tokio::time::timeout(limit, ended).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => {
                return mark_all_unknown(&images, &unknown_problem(format!("its pod cannot be watched: {error}")));
            }
            // What the pod waits for is told.
            Err(_) => pods.get_opt(&name).await.ok().flatten(),
        };
        let seen = match seen {
            Some(pod) if all_statuses(&pod).any(is_running) => {
                let ended = await_object(pods.clone(), &name, |pod: Option<&Pod>| {
                    pod.is_none_or(|pod| !all_statuses(pod).any(is_running))
                });
                // A program that goes on is one that the node can run.
                tokio::time::timeout(END_LIMIT, ended).await.ok().and_then(Result::ok).unwrap_or(Some(pod))
            }
            seen => seen,
        };
        let Some(pod) = seen else {
            return mark_all_unknown(&images, &unknown_problem("its pod was deleted".to_owned()));
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events.list(&about).await.map(|list| list.items).unwrap_or_default();
        let evidence = Evidence { events, ..Evidence::default() };
        images
            .iter()
            .map(|(container, image)| ((*image).to_owned(), evaluate_pull(&pod, container, image, &evidence)))
            .collect()
    }

    /// Deletes what was made, and what runs before have left that were killed.
    pub async fn remove_created_objects(&self) {
        delete_run_objects::<Pod>(self.client, self.namespace, &self.run).await;
        delete_run_objects::<Secret>(self.client, self.namespace, &self.run).await;
    }

    /// Returns the problem of an own object that the API server rejects.
    fn refusal_problem(&self, kind: &str, error: &kube::Error) -> Problem {
        let namespace = self.namespace;
        match error {
            kube::Error::Api(status) if status.code == 404 => Problem {
                what: format!("namespace {namespace} does not exist, but the pods that pull images run in it"),
                remedy: Remedy::new("`").kubectl(Place::Cluster).text(format!(" create namespace {namespace}`")),
            },
            _ => Problem {
                what: format!("a {kind} cannot be created in namespace {namespace}: {error}"),
                remedy: "allow creating, watching and deleting pods there, or fix the error above".into(),
            },
        }
    }
}

fn mark_all_unknown(images: &[(&str, &str)], problem: &Problem) -> Vec<(String, Pulled)> {
    images.iter().map(|(_, image)| ((*image).to_owned(), Pulled::Unknown(problem.clone()))).collect()
}

fn unknown_problem(what: String) -> Problem {
    Problem { what, remedy: "try again".into() }
}

const fn rank_pulled(pulled: &Pulled) -> u8 {
    match pulled {
        Pulled::Yes => 0,
        Pulled::Unknown(_) => 1,
        Pulled::No(_) => 2,
    }
}

fn build_metadata(name: &str, run: &str) -> Value {
    json!({"name": name, "labels": {LABEL_PART_OF: "fleet", LABEL: run}})
}

/// A pod that has the images of another one pulled, and asks for their version. The login of the chart, by its name, is
/// replaced by that of the run.
fn build_pull_pod(name: &str, run: &str, of: &Value, login: Option<&Value>) -> Value {
    let kept =
        ["nodeSelector", "tolerations", "priorityClassName", "runtimeClassName", "securityContext", "schedulerName"];
    let mut spec: Map<String, Value> =
        kept.iter().filter_map(|key| Some(((*key).to_owned(), of.get(*key)?.clone()))).collect();
    if let Some(nodes) = of.pointer("/affinity/nodeAffinity") {
        spec.insert("affinity".to_owned(), json!({ "nodeAffinity": nodes }));
    }
    let secrets = of["imagePullSecrets"].as_array().into_iter().flatten();
    let secrets =
        secrets.map(|secret| if Some(&secret["name"]) == login { json!({ "name": run }) } else { secret.clone() });
    spec.insert("imagePullSecrets".to_owned(), secrets.collect());
    // What starts a pod and what runs in it are pulled alike, and here none waits for another.
    let lists = ["initContainers", "containers"].into_iter().flat_map(|list| of[list].as_array().into_iter().flatten());
    spec.insert("containers".to_owned(), lists.map(build_pull_container).collect());
    spec.insert("restartPolicy".to_owned(), json!("Never"));
    spec.insert("activeDeadlineSeconds".to_owned(), json!(LIFE));
    spec.insert("terminationGracePeriodSeconds".to_owned(), json!(0));
    spec.insert("automountServiceAccountToken".to_owned(), json!(false));
    spec.insert("enableServiceLinks".to_owned(), json!(false));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": build_metadata(name, run), "spec": spec})
}

fn build_pull_container(of: &Value) -> Value {
    let kept = ["name", "image", "imagePullPolicy", "resources", "securityContext"];
    let mut container: Map<String, Value> =
        kept.iter().filter_map(|key| Some(((*key).to_owned(), of.get(*key)?.clone()))).collect();
    if let Some(program) = of["command"].as_array().and_then(|command| command.first()) {
        container.insert("command".to_owned(), json!([program]));
    }
    container.insert("args".to_owned(), json!(["--version"]));
    // A program of another architecture ends at once, and only its log says why.
    container.insert("terminationMessagePolicy".to_owned(), json!("FallbackToLogsOnError"));
    Value::Object(container)
}

/// Name and image of each container.
fn list_container_images(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = pod["spec"]["containers"].as_array().into_iter().flatten();
    all.filter_map(|container| Some((container["name"].as_str()?, container["image"].as_str()?)))
}

/// Returns whether each of these containers has its image, or was refused it; or no node will look at the pod any more.
fn is_decided(pod: &Pod, names: &[&str]) -> bool {
    let none = Evidence::default();
    let has_ended = matches!(pod_phase(pod), Some("Failed" | "Succeeded"));
    has_ended || names.iter().all(|name| !matches!(evaluate_pull(pod, name, "", &none), Pulled::Unknown(_)))
}

/// Returns the result for the image of a container: pulled, refused, or not known so far.
fn evaluate_pull(pod: &Pod, name: &str, image: &str, evidence: &Evidence) -> Pulled {
    let Some(container) = all_statuses(pod).find(|container| container.name == name) else {
        return Pulled::Unknown(explain_pending_pull(pod, image, evidence));
    };
    if let Some(refused) = find_pull_failure(pod, container, evidence) {
        return Pulled::No(Problem { what: refused.what, remedy: refused.remedy.into() });
    }
    let last = current_termination(container).or_else(|| ended_before(container));
    let said = last.and_then(|last| last.message.as_deref()).unwrap_or_default();
    if let Some(foreign) = find_foreign_architecture(image, said) {
        return Pulled::No(Problem { what: foreign.what, remedy: foreign.remedy.into() });
    }
    // A container is made once its image is there, and may be refused then.
    let made = waiting_reason(container).is_some_and(|why| !["ContainerCreating", "PodInitializing"].contains(&why));
    if last.is_some() || is_running(container) || made {
        return Pulled::Yes;
    }
    Pulled::Unknown(explain_pending_pull(pod, image, evidence))
}

/// Returns the reason that no node has tried an image, or that none has pulled it within [`LIMIT`].
fn explain_pending_pull(pod: &Pod, image: &str, evidence: &Evidence) -> Problem {
    match find_pod_cause(pod, evidence) {
        Some(finding) => {
            let (what, remedy) = finding.into_state_and_remedy();
            Problem { what: format!("image `{image}` was not pulled: {what}"), remedy }
        }
        None => unknown_problem(format!(
            "image `{image}` was not pulled within {} s: its pod is {}",
            LIMIT.as_secs(),
            describe_pod_state(pod)
        )),
    }
}

/// Deletes the objects of a run, and those that are older than any run lasts. What cannot be deleted ends by itself.
async fn delete_run_objects<K>(client: &Client, namespace: &str, run: &str)
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()> + Clone,
    K: serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let Ok(found) = api.list_metadata(&ListParams::default().labels(LABEL)).await else { return };
    let (now, longest) = (Timestamp::now(), SignedDuration::from_secs(2 * LIFE));
    for object in found.items {
        let ours = object.labels().get(LABEL).is_some_and(|of| of == run);
        if ours || object.creation_timestamp().is_some_and(|at| now.duration_since(at.0) > longest) {
            let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let _ = api.delete(&object.name_any(), &params).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_has_the_images_nodes_and_login_of_the_workload_and_nothing_else_of_it() {
        let of = json!({
            "serviceAccountName": "apiserver", "nodeSelector": {"a": "b"}, "imagePullSecrets": [{"name": "login"}, {"name": "mine"}],
            "affinity": {"podAntiAffinity": {}, "nodeAffinity": {"x": 1}}, "volumes": [{"name": "pki"}],
            "initContainers": [{"name": "first", "image": "i", "args": ["run"]}],
            "containers": [{"name": "c", "image": "j", "command": ["etcd", "--data-dir=/d"], "env": [{"name": "E"}],
                "livenessProbe": {}, "volumeMounts": [{"name": "pki"}], "resources": {"limits": {"memory": "1Gi"}}}],
        });
        let pod = build_pull_pod("fleet-image-check-1-0", "fleet-image-check-1", &of, Some(&json!("login")));
        let spec = &pod["spec"];
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "fleet-image-check-1"}, {"name": "mine"}]));
        assert_eq!(
            (&spec["nodeSelector"], &spec["affinity"]),
            (&json!({"a": "b"}), &json!({"nodeAffinity": {"x": 1}}))
        );
        for key in ["volumes", "serviceAccountName", "initContainers"] {
            assert!(spec.get(key).is_none(), "{key}");
        }
        assert_eq!(spec["containers"][0]["args"], json!(["--version"]));
        let second = &spec["containers"][1];
        assert_eq!((&second["command"], &second["resources"]["limits"]["memory"]), (&json!(["etcd"]), &json!("1Gi")));
        assert!(["env", "livenessProbe", "volumeMounts"].iter().all(|key| second.get(*key).is_none()), "{second}");
    }

    fn seen(state: Value) -> Pulled {
        let container =
            json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Pending", "containerStatuses": [container]}});
        evaluate_pull(&serde_json::from_value(pod).unwrap(), "c", "i", &Evidence::default())
    }

    fn waiting_state(reason: &str, message: &str) -> Value {
        json!({"waiting": {"reason": reason, "message": message}})
    }

    fn terminated_state(reason: &str, message: &str) -> Value {
        json!({"terminated": {"exitCode": 1, "reason": reason, "message": message}})
    }

    #[test]
    fn an_image_is_there_once_its_container_was_made_and_whatever_became_of_that() {
        for state in [
            json!({"running": {}}),
            terminated_state("Error", "flag provided but not defined"),
            terminated_state("StartError", "no such file or directory"),
            waiting_state("CreateContainerError", "x"),
        ] {
            assert_eq!(seen(state.clone()), Pulled::Yes, "{state}");
        }
        for (state, word) in [
            (waiting_state("ErrImagePull", "no match for platform in manifest"), "no match for platform"),
            (terminated_state("Error", "exec /etcd: exec format error"), "does not support the architecture"),
        ] {
            assert!(matches!(seen(state), Pulled::No(problem) if problem.what.contains(word)), "{word}");
        }
        assert!(matches!(seen(waiting_state("ContainerCreating", "")), Pulled::Unknown(_)));
    }
}
