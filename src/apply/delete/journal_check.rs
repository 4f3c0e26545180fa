//! Check of the steps of a journal: whether each may be undone, and the source of the former state. The journal lies in
//! a Secret, and on disk, and may be forged.
//!
//! A step has to name an object that some chart renders for this owner, and nothing in it may lead to another one. Former
//! values are taken from it for a closed list of kinds only. What grants rights or runs programs is rendered again from the
//! recorded release, unless this very process wrote the step, or the journal file on this machine confirms it.

use serde_json::Value;

use super::report::RefusedStep;
use crate::api::kinds::{Kind, split_api_version};
use crate::api::util::text::visible_line;
use crate::apply::adopt;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory::journal::{Journal, JournalStep, Theirs, Undo};
use crate::inventory::journal_file::LocalJournal;
use crate::inventory::owner::Owner;
use crate::inventory::record::State;
use crate::k8s::object::{ObjectRef, text_at};

/// Kinds whose former values may come from a journal that anybody with the namespace's Secrets can write. They grant no
/// rights, run nothing, and lie in the owner's namespace.
const FROM_JOURNAL: [(&str, &str); 5] = [
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
];

/// The most steps that an undo looks at. A run writes one an object, and the largest chart has some thirty.
const MOST_STEPS: usize = 1000;

/// Source of the former state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The journal.
    Journal,
    /// The recorded release, rendered again.
    Release,
    /// No source: our fields go, and former values that others had there do not come back.
    Nothing,
}

impl JournalStep {
    /// The source of the state before this step; [`Undo::Delete`] needs none.
    pub(crate) fn restore_source(&self) -> Source {
        let from_journal = FROM_JOURNAL.iter().any(|(group, kind)| self.object.is_kind(group, kind));
        match &self.undo {
            _ if self.witnessed || from_journal => Source::Journal,
            Undo::Release { .. } => Source::Nothing,
            Undo::Delete | Undo::Reapply { .. } | Undo::Recreate { .. } => Source::Release,
        }
    }

    /// Returns whether the values in it may be neither believed nor passed on as if they were this machine's own.
    pub(crate) fn is_hearsay(&self) -> bool {
        self.undo != Undo::Delete && self.restore_source() != Source::Journal
    }

    /// Returns the reason that nothing of the step can be undone, as a clause; none for a step that a run of this owner
    /// may have written.
    fn explain_refusal(&self, owner: &Owner, renderable: &crate::apply::Renderable) -> Option<String> {
        let object = &self.object;
        if let Some(why) = renderable.explain_not_rendered(object) {
            return Some(why);
        }
        if split_api_version(&self.api_version).0 != object.group
            || Kind::find_known_kind(&self.api_version, &object.kind)
                .is_none_or(|kind| kind.namespaced != object.namespace.is_some())
        {
            return Some(format!("its API version is not `{}`", visible_line(&self.api_version)));
        }
        let (sound, entries): (bool, &[Value]) = match &self.undo {
            Undo::Delete => (true, &[]),
            Undo::Reapply { patch, theirs } => {
                (self.is_about(patch) && theirs.as_ref().is_none_or(|Theirs { patch, .. }| self.is_about(patch)), &[])
            }
            Undo::Release { patch, entries } => (self.is_about(patch), entries),
            Undo::Recreate { manifest } if manifest.is_null() => (true, &[]),
            Undo::Recreate { manifest } if ObjectRef::of(manifest).as_ref() != Some(object) => (false, &[]),
            Undo::Recreate { manifest } if !owner.has_owner_labels(manifest) => {
                return Some(
                    "the object that it would create does not have the labels of this installation".to_owned(),
                );
            }
            Undo::Recreate { manifest } => (self.is_about(manifest), &[]),
        };
        if !sound {
            return Some("it names one object, but would write to another".to_owned());
        }
        (!entries.iter().all(adopt::is_tool))
            .then(|| "it returns fields to a field manager that is neither kubectl nor Helm".to_owned())
    }

    /// Returns whether a patch, or a manifest, leaves the identity of the object alone.
    fn is_about(&self, patch: &Value) -> bool {
        (patch.is_null() || patch.is_object())
            && is_field_unchanged(patch, "/apiVersion", Some(&self.api_version))
            && is_field_unchanged(patch, "/kind", Some(&self.object.kind))
            && is_field_unchanged(patch, "/metadata/name", Some(&self.object.name))
            && is_field_unchanged(patch, "/metadata/namespace", self.object.namespace.as_deref())
            && patch.get("metadata").is_none_or(Value::is_object)
            && ["uid", "ownerReferences", "managedFields", "generateName"]
                .iter()
                .all(|field| patch.get("metadata").is_none_or(|metadata| metadata.get(field).is_none()))
    }
}

/// Returns true where a patch does not have a field, or has it as it is known.
fn is_field_unchanged(patch: &Value, pointer: &str, known: Option<&str>) -> bool {
    patch.pointer(pointer).is_none_or(|value| value.as_str() == known && known.is_some())
}

impl Engine {
    /// The steps of a journal that no run of this owner can have written.
    pub(crate) fn find_refused_steps(&self, journal: &Journal) -> Vec<RefusedStep> {
        let renderable = self.options.charts.renderable_objects();
        let steps = journal.steps.iter();
        steps
            .filter_map(|step| {
                let why = step.explain_refusal(&self.owner, renderable)?;
                Some(RefusedStep { object: step.object.clone(), why })
            })
            .collect()
    }

    /// Refuses a journal with steps that no run of this owner can have written.
    ///
    /// # Errors
    /// [`Error::JournalRefused`]; nothing was written.
    pub(crate) fn check_journal_steps(&self, journal: Option<&Journal>) -> Result<(), Error> {
        let Some(journal) = journal else { return Ok(()) };
        let mut steps = self.find_refused_steps(journal);
        if let Some(step) = journal.steps.get(MOST_STEPS) {
            let why = format!("a run has at most {MOST_STEPS} steps, but the journal has {}", journal.steps.len());
            steps.insert(0, RefusedStep { object: step.object.clone(), why });
        }
        if steps.is_empty() {
            return Ok(());
        }
        Err(Error::JournalRefused {
            name: self.owner.record_name(),
            namespace: self.owner.namespace.clone(),
            from_copy: journal.from_copy,
            steps,
        })
    }

    /// The state without the steps that no run of this owner can have written; and those that the journal file on this
    /// machine confirms are known as such.
    pub fn discard_untrusted_steps(&self, mut state: State) -> State {
        if let Some(journal) = &mut state.journal {
            let refused = self.find_refused_steps(journal);
            journal.steps.truncate(MOST_STEPS);
            journal.steps.retain(|step| !refused.iter().any(|refused| refused.object == step.object));
            // Whoever goes on with this journal writes the file too, and is told then why it cannot be used.
            let _ = self.confirm_local_steps(journal);
        }
        state
    }

    /// Marks the steps that the journal file on this machine has word for word, and adds the claims that it knows of.
    ///
    /// # Errors
    /// [`crate::inventory::Error::File`] where there may be such a file and it cannot be read.
    pub(crate) fn confirm_local_steps(&self, journal: &mut Journal) -> Result<(), Error> {
        let Some(path) = self.options.journal.as_deref() else { return Ok(()) };
        let Some(copy) = LocalJournal::read_journal_file(path)? else { return Ok(()) };
        if copy.install_uid != journal.install_uid {
            return Ok(());
        }
        for step in &mut journal.steps {
            step.witnessed |= copy.steps.iter().any(|known| known.says_the_same(step));
        }
        let unknown: Vec<String> = copy.claims.into_iter().filter(|claim| !journal.claims.contains(claim)).collect();
        journal.claims.extend(unknown);
        Ok(())
    }
}

/// Reason that an object of a journal is not changed: it does not belong to this installation.
pub(crate) const FOREIGN: &str = "it does not belong to this installation, so it is not changed";

/// Reason that an object is kept although the journal says that its run created or adopted it.
pub(crate) const RECORDED: &str = "it was recorded before that run, so that run did not create it";

impl State {
    /// Returns whether a step out of a cluster says that its run made or adopted an object which the record has with
    /// that uid: the record is of an earlier run.
    pub(crate) fn is_recorded_earlier(&self, step: &JournalStep, uid: &str) -> bool {
        !step.witnessed
            && matches!(step.undo, Undo::Delete | Undo::Release { .. })
            && self.record.as_ref().is_some_and(|record| record.has_object(&step.object, uid))
    }
}

/// Returns whether a manifest names exactly this object.
pub(crate) fn is_manifest_of(manifest: &Value, kind: &Kind, target: &ObjectRef) -> bool {
    ObjectRef::of(manifest).as_ref() == Some(target) && text_at(manifest, "/apiVersion") == Some(&kind.api_version())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::Renderable;
    use crate::inventory::Policy;

    fn owner() -> Owner {
        Owner::new("control-plane", "demo", "fleet")
    }

    fn map() -> ObjectRef {
        ObjectRef::new(&Kind::from_table("", "ConfigMap"), Some("fleet"), "config")
    }

    fn step(object: ObjectRef, api_version: &str, undo: Undo) -> JournalStep {
        let (uid, policy) = (String::new(), Policy::Delete);
        JournalStep { object, api_version: api_version.to_owned(), policy, uid, witnessed: false, undo }
    }

    fn renderable() -> Renderable {
        let role = ObjectRef::new(&Kind::from_table("rbac.authorization.k8s.io", "ClusterRole"), None, "fleet-agent");
        [map(), role].into_iter().collect()
    }

    fn reapply(patch: Value) -> Undo {
        Undo::Reapply { patch, theirs: None }
    }

    fn undo_by_release(patch: Value, entries: Vec<Value>) -> Undo {
        Undo::Release { patch, entries }
    }

    #[test]
    fn a_step_is_about_one_object_that_a_chart_renders() {
        let mut whole =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": "fleet"}});
        let tool = json!({"manager": "helm", "operation": "Apply"});
        let data = json!({"data": {"a": "1"}, "metadata": {"labels": {"x": null}}});
        let unlabelled = Undo::Recreate { manifest: whole.clone() };
        let mut other = whole.clone();
        other["metadata"]["name"] = "other".into();
        owner().set_owner_labels(&mut whole);
        for undo in [
            Undo::Delete,
            reapply(data.clone()),
            reapply(Value::Null),
            undo_by_release(whole.clone(), vec![tool.clone()]),
            undo_by_release(json!({}), Vec::new()),
            Undo::Recreate { manifest: whole.clone() },
            Undo::Recreate { manifest: Value::Null },
        ] {
            assert_eq!(step(map(), "v1", undo.clone()).explain_refusal(&owner(), &renderable()), None, "{undo:?}");
        }
        let theirs = Theirs { manager: "kubectl".to_owned(), patch: json!({"metadata": {"namespace": "kube-system"}}) };
        let forged = json!({"manager": "kube-controller-manager", "operation": "Update"});
        for (undo, why) in [
            (reapply(json!({"metadata": {"name": "other"}})), "another"),
            (reapply(json!({"metadata": {"namespace": "kube-system"}})), "another"),
            (reapply(json!({"metadata": {"namespace": null}})), "another"),
            (reapply(json!({"metadata": "x"})), "another"),
            (reapply(json!({"kind": "Secret"})), "another"),
            (reapply(json!({"apiVersion": "apps/v1"})), "another"),
            (reapply(json!([1])), "another"),
            (reapply(json!({"metadata": {"ownerReferences": []}})), "another"),
            (Undo::Reapply { patch: data.clone(), theirs: Some(theirs) }, "another"),
            (undo_by_release(other.clone(), Vec::new()), "another"),
            (undo_by_release(json!({}), vec![tool, forged]), "neither kubectl nor Helm"),
            (Undo::Recreate { manifest: other }, "another"),
            (Undo::Recreate { manifest: json!({}) }, "another"),
            (unlabelled, "labels"),
        ] {
            let refusal = step(map(), "v1", undo.clone()).explain_refusal(&owner(), &renderable());
            assert!(refusal.as_ref().is_some_and(|refusal| refusal.contains(why)), "{undo:?}: {refusal:?}");
        }
        // A version of another group would lead to another kind.
        for version in ["rbac.authorization.k8s.io/v1", "apps/v1", "v2", ""] {
            assert!(step(map(), version, Undo::Delete).explain_refusal(&owner(), &renderable()).is_some(), "{version}");
        }
    }

    #[test]
    fn former_values_are_taken_from_a_journal_for_a_closed_list_of_kinds_or_where_this_machine_knows_them() {
        for kind in Kind::all_kinds() {
            let object = ObjectRef::new(&kind, Some("fleet"), "x");
            let listed = FROM_JOURNAL.iter().any(|(group, name)| object.is_kind(group, name));
            let mut changed = step(object.clone(), &kind.api_version(), reapply(json!({})));
            let mut adopted =
                step(object, &kind.api_version(), Undo::Release { patch: json!({}), entries: Vec::new() });
            assert_eq!(changed.restore_source() == Source::Journal, listed, "{kind:?}");
            assert_eq!(
                (changed.is_hearsay(), adopted.restore_source() == Source::Journal),
                (!listed, listed),
                "{kind:?}"
            );
            let grants =
                kind.group.contains("rbac") || kind.group.contains("admission") || kind.kind.contains("CustomResource");
            let runs = matches!(kind.group.as_ref(), "apps" | "batch") || kind.kind == "Pod";
            let of_the_cluster = !kind.namespaced;
            assert!(!(listed && (grants || runs || of_the_cluster)), "{kind:?}");
            changed.witnessed = true;
            adopted.witnessed = true;
            assert_eq!([changed.restore_source(), adopted.restore_source()], [Source::Journal; 2], "{kind:?}");
        }
    }

    /// Whether a step of a journal is confirmed by the file, and the claims that are known then.
    fn confirm_step(engine: &Engine, known: &Journal, install_uid: &str, step: &JournalStep) -> (bool, Vec<String>) {
        let mut journal = Journal { install_uid: install_uid.to_owned(), steps: vec![step.clone()], ..known.clone() };
        engine.confirm_local_steps(&mut journal).unwrap();
        (journal.steps[0].witnessed, journal.claims)
    }

    #[test]
    fn what_a_journal_in_a_cluster_says_is_confirmed_by_the_file_on_this_machine_word_for_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let object = ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some("fleet"), "d");
        let honest = step(object.clone(), "apps/v1", reapply(json!({"spec": {"replicas": 1}})));
        let mut known = Journal::new("install", "u");
        known.steps = vec![JournalStep { witnessed: true, ..honest.clone() }];
        let mut file = LocalJournal::open_journal_file(&path, &known).unwrap();
        file.append_claims(&["claim".to_owned()]).unwrap();
        file.append_steps(&known.steps).unwrap();
        let hearsay = step(object, "apps/v1", reapply(json!({"spec": {"replicas": 9}})));
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        let options = crate::apply::Options { journal: Some(path.clone()), ..crate::apply::Options::default() };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let guard = runtime.enter();
        let engine = Engine::new(kube::Client::new(service, "fleet"), owner(), options, crate::k8s::Events::none());
        drop(guard);
        assert_eq!(confirm_step(&engine, &known, "u", &honest), (true, vec!["claim".to_owned()]));
        assert_eq!(confirm_step(&engine, &known, "u", &hearsay), (false, vec!["claim".to_owned()]));
        assert_eq!(confirm_step(&engine, &known, "other", &honest), (false, Vec::new()));
        // What this process has from the cluster alone is no testimony when it is written down.
        file.append_steps(std::slice::from_ref(&hearsay)).unwrap();
        assert!(!confirm_step(&engine, &known, "u", &hearsay).0);
        // A file that cannot be read is not a file that is not there.
        fs_err::remove_file(&path).unwrap();
        fs_err::create_dir(&path).unwrap();
        let error = engine.confirm_local_steps(&mut known.clone()).unwrap_err();
        assert!(matches!(error, Error::Inventory(crate::inventory::Error::File { .. })), "{error:?}");
    }
}
