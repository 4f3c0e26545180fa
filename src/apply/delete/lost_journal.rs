//! The copy of a journal on this machine, where the cluster has lost its own: whether it is about what exists, and
//! whether anything can be undone by it.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory;
use crate::inventory::journal::{Journal, Undo};
use crate::inventory::journal_file::LocalJournal;
use crate::inventory::owner::NAMESPACE_CREATED_ANNOTATION;
use crate::inventory::record::State;
use crate::k8s::object::{ObjectRef, is_terminating, number_at, object_annotation, status_condition, text_at};
use crate::k8s::request::server::Server;

impl Engine {
    /// The copy on this machine of the journal of a run that was interrupted, where the cluster has lost journal and record: it is
    /// about this cluster if the namespace was made by the installation that it names.
    ///
    /// # Errors
    /// [`inventory::Error::File`] with [`io::ErrorKind::InvalidData`] where nothing can be undone by it: what it was to make
    /// has been ready, or former values are missing in it. Whatever the server refuses to read.
    pub async fn copy_of_journal(&self, state: &State) -> Result<Option<Journal>, Error> {
        let Some(path) = self.options.journal.as_deref().filter(|_| state.is_empty()) else { return Ok(None) };
        let Some(journal) = LocalJournal::read_journal_file(path)? else { return Ok(None) };
        let server = &self.server();
        let namespace = server.get_metadata(&Kind::from_table("", "Namespace"), None, &self.owner.namespace).await;
        let namespace =
            namespace.map_err(|e| Error::from_api_error(format!("read Namespace {}", self.owner.namespace), e))?;
        let made_by = namespace.as_ref().filter(|namespace| !is_terminating(namespace));
        let made_by = made_by.and_then(|namespace| object_annotation(namespace, NAMESPACE_CREATED_ANNOTATION));
        if made_by != Some(&journal.install_uid) || journal.is_removal() {
            return Ok(None);
        }
        if let Some(step) = journal.steps.iter().find(|step| step.undo.is_without_values()) {
            return Err(useless_copy(path, values_lost(&step.object)).into());
        }
        match self.ready_since(server, &journal, state).await? {
            Some(object) => Err(useless_copy(
                path,
                format!("it may be outdated: its run was to create {object}, and this object has become ready since"),
            )
            .into()),
            None => Ok(Some(journal)),
        }
    }

    /// A workload that a run was to make and that has been ready: by that time the run had done most of its work, and
    /// it may have been finished by an install from another machine, of which the copy on this one knows nothing.
    async fn ready_since(&self, server: &Server, journal: &Journal, state: &State) -> Result<Option<ObjectRef>, Error> {
        for step in journal.steps.iter().filter(|step| step.undo == Undo::Delete) {
            let target = &step.object;
            if !target.is_kind("apps", "StatefulSet") && !target.is_kind("apps", "Deployment") {
                continue;
            }
            let kind = Kind::from_table(&target.group, &target.kind);
            let live = server.get_object(&kind, target.namespace.as_deref(), &target.name).await;
            let live = live.map_err(|e| Error::for_object("read", target, e))?;
            if live.is_some_and(|live| self.is_ours(&live, target, state) && has_been_ready(&live)) {
                return Ok(Some(target.clone()));
            }
        }
        Ok(None)
    }
}

/// Error about a copy by which nothing can be undone.
fn useless_copy(path: &Path, why: String) -> inventory::Error {
    inventory::Error::File { path: path.to_owned(), source: io::Error::new(io::ErrorKind::InvalidData, why) }
}

/// Returns the reason that a step cannot be undone: the former values of its object are not in the copy.
pub(crate) fn values_lost(object: &ObjectRef) -> String {
    format!("the former values of {object} were only in the cluster's journal, which is lost")
}

/// Returns whether pods of a workload are or were ready. A Deployment remembers that all of them were, when none is any
/// more.
fn has_been_ready(live: &Value) -> bool {
    let complete = status_condition(live, "Progressing").and_then(|rollout| text_at(rollout, "/reason"));
    ["/status/readyReplicas", "/status/availableReplicas"]
        .iter()
        .any(|path| number_at(live, path).is_some_and(|count| count > 0))
        || complete == Some("NewReplicaSetAvailable")
}
