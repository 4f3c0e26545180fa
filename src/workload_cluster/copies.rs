//! The copies that a control plane placed into a workload cluster, as whoever uninstalls its agent finds them.

use std::fmt;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::api::first_of::first_of;
use crate::api::labels::LABEL_PLACED_BY;
use crate::api::placeable::{self, Kinds, Placeable};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::pages::all_pages;

/// An object that was placed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedObject {
    /// Namespace; absent for kinds without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Kind.
    pub kind: &'static str,
    /// Name.
    pub name: String,
    #[serde(skip)]
    group: &'static str,
    #[serde(skip)]
    uid: String,
}

impl PlacedObject {
    /// An object of a kind that can be placed.
    pub fn new(kind: &'static Placeable, namespace: Option<String>, name: String, uid: String) -> Self {
        Self { namespace, kind: kind.kind, name, group: kind.group, uid }
    }

    /// Returns whether it is a namespace: one that exists for what is in it needs nobody's decision.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }
}

impl fmt::Display for PlacedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Copies of one control plane in a workload cluster.
#[derive(Clone)]
pub struct Copies {
    client: Client,
    placed_by: String,
    kinds: Kinds,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("placed_by", &self.placed_by).finish_non_exhaustive()
    }
}

impl Copies {
    /// Copies of these kinds that have the label value `placed_by`.
    pub fn new(client: &Client, placed_by: &str, kinds: Kinds) -> Self {
        Self { client: client.clone(), placed_by: placed_by.to_owned(), kinds }
    }

    /// Lists all of them, also those that are terminating, by namespace, kind and name; Secrets only if the caller has
    /// the right.
    ///
    /// # Errors
    /// The first list that failed, of whichever kind: half of them would look like all.
    pub async fn list_copies(&self) -> Result<Vec<PlacedObject>, kube::Error> {
        let mut found = Vec::new();
        for kind in self.kinds.iter() {
            let api: Api<DynamicObject> = kind.objects_api(&self.client, None);
            let label = format!("{LABEL_PLACED_BY}={}", self.placed_by);
            let listed = all_pages(ListParams::default().labels(&label), |page| {
                let api = api.clone();
                async move { api.list_metadata(&page).await }
            });
            let listed = match listed.await {
                Ok(listed) => listed,
                // The kind is not served.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                // Neither may the agent list Secrets, so their marks mean nothing to it later.
                Err(kube::Error::Api(status)) if status.code == 403 && kind.kind == "Secret" => continue,
                Err(error) => return Err(error),
            };
            found.extend(listed.iter().map(|object| {
                PlacedObject::new(kind, object.namespace(), object.name_any(), object.uid().unwrap_or_default())
            }));
        }
        found.sort();
        Ok(found)
    }

    /// Finds those of some copies that contain data: PersistentVolumeClaims, and StatefulSets with templates of them.
    ///
    /// # Errors
    /// A StatefulSet that cannot be read.
    pub async fn find_data(&self, objects: &[PlacedObject]) -> Result<Vec<PlacedObject>, kube::Error> {
        let mut found = Vec::new();
        for object in objects {
            let holds_data = match (object.group, object.kind) {
                ("", "PersistentVolumeClaim") => true,
                ("apps", "StatefulSet") => {
                    let namespace = object.namespace.as_deref().unwrap_or_default();
                    let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace);
                    let templates = sets.get_opt(&object.name).await?.and_then(|set| set.spec?.volume_claim_templates);
                    templates.is_some_and(|templates| !templates.is_empty())
                }
                _ => false,
            };
            if holds_data {
                found.push(object.clone());
            }
        }
        Ok(found)
    }

    /// Removes the control plane's labels from objects, which then are managed by nobody. Deleted and recreated objects
    /// are skipped.
    ///
    /// # Errors
    /// The first refusal; those before it are released.
    pub async fn release_copies(&self, objects: &[PlacedObject]) -> Result<(), kube::Error> {
        for object in objects {
            let Some(kind) = self.kinds.find_placeable(object.group, object.kind) else { continue };
            let patch = placeable::build_unmark_patch(json!({ "uid": object.uid }));
            let api: Api<DynamicObject> = kind.objects_api(&self.client, object.namespace.as_deref());
            match api.patch_metadata(&object.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if ApiError::of_status(&status).is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Names up to five objects, and says how many more there are.
pub fn format_object_names(objects: &[PlacedObject]) -> String {
    first_of(objects, 5, ", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_placed_object(kind: &str, namespace: Option<&str>, name: &str) -> PlacedObject {
        let kind = placeable::find_builtin_kind(if kind == "Deployment" { "apps" } else { "" }, kind).unwrap();
        PlacedObject::new(kind, namespace.map(str::to_owned), name.to_owned(), String::new())
    }

    #[test]
    fn many_objects_are_named_in_part() {
        let all: Vec<_> =
            ["a", "b", "c", "d", "e", "f"].map(|name| make_placed_object("Deployment", Some("shop"), name)).into();
        assert_eq!(format_object_names(&all[..2]), "Deployment shop/a, Deployment shop/b");
        assert!(format_object_names(&all).ends_with("Deployment shop/e and 1 more"), "{}", format_object_names(&all));
        let namespace = make_placed_object("Namespace", None, "shop");
        assert!(namespace.is_namespace() && namespace.to_string() == "Namespace shop");
    }
}
