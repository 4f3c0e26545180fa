//! Checks of the installation itself: drift of its objects, the result of its last run, the expiry of its certificates.

use super::{Check, CheckResult};
use crate::api::first_of::first_of;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::util::size::format_size;
use crate::api::version::ServiceVersion;

/// Days before expiry from which a certificate is warned about; an install then renews it.
pub const WARN_DAYS: i64 = 60;

/// Days without a successful renewal from which that is warned about: two runs of the weekly CronJob, and a day.
pub const RENEWAL_DAYS: i64 = 15;

/// A certificate by the name of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// Name of the file, such as `apiserver.crt`.
    pub file: String,
    /// Whole days until it ends; below zero it has ended.
    pub days: i64,
    /// The day on which it ends, `2027-01-31`.
    pub date: String,
}

/// All that these checks look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledFacts {
    /// The control plane's name.
    pub name: String,
    /// Who installed it.
    pub installed_by: InstalledBy,
    /// The version of what is installed, by the record or else by the labels; none where it is unknown.
    pub version: Option<ServiceVersion>,
    /// Objects that drifted, one clause each; or the error of the comparison.
    pub drift: Result<Vec<String>, String>,
    /// True if others have put objects back, so that an upgrade has to adopt them.
    pub copied: bool,
    /// Components that run another image than that of the version, one clause each.
    pub images: Vec<String>,
    /// Holder of a run in progress.
    pub at_work: Option<String>,
    /// Command and start of a run that was interrupted.
    pub interrupted: Option<(String, String)>,
    /// Stores that a restore has replaced, and that are still on the volumes.
    pub former_stores: Option<FormerStores>,
    /// All certificates that could be read.
    pub certificates: Vec<Expiry>,
    /// Party that issues the certificates again.
    pub renewed_by: RenewedBy,
    /// How the automatic renewal goes.
    pub renewal: RenewalRuns,
}

/// Stores that a restore has replaced, and that are still on the volumes of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerStores {
    /// Time at which the restore began, RFC 3339.
    pub since: String,
    /// Bytes that they take; none if this is unknown.
    pub bytes: Option<u64>,
}

/// The runs of the CronJob that renews certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalRuns {
    /// There is no such CronJob.
    None,
    /// It could not be read, for this reason.
    Unread(String),
    /// It is there.
    Found {
        /// Whether it is suspended.
        suspended: bool,
        /// Whole days since the last run that succeeded, or since the CronJob was made if none has.
        days: i64,
        /// Time of the last run, if it failed, and the reason.
        failed: Option<(String, String)>,
    },
}

/// Who installed a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstalledBy {
    /// fleetctl, by its record.
    Fleetctl {
        /// The recorded service version.
        version: String,
        /// The number of recorded objects.
        objects: usize,
    },
    /// Other tools, such as Argo CD, Flux or kubectl, by the field managers of the objects; fleetctl has no record of
    /// them.
    Others(Vec<String>),
    /// It is unknown: the record is lost.
    Unknown,
    /// It is unknown, for this reason.
    Unread(String),
}

/// Party that issues the certificates of a control plane again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RenewedBy {
    /// An install or an upgrade; `template`, where others apply what it prints.
    #[default]
    Install,
    /// The CronJob in the hosting cluster.
    CronJob,
    /// Whoever keeps the Secret with them.
    Others,
}

impl InstalledFacts {
    /// A command about this installation.
    fn command_for(&self, action: impl FnOnce(Subject) -> Action) -> Command {
        Command::at_run_place(action(Subject::ControlPlane(self.name.clone())))
    }

    /// Returns the remedy by which certificates are issued again; `verb` says what an upgrade does with them.
    fn renewal_remedy(&self, verb: &str) -> Remedy {
        match self.renewed_by {
            RenewedBy::Install if matches!(self.installed_by, InstalledBy::Others(_)) => Remedy::default()
                .command(self.as_it_is(Action::Template))
                .text(format!(", {VALUES}, {verb}, and names the Secret to delete before you apply its output")),
            RenewedBy::Install => Remedy::default().command(self.as_it_is(Action::Upgrade)).text(format!(" {verb}")),
            RenewedBy::CronJob => {
                "CronJob `fleet-keys` renews them every week; if it did not, the log of its last Job gives the reason"
                    .into()
            }
            RenewedBy::Others => "their Secret is managed elsewhere: put renewed certificates into that Secret".into(),
        }
    }

    /// Returns the remedy for images that are not those of the version.
    fn own_images(&self) -> Remedy {
        let value = Flag::set_value("COMPONENT.image.tag", "null");
        if matches!(self.installed_by, InstalledBy::Others(_)) {
            return Remedy::default()
                .command(self.as_it_is(Action::Template))
                .text(format!(", {VALUES}, prints the images of the version; if the values set another image, add "))
                .flag(value);
        }
        Remedy::default()
            .command(self.as_it_is(Action::Upgrade))
            .text(" installs the images of the version; if the values set another image (")
            .command(Command::at_run_place(Action::GetValues(self.name.clone())))
            .text("), add ")
            .flag(value)
    }

    /// Returns a command that applies the installed version again: it names the version, if that is known.
    fn as_it_is(&self, action: impl FnOnce(Subject) -> Action) -> Command {
        let command = self.command_for(action);
        match &self.version {
            Some(version) => command.with_flag(Flag::Version(version.to_string())),
            None => command,
        }
    }

    /// Returns a command that adopts what a backup tool has copied.
    fn adopt_copied(&self, command: Command) -> Command {
        if self.copied { command.with_flag(Flag::Adopt) } else { command }
    }
}

/// The checks, in the order in which they are shown.
pub const CHECKS: [Check<InstalledFacts>; 7] = [
    Check::new_advisory("objects", "objects", "installation", &[], check_installed_objects),
    Check::new_advisory("images", "images", "installation", &[], check_running_images),
    Check::new_advisory("last-run", "last run", "installation", &[], last_run),
    Check::new_advisory("former-stores", "former etcd data", "installation", &[], check_former_stores),
    Check::new_required("certificates", "certificates", "installation", &[], check_expired_certificates),
    Check::new_advisory(
        "certificate-renewal",
        "certificate renewal",
        "installation",
        &["certificates"],
        check_certificate_renewal,
    ),
    Check::new_advisory("renewal", "renewal", "installation", &[], check_renewal_runs),
];

/// Text about what a command needs in addition to the version, if no record has the values.
pub const VALUES: &str = "with the values that it was installed with";

/// Number of objects that are named at most, of those that strayed.
const NAMED: usize = 5;

fn check_installed_objects(facts: &InstalledFacts) -> CheckResult {
    let (version, count) = match &facts.installed_by {
        InstalledBy::Fleetctl { version, objects } => (version, objects),
        InstalledBy::Others(managers) => {
            let managers = first_of(managers, NAMED, ", ");
            return CheckResult::Passed(format!("applied by {managers}; fleetctl has no record of them"));
        }
        InstalledBy::Unknown => {
            return CheckResult::new_failure(
                "the record of this installation is missing",
                Remedy::default()
                    .command(facts.as_it_is(Action::Install))
                    .text(format!(", {VALUES}, recreates it from the labels of the objects")),
            );
        }
        InstalledBy::Unread(why) => {
            return CheckResult::new_warning(
                format!("the record cannot be read: {why}"),
                "allow `get` on the Secrets of the namespace",
            );
        }
    };
    match &facts.drift {
        Err(why) => CheckResult::new_warning(format!("could not be compared: {why}"), "allow `list` on these objects"),
        Ok(strayed) if strayed.is_empty() => {
            CheckResult::Passed(format!("{count} of service version {version}, as installed"))
        }
        Ok(strayed) => {
            let diff = facts.as_it_is(|installed| Action::Diff(Some(installed))).with_flag(Flag::ReuseValues);
            CheckResult::new_failure(
                first_of(strayed, NAMED, "; "),
                Remedy::default()
                    .command(facts.adopt_copied(diff))
                    .text(" shows the fields, ")
                    .command(facts.adopt_copied(facts.as_it_is(Action::Upgrade)))
                    .text(" repairs them"),
            )
        }
    }
}

fn check_running_images(facts: &InstalledFacts) -> CheckResult {
    match (&facts.version, &facts.images[..]) {
        (None, _) => CheckResult::Skipped("objects"),
        (Some(version), []) => CheckResult::Passed(format!("those of service version {version}")),
        (Some(_), other) => CheckResult::new_failure(other.join("; "), facts.own_images()),
    }
}

fn last_run(facts: &InstalledFacts) -> CheckResult {
    match &facts.installed_by {
        InstalledBy::Unread(_) => return CheckResult::Skipped("objects"),
        InstalledBy::Others(_) => return CheckResult::Passed("no run by fleetctl".to_owned()),
        InstalledBy::Fleetctl { .. } | InstalledBy::Unknown => {}
    }
    if let Some(who) = &facts.at_work {
        return CheckResult::new_warning(format!("running: {who}"), "check again when it has ended");
    }
    match &facts.interrupted {
        None => CheckResult::Passed("succeeded".to_owned()),
        Some((command, started)) if command == "uninstall" => CheckResult::new_failure(
            format!("an uninstall that began {started} was interrupted"),
            Remedy::default().command(facts.command_for(Action::Uninstall)).text(" continues it"),
        ),
        Some((command, started)) if command == "restore" => CheckResult::new_failure(
            format!("a restore that began {started} is not complete"),
            "run the same command again, or undo the restore; `explain OperationOpen` shows both commands",
        ),
        Some((command, started)) => CheckResult::new_failure(
            format!("an {command} that began {started} was interrupted"),
            Remedy::default()
                .command(facts.command_for(Action::Install))
                .text(", with the version and values of that run, continues it, ")
                .command(Command::at_run_place(Action::Rollback(facts.name.clone())))
                .text(" undoes it"),
        ),
    }
}

fn check_former_stores(facts: &InstalledFacts) -> CheckResult {
    let Some(former) = &facts.former_stores else { return CheckResult::Passed("none".to_owned()) };
    let size = former.bytes.map_or_else(|| "data of unknown size".to_owned(), format_size);
    CheckResult::new_failure(
        format!("{size} on the volumes of etcd, from before the restore that began {}", former.since),
        Remedy::new("if the restored data is right, delete them with ")
            .command(Command::at_run_place(Action::CommitRestore(facts.name.clone()))),
    )
}

fn first_to_end(facts: &InstalledFacts) -> Option<&Expiry> {
    facts.certificates.iter().min_by_key(|expiry| expiry.days)
}

fn check_expired_certificates(facts: &InstalledFacts) -> CheckResult {
    match first_to_end(facts) {
        None => {
            CheckResult::new_warning("no certificate could be read", "allow `list` on the Secrets of the namespace")
        }
        Some(first) if first.days < 0 => CheckResult::new_failure(
            format!("{} expired on {}", first.file, first.date),
            facts.renewal_remedy("reissues it"),
        ),
        Some(_) => CheckResult::Passed(format!("{} valid", facts.certificates.len())),
    }
}

fn check_certificate_renewal(facts: &InstalledFacts) -> CheckResult {
    let due: Vec<&Expiry> = facts.certificates.iter().filter(|expiry| expiry.days < WARN_DAYS).collect();
    match (first_to_end(facts), due.as_slice()) {
        (None, _) => CheckResult::new_warning("unknown", "allow `list` on the Secrets of the namespace"),
        (Some(first), []) => CheckResult::Passed(format!("{} expires first, in {} days", first.file, first.days)),
        (Some(first), due) => CheckResult::new_failure(
            format!(
                "{} of {} certificates expire within {WARN_DAYS} days, {} first, on {}",
                due.len(),
                facts.certificates.len(),
                first.file,
                first.date
            ),
            facts.renewal_remedy("renews these certificates"),
        ),
    }
}

fn check_renewal_runs(facts: &InstalledFacts) -> CheckResult {
    let remedy = "the log of the last Job of CronJob `fleet-keys` has the details; the next run tries again";
    match (&facts.renewal, facts.renewed_by) {
        (RenewalRuns::None, RenewedBy::Others) => {
            CheckResult::Passed("the certificates are managed elsewhere".to_owned())
        }
        (RenewalRuns::None, _) => CheckResult::Passed("manual: an install renews expiring certificates".to_owned()),
        (RenewalRuns::Unread(why), _) => CheckResult::new_warning(
            format!("unknown: {why}"),
            "allow `get` on CronJobs and ConfigMaps of the namespace",
        ),
        (RenewalRuns::Found { failed: Some((when, why)), .. }, _) => {
            CheckResult::new_failure(format!("the last run failed at {when}: {why}"), remedy)
        }
        (RenewalRuns::Found { suspended: true, .. }, _) => {
            CheckResult::new_failure("CronJob `fleet-keys` is suspended", "resume it: nothing else renews certificates")
        }
        (RenewalRuns::Found { days, .. }, _) if *days >= RENEWAL_DAYS => {
            CheckResult::new_failure(format!("no run has succeeded for {days} days"), remedy)
        }
        (RenewalRuns::Found { .. }, _) => {
            CheckResult::Passed("CronJob `fleet-keys` renews expiring certificates".to_owned())
        }
    }
}

#[cfg(test)]
pub(super) use tests::examples;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::remedy::Place;
    use crate::check::{CheckResult, Judged, evaluate_failing_check, result_of_check, run_checks};

    fn good() -> InstalledFacts {
        InstalledFacts {
            name: "demo".to_owned(),
            installed_by: InstalledBy::Fleetctl { version: "v0.6.1".to_owned(), objects: 23 },
            version: Some("v0.6.1".parse().unwrap()),
            drift: Ok(Vec::new()),
            copied: false,
            certificates: vec![expiry("ca.crt", 3650), expiry("apiserver.crt", 364)],
            images: Vec::new(),
            at_work: None,
            interrupted: None,
            former_stores: None,
            renewed_by: RenewedBy::Install,
            renewal: RenewalRuns::None,
        }
    }

    fn runs(suspended: bool, days: i64, failed: Option<(&str, &str)>) -> InstalledFacts {
        let failed = failed.map(|(when, why)| (when.to_owned(), why.to_owned()));
        let renewal = RenewalRuns::Found { suspended, days, failed };
        InstalledFacts { renewal, renewed_by: RenewedBy::CronJob, ..good() }
    }

    #[test]
    fn a_renewal_that_failed_or_did_not_run_is_a_warning() {
        assert!(matches!(verdict(&runs(false, 14, None), "renewal"), CheckResult::Passed(_)));
        assert!(said(&runs(false, 15, None), "renewal").contains("no run has succeeded for 15 days"));
        assert!(said(&runs(true, 1, None), "renewal").contains("suspended"));
        let failed = runs(false, 1, Some(("2026-01-31T03:17:00Z", "pod etcd-0 port 2379 serves another")));
        assert!(matches!(verdict(&failed, "renewal"), CheckResult::Warned(_)));
        assert!(said(&failed, "renewal").contains("pod etcd-0 port 2379 serves another"));
        let unread = InstalledFacts { renewal: RenewalRuns::Unread("forbidden".to_owned()), ..good() };
        assert!(matches!(verdict(&unread, "renewal"), CheckResult::Warned(_)));
        assert!(matches!(verdict(&good(), "renewal"), CheckResult::Passed(_)));
    }

    fn restored(bytes: Option<u64>) -> InstalledFacts {
        let former_stores = Some(FormerStores { since: "2026-01-31T12:00:00Z".to_owned(), bytes });
        InstalledFacts { former_stores, ..good() }
    }

    #[test]
    fn former_stores_are_a_warning_with_their_size_and_what_deletes_them() {
        let text = said(&restored(Some(150_000_000)), "former-stores");
        assert!(text.starts_with("Warned") && text.contains("143.1 MiB on the volumes of etcd"), "{text}");
        assert!(text.contains(r#"CommitRestore("demo")"#), "{text}");
        assert!(said(&restored(None), "former-stores").contains("data of unknown size"));
    }

    fn expiry(file: &str, days: i64) -> Expiry {
        Expiry { file: file.to_owned(), days, date: "2027-01-31".to_owned() }
    }

    fn certificates_ending(days: i64) -> Vec<Expiry> {
        vec![expiry("ca.crt", 3650), expiry("apiserver.crt", days)]
    }

    pub(in crate::check) fn examples() -> Vec<Judged> {
        let strayed = "fields of Deployment fleet/apiserver were changed, last by kubectl-edit".to_owned();
        let interrupted = Some(("install".to_owned(), "2026-01-31T12:00:00Z".to_owned()));
        let images = vec![
            "fleet-scheduler is set to fleetscheduler/fleet-scheduler:v0.5.9, but service version v0.6.1 uses v0.6.1"
                .to_owned(),
        ];
        let behind = "pod etcd-0 port 2379 serves etcd-server.crt with serial 4c:01, but the Secret has serial 5e:02";
        [
            ("objects", InstalledFacts { drift: Ok(vec![strayed]), ..good() }),
            ("images", InstalledFacts { images, ..good() }),
            ("last-run", InstalledFacts { interrupted, ..good() }),
            ("former-stores", restored(Some(150_000_000))),
            ("certificates", InstalledFacts { certificates: certificates_ending(-1), ..good() }),
            ("certificate-renewal", InstalledFacts { certificates: certificates_ending(30), ..good() }),
            ("renewal", runs(false, 8, Some(("2026-01-31T03:17:00Z", behind)))),
        ]
        .map(|(id, facts)| evaluate_failing_check(&CHECKS, id, &facts))
        .into()
    }

    fn verdict(facts: &InstalledFacts, id: &str) -> CheckResult {
        result_of_check(&CHECKS, id, facts)
    }

    fn said(facts: &InstalledFacts, id: &str) -> String {
        format!("{:?}", verdict(facts, id))
    }

    #[test]
    fn an_installation_that_is_as_it_was_made_passes() {
        let report = run_checks(&CHECKS, &good(), &[]);
        assert!(report.judged.iter().all(|judged| matches!(judged.result, CheckResult::Passed(_))), "{report:?}");
    }

    fn with_certificate_of(days: i64) -> InstalledFacts {
        InstalledFacts { certificates: vec![expiry("apiserver.crt", days)], ..good() }
    }

    #[test]
    fn a_certificate_is_warned_about_from_sixty_days_before_its_end_and_fails_after_it() {
        assert!(matches!(verdict(&with_certificate_of(60), "certificate-renewal"), CheckResult::Passed(_)));
        assert!(matches!(verdict(&with_certificate_of(59), "certificate-renewal"), CheckResult::Warned(_)));
        assert!(said(&with_certificate_of(59), "certificate-renewal").contains("apiserver.crt first, on 2027-01-31"));
        assert!(matches!(verdict(&with_certificate_of(0), "certificates"), CheckResult::Passed(_)));
        assert!(matches!(verdict(&with_certificate_of(-1), "certificates"), CheckResult::Failed(_)));
    }

    #[test]
    fn drift_a_lost_record_and_a_run_that_was_interrupted_are_warnings_with_the_command_that_mends() {
        let drifted =
            InstalledFacts { drift: Ok(vec!["fields of ConfigMap fleet/a were changed".to_owned(); 7]), ..good() };
        assert!(matches!(verdict(&drifted, "objects"), CheckResult::Warned(_)));
        let text = said(&drifted, "objects");
        assert!(text.contains("and 2 more") && text.contains(r#"Diff(Some(ControlPlane("demo")))"#), "{text}");
        let lost = InstalledFacts { installed_by: InstalledBy::Unknown, ..good() };
        assert!(said(&lost, "objects").contains("recreates it"));
        let interrupted =
            |command: &str| InstalledFacts { interrupted: Some((command.to_owned(), "then".to_owned())), ..good() };
        assert!(said(&interrupted("install"), "last-run").contains(r#"Rollback("demo")"#));
        assert!(said(&interrupted("restore"), "last-run").contains("a restore that began then is not complete"));
        assert!(said(&interrupted("uninstall"), "last-run").contains(r#"Uninstall(ControlPlane("demo"))"#));
    }

    fn installed_by_others() -> InstalledFacts {
        InstalledFacts {
            installed_by: InstalledBy::Others(vec!["argocd-controller".to_owned(), "kubectl".to_owned()]),
            images: vec!["apiserver is set to a:v1, but service version v0.6.1 uses v2".to_owned()],
            ..with_certificate_of(1)
        }
    }

    #[test]
    fn what_others_applied_is_changed_where_they_keep_it() {
        let applied = "applied by argocd-controller, kubectl; fleetctl has no record of them";
        assert_eq!(verdict(&installed_by_others(), "objects"), CheckResult::Passed(applied.to_owned()));
        assert_eq!(verdict(&installed_by_others(), "last-run"), CheckResult::Passed("no run by fleetctl".to_owned()));
        for id in ["images", "certificate-renewal"] {
            let said = said(&installed_by_others(), id);
            assert!(said.contains("Template(ControlPlane") && !said.contains("Upgrade("), "{id}: {said}");
        }
        let renewing = InstalledFacts { renewed_by: RenewedBy::CronJob, ..installed_by_others() };
        assert!(said(&renewing, "certificate-renewal").contains("CronJob `fleet-keys`"));
    }

    #[test]
    fn an_image_that_is_not_the_versions_is_a_warning_and_unknown_without_a_version() {
        let images = vec!["apiserver is set to a:v1, but service version v0.6.1 uses v2".to_owned()];
        assert!(matches!(verdict(&InstalledFacts { images, ..good() }, "images"), CheckResult::Warned(_)));
        assert_eq!(verdict(&InstalledFacts { version: None, ..good() }, "images"), CheckResult::Skipped("objects"));
    }

    fn interrupted_by(command: &str) -> InstalledFacts {
        InstalledFacts { interrupted: Some((command.to_owned(), "then".to_owned())), ..good() }
    }

    #[test]
    fn every_command_is_about_this_installation() {
        let version: Option<ServiceVersion> = Some("v1.1.3".parse().unwrap());
        let same = Some(Flag::Version("v1.1.3".to_owned()));
        for (facts, flag) in [
            (InstalledFacts { installed_by: InstalledBy::Unknown, ..good() }, &same),
            (InstalledFacts { drift: Ok(vec!["something".to_owned()]), ..good() }, &same),
            (with_certificate_of(-1), &same),
            (with_certificate_of(1), &same),
            (interrupted_by("install"), &None),
            (interrupted_by("uninstall"), &None),
        ] {
            let report = run_checks(&CHECKS, &InstalledFacts { version: version.clone(), ..facts }, &[]);
            let (judged, problem) = report.failures().chain(report.warnings()).next().unwrap();
            let commands = problem.remedy.commands();
            assert!(!commands.is_empty() && commands.iter().all(|command| command.place == Place::Run), "{judged:?}");
            // What makes it again keeps its version, and takes its values from the record, or reminds of them.
            assert!(commands.iter().all(|command| command.flags.first() == flag.as_ref()), "{judged:?}");
            let all_take = commands.iter().all(|command| {
                matches!(command.action, Action::Upgrade(_)) || command.flags.contains(&Flag::ReuseValues)
            });
            assert_ne!(all_take, problem.remedy.joined_text().contains(VALUES) || flag.is_none());
        }
        let unknown = InstalledFacts { installed_by: InstalledBy::Unknown, version: None, ..good() };
        let report = run_checks(&CHECKS, &unknown, &[]);
        assert_eq!(report.warnings().next().unwrap().1.remedy.commands()[0].flags, []);
    }

    #[test]
    fn a_record_that_may_not_be_read_is_a_warning_and_nothing_is_guessed_from_it() {
        let facts = InstalledFacts { installed_by: InstalledBy::Unread("secrets is forbidden".to_owned()), ..good() };
        assert!(matches!(verdict(&facts, "objects"), CheckResult::Warned(_)));
        assert!(said(&facts, "objects").contains("secrets is forbidden"));
        assert_eq!(verdict(&facts, "last-run"), CheckResult::Skipped("objects"));
    }
}
