//! `rollback`: undoes a run that was interrupted.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use clap::Args;
use futures::FutureExt as _;
use serde::Serialize;
use serde_json::Value;

use crate::api::first_of::first_of;
use crate::api::names::ControlPlaneName;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::shell::foreign_word;
use crate::api::util::text::{visible_cell, visible_line};
use crate::apply::{self, Deed, ObjectReason, PlannedUndo, Source, UndoPlan};
use crate::check::installed::VALUES;
use crate::cli::args::global::Global;
use crate::cli::args::installation::MANAGERS;
use crate::cli::args::timeouts::RunArgs;
use crate::cli::commands::install::{unconfirmed_values_error, warn_of_unreadable_values};
use crate::cli::connect;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::engine_error;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::{Question, Ui};
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::{goes_on, until_stopped};
use crate::control_plane::charts::ORDINARY_VALUES;
use crate::control_plane::plan::OWNER_KIND;
use crate::control_plane::rollback::{Outcome, Prospect, Undo};
use crate::install::local_values::LocalValues;
use crate::install::progress::Progress;
use crate::install::recorded_use::RecordedUse;
use crate::inventory::{self, Release};
use crate::k8s::ObjectRef;

/// Undo an install or upgrade that was interrupted
#[derive(Debug, Args)]
#[command(
    after_help = "Objects that the run created are deleted, objects that it changed get their former fields back, all \
others are kept.\nThe steps are shown before you confirm them; give `--yes` if there is no terminal.\n\
A run that succeeded is not undone: install the version and values that you want instead.\n\nExamples:\n  \
fleetctl rollback demo\n  fleetctl rollback demo --context hosting --yes"
)]
pub(crate) struct RollbackArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Undo without a prompt
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    run: RunArgs,

    /// Output format [default: text]; with `json`, the progress on stderr is JSON too
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: RollbackArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = connect::find_home()?;
    let hosting = connect::connect_cluster(global).await?;
    let target = args.run.build_target(&name, global, &hosting.client, &home);
    let display = Arc::new(Display::new(ui));
    let progress: Arc<dyn Progress> = display.clone();
    let mut outdated = false;
    let outcome = loop {
        let undo = match target.plan_rollback(&progress).await.map_err(|error| rollback_error(&name, &error))? {
            Prospect::Ends(outcome) => break outcome,
            Prospect::Undo(undo) => *undo,
        };
        let known = LocalValues::read_values_file(&home.values_path(&name), &hosting.server, global.namespace.as_str());
        let known = warn_of_unreadable_values(ui, known);
        confirm_rollback(ui, &args, &undo, known.as_ref())?;
        progress.begin_step(&format!("Undoing an interrupted run of control plane {name}"));
        let (work, release) = (target.undo_interrupted_run(undo, &progress), target.release_lock(OWNER_KIND).map(drop));
        match until_stopped(ui, &display, "the rollback", work, release).await? {
            // A run that held the lock until now has gone on since: what there is to undo by now is another plan.
            Err(apply::Error::Inventory(inventory::Error::PlanOutdated)) if !outdated => outdated = true,
            done => break done.map_err(|error| rollback_error(&name, &error))?,
        }
    };
    report_rollback(ui, &name, global, args.output, outcome)
}

/// Shows what will be undone, and asks for confirmation unless `--yes` is given; this needs a terminal.
///
/// Values of the recorded release that may give rights are refused either way, where this machine has not installed with them.
fn confirm_rollback(ui: &Ui, args: &RollbackArgs, undo: &Undo, known: Option<&Value>) -> Result<(), CliError> {
    if undo.plan.is_empty() {
        return Ok(());
    }
    if let Some(values) = undo.plan.release.as_ref().and_then(|release| release.values.as_ref()) {
        let refused = RecordedUse::unconfirmed_in(values, known, ORDINARY_VALUES);
        if !refused.is_empty() {
            let name = Subject::ControlPlane(args.name.clone());
            return Err(unconfirmed_values_error(&format!("control plane {}", args.name), &refused)
                .hint(
                    Remedy::new(
                        "undo the run on the machine that installed with these values, or continue from the present \
                         state: ",
                    )
                    .command(Command::at_run_place(Action::Install(name)))
                    .text(format!(", {VALUES}")),
                )
                .hint("nothing was written to the cluster"));
        }
    }
    ui.write_stderr(&format_undo_plan(&args.name, &undo.started, &undo.plan));
    if args.yes {
        return Ok(());
    }
    ui.confirm_by_name(Question::Undo, "control plane", &args.name)
}

/// The plan of an undo, a line an object.
fn format_undo_plan(name: &str, started: &str, plan: &UndoPlan) -> String {
    let begun = if started.is_empty() { String::new() } else { format!(" begun {}", visible_line(started)) };
    let mut text = format!("This undoes the run of control plane {name}{begun}:");
    for PlannedUndo { object, deed, source } in &plan.steps {
        let deed = match deed {
            Deed::Delete => "delete",
            Deed::Restore => "restore",
            Deed::Recreate => "recreate",
            Deed::GiveBack => "release ownership of",
        };
        let source = match source {
            None => "",
            Some(Source::Journal) => ", from the journal",
            Some(Source::Release) => ", from the recorded release",
            Some(Source::Nothing) => "; former values of its fields are not restored",
        };
        let _ = write!(text, "\n  {deed} {object}{source}");
    }
    for claim in &plan.claims {
        let _ = write!(text, "\n  delete {claim}, with its data");
    }
    for claim in &plan.kept {
        let _ = write!(text, "\n  keep {claim}: this machine has no record that the run created its data");
    }
    if let Some(namespace) = &plan.namespace {
        let _ = write!(text, "\n  delete {namespace}, unless it contains something else");
    }
    if let Some(Release { version, values, .. }) = &plan.release {
        let values = values.as_ref().map_or_else(|| "values that are unknown".to_owned(), values_of);
        let _ = write!(text, "\nThe recorded release is service version {}, with {values}", visible_line(version));
    }
    text
}

/// Lists the values of a record, which decide what is run: as `--set` takes them, a line each.
fn values_of(values: &Value) -> String {
    let mut lines = Vec::new();
    collect_value_lines(values, &mut String::new(), &mut lines);
    if lines.is_empty() {
        "the default values of its chart".to_owned()
    } else {
        format!("these values:\n  {}", lines.join("\n  "))
    }
}

fn collect_value_lines(value: &Value, path: &mut String, lines: &mut Vec<String>) {
    match value.as_object().filter(|map| !map.is_empty() || path.is_empty()) {
        Some(map) => {
            let length = path.len();
            for (key, below) in map {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                collect_value_lines(below, path, lines);
                path.truncate(length);
            }
        }
        None => lines.push(visible_line(&format!("{path}={value}")).into_owned()),
    }
}

/// A command about this control plane.
fn control_plane_command(name: &ControlPlaneName, action: fn(Subject) -> Action) -> Command {
    Command::at_run_place(action(Subject::ControlPlane(name.to_string())))
}

/// The error of a rollback that did not finish, or did not start because the local journal file cannot be used.
fn rollback_error(name: &ControlPlaneName, error: &apply::Error) -> CliError {
    if let apply::Error::JournalRefused { .. } = error {
        return engine_error("nothing is undone: the journal is not trusted", error).hint(
            Remedy::new("or drop the untrusted parts of the journal and continue from the present state: ")
                .command(control_plane_command(name, Action::Install))
                .text(format!(", {VALUES}")),
        );
    }
    let apply::Error::Inventory(inventory::Error::File { source, .. }) = error else {
        return goes_on(engine_error("the rollback stopped", error));
    };
    if source.kind() != io::ErrorKind::InvalidData {
        return goes_on(engine_error("the rollback stopped", error));
    }
    let mut refused = engine_error(
        "nothing is undone: the journal in the cluster is lost, and the local journal file cannot be used",
        error,
    );
    refused.exit = Exit::Refused;
    refused
        .hint(
            Remedy::new("to continue from the present state: ")
                .command(control_plane_command(name, Action::Install))
                .text(format!(", {VALUES}; to remove the installation: "))
                .command(control_plane_command(name, Action::Uninstall)),
        )
        .hint("nothing was written to the cluster")
}

/// A rollback as programs read it.
#[derive(Debug, Serialize)]
struct RollbackDocument<'r> {
    name: &'r str,
    /// Time at which the interrupted run began, where there was one.
    started: Option<&'r str>,
    undone: &'r [ObjectRef],
    /// Data and keys that stay; left out where none do.
    #[serde(skip_serializing_if = "<[ObjectReason]>::is_empty")]
    kept: &'r [ObjectReason],
    /// The service version that is installed now.
    installed: Option<&'r str>,
}

pub(crate) fn report_rollback(
    ui: &Ui,
    name: &ControlPlaneName,
    global: &Global,
    format: Option<Format>,
    outcome: Outcome,
) -> Result<Exit, CliError> {
    match outcome {
        Outcome::NothingToUndo { installed, recorded, applied_by } => {
            let installed = installed.as_deref();
            let state = match installed {
                Some(version) if !applied_by.is_empty() => format!(
                    "According to its labels, service version {} is installed. It was applied by {}, so fleetctl has no record of it.",
                    visible_cell(version),
                    first_of(applied_by, MANAGERS, ", "),
                ),
                Some(version) if !recorded => format!(
                    "According to its labels, service version {} is installed. Its record is lost; `{}`, {VALUES}, recreates the record.",
                    visible_cell(version),
                    ui.format_command(&control_plane_command(name, Action::Install).with_flag(Flag::Version(version.to_owned())))
                ),
                installed => describe_installed_version(installed),
            };
            ui.write_stdout(&match format {
                Some(format) => format.serialize_value(&RollbackDocument { name: name.as_str(), started: None, undone: &[], kept: &[], installed }),
                None => format!(
                    "No run of control plane {name} in namespace {} was interrupted; nothing to undo. {}\n",
                    global.namespace,
                    state
                ),
            })?;
            Ok(Exit::Ok)
        }
        Outcome::WasUninstall { started, version } => Err(CliError::new(
            Exit::Refused,
            "UninstallCutOff",
            format!("the interrupted run, begun {}, was an uninstall; the deleted objects cannot be restored", visible_cell(&started)),
        )
        .hint(format!(
            "to finish it: `fleetctl uninstall control-plane {name}{tail}`; to install again: `fleetctl install control-plane \
             {name}{tail}{} --reuse-values`",
            version.filter(|version| !version.is_empty()).map(|version| format!(" --version {}", foreign_word(&version))).unwrap_or_default(),
            tail = global.tail_flags(),
        ))),
        Outcome::Barred(refused) => {
            Err(CliError::new(Exit::Refused, "VersionChangeRefused", "the interrupted run cannot be undone")
                .because(&refused)
                .hint(refused.remedy(name.as_str(), None))
                .hint("nothing was written to the cluster"))
        }
        Outcome::Undone { started, result, installed } => {
            let installed = installed.as_deref();
            let document = RollbackDocument {
                name: name.as_str(),
                started: Some(&started),
                undone: &result.undone,
                kept: &result.kept,
                installed,
            };
            let begun = if started.is_empty() { String::new() } else { format!(" begun {}", visible_cell(&started)) };
            let mut text = format!("Undone: the run of control plane {name}{begun}.\n");
            for object in &result.undone {
                let _ = writeln!(text, "  {object}");
            }
            text.push_str(&format_retained_objects(ui, name, &result.kept));
            let _ = writeln!(text, "{}", describe_installed_version(installed));
            if result.problems.is_empty() {
                ui.write_stdout(&format.map_or(text, |format| format.serialize_value(&document)))?;
                return Ok(Exit::Ok);
            }
            match format {
                Some(format) => ui.write_stdout(&format.serialize_value(&document))?,
                None => ui.write_stderr(text.trim_end()),
            }
            let count = result.problems.len();
            let mut error = CliError::new(
                Exit::PartDone,
                "RollbackIncomplete",
                if count == 1 { "1 object could not be undone".to_owned() } else { format!("{count} objects could not be undone") },
            );
            for problem in &result.problems {
                error = error.because(problem);
            }
            let release = result.problems.iter().find(|problem| matches!(problem, apply::Error::NotRendered { .. }));
            if let Some(remedy) = release.and_then(apply::Error::remedy) {
                error = error.hint(remedy);
            }
            let remove = Remedy::new("or continue the interrupted install, or remove the installation: ")
                .command(control_plane_command(name, Action::Uninstall));
            Err(error.hint("run the same command again; it undoes only the remaining changes").hint(remove))
        }
    }
}

fn describe_installed_version(installed: Option<&str>) -> String {
    match installed {
        Some(version) => format!("Installed is service version {}.", visible_cell(version)),
        None => "Nothing is installed.".to_owned(),
    }
}

/// Lists data and keys that stay, with the command that deletes them; empty where none do.
fn format_retained_objects(ui: &Ui, name: &ControlPlaneName, kept: &[ObjectReason]) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let lines: String = kept.iter().map(|kept| format!("  {kept}\n")).collect();
    format!(
        "Kept, because other runs may have created it too:\n{lines}\
         To delete data permanently: `{}`\n",
        ui.format_command(&control_plane_command(name, Action::Uninstall).with_flag(Flag::DeleteData))
    )
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::api::kinds::Kind;
    use crate::cli::Cli;

    fn global() -> Global {
        let arguments =
            Cli::command().version("v0.6.1").get_matches_from(["fleetctl", "versions", "--context", "west"]);
        Cli::from_arg_matches(&arguments).unwrap().global
    }

    #[test]
    fn what_is_kept_of_an_undone_run_is_told_with_the_command_that_deletes_it() {
        let (ui, name) = (Ui::for_tests().at_location(&global()), "demo".parse().unwrap());
        let claim = ObjectRef::new(&Kind::from_table("", "PersistentVolumeClaim"), Some("fleet"), "data-etcd-0");
        let told = format_retained_objects(
            &ui,
            &name,
            &[ObjectReason { object: claim, reason: "it may contain data".to_owned() }],
        );
        assert!(told.contains("\n  PersistentVolumeClaim fleet/data-etcd-0: it may contain data\n"), "{told}");
        assert!(told.contains("`fleetctl uninstall control-plane demo --context west --delete-data`"), "{told}");
        assert_eq!(format_retained_objects(&ui, &name, &[]), "");
    }

    #[test]
    fn the_plan_of_an_undo_shows_where_former_states_come_from_and_the_values_that_decide_them() {
        let apiserver = ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some("fleet"), "apiserver");
        let etcd = ObjectRef::new(&Kind::from_table("apps", "StatefulSet"), Some("fleet"), "etcd");
        let values = serde_json::json!({"nodeSelector": {"disk": "fast"}, "apiserver": {"image": {"repository": "a\u{1b}b"}, "extraArgs": []}});
        let mut plan = UndoPlan {
            steps: vec![
                PlannedUndo { object: apiserver, deed: Deed::Restore, source: Some(Source::Release) },
                PlannedUndo { object: etcd, deed: Deed::GiveBack, source: Some(Source::Nothing) },
            ],
            release: Some(Release { version: "v0.6.1".to_owned(), values: Some(values), ..Release::default() }),
            ..UndoPlan::default()
        };
        let text = format_undo_plan("demo", "then", &plan);
        let lines = "  restore Deployment fleet/apiserver, from the recorded release\n  \
            release ownership of StatefulSet fleet/etcd; former values of its fields are not restored\n\
            The recorded release is service version v0.6.1, with these values:\n  \
            apiserver.extraArgs=[]\n  apiserver.image.repository=\"a\\u001bb\"\n  nodeSelector.disk=\"fast\"";
        assert_eq!(text, format!("This undoes the run of control plane demo begun then:\n{lines}"));
        plan.release.as_mut().unwrap().values = Some(serde_json::json!({}));
        assert!(format_undo_plan("demo", "", &plan).ends_with("with the default values of its chart"));
    }

    fn journal_file_error(kind: io::ErrorKind) -> apply::Error {
        let source = io::Error::new(kind, "StatefulSet fleet/etcd has become ready since");
        inventory::Error::File { path: "/home/ann/.fleet/demo/journal".into(), source }.into()
    }

    #[test]
    fn a_copy_that_nothing_can_be_undone_by_leads_to_install_and_uninstall() {
        let (ui, name) = (Ui::for_tests().at_location(&global()), "demo".parse().unwrap());
        let refused = rollback_error(&name, &journal_file_error(io::ErrorKind::InvalidData));
        assert_eq!(refused.exit, Exit::Refused);
        let shown = refused.render(&ui);
        assert!(shown.contains("StatefulSet fleet/etcd has become ready since"), "{shown}");
        for command in ["install", "uninstall"] {
            assert!(shown.contains(&format!("`fleetctl {command} control-plane demo --context west`")), "{shown}");
        }
        assert!(!shown.contains("run the same command again"), "{shown}");
        assert_eq!(rollback_error(&name, &journal_file_error(io::ErrorKind::PermissionDenied)).exit, Exit::Failed);
    }
}
