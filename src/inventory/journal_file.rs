//! The journal file on this machine: every step of a run, on disk before the write it describes.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Error;
use super::journal::{Journal, JournalStep, Undo};
use crate::api::util::file;
use crate::api::util::file::wrap_io_error;

/// The first line of a run in the copy on this machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    run: String,
    command: String,
    started: String,
    install_uid: String,
}

/// A line of the copy with uids of claims that already existed the run, as in [`Journal::claims`].
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
    pub(crate) fn open_journal_file(path: &Path, journal: &Journal) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            file::private_folder(folder)?;
        }
        let file = file::open_for_append(path)?;
        let mut local = Self { path: path.to_owned(), file };
        let head = Head {
            run: journal.run.clone(),
            command: journal.command.clone(),
            started: journal.started.clone(),
            install_uid: journal.install_uid.clone(),
        };
        local.write_line(&head)?;
        Ok(local)
    }

    /// Reads the journal of the runs in a copy that were not closed; none where there is no file, or no step in it.
    ///
    /// A line that was interrupted in the middle was written for a step that was never made.
    pub(crate) fn read_journal_file(path: &Path) -> Result<Option<Journal>, Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if file::is_absent(&error) => return Ok(None),
            Err(error) => return Err(wrap_io_error("read", path)(error).into()),
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
                if step.object.is_kind("", "Namespace") && step.undo == Undo::Delete {
                    journal.namespace_created = true;
                } else {
                    journal.put_step(step);
                }
            }
        }
        Ok(journal.filter(|journal| !journal.steps.is_empty()))
    }

    /// Appends the uids of claims that already existed the run.
    pub(crate) fn append_claims(&mut self, claims: &[String]) -> Result<(), Error> {
        if claims.is_empty() {
            return Ok(());
        }
        self.write_line(&Claims { claims: claims.to_vec() })
    }

    /// Appends steps and waits until they are on disk. Of values that this process only knows from the cluster's journal,
    /// nothing is written: they would be confirmed by it later.
    pub(crate) fn append_steps(&mut self, steps: &[JournalStep]) -> Result<(), Error> {
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
            self.write_line(&step)?;
        }
        Ok(self.file.sync_data().map_err(wrap_io_error("write", &self.path))?)
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let line = serde_json::to_string(line).map_err(std::io::Error::from);
        let written = line.and_then(|line| writeln!(self.file, "{line}"));
        Ok(written.map_err(wrap_io_error("write", &self.path))?)
    }

    /// Removes the file: the run is complete or undone.
    pub(crate) fn close_journal(self) -> Result<(), Error> {
        remove_file(&self.path)
    }
}

/// Removes a journal file; one that is not there is removed.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(source) if !file::is_absent(&source) => Err(wrap_io_error("remove", path)(source).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::journal::Theirs;
    use crate::inventory::journal::tests::step;
    use serde_json::json;

    #[test]
    fn the_local_copy_is_written_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, theirs) = (folder.path().join("journal"), folder.path().join("theirs"));
        std::fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        let error = LocalJournal::open_journal_file(&path, &Journal::new("install", "u")).unwrap_err();
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
        let mut local = LocalJournal::open_journal_file(&path, &Journal::new("install", "u")).unwrap();
        let patch = json!({"data": {"k": "hunter2"}});
        local
            .append_steps(&[
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
        // The copy is read as the cluster's journal, but for what is missing of Secrets; a line that was interrupted is none.
        file::open_for_append(&path).unwrap().write_all(b"{\"kind\": \"Conf").unwrap();
        let read = LocalJournal::read_journal_file(&path).unwrap().unwrap();
        assert_eq!((read.install_uid.as_str(), read.steps.len(), read.namespace_created), ("u", 2, false));
        assert!(read.from_copy);
        assert_eq!(read.steps[1].undo, Undo::Reapply { patch: json!({"data": {"k": "hunter2"}}), theirs: None });
        local.close_journal().unwrap();
        assert!(!path.exists());
        assert!(LocalJournal::read_journal_file(&path).unwrap().is_none());
    }
}
