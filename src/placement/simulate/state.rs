//! The state of a control plane that decisions depend on, and what may be asked of it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::crd::cluster::{conditions, reasons};
use crate::api::crd::condition::{Condition, set_condition};
use crate::api::labels::{ANNOTATION_TARGET_CLUSTERS, LABEL_TARGET_CLUSTER, cluster_namespace, cluster_of_namespace};
use crate::api::mass_loss::is_mass_loss;
use crate::api::{Cluster, ClusterReport, Schedule, ScheduleGroup, SchedulePolicy};
use crate::placement::facts::{Facts, FactsError, ObjectKey, Relations, Workload};
use crate::placement::live;

/// The state of a control plane that decisions depend on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetState {
    /// Annotations of objects do not place them.
    #[serde(default)]
    pub denies_direct: bool,
    /// Namespace of the service, of which nothing is placed.
    #[serde(default)]
    pub own_namespace: Option<String>,
    /// Most clusters were lost at once, so nothing moves.
    #[serde(default)]
    pub frozen: bool,
    /// Kinds that are placed beside those of the table, as `GROUP/VERSION/Kind`, each with whether it has a namespace.
    #[serde(default)]
    pub added_kinds: Vec<(String, bool)>,
    /// Workload clusters.
    pub clusters: Vec<Cluster>,
    /// Nodes of clusters that are too large for one object.
    #[serde(default)]
    pub reports: Vec<ClusterReport>,
    /// Policies.
    #[serde(default)]
    pub policies: Vec<SchedulePolicy>,
    /// Groups with what they have recorded.
    #[serde(default)]
    pub groups: Vec<ScheduleGroup>,
    /// Copies.
    #[serde(default)]
    pub schedules: Vec<Schedule>,
    /// Objects that may be placed, Namespaces among them.
    #[serde(default)]
    pub objects: Vec<SourceObject>,
}

/// One object that may be placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceObject {
    /// What it asks of placement.
    pub facts: Facts,
    /// What it names and what it belongs to.
    pub relations: Relations,
    /// Clusters that its marks name: where it was placed last.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub marked: BTreeSet<String>,
}

impl SourceObject {
    /// Reads a manifest.
    ///
    /// # Errors
    /// A manifest that cannot be placed whatever is done.
    pub fn from_manifest(manifest: &Value) -> Result<Self, FactsError> {
        let facts = Facts::from_manifest(manifest)?;
        let relations = Relations::from_manifest(&facts.key, manifest);
        let metadata = &manifest["metadata"];
        let list = metadata["annotations"][ANNOTATION_TARGET_CLUSTERS].as_str();
        let marks = list.or_else(|| metadata["labels"][LABEL_TARGET_CLUSTER].as_str()).unwrap_or_default();
        let marked = marks.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(Self { facts, relations, marked })
    }
}

/// The cluster of a Schedule.
pub(super) fn cluster_of(schedule: &Schedule) -> &str {
    schedule.metadata.namespace.as_deref().and_then(cluster_of_namespace).unwrap_or_default()
}

fn name_of_object<K: kube::Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

impl FleetState {
    /// Returns the names of the clusters.
    pub fn cluster_names(&self) -> Vec<&str> {
        self.clusters.iter().map(name_of_object).collect()
    }

    /// Sorts everything by name, so that the same state is always the same bytes.
    pub fn sort_by_name(&mut self) {
        fn sort_objects<K: kube::Resource>(objects: &mut [K]) {
            objects.sort_by(|a, b| {
                (&a.meta().namespace, name_of_object(a)).cmp(&(&b.meta().namespace, name_of_object(b)))
            });
        }
        sort_objects(&mut self.clusters);
        sort_objects(&mut self.reports);
        sort_objects(&mut self.policies);
        sort_objects(&mut self.groups);
        sort_objects(&mut self.schedules);
        self.objects.sort_by(|a, b| a.facts.key.cmp(&b.facts.key));
        self.added_kinds.sort();
    }

    /// Adds an object, or edits the one of its key, which keeps its age. A new one is younger than all others.
    pub fn put_object(&mut self, mut object: SourceObject) {
        match self.objects.iter_mut().find(|one| one.facts.key == object.facts.key) {
            Some(known) => {
                object.facts.created = known.facts.created;
                object.marked = std::mem::take(&mut known.marked);
                *known = object;
            }
            None => self.objects.push(object),
        }
    }

    /// Gives everything without an age one second less than the youngest has: it is created now.
    pub fn set_missing_ages(&mut self) {
        let ages = self.objects.iter().filter_map(|object| object.facts.created);
        let youngest = ages.max().unwrap_or(Timestamp::UNIX_EPOCH).as_second();
        let now = Timestamp::from_second(youngest.saturating_add(1)).unwrap_or(Timestamp::UNIX_EPOCH);
        for object in &mut self.objects {
            object.facts.created.get_or_insert(now);
        }
    }

    /// Adds a policy, or edits the one of its name, which keeps its age.
    pub fn put_policy(&mut self, mut policy: SchedulePolicy) {
        match self.policies.iter_mut().find(|one| name_of_object(*one) == name_of_object(&policy)) {
            Some(known) => {
                policy.metadata.creation_timestamp = known.metadata.creation_timestamp.take();
                *known = policy;
            }
            None => self.policies.push(policy),
        }
    }

    /// Sets the replicas of an object; returns whether it is one that has any.
    pub fn scale_object(&mut self, key: &ObjectKey, replicas: i64) -> bool {
        let found = self.objects.iter_mut().find(|one| one.facts.key == *key);
        let scaled = found.map(|object| &mut object.facts.workload).filter(|one| matches!(one, Workload::Replicas(_)));
        scaled.map(|workload| *workload = Workload::Replicas(replicas)).is_some()
    }

    /// Lets a cluster be lost: nothing new goes there, and what exists is kept as long as its policy keeps it.
    pub fn mark_cluster_lost(&mut self, name: &str) {
        for cluster in self.clusters.iter_mut().filter(|cluster| name_of_object(*cluster) == name) {
            let lost = Condition::new(conditions::READY, false, reasons::HEARTBEAT_LOST, "", Timestamp::UNIX_EPOCH);
            set_condition(&mut cluster.status.get_or_insert_default().conditions, lost);
        }
    }

    /// Lets nothing move if so many clusters that are lost at once are too many to be believed.
    pub fn freeze_by_losses(&mut self, lost: usize) {
        let ready = self.clusters.iter().filter(|cluster| live::is_ready(cluster)).count();
        self.frozen |= is_mass_loss(lost, ready);
    }

    /// Removes a cluster with all that is in it.
    pub fn remove_cluster(&mut self, name: &str) {
        let namespace = cluster_namespace(name);
        self.clusters.retain(|cluster| name_of_object(cluster) != name);
        self.reports.retain(|report| report.metadata.namespace.as_deref() != Some(&*namespace));
        self.schedules.retain(|schedule| schedule.metadata.namespace.as_deref() != Some(&*namespace));
    }

    /// Forgets where everything is: all is placed as if it were new.
    pub fn forget_placements(&mut self) {
        self.schedules.clear();
        self.objects.iter_mut().for_each(|object| object.marked.clear());
        self.groups.iter_mut().for_each(|group| group.status = None);
    }
}
