//! Deleting the namespace: only the one that we made, and only when nothing of anybody else is in it.

use std::time::Instant;

use serde_json::Value;

use super::wait_deleted::PendingDeletion;
use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::apply::plan::is_made;
use crate::inventory::locked_store::LockedStore;
use crate::k8s::discovery;
use crate::k8s::object::{ObjectRef, items_at, object_uid, text_at};
use crate::k8s::request::server::{Selection, Server};
use crate::k8s::run_event::{Done, Event};

/// Reason to keep a namespace that no install of this owner created.
pub(super) const THERE_BEFORE: &str = "it existed before this installation";

/// Number of strangers in a namespace that are named.
const NAMED: usize = 5;

impl Engine {
    /// The owner's namespace, if it exists and an install of this owner created it.
    ///
    /// # Errors
    /// Reads that the server refuses.
    pub async fn made_namespace(&self) -> Result<Option<ObjectRef>, Error> {
        let kind = Kind::from_table("", "Namespace");
        let object = ObjectRef::new(&kind, None, &self.owner.namespace);
        let live = self.server().get_metadata(&kind, None, &object.name).await;
        let live = live.map_err(|e| Error::for_object("read", &object, e))?;
        Ok(live.filter(|live| self.has_made(live)).map(|_| object))
    }

    /// Returns whether the owner's namespace was made by an install of this owner.
    pub(crate) fn has_made(&self, live: &Value) -> bool {
        self.owner.has_owner_labels(live) && is_made(live)
    }

    /// Deletes the owner's namespace with what is left of us in it, and waits until it is gone.
    ///
    /// Returns the reason that it is kept; none when it is deleted. Without a store there must be no record.
    pub(crate) async fn delete_namespace(
        &self,
        server: &Server,
        store: Option<&LockedStore>,
        end: Instant,
    ) -> Result<Option<String>, Error> {
        let kind = Kind::from_table("", "Namespace");
        let object = ObjectRef::new(&kind, None, &self.owner.namespace);
        let live =
            server.get_object(&kind, None, &object.name).await.map_err(|e| Error::for_object("read", &object, e))?;
        let Some(live) = live else { return Ok(None) };
        if !self.has_made(&live) {
            return Ok(Some(THERE_BEFORE.to_owned()));
        }
        if text_at(&live, "/metadata/deletionTimestamp").is_none() {
            if let Some(reason) = self.describe_foreign_objects(server).await? {
                return Ok(Some(reason));
            }
            // Of another run nothing but its record may be there yet, which does not count as a stranger.
            match store {
                Some(store) => store.lock_store().await.still_ours().await?,
                None if crate::inventory::store::load_state(server, &self.owner).await?.is_empty() => {}
                None => return Ok(Some("another run has started in it".to_owned())),
            }
            server
                .delete_object(&kind, &object, object_uid(&live))
                .await
                .map_err(|e| Error::for_object("delete", &object, e))?;
        }
        let pending = PendingDeletion { kind, object: object.clone(), uid: object_uid(&live).to_owned() };
        self.wait_gone(server, vec![pending], end).await?;
        self.events.send_event(Event::Object { object, done: Done::Deleted });
        Ok(None)
    }

    /// Describes the objects in our namespace that are not ours, or the kinds that gave no answer, as a clause; none
    /// when it is empty except for ourselves.
    async fn describe_foreign_objects(&self, server: &Server) -> Result<Option<String>, Error> {
        let (kinds, silent) = discovery::list_kinds(server, self.options.parallel)
            .await
            .map_err(|e| Error::from_api_error("list the kinds of the API", e))?;
        let kinds: Vec<Kind> = kinds.into_iter().filter(|kind| kind.namespaced).collect();
        let selection =
            Selection { namespace: Some(&self.owner.namespace), metadata_only: true, ..Selection::default() };
        let (objects, refused) = discovery::list_metadata(server, &kinds, &selection, self.options.parallel).await;
        let unseen: Vec<String> = silent.into_iter().chain(refused).collect();
        if !unseen.is_empty() {
            return Ok(Some(format!(
                "its other contents are unknown: the API server did not list {}",
                unseen.join(", ")
            )));
        }
        let strangers: Vec<String> = objects
            .iter()
            .filter(|(kind, object)| !self.is_incidental(kind, object))
            .filter_map(|(_, object)| ObjectRef::of(object))
            .map(|object| format!("{} {}", object.kind, object.name))
            .collect();
        Ok(match strangers.len() {
            0 => None,
            n if n > NAMED => {
                Some(format!("it contains {n} other objects, among them {}", strangers[..NAMED].join(", ")))
            }
            _ => Some(format!("it contains {}", strangers.join(", "))),
        })
    }

    /// Returns whether an object in our namespace does not count: made by the cluster in every namespace, our own
    /// record, what an owner that is gone leaves to the garbage collector, or on its way out.
    fn is_incidental(&self, kind: &Kind, object: &Value) -> bool {
        let name = text_at(object, "/metadata/name").unwrap_or_default();
        let own_record = kind.kind == "Secret" && name == self.owner.record_name();
        let default_account = kind.kind == "ServiceAccount" && name == "default";
        let default_token = kind.kind == "Secret" && name.starts_with("default-token-");
        let trust = kind.kind == "ConfigMap"
            && matches!(name, "kube-root-ca.crt" | "openshift-service-ca.crt" | "istio-ca-root-cert");
        // Endpoints are not owned by their Service, but carry its labels.
        let shadow = kind.mirrors_a_service() && self.owner.labelled_as_dependent(object);
        let collected =
            self.owner.labelled_as_dependent(object) && !items_at(object, "/metadata/ownerReferences").is_empty();
        let leaving = text_at(object, "/metadata/deletionTimestamp").is_some();
        own_record || default_account || default_token || trust || shadow || collected || leaving
    }
}
