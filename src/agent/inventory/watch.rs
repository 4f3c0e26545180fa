//! Watching nodes and pods of the workload cluster. Of a pod only its node, owner and requests are kept, so that thousands
//! of pods fit into a few megabytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

use super::facts::{Overrides, detect_facts};
use super::nodes::{NodeFacts, PodFacts, available_by_node, node_facts, pod_facts};
use super::pods::{OwnedPods, PodsByOwner, UnboundPod, pod_owner, unbound_pod};
use super::publish::Snapshot;
use super::server::ServerFacts;
use super::unready::{MOST, reduce_unready_pod};
use crate::api::crd::cluster::{DataWithoutSchedule, MOST_COPIES_WITHOUT_SCHEDULE};

#[derive(Debug, Default)]
struct Inner {
    nodes: BTreeMap<String, NodeFacts>,
    pods: HashMap<String, PodFacts>,
    /// Pods without a node.
    unbound: HashMap<String, UnboundPod>,
    /// Pods of the inventory that was published last.
    published: Option<Arc<PodsByOwner>>,
    /// Pods that are not ready, each with the UID of its controller.
    unready: HashMap<String, (String, Arc<Pod>)>,
    /// A list in progress; it replaces the above when complete.
    new_nodes: BTreeMap<String, NodeFacts>,
    new_pods: HashMap<String, PodFacts>,
    new_unbound: HashMap<String, UnboundPod>,
    new_unready: HashMap<String, (String, Arc<Pod>)>,
    synced: [bool; 2],
    /// Copies without a Schedule, as they were counted last.
    copies_without_schedule: Option<i32>,
    /// Those that contain data.
    data_without_schedule: Option<DataWithoutSchedule>,
    /// Counts the changes of `nodes`, `pods` and the copies without a Schedule.
    revision: u64,
    /// Counts the changes of pods, with a node and without, and of what was published.
    pods_revision: u64,
}

/// Nodes and pods as they are now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    inner: Arc<Mutex<Inner>>,
}

impl Observed {
    /// An inventory without a watch, for agents of clusters that do not exist.
    pub fn new_fixed(nodes: BTreeMap<String, NodeFacts>, pods: HashMap<String, PodFacts>) -> Self {
        let inner = Inner { nodes, pods, synced: [true; 2], ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Changes such an inventory.
    pub fn set_nodes_and_pods(&self, nodes: BTreeMap<String, NodeFacts>, pods: HashMap<String, PodFacts>) {
        self.with_inventory_state(|inner| {
            (inner.nodes, inner.pods) = (nodes, pods);
            inner.revision += 1;
        });
    }

    fn with_inventory_state<T>(&self, access: impl FnOnce(&mut Inner) -> T) -> T {
        access(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a number that changes with the inventory, so that an unchanged one need not be taken again.
    pub fn revision(&self) -> u64 {
        self.with_inventory_state(|inner| inner.revision)
    }

    /// The inventory; `None` until both lists are complete, as a cluster without nodes would look full.
    pub fn take_snapshot(&self, overrides: &Overrides, registered: &str) -> Option<Snapshot> {
        self.with_inventory_state(|inner| {
            inner.synced.iter().all(|s| *s).then(|| Snapshot {
                available: available_by_node(&inner.nodes, inner.pods.values()),
                allocatable: inner.nodes.iter().map(|(n, f)| (n.clone(), f.allocatable.clone())).collect(),
                capacity: inner.nodes.iter().map(|(n, f)| (n.clone(), f.capacity.clone())).collect(),
                taints: inner
                    .nodes
                    .iter()
                    .filter(|(_, f)| !f.taints.is_empty())
                    .map(|(n, f)| (n.clone(), f.taints.clone()))
                    .collect(),
                labels: inner.nodes.iter().map(|(n, f)| (n.clone(), f.labels.clone())).collect(),
                pods: by_owner(inner.pods.values()),
                facts: detect_facts(&inner.nodes, overrides, registered),
                server: ServerFacts::default(),
                copies_without_schedule: inner.copies_without_schedule,
                data_without_schedule: inner.data_without_schedule.clone(),
            })
        })
    }

    /// Records how many copies have no Schedule.
    pub fn record_copies_without_schedule(&self, count: usize) {
        let count = i32::try_from(count).unwrap_or(i32::MAX).min(MOST_COPIES_WITHOUT_SCHEDULE);
        self.with_inventory_state(|inner| {
            let before = inner.copies_without_schedule.replace(count);
            inner.revision += u64::from(before != Some(count));
        });
    }

    /// Records which copies without a Schedule contain data.
    pub fn record_data_without_schedule(&self, data: DataWithoutSchedule) {
        self.with_inventory_state(|inner| {
            let is_new = inner.data_without_schedule.as_ref() != Some(&data);
            inner.data_without_schedule = Some(data);
            inner.revision += u64::from(is_new);
        });
    }

    /// Records the pods of an inventory that was published.
    pub fn record_published_pods(&self, pods: PodsByOwner) {
        self.with_inventory_state(|inner| {
            inner.published = Some(Arc::new(pods));
            inner.pods_revision += 1;
        });
    }

    /// Returns a number that changes with what [`Self::owned_pods`] returns.
    pub fn pods_revision(&self) -> u64 {
        self.with_inventory_state(|inner| inner.pods_revision)
    }

    /// Returns the pods by owner; `None` until their list is complete.
    pub fn owned_pods(&self) -> Option<OwnedPods> {
        self.with_inventory_state(|inner| {
            inner.synced[1].then(|| {
                let mut unbound: BTreeMap<String, (i64, Option<Timestamp>)> = BTreeMap::new();
                for pod in inner.unbound.values() {
                    let (count, since) = unbound.entry(pod.owner.clone()).or_default();
                    *count += 1;
                    *since = [*since, pod.unschedulable_since].into_iter().flatten().min();
                }
                OwnedPods {
                    bound: by_owner(inner.pods.values()),
                    unbound,
                    published: inner.published.clone(),
                    unready: inner.unready.values().cloned().collect(),
                }
            })
        })
    }

    fn on_node(&self, event: Event<Node>) {
        self.with_inventory_state(|inner| {
            let changed = match event {
                Event::Init => {
                    inner.new_nodes.clear();
                    false
                }
                Event::InitApply(node) => {
                    inner.new_nodes.insert(node.name_any(), node_facts(&node));
                    false
                }
                Event::InitDone => {
                    let before = std::mem::replace(&mut inner.nodes, std::mem::take(&mut inner.new_nodes));
                    !std::mem::replace(&mut inner.synced[0], true) || before != inner.nodes
                }
                // Kubelets write to their nodes all the time, seldom what is looked at here.
                Event::Apply(node) => {
                    let facts = node_facts(&node);
                    let known = inner.nodes.get(&node.name_any()) == Some(&facts);
                    inner.nodes.insert(node.name_any(), facts);
                    !known
                }
                Event::Delete(node) => inner.nodes.remove(&node.name_any()).is_some(),
            };
            inner.revision += u64::from(changed);
        });
    }

    fn on_pod(&self, event: Event<Pod>) {
        self.with_inventory_state(|inner| {
            let changed = match event {
                Event::Init => {
                    inner.new_pods.clear();
                    inner.new_unbound.clear();
                    inner.new_unready.clear();
                    false
                }
                Event::InitApply(pod) => {
                    if let Some(uid) = pod.uid() {
                        inner.new_unbound.extend(unbound_pod(&pod).map(|unbound| (uid.clone(), unbound)));
                        put_unready(&mut inner.new_unready, &uid, &pod);
                        inner.new_pods.extend(pod_facts(&pod).map(|facts| (uid, facts)));
                    }
                    false
                }
                Event::InitDone => {
                    inner.unbound = std::mem::take(&mut inner.new_unbound);
                    inner.unready = std::mem::take(&mut inner.new_unready);
                    inner.pods_revision += 1;
                    let before = std::mem::replace(&mut inner.pods, std::mem::take(&mut inner.new_pods));
                    !std::mem::replace(&mut inner.synced[1], true) || before != inner.pods
                }
                Event::Apply(pod) => {
                    let Some(uid) = pod.uid() else { return };
                    let unbound = unbound_pod(&pod);
                    let was = match unbound.clone() {
                        Some(unbound) => inner.unbound.insert(uid.clone(), unbound),
                        None => inner.unbound.remove(&uid),
                    };
                    let is_told = put_unready(&mut inner.unready, &uid, &pod);
                    inner.pods_revision += u64::from(was != unbound || is_told);
                    let facts = pod_facts(&pod);
                    let before = match facts.clone() {
                        Some(facts) => inner.pods.insert(uid, facts),
                        None => inner.pods.remove(&uid),
                    };
                    before != facts
                }
                Event::Delete(pod) => {
                    let uid = pod.uid().unwrap_or_default();
                    let was_unready = inner.unready.remove(&uid).is_some();
                    inner.pods_revision += u64::from(inner.unbound.remove(&uid).is_some() || was_unready);
                    inner.pods.remove(&uid).is_some()
                }
            };
            inner.revision += u64::from(changed);
            inner.pods_revision += u64::from(changed);
        });
    }
}

/// Keeps what explains a pod that is not ready, or forgets it. Returns whether that is something new.
fn put_unready(unready: &mut HashMap<String, (String, Arc<Pod>)>, uid: &str, pod: &Pod) -> bool {
    let is_full = unready.len() >= MOST && !unready.contains_key(uid);
    match reduce_unready_pod(pod).filter(|_| !is_full) {
        Some(reduced) => {
            let owner = pod_owner(pod);
            let is_known = unready.get(uid).is_some_and(|(of, known)| *of == owner && **known == reduced);
            if !is_known {
                unready.insert(uid.to_owned(), (owner, Arc::new(reduced)));
            }
            !is_known
        }
        None => unready.remove(uid).is_some(),
    }
}

fn by_owner<'p>(pods: impl Iterator<Item = &'p PodFacts>) -> PodsByOwner {
    let mut count = PodsByOwner::new();
    for pod in pods {
        *count.entry(pod.owner.clone()).or_default() += 1;
    }
    count
}

/// Watches until dropped.
pub async fn watch_inventory(local: Client, observed: Observed) {
    let config = watcher::Config::default().any_semantic();
    let nodes = async {
        let mut stream = std::pin::pin!(watcher(Api::<Node>::all(local.clone()), config.clone()).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => observed.on_node(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of nodes failed"),
            }
        }
    };
    let pods = async {
        // Finished pods take nothing, and there can be very many of them.
        let config = config.clone().fields("status.phase!=Succeeded,status.phase!=Failed").page_size(200);
        let mut stream = std::pin::pin!(watcher(Api::<Pod>::all(local.clone()), config).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => observed.on_pod(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of pods failed"),
            }
        }
    };
    tokio::join!(nodes, pods);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &Value, resource_version: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": labels, "resourceVersion": resource_version},
            "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}},
        }))
        .unwrap()
    }

    fn pod(cpu: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_is_not_ready_is_put_only_where_it_is_new() {
        let mut unready = HashMap::new();
        let mut pod = pod("1", "Pending");
        assert!(put_unready(&mut unready, "u", &pod));
        let first = Arc::clone(&unready["u"].1);
        assert!(!put_unready(&mut unready, "u", &pod));
        assert!(Arc::ptr_eq(&first, &unready["u"].1), "what is kept stays");
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "set", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        assert!(put_unready(&mut unready, "u", &pod));
        assert_eq!(unready["u"].0, "set");
        pod.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        assert!(put_unready(&mut unready, "u", &pod) && unready.is_empty());
        assert!(!put_unready(&mut unready, "u", &pod));
    }

    #[test]
    fn the_revision_follows_the_inventory() {
        let observed = Observed::default();
        let [first, second] = ["a", "b"].map(|name| json!({"topology.kubernetes.io/zone": name}));
        let mut seen = observed.revision();
        let mut rises = |what: &str, expected: bool| {
            let now = observed.revision();
            assert_eq!(now != seen, expected, "{what}");
            seen = now;
        };
        for event in [Event::Init, Event::InitApply(node(&first, "1"))] {
            observed.on_node(event);
            rises("a list that is not complete", false);
        }
        observed.on_node(Event::InitDone);
        rises("the first list", true);
        observed.on_pod(Event::Init);
        observed.on_pod(Event::InitDone);
        rises("an empty list, for it is complete now", true);
        observed.on_node(Event::Apply(node(&first, "2")));
        rises("the kubelet's heartbeat", false);
        observed.on_node(Event::Apply(node(&second, "3")));
        rises("another zone", true);
        observed.on_pod(Event::Apply(pod("1", "Running")));
        rises("a pod", true);
        observed.on_pod(Event::Apply(pod("1", "Running")));
        rises("its status", false);
        observed.on_pod(Event::Apply(pod("2", "Running")));
        rises("its requests", true);
        observed.on_pod(Event::Apply(pod("2", "Succeeded")));
        rises("its end", true);
        observed.on_pod(Event::Delete(pod("2", "Succeeded")));
        rises("its deletion afterwards", false);
        observed.on_node(Event::Init);
        observed.on_node(Event::InitApply(node(&second, "9")));
        observed.on_node(Event::InitDone);
        rises("the same list again", false);
        observed.on_node(Event::Delete(node(&second, "9")));
        rises("a node that goes", true);
        observed.record_copies_without_schedule(usize::MAX);
        rises("copies without a Schedule", true);
        observed.record_copies_without_schedule(usize::MAX);
        rises("as many", false);
        let snapshot = observed.take_snapshot(&Overrides::default(), "west").unwrap();
        assert_eq!(snapshot.copies_without_schedule, Some(MOST_COPIES_WITHOUT_SCHEDULE));
    }
}
