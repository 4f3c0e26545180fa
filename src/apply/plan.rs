//! The plan of an apply, made by reads alone: create, change, adopt, leave, prune.
//!
//! An object needs no write when we applied exactly this manifest before (digest in the record, same uid, no step of a
//! run that was interrupted) and every field of it is still in our `managedFields` entry, which the server takes away as soon
//! as anyone else changes one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::autoscaler::{self, Scaler};
use super::charts::Planned;
use super::claim_templates;
use super::conflict;
use super::delete::report::RefusedStep;
use super::delete::wait_deleted::PendingDeletion;
use super::engine::Engine;
use super::error::{Error, Foreign};
use super::step::{Action, Step};
use crate::api::kinds::Kind;
use crate::inventory::journal::{JournalStep, Undo};
use crate::inventory::owner::{INSTALL_LABEL, KEEP_ANNOTATION, NAMESPACE_CREATED_ANNOTATION};
use crate::inventory::record::{Item, Origin, Phase, Record, State, digest_manifest};
use crate::inventory::release::{Policy, Release, random_id};
use crate::k8s::managed_fields;
use crate::k8s::object::{ObjectRef, object_annotation, object_label, object_uid, text_at};
use crate::k8s::request::server::{Selection, Server};

/// Time that a namespace that is being deleted is waited for.
const TERMINATING: Duration = Duration::from_secs(90);

/// The outcome of planning.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Every object, by stage and then in the order given.
    pub steps: Vec<Step>,
    /// Objects of the record that are planned no more, to be deleted.
    pub prune: Vec<Item>,
    /// Objects that are in the way. An apply refuses when there are any, unless adopting is allowed.
    pub foreign: Vec<Foreign>,
    /// Objects of others that will be taken over, which was allowed.
    pub adopted: Vec<Foreign>,
    /// Release that will be recorded; none for a part of an installation.
    pub release: Option<Release>,
    /// Steps of a journal that no run of this owner can have written. They are dropped from it.
    pub(crate) refused: Vec<RefusedStep>,
    /// Record, journal and lock in the cluster when the plan was made.
    pub state: State,
    /// The uid of the installation: found, or new.
    pub(crate) install_uid: String,
    /// True if the record itself would change.
    pub(crate) record_changes: bool,
}

impl Plan {
    /// Returns whether there is nothing to write: an apply of this plan makes no write request of any kind.
    pub fn is_noop(&self) -> bool {
        self.count_writes() == 0 && self.prune.is_empty() && !self.record_changes
    }

    /// The number of objects that would be written.
    pub fn count_writes(&self) -> usize {
        self.steps.iter().filter(|step| step.action.is_write()).count()
    }

    /// The number of objects with an action.
    pub fn count_steps(&self, action: Action) -> usize {
        self.steps.iter().filter(|step| step.action == action).count()
    }

    /// The number of objects that are ours by their labels alone, because the record is lost: neither it nor the journal of
    /// a run that has begun knows of them.
    pub fn found_by_labels(&self) -> usize {
        // A namespace of ours proves no record: it is made before there is one.
        let ours = self.steps.iter().filter(|step| {
            step.action == Action::Change
                && !step.target.is_kind("", "Namespace")
                && self.state.journal.as_ref().is_none_or(|journal| journal.find_step(&step.target).is_none())
        });
        if self.state.record.is_none() { ours.count() } else { 0 }
    }

    /// Returns notes on what objects will not have of their manifests, for people.
    pub fn collect_omissions(&self) -> Vec<String> {
        let notes = self
            .steps
            .iter()
            .flat_map(|step| step.describe_omissions().map(move |note| format!("{}: {note}", step.target)));
        notes.collect()
    }

    /// The same plan, made of what was read from an earlier look on: [`Engine::begin_run`] refuses it when the record was written
    /// since then, and not only since the plan was made.
    #[must_use]
    pub fn with_base_state(mut self, earlier: &State) -> Self {
        self.state.version.clone_from(&earlier.version);
        self
    }

    /// The stages, ascending.
    pub fn stages(&self) -> Vec<u32> {
        self.steps.iter().map(|step| step.stage).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Engine {
    /// Plans a whole installation: what is recorded and not among `objects` will be pruned.
    ///
    /// # Errors
    /// Inputs without kind or name, a record that cannot be read, or a read that the server refuses.
    pub async fn plan_install(&self, release: &Release, objects: &[Planned]) -> Result<Plan, Error> {
        let mut plan = self.compare_objects(objects).await?;
        let planned: BTreeSet<&ObjectRef> = plan.steps.iter().map(|step| &step.target).collect();
        if let Some(record) = &plan.state.record {
            plan.prune = record
                .inventory
                .iter()
                .filter(|i| is_prunable_item(i) && !planned.contains(&i.object))
                .cloned()
                .collect();
        }
        let begun = self.find_begun_objects(&plan.state, &planned).await?;
        if plan.found_by_labels() > 0 || changes_unrecorded(&plan.state) {
            plan.prune = self.find_unrecorded_objects(&plan.state, &planned).await?;
        }
        let known: BTreeSet<ObjectRef> = plan.prune.iter().map(|item| item.object.clone()).collect();
        plan.prune.extend(begun.into_iter().filter(|item| !known.contains(&item.object)));
        plan.record_changes = plan.state.journal.is_some()
            || plan.state.record.as_ref().is_none_or(|r| r.phase != Phase::Installed || r.release != *release);
        plan.release = Some(release.clone());
        Ok(plan)
    }

    /// Returns the prunable objects of an installation whose record is lost that these inputs do not hold, found by
    /// their labels.
    async fn find_unrecorded_objects(&self, state: &State, planned: &BTreeSet<&ObjectRef>) -> Result<Vec<Item>, Error> {
        let found = self.find_labelled(&self.server(), state).await?.ours.into_iter();
        let items = found.filter(|found| !planned.contains(&found.object)).map(|found| Item {
            uid: object_uid(&found.live).to_owned(),
            object: found.object,
            origin: Origin::Created,
            policy: if object_annotation(&found.live, KEEP_ANNOTATION).is_some() {
                Policy::Keep
            } else {
                Policy::Delete
            },
            digest: String::new(),
            fields: 0,
        });
        Ok(items.filter(is_prunable_item).collect())
    }

    /// Returns the prunable objects that an interrupted run has made and these inputs do not hold: no record knows of
    /// them yet.
    async fn find_begun_objects(&self, state: &State, planned: &BTreeSet<&ObjectRef>) -> Result<Vec<Item>, Error> {
        let server = self.server();
        let made = state.journal.iter().flat_map(|journal| &journal.steps).filter(|step| step.undo == Undo::Delete);
        let mut items = Vec::new();
        for step in made.filter(|step| !planned.contains(&step.object)) {
            let object = &step.object;
            let Some(live) = metadata_of(&server, step).await? else { continue };
            let item = Item {
                object: object.clone(),
                uid: object_uid(&live).to_owned(),
                origin: Origin::Created,
                policy: step.policy,
                digest: String::new(),
                fields: 0,
            };
            items.extend(Some(item).filter(|item| is_prunable_item(item) && self.is_ours(&live, object, state)));
        }
        Ok(items)
    }

    /// Plans objects that are a part of an installation: nothing is pruned, and the record is not completed.
    ///
    /// # Errors
    /// As [`Engine::plan_install`].
    pub async fn plan_part(&self, objects: &[Planned]) -> Result<Plan, Error> {
        self.compare_objects(objects).await
    }

    async fn compare_objects(&self, objects: &[Planned]) -> Result<Plan, Error> {
        let server = self.server();
        let namespaces = Kind::from_table("", "Namespace");
        let (state, namespace) = futures::try_join!(self.state_of(&server), async {
            let found = server.get_metadata(&namespaces, None, &self.owner.namespace).await;
            found.map_err(|e| Error::from_api_error(format!("read Namespace {}", self.owner.namespace), e))
        })?;
        let (state, namespace) = match namespace {
            // What is in it goes with it: there is nothing to compare with until it is gone.
            Some(live) if text_at(&live, "/metadata/deletionTimestamp").is_some() => {
                self.namespace_gone(&server, &live).await?;
                (State::default(), None)
            }
            namespace => (state, namespace),
        };
        let refused = state.journal.as_ref().map(|journal| self.find_refused_steps(journal)).unwrap_or_default();
        let state = self.discard_untrusted_steps(state);
        let install_uid = known_install_uid(&state, namespace.as_ref().filter(|n| self.owner.has_owner_labels(n)))
            .unwrap_or_else(random_id);
        let mut steps = self.plan_steps(&server, objects).await?;
        let live = self.read_live_metadata(&server, &steps, namespace.as_ref()).await?;
        let mut scalers = autoscaler::find_scalers(&server, &live).await;
        let (mut foreign, mut adopted) = (Vec::new(), Vec::new());
        for step in &mut steps {
            step.live = live.get(&step.target).cloned();
            if step.target.is_kind("", "Namespace") {
                let ours = step.live.as_ref().is_none_or(|live| self.owner.has_owner_labels(live) && is_made(live));
                if !ours {
                    step.action = Action::Leave;
                    continue;
                }
                step.manifest["metadata"]["annotations"][NAMESPACE_CREATED_ANNOTATION] = install_uid.clone().into();
            }
            self.let_go(step, scalers.remove(&step.target));
            step.digest = digest_manifest(&install_uid, &step.manifest);
            let Some(live) = &step.live else { continue };
            if text_at(live, "/metadata/deletionTimestamp").is_some() {
                continue;
            }
            if !self.is_ours(live, &step.target, &state) {
                step.action = Action::Adopt;
                let install = self.other_install(live);
                let others = install.is_some() || !self.options.adopt;
                let list = if others { &mut foreign } else { &mut adopted };
                list.push(Foreign {
                    object: step.target.clone(),
                    managers: managed_fields::list_managers(live),
                    install,
                });
                continue;
            }
            let recorded = state.record.as_ref().and_then(|record| record.find_item(&step.target));
            // What a run that did not end has written, or was about to, is not what the record says.
            let begun = state.journal.as_ref().is_some_and(|journal| journal.find_step(&step.target).is_some());
            let same = !begun
                && recorded.is_some_and(|item| {
                    item.uid == object_uid(live) && item.digest == step.digest && item.policy == step.policy
                });
            step.drift = managed_fields::owned_entry(live)
                .map(|ours| managed_fields::not_owned(&step.manifest, ours))
                .unwrap_or_default();
            if step.target.is_secret() && managed_fields::is_of_keys(live) {
                // What a renewal wrote is taken as it is: the keys that are rendered were read from there.
                step.drift.retain(|path| !path.starts_with(".data"));
            }
            let intact = managed_fields::owned_entry(live).is_some() && step.drift.is_empty();
            step.action = if same && intact { Action::Unchanged } else { Action::Change };
        }
        for step in steps.iter_mut().filter(|step| matches!(step.action, Action::Adopt | Action::Change)) {
            let recorded = state.record.as_ref().and_then(|record| record.find_item(&step.target));
            if recorded.is_none_or(|item| item.origin == Origin::Adopted) {
                claim_templates::keep_metadata(&server, step).await?;
            }
        }
        steps.sort_by_key(|step| step.stage);
        Ok(Plan {
            steps,
            prune: Vec::new(),
            foreign,
            adopted,
            release: None,
            refused,
            install_uid,
            record_changes: false,
            state,
        })
    }

    /// Leaves the number of replicas to the autoscaler of the object, unless the user wants it back.
    fn let_go(&self, step: &mut Step, scaler: Option<Scaler>) {
        let is_ours = conflict::may_take_field(&step.target, managed_fields::REPLICAS, &self.options.take_fields);
        let Some(scaler) = scaler.filter(|_| !is_ours) else { return };
        let Some(spec) = step.manifest["spec"].as_object_mut().filter(|spec| spec.contains_key("replicas")) else {
            return;
        };
        if scaler.is_replica_owner() {
            spec.remove("replicas");
        }
        step.scaler = Some(scaler);
    }

    async fn namespace_gone(&self, server: &Server, live: &Value) -> Result<(), Error> {
        let kind = Kind::from_table("", "Namespace");
        let object = ObjectRef::new(&kind, None, &self.owner.namespace);
        let end = Instant::now() + TERMINATING;
        let end = self.options.deadline.map_or(end, |deadline| deadline.min(end));
        self.wait_gone(server, vec![PendingDeletion { kind, object, uid: object_uid(live).to_owned() }], end).await
    }

    pub(super) async fn plan_steps(&self, server: &Server, objects: &[Planned]) -> Result<Vec<Step>, Error> {
        let mut kinds: HashMap<(String, String), Kind> = HashMap::new();
        let mut steps = Vec::with_capacity(objects.len());
        let mut seen = BTreeSet::new();
        for planned in objects {
            let [api_version, kind, name] = ["/apiVersion", "/kind", "/metadata/name"]
                .map(|pointer| text_at(&planned.object, pointer).unwrap_or_default().to_owned());
            let key = (api_version.clone(), kind);
            if api_version.is_empty() || key.1.is_empty() || name.is_empty() {
                return Err(Error::Input(format!(
                    "it needs apiVersion, kind and metadata.name (has `{api_version}`, `{}`, `{name}`)",
                    key.1
                )));
            }
            let kind = if let Some(kind) = kinds.get(&key) {
                kind.clone()
            } else {
                let kind = server.kind_of(&key.0, &key.1).await;
                let kind =
                    kind.map_err(|e| Error::from_api_error(format!("find the kind {} of {}", key.1, key.0), e))?;
                kinds.insert(key, kind.clone());
                kind
            };
            let mut manifest = planned.object.clone();
            if kind.namespaced && text_at(&manifest, "/metadata/namespace").is_none() {
                manifest["metadata"]["namespace"] = self.owner.namespace.clone().into();
            }
            self.owner.set_owner_labels(&mut manifest);
            if planned.policy == Policy::Keep {
                manifest["metadata"]["annotations"][KEEP_ANNOTATION] = json!("true");
            }
            let target = ObjectRef::new(&kind, text_at(&manifest, "/metadata/namespace"), &name);
            if !seen.insert(target.clone()) {
                return Err(Error::Input(format!("{target} is given twice")));
            }
            steps.push(Step {
                stage: planned.stage,
                kind,
                target,
                manifest,
                policy: planned.policy,
                action: Action::Create,
                drift: Vec::new(),
                live: None,
                digest: String::new(),
                scaler: None,
                unset: Vec::new(),
            });
        }
        Ok(steps)
    }

    /// The metadata of what exists: one list a kind and namespace, or one read where only one object is asked for.
    ///
    /// Cluster-scoped objects are read one by one: lists of those hold everybody's.
    async fn read_live_metadata(
        &self,
        server: &Server,
        steps: &[Step],
        namespace: Option<&Value>,
    ) -> Result<BTreeMap<ObjectRef, Value>, Error> {
        let mut groups: BTreeMap<(&Kind, Option<&str>), Vec<&ObjectRef>> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for step in steps {
            let place = step.target.namespace.as_deref();
            if step.target.is_kind("", "Namespace") && step.target.name == self.owner.namespace {
                found.extend(namespace.map(|live| (step.target.clone(), live.clone())));
            } else if place == Some(&self.owner.namespace) && namespace.is_none() {
                // Nothing can be in a namespace that is not there.
            } else {
                groups.entry((&step.kind, place)).or_default().push(&step.target);
            }
        }
        let reads = groups.into_iter().flat_map(|((kind, place), targets)| {
            let single = place.is_none() || targets.len() == 1;
            if single {
                targets.into_iter().map(|target| (kind, place, Some(target))).collect::<Vec<_>>()
            } else {
                vec![(kind, place, None)]
            }
        });
        let answers: Vec<Vec<Value>> = stream::iter(reads)
            .map(|(kind, place, target)| async move {
                let answer = match target {
                    Some(target) => {
                        server.get_metadata(kind, place, &target.name).await.map(|o| o.into_iter().collect())
                    }
                    None => {
                        server
                            .list_objects(
                                kind,
                                &Selection { namespace: place, metadata_only: true, ..Selection::default() },
                            )
                            .await
                    }
                };
                answer.map_err(|e| Error::from_api_error(format!("read {}", kind.plural), e))
            })
            .buffer_unordered(self.options.parallel)
            .try_collect()
            .await?;
        let wanted: BTreeSet<&ObjectRef> = steps.iter().map(|step| &step.target).collect();
        for object in answers.into_iter().flatten() {
            if let Some(reference) = ObjectRef::of(&object).filter(|reference| wanted.contains(reference)) {
                found.insert(reference, object);
            }
        }
        Ok(found)
    }

    /// The other installation that an object which is not ours belongs to, if it names one. Labels of this one say nothing,
    /// for `template` prints them too; those of one with the same name in another namespace name another set.
    fn other_install(&self, live: &Value) -> Option<String> {
        let name = object_label(live, INSTALL_LABEL)?;
        (name != self.owner.name || self.owner.is_of_another_set(live)).then(|| name.to_owned())
    }

    /// Returns whether a live object (or its metadata) is ours: by labels together with our apply entry or that of who makes
    /// keys for us inside the cluster, or by record and uid.
    ///
    /// Anyone who may write in the owner's namespace can change the record. So an entry about an object elsewhere
    /// counts only if the object has our apply entry and belongs to no other installation: this cannot be forged
    /// without the right to write that object.
    pub(crate) fn is_ours(&self, live: &Value, target: &ObjectRef, state: &State) -> bool {
        let applied = managed_fields::owned_entry(live).is_some() || managed_fields::is_of_keys(live);
        let labelled = self.owner.has_owner_labels(live);
        let here = target.namespace.as_ref() == Some(&self.owner.namespace);
        labelled && applied
            || (here || applied && self.other_install(live).is_none())
                && state.record.as_ref().is_some_and(|record| record.has_object(target, object_uid(live)))
    }
}

/// The metadata of what a step is about, where it is there.
pub(super) async fn metadata_of(server: &Server, step: &JournalStep) -> Result<Option<Value>, Error> {
    let object = &step.object;
    let kind = match server.kind_of(&step.api_version, &object.kind).await {
        Ok(kind) => kind,
        // The definition of the kind was never made, or is gone, and its objects with it.
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(Error::for_object("find the kind of", object, error)),
    };
    let live = server.get_metadata(&kind, object.namespace.as_deref(), &object.name).await;
    live.map_err(|e| Error::for_object("read", object, e))
}

/// Returns whether the run that has begun changes what no record knows of: it was lost before.
fn changes_unrecorded(state: &State) -> bool {
    let changed =
        |step: &JournalStep| matches!(step.undo, Undo::Reapply { .. }) && !step.object.is_kind("", "Namespace");
    state.record.is_none() && state.journal.iter().flat_map(|journal| &journal.steps).any(changed)
}

/// Returns whether an object may be pruned: never data, keys, definitions, or a namespace.
fn is_prunable_item(item: &Item) -> bool {
    item.policy == Policy::Delete
        && !item.object.is_kind("", "Namespace")
        && !item.object.is_kind("", "PersistentVolumeClaim")
        && !item.object.is_kind("apiextensions.k8s.io", "CustomResourceDefinition")
}

fn known_install_uid(state: &State, namespace: Option<&Value>) -> Option<String> {
    let record = state.record.as_ref().map(|record: &Record| record.install_uid.clone());
    record
        .or_else(|| state.journal.as_ref().map(|journal| journal.install_uid.clone()))
        .or_else(|| namespace.and_then(|n| object_annotation(n, NAMESPACE_CREATED_ANNOTATION)).map(str::to_owned))
}

/// Returns whether a namespace with our labels was made by an install of this owner. The namespace itself says so: its
/// annotations take more rights than the record in it. Of two first installs at the same moment the annotation may name
/// either.
pub(crate) fn is_made(namespace: &Value) -> bool {
    object_annotation(namespace, NAMESPACE_CREATED_ANNOTATION).is_some_and(|install_uid| !install_uid.is_empty())
}
