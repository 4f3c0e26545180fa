//! Where a backup is written to: a new file, a new file in a folder, or standard output.

use std::io::{self, IsTerminal as _, Stdout};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::api::names::ControlPlaneName;
use crate::api::shell::quote_word;
use crate::api::util::file::{self, FileError};
use crate::api::util::unfinished_file::UnfinishedFile;
use crate::backup::{EXTENSION, WITHOUT_KEYS};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::{add_file_remedy, local_file_error};
use crate::control_plane::backup::Output;

/// The word for standard output.
const STDOUT: &str = "-";

/// Where a backup is written to.
pub(super) enum Target {
    /// A file that does not exist yet.
    File(UnfinishedFile),
    /// Standard output.
    Stdout(PlainOutput),
}

/// Opens a target, and refuses what keys must not be written to.
pub(super) fn open_target(
    to: &Path,
    name: &ControlPlaneName,
    has_keys: bool,
    now: Timestamp,
) -> Result<Target, CliError> {
    if to == Path::new(STDOUT) {
        if io::stdout().is_terminal() {
            return Err(CliError::usage("BadTarget", "a backup cannot be written to a terminal")
                .hint("redirect it: `fleetctl backup NAME --to - > FILE`, or give a file"));
        }
        return Ok(Target::Stdout(PlainOutput));
    }
    if to.as_os_str().as_encoded_bytes().ends_with(b"/") && !to.is_dir() {
        return Err(CliError::usage("BadTarget", format!("folder `{}` does not exist", to.display()))
            .hint(format!("create it: `mkdir -m 700 {}`", quote_word(&to.to_string_lossy()))));
    }
    let path = archive_path(to, name, has_keys, now);
    if file::read_metadata(&path).ok().flatten().is_some_and(|found| found.is_file()) {
        return Err(CliError::usage("BadTarget", format!("`{}` exists already", path.display())).hint(
            "a backup never overwrites a file: give another name, or a folder; the backup then gets its own name",
        ));
    }
    UnfinishedFile::create(&path).map(Target::File).map_err(|error| refused_target_error(&error))
}

/// The path of a backup: in a folder, it gets a name with its time. Names are in the order of time; those of two backups that
/// begin in one second differ.
fn archive_path(to: &Path, name: &ControlPlaneName, has_keys: bool, now: Timestamp) -> PathBuf {
    if !to.is_dir() {
        return to.to_owned();
    }
    let without = if has_keys { "" } else { WITHOUT_KEYS };
    to.join(format!("{name}-{}{without}{EXTENSION}", now.strftime("%Y%m%dT%H%M%S%.3fZ")))
}

/// The error of a target that is refused.
fn refused_target_error(error: &FileError) -> CliError {
    match error {
        FileError::Unexpected { path, .. } => {
            CliError::new(Exit::Refused, "FolderNotSafe", error.to_string()).hint(format!(
                "write the backup to a new file in your own folder, such as one that you create with `mkdir -m 700 \
             backups`, not to {}",
                quote_word(&path.to_string_lossy())
            ))
        }
        FileError::Io { .. } => add_file_remedy(local_file_error(error), error),
    }
}

/// Standard output, from which nothing can be withdrawn.
pub(super) struct PlainOutput;

impl Output for PlainOutput {
    type Stream = Stdout;

    fn is_repeatable(&self) -> bool {
        false
    }

    fn restart(&mut self) -> io::Result<Stdout> {
        Ok(io::stdout())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo_archive_path(target: &Path, keys: bool, time: &str) -> PathBuf {
        archive_path(target, &"demo".parse().unwrap(), keys, time.parse().unwrap())
    }

    #[test]
    fn a_name_in_a_folder_says_when_and_whether_there_are_keys() {
        let folder = tempfile::tempdir().unwrap();
        for (keys, name) in
            [(true, "demo-20270312T101500.500Z.fleet"), (false, "demo-20270312T101500.500Z.no-keys.fleet")]
        {
            let path = demo_archive_path(folder.path(), keys, "2027-03-12T10:15:00.5Z");
            assert_eq!(path.file_name().unwrap(), name);
        }
        let times =
            ["2027-03-12T10:15:00Z", "2027-03-12T10:15:00.005Z", "2027-03-12T10:15:00.5Z", "2027-03-12T10:15:01Z"];
        let paths = times.map(|time| demo_archive_path(folder.path(), true, time));
        let names = paths.each_ref().map(|path| path.file_name().unwrap());
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
        assert_eq!(demo_archive_path(Path::new("new"), true, times[0]), Path::new("new"));
    }
}
