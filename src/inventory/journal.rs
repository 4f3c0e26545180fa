//! The journal of a run: each step with its undo, written before the write that it describes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::release::{Policy, Release};
use crate::k8s::object::ObjectRef;

/// The undo of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// It was not there: delete it.
    Delete,
    /// It had other fields of ours: the merge patch from what the run applies to what was applied before.
    Reapply {
        /// Merge patch (RFC 7396); null in the local file for Secrets.
        patch: Value,
        /// Values that somebody had set in fields of ours, and the run took back; none where nobody had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        theirs: Option<Theirs>,
    },
    /// It was there and not ours: release our fields, then merge these former values of fields taken from others.
    Release {
        /// Merge patch (RFC 7396), often empty; null in the local file for Secrets.
        patch: Value,
        /// The entries in `managedFields` of the tools from which it was taken over; none where they would not fit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        entries: Vec<Value>,
    },
    /// It was deleted: make it again from this manifest.
    Recreate {
        /// Without uid, status and other things the server adds; null in the local file for Secrets.
        manifest: Value,
    },
}

impl Undo {
    /// Returns whether its values are left out, as those of a Secret are in the copy on this machine.
    pub(crate) fn is_without_values(&self) -> bool {
        match self {
            Self::Reapply { patch, theirs } => {
                patch.is_null() || theirs.as_ref().is_some_and(|theirs| theirs.patch.is_null())
            }
            Self::Release { patch, .. } => patch.is_null(),
            Self::Recreate { manifest } => manifest.is_null(),
            Self::Delete => false,
        }
    }
}

/// Fields of ours as somebody else had set them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Theirs {
    /// The field manager who gets them back.
    pub manager: String,
    /// Merge patch (RFC 7396); null in the local file for Secrets.
    pub patch: Value,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalStep {
    /// The object.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// The version it is written in, which is the version of the undo.
    pub api_version: String,
    /// Deletion policy of the object.
    #[serde(default)]
    pub policy: Policy,
    /// The uid that the object had before the step; empty where it was not there, or where an older version wrote the step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Written by this very process, or confirmed by the journal file on this machine. What is read from a cluster is not.
    #[serde(skip)]
    pub witnessed: bool,
    /// The way back.
    #[serde(flatten)]
    pub undo: Undo,
}

impl JournalStep {
    /// Returns whether two steps are the same word for word, whoever wrote them.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let Self { object, api_version, policy, uid, undo, witnessed: _ } = self;
        (object, api_version, policy, uid, undo)
            == (&other.object, &other.api_version, &other.policy, &other.uid, &other.undo)
    }

    /// The name of the stateful set that the step makes.
    pub(crate) fn made_set(&self) -> Option<&str> {
        (self.undo == Undo::Delete && self.object.is_kind("apps", "StatefulSet")).then_some(&*self.object.name)
    }
}

/// The command of a run that removes the installation.
const REMOVAL: &str = "uninstall";

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Random id of the run.
    pub run: String,
    /// Command of the run: `install`, `uninstall`.
    pub command: String,
    /// Time at which it began, RFC 3339.
    pub started: String,
    /// The install uid, which the record may not have yet.
    pub install_uid: String,
    /// True if this run, or an interrupted one that it continues, made the namespace.
    #[serde(default)]
    pub namespace_created: bool,
    /// Uids of the volume claims that already existed the stateful sets that the run made: their data is not its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Read from the copy on a machine. That tells neither which claims were there before, nor what has become of the run
    /// since: an undo by it deletes no data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_copy: bool,
    /// Release that the run installs, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The writes, the first first.
    pub steps: Vec<JournalStep>,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(command: &str, install_uid: &str) -> Self {
        Self {
            run: super::release::random_id(),
            command: command.to_owned(),
            started: jiff::Timestamp::now().to_string(),
            install_uid: install_uid.to_owned(),
            namespace_created: false,
            claims: Vec::new(),
            from_copy: false,
            release: None,
            steps: Vec::new(),
        }
    }

    /// Returns whether the run removes the installation. What it has deleted is not recreated by an undo.
    pub fn is_removal(&self) -> bool {
        self.command == REMOVAL
    }

    /// Makes the run a removal.
    pub(crate) fn into_removal(mut self) -> Self {
        REMOVAL.clone_into(&mut self.command);
        self
    }

    /// The step of an object.
    pub fn find_step(&self, object: &ObjectRef) -> Option<&JournalStep> {
        self.steps.iter().find(|step| step.object == *object)
    }

    /// Returns whether this run, or an interrupted one that it continues, made an object.
    pub fn has_created(&self, object: &ObjectRef) -> bool {
        self.find_step(object).is_some_and(|step| step.undo == Undo::Delete)
    }

    /// Records steps that are about to be made.
    pub(crate) fn add_steps(&mut self, steps: &[JournalStep], release: Option<&Release>) {
        self.release = release.cloned().or_else(|| self.release.take());
        for step in steps {
            self.put_step(step.clone());
        }
    }

    /// Returns whether it is known from another place than the cluster that this journal's stateful sets were made by
    /// the run: only then is their data the run's own.
    pub(crate) fn made_data(&self) -> bool {
        let mut sets = self.steps.iter().filter(|step| step.made_set().is_some());
        !self.from_copy && sets.all(|step| step.witnessed)
    }

    /// Adds a step, or puts it in the place of the same object's: whoever made it has seen to it that it leads back to the
    /// state before the whole run as well.
    pub(crate) fn put_step(&mut self, step: JournalStep) {
        match self.steps.iter_mut().find(|known| known.object == step.object) {
            Some(known) => *known = step,
            None => self.steps.push(step),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::inventory) fn step(kind: &str, undo: Undo) -> JournalStep {
        let object =
            ObjectRef { group: String::new(), kind: kind.into(), namespace: Some("n".into()), name: "a".into() };
        let policy = Policy::Delete;
        JournalStep { object, api_version: "v1".into(), policy, uid: String::new(), witnessed: false, undo }
    }

    fn reapply_value(value: &str) -> Undo {
        Undo::Reapply { patch: json!({"data": {"a": value}}), theirs: None }
    }

    #[test]
    fn an_object_has_one_step_in_the_place_of_its_first() {
        let mut journal = Journal::new("install", "u");
        journal.put_step(step("ConfigMap", reapply_value("1")));
        journal.put_step(step("Service", Undo::Delete));
        journal.put_step(step("ConfigMap", reapply_value("2")));
        assert_eq!(
            journal.steps.iter().map(|step| &step.undo).collect::<Vec<_>>(),
            [&reapply_value("2"), &Undo::Delete]
        );
        assert!(journal.has_created(&journal.steps[1].object.clone()));
        let text = serde_json::to_string(&journal).unwrap();
        assert_eq!(serde_json::from_str::<Journal>(&text).unwrap(), journal);
    }
}
