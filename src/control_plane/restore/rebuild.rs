//! A control plane that is lost: what its backup has for an install of it, and how far that install has come.
//!
//! The keys of a backup go into the plan of the install, which applies them as its own. Only Secrets that no install
//! applies are written here: those of `pki.source` `Existing` and `InCluster`, and credentials that were put there by hand.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Secret};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};

use super::archive_parts::read_small_parts;
use super::check::compare_fingerprints;
use super::components::{API_SERVER, ETCD};
use super::error::RestoreError;
use super::{ArchiveSource, RESTORE_MANAGER, RestoreTarget, is_restore_of, restore_rights};
use crate::api::labels::{KEYS_MANAGER, LABEL_INSTALL};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::text::visible_cell;
use crate::apply::Engine;
use crate::chart::patch::Patches;
use crate::chart::{self, ValuesBuilder};
use crate::check::access::list_forbidden_rights;
use crate::control_plane::charts::SECRET_VALUES;
use crate::control_plane::keys::existing_keys::files_of;
use crate::control_plane::origin::Origin;
use crate::control_plane::plan::Plan;
use crate::control_plane::values::PkiSource;
use crate::install::recorded_values::PATCHES;
use crate::install::release_spec::plan_recorded_release;
use crate::install::renderable::collect_secret_values;
use crate::inventory::{AWAITED_BACKUP, Phase, Release, State};
use crate::pki::secrets::{ADMIN_KUBECONFIG, ETCD_CLAIM, KEPT_SECRET};
use crate::pki::{AuthorityKind, Files, Kubeconfig, fingerprint_keys};

/// A control plane as its backup describes it.
#[derive(Debug)]
pub struct LostPlane {
    /// The plan that installs it with its keys.
    pub plan: Plan,
    /// Summary of patches that it was rendered with, and that were not given.
    pub missing_patches: Option<String>,
    /// URL of its API server, as its record has it.
    pub server: Option<String>,
    /// Secrets that no install applies, and the manager of their fields.
    secrets: Vec<(Secret, &'static str)>,
}

/// How far a control plane has come that is built again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebuildStage {
    /// There is nothing of it.
    Empty,
    /// Its install was begun.
    Begun,
    /// It is installed, and waits for its data.
    Installed,
    /// Its data is being restored.
    Restoring,
    /// It is complete.
    Restored,
}

impl LostPlane {
    /// Reads the archive of the control plane of this name. `adjust` lays values over those of its record; `own` is the
    /// operator's kubeconfig on this machine, whose user is kept if it is one of the same authority.
    ///
    /// # Errors
    /// [`RestoreError::WithoutKeys`], [`RestoreError::KeysMissing`], [`RestoreError::NotInstallable`].
    pub async fn read_from_archive(
        source: &ArchiveSource,
        (name, namespace): (&ControlPlaneName, &NamespaceName),
        patches: Patches,
        own: Option<&Kubeconfig>,
        adjust: impl FnOnce(ValuesBuilder) -> ValuesBuilder,
    ) -> Result<Self, RestoreError> {
        let header = &source.verified.header;
        if !header.keys {
            return Err(RestoreError::WithoutKeys);
        }
        if (header.control_plane.as_str(), header.namespace.as_str()) != (name.as_str(), namespace.as_str()) {
            let [plane, namespace] = [&header.control_plane, &header.namespace].map(|text| visible_cell(text));
            let why = format!(
                "the backup is of control plane {plane} in namespace {namespace}, and a restore keeps these names"
            );
            return Err(RestoreError::NotInstallable(why));
        }
        let parts = read_small_parts(source).await?;
        let record = parts.parse_record()?.ok_or_else(|| {
            RestoreError::NotInstallable("the backup has no record of an install by fleetctl".to_owned())
        })?;
        let (of_install, of_others): (Vec<Secret>, Vec<Secret>) = parts
            .parse_secrets()?
            .into_iter()
            .partition(|secret| secret.labels().get(LABEL_INSTALL).is_some_and(|install| install == name.as_str()));
        let release = record.release;
        let values = collect_secret_values(&of_install, &SECRET_VALUES);
        let plan = plan_recorded_release(chart::Kind::ControlPlane, &release, values, |selection, chart, values| {
            Plan::new(name.clone(), namespace.clone(), selection, chart, adjust(values))
        });
        let plan = plan.map_err(RestoreError::NotInstallable)?;
        let missing_patches = patches.of_record(release.facts.get(PATCHES)).err();
        let pki = &plan.values.pki;
        let (main_name, manager) = match pki.source {
            PkiSource::Installer => (KEPT_SECRET, None),
            PkiSource::InCluster => (KEPT_SECRET, Some(KEYS_MANAGER)),
            PkiSource::Existing => (pki.existing_secret.as_deref().unwrap_or_default(), Some(RESTORE_MANAGER)),
        };
        let main = of_install.iter().chain(&of_others).find(|secret| secret.name_any() == main_name).cloned();
        let main =
            main.ok_or_else(|| RestoreError::KeysMissing(vec![format!("Secret {main_name} is not in the backup")]))?;
        let mut keys = files_of(&main);
        let foreign = compare_fingerprints(&header.fingerprints, &fingerprint_keys(&keys));
        if !foreign.is_empty() {
            return Err(RestoreError::KeysMissing(foreign));
        }
        keep_operator(&mut keys, own);
        let further = of_others.into_iter().filter(|secret| secret.name_any() != main_name);
        let mut secrets: Vec<(Secret, &str)> = further.map(|secret| (secret, RESTORE_MANAGER)).collect();
        secrets.extend(manager.map(|manager| (main, manager)));
        let server = release.facts.get("server").map(|server| visible_cell(server).into_owned());
        let archive = source.verified.sha256.clone();
        let plan = plan.with_patches(patches).with_origin(Origin { keys, release, archive });
        Ok(Self { plan, missing_patches, server, secrets })
    }

    /// Writes the Secrets that no install applies, and makes their namespace if there is none.
    ///
    /// # Errors
    /// [`RestoreError::AlreadyInstalled`] if one of them has another content; what the server refuses.
    pub async fn write_archived_secrets(&self, client: &Client) -> Result<(), RestoreError> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        let namespace = self.plan.package.namespace.as_str();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        if namespaces.get_metadata_opt(namespace).await?.is_none() {
            let metadata = ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
            namespaces
                .create(&build_post_params(RESTORE_MANAGER), &Namespace { metadata, ..Namespace::default() })
                .await?;
        }
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        for (secret, manager) in &self.secrets {
            match api.create(&build_post_params(manager), secret).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let name = secret.name_any();
                    if api.get(&name).await?.data != secret.data {
                        return Err(exists(&format!("Secret {name}"), namespace));
                    }
                }
                created => drop(created?),
            }
        }
        Ok(())
    }
}

fn build_post_params(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

/// Takes the operator's kubeconfig over if it is of the same authority: the name of its user depends on its key.
fn keep_operator(keys: &mut Files, own: Option<&Kubeconfig>) {
    let Some(own) = own else { return };
    let authority = keys.get(AuthorityKind::Cluster.certificate_file()).map(str::trim);
    if !keys.contains(ADMIN_KUBECONFIG)
        && authority == Some(own.authority.trim())
        && let Ok(text) = own.to_yaml(ADMIN_KUBECONFIG)
    {
        keys.insert(ADMIN_KUBECONFIG, text);
    }
}

fn exists(what: &str, namespace: &str) -> RestoreError {
    RestoreError::AlreadyInstalled(format!("{what} already exists in namespace {namespace}"))
}

impl RestoreTarget<'_> {
    /// Reads how far the control plane of an archive has come here. Nothing is written.
    ///
    /// # Errors
    /// [`RestoreError::AlreadyInstalled`] if there is one that did not begin with this archive, or something of one;
    /// [`RestoreError::OperationOpen`]; [`RestoreError::Forbidden`].
    pub async fn find_rebuild_stage(&self, source: &ArchiveSource) -> Result<RebuildStage, RestoreError> {
        let state = Engine::new_reader(self.client.clone(), self.owner()).read_state().await?;
        let stage = judge_rebuild(&state, &source.verified.sha256, self.name.as_str(), self.namespace.as_str())?;
        if stage == RebuildStage::Empty {
            self.check_place().await?;
        }
        Ok(stage)
    }

    /// Refuses a place that is not empty, and rights that are not enough.
    async fn check_place(&self) -> Result<(), RestoreError> {
        let (client, namespace) = (self.client, self.namespace.as_str());
        let forbidden = list_forbidden_rights(client, namespace, &restore_rights()).await?;
        if !forbidden.is_empty() {
            return Err(RestoreError::Forbidden(forbidden));
        }
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let claims = claims.list_metadata(&ListParams::default()).await?;
        let claim = claims.iter().map(ResourceExt::name_any).find(|name| name.starts_with(ETCD_CLAIM));
        if sets.get_metadata_opt(ETCD).await?.is_some() {
            return Err(exists(&format!("StatefulSet {ETCD}"), namespace));
        }
        if deployments.get_metadata_opt(API_SERVER).await?.is_some() {
            return Err(exists(&format!("Deployment {API_SERVER}"), namespace));
        }
        claim.map_or(Ok(()), |name| Err(exists(&format!("PersistentVolumeClaim {name}"), namespace)))
    }
}

/// Judges by the record how far the control plane of this archive has come.
pub(super) fn judge_rebuild(
    state: &State,
    sha256: &str,
    name: &str,
    namespace: &str,
) -> Result<RebuildStage, RestoreError> {
    let is_restore = state.operation.as_ref().is_some_and(|operation| is_restore_of(operation, sha256));
    if let Some(open) = state.operation.as_ref().filter(|operation| operation.open) {
        return if is_restore {
            Ok(RebuildStage::Restoring)
        } else {
            Err(RestoreError::OperationOpen(Box::new(open.clone())))
        };
    }
    let installed = state.record.as_ref().filter(|record| record.phase == Phase::Installed);
    let is_awaited = installed.is_some_and(|record| is_awaiting_archive(&record.release, sha256));
    match (&state.record, &state.journal) {
        (None, None) => Ok(RebuildStage::Empty),
        (record, Some(journal))
            // Before its namespace is there, a run does not say what it installs.
            if !journal.is_removal()
                && journal.release.as_ref().is_none_or(|release| is_awaiting_archive(release, sha256))
                && (record.is_none() || is_awaited) =>
        {
            Ok(RebuildStage::Begun)
        }
        (Some(_), None) if is_awaited => Ok(RebuildStage::Installed),
        (Some(_), None) if installed.is_some() && is_restore => Ok(RebuildStage::Restored),
        (Some(_), _) if installed.is_none() => Err(RestoreError::AlreadyInstalled(format!(
            "an uninstall of control plane {name} has kept its data or keys in namespace {namespace}"
        ))),
        _ => Err(exists(&format!("control plane {name}"), namespace)),
    }
}

fn is_awaiting_archive(release: &Release, sha256: &str) -> bool {
    release.facts.get(AWAITED_BACKUP).is_some_and(|archive| archive == sha256)
}

#[cfg(test)]
#[path = "rebuild_tests.rs"]
mod tests;
