//! What is looked at before a restore: whether the archive fits the control plane, and what would be lost or stopped half-way.
//! Nothing is written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube::api::Api;

use super::components::{API_SERVER, ETCD};
use super::error::RestoreError;
use super::fence::{deployments, read_scale};
use super::pod_parts::LOG_BYTES;
use super::site::StoreSite;
use super::{ArchiveSource, RESTORE_MANAGER, RestoreTarget};
use crate::api::labels::KEYS_MANAGER;
use crate::api::partial_list::Age;
use crate::api::quantity;
use crate::api::rbac::{Right, merge_rights};
use crate::api::util::text::visible_cell;
use crate::api::version::KubeMinor;
use crate::backup::Header;
use crate::check::access::list_forbidden_rights;
use crate::check::inside::{Member, list_registered_members};
use crate::control_plane::etcd::access::etcd_rights;
use crate::control_plane::keys::find_keys::from_cluster;
use crate::inventory::applied_by;
use crate::k8s::managed_fields::by_hand;
use crate::pki::fingerprint_keys;

/// What a restore would do, beside what every restore does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreEffects {
    /// Registered clusters that the backup has and the control plane has no longer: they come back.
    pub returning: Vec<String>,
    /// Registered clusters that the backup does not have: they register again, or not.
    pub missing: Vec<String>,
}

/// The rights in its namespace that a restore needs.
pub fn restore_rights() -> Vec<Right> {
    let parts = [
        etcd_rights(),
        Right::needed_namespace_rights("", "secrets", &["get", "list", "create", "patch"]),
        Right::needed_namespace_rights("", "pods", &["get", "list", "create", "delete"]),
        Right::needed_namespace_rights("", "services", &["get", "patch"]),
        Right::needed_namespace_rights("", "persistentvolumeclaims", &["get"]),
        Right::needed_namespace_rights("apps", "statefulsets", &["get", "patch"]),
        Right::needed_namespace_rights("apps", "deployments", &["get", "list", "patch"]),
    ];
    merge_rights(parts.concat())
}

/// Checks everything that can be known before a restore. Without the API of the control plane, `hub`, its clusters are not
/// known.
///
/// # Errors
/// The first reason against it.
pub async fn precheck_restore(
    target: &RestoreTarget<'_>,
    source: &ArchiveSource,
    hub: Option<&Client>,
    is_paused: bool,
) -> Result<RestoreEffects, RestoreError> {
    let header = &source.verified.header;
    let rights = restore_rights();
    let forbidden = list_forbidden_rights(target.client, target.namespace.as_str(), &rights).await?;
    if !forbidden.is_empty() {
        return Err(RestoreError::Forbidden(forbidden));
    }
    let files = from_cluster(target.client, target.namespace.as_str(), target.name.as_str()).await?;
    let foreign = compare_fingerprints(&header.fingerprints, &fingerprint_keys(&files));
    if !foreign.is_empty() {
        return Err(RestoreError::KeysMissing(foreign));
    }
    if !is_paused {
        let others = list_appliers(target).await;
        if !others.is_empty() {
            return Err(RestoreError::AppliedByOthers(others));
        }
    }
    let api_server = deployments(target).get(API_SERVER).await?;
    let image = api_server.spec.and_then(|spec| spec.template.spec?.containers.into_iter().next()?.image);
    check_api_server(header, image.as_deref())?;
    let members = usize::try_from(read_scale(target, ETCD).await?.0.max(1)).unwrap_or(1);
    let site = StoreSite::read_from_cluster(target.client, target.name, target.namespace, members).await?;
    check_volumes(target, &site, header.snapshot_bytes).await?;
    match hub {
        Some(hub) => compare_clusters(header, hub).await,
        None => Ok(RestoreEffects::default()),
    }
}

/// Files of the key set that a backup needs, and that are others here or missing.
pub(super) fn compare_fingerprints(
    needed: &BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> Vec<String> {
    if needed.is_empty() {
        return vec!["the backup does not list them".to_owned()];
    }
    let differs = needed.iter().filter(|(file, print)| present.get(*file) != Some(*print));
    differs.map(|(file, _)| visible_cell(file).into_owned()).collect()
}

/// Refuses the data of an API server that is newer than the one that would read it.
pub(super) fn check_api_server(header: &Header, image: Option<&str>) -> Result<(), RestoreError> {
    let archived = header.versions.api_server.as_deref().and_then(|version| version.parse::<KubeMinor>().ok());
    let name = image.map(|image| image.rsplit_once('/').map_or(image, |(_, name)| name));
    let tag = name.and_then(|name| name.split('@').next()?.split_once(':').map(|(_, tag)| tag));
    let present = tag.and_then(|tag| tag.parse::<KubeMinor>().ok());
    match (archived, present) {
        (Some(archive), Some(present)) if present < archive => {
            Err(RestoreError::OlderApiServer { archive: archive.to_string(), present: present.to_string() })
        }
        _ => Ok(()),
    }
}

/// Who applies the workloads again and again: whoever is neither this program nor a person.
async fn list_appliers(target: &RestoreTarget<'_>) -> Vec<String> {
    let mut others = applied_by(target.client, &target.owner()).await;
    others.retain(|manager| !by_hand(manager) && ![KEYS_MANAGER, RESTORE_MANAGER].contains(&manager.as_str()));
    others
}

async fn check_volumes(target: &RestoreTarget<'_>, site: &StoreSite, bytes: u64) -> Result<(), RestoreError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(target.client.clone(), &site.namespace);
    for member in site.member_names() {
        let name = StoreSite::claim(&member);
        let Some(claim) = claims.get_opt(&name).await? else {
            return Err(RestoreError::Unsuitable(format!("PersistentVolumeClaim {name} does not exist")));
        };
        let capacity = claim.status.and_then(|status| status.capacity?.remove("storage"));
        let capacity = capacity.and_then(|size| quantity::parse_quantity(&size.0));
        let capacity = capacity.and_then(|milli| u64::try_from(milli / 1000).ok());
        // The present store is about as large as that of the backup; each has a log.
        let needed = (bytes + LOG_BYTES) * 2;
        if let Some(capacity) = capacity.filter(|capacity| *capacity < needed) {
            return Err(RestoreError::NoSpace { claim: name, capacity, needed });
        }
    }
    Ok(())
}

async fn compare_clusters(header: &Header, hub: &Client) -> Result<RestoreEffects, RestoreError> {
    let clusters = list_registered_members(hub, Age::Now).await?;
    let behind = find_agents_behind(&clusters);
    if !behind.is_empty() {
        return Err(RestoreError::AgentsBehind(behind));
    }
    let present: Vec<String> = clusters.into_iter().map(|cluster| cluster.name).collect();
    Ok(compare_names(header, &present))
}

/// Clusters whose agents are at work and do not count copies without a Schedule: they do not hold deletions either.
pub(super) fn find_agents_behind(clusters: &[Member]) -> Vec<String> {
    let behind = clusters.iter().filter(|cluster| cluster.ready && cluster.copies_without_schedule.is_none());
    behind.map(|cluster| visible_cell(&cluster.name).into_owned()).collect()
}

/// Clusters that come back, and clusters that the backup does not have.
pub(super) fn compare_names(header: &Header, present: &[String]) -> RestoreEffects {
    let Some(archived) = &header.clusters else { return RestoreEffects::default() };
    let archived: Vec<&str> = archived.iter().map(|cluster| cluster.name.as_str()).collect();
    let returning = archived.iter().filter(|name| !present.iter().any(|one| one == *name));
    let missing = present.iter().filter(|name| !archived.contains(&name.as_str()));
    RestoreEffects {
        returning: returning.map(|name| visible_cell(name).into_owned()).collect(),
        missing: missing.map(|name| visible_cell(name).into_owned()).collect(),
    }
}
