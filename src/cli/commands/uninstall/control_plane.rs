//! `uninstall control-plane`: removes a control plane; its data and keys only on request.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use futures::FutureExt as _;
use serde::Serialize;

use super::{check_not_elsewhere, check_orphaned_objects};
use crate::api::names::ControlPlaneName;
use crate::api::util::text::{visible_cell, visible_list};
use crate::apply::{Removal, Removed};
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::RunArgs;
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::{engine_error, local_file_error};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::{Question, Ui};
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::{goes_on, until_stopped};
use crate::control_plane::keys::local_files::Folder;
use crate::control_plane::plan::OWNER_KIND;
use crate::control_plane::uninstall::{Planned, Target};
use crate::install::progress::Progress;

pub(super) const EXAMPLES: &str =
    "Without --delete-data, the data (PersistentVolumeClaims) and its keys are kept, and a later install of
the same name resumes the same control plane.

Examples:
  fleetctl uninstall control-plane demo
  fleetctl uninstall cp demo --delete-data --yes";

/// Remove the control plane from the cluster of `--context`
#[derive(Debug, Args)]
pub(crate) struct UninstallControlPlaneArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Delete the data, its keys and the local folder too; cannot be undone
    #[arg(long)]
    delete_data: bool,

    /// Delete data without a prompt
    #[arg(long, short)]
    yes: bool,

    /// Delete data even if workload clusters are registered
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    run: RunArgs,

    /// Output format [default: text]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &UninstallControlPlaneArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = connect::find_home()?;
    let hosting = connect::connect_cluster(global).await?;
    let target = args.run.build_target(&name, global, &hosting.client, &home);
    let removal = Removal { delete_data: args.delete_data, ..Removal::default() };
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();

    // What cannot be removed at all is said before what `--force` would orphan.
    let planned = if args.delete_data {
        let planned = target.plan_uninstall(removal.clone(), &progress).await;
        Some(planned.map_err(|error| engine_error("cannot plan the removal", &error))?)
    } else {
        None
    };
    check_registered_clusters(ui, args, &target).await?;
    if let Some(planned) = &planned {
        confirm_data_deletion(ui, args, planned)?;
    }
    progress.begin_step(&format!("Removing control plane {name} from namespace {}", global.namespace));
    let work = target.remove_control_plane(removal, &progress);
    let outcome = until_stopped(ui, &display, "the removal", work, target.release_lock(OWNER_KIND).map(drop)).await?;
    let removed = outcome.map_err(|error| goes_on(engine_error("the removal stopped", &error)))?;
    check_not_elsewhere("control-plane", name.as_str(), global, &removed)?;
    let folder = planned.map_or(Folder::None, |planned| planned.folder);
    let (folder, stays) = match folder {
        // A removal that removed nothing forgets nothing.
        Folder::Goes { .. } if !removed.deleted.is_empty() => {
            (target.remove_folder().map_err(|error| local_file_error(&error))?, None)
        }
        Folder::Goes { path, .. } | Folder::Stays(path) => {
            let why = "its control plane may be in another cluster. Delete the folder if this is not the case";
            (None, Some(format!("The folder {} is kept: {why}.", path.display())))
        }
        Folder::Unreadable { path, why } => {
            (None, Some(format!("The folder {} is kept, and may contain keys: {why}.", path.display())))
        }
        Folder::None => (None, None),
    };
    ui.write_stdout(&match args.output {
        Some(format) => format.serialize_value(&ControlPlaneUninstallDocument {
            name: name.as_str(),
            folder: folder.as_deref(),
            removed: &removed,
        }),
        None => {
            let mut text = format_control_plane_removal(&name, global, &removed, hosting.context.as_deref());
            if let Some(folder) = &folder {
                let _ = writeln!(text, "Removed the folder {}", folder.display());
            }
            if let Some(stays) = &stays {
                let _ = writeln!(text, "{stays}");
            }
            text
        }
    })?;
    if let Some(stays) = stays.filter(|_| args.output.is_some()) {
        ui.print_note(&stays);
    }
    if !removed.unsearched.is_empty() {
        ui.warn(&format!(
            "the search for orphaned objects could not read {}; it needs more permissions",
            visible_list(&removed.unsearched.join(", "))
        ));
    }
    check_orphaned_objects(&removed)
}

/// A removal as programs read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlaneUninstallDocument<'r> {
    name: &'r str,
    /// The local folder, when it was removed too.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<&'r Path>,
    #[serde(flatten)]
    removed: &'r Removed,
}

/// Workload clusters that are registered: a warning, and with `--delete-data` a reason to refuse.
async fn check_registered_clusters(
    ui: &Ui,
    args: &UninstallControlPlaneArgs,
    target: &Target<'_>,
) -> Result<(), CliError> {
    match target.list_registered_clusters().await {
        Ok(members) if members.is_empty() => Ok(()),
        Ok(members) => {
            let names: Vec<_> = members.iter().map(|member| visible_cell(&member.name)).collect();
            let names = visible_list(&names.join(", ")).into_owned();
            if args.delete_data && !args.force {
                return Err(CliError::new(
                    Exit::Refused,
                    "ClustersRegistered",
                    format!("workload clusters are registered: {names}"),
                )
                .hint(
                    "remove their agents first (`fleetctl uninstall agent NAME`), or give `--force` to orphan them",
                ));
            }
            ui.warn(&format!("registered workload clusters lose their control plane: {names}"));
            Ok(())
        }
        Err(why) if args.delete_data && !args.force && target.is_complete().await => Err(unknown_clusters_error(why)),
        Err(why) if args.delete_data => {
            ui.warn(&format!("the registered workload clusters cannot be read from the control plane: {why}"));
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// The error of a removal that would orphan nobody knows whom.
pub(in crate::cli) fn unknown_clusters_error(why: String) -> CliError {
    let headline = "cannot find out whether workload clusters are registered";
    CliError::new(Exit::Refused, "ClustersUnknown", headline)
        .cause(why)
        .hint("make the API of the control plane reachable from here, or give `--force` to orphan registered clusters")
}

/// Shows what will be deleted permanently, and asks for confirmation unless `--yes` is given; this needs a terminal.
fn confirm_data_deletion(ui: &Ui, args: &UninstallControlPlaneArgs, planned: &Planned) -> Result<(), CliError> {
    let plan = list_planned_deletions(planned);
    if plan.is_empty() {
        return Ok(());
    }
    ui.write_stderr(&format!("This permanently deletes:\n  {}", plan.join("\n  ")));
    let volumes: Vec<String> = planned.retained.iter().map(ToString::to_string).collect();
    if !volumes.is_empty() {
        ui.write_stderr(&format!(
            "These are kept because of their reclaim policy Retain, and contain the data:\n  {}",
            volumes.join("\n  ")
        ));
    }
    if args.yes { Ok(()) } else { ui.confirm_by_name(Question::DeleteData, "control plane", &args.name) }
}

/// Everything that will be deleted, a line each.
fn list_planned_deletions(planned: &Planned) -> Vec<String> {
    let objects = planned.objects.iter().map(ToString::to_string);
    let namespace = planned.namespace.iter().map(|object| format!("{object}, unless it contains something else"));
    let folder = match &planned.folder {
        Folder::Goes { path, keys: true } => {
            Some(format!("the folder {}, with the keys that `template` stores in it", path.display()))
        }
        Folder::Goes { path, keys: false } => Some(format!("the folder {}", path.display())),
        Folder::None | Folder::Stays(_) | Folder::Unreadable { .. } => None,
    };
    objects.chain(namespace).chain(folder).collect()
}

fn format_control_plane_removal(
    name: &ControlPlaneName,
    global: &Global,
    removed: &Removed,
    context: Option<&str>,
) -> String {
    if removed.nothing_found {
        return format!("There is no control plane {name} in namespace {}; nothing to remove.\n", global.namespace);
    }
    let mut text = format!("Removed control plane {name}: {} objects were deleted.\n", removed.deleted.len());
    if !removed.kept.is_empty() {
        text.push_str("\nKept:\n");
        for kept in &removed.kept {
            let _ = writeln!(text, "  {kept}");
        }
    }
    let data = removed.kept.iter().any(|kept| matches!(kept.object.kind.as_str(), "PersistentVolumeClaim" | "Secret"));
    if data {
        // The context by its name, for the current one may be another by then.
        let tail = Global { context: context.map(str::to_owned), ..global.clone() }.tail_flags();
        let _ = writeln!(
            text,
            "\nAn install of {name} resumes with this data. To delete it permanently:\n  fleetctl uninstall \
             control-plane {name}{tail} --delete-data"
        );
    }
    text
}
