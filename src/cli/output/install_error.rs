//! Errors of installs: the first error as headline, its cause chain and remedy, then the outcome of the changes.

use std::path::Path;

use super::check_report;
use super::error::CliError;
use super::exit_code::Exit;
use super::remedy::way_to;
use super::terminal::Ui;
use super::values_error::wrong_values;
use crate::api::names::ControlPlaneName;
use crate::api::registration::{Registration, state};
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::util::file::FileError;
use crate::api::util::text::{visible_cell, visible_line, visible_lines};
use crate::cli::args::global::Global;
use crate::control_plane::endpoint::exposure::NotYet;
use crate::control_plane::error::InstallError;
use crate::control_plane::plan::Plan;
use crate::control_plane::version::upgrade::UpgradeRefused;
use crate::install::admin_access::LocalKubeconfigError;
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::recorded_values::ValuesForgotten;
use crate::install::session::Stopped;
use crate::pki::PkiError;
use crate::workload_cluster::control_plane_api::Hub;
use crate::{apply, inventory, workload_cluster};

/// An error of the engine: headline, chain, remedy.
pub(crate) fn engine_error(headline: &str, error: &apply::Error) -> CliError {
    let exit = match error {
        apply::Error::Inventory(inventory::Error::Locked { .. } | inventory::Error::OperationOpen { .. })
        | apply::Error::NotOurs { .. }
        | apply::Error::MadeByOthers { .. }
        | apply::Error::JournalRefused { .. }
        | apply::Error::Conflicts { .. } => Exit::Refused,
        apply::Error::Wait(_) => Exit::TimedOut,
        _ if error.is_timeout() => Exit::TimedOut,
        _ => Exit::Failed,
    };
    let mut shown = CliError::new(exit, error.reason(), headline).because(error);
    if let apply::Error::Wait(failure) = error {
        if let Some(cause) = failure.root_cause() {
            shown = shown.cause(format!("the cause is `{cause}`"));
        }
        for diagnosis in &failure.diagnoses {
            for line in &diagnosis.logs {
                shown = shown.cause(format!("log: {}", visible_lines(line)));
            }
        }
    }
    if let Some(remedy) = error.remedy() {
        shown = shown.hint(remedy);
    }
    match error {
        apply::Error::Wait(failure) => match failure.root_cause() {
            Some(cause) => shown.hint(format!("explain it: `fleetctl explain {cause}`")),
            None => shown,
        },
        apply::Error::JournalRefused { .. } => shown.hint("nothing was written to the cluster"),
        apply::Error::Inventory(inventory::Error::OperationOpen { .. }) => {
            shown.hint("undo it: `fleetctl restore NAME --rollback`")
        }
        _ => shown,
    }
}

/// The engine stopped in the middle of a step.
pub(crate) fn stopped_step_error(stopped: &Stopped) -> CliError {
    let Stopped { step, source } = stopped;
    match source.as_ref() {
        // After a time-out and after an early failure alike: the condition was not met.
        apply::Error::Wait(_) => engine_error(&format!("{step}: timed out waiting for the condition"), source),
        _ => engine_error(&format!("{step} failed"), source),
    }
}

/// A file on this machine cannot be used.
pub(crate) fn local_file_error(error: &FileError) -> CliError {
    add_file_remedy(CliError::new(Exit::Failed, "LocalFile", "a local file cannot be used").because(error), error)
}

/// The remedy of a kubeconfig on this machine that cannot be used.
pub(crate) fn local_kubeconfig_remedy(name: &ControlPlaneName, error: &LocalKubeconfigError) -> Remedy {
    error.remedy().unwrap_or_else(|| format!("write it again with `fleetctl kubeconfig {name}`").into())
}

/// Adds the remedy of a file that cannot be used.
pub(crate) fn add_file_remedy(shown: CliError, error: &FileError) -> CliError {
    match error.remedy() {
        Some(remedy) => shown.hint(remedy),
        None => shown,
    }
}

/// A folder on this machine has keys that cannot be used.
pub(crate) fn local_keys(folder: &Path, source: &PkiError) -> CliError {
    CliError::new(Exit::Failed, "BadKeys", format!("the keys in {} cannot be used", folder.display()))
        .because(source)
        .hint("restore that folder from a backup; or, if no control plane was installed with these keys, move the folder away: the next run creates new keys")
}

/// Recorded values would be reset.
fn values_forgotten(forgotten: &ValuesForgotten, what: Subject) -> CliError {
    let shown = CliError::new(Exit::Refused, "ValuesForgotten", forgotten.to_string());
    shown.details(forgotten.format_clauses()).hint(forgotten.remedy(what))
}

/// The error of a failed install of a control plane.
pub(crate) fn control_plane_failed(ui: &Ui, plan: &Plan, failure: Failure<InstallError>) -> CliError {
    let Failure { error, aftermath } = failure;
    let shown = match &error {
        InstallError::Preflight(checks) => return check_report::preflight_refused(checks, true),
        InstallError::Upgrade { refused: refused @ UpgradeRefused::MinorSkipped { .. }, .. } => {
            CliError::new(Exit::Preflight, "MinorSkipped", error.to_string())
                .because(refused)
                .hint(refused.remedy(plan.name.as_str(), None))
        }
        InstallError::Upgrade { refused, cluster } => {
            CliError::new(Exit::Refused, "VersionChangeRefused", error.to_string())
                .because(refused)
                .hint(refused.remedy(plan.name.as_str(), *cluster))
        }
        InstallError::Forgotten(forgotten) => {
            values_forgotten(forgotten, Subject::ControlPlane(plan.name.to_string()))
        }
        InstallError::Engine(source) => stopped_step_error(source),
        InstallError::Cluster(source) => {
            crate::cli::connect::request_failed("cannot read the hosting cluster", source)
        }
        InstallError::Render(problems) => wrong_values(problems),
        InstallError::NoAddress(NotYet::NoNodeAddress { .. }) => {
            CliError::new(Exit::TimedOut, "NoAddress", error.to_string())
                .hint("give a host with `--set exposure.host=HOST`")
                .hint("see which nodes are ready and schedulable: `kubectl get nodes`")
        }
        InstallError::NoAddress(_) => CliError::new(Exit::TimedOut, "NoAddress", error.to_string()).hint(
            "check the controller that assigns addresses to Services of type LoadBalancer, or use `--set \
             exposure.type=NodePort`",
        ),
        InstallError::Keys(source) => CliError::new(Exit::Failed, "BadKeys", error.to_string())
            .because(source)
            .hint("restore the Secrets of the control plane from a backup; no agent would trust new keys"),
        InstallError::LocalKeys { folder, source } => local_keys(folder, source),
        InstallError::ExistingKeys { secret, namespace, problems } => {
            CliError::new(Exit::Refused, "BadKeys", error.to_string()).details(problems.clone()).hint(format!(
                "create a complete set of keys in an empty folder, with the same values: `fleetctl template control-plane {} --pki FOLDER`; then create the Secret from it: `kubectl -n {namespace} create secret generic {secret} --from-file=FOLDER`",
                plan.name
            ))
        }
        InstallError::Members { now, .. } => CliError::new(Exit::Refused, "EtcdMembersFixed", error.to_string())
            .hint(format!("give the values of the previous install, or `--set etcd.replicas={now}`"))
            .hint("to change the number of etcd replicas, install a new control plane"),
        InstallError::Volume { value, now, wanted, grows } => {
            let keep = now.as_ref().map_or_else(|| format!("leave `{value}` out"), |now| format!("`--set {value}={now}`"));
            let refused = CliError::new(Exit::Refused, "EtcdVolumeFixed", error.to_string())
                .hint(format!("give the values of the previous install, or {keep}"));
            match wanted.as_ref().filter(|_| *grows) {
                Some(wanted) => refused.hint(format!(
                    "if its StorageClass allows expansion, expand the volume itself: `kubectl -n {} patch pvc etcd-data-etcd-0 -p \
                     '{{\"spec\":{{\"resources\":{{\"requests\":{{\"storage\":\"{wanted}\"}}}}}}}}'`",
                    plan.package.namespace
                )),
                None => refused.hint("to change the volumes of etcd, install a new control plane"),
            }
        }
        InstallError::KeysLost(_) => CliError::new(Exit::Refused, "BadKeys", error.to_string())
            .hint("restore Secret `fleet-pki` from a backup and install with `--adopt`; with new keys neither the data nor the agents can be used")
            .hint(Remedy::new("to delete the control plane with its data: ").command(
                Command::at_run_place(Action::Uninstall(Subject::ControlPlane(plan.name.to_string()))).with_flag(Flag::DeleteData),
            )),
        InstallError::Local(source) => local_file_error(source),
        InstallError::Unreachable { why, .. } => CliError::new(Exit::Unhealthy, "Unreachable", error.to_string())
            .cause(why.clone())
            .hint("allow connections to that address, or give one that can be reached from here: `--set exposure.host=HOST`"),
        InstallError::Unhealthy(health) => {
            ui.write_stderr(&check_report::format_health(ui, plan.name.as_str(), &health.report, &health.facts));
            CliError::new(Exit::Unhealthy, "Unhealthy", error.to_string())
                .hint(
                    Remedy::new("check again with ")
                        .command(Command::at_run_place(Action::Status(Some(plan.name.to_string())))),
                )
        }
        InstallError::Interrupted => CliError::new(Exit::Interrupted, "Interrupted", "the install was interrupted"),
    };
    add_failure_outcome(shown, Subject::ControlPlane(plan.name.to_string()), &aftermath)
}

/// The error of a failed install of an agent.
pub(crate) fn agent_failed(
    plan: &workload_cluster::plan::Plan,
    failure: Failure<workload_cluster::error::InstallError>,
    global: &Global,
    hub: Option<&Hub>,
) -> CliError {
    use workload_cluster::error::InstallError as E;
    let Failure { error, aftermath } = failure;
    let logs = format!(
        "read the agent's log: `kubectl{} -n {} logs -l app.kubernetes.io/name=fleet-agent`",
        global.cluster_flags(),
        global.namespace
    );
    let shown = match &error {
        E::Preflight(checks) => return check_report::preflight_refused(checks, true),
        E::Forgotten(forgotten) => values_forgotten(forgotten, Subject::Agent(plan.name.to_string())),
        E::Engine(source) => stopped_step_error(source),
        E::Cluster(source) => crate::cli::connect::request_failed("cannot read the workload cluster", source),
        E::Hub { source, .. } => crate::cli::connect::request_failed(&error.to_string(), source),
        E::HubSilent { .. } => {
            let there = way_to(&Hub::access_to(hub));
            CliError::new(Exit::TimedOut, "TimedOut", error.to_string())
                .hint(format!("check that its API answers from here: `kubectl get --raw /readyz{there}`"))
                .hint("give it more time with `--timeout` if the connection is slow")
        }
        E::NoInitSecret(_) => CliError::new(Exit::Preflight, "NoInitSecret", error.to_string())
            .hint("the scheduler of the control plane creates this Secret once the scheduler runs: see `fleetctl status` on \
                   the hosting cluster"),
        E::Render(problems) => wrong_values(problems),
        E::NotConnected { stopped: source, said } => add_agent_report(stopped_step_error(source), said.as_ref(), plan, hub).hint(logs),
        E::NotReady(said) => {
            add_agent_report(CliError::new(Exit::TimedOut, "NotReady", error.to_string()), said.as_ref(), plan, hub).hint(logs)
        }
        E::Probe(outcome) => CliError::new(Exit::Preflight, "NotReached", error.to_string())
            .cause(format!("{}: {}", visible_cell(&outcome.hop), visible_line(&outcome.message)))
            .hint("allow this connection from the pods of this cluster, or install the control plane with an address that they can reach")
            .hint("to continue anyway: `--skip-preflight probe`"),
        E::Refused(said) => CliError::new(Exit::Failed, "RegistrationRefused", error.to_string())
            .cause(visible_line(&said.message))
            .hint(logs),
        E::Interrupted => CliError::new(Exit::Interrupted, "Interrupted", "the install was interrupted"),
    };
    add_failure_outcome(shown, Subject::Agent(plan.name.to_string()), &aftermath)
}

/// Adds the agent's own report.
fn add_agent_report(
    shown: CliError,
    said: Option<&Registration>,
    plan: &workload_cluster::plan::Plan,
    hub: Option<&Hub>,
) -> CliError {
    let Some(said) = said else { return shown };
    let shown = shown.cause(format!("the agent reports {}", workload_cluster::install::format_registration(said)));
    if said.is_in_state(state::REGISTERING) {
        let there = way_to(&Hub::access_to(hub));
        let accept = format!("`fleetctl accept {}{there}`", plan.name);
        return shown
            .hint(format!("if the control plane accepts registrations manually, accept the cluster: {accept}"));
    }
    shown
}

/// Adds the failure outcome after the error itself.
pub(crate) fn add_failure_outcome(shown: CliError, what: Subject, outcome: &FailureOutcome) -> CliError {
    let uninstall = Command::at_run_place(Action::Uninstall(what));
    match outcome {
        FailureOutcome::NothingWritten => shown.hint("nothing was written to the cluster"),
        FailureOutcome::Left => {
            shown.hint(advise_to_continue("the objects that were created so far are kept", uninstall))
        }
        FailureOutcome::Recorded => {
            shown.hint(advise_to_continue("the whole install is already recorded and is kept", uninstall))
        }
        FailureOutcome::NotUndone(why) => {
            let mut shown = shown.cause(format!("nothing was undone: {why}"));
            shown.exit = Exit::PartDone;
            shown.hint(advise_to_continue("the changes are kept", uninstall))
        }
        FailureOutcome::RolledBack => shown.hint("all changes of this run were undone"),
        FailureOutcome::RollbackFailed(error) => {
            let mut shown = shown.cause(format!("the rollback failed: {error}"));
            shown.exit = Exit::PartDone;
            shown.hint(Remedy::new("to remove what is left: ").command(uninstall))
        }
    }
}

fn advise_to_continue(state: &str, uninstall: Command) -> Remedy {
    Remedy::new(format!("{state}; to continue, run the same install again; to uninstall, ")).command(uninstall)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::api::kinds::Kind;
    use crate::chart;
    use crate::chart::versions::select::{Request, select_row};
    use crate::cli::Cli;
    use crate::cli::args::chart_choice;
    use crate::control_plane::version::upgrade;
    use crate::k8s::ObjectRef;

    fn global(arguments: &str) -> Global {
        let words = format!("fleetctl versions{arguments}");
        let arguments = Cli::command().version("v0.6.1").get_matches_from(words.split(' '));
        Cli::from_arg_matches(&arguments).unwrap().global
    }

    #[test]
    fn the_commands_that_a_failed_install_tells_lead_to_the_same_place() {
        let flags = " --context west --namespace two";
        let global = global(flags);
        let chosen = select_row(chart::embedded_versions(), Request::default()).unwrap();
        let version = Some("v0.8");
        let later = select_row(chart::embedded_versions(), Request { version, ..Request::default() }).unwrap();
        let chart = chart_choice::load_selected_chart(chart::Kind::ControlPlane, &chosen).unwrap();
        let values = chart.values_of(&chosen.version);
        let name = "demo".parse().unwrap();
        let plan = Plan::new(name, global.namespace.clone(), &chosen, chart, values).unwrap();
        let claim = ObjectRef::new(&Kind::from_table("", "PersistentVolumeClaim"), Some("two"), "etcd-data-etcd-0");
        let refused = upgrade::check_upgrade(chart::embedded_versions(), "v0.6.1", &later.version).unwrap_err();
        for (error, command) in [
            (InstallError::KeysLost(claim), format!("uninstall control-plane demo{flags} --delete-data")),
            (
                InstallError::Upgrade { refused, cluster: None },
                format!("install control-plane demo{flags} --version v0.7 --reuse-values"),
            ),
        ] {
            let failure = Failure { error, aftermath: FailureOutcome::NothingWritten };
            let ui = Ui::for_tests().at_location(&global);
            let shown = control_plane_failed(&ui, &plan, failure).render(&ui);
            assert!(shown.contains(&format!("`fleetctl {command}`")), "{shown}");
        }
    }

    #[test]
    fn a_rollback_that_fails_comes_after_the_error_that_it_was_for() {
        let gone = apply::Error::Input("the registry is gone".to_owned());
        let failed = Stopped { step: "Installing the scheduler".to_owned(), source: Box::new(gone) };
        let aftermath = FailureOutcome::RollbackFailed(Box::new(apply::Error::Input("the server is gone".to_owned())));
        let shown =
            add_failure_outcome(stopped_step_error(&failed), Subject::ControlPlane("demo".to_owned()), &aftermath);
        assert_eq!(shown.exit, Exit::PartDone);
        assert_eq!(shown.headline, "Installing the scheduler failed");
        let [first, second] = shown.causes.as_slice() else { panic!("{shown:?}") };
        assert!(first.contains("the registry is gone"), "{first}");
        assert!(second.starts_with("the rollback failed: ") && second.contains("the server is gone"), "{second}");
        let hints = shown.render(&Ui::for_tests());
        assert!(hints.ends_with("`fleetctl uninstall control-plane demo`\n"), "{hints}");
    }

    #[test]
    fn an_install_that_was_recorded_before_it_could_be_undone_is_not_called_undone() {
        let error = CliError::new(Exit::Interrupted, "Interrupted", "the install was interrupted");
        let shown = add_failure_outcome(error, Subject::ControlPlane("demo".to_owned()), &FailureOutcome::Recorded)
            .render(&Ui::for_tests());
        assert!(shown.contains("is already recorded and is kept") && !shown.contains("undone"), "{shown}");
    }
}
