//! Output of the program for each id, held against the example on its page.
//!
//! `UPDATE_EXAMPLES=1` writes what is printed into the pages, as `cargo bed goldens` does. A page whose example begins with
//! `$ ` is a whole run of the program, which the tests of the command line repeat.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};

use super::block::{self, Block};
use super::explain_pages;
use crate::api::kinds::Kind;
use crate::api::placeable;
use crate::api::probe::Outcome;
use crate::api::registration::{Registration, state};
use crate::api::rehearsal::RehearsalReport;
use crate::api::version::KubeMinor;
use crate::apply::{Conflict, Error, Foreign, ObjectReason, RefusedStep, Removed, RolledBack, deleted_diagnosis};
use crate::certificates::KeysError;
use crate::chart::versions::select::{Request, SelectedBy, Selection, select_row};
use crate::chart::{self, ValuesBuilder};
use crate::check::{self, Report};
use crate::cli::args::chart_choice;
use crate::cli::args::installation::{ambiguous_name_error, applied_by_others};
use crate::cli::commands::backup::backup_error;
use crate::cli::commands::backup::rehearse::{describe_faults, rehearsal_error};
use crate::cli::commands::certs::renewal_error::renewal_error;
use crate::cli::commands::etcd::status::access_error;
use crate::cli::commands::get::values::unknown_values_error;
use crate::cli::commands::install::refused_values_error;
use crate::cli::commands::restore::errors::restore_error;
use crate::cli::commands::taint::edit::EditError;
use crate::cli::commands::{kubectl_install, rollback, taint, uninstall, why};
use crate::cli::output::error::CliError;
use crate::cli::output::install_error::{agent_failed, control_plane_failed, stopped_step_error};
use crate::cli::output::terminal::{Question, Ui, nobody_asked};
use crate::cli::output::values_error::too_large;
use crate::cli::output::{check_report, check_table, style};
use crate::cli::{Cli, with_page};
use crate::control_plane;
use crate::control_plane::backup::BackupError;
use crate::control_plane::endpoint::exposure::NotYet;
use crate::control_plane::renewal_job::RenewalError;
use crate::control_plane::restore::RestoreError;
use crate::control_plane::rollback::Outcome as Undone;
use crate::control_plane::version::upgrade;
use crate::control_plane::version::upgrade::UpgradeRefused;
use crate::diagnose::{Diagnosis, WaitFailure, workload};
use crate::etcd::EtcdError;
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::recorded_use::UnconfirmedValue;
use crate::install::recorded_values::{Forgotten, ValuesForgotten};
use crate::install::session::Stopped;
use crate::k8s::{ApiError, ObjectRef};
use crate::workload_cluster::copies::PlacedObject;
use crate::{inventory, workload_cluster};

fn example_object(group: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef::new(&Kind::from_table(group, kind), Some("fleet"), name)
}

/// Builds the answer of a server: the code, and the `Status` that comes with it.
fn server_answer(code: u16, status: &serde_json::Value) -> ApiError {
    let mut answer = serde_json::json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code});
    if let (Some(answer), Some(status)) = (answer.as_object_mut(), status.as_object()) {
        answer.extend(status.clone());
    }
    ApiError::from_answer(code, &http::HeaderMap::new(), answer.to_string().as_bytes())
}

fn api_failure(doing: &str, source: ApiError) -> Error {
    Error::for_object(doing, &example_object("apps", "StatefulSet", "etcd"), source)
}

fn wait_failure(timed_out: bool, diagnosis: Diagnosis) -> Error {
    let pending = vec![diagnosis.chain[0].clone()];
    let waited = Duration::from_secs(if timed_out { 300 } else { 9 });
    Error::Wait(Box::new(WaitFailure { timed_out, waited, pending, diagnoses: vec![diagnosis] }))
}

/// As an install says it that stopped at the step of the API server.
fn of_engine(error: Error) -> String {
    with_page(stopped_step_error(&Stopped { step: "Installing API server".to_owned(), source: Box::new(error) }))
        .render(&Ui::for_tests())
}

/// Every check as `fleetctl check` prints it, without the line that sums up.
fn of_checks() -> Vec<(String, String)> {
    let mut ui = Ui::for_tests();
    ui.here.cluster = " --context west".to_owned();
    let examples = check::example_results().into_iter().map(|judged| {
        let id = judged.id.to_owned();
        let table = check_table::format_check_table(&ui, "", &Report { judged: vec![judged] });
        let table = style::strip_styles(&table, true);
        let (lines, _) = table.trim_end().rsplit_once("\n\n").unwrap();
        (id, format!("{lines}\n"))
    });
    examples.collect()
}

fn of_causes() -> Vec<(String, String)> {
    let examples = workload::examples().into_iter().chain([deleted_diagnosis()]).map(|diagnosis| {
        let timed_out = diagnosis.grace.is_none();
        (diagnosis.cause.id(), of_engine(wait_failure(timed_out, diagnosis)))
    });
    examples.collect()
}

fn of_engine_errors() -> Vec<(&'static str, String)> {
    use serde_json::json;
    let foreign =
        Foreign { object: example_object("", "Service", "etcd"), managers: vec!["helm".to_owned()], install: None };
    let conflict = Conflict {
        object: example_object("apps", "Deployment", "apiserver"),
        field: ".spec.replicas".to_owned(),
        manager: "kubectl".to_owned(),
        since: Some("2026-01-31T12:00:00Z".to_owned()),
        ours: "1".to_owned(),
        theirs: "2".to_owned(),
    };
    let holder = "ann on laptop, process 4711, since 2026-01-31T12:00:00Z".to_owned();
    let record = inventory::Error::Record {
        name: "fleet-install-demo".to_owned(),
        namespace: "fleet".to_owned(),
        why: "it was written by a newer fleetctl".to_owned(),
    };
    let immutable = json!({"reason": "Invalid", "message": "StatefulSet.apps \"etcd\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        "details": {"causes": [{"reason": "FieldValueForbidden", "field": "spec", "message": "updates to statefulset spec for fields other than 'replicas' are forbidden"}]}});
    let forbidden = json!({"reason": "Forbidden", "message": "statefulsets.apps \"etcd\" is forbidden: User \"ann\" cannot patch resource \"statefulsets\" in API group \"apps\" in the namespace \"fleet\""});
    let invalid = json!({"reason": "Invalid", "message": "StatefulSet.apps \"etcd\" is invalid: metadata.labels: Invalid value: \"-\""});
    let terminating = json!({"reason": "Forbidden", "message": "statefulsets.apps \"etcd\" is forbidden: unable to create new content in namespace fleet because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "namespace fleet is being terminated", "field": "metadata.namespace"}]}});
    let refused = std::io::Error::other("tcp connect error: Connection refused (os error 111)");
    let untrusted = std::io::Error::other("invalid peer certificate: UnknownIssuer");
    let stuck = ObjectReason {
        object: example_object("", "ConfigMap", "fleet-scheduler-config"),
        reason: "finalizer example.com/held".to_owned(),
    };
    let file = inventory::Error::File {
        path: "/home/ann/.fleet/demo/journal".into(),
        source: std::io::Error::from(std::io::ErrorKind::PermissionDenied),
    };
    let forged = RefusedStep {
        object: ObjectRef::new(&Kind::from_table("rbac.authorization.k8s.io", "ClusterRoleBinding"), None, "pwn"),
        why: "no chart of any version renders this kind of object".to_owned(),
    };
    let journal = Error::JournalRefused {
        name: "fleetctl.demo".to_owned(),
        namespace: "fleet".to_owned(),
        from_copy: false,
        steps: vec![forged],
    };
    let unrendered = Error::NotRendered {
        object: Box::new(example_object("apps", "Deployment", "apiserver")),
        version: "v0.6.1".to_owned(),
        why: "the recorded release cannot be rendered again: its values are not recorded".to_owned(),
    };
    let errors = [
        journal,
        unrendered,
        api_failure("apply", server_answer(422, &immutable)),
        api_failure("apply", server_answer(403, &forbidden)),
        api_failure("apply", server_answer(422, &invalid)),
        api_failure("apply", server_answer(403, &terminating)),
        api_failure(
            "read",
            server_answer(404, &json!({"reason": "NotFound", "message": "statefulsets.apps \"etcd\" not found"})),
        ),
        api_failure(
            "apply",
            server_answer(503, &json!({"reason": "ServiceUnavailable", "message": "etcdserver: request timed out"})),
        ),
        api_failure("apply", server_answer(401, &json!({"reason": "Unauthorized", "message": "Unauthorized"}))),
        api_failure("apply", ApiError::from_transport_error(&refused)),
        api_failure("apply", ApiError::from_transport_error(&untrusted)),
        Error::Conflicts { conflicts: vec![conflict] },
        Error::NotOurs { objects: vec![foreign] },
        inventory::Error::Locked { holder: holder.clone(), expires: "2026-01-31T12:01:00Z".to_owned() }.into(),
        inventory::Error::LockLost { holder }.into(),
        inventory::Error::PlanOutdated.into(),
        record.into(),
        file.into(),
        Error::Input("it needs apiVersion, kind and metadata.name (has `v1`, `ConfigMap`, ``)".to_owned()),
        Error::Stuck { objects: vec![stuck] },
        wait_failure(true, workload::examples().remove(0)),
        wait_failure(false, workload::examples().remove(0)),
    ];
    errors.into_iter().map(|error| (error.reason(), of_engine(error))).collect()
}

fn load_example_chart(kind: chart::Kind, chosen: &Selection<'_>) -> (chart::Chart, ValuesBuilder) {
    let chart = chart_choice::load_selected_chart(kind, chosen).unwrap();
    let values = chart.values_of(&chosen.version);
    (chart, values)
}

fn restore_failure(error: &RestoreError) -> CliError {
    restore_error(error, &"demo".parse().unwrap(), "")
}

fn etcd_failure(error: EtcdError) -> CliError {
    access_error(&error.into(), &"demo".parse().unwrap())
}

/// The errors that only an install has.
fn of_installs() -> Vec<CliError> {
    use control_plane::error::InstallError as C;
    use workload_cluster::error::InstallError as W;
    let ui = Ui::for_tests();
    let arguments = Cli::command().version("v0.6.1").get_matches_from(["fleetctl", "versions"]);
    let global = Cli::from_arg_matches(&arguments).unwrap().global;
    let chosen = select_row(chart::embedded_versions(), Request::default()).unwrap();
    let version = Some("v0.8");
    let later = select_row(chart::embedded_versions(), Request { version, ..Request::default() }).unwrap();
    assert_eq!(chosen.by, SelectedBy::Default);
    let (chart, builder) = load_example_chart(chart::Kind::ControlPlane, &chosen);
    let name = "demo".parse().unwrap();
    let plan = control_plane::plan::Plan::new(name, global.namespace.clone(), &chosen, chart, builder).unwrap();
    let (chart, builder) = load_example_chart(chart::Kind::Agent, &chosen);
    let name = "west".parse().unwrap();
    let agent = workload_cluster::plan::Plan::new(name, global.namespace.clone(), &chosen, chart, builder).unwrap();
    let jump = upgrade::check_upgrade(chart::embedded_versions(), "v0.6.1", &later.version).unwrap_err();
    let closed = C::Unreachable {
        url: "https://192.0.2.10:32222".to_owned(),
        why: "tcp connect error: Connection refused (os error 111)".to_owned(),
    };
    let taken = Registration {
        state: state::BLOCKED.to_owned(),
        reason: "NameTaken".to_owned(),
        message: "cluster west is registered with another key; remove it first, or choose another name".to_owned(),
        at: String::new(),
    };
    let newest = KubeMinor::new(1, 36);
    let skipped = UpgradeRefused::MinorSkipped { now: KubeMinor::new(1, 31), wanted: newest, hub: newest };
    let probe = Outcome {
        passed: false,
        hop: "TCP".to_owned(),
        message: "192.0.2.10:32222 does not answer: connection timed out".to_owned(),
        clock_skew: None,
    };
    let removed = Removed { nothing_found: true, elsewhere: vec!["west".to_owned()], ..Removed::default() };
    let leftover = ObjectReason {
        object: example_object("rbac.authorization.k8s.io", "ClusterRole", "fleet-agent"),
        reason: "this installation manages fields of it, but its labels were removed".to_owned(),
    };
    let terminating =
        serde_json::json!({"reason": "Forbidden", "message": "deployments.apps \"apiserver\" is forbidden"});
    let problem = Error::for_object(
        "delete",
        &example_object("apps", "Deployment", "apiserver"),
        server_answer(403, &terminating),
    );
    let undone = Undone::Undone {
        started: "2026-01-31T12:00:00Z".to_owned(),
        result: RolledBack { problems: vec![problem], ..RolledBack::default() },
        installed: None,
    };
    let interrupted =
        Undone::WasUninstall { started: "2026-01-31T12:00:00Z".to_owned(), version: Some("v0.6.1".to_owned()) };
    let unreached = "the control plane at https://192.0.2.10:32222 cannot be reached: connection timed out";
    let west = "west".parse().unwrap();
    let of_control_plane = |error: C, aftermath| control_plane_failed(&ui, &plan, Failure { error, aftermath });
    let of_agent = |error: W, aftermath| agent_failed(&agent, Failure { error, aftermath }, &global, None);
    let taint_value = EditError::HasOtherValue {
        key: "example.com/gpu".to_owned(),
        effect: "NoSchedule".to_owned(),
        value: "a100".to_owned(),
    };
    let preflight = check::example_results().into_iter().filter(|judged| judged.id == "storage").collect();
    vec![
        of_control_plane(
            C::KeysLost(example_object("", "PersistentVolumeClaim", "etcd-data-etcd-0")),
            FailureOutcome::NothingWritten,
        ),
        ambiguous_name_error("demo", &global),
        applied_by_others(&inventory::Owner::new("control-plane", "demo", "fleet"), &["argocd-controller".to_owned()]),
        too_large(70 * 1024),
        backup_error(&BackupError::NotInSync("etcd-1 is 4711 log entries behind".to_owned())),
        backup_error(&BackupError::NoQuorum("etcd-0 has no leader; etcd-1 does not answer within 10 s".to_owned())),
        backup_error(&BackupError::NoSuchMember {
            name: "etcd-3".to_owned(),
            members: "etcd-0, etcd-1, etcd-2".to_owned(),
        }),
        etcd_failure(EtcdError::Unreachable {
            member: "etcd-0".to_owned(),
            why: "transport error: dial tcp4 127.0.0.1:2379: connect: connection refused".to_owned(),
        }),
        etcd_failure(EtcdError::Refused {
            member: "etcd-0".to_owned(),
            message: "etcdserver: mvcc: required revision has been compacted".to_owned(),
        }),
        renewal_error(&RenewalError::NoCronJob("demo".parse().unwrap()), &"demo".parse().unwrap(), &global.namespace),
        renewal_error(
            &RenewalError::Failed {
                job: "fleet-keys-5d41f2a0".to_owned(),
                why: "pod etcd-0 port 2379 serves etcd-server.crt with serial 4c:01, but the Secret has serial 5e:02"
                    .to_owned(),
            },
            &"demo".parse().unwrap(),
            &global.namespace,
        ),
        renewal_error(
            &RenewalError::Keys(KeysError::NotServed(vec![
                "pod etcd-0 port 2379 serves etcd-server.crt with serial 4c:01, but the Secret has serial 5e:02"
                    .to_owned(),
            ])),
            &"demo".parse().unwrap(),
            &global.namespace,
        ),
        unknown_values_error("demo", "its install has not finished yet"),
        restore_failure(&RestoreError::NoSpace { claim: "etcd-data-etcd-0".to_owned(), capacity: 1 << 30, needed: 3 << 29 }),
        restore_failure(&RestoreError::OlderApiServer { archive: "v1.37".to_owned(), present: "v1.36".to_owned() }),
        restore_failure(&RestoreError::NotInstallable("the backup has no record of an install by fleetctl".to_owned())),
        restore_failure(&RestoreError::AlreadyInstalled("control plane demo already exists in namespace fleet".to_owned())),
        restore_failure(&RestoreError::AgentsBehind(vec!["east".to_owned(), "west".to_owned()])),
        restore_failure(&RestoreError::OperationOpen(Box::new(open_restore()))),
        restore_failure(&RestoreError::PodFailed {
            pod: "fleet-restore-etcd-0".to_owned(),
            why: "container restore exited with code 1: Error: snapshot file integrity check failed".to_owned(),
        }),
        describe_faults("backups/demo-20270312T101500.512Z.fleet".as_ref(), &faulty_report()),
        rehearsal_error(
            &RestoreError::NotPossible(
                "pods \"fleet-rehearsal-3kq7x\" is forbidden: exceeded quota: small, requested: limits.memory=5Gi, used: limits.memory=6Gi, limited: limits.memory=8Gi"
                    .to_owned(),
            ),
            &"demo".parse().unwrap(),
            "",
        ),
        restore_failure(&RestoreError::TimedOut("1 of 3 members of etcd are ready".to_owned())),
        restore_failure(&RestoreError::NothingOpen),
        of_control_plane(forgotten_values().into(), FailureOutcome::NothingWritten),
        refused_values_error("workload cluster west", &unconfirmed_values()),
        of_control_plane(C::Members { now: 1, wanted: 3 }, FailureOutcome::NothingWritten),
        of_control_plane(
            C::Volume {
                value: "etcd.storage.size",
                now: Some("10Gi".to_owned()),
                wanted: Some("20Gi".to_owned()),
                grows: true,
            },
            FailureOutcome::NothingWritten,
        ),
        of_control_plane(C::NoAddress(NotYet::LoadBalancer { service: "apiserver".to_owned() }), FailureOutcome::Left),
        of_control_plane(closed, FailureOutcome::Left),
        of_control_plane(C::Upgrade { refused: jump, cluster: None }, FailureOutcome::NothingWritten),
        of_control_plane(C::Upgrade { refused: skipped, cluster: None }, FailureOutcome::NothingWritten),
        of_control_plane(C::Interrupted, FailureOutcome::Left),
        of_agent(W::NoInitSecret("demo".to_owned()), FailureOutcome::NothingWritten),
        of_agent(W::Probe(probe), FailureOutcome::NothingWritten),
        of_agent(W::Refused(taken), FailureOutcome::Left),
        of_agent(W::NotReady(None), FailureOutcome::Left),
        uninstall::check_not_elsewhere("control-plane", "demo", &global, &removed).unwrap_err(),
        uninstall::check_orphaned_objects(&Removed { leftovers: vec![leftover], ..Removed::default() }).unwrap_err(),
        uninstall::control_plane::unknown_clusters_error(
            "client error (Connect): tcp connect error: Connection refused (os error 111)".to_owned(),
        ),
        nobody_asked(Question::DeleteData),
        uninstall::agent::cannot_leave_error(&west, unreached, &global),
        uninstall::agent::placed_here(&west, &placed_objects(), &placed_claims(), &global),
        uninstall::agent::not_drained(
            &west,
            "2 objects not moved after 300 s: Namespace shop, Deployment shop/web",
            &global,
        ),
        taint::refused_edit(&west, &taint_value, &global),
        rollback::report_rollback(&ui, &plan.name, &global, None, undone).unwrap_err(),
        rollback::report_rollback(&ui, &plan.name, &global, None, interrupted).unwrap_err(),
        check_report::preflight_refused(&Report { judged: preflight }, true),
        kubectl_install::no_rights(
            &io::Error::from_raw_os_error(13),
            Path::new("/usr/local/bin/kubectl-fleet"),
            &ui,
            &kubectl_install::KubectlInstallArgs::default(),
        ),
    ]
}

/// Builds a restore that somebody has begun.
fn faulty_report() -> RehearsalReport {
    let mut report = RehearsalReport { revision: 48_211, kinds: 71, objects: 5_120, ..RehearsalReport::default() };
    report.add_fault("/registry/secrets/shop/password", "no matching prefix found (500 InternalError)");
    report
        .add_fault("/registry/shop.example/carts/", "12 keys of a kind that is not served: its definition is missing");
    report
}

fn open_restore() -> inventory::Operation {
    inventory::Operation {
        command: "restore".to_owned(),
        run: "5d41f2a0".to_owned(),
        stage: "swap".to_owned(),
        open: true,
        started: "2026-01-31T12:00:00Z".to_owned(),
        by: "ann@laptop".to_owned(),
        facts: serde_json::Value::Null,
    }
}

/// Builds the values that an install which was given nothing would reset.
fn forgotten_values() -> ValuesForgotten {
    let values = [
        ("exposure.nodePort", Some("32222"), None),
        ("scheduler.replicas", Some("3"), Some("1")),
        ("registryCredentials", None, None),
    ];
    let values = values.map(|(path, recorded, now)| Forgotten {
        path: path.to_owned(),
        recorded: recorded.map(str::to_owned),
        now: now.map(str::to_owned),
    });
    ValuesForgotten { values: values.into(), found: Vec::new() }
}

/// Builds the recorded values that an upgrade on another machine is to be given again.
fn unconfirmed_values() -> Vec<UnconfirmedValue> {
    let values = [("extraArgs", r#"["--v=4"]"#, Some(r#"["--v=2"]"#)), ("placement.allowRBACKinds", "true", None)];
    let values = values.map(|(path, recorded, local)| UnconfirmedValue {
        path: path.to_owned(),
        recorded: Some(recorded.to_owned()),
        local: local.map(str::to_owned),
    });
    values.into()
}

/// Builds the objects that a control plane placed into a workload cluster.
fn placed_objects() -> Vec<PlacedObject> {
    let objects = [
        ("", "Namespace", None, "shop"),
        ("", "Service", Some("shop"), "web"),
        ("apps", "Deployment", Some("shop"), "web"),
    ];
    let objects = objects.map(|(group, kind, namespace, name)| {
        let kind = placeable::find_builtin_kind(group, kind).expect("it can be placed");
        PlacedObject::new(kind, namespace.map(str::to_owned), name.to_owned(), String::new())
    });
    objects.into()
}

fn placed_claims() -> Vec<PlacedObject> {
    let kind = placeable::find_builtin_kind("", "PersistentVolumeClaim").expect("it can be placed");
    vec![PlacedObject::new(kind, Some("shop".to_owned()), "data".to_owned(), String::new())]
}

/// Everything that can be printed here, by id; of an id with two examples the first.
fn printed_examples() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let engine = of_engine_errors().into_iter().map(|(id, text)| (id.to_owned(), text));
    let installs =
        of_installs().into_iter().map(|error| (error.reason.to_owned(), with_page(error).render(&Ui::for_tests())));
    found.insert(super::PLACEMENT.to_owned(), why::example_report());
    for (id, text) in of_causes().into_iter().chain(of_checks()).chain(engine).chain(installs) {
        found.entry(id).or_insert(text);
    }
    found
}

#[test]
fn the_example_of_a_page_is_what_the_program_prints() {
    let printed = printed_examples();
    for page in explain_pages() {
        let block = Block::read_page_block(page.id);
        if !block.is_run() {
            block.assert_shows(printed.get(page.id).map(|text| text.trim_end()));
        }
    }
}

#[test]
fn every_check_and_every_cause_has_an_example() {
    let printed = printed_examples();
    let known =
        super::check_ids().map(str::to_owned).chain(crate::diagnose::CauseId::ALL.iter().map(|cause| cause.id()));
    let missing: Vec<String> = known.filter(|id| !printed.contains_key(id)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// Ids that nobody is shown: the one ends in silence, the other is of a release without one of its charts.
const NEVER_SHOWN: [&str; 2] = ["BrokenPipe", "NoChart"];

#[test]
fn every_page_of_what_can_be_seen_has_an_example() {
    let without: Vec<&str> =
        explain_pages().filter(|page| !page.text.contains(block::HEADING)).map(|page| page.id).collect();
    assert_eq!(without, NEVER_SHOWN);
}
