//! The last step of a removal: is anything of ours left anywhere in the cluster?

use std::time::{Duration, Instant};

use serde::Serialize;

use super::discovery;
use super::engine::Engine;
use super::error::Error;
use super::fields;
use super::kinds::Kind;
use super::object::{ObjectRef, list, text};
use super::server::{Selection, Server};
use super::uninstall::Kept;

/// How long the garbage collector may take before what it should have collected counts as left over.
const COLLECTED_WITHIN: Duration = Duration::from_secs(20);

/// An object that carries our label or fields and should be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Which.
    pub object: ObjectRef,
    /// How it was recognised, as half a sentence.
    pub because: String,
}

impl Engine {
    /// Searches all kinds of the whole cluster for objects of this installation, but for those kept on purpose.
    ///
    /// Also returns the kinds or groups that did not answer.
    ///
    /// # Errors
    /// When the list of kinds cannot be read.
    pub async fn leftovers(&self, kept: &[Kept]) -> Result<(Vec<Leftover>, Vec<String>), Error> {
        let server = self.server();
        let (kinds, silent) = discovery::kinds(&server, self.options.parallel)
            .await
            .map_err(|e| Error::api("list the kinds of the API", e))?;
        let begun = Instant::now();
        loop {
            let (found, collectable, refused) = self.search(&server, &kinds, kept).await;
            // The garbage collector needs a moment for what its owner leaves behind.
            if collectable && begun.elapsed() < COLLECTED_WITHIN {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            return Ok((found, silent.into_iter().chain(refused).collect()));
        }
    }

    /// One look: what is left, whether any of it has an owner and may yet be collected, and what was not answered.
    async fn search(&self, server: &Server, kinds: &[Kind], kept: &[Kept]) -> (Vec<Leftover>, bool, Vec<String>) {
        let selector = self.owner.selector();
        let selection = Selection { labels: Some(&selector), metadata_only: true, ..Selection::default() };
        let (objects, refused) = discovery::metadata(server, kinds, &selection, self.options.parallel).await;
        let mut found = Vec::new();
        let mut collectable = false;
        for (kind, object) in objects {
            let Some(reference) = ObjectRef::of(&object) else { continue };
            let on_purpose = kept.iter().any(|kept| kept.object == reference);
            let record = reference.kind == "Secret" && reference.name == self.owner.record_name() && !kept.is_empty();
            let leaving = text(&object, "/metadata/deletionTimestamp").is_some();
            if on_purpose || record || leaving {
                continue;
            }
            // Endpoints follow their Service a moment later, without being owned by it.
            let shadow = matches!(kind.kind.as_ref(), "Endpoints" | "EndpointSlice");
            collectable |= shadow || !list(&object, "/metadata/ownerReferences").is_empty();
            let because =
                if fields::ours(&object).is_some() { "it has our label and our fields" } else { "it has our label" };
            found.push(Leftover { object: reference, because: because.to_owned() });
        }
        found.sort_by(|a, b| a.object.cmp(&b.object));
        (found, collectable, refused)
    }
}
