//! `kubeconfig --merge` and `--remove`: the entries of a control plane in the file that kubectl reads.

use std::path::PathBuf;

use crate::api::names::ControlPlaneName;
use crate::api::util::file::is_absent;
use crate::cli::args::global::Global;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::add_file_remedy;
use crate::cli::output::terminal::Ui;
use crate::control_plane::kubeconfig::write_shared;
use crate::control_plane::kubeconfig::write_shared::{Changed, FileError, Readers, change_file};
use crate::install::fleet_home::Home;
use crate::pki::{self, EditError, Kubeconfig};

/// Puts the entries into the file.
pub(crate) fn merge_into_kubeconfig(
    ui: &Ui,
    global: &Global,
    home: &Home,
    name: &ControlPlaneName,
    kubeconfig: &Kubeconfig,
    make_current: bool,
) -> Result<Exit, CliError> {
    let files = kubeconfig_files(global, home, name)?;
    let file = choose_kubeconfig_file(&files, name, kubeconfig).map_err(|error| kubeconfig_file_error(&error))?;
    let mut current = false;
    let changed = change_file(&file, Readers::OwnerOnly, |before| {
        let edited = pki::merge_kubeconfig(before, kubeconfig, name.as_str(), make_current)?;
        current = edited.current;
        Ok(Some(edited.text))
    });
    let changed = changed.map_err(|error| kubeconfig_file_error(&error))?;
    let mut said = format!("The context {name} is in {}\n", file.display());
    if let Some(backup) = changed.backup {
        said.push_str(&format!("Backup: {}\n", backup.display()));
    }
    if changed.closed {
        said.push_str("The file now contains a private key; its mode was set to 0600\n");
    }
    let context = if current { String::new() } else { format!(" --context {name}") };
    said.push_str(&format!("\n  kubectl get clusters{context}\n"));
    ui.write_stdout(&said)?;
    Ok(Exit::Ok)
}

/// Replaces the entries in the file that has them. Returns that file; none where no file has them.
pub(crate) fn renew_merged_entries(
    global: &Global,
    home: &Home,
    name: &ControlPlaneName,
    kubeconfig: &Kubeconfig,
) -> Result<Option<PathBuf>, CliError> {
    for file in kubeconfig_files(global, home, name)? {
        let text = write_shared::read_text_or_empty(&file).map_err(|error| kubeconfig_file_error(&error))?;
        if !matches!(pki::remove_from_kubeconfig(&text, name.as_str()), Ok(Some(_))) {
            continue;
        }
        let changed = change_file(&file, Readers::OwnerOnly, |before| {
            Ok(Some(pki::merge_kubeconfig(before, kubeconfig, name.as_str(), false)?.text))
        });
        changed.map_err(|error| kubeconfig_file_error(&error))?;
        return Ok(Some(file));
    }
    Ok(None)
}

/// The file of the list that has the entries, else the one that gets new ones. kubectl takes each name from the first
/// file that has it, so no other file may have one of these names.
fn choose_kubeconfig_file(
    files: &[PathBuf],
    name: &ControlPlaneName,
    kubeconfig: &Kubeconfig,
) -> Result<PathBuf, FileError> {
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        texts.push((file, write_shared::read_text_or_empty(file)?));
    }
    let known = texts
        .iter()
        .find(|(_, text)| matches!(pki::remove_from_kubeconfig(text, name.as_str()), Ok(Some(_))))
        .map(|(file, _)| *file);
    let place = known.or_else(|| write_shared::choose_target_file(files)).cloned().unwrap_or_default();
    for (file, before) in texts.into_iter().filter(|(file, _)| **file != place) {
        // Whether such a file could be edited does not matter.
        if let Err(source @ EditError::Taken { .. }) = pki::merge_kubeconfig(&before, kubeconfig, name.as_str(), false)
        {
            return Err(FileError::Edit { file: file.clone(), source });
        }
    }
    Ok(place)
}

/// Takes the entries out of every file of the list that has them.
pub(crate) fn remove_context(ui: &Ui, global: &Global, home: &Home, name: &ControlPlaneName) -> Result<Exit, CliError> {
    let files = kubeconfig_files(global, home, name)?;
    let (mut found, mut current, mut foreign) = (false, false, None);
    for file in &files {
        // What cannot be inspected may have them: changing it tells why not.
        if file.metadata().map_or_else(|error| is_absent(&error), |found| !found.is_file()) {
            continue;
        }
        let changed = change_file(file, Readers::AsBefore, |before| {
            let Some(edited) = pki::remove_from_kubeconfig(before, name.as_str())? else { return Ok(None) };
            current |= edited.current;
            Ok(Some(edited.text))
        });
        match changed {
            Ok(Changed { backup: None, .. }) => {}
            Ok(_) => {
                found = true;
                ui.write_stdout(&format!("The context {name} is no longer in {}\n", file.display()))?;
            }
            // Another file may have ours all the same.
            Err(error @ FileError::Edit { source: EditError::Taken { .. }, .. }) => foreign = foreign.or(Some(error)),
            Err(error) => return Err(kubeconfig_file_error(&error)),
        }
    }
    match foreign {
        Some(error) if !found => return Err(kubeconfig_file_error(&error)),
        None if !found => {
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            ui.write_stdout(&format!("There is no context {name} in {}; nothing to remove.\n", files.join(", ")))?;
        }
        _ => {}
    }
    if current {
        ui.warn("it was the current context; choose another with `kubectl config use-context CONTEXT`");
    }
    Ok(Exit::Ok)
}

/// The files that kubectl reads.
fn kubeconfig_files(global: &Global, home: &Home, name: &ControlPlaneName) -> Result<Vec<PathBuf>, CliError> {
    let files = write_shared::list_kubeconfig_files(global.kubeconfig.as_deref(), &home.kubeconfig_path(name));
    if files.is_empty() {
        return Err(CliError::usage("NoKubeconfig", "no kubeconfig was found to change")
            .hint("give its path with `--kubeconfig`"));
    }
    Ok(files)
}

fn kubeconfig_file_error(error: &FileError) -> CliError {
    match error {
        FileError::Locked { lock, .. } => {
            shared_kubeconfig_failure(Exit::Refused, "KubeconfigLocked", error).hint(format!(
                "run the same command again when the other program has finished; if no other program is running, remove {}",
                lock.display()
            ))
        }
        FileError::Edit { source, .. } => {
            let error = shared_kubeconfig_failure(Exit::Refused, "KubeconfigRefused", error).because(source);
            match source {
                EditError::Taken { .. } => error.hint(
                    "rename or remove that entry (`kubectl config rename-context`, `delete-cluster`, `delete-user`), or add the file of the control plane to KUBECONFIG",
                ),
                EditError::Unusable(_) => {
                    error.hint("choose another file with `--kubeconfig`, or add the file of the control plane to KUBECONFIG")
                }
            }
        }
        FileError::NotReplaceable(source) => {
            add_file_remedy(shared_kubeconfig_failure(Exit::Refused, "KubeconfigRefused", error), source)
                .hint("or choose another file with `--kubeconfig`")
        }
        FileError::Io { source, .. } => {
            add_file_remedy(shared_kubeconfig_failure(Exit::Failed, "Io", error).because(source), source)
        }
    }
}

fn shared_kubeconfig_failure(exit: Exit, reason: &'static str, error: &FileError) -> CliError {
    CliError::new(exit, reason, error.to_string())
}
