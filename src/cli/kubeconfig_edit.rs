//! `kubeconfig --merge` and `--remove`: the entries of a control plane in the file that kubectl reads.

use super::Global;
use super::error::{CliError, Exit};
use super::ui::Ui;
use crate::api::names::ControlPlaneName;
use crate::control_plane::kubeconfig_file::{FileError, change, target};
use crate::install::home::Home;
use crate::pki::{self, EditError, SecretText};

/// Puts the entries into the file.
pub(super) fn merge(
    ui: &Ui,
    global: &Global,
    home: &Home,
    name: &ControlPlaneName,
    text: &SecretText,
    make_current: bool,
) -> Result<Exit, CliError> {
    let file = file(global, home, name)?;
    let mut current = false;
    let changed = change(&file, |before| {
        let edited = pki::merge_kubeconfig(before, text.expose(), name.as_str(), make_current)?;
        current = edited.current;
        Ok(Some(edited.text))
    });
    let backup = changed.map_err(|error| refused(&error))?;
    let mut said = format!("The context {name} is in {}\n", file.display());
    if let Some(backup) = backup {
        said.push_str(&format!("What the file was before is in {}\n", backup.display()));
    }
    let context = if current { String::new() } else { format!(" --context {name}") };
    said.push_str(&format!("\n  kubectl get clusters{context}\n"));
    ui.out(&said)?;
    Ok(Exit::Ok)
}

/// Takes the entries out of the file.
pub(super) fn remove(ui: &Ui, global: &Global, home: &Home, name: &ControlPlaneName) -> Result<Exit, CliError> {
    let file = file(global, home, name)?;
    let (mut found, mut current) = (false, false);
    let changed = change(&file, |before| {
        let edited = pki::remove_from_kubeconfig(before, name.as_str())?;
        found = edited.is_some();
        current = edited.as_ref().is_some_and(|edited| edited.current);
        Ok(edited.map(|edited| edited.text))
    });
    changed.map_err(|error| refused(&error))?;
    if !found {
        ui.out(&format!("There is no context {name} in {}; nothing to remove.\n", file.display()))?;
        return Ok(Exit::Ok);
    }
    ui.out(&format!("The context {name} is no longer in {}\n", file.display()))?;
    if current {
        ui.warn("it was the current one; choose another with `kubectl config use-context CONTEXT`");
    }
    Ok(Exit::Ok)
}

fn file(global: &Global, home: &Home, name: &ControlPlaneName) -> Result<std::path::PathBuf, CliError> {
    let found = target(global.kubeconfig.as_deref(), &home.kubeconfig(name));
    found.ok_or_else(|| {
        CliError::usage("NoKubeconfig", "there is no kubeconfig to change").hint("name it with `--kubeconfig`")
    })
}

fn refused(error: &FileError) -> CliError {
    let shown = |exit, reason| CliError::new(exit, reason, error.to_string());
    match error {
        FileError::Locked { lock, .. } => shown(Exit::Refused, "KubeconfigLocked")
            .hint(format!("run it again when the other program is done; if there is none, remove {}", lock.display())),
        FileError::Edit { source, .. } => {
            let error = shown(Exit::Refused, "KubeconfigRefused").because(source);
            match source {
                EditError::Taken { .. } => error.hint(
                    "rename or remove that entry (`kubectl config rename-context`, `delete-cluster`, `delete-user`), or use \
                     the file of the control plane beside it, in KUBECONFIG",
                ),
                EditError::Unusable(_) => {
                    error.hint("name another file with `--kubeconfig`, or use the file of the control plane in KUBECONFIG")
                }
            }
        }
        FileError::Io { source, .. } => shown(Exit::Failed, "Io").because(source),
    }
}
