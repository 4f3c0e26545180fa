//! What a run has begun, with what undoes it: written before the write it describes, in the cluster and on disk.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Error;
use super::object::{ObjectRef, Policy};
use super::record::Release;
use crate::api::file;

/// What leads back to the state before a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// It was not there: delete it.
    Delete,
    /// It had other fields of ours: the merge patch from what the run applies to what was applied before.
    Reapply {
        /// RFC 7396; null in the local file for Secrets.
        patch: Value,
        /// What somebody had set in fields of ours, and the run took back; none where nobody had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        theirs: Option<Theirs>,
    },
    /// It was there and not ours: let go of our fields, then merge these former values of fields taken from others.
    Release {
        /// RFC 7396, often empty; null in the local file for Secrets.
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
    /// Whether it is of a Secret, and from the copy on this machine.
    pub(super) fn is_without_values(&self) -> bool {
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
    /// RFC 7396; null in the local file for Secrets.
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
    /// What an uninstall does with the object.
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
    /// Whether two steps are the same word for word, whoever wrote them.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let Self { object, api_version, policy, uid, undo, witnessed: _ } = self;
        (object, api_version, policy, uid, undo)
            == (&other.object, &other.api_version, &other.policy, &other.uid, &other.undo)
    }

    /// The name of the stateful set that the step makes.
    pub(crate) fn made_set(&self) -> Option<&str> {
        (self.undo == Undo::Delete && self.object.is("apps", "StatefulSet")).then_some(&*self.object.name)
    }
}

/// The command of a run that removes the installation.
const REMOVAL: &str = "uninstall";

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Random.
    pub run: String,
    /// What it does: `install`, `uninstall`.
    pub command: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The install uid, which the record may not have yet.
    pub install_uid: String,
    /// Whether this run, or a cut-off one that it continues, made the namespace.
    #[serde(default)]
    pub namespace_created: bool,
    /// Uids of the volume claims that were there before the stateful sets that the run made: their data is not its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// Read from the copy on a machine. That tells neither which claims were there before, nor what has become of the run
    /// since: an undo by it deletes no data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_copy: bool,
    /// What the run installs, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The writes, the first first.
    pub steps: Vec<JournalStep>,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(command: &str, install_uid: &str) -> Self {
        Self {
            run: super::record::random_id(),
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

    /// Whether the run removes the installation. What it has deleted is not made again by an undo.
    pub fn is_removal(&self) -> bool {
        self.command == REMOVAL
    }

    /// Makes the run a removal.
    pub(crate) fn into_removal(mut self) -> Self {
        REMOVAL.clone_into(&mut self.command);
        self
    }

    /// The step of an object.
    pub fn step(&self, object: &ObjectRef) -> Option<&JournalStep> {
        self.steps.iter().find(|step| step.object == *object)
    }

    /// Whether this run, or a cut-off one that it continues, made an object.
    pub fn created(&self, object: &ObjectRef) -> bool {
        self.step(object).is_some_and(|step| step.undo == Undo::Delete)
    }

    /// Notes steps that are about to be made, of what is known of the release by now.
    pub(crate) fn note(&mut self, steps: &[JournalStep], release: Option<&Release>) {
        self.release = release.cloned().or_else(|| self.release.take());
        for step in steps {
            self.put(step.clone());
        }
    }

    /// Whether it is known from another place than the cluster that this journal's stateful sets were made by the run: only
    /// then is their data the run's own.
    pub(crate) fn made_data(&self) -> bool {
        let mut sets = self.steps.iter().filter(|step| step.made_set().is_some());
        !self.from_copy && sets.all(|step| step.witnessed)
    }

    /// Adds a step, or puts it in the place of the same object's: whoever made it has seen to it that it leads back to the
    /// state before the whole run as well.
    fn put(&mut self, step: JournalStep) {
        match self.steps.iter_mut().find(|known| known.object == step.object) {
            Some(known) => *known = step,
            None => self.steps.push(step),
        }
    }
}

/// The first line of a run in the copy on this machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    run: String,
    command: String,
    started: String,
    install_uid: String,
}

/// A line of the copy with uids of claims that were there before the run, as in [`Journal::claims`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claims: Vec<String>,
}

/// The journal's copy on this machine: one JSON line a step, on disk before the write.
///
/// It is needed for the very first write, the namespace, before which the cluster has no place for a journal; and it
/// leads back when the cluster's copy is lost. Former values of Secrets are only in the cluster's copy.
#[derive(Debug)]
pub(crate) struct LocalJournal {
    path: PathBuf,
    file: std::fs::File,
}

impl LocalJournal {
    /// Opens the file for appending and writes the head of a run.
    pub(crate) fn open(path: &Path, journal: &Journal) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            file::private_folder(folder)?;
        }
        let file = file::append(path)?;
        let mut local = Self { path: path.to_owned(), file };
        let head = Head {
            run: journal.run.clone(),
            command: journal.command.clone(),
            started: journal.started.clone(),
            install_uid: journal.install_uid.clone(),
        };
        local.line(&serde_json::to_value(&head).map_err(|e| Error::Input(e.to_string()))?)?;
        Ok(local)
    }

    /// What a copy tells of the runs in it that were not closed; nothing where there is no file, or no step in it.
    ///
    /// A line that was cut off in the middle was written for a step that was never made.
    pub(crate) fn read(path: &Path) -> Result<Option<Journal>, Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::File { path: path.to_owned(), source }),
        };
        let mut journal: Option<Journal> = None;
        for line in text.lines() {
            if let Ok(head) = serde_json::from_str::<Head>(line) {
                // A run goes on with the one before, unless that was of another installation.
                let known = journal.take().filter(|known| known.install_uid == head.install_uid);
                journal = Some(Journal {
                    run: head.run,
                    started: head.started,
                    from_copy: true,
                    ..known.unwrap_or_else(|| Journal::new(&head.command, &head.install_uid))
                });
            } else if let (Some(journal), Ok(line)) = (&mut journal, serde_json::from_str::<Claims>(line)) {
                journal.claims.extend(line.claims);
            } else if let (Some(journal), Ok(mut step)) = (&mut journal, serde_json::from_str::<JournalStep>(line)) {
                step.witnessed = true;
                // The cluster's copy has it apart from the steps: it goes last, and only when nothing else is in it.
                if step.object.is("", "Namespace") && step.undo == Undo::Delete {
                    journal.namespace_created = true;
                } else {
                    journal.put(step);
                }
            }
        }
        Ok(journal.filter(|journal| !journal.steps.is_empty()))
    }

    /// Appends the uids of claims that were there before the run.
    pub(crate) fn append_claims(&mut self, claims: &[String]) -> Result<(), Error> {
        if claims.is_empty() {
            return Ok(());
        }
        let line = serde_json::to_value(Claims { claims: claims.to_vec() });
        self.line(&line.map_err(|e| Error::Input(e.to_string()))?)
    }

    /// Appends steps and waits until they are on disk. Of values that this process only knows from the cluster's journal,
    /// nothing is written: they would be confirmed by it later.
    pub(crate) fn append(&mut self, steps: &[JournalStep]) -> Result<(), Error> {
        for step in steps {
            let mut step = step.clone();
            if step.object.is_secret() || step.is_hearsay() {
                match &mut step.undo {
                    Undo::Reapply { patch, theirs } => {
                        *patch = Value::Null;
                        if let Some(theirs) = theirs {
                            theirs.patch = Value::Null;
                        }
                    }
                    Undo::Release { patch, .. } => *patch = Value::Null,
                    Undo::Recreate { manifest } => *manifest = Value::Null,
                    Undo::Delete => {}
                }
            }
            let line = serde_json::to_value(&step).map_err(|e| Error::Input(e.to_string()))?;
            self.line(&line)?;
        }
        self.file.sync_data().map_err(|source| Error::File { path: self.path.clone(), source })
    }

    fn line(&mut self, line: &Value) -> Result<(), Error> {
        writeln!(self.file, "{line}").map_err(|source| Error::File { path: self.path.clone(), source })
    }

    /// Removes the file: the run is complete or undone.
    pub(crate) fn close(self) -> Result<(), Error> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::File { path: self.path, source })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(kind: &str, undo: Undo) -> JournalStep {
        let object =
            ObjectRef { group: String::new(), kind: kind.into(), namespace: Some("n".into()), name: "a".into() };
        let policy = Policy::Delete;
        JournalStep { object, api_version: "v1".into(), policy, uid: String::new(), witnessed: false, undo }
    }

    #[test]
    fn an_object_has_one_step_in_the_place_of_its_first() {
        let mut journal = Journal::new("install", "u");
        let changed = |value: &str| Undo::Reapply { patch: json!({"data": {"a": value}}), theirs: None };
        journal.put(step("ConfigMap", changed("1")));
        journal.put(step("Service", Undo::Delete));
        journal.put(step("ConfigMap", changed("2")));
        assert_eq!(journal.steps.iter().map(|step| &step.undo).collect::<Vec<_>>(), [&changed("2"), &Undo::Delete]);
        assert!(journal.created(&journal.steps[1].object.clone()));
        let text = serde_json::to_string(&journal).unwrap();
        assert_eq!(serde_json::from_str::<Journal>(&text).unwrap(), journal);
    }

    #[test]
    fn the_local_copy_is_written_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, theirs) = (folder.path().join("journal"), folder.path().join("theirs"));
        std::fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        let error = LocalJournal::open(&path, &Journal::new("install", "u")).unwrap_err();
        assert!(
            matches!(&error, Error::File { source, .. } if source.to_string().contains("a symbolic link")),
            "{error:?}"
        );
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    }

    #[test]
    fn the_local_copy_has_every_step_and_no_value_of_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo").join("journal");
        let mut local = LocalJournal::open(&path, &Journal::new("install", "u")).unwrap();
        let patch = json!({"data": {"k": "hunter2"}});
        local
            .append(&[
                step(
                    "Secret",
                    Undo::Reapply {
                        patch: patch.clone(),
                        theirs: Some(Theirs { manager: "m".into(), patch: patch.clone() }),
                    },
                ),
                step("ConfigMap", Undo::Reapply { patch, theirs: None }),
            ])
            .unwrap();
        let text = fs_err::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.matches("hunter2").count(), 1, "only the ConfigMap's: {text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs_err::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        }
        // The copy is read as the cluster's journal, but for what is missing of Secrets; a line that was cut off is none.
        file::append(&path).unwrap().write_all(b"{\"kind\": \"Conf").unwrap();
        let read = LocalJournal::read(&path).unwrap().unwrap();
        assert_eq!((read.install_uid.as_str(), read.steps.len(), read.namespace_created), ("u", 2, false));
        assert!(read.from_copy);
        assert_eq!(read.steps[1].undo, Undo::Reapply { patch: json!({"data": {"k": "hunter2"}}), theirs: None });
        local.close().unwrap();
        assert!(!path.exists());
        assert!(LocalJournal::read(&path).unwrap().is_none());
    }
}
