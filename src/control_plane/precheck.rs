//! Pre-install checks: the hosting cluster, what is recorded there, and the way from it.
//!
//! An install and a comparison begin with the same reads and the same refusals.

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use super::endpoint::exposure;
use super::endpoint::exposure::{Decision, Known, unknown_endpoint};
use super::error::InstallError;
use super::etcd;
use super::plan::Plan;
use super::preflight::{self, Compared};
use super::values::ExposureType;
use super::version::{kubernetes_downgrade, upgrade};
use crate::api::labels::{LABEL_APP_VERSION, LABEL_INSTALL};
use crate::api::version::KubeMinor;
use crate::apply::{self, Engine};
use crate::chart::{self, Object};
use crate::check::hosting::{CHECKS, HostingFacts};
use crate::install::progress::{Progress, preview_adoption, record_lost};
use crate::install::recorded_values::Recorded;
use crate::install::session::InstallOptions;
use crate::inventory::State;
use crate::pki::secrets::KEPT_SECRET;
use crate::{check, pki};

/// Findings of the checks before an install.
pub(super) struct Precheck {
    pub(super) facts: HostingFacts,
    pub(super) state: State,
    pub(super) decision: Decision,
}

impl Precheck {
    /// Returns the host and node port that an earlier install gave to agents and kubeconfigs.
    pub(super) fn known_endpoint(&self, plan: &Plan) -> Known {
        let host = plan.former_facts(&self.state).and_then(|facts| facts.get("host").cloned());
        Known { host, node_port: self.facts.former_node_port }
    }
}

/// Reads the hosting cluster and refuses an install that is not possible here. Reports warnings; writes nothing.
pub(super) async fn precheck_install(
    plan: &Plan,
    client: &Client,
    engine: &Engine,
    options: &InstallOptions,
    progress: &dyn Progress,
    stopped: impl FnOnce(apply::Error) -> InstallError,
) -> Result<Precheck, InstallError> {
    let provisional =
        plan.render_control_plane(&unknown_endpoint(ExposureType::NodePort), &pki::placeholder_files())?;
    let resets = options.recorded == Recorded::Reset;
    let (facts, compared) =
        preflight::collect_preflight_facts(plan, client, engine, &provisional.objects, resets, &mut |_| ()).await?;
    if let Ok(compared) = &compared {
        check_version(plan, client, &compared.state, &facts).await?;
    }
    if let Ok(Compared { forgotten: Some(forgotten), .. }) = &compared {
        return Err(forgotten.clone().into());
    }
    let report = check::run_checks(&CHECKS, &facts, &options.skip_preflight);
    if report.failures().next().is_some() {
        return Err(InstallError::Preflight(Box::new(report)));
    }
    let Compared { state, adopted, found, .. } = match compared {
        Ok(compared) => compared,
        Err(error) => return Err(stopped(error)),
    };
    if let Some(refused) =
        find_change_refusal(plan, engine, &state, &facts, &provisional.objects).await.map_err(stopped)?
    {
        return Err(refused);
    }
    for (judged, problem) in report.warnings() {
        progress.report_advice(&problem.format_advice(judged.title));
    }
    record_lost(progress, found);
    preview_adoption(progress, &adopted);
    let decision = exposure::decide_exposure(&plan.values.exposure, &facts.nodes);
    Ok(Precheck { facts, state, decision })
}

/// Returns the reason for a refusal that is not a preflight check: the existing installation, or what an uninstall kept
/// of it, cannot be changed to the plan. `objects` are any rendering of the plan.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn find_install_refusal(
    plan: &Plan,
    client: &Client,
    engine: &Engine,
    (facts, compared): (&HostingFacts, &Compared),
    objects: &[Object],
) -> Result<Option<InstallError>, apply::Error> {
    match check_version(plan, client, &compared.state, facts).await {
        Ok(()) => find_change_refusal(plan, engine, &compared.state, facts, objects).await,
        Err(refused) => Ok(Some(refused)),
    }
}

/// Refuses a version that the installed or kept one cannot become.
async fn check_version(plan: &Plan, client: &Client, state: &State, facts: &HostingFacts) -> Result<(), InstallError> {
    let Some(installed) = installed_version(plan, client, state, facts).await else { return Ok(()) };
    let checked = upgrade::check_upgrade(chart::embedded_versions(), &installed, &plan.package.version);
    checked.map_err(|refused| InstallError::Upgrade { refused, cluster: facts.git_version.parse::<KubeMinor>().ok() })
}

/// Returns the reason that the existing installation, or what an uninstall kept of it, cannot be changed to the plan;
/// none if it can.
async fn find_change_refusal(
    plan: &Plan,
    engine: &Engine,
    state: &State,
    facts: &HostingFacts,
    objects: &[Object],
) -> Result<Option<InstallError>, apply::Error> {
    if state.record.is_some()
        || state.journal.is_some()
        || facts.namespace.control_planes.contains(&plan.name.to_string())
    {
        let (namespace, hub) = (&plan.package.namespace, plan.package.control_plane_api_minor());
        let barred = kubernetes_downgrade::from_objects(engine, namespace, state, objects, hub).await?;
        if let Some(refused) = barred {
            return Ok(Some(InstallError::Upgrade { refused, cluster: None }));
        }
    }
    if let Some(refused) = etcd::volume::refuse_volume_change(plan, engine, facts, objects).await? {
        return Ok(Some(refused));
    }
    etcd::members::beside_data(plan, engine, state, facts).await
}

/// The version of what is installed or kept: as recorded, else as the objects say, because a record can be lost. One
/// that was recreated by an uninstall names none.
async fn installed_version(plan: &Plan, client: &Client, state: &State, facts: &HostingFacts) -> Option<String> {
    let record = state.record.as_ref();
    if let Some(recorded) = record.map(|record| &record.release.version).filter(|version| !version.is_empty()) {
        return Some(recorded.clone());
    }
    // A first install that was interrupted has no record, and nothing in it that another version could not replace.
    if record.is_none() && state.journal.as_ref().is_some_and(|journal| !journal.is_removal()) {
        return None;
    }
    match facts.namespace.versions.get(plan.name.as_str()) {
        Some(labelled) => Some(labelled.clone()),
        None => kept_version(plan, client).await,
    }
}

/// Returns the version that the kept keys are labelled with. Where they may not be read, the search for the keys
/// themselves says so.
async fn kept_version(plan: &Plan, client: &Client) -> Option<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), plan.package.namespace.as_str());
    let kept = secrets.get_metadata_opt(KEPT_SECRET).await.ok()??;
    let labels = kept.labels();
    (labels.get(LABEL_INSTALL)? == plan.name.as_str()).then(|| labels.get(LABEL_APP_VERSION).cloned())?
}
