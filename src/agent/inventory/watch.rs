//! Watching nodes and pods of the workload cluster. Of a pod only its node and requests are kept, so that thousands of
//! pods fit into a few megabytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

use super::facts::{Overrides, detect};
use super::nodes::{NodeFacts, PodFacts, available, node_facts, pod_facts};
use super::publish::Snapshot;

#[derive(Debug, Default)]
struct Inner {
    nodes: BTreeMap<String, NodeFacts>,
    pods: HashMap<String, PodFacts>,
    /// Being listed anew; they replace the above when complete.
    new_nodes: BTreeMap<String, NodeFacts>,
    new_pods: HashMap<String, PodFacts>,
    synced: [bool; 2],
}

/// Nodes and pods as they are now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    inner: Arc<Mutex<Inner>>,
}

impl Observed {
    /// An inventory without a watch, for agents of clusters that do not exist.
    pub fn fixed(nodes: BTreeMap<String, NodeFacts>, pods: HashMap<String, PodFacts>) -> Self {
        let inner = Inner { nodes, pods, synced: [true; 2], ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Changes such an inventory.
    pub fn change(&self, nodes: BTreeMap<String, NodeFacts>, pods: HashMap<String, PodFacts>) {
        self.with(|inner| (inner.nodes, inner.pods) = (nodes, pods));
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The inventory; `None` until both lists are complete, as a cluster without nodes would look full.
    pub fn snapshot(&self, overrides: &Overrides, registered: &str) -> Option<Snapshot> {
        self.with(|inner| {
            inner.synced.iter().all(|s| *s).then(|| Snapshot {
                available: available(&inner.nodes, inner.pods.values()),
                allocatable: inner.nodes.iter().map(|(n, f)| (n.clone(), f.allocatable.clone())).collect(),
                capacity: inner.nodes.iter().map(|(n, f)| (n.clone(), f.capacity.clone())).collect(),
                taints: inner
                    .nodes
                    .iter()
                    .filter(|(_, f)| !f.taints.is_empty())
                    .map(|(n, f)| (n.clone(), f.taints.clone()))
                    .collect(),
                facts: detect(&inner.nodes, overrides, registered),
                git_version: String::new(),
                autoscaled: false,
            })
        })
    }

    fn on_node(&self, event: Event<Node>) {
        self.with(|inner| match event {
            Event::Init => inner.new_nodes.clear(),
            Event::InitApply(node) => {
                inner.new_nodes.insert(node.name_any(), node_facts(&node));
            }
            Event::InitDone => {
                inner.nodes = std::mem::take(&mut inner.new_nodes);
                inner.synced[0] = true;
            }
            Event::Apply(node) => {
                inner.nodes.insert(node.name_any(), node_facts(&node));
            }
            Event::Delete(node) => {
                inner.nodes.remove(&node.name_any());
            }
        });
    }

    fn on_pod(&self, event: Event<Pod>) {
        self.with(|inner| match event {
            Event::Init => inner.new_pods.clear(),
            Event::InitApply(pod) => {
                if let (Some(uid), Some(facts)) = (pod.uid(), pod_facts(&pod)) {
                    inner.new_pods.insert(uid, facts);
                }
            }
            Event::InitDone => {
                inner.pods = std::mem::take(&mut inner.new_pods);
                inner.synced[1] = true;
            }
            Event::Apply(pod) => {
                let Some(uid) = pod.uid() else { return };
                match pod_facts(&pod) {
                    Some(facts) => inner.pods.insert(uid, facts),
                    None => inner.pods.remove(&uid),
                };
            }
            Event::Delete(pod) => {
                inner.pods.remove(&pod.uid().unwrap_or_default());
            }
        });
    }
}

/// Watches until dropped.
pub async fn watch(local: Client, observed: Observed) {
    let config = watcher::Config::default().any_semantic();
    let nodes = async {
        let mut stream = std::pin::pin!(watcher(Api::<Node>::all(local.clone()), config.clone()).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => observed.on_node(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of nodes"),
            }
        }
    };
    let pods = async {
        // Pods that are over take nothing, and there can be very many of them.
        let config = config.clone().fields("status.phase!=Succeeded,status.phase!=Failed").page_size(200);
        let mut stream = std::pin::pin!(watcher(Api::<Pod>::all(local.clone()), config).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => observed.on_pod(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of pods"),
            }
        }
    };
    tokio::join!(nodes, pods);
}
