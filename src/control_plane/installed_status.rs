//! The part of `status` about the installation itself: read from the record, the objects' metadata and the key Secrets;
//! and the reasons that components of it do not run.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::health::format_error_chain;
use super::keys::find_keys;
use super::plan::OWNER_KIND;
use super::restore::find_former_stores;
use super::values::PkiSource;
use super::version::running_images;
use crate::api::labels::{CERTIFICATES_CONFIG_MAP, LABEL_APP_VERSION, LABEL_INSTALL};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::text::visible_line;
use crate::api::version::ServiceVersion;
use crate::apply::{Drifted, Engine, WaitTarget};
use crate::certificates::summary::Summary;
use crate::check::inside::{HOSTING, HealthFacts};
use crate::check::installed::{CHECKS, Expiry, InstalledBy, InstalledFacts, RenewalRuns, RenewedBy, WARN_DAYS};
use crate::check::{self, Report};
use crate::diagnose::Diagnosis;
use crate::inventory::{self, Owner, Phase, Release};
use crate::pki;

/// Name of the CronJob that renews certificates.
pub(super) const RENEWAL_CRON_JOB: &str = "fleet-keys";

// Who does what the warning says has to see it go.
const _: () = assert!(WARN_DAYS.unsigned_abs() == pki::RENEW_DAYS);

/// Version that was installed, and the verdicts of the checks on the installation.
#[derive(Debug)]
pub struct Installation {
    /// The recorded service version; none where no record could be read.
    pub version: Option<String>,
    /// The verdicts.
    pub report: Report,
}

impl Installation {
    /// An installation of which nothing is known, because the hosting cluster was not looked at.
    pub fn new_unobserved() -> Self {
        Self { version: None, report: check::report_unseen_checks(&CHECKS, HOSTING) }
    }
}

fn reader_engine(client: &Client, name: &ControlPlaneName, namespace: &NamespaceName) -> Engine {
    let owner = Owner::new(OWNER_KIND, name.as_str(), namespace.as_str());
    Engine::new_reader(client.clone(), owner)
}

/// The control planes of which an install or a removal was begun here and not undone: the one that is named, or all in the
/// namespace. Of one that was interrupted there may be nothing but its record.
pub async fn list_begun_installs(
    client: &Client,
    namespace: &NamespaceName,
    name: Option<&ControlPlaneName>,
) -> Vec<ControlPlaneName> {
    let names: Vec<ControlPlaneName> = match name {
        Some(name) => vec![name.clone()],
        None => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace.as_str());
            let all = secrets.list_metadata(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
            let records = all.iter().filter_map(|secret| secret.name_any().strip_prefix("fleetctl.")?.parse().ok());
            records.collect()
        }
    };
    let mut begun = Vec::new();
    for name in names {
        let state = reader_engine(client, &name, namespace).read_state().await.unwrap_or_default();
        if state.journal.is_some() || state.record.is_some_and(|record| record.phase == Phase::Installed) {
            begun.push(name);
        }
    }
    begun
}

/// The service version by the labels of the API server, for an installation whose record is lost.
pub async fn read_labelled_version(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Option<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
    let found = deployments.get_metadata_opt("apiserver").await.ok()??;
    let labels = found.labels();
    (labels.get(LABEL_INSTALL)? == name.as_str()).then(|| labels.get(LABEL_APP_VERSION).cloned())?
}

/// Observes an installed control plane. Reads only; the checks report what cannot be read.
pub async fn observe_installation(client: &Client, name: &ControlPlaneName, namespace: &NamespaceName) -> Installation {
    let engine = reader_engine(client, name, namespace);
    let (state, drift, keys, renewal) = tokio::join!(
        engine.read_state(),
        engine.find_drift(),
        find_keys::from_secrets(client, namespace.as_str(), name.as_str()),
        observe_renewal(client, name, namespace, Timestamp::now())
    );
    let (state, unread) = match state {
        Ok(state) => (state, None),
        Err(error) => (inventory::State::default(), Some(format_error_chain(&error))),
    };
    let at_work = state.lock.as_ref().filter(|lock| !engine.seems_over(lock)).map(|lock| lock.holder.to_string());
    let record = state.record.as_ref().filter(|record| record.phase == Phase::Installed);
    let version = record.map(|record| record.release.version.clone());
    let known = match &version {
        Some(version) => Some(version.clone()),
        None => read_labelled_version(client, name, namespace).await,
    };
    let installed_by = match (unread, record, &state.journal) {
        (Some(why), ..) => InstalledBy::Unread(why),
        (None, Some(record), _) => {
            InstalledBy::Fleetctl { version: record.release.version.clone(), objects: record.inventory.len() }
        }
        // A first install under way has no record yet, which is no loss.
        (None, None, Some(journal)) => {
            let being = if journal.is_removal() { "removed" } else { "installed" };
            InstalledBy::Fleetctl { version: format!("unknown (being {being})"), objects: 0 }
        }
        (None, None, None) => match inventory::applied_by(client, &engine.owner).await {
            managers if managers.is_empty() => InstalledBy::Unknown,
            managers => InstalledBy::Others(managers),
        },
    };
    let known: Option<ServiceVersion> = known.and_then(|version| version.parse().ok());
    let images = match &known {
        // While a run is at work, images are of the old version and of the new one.
        Some(version) if at_work.is_none() => running_images::list_foreign_images(client, namespace, version).await,
        _ => Vec::new(),
    };
    let facts = InstalledFacts {
        name: name.to_string(),
        version: known,
        images,
        installed_by,
        copied: drift.iter().flatten().any(|drift| matches!(drift.strayed, Drifted::Copied { .. })),
        drift: drift
            .map(|all| all.iter().map(ToString::to_string).collect())
            .map_err(|error| format_error_chain(&error)),
        former_stores: state.operation.as_ref().and_then(find_former_stores),
        interrupted: {
            let open = state.operation.filter(|operation| operation.open).map(|one| (one.command, one.started));
            open.or_else(|| state.journal.map(|journal| (journal.command, journal.started)))
                .filter(|_| at_work.is_none())
        },
        at_work,
        renewed_by: match (record, &keys) {
            (Some(record), _) => renewed_by(recorded_source(&record.release), &renewal),
            (None, Ok(keys)) => renewed_by(keys.source, &renewal),
            (None, Err(_)) => RenewedBy::default(),
        },
        renewal,
        certificates: keys.map(|keys| list_expiries(&keys.files, Timestamp::now())).unwrap_or_default(),
    };
    Installation { version, report: check::run_checks(&CHECKS, &facts, &[]) }
}

/// The components with the objects that run them, roots before what depends on them.
const WORKLOADS: [(&str, &str); 4] = [
    ("StatefulSet", "etcd"),
    ("Deployment", "apiserver"),
    ("Deployment", "kube-controller-manager"),
    ("Deployment", "fleet-scheduler"),
];

/// Returns the causes for components that are not running, the root first; none for running components and for those
/// without a known cause.
pub async fn diagnose_components(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    facts: &HealthFacts,
) -> Vec<Diagnosis> {
    let Ok(components) = &facts.components else { return Vec::new() };
    let targets: Vec<WaitTarget> = WORKLOADS
        .iter()
        .filter(|(_, name)| components.get(*name).is_some_and(|found| found.installed && !found.is_rolled_out()))
        .filter_map(|(kind, name)| WaitTarget::new("apps", kind, Some(namespace.as_str()), name))
        .collect();
    reader_engine(client, name, namespace).diagnose_targets(&targets).await
}

/// Returns the source of the keys by the recorded values, which leave out defaults.
fn recorded_source(release: &Release) -> PkiSource {
    let source = release.values.as_ref().and_then(|values| values.pointer("/pki/source"));
    source.and_then(|source| serde_json::from_value(source.clone()).ok()).unwrap_or(PkiSource::Installer)
}

/// Returns the party that issues certificates again.
fn renewed_by(source: PkiSource, renewal: &RenewalRuns) -> RenewedBy {
    match source {
        PkiSource::InCluster => RenewedBy::CronJob,
        PkiSource::Existing => RenewedBy::Others,
        PkiSource::Installer if matches!(renewal, RenewalRuns::Found { .. }) => RenewedBy::CronJob,
        PkiSource::Installer => RenewedBy::Install,
    }
}

/// Reads how the CronJob that renews certificates goes.
async fn observe_renewal(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    now: Timestamp,
) -> RenewalRuns {
    let jobs: Api<CronJob> = Api::namespaced(client.clone(), namespace.as_str());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.as_str());
    let (job, map) = tokio::join!(jobs.get_opt(RENEWAL_CRON_JOB), maps.get_opt(CERTIFICATES_CONFIG_MAP));
    let (job, map) = match (job, map) {
        (Ok(job), Ok(map)) => (job, map),
        (Err(error), _) | (_, Err(error)) => return RenewalRuns::Unread(format_error_chain(&error)),
    };
    let job = job.filter(|job| job.labels().get(LABEL_INSTALL).map(String::as_str) == Some(name.as_str()));
    let Some(job) = job else { return RenewalRuns::None };
    let summary = map.as_ref().map(Summary::from_config_map).unwrap_or_default();
    let made = job.creation_timestamp().map(|time| time.0);
    let since = summary.succeeded.max(made).unwrap_or(now);
    RenewalRuns::Found {
        suspended: job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or_default(),
        days: (now.as_second() - since.as_second()).div_euclid(24 * 60 * 60),
        failed: summary.failed.map(|(at, why)| (at.strftime("%FT%TZ").to_string(), visible_line(&why).into_owned())),
    }
}

fn list_expiries(files: &pki::Files, now: Timestamp) -> Vec<Expiry> {
    let read = pki::facts_of(files).into_iter().filter_map(|(file, facts)| Some((file, facts.ok()?.not_after)));
    read.map(|(file, end)| Expiry {
        file,
        days: (end.as_second() - now.as_second()).div_euclid(24 * 60 * 60),
        date: end.strftime("%F").to_string(),
    })
    .collect()
}
