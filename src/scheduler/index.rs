//! Index of the control plane's objects while this process leads: clusters, Lease renewals and placed work, updated by
//! watches.
//!
//! Renewals are timed by *our* clock: what counts is when we saw a Lease change, not the time written in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::agent_clock::Clock;
use crate::api::labels::{AGENT_LEASE, cluster_of_namespace};
use crate::api::lenient::Lenient;
use crate::api::placeable;
use crate::api::{Cluster, Schedule};
use crate::k8s::resource_version::is_before;

/// Timeout of a watch of Leases, in seconds; the next one resumes where it ended. A server that disappeared is noticed when
/// the end of the watch does not come, and that must be well before the Leases count as expired.
const LEASES_WATCH: u32 = 15;
/// Objects of a page of a list: an answer with as many of the largest ones stays below the limit of an answer.
const PAGE: u32 = 50;
/// Timeout of the other watches, in seconds.
pub const OTHERS_WATCH: u32 = 30;
/// Read timeout of the connection for the watch of Leases, also before the first answer.
pub const LEASES_READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Last renewal of a Lease that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    version: String,
    /// Time of the observation, by our clock.
    pub since: Instant,
    /// Renewed while it was watched; a Lease that was listed may have expired days ago.
    pub observed: bool,
    /// Clock of the holder.
    pub clock: Clock,
}

#[cfg(test)]
impl Renewal {
    /// Creates a renewal.
    pub fn for_test(since: Instant, observed: bool) -> Self {
        Self { version: String::new(), since, observed, clock: Clock::default() }
    }
}

/// Rights that were written for a Cluster object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    uid: Option<String>,
    /// User name that they are bound to; `None` where they were revoked.
    pub holder: Option<String>,
}

impl Rights {
    /// Returns true for the rights of `cluster`, bound to `holder`.
    pub fn is_written_for(&self, cluster: &Cluster, holder: Option<&str>) -> bool {
        self.uid == cluster.metadata.uid && self.holder.as_deref() == holder
    }
}

#[derive(Debug)]
struct IndexState {
    clusters: BTreeMap<String, Arc<Cluster>>,
    /// Clusters with their inventories, which placement has not read yet.
    inventories: BTreeMap<String, Cluster>,
    renewals: BTreeMap<String, Renewal>,
    /// Names of Schedules whose copies run pods, by namespace.
    schedules: BTreeMap<String, BTreeSet<String>>,
    /// Names of a list that is not complete yet; they replace the above when it is.
    listed: BTreeMap<String, BTreeSet<String>>,
    /// Time when a cluster was first seen, or was accepted if that was later, by our clock.
    known_since: BTreeMap<String, Instant>,
    /// Deleted clusters whose rights may still exist.
    deleted: BTreeSet<String>,
    /// Rights as this leader last wrote them, by cluster; those of the others are unknown.
    rights: BTreeMap<String, Rights>,
    /// What is left out of the inventories of clusters that report too much, in words.
    left_out: BTreeMap<String, String>,
    /// Watches that have delivered their first complete list.
    synced: [bool; 3],
    /// Number of changes of clusters so far.
    revision: u64,
    /// Most clusters were lost at once: nothing begins to move.
    frozen: bool,
}

impl IndexState {
    /// Updates a cluster. Another one of its name, or one that was accepted only now, has a new grace.
    fn upsert_cluster(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        self.revision += 1;
        let begins = self.clusters.get(&name).is_none_or(|known| {
            known.metadata.uid != cluster.metadata.uid || cluster.spec.accepted && !known.spec.accepted
        });
        if begins {
            self.known_since.insert(name.clone(), Instant::now());
        }
        self.clusters.insert(name.clone(), Arc::new(strip_inventory(cluster.clone())));
        self.inventories.insert(name, cluster);
    }

    /// Removes a deleted cluster, unless a later one has its name by now.
    fn remove_deleted_cluster(&mut self, cluster: &Cluster) {
        let name = cluster.name_any();
        if self.clusters.get(&name).is_none_or(|known| known.metadata.uid == cluster.metadata.uid) {
            self.drop_deleted(name);
        }
    }

    fn drop_deleted(&mut self, name: String) {
        self.revision += 1;
        self.clusters.remove(&name);
        self.inventories.remove(&name);
        self.known_since.remove(&name);
        self.rights.remove(&name);
        self.left_out.remove(&name);
        self.deleted.insert(name);
    }
}

/// Index of the control plane's objects. Belongs to one leadership term.
#[derive(Debug)]
pub struct Index {
    inner: Mutex<IndexState>,
    /// Notified when a cluster is new or changed.
    pub changed: Notify,
    /// The same for placement.
    pub placement: Notify,
    /// Lock of names, held while a name is registered and while the objects of a name are deleted: a new cluster must not
    /// lose its rights in place of an old one.
    pub names: tokio::sync::Mutex<()>,
}

impl Default for Index {
    fn default() -> Self {
        let inner = IndexState {
            clusters: BTreeMap::new(),
            inventories: BTreeMap::new(),
            renewals: BTreeMap::new(),
            schedules: BTreeMap::new(),
            listed: BTreeMap::new(),
            known_since: BTreeMap::new(),
            deleted: BTreeSet::new(),
            rights: BTreeMap::new(),
            left_out: BTreeMap::new(),
            synced: [false; 3],
            revision: 0,
            frozen: false,
        };
        let names = tokio::sync::Mutex::default();
        Self { inner: Mutex::new(inner), changed: Notify::new(), placement: Notify::new(), names }
    }
}

#[cfg(test)]
impl Index {
    /// Creates the index of a control plane without objects.
    pub fn new_complete() -> Self {
        let index = Self::default();
        index.with_index_state(|inner| inner.synced = [true; 3]);
        index
    }
}

impl Index {
    fn with_index_state<T>(&self, access: impl FnOnce(&mut IndexState) -> T) -> T {
        access(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true once every watch has delivered its first list: what is missing does not exist.
    pub fn is_complete(&self) -> bool {
        self.with_index_state(|inner| inner.synced.iter().all(|s| *s))
    }

    /// Returns a number that is another one after each change of a cluster.
    pub fn revision(&self) -> u64 {
        self.with_index_state(|inner| inner.revision)
    }

    /// Records whether most clusters were lost at once.
    pub fn set_frozen(&self, frozen: bool) {
        self.with_index_state(|inner| inner.frozen = frozen);
    }

    /// Returns whether most clusters were lost at once.
    pub fn is_frozen(&self) -> bool {
        self.with_index_state(|inner| inner.frozen)
    }

    /// Returns all clusters, without their inventories.
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.with_index_state(|inner| inner.clusters.values().cloned().collect())
    }

    /// Returns the clusters that were registered by their agents and never reported.
    pub fn never_reported(&self) -> Vec<Arc<Cluster>> {
        self.with_index_state(|inner| {
            let silent = inner.clusters.values().filter(|cluster| {
                cluster.spec.cluster_id.is_some()
                    && !cluster.has_reported()
                    && cluster.metadata.deletion_timestamp.is_none()
            });
            silent.cloned().collect()
        })
    }

    /// Returns the clusters that changed since the last call, with their inventories. There is one caller: nobody else gets
    /// to see what it has taken.
    pub fn take_inventories(&self) -> BTreeMap<String, Cluster> {
        self.with_index_state(|inner| std::mem::take(&mut inner.inventories))
    }

    /// Returns a cluster by name.
    pub fn cluster(&self, name: &str) -> Option<Arc<Cluster>> {
        self.with_index_state(|inner| inner.clusters.get(name).cloned())
    }

    /// Returns a cluster with this ID under another name.
    pub fn same_id_elsewhere(&self, id: &str, name: &str) -> Option<Arc<Cluster>> {
        self.with_index_state(|inner| {
            let mut others = inner.clusters.values().filter(|c| c.name_any() != name);
            others.find(|c| c.spec.cluster_id.as_deref() == Some(id)).cloned()
        })
    }

    /// Updates a cluster from the answer to a request, so that nobody has to wait for the watch; not if the watch was faster
    /// and has a newer version.
    pub fn put_cluster(&self, cluster: Cluster) {
        self.with_index_state(|inner| {
            let name = cluster.name_any();
            if inner.clusters.get(&name).is_none_or(|known| !is_before(&cluster, &**known)) {
                inner.upsert_cluster(cluster);
            }
        });
    }

    /// Updates a known cluster from a read; an unknown one may have been deleted meanwhile.
    pub fn refresh_cluster(&self, cluster: &Cluster) {
        if self.cluster(&cluster.name_any()).is_some_and(|known| known.metadata.uid == cluster.metadata.uid) {
            self.put_cluster(cluster.clone());
        }
    }

    /// Removes a cluster that does not exist any more. The answer to a write may arrive after the event of its deletion and
    /// add it again, and no watch corrects that.
    pub fn forget_cluster(&self, cluster: &Cluster) {
        self.with_index_state(|inner| inner.remove_deleted_cluster(cluster));
    }

    /// Returns the last renewal of a cluster's Lease.
    pub fn last_renewal(&self, name: &str) -> Option<Renewal> {
        self.with_index_state(|inner| inner.renewals.get(name).cloned())
    }

    /// Returns the time without a renewal, counted at most from when one could have been observed.
    pub fn time_since_renewal(&self, name: &str, now: Instant) -> Duration {
        let known = self.known_since(name);
        let since = self.last_renewal(name).map_or(known, |renewal| renewal.since.max(known));
        now.duration_since(since)
    }

    /// Returns the beginning of a cluster's first grace, by our clock.
    pub fn known_since(&self, name: &str) -> Instant {
        self.with_index_state(|inner| inner.known_since.get(name).copied()).unwrap_or_else(Instant::now)
    }

    /// Returns true where anything that runs pods is placed on a cluster.
    pub fn has_work(&self, name: &str) -> bool {
        let namespace = crate::api::labels::cluster_namespace(name);
        self.with_index_state(|inner| inner.schedules.get(&namespace).is_some_and(|s| !s.is_empty()))
    }

    /// Returns the clusters that were deleted since the last call.
    pub fn take_deleted(&self) -> BTreeSet<String> {
        self.with_index_state(|inner| std::mem::take(&mut inner.deleted))
    }

    /// Adds clusters whose rights must be revoked: after a failed attempt, or orphans.
    pub fn add_deleted(&self, names: impl IntoIterator<Item = String>) {
        self.with_index_state(|inner| inner.deleted.extend(names));
    }

    /// Records the rights that were written for a cluster.
    pub fn record_rights(&self, cluster: &Cluster, holder: Option<String>) {
        let rights = Rights { uid: cluster.metadata.uid.clone(), holder };
        self.with_index_state(|inner| inner.rights.insert(cluster.name_any(), rights));
    }

    /// Returns the rights that were last written for the cluster of a name; `None` where they are unknown.
    pub fn written_rights(&self, name: &str) -> Option<Rights> {
        self.with_index_state(|inner| inner.rights.get(name).cloned())
    }

    /// Records what is left out of the inventory of a cluster that is known.
    pub fn record_left_out(&self, name: &str, what: Option<String>) {
        let changed = self.with_index_state(|inner| {
            let what = what.filter(|_| inner.clusters.contains_key(name));
            let before = inner.left_out.get(name).cloned();
            let changed = before != what;
            match what {
                Some(what) => drop(inner.left_out.insert(name.to_owned(), what)),
                None => drop(inner.left_out.remove(name)),
            }
            changed
        });
        if changed {
            self.changed.notify_one();
        }
    }

    /// Returns what is left out of the inventory of a cluster.
    pub fn left_out(&self, name: &str) -> Option<String> {
        self.with_index_state(|inner| inner.left_out.get(name).cloned())
    }

    /// Makes the rights of one cluster unknown.
    pub fn forget_rights(&self, name: &str) {
        self.with_index_state(|inner| inner.rights.remove(name));
    }

    /// Makes the rights of all clusters unknown, so that they are written again.
    pub fn forget_all_rights(&self) {
        self.with_index_state(|inner| inner.rights.clear());
    }

    fn on_cluster(&self, event: Event<Cluster>, relist: &mut BTreeSet<String>) {
        self.with_index_state(|inner| match event {
            Event::Init => relist.clear(),
            Event::InitApply(cluster) => {
                relist.insert(cluster.name_any());
                inner.upsert_cluster(cluster);
            }
            Event::InitDone => {
                let lost: Vec<_> = inner.clusters.keys().filter(|name| !relist.contains(*name)).cloned().collect();
                for name in lost {
                    inner.drop_deleted(name);
                }
                inner.synced[0] = true;
            }
            Event::Apply(cluster) => inner.upsert_cluster(cluster),
            Event::Delete(cluster) => inner.remove_deleted_cluster(&cluster),
        });
        self.changed.notify_one();
        self.placement.notify_one();
    }

    fn on_lease(&self, event: &Event<Lease>, now: Instant, wall: Timestamp) {
        self.with_index_state(|inner| match event {
            Event::InitApply(lease) | Event::Apply(lease) => {
                let Some(name) = cluster_of_lease(lease) else { return };
                // Only a renewal counts, not any edit of the object: the version stands for the time in it.
                let Some(renewed) = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref()) else { return };
                let version = renewed.0.to_string();
                let watched = matches!(event, Event::Apply(_));
                let renewal = match inner.renewals.get_mut(&name) {
                    Some(renewal) if renewal.version == version => return,
                    Some(renewal) => {
                        *renewal =
                            Renewal { version, since: now, observed: true, clock: std::mem::take(&mut renewal.clock) };
                        renewal
                    }
                    None => {
                        let renewal = Renewal { version, since: now, observed: watched, clock: Clock::default() };
                        inner.renewals.entry(name).or_insert(renewal)
                    }
                };
                // A listed Lease may have been written any time ago.
                if watched {
                    renewal.clock.record_reading(renewed.0.duration_since(wall).as_secs(), now);
                }
            }
            Event::Delete(lease) => {
                if let Some(name) = cluster_of_lease(lease) {
                    inner.renewals.remove(&name);
                }
            }
            Event::InitDone => inner.synced[1] = true,
            Event::Init => {}
        });
    }

    fn on_schedule(&self, event: Event<Schedule>) {
        self.with_index_state(|inner| match event {
            // Until the new list is complete, the old one is valid: a cluster is not idle for the time of a list.
            Event::Init => inner.listed.clear(),
            Event::InitApply(object) => {
                let (namespace, name) = schedule_place(&object);
                if runs_pods(&object) {
                    inner.listed.entry(namespace).or_default().insert(name);
                }
            }
            Event::Apply(object) => {
                let (namespace, name) = schedule_place(&object);
                let names = inner.schedules.entry(namespace).or_default();
                if runs_pods(&object) {
                    names.insert(name);
                } else {
                    names.remove(&name);
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = schedule_place(&object);
                if let Some(names) = inner.schedules.get_mut(&namespace) {
                    names.remove(&name);
                }
            }
            Event::InitDone => {
                inner.schedules = std::mem::take(&mut inner.listed);
                inner.synced[2] = true;
            }
        });
    }
}

/// Returns whether a copy is of a kind that runs pods, and has not been scaled to none.
fn runs_pods(schedule: &Schedule) -> bool {
    let source = &schedule.spec.source_ref;
    let pods = schedule.status.as_ref().and_then(|status| status.pods.as_ref());
    // A CronJob has pods now and then, and its next ones need the cluster.
    let is_used = source.kind == "CronJob" || pods.is_none_or(|pods| pods.desired > 0);
    placeable::runs_pods(&source.group, &source.kind) && is_used
}

fn schedule_place(schedule: &Schedule) -> (String, String) {
    (schedule.namespace().unwrap_or_default(), schedule.name_any())
}

/// Removes the inventory, which only readers of the API need: of a thousand clusters it would be most of our memory.
fn strip_inventory(mut cluster: Cluster) -> Cluster {
    if let Some(status) = &mut cluster.status {
        status.available_resources = None;
        status.capacity_resources = None;
        status.node_taints = None;
        status.node_labels = None;
        if let Some(observed) = &mut status.observed {
            observed.totals = None;
        }
    }
    cluster
}

/// Watches until dropped, Leases by a client of their own. A broken watch is resumed with a back-off.
pub async fn watch_indexed_objects(client: Client, heartbeats: Client, index: Arc<Index>) {
    // Lists of any state are not paged, and all clusters or Schedules together may be more than an answer can hold.
    let config = watcher::Config::default().page_size(PAGE).timeout(OTHERS_WATCH);
    let clusters = async {
        let mut relist = BTreeSet::new();
        // The list is of the newest state: a cluster that an old one does not name would count as deleted, and what is
        // placed there would go elsewhere.
        let config = watcher::Config::default().timeout(OTHERS_WATCH);
        let api = Api::<Lenient<Cluster>>::all(client.clone());
        let mut stream = std::pin::pin!(watcher::watcher(api, config).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => index.on_cluster(map_watch_event(event, |read| read.0), &mut relist),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of clusters failed"),
            }
        }
    };
    let leases = async {
        let config = config.clone().fields(&format!("metadata.name={AGENT_LEASE}")).timeout(LEASES_WATCH);
        let api = Api::<Lenient<Lease>>::all(heartbeats);
        let mut stream = std::pin::pin!(watcher::watcher(api, config).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => {
                    index.on_lease(&map_watch_event(event, |read| read.0), Instant::now(), Timestamp::now());
                }
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of leases failed"),
            }
        }
    };
    let schedules = async {
        let api = Api::<Lenient<Schedule>>::all(client.clone());
        let mut stream = std::pin::pin!(watcher::watcher(api, config.clone()).default_backoff());
        loop {
            match stream.try_next().await {
                Ok(Some(event)) => index.on_schedule(map_watch_event(event, |read| read.0)),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "watch of schedules failed"),
            }
        }
    };
    tokio::join!(clusters, leases, schedules);
}

fn map_watch_event<K, L>(event: Event<K>, change: impl FnOnce(K) -> L) -> Event<L> {
    match event {
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// Returns the cluster of a Lease. Its agent may write labels on it, but cannot move it to another namespace.
fn cluster_of_lease(lease: &Lease) -> Option<String> {
    cluster_of_namespace(lease.metadata.namespace.as_deref()?).map(ToOwned::to_owned)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
