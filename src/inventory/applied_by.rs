//! Who applied an installation of which there is no record: Argo CD, Flux and kubectl leave their names in the
//! `managedFields` of its objects.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Client;
use kube::api::{Api, ListParams};

use super::Owner;
use crate::api::util::text::visible_word;
use crate::k8s::managed_fields::AUTOSCALERS;
use crate::k8s::request::server::MANAGER;

/// Returns the field managers of an installation's Deployments, in alphabetical order, bounded and with control characters
/// made visible: those other than fleetctl that apply them, else, where fleetctl does not, all that wrote to them.
/// None where fleetctl installed it, where there is no Deployment, and where they may not be read.
pub async fn applied_by(client: &Client, owner: &Owner) -> Vec<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &owner.namespace);
    let found = deployments.list_metadata(&ListParams::default().labels(&owner.owner_selector())).await;
    let found = found.map(|list| list.items).unwrap_or_default();
    let entries = found.iter().flat_map(|item| item.metadata.managed_fields.iter().flatten());
    collect_appliers(entries).into_iter().map(|manager| visible_word(manager).into_owned()).collect()
}

fn collect_appliers<'e>(entries: impl Iterator<Item = &'e ManagedFieldsEntry>) -> BTreeSet<&'e str> {
    let (mut applied, mut updated) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty()) {
        let all = if entry.operation.as_deref() == Some("Apply") { &mut applied } else { &mut updated };
        all.extend(entry.manager.as_deref().filter(|manager| *manager != AUTOSCALERS));
    }
    match applied.remove(MANAGER) {
        _ if !applied.is_empty() => applied,
        true => BTreeSet::new(),
        false => updated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str, &str)]) -> Vec<String> {
        let entries = entries.iter().map(|(manager, operation, subresource)| ManagedFieldsEntry {
            manager: Some((*manager).to_owned()),
            operation: Some((*operation).to_owned()),
            subresource: Some((*subresource).to_owned()),
            ..ManagedFieldsEntry::default()
        });
        collect_appliers(entries.collect::<Vec<_>>().iter()).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn who_applies_is_told_from_who_installed_and_from_who_edits() {
        let status = ("kube-controller-manager", "Update", "status");
        let edited = ("kubectl-edit", "Update", "");
        assert_eq!(of(&[("kubectl", "Apply", ""), status, edited]), ["kubectl"]);
        assert_eq!(of(&[("kubectl-client-side-apply", "Update", ""), status]), ["kubectl-client-side-apply"]);
        assert!(of(&[(MANAGER, "Apply", ""), status, edited]).is_empty(), "a record that is lost");
        let handed_over = of(&[(MANAGER, "Apply", ""), ("argocd-controller", "Apply", "")]);
        assert_eq!(handed_over, ["argocd-controller"]);
        let scaled = ("kube-controller-manager", "Update", "");
        assert!(of(&[scaled, status]).is_empty());
        assert!(of(&[]).is_empty());
    }
}
