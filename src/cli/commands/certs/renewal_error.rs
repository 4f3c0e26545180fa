//! Errors of a renewal, each with what to do next.

use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::certificates::KeysError;
use crate::cli::connect::request_failed;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::control_plane::renewal_job::RenewalError;

/// The error of a renewal that was not done.
pub(in crate::cli) fn renewal_error(
    error: &RenewalError,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> CliError {
    match error {
        RenewalError::NoCronJob(_) => CliError::new(Exit::Refused, "NoRenewalJob", error.to_string()).hint(
            Remedy::new("with `pki.renewal: Manual`, an install renews what is due: ")
                .command(Command::at_run_place(Action::Upgrade(Subject::ControlPlane(name.to_string())))),
        ),
        RenewalError::Keys(error) => keys_error(error, name),
        RenewalError::Api(error) => request_failed("cannot run the renewal", error),
        RenewalError::Failed { .. } => CliError::new(Exit::Failed, "RenewalFailed", error.to_string())
            .hint("run the same command again; it continues where it stopped"),
        RenewalError::TimedOut { job, .. } => CliError::new(Exit::TimedOut, "TimedOut", error.to_string()).hint(
            format!("the Job keeps running: `kubectl --namespace {namespace} logs job/{job}` shows what it waits for"),
        ),
    }
}

/// The error of keys that are not renewed, or not in use.
pub(super) fn keys_error(error: &KeysError, name: &ControlPlaneName) -> CliError {
    let again = "run the same command again; it continues where it stopped";
    match error {
        KeysError::Api(error) => request_failed("the renewal stopped", error).hint(again),
        KeysError::NotServed(_) => {
            CliError::new(Exit::TimedOut, "NotServed", "not every pod serves the certificates in the Secrets")
                .cause(error.to_string())
                .hint("find out why the kubelet does not update the Secret volume of the pod, or delete the pod; then run the same command again")
                .hint("if no pod is ready because certificates have expired, add `--recover`")
        }
        KeysError::NotRolledOut(_) => CliError::new(Exit::TimedOut, "TimedOut", error.to_string()).hint(again),
        KeysError::Contended => CliError::new(Exit::Failed, "RenewalFailed", error.to_string()).hint(again),
        KeysError::NotInstalled(_) => CliError::new(Exit::Refused, "BadKeys", error.to_string()).hint(
            Remedy::new("").command(Command::at_run_place(Action::Upgrade(Subject::ControlPlane(name.to_string())))),
        ),
        KeysError::NotOurs(_) => CliError::new(Exit::Refused, "BadKeys", error.to_string()).hint(
            Remedy::new("choose another namespace with ").flag(Flag::Namespace(None)),
        ),
        KeysError::NotMade(source) => {
            CliError::new(Exit::Failed, "RenewalFailed", error.to_string()).because(source).hint(again)
        }
        KeysError::Damaged(source) | KeysError::Address(source) => CliError::new(Exit::Refused, "BadKeys", error.to_string())
            .because(source)
            .hint("restore the Secret from a backup"),
        KeysError::Lost(_) => {
            CliError::new(Exit::Refused, "BadKeys", error.to_string()).hint("restore the Secret from a backup")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_serves_another_certificate_is_named_with_both_serials() {
        let why = "pod etcd-0 port 2379 serves etcd-server.crt with serial 01, but the Secret has serial 02";
        let error = keys_error(&KeysError::NotServed(vec![why.to_owned()]), &"demo".parse().unwrap());
        assert_eq!((error.exit, error.reason, &error.causes[..]), (Exit::TimedOut, "NotServed", &[why.to_owned()][..]));
    }
}
