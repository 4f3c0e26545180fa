//! `certs renew`: renews the certificates of a control plane, from the Secrets to the kubeconfig on this machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use kube::Client;

use super::access_again::{name_ended_agents, replace_kubeconfigs, wait_for_health};
use super::renewal_error::{keys_error, renewal_error};
use crate::api::names::ControlPlaneName;
use crate::certificates::renew::Renewed;
use crate::certificates::summary::HeldCertificate;
use crate::check;
use crate::cli::args::global::Global;
use crate::cli::args::timeouts::{RENEWAL_TIMEOUT, parse_duration};
use crate::cli::connect::{
    connect_cluster, find_home, refused_by_check, refused_rights, request_failed, require_verified_server,
};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::cli::signals::until_stopped;
use crate::control_plane::certificate_status::{HostingCertificates, read_hosting_certificates};
use crate::control_plane::rbac::renewal_rights;
use crate::control_plane::renewal::{Renewal, Renewer};
use crate::install::progress::Progress as _;
use crate::pki::secrets::certificate_entries;
use crate::pki::{AuthorityKind, Choice, Completed, Leaf, Renewal as Reason};

pub(super) const EXAMPLES: &str = "\
The command renews certificates that expire within 60 days. CAs that expire within a year are signed again with their
own keys, so certificates of agents stay valid. Then each pod must serve the new certificate. A pod that does not is
replaced after 3 minutes, one pod at a time. The controller manager is restarted if its kubeconfig was renewed. The
kubeconfig on this machine is replaced if the API accepts the new one. Finally, the control plane must be healthy. If
nothing is due, nothing is written. After an interruption, `fleetctl certs renew NAME` without further flags completes
the renewal; `--all`, `--only` and `--new-admin-key` issue the certificates once more.

With `pki.source: InCluster`, a Job of CronJob `fleet-keys` renews the certificates. With `Existing`, the command renews
nothing and only checks that the pods serve the certificates in your Secret.

`--recover` is for a control plane whose certificates have expired: it needs only the API of the hosting cluster. If a
component no longer works, all its pods are replaced at once.

Examples:
  fleetctl certs renew demo
  fleetctl certs renew demo --context hosting --all
  fleetctl certs renew demo --only apiserver.crt,admin.kubeconfig
  fleetctl certs renew demo --dry-run
  fleetctl certs renew demo --recover";

/// Headline of a renewal that a check refuses.
const REFUSED: &str = "the renewal was refused; nothing was written";

/// Renew the certificates that are due
#[derive(Debug, Args)]
pub(crate) struct CertsRenewArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Renew all certificates, not only those that are due; CAs are signed again only when they are due
    #[arg(long, conflicts_with = "only")]
    all: bool,

    /// Renew these certificates only, due or not
    #[arg(long, value_name = "CERTIFICATE", value_delimiter = ',', hide_possible_values = true,
        value_parser = PossibleValuesParser::new(certificate_entries().map(|entry| entry.file)))]
    only: Vec<String>,

    /// Issue the operator's certificate with a new key; you must then recreate role bindings that name its user
    #[arg(long)]
    new_admin_key: bool,

    /// Bring back a control plane whose certificates or CAs have expired
    #[arg(long)]
    recover: bool,

    /// Only list what would be done
    #[arg(long)]
    dry_run: bool,

    /// Timeout of the wait
    #[arg(long, value_name = "DURATION", default_value = RENEWAL_TIMEOUT, value_parser = parse_duration)]
    timeout: Duration,
}

impl CertsRenewArgs {
    fn chosen_renewal(&self) -> Choice {
        match (self.all, self.only.is_empty()) {
            (true, _) => Choice::All,
            (false, false) => Choice::Only(self.only.iter().cloned().collect::<BTreeSet<_>>()),
            (false, true) => Choice::Due,
        }
    }
}

pub(super) async fn run(ui: &Ui, global: &Global, args: &CertsRenewArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = find_home()?;
    let connected = connect_cluster(global).await?;
    let client = &connected.client;
    let before = read_certificates(client, &name, global).await?;
    let held = before.list_held();
    if held.is_empty() {
        return Err(super::not_installed(&name, global));
    }
    let renewer = Renewer::of_keys(&before);
    if renewer != Renewer::Machine && (!args.only.is_empty() || args.new_admin_key) {
        return Err(CliError::wrong_usage(
            "error: `--only` and `--new-admin-key` need `pki.source: Installer`; this control plane gets its keys in \
             another way",
        ));
    }
    let display = Arc::new(Display::new(ui));
    let renewal = Renewal {
        client,
        name: &name,
        namespace: &global.namespace,
        choice: args.chosen_renewal(),
        new_admin_key: args.new_admin_key,
        recovers: args.recover,
        timeout: args.timeout,
        waiting: &|text: &str| display.update_step(text),
    };
    let plan = match renewer {
        Renewer::Others(_) => None,
        _ => Some(renewal.plan(&before, Timestamp::now()).map_err(|error| keys_error(&error.into(), &name))?),
    };
    if args.dry_run {
        let file = home.kubeconfig_path(&name);
        ui.write_stdout(&format_plan(plan.as_ref(), &renewer, args.recover, &file.display().to_string()))?;
        return Ok(Exit::Ok);
    }
    check_rights(client, global, &name, &renewer, args.recover).await?;
    if renewer == Renewer::Machine {
        require_verified_server(&connected)?;
        if plan.as_ref().is_some_and(|plan| !plan.is_unchanged())
            && let Some(problem) = check::find_clock_fault(client).await
        {
            return Err(refused_by_check(REFUSED, ("clock", "clock"), &problem.what).hint(problem.remedy));
        }
    }
    display.begin_step("Renewing certificates");
    let outcome = until_stopped(ui, &display, "the renewal", renewal.run(&before), std::future::ready(())).await?;
    let renewed = outcome.map_err(|error| renewal_error(&error, &name, &global.namespace))?;
    let after = read_certificates(client, &name, global).await?;
    ui.write_stdout(&format_outcome(&renewer, &list_changed(&held, &after.list_held()), &renewed))?;

    // What has been waited for until now has limits of its own.
    let deadline = Instant::now() + args.timeout;
    let connected = replace_kubeconfigs(ui, global, client, &home, &name, deadline).await?;
    let hub = connected.as_ref().map(|connected| &connected.client);
    wait_for_health(ui, &display, client, hub, (&name, &global.namespace), deadline).await?;
    if let Some(hub) = hub {
        name_ended_agents(ui, hub, &name).await?;
    }
    Ok(Exit::Ok)
}

async fn read_certificates(
    client: &Client,
    name: &ControlPlaneName,
    global: &Global,
) -> Result<HostingCertificates, CliError> {
    let read = read_hosting_certificates(client, name, &global.namespace).await;
    read.map_err(|error| request_failed("cannot read the certificates of the control plane", &error))
}

/// Refuses to begin without a right that is needed half-way.
async fn check_rights(
    client: &Client,
    global: &Global,
    name: &ControlPlaneName,
    renewer: &Renewer,
    recovers: bool,
) -> Result<(), CliError> {
    let rights = renewal_rights(renewer, recovers);
    let missing = check::access::list_forbidden_rights(client, global.namespace.as_str(), &rights).await;
    let missing = missing.map_err(|error| request_failed("cannot check the rights of this user", &error))?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(refused_rights(REFUSED, &missing, name))
}

/// What a renewal would do.
fn format_plan(plan: Option<&Completed>, renewer: &Renewer, recovers: bool, file: &str) -> String {
    let Some(plan) = plan else {
        return match renewer {
            Renewer::Others(secret) => {
                format!("Nothing is renewed: the keys are in Secret {secret}, which you manage.\n")
            }
            _ => String::new(),
        };
    };
    if plan.is_unchanged() {
        return "Nothing is due.\n".to_owned();
    }
    let mut lines = Vec::new();
    for kind in &plan.renewed_authorities {
        lines.push(format!("{}: signed again with its own key", kind.certificate_file()));
    }
    for (leaf, reason) in &plan.issued {
        let why = match reason {
            Reason::Ends(end) => format!("issued again; it expires on {}", end.strftime("%F")),
            other => format!("issued again; {other}"),
        };
        lines.push(format!("{}: {why}", leaf.leaf_store().stored_file()));
    }
    for leaf in &plan.rewritten {
        lines.push(format!("{}: written again", leaf.leaf_store().stored_file()));
    }
    if *renewer == Renewer::Job {
        lines.push("A Job of CronJob fleet-keys does this.".to_owned());
    }
    if recovers {
        lines.push("All pods of components that no longer work are replaced at once.".to_owned());
    }
    if plan.renewed_authorities.contains(&AuthorityKind::Etcd) {
        lines.push("etcd and the API server are restarted, one pod at a time.".to_owned());
    }
    let changed: Vec<&Leaf> = plan.issued.iter().map(|(leaf, _)| leaf).chain(&plan.rewritten).collect();
    if changed.contains(&&Leaf::ControllerManager) {
        lines.push("The controller manager is restarted.".to_owned());
    }
    if changed.contains(&&Leaf::Admin) {
        lines.push(format!("{file} is replaced, if it exists."));
    }
    lines.join("\n") + "\n"
}

fn format_outcome(renewer: &Renewer, changed: &[String], renewed: &Renewed) -> String {
    let mut text = match (renewer, changed.is_empty()) {
        (Renewer::Others(secret), _) => format!("Every pod serves the certificates in Secret {secret}\n"),
        (_, true) if renewed.restarted.is_empty() => "Nothing is due.\n".to_owned(),
        (_, true) => String::new(),
        (_, false) => format!("Renewed: {}\n", changed.join(", ")),
    };
    if !renewed.restarted.is_empty() {
        text.push_str(&format!("Restarted: {}\n", renewed.restarted.join(", ")));
    }
    text
}

/// Files whose certificates have another serial number than before.
fn list_changed(before: &[HeldCertificate], after: &[HeldCertificate]) -> Vec<String> {
    let changed = after.iter().filter(|held| {
        !before.iter().any(|former| former.certificate == held.certificate && former.serial == held.serial)
    });
    changed.map(|held| held.certificate.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Files;

    fn held(certificate: &str, serial: &str) -> HeldCertificate {
        HeldCertificate {
            certificate: certificate.to_owned(),
            holder: String::new(),
            serial: serial.to_owned(),
            not_after: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_has_another_serial_number_was_renewed() {
        let (before, after) = ([held("a", "01"), held("b", "01")], [held("a", "02"), held("b", "01")]);
        assert_eq!(list_changed(&before, &after), ["a"]);
    }

    #[test]
    fn every_certificate_can_be_chosen() {
        let leaves = Leaf::ALL.iter().map(|leaf| leaf.leaf_store().stored_file());
        let all: BTreeSet<&str> = leaves.chain(AuthorityKind::ALL.iter().map(|kind| kind.certificate_file())).collect();
        assert_eq!(certificate_entries().map(|entry| entry.file).collect::<BTreeSet<_>>(), all);
    }

    /// Keys of which these authorities were signed again, and these leaves, which expired, were issued again.
    fn completed_keys(renewed_authorities: Vec<AuthorityKind>, expired: Vec<Leaf>) -> Completed {
        Completed {
            files: Files::new(),
            new_authorities: false,
            renewed_authorities,
            issued: expired.into_iter().map(|leaf| (leaf, Reason::Ends(Timestamp::UNIX_EPOCH))).collect(),
            rewritten: Vec::new(),
        }
    }

    #[test]
    fn a_plan_names_what_is_written_and_who_writes_it() {
        let none = completed_keys(Vec::new(), Vec::new());
        assert_eq!(format_plan(Some(&none), &Renewer::Machine, false, "f"), "Nothing is due.\n");
        let some = completed_keys(vec![AuthorityKind::Etcd], vec![Leaf::ApiServer]);
        assert_eq!(
            format_plan(Some(&some), &Renewer::Job, true, "f"),
            "etcd-ca.crt: signed again with its own key\n\
             apiserver.crt: issued again; it expires on 1970-01-01\n\
             A Job of CronJob fleet-keys does this.\n\
             All pods of components that no longer work are replaced at once.\n\
             etcd and the API server are restarted, one pod at a time.\n"
        );
        let clients = completed_keys(Vec::new(), vec![Leaf::ControllerManager, Leaf::Admin]);
        assert_eq!(
            format_plan(Some(&clients), &Renewer::Machine, false, "f"),
            "controller-manager.kubeconfig: issued again; it expires on 1970-01-01\n\
             admin.kubeconfig: issued again; it expires on 1970-01-01\n\
             The controller manager is restarted.\n\
             f is replaced, if it exists.\n"
        );
        let others = Renewer::Others("my-keys".to_owned());
        assert!(format_plan(None, &others, false, "f").contains("Secret my-keys"));
    }
}
