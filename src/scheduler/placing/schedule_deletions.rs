//! Which Schedules are deleted, and which that are being deleted are let go. Nothing else decides it.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::availability::is_available_in;
use super::decide::Decided;
use super::events;
use super::faults::CopyFaults;
use super::group_context::GroupContext;
use super::mass_removal::cause::name_program;
use super::place::{Place, cluster_of};
use super::plan::Plan;
use super::schedule_diff::DesiredSchedule;
use super::source::Source;
use super::store::{Assignment, Store};
use super::write::{Address, RemovalClass, TargetMark, Write};
use crate::api::Schedule;
use crate::api::crd::condition::{self, Condition};
use crate::api::crd::schedule;
use crate::placement::facts::{Never, ObjectKey};
use crate::placement::live;
use crate::placement::live::source_key;

/// Schedules that there must be, by the object and the cluster.
struct Desired<'a>(BTreeSet<(&'a ObjectKey, &'a str)>);

impl<'a> Desired<'a> {
    fn new(desired: &'a [DesiredSchedule<'_>]) -> Self {
        Self(desired.iter().map(|one| (&one.source.facts.key, one.cluster)).collect())
    }

    /// Returns the deletions of an object's Schedules in clusters where it need not be. Namespaces stay: others
    /// need them, or the user has something in them.
    fn delete_others(
        &self,
        store: &Store,
        key: &ObjectKey,
        class: impl Fn(&ObjectKey, &Place) -> RemovalClass,
    ) -> Vec<Write> {
        if key.is_of_kind("", "Namespace") {
            return Vec::new();
        }
        let others = schedules_to_delete(store, key).filter(|(at, _)| !self.0.contains(&(key, cluster_of(at))));
        others.filter_map(|(at, schedule)| remove_schedule(store, key, (at, schedule), class(key, at).into())).collect()
    }
}

impl GroupContext<'_> {
    /// Returns the deletions of the group's Schedules, by member: those that need not be, once all that are needed are
    /// available; and those of namespaces in which nothing is left in a cluster that is being drained.
    pub(super) fn delete_schedules(&self, desired: &[DesiredSchedule<'_>], faults: &CopyFaults) -> Vec<Vec<Write>> {
        let Some(decided) = self.active_decision() else { return Vec::new() };
        let targets: BTreeSet<&str> = decided.targets.iter().map(|target| target.cluster.as_str()).collect();
        let members: Vec<&ObjectKey> = self.members.iter().filter(|key| !self.is_left(key)).copied().collect();
        let namespaces = members.iter().filter(|key| key.is_of_kind("", "Namespace"));
        let mut stages: Vec<Vec<Write>> =
            namespaces.map(|key| delete_drained_namespaces(self.store, key, &targets)).collect();
        if targets.is_empty() {
            return stages;
        }
        if self.is_available_in_targets(faults) {
            let desired = Desired::new(desired);
            stages.extend(
                members.iter().map(|key| desired.delete_others(self.store, key, |key, at| self.removal_class(key, at))),
            );
        } else {
            stages.extend(members.iter().map(|key| self.stop_drained(decided, key)));
        }
        stages
    }

    /// Returns the deletions of what runs once in clusters that are being drained: it is stopped before it begins elsewhere.
    fn stop_drained(&self, decided: &Decided, key: &ObjectKey) -> Vec<Write> {
        let begun = self.copies_to_finish(decided, key).into_iter();
        let drained = begun.filter(|(at, schedule)| {
            self.store.drained.contains(cluster_of(at)) && schedule.metadata.deletion_timestamp.is_none()
        });
        drained.filter_map(|copy| remove_schedule(self.store, key, copy, RemovalClass::Moved.into())).collect()
    }

    /// Plans the deletion of the object of a group without members, once nothing needs it.
    pub(super) fn plan_group_removal(&self) -> Plan {
        let mut plan = Plan::default();
        if let Some(group) = self.known.filter(|group| !self.store.is_needed(self.name, group)) {
            if self.store.has_unplanned_members(group) {
                return plan;
            }
            let uid = group.uid().unwrap_or_default();
            plan.push_stage(vec![Write::RemoveGroup { name: self.name.to_owned(), uid }]);
        }
        plan
    }
}

/// Returns the deletions of the Schedules of an object that is placed by annotation: those that need not be, once
/// it is available in all of its targets.
pub(super) fn delete_direct_schedules(
    store: &Store,
    key: &ObjectKey,
    desired: &[DesiredSchedule<'_>],
    targets: &[&str],
) -> Vec<Write> {
    let has_moved = store.assignments.get(key) == Some(&Assignment::Direct) && is_available_in(store, key, targets);
    // What its annotation names is left only by a drain.
    if has_moved { Desired::new(desired).delete_others(store, key, |_, _| RemovalClass::Asked) } else { Vec::new() }
}

/// Returns the deletions of the Schedules of a CronJob that need not be, before it begins where its annotation names: of
/// those whose Jobs have ended.
pub(super) fn delete_idle_schedules(store: &Store, key: &ObjectKey, desired: &[DesiredSchedule<'_>]) -> Vec<Write> {
    let needed: BTreeSet<&str> = desired.iter().map(|one| one.cluster).collect();
    let idle = schedules_to_delete(store, key)
        .filter(|(at, schedule)| !needed.contains(cluster_of(at)) && !live::has_old_pods(schedule));
    idle.filter_map(|copy| remove_schedule(store, key, copy, RemovalClass::Asked.into())).collect()
}

/// Returns whether a namespace is not kept in a cluster that is being drained: nothing of it is left there.
pub(super) fn is_drained_namespace(store: &Store, key: &ObjectKey, cluster: &str) -> bool {
    key.is_of_kind("", "Namespace") && store.drained.contains(cluster) && !store.is_inhabited(cluster, key.name())
}

/// Returns the deletions of the Schedules of a namespace in clusters that are being drained, except for those where an
/// annotation has `pinned` it.
pub(super) fn delete_drained_namespaces(store: &Store, key: &ObjectKey, pinned: &BTreeSet<&str>) -> Vec<Write> {
    let drained = schedules_to_delete(store, key).filter(|(at, _)| {
        let cluster = cluster_of(at);
        !pinned.contains(cluster) && is_drained_namespace(store, key, cluster)
    });
    drained.filter_map(|copy| remove_schedule(store, key, copy, RemovalClass::Moved.into())).collect()
}

/// Returns the deletions of the Schedules of a follower in a cluster where nothing uses it any more.
pub(super) fn delete_follower(store: &Store, key: &ObjectKey, cluster: &str) -> Vec<Write> {
    let there = schedules_to_delete(store, key).filter(|(at, _)| cluster_of(at) == cluster);
    there.filter_map(|copy| remove_schedule(store, key, copy, RemovalClass::Moved.into())).collect()
}

/// Returns the deletions of every Schedule of an object. Where the object is believed `gone`, each only if it is.
pub(super) fn delete_all_schedules(store: &Store, key: &ObjectKey, gone: bool) -> Vec<Write> {
    schedules_to_delete(store, key)
        .filter_map(|(at, schedule)| {
            let gone = gone.then(|| gone_source_address(store, schedule)).flatten();
            remove_schedule(store, key, (at, schedule), Removal { gone, ..RemovalClass::Asked.into() })
        })
        .collect()
}

/// Plans the deletion of what earlier versions have copied: a Namespace when nothing else is left in it in a cluster.
/// Copies with data are kept.
pub(super) fn plan_taking_back(store: &Store, source: &Source, never: Never) -> Plan {
    let key = &source.facts.key;
    let mut plan = Plan::default();
    plan.push_stage(release_schedules(store, key));
    let is_namespace = key.is_of_kind("", "Namespace");
    let there = schedules_to_delete(store, key)
        .filter(|(at, _)| !(source.facts.volumes || is_namespace && store.is_inhabited(cluster_of(at), key.name())));
    let writes =
        there.filter_map(|copy| remove_schedule(store, key, copy, RemovalClass::Caused(name_program()).into()));
    let writes: Vec<Write> = writes.collect();
    if !writes.is_empty() {
        let text = format!("its copies are deleted: it is never placed, because {}", never.format_never_reason());
        let event = events::event_about(source.address.event_reference(), true, "NeverPlaced", &text);
        plan.stages.extend([writes, vec![event]]);
    }
    if source.facts.volumes { plan } else { plan.with_label(source, TargetMark::default()) }
}

/// Returns the writes that let Schedules of an object go whose copies are gone.
pub(super) fn release_schedules(store: &Store, key: &ObjectKey) -> Vec<Write> {
    let released = store.copies_of(key).filter(|(_, schedule)| {
        let deleted = schedule
            .status
            .as_ref()
            .and_then(|s| condition::find_condition(&s.conditions, schedule::conditions::DELETED));
        let is_removed = schedule.metadata.deletion_timestamp.is_some() && deleted.is_some_and(Condition::is_true);
        // Until the source says that it ran to its end, only this Schedule knows.
        is_removed && !store.is_end_unreported(key, schedule)
    });
    released
        .map(|(at, schedule)| Write::Release {
            cluster: cluster_of(at).to_owned(),
            name: at.1.clone(),
            uid: schedule.uid().unwrap_or_default(),
        })
        .collect()
}

/// The Schedules of an object that are not being deleted yet.
fn schedules_to_delete<'a>(store: &'a Store, key: &ObjectKey) -> impl Iterator<Item = (&'a Place, &'a Schedule)> {
    store.copies_of(key).filter(|(_, schedule)| schedule.metadata.deletion_timestamp.is_none())
}

/// How a Schedule is deleted.
struct Removal {
    class: RemovalClass,
    /// The version in which alone it is.
    version: Option<String>,
    /// Its source, which is believed gone.
    gone: Option<Address>,
    /// Volumes may be left behind.
    has_consent: bool,
}

impl From<RemovalClass> for Removal {
    fn from(class: RemovalClass) -> Self {
        Self { class, version: None, gone: None, has_consent: false }
    }
}

/// Returns the deletion of a Schedule; `None` where the data of its source keeps it, or where it ran to its end and the
/// source does not say so yet: without that it would run again. Every deletion is made here, so that
/// nothing that leads to one loses data, and each has a class.
fn remove_schedule(
    store: &Store,
    key: &ObjectKey,
    (at, schedule): (&Place, &Schedule),
    removal: Removal,
) -> Option<Write> {
    let is_held = !removal.has_consent && store.is_kept_by_volumes(key, schedule);
    (!is_held && !store.is_end_unreported(key, schedule)).then(|| Write::RemoveSchedule {
        cluster: cluster_of(at).to_owned(),
        name: at.1.clone(),
        uid: schedule.uid().unwrap_or_default(),
        version: removal.version,
        gone: removal.gone,
        class: removal.class,
    })
}

/// Returns the deletion of a Schedule that a recorded group gives up, in the version that was seen; `None` where it is kept.
/// Consent to leave its volumes behind that was given when the move began holds to its end.
pub(super) fn remove_in_move(
    store: &Store,
    key: &ObjectKey,
    copy: (&Place, &Schedule),
    (class, has_consent): (RemovalClass, bool),
) -> Option<Write> {
    let version = copy.1.resource_version();
    remove_schedule(store, key, copy, Removal { class, version, gone: None, has_consent })
}

/// The source of a Schedule that is not there any more.
fn gone_source_address(store: &Store, schedule: &Schedule) -> Option<Address> {
    let source = &schedule.spec.source_ref;
    Some(Address {
        kind: store.kind_of(&source_key(source))?,
        namespace: source.namespace.clone(),
        name: source.name.clone(),
        uid: source.uid.clone(),
    })
}
