//! `certs renew`: runs the renewal of the hosting cluster at once, and brings the kubeconfig on this machine up to date.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::remedy::{Action, Command, Remedy, Subject};
use crate::api::util::file;
use crate::certificates::summary::HeldCertificate;
use crate::cli::args::global::Global;
use crate::cli::args::package::wrong_name;
use crate::cli::args::run::{parse_duration, until_stopped};
use crate::cli::connect::{connect_cluster, find_home, request_failed};
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::control_plane::certificate_status::{HostingCertificates, read_hosting_certificates};
use crate::control_plane::kubeconfig::{find_kubeconfig, place_kubeconfig};
use crate::control_plane::renewal_job::{RenewalError, run_renewal_job};
use crate::install::admin_access::connect_kubeconfig;
use crate::install::progress::Progress as _;
use crate::pki::{AuthorityKind, Lifetimes};

pub(super) const EXAMPLES: &str = "\
Runs CronJob `fleet-keys` at once: certificates with less than 60 days left are issued again, CAs with less than a year left
are signed again with their own keys, and each pod has to serve the new certificate. The kubeconfig on this machine is
then replaced, if the new one is accepted. The command can be repeated; if nothing is due, nothing is written.

Examples:
  fleetctl certs renew demo
  fleetctl certs renew demo --context hosting --all
  fleetctl certs renew demo --dry-run";

/// Renew the certificates that are due
#[derive(Debug, Args)]
pub(crate) struct CertsRenewArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Renew all certificates, not only those that are due; CAs are signed again only when they are due
    #[arg(long)]
    all: bool,

    /// Only list the certificates that would be renewed
    #[arg(long)]
    dry_run: bool,

    /// Timeout of the wait
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &CertsRenewArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = find_home()?;
    let client = connect_cluster(global).await?.client;
    let read = async || {
        let read = read_hosting_certificates(&client, &name, &global.namespace).await;
        read.map_err(|error| request_failed("cannot read the certificates of the control plane", &error))
    };
    let before = read().await?;
    if before.held.is_empty() {
        return Err(super::not_installed(&name, global));
    }
    let due = list_due(&before, args.all, Timestamp::now());
    if args.dry_run {
        let lines: String = due.iter().map(|file| format!("{file}\n")).collect();
        ui.write_stdout(if due.is_empty() { "Nothing is due.\n" } else { &lines })?;
        return Ok(Exit::Ok);
    }
    // A run that failed is done again: its certificates may not be served yet.
    if due.is_empty() && before.summary.failed.is_none() {
        ui.write_stdout("Nothing is due.\n")?;
        return Ok(Exit::Ok);
    }
    let display = Arc::new(Display::new(ui));
    display.begin_step("Renewing certificates");
    let work = run_renewal_job(&client, &name, &global.namespace, args.all, args.timeout);
    let outcome = until_stopped(ui, &display, "the renewal", work, std::future::ready(())).await?;
    outcome.map_err(|error| renewal_error(&error, &name, &global.namespace))?;
    let after = read().await?;
    let renewed = list_changed(&before.held, &after.held);
    ui.write_stdout(&format!(
        "Renewed: {}\n",
        if renewed.is_empty() { "nothing".to_owned() } else { renewed.join(", ") }
    ))?;

    let refused = |why: String| {
        ui.warn(&format!("the kubeconfig on this machine was not replaced: {why}"));
        Ok(Exit::Ok)
    };
    match file::is_present(&home.kubeconfig_path(&name)) {
        Ok(true) => {}
        Ok(false) => return Ok(Exit::Ok),
        Err(error) => return refused(error.to_string()),
    }
    let kubeconfig = match find_kubeconfig(Some(&client), &home, &name, &global.namespace).await {
        Ok((kubeconfig, _)) => kubeconfig,
        Err(error) => return refused(error.to_string()),
    };
    let answered = match connect_kubeconfig(&kubeconfig).await {
        Ok(connected) => connected.client.apiserver_version().await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    if let Err(why) = answered {
        return refused(why);
    }
    match place_kubeconfig(&home, &name, &kubeconfig) {
        Ok(placed) => {
            if let Some(warning) = placed.replaced_file_warning() {
                ui.warn(&warning);
            }
            Ok(Exit::Ok)
        }
        Err(error) => refused(error.to_string()),
    }
}

/// Files whose certificates a renewal issues again.
fn list_due(found: &HostingCertificates, all: bool, now: Timestamp) -> Vec<&str> {
    let usual = Lifetimes::default();
    let is_due = |held: &&HeldCertificate| {
        let is_authority = AuthorityKind::ALL.iter().any(|kind| kind.certificate_file() == held.certificate);
        let spare = if is_authority { usual.renew_authority_before } else { usual.renew_before };
        let spare = SignedDuration::try_from(spare).unwrap_or(SignedDuration::MAX);
        (all && !is_authority) || held.not_after.duration_since(now) <= spare
    };
    found.held.iter().filter(is_due).map(|held| held.certificate.as_str()).collect()
}

/// Files whose certificates have another serial number than before.
fn list_changed(before: &[HeldCertificate], after: &[HeldCertificate]) -> Vec<String> {
    let is_changed = |held: &&HeldCertificate| {
        !before.iter().any(|former| former.certificate == held.certificate && former.serial == held.serial)
    };
    after.iter().filter(is_changed).map(|held| held.certificate.clone()).collect()
}

/// The error of a renewal that was not done.
pub(in crate::cli) fn renewal_error(
    error: &RenewalError,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> CliError {
    match error {
        RenewalError::NoCronJob(_) => CliError::new(Exit::Refused, "NoRenewalJob", error.to_string()).hint(
            Remedy::new("with `pki.renewal: Manual`, an install renews what is due: ")
                .command(Command::at_run_place(Action::Upgrade(Subject::ControlPlane(name.to_string()))))
                .text("; with `pki.source: Existing`, put renewed ones into your own Secret"),
        ),
        RenewalError::Api(error) => request_failed("cannot run the renewal", error),
        RenewalError::Failed { .. } => CliError::new(Exit::Failed, "RenewalFailed", error.to_string())
            .hint("run the same command again; it continues where it stopped"),
        RenewalError::TimedOut { job, .. } => CliError::new(Exit::TimedOut, "TimedOut", error.to_string())
            .hint(format!("the Job goes on: `kubectl --namespace {namespace} logs job/{job}` shows what it waits for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::summary::Summary;

    fn held(certificate: &str, serial: &str, days: i64) -> HeldCertificate {
        let not_after = Timestamp::from_second(days * 86_400).unwrap();
        HeldCertificate {
            certificate: certificate.to_owned(),
            holder: String::new(),
            serial: serial.to_owned(),
            not_after,
        }
    }

    #[test]
    fn certificates_are_due_sixty_days_and_cas_a_year_before_their_end() {
        let held = vec![
            held("ca.crt", "01", 364),
            held("etcd-ca.crt", "01", 366),
            held("apiserver.crt", "01", 61),
            held("admin.kubeconfig", "01", 59),
        ];
        let found = HostingCertificates { held, summary: Summary::default(), server: None };
        assert_eq!(list_due(&found, false, Timestamp::UNIX_EPOCH), ["ca.crt", "admin.kubeconfig"]);
        assert_eq!(list_due(&found, true, Timestamp::UNIX_EPOCH), ["ca.crt", "apiserver.crt", "admin.kubeconfig"]);
    }

    #[test]
    fn what_has_another_serial_number_was_renewed() {
        let (before, after) = ([held("a", "01", 1), held("b", "01", 1)], [held("a", "02", 1), held("b", "01", 1)]);
        assert_eq!(list_changed(&before, &after), ["a"]);
    }
}
