//! Errors of a restore as they are shown.

use crate::api::names::ControlPlaneName;
use crate::cli::commands::backup::archive_error;
use crate::cli::commands::etcd::status::access_error;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::engine_error;
use crate::control_plane::restore::RestoreError;

/// A restore that stopped. `tail` are the flags that lead another command to the same place.
pub(in crate::cli) fn restore_error(error: &RestoreError, name: &ControlPlaneName, tail: &str) -> CliError {
    let command = format!("fleetctl restore {name}");
    let again = "run the same command again; it continues where it stopped".to_owned();
    let (exit, headline, hints) = match error {
        RestoreError::Api(error) => return request_failed("a request of the restore failed", error).hint(again),
        RestoreError::Engine(error) => return engine_error("the restore stopped", error),
        RestoreError::Etcd(error) => return access_error(error, name),
        RestoreError::Archive(error) => return archive_error("the backup".as_ref(), error),
        RestoreError::Forbidden(_) => {
            let hint = format!(
                "`fleetctl show rbac {name} --day2` prints the rights; ask an administrator for them, or use a context that has them (`--context`)"
            );
            (Exit::Preflight, "the restore was refused; nothing was written", vec![hint])
        }
        RestoreError::KeysMissing(_) | RestoreError::Keys(_) => {
            let hint = "restore a backup of this control plane, or first put the keys of the backup into its Secrets: the backup contains them";
            (Exit::Refused, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::WithoutKeys => {
            let hint = "use a backup that contains the keys: the data in this one is encrypted, and its keys exist nowhere else";
            (Exit::Refused, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::NotInstallable(_) => {
            let hints = vec![
                "give other values with `--set PATH=VALUE` or `--values FILE`, if a value is the cause".to_owned(),
                format!(
                    "otherwise put the keys of the backup into the namespace, install the control plane as it was, and restore without `--new`: `{command} --from FILE{tail}`"
                ),
            ];
            (Exit::Refused, "the control plane cannot be installed from this backup; nothing was written", hints)
        }
        RestoreError::AlreadyInstalled(_) => {
            let hints = vec![
                format!("to replace its data, restore without `--new`: `{command} --from FILE{tail}`"),
                format!(
                    "or remove it first, with its data: `fleetctl uninstall control-plane {name} --delete-data{tail}`"
                ),
            ];
            (
                Exit::Refused,
                "`--new` needs a hosting cluster that contains nothing of this control plane; nothing was written",
                hints,
            )
        }
        RestoreError::OlderApiServer { .. } => {
            let hint = "upgrade the control plane first: an older API server cannot read objects that a newer one has \
                        stored";
            (Exit::Refused, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::NoSpace { .. } => {
            let hint = "make the volume larger, or free space on it: the volume must have room for the former and the new etcd data";
            (Exit::Preflight, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::VolumeFull { .. } => {
            let hints = vec![
                "make the volume larger, and run the same command again".to_owned(),
                format!("or undo the restore: `{command} --rollback{tail}`"),
            ];
            (Exit::Preflight, "the restore stopped", hints)
        }
        RestoreError::AppliedByOthers(_) => {
            let hint = "pause these tools, then give `--paused`: they would start the components that a restore stops";
            (Exit::Refused, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::AgentsBehind(_) => {
            let hint = "upgrade these agents first: they would delete copies that were placed after the backup";
            (Exit::Refused, "the restore was refused; nothing was written", vec![hint.to_owned()])
        }
        RestoreError::OperationOpen(_) | RestoreError::BadOperation(_) => {
            let hints = vec![
                format!("to continue it, use the same backup: `{command} --from FILE{tail}`"),
                format!("or undo it: `{command} --rollback{tail}`"),
            ];
            (Exit::Refused, "another restore of this control plane is open", hints)
        }
        RestoreError::PastRollback(_) => {
            let hints = vec![
                format!("to continue: `{command} --from FILE{tail}`"),
                "then restore the backup that this restore made of the former data".to_owned(),
            ];
            (Exit::Refused, "the restore cannot be undone any more", hints)
        }
        RestoreError::NothingOpen | RestoreError::NothingToCommit => {
            let hint = format!("see the last runs: `fleetctl history {name}{tail}`");
            (Exit::Refused, "there is nothing to do", vec![hint])
        }
        RestoreError::TimedOut(_) => (Exit::TimedOut, "the restore stopped", vec![again, undo_hint(&command, tail)]),
        RestoreError::Unsuitable(_)
        | RestoreError::NotPossible(_)
        | RestoreError::PodFailed { .. }
        | RestoreError::Send { .. }
        | RestoreError::NoAccess(_) => (Exit::Failed, "the restore stopped", vec![again, undo_hint(&command, tail)]),
    };
    let shown = CliError::new(exit, error.reason(), headline).cause(error.to_string());
    let shown = match error {
        RestoreError::Send { source, .. } => shown.because(source),
        RestoreError::Keys(source) => shown.because(source),
        _ => shown,
    };
    hints.into_iter().fold(shown, CliError::hint)
}

fn undo_hint(command: &str, tail: &str) -> String {
    format!("or undo the restore, if the API server does not run on the new data yet: `{command} --rollback{tail}`")
}
