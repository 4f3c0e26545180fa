//! A control plane without a node: its objects in the API that plays the hosting cluster's, pods that say they run, and
//! in the same API what it holds itself.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fs_err as fs;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::Bed;
use crate::cluster::client::{block_on, client};
use crate::run::output_of;

const NAMESPACE: &str = "fleet";
const CLUSTERS: &str = "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters";
/// Writes at once.
const AT_ONCE: usize = 32;

/// The name of a workload cluster.
pub(super) fn member(index: usize) -> String {
    format!("eu-west-1-production-{index:04}")
}

/// Makes preflight accept the cluster: a StorageClass, and a node that nothing runs.
pub(super) fn acceptable(bed: &Bed, cluster: &str) -> Result<()> {
    let kubeconfig = bed.kubeconfig(cluster)?;
    block_on(async || {
        let client = client(&kubeconfig).await?;
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "bench",
            "metadata": {"name": "bench", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
        send(&client, Method::POST, "/apis/storage.k8s.io/v1/storageclasses", &class).await?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bench"}});
        send(&client, Method::POST, "/api/v1/nodes", &node).await?;
        let status = json!({"status": {"nodeInfo": {"architecture": "amd64"}, "conditions": [condition("Ready", "bench")],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
        send(&client, Method::PATCH, "/api/v1/nodes/bench/status", &status).await
    })
}

/// Makes control plane `demo`, healthy, with so many ready workload clusters.
pub(super) fn make(bed: &Bed, cluster: &str, fleetctl: &Path, home: &Path, members: usize, nodes: usize) -> Result<()> {
    let kubeconfig = bed.kubeconfig(cluster)?;
    let mut template = Command::new(fleetctl);
    template.args(["--quiet", "template", "control-plane", "demo", "--set", "exposure.type=NodePort"]);
    template.args(["--set", "exposure.host=192.0.2.1", "--set", "exposure.port=32222"]).env("HOME", home);
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&output_of(&mut template)?)?;
    let mut inside = vec![
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "fleet-cluster-init-kubeconfig", "namespace": NAMESPACE}}),
        json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "SchedulePolicy", "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceSelectors": {"labelSelectors": [{}]}}}),
    ];
    for object in &mut objects {
        match object["metadata"]["name"].as_str() {
            // Leads to the API that has what the control plane's would have.
            Some("fleet-kubeconfig") => object["data"]["kubeconfig"] = STANDARD.encode(fs::read(&kubeconfig)?).into(),
            Some("fleet-bootstrap") => {
                for text in object["data"].as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str()) {
                    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
                    inside.extend(documents.into_iter().flat_map(|document| match document {
                        Value::Array(objects) => objects,
                        object => vec![object],
                    }));
                }
            }
            _ => {}
        }
    }
    let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    let (definitions, inside): (Vec<_>, Vec<_>) = inside.into_iter().partition(is_definition);
    apply(bed, cluster, home, &definitions)?;
    bed.kubectl(
        cluster,
        &["wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all"],
    )?;
    apply(bed, cluster, home, &objects)?;
    apply(bed, cluster, home, &inside)?;
    block_on(async || {
        let client = client(&kubeconfig).await?;
        run_pods(&client).await?;
        let all = futures::stream::iter(0..members).map(|index| register(&client, index, nodes));
        all.buffer_unordered(AT_ONCE).try_collect().await
    })
}

/// Every second workload cluster has been heard of no more.
pub(super) fn lose(bed: &Bed, cluster: &str, members: usize) -> Result<()> {
    let kubeconfig = bed.kubeconfig(cluster)?;
    block_on(async || {
        let client = &client(&kubeconfig).await?;
        let all = futures::stream::iter((0..members).step_by(2)).map(async |index| {
            let mut lost = condition("Ready", "ClusterHeartbeatLost");
            lost["status"] = "Unknown".into();
            let path = format!("{CLUSTERS}/{}/status", member(index));
            send(client, Method::PATCH, &path, &json!({"status": {"conditions": [lost]}})).await
        });
        all.buffer_unordered(AT_ONCE).try_collect().await
    })
}

fn apply(bed: &Bed, cluster: &str, folder: &Path, objects: &[Value]) -> Result<()> {
    let file = folder.join("objects.json");
    fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    bed.kubectl(cluster, &["apply", "--server-side", "--filename", &file.display().to_string()])?;
    Ok(())
}

/// Says of the pods that the controllers make what a kubelet would say, until all components are ready.
async fn run_pods(client: &Client) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    let get = async |what: &str| -> Result<Vec<Value>> {
        let request = http::Request::get(what).body(Vec::new())?;
        let mut list: Value = client.request(request).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    };
    loop {
        for pod in get(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await? {
            let name = pod["metadata"]["name"].as_str().context("a pod has a name")?;
            let status = json!({"status": {"phase": "Running", "conditions": [condition("Ready", "bench")]}});
            send(client, Method::PATCH, &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"), &status).await?;
        }
        let mut workloads = get(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")).await?;
        workloads.extend(get(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets")).await?);
        let ready = |workload: &Value| workload["status"]["readyReplicas"] == workload["spec"]["replicas"];
        if workloads.iter().all(ready) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("the controllers do not see that the pods are ready");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Registers a workload cluster and reports for it, as the scheduler and the agent do together.
async fn register(client: &Client, index: usize, nodes: usize) -> Result<()> {
    let name = member(index);
    let cluster = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": {"fleet-scheduler.io/cluster.provider": "aws", "fleet-scheduler.io/cluster.region": "eu-west-1"}},
        "spec": {"name": name, "accepted": true, "kubernetesversion": "1.25", "kubernetescluster": name,
            "provider": "aws", "region": "eu-west-1", "clusterID": format!("{index:08x}-1111-4222-8333-000000000000")}});
    send(client, Method::POST, CLUSTERS, &cluster).await?;
    let node = |at: usize| format!("ip-10-{}-{}-{at}.eu-west-1.compute.internal", index / 256, index % 256);
    let by_node = |amounts: Value| -> Value { (0..nodes).map(|at| (node(at), amounts.clone())).collect() };
    let status = json!({"status": {
        "conditions": [condition("Ready", "ClusterReady"), condition("Idle", "NothingPlaced"),
            condition("Standby", "NotAsleep"), condition("Accepted", "Automatic"), condition("ClusterHealthy", "ApiAnswers")],
        "observed": {"agentVersion": "v0.6.1", "gitVersion": "v1.25.4", "kubernetescluster": name, "provider": "aws",
            "region": "eu-west-1", "zones": ["eu-west-1a", "eu-west-1b"], "nodeCount": nodes},
        "availableResources": by_node(json!({"cpu": "3399m", "memory": "12332068Ki", "nvidia.com/gpu": "1"})),
        "capacityResources": by_node(json!({"cpu": "16", "memory": "65332068Ki", "nvidia.com/gpu": "1"})),
        "nodeTaints": {node(0): [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "lastUpdateTime": "2026-01-31T12:00:00Z"}});
    send(client, Method::PATCH, &format!("{CLUSTERS}/{name}/status"), &status).await
}

fn condition(kind: &str, reason: &str) -> Value {
    let time = "2026-01-31T12:00:00Z";
    json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": time})
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<()> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await.with_context(|| path.to_owned())?;
    Ok(())
}
