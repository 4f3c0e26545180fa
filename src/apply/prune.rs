//! Deleting what new inputs hold no more: only what record, uid and labels together say is ours.

use super::api_error::ApiError;
use super::error::Error;
use super::event::{Done, Event};
use super::fields;
use super::journal::{JournalStep, Undo};
use super::object::uid;
use super::record::Item;
use super::run::Run;
use super::write::bare;

impl Run {
    /// Deletes what the new inputs hold no more. Returns what could not be shown to be ours, which stays recorded.
    pub(crate) async fn prune(&mut self) -> Result<Vec<Item>, Error> {
        let mut remaining = Vec::new();
        let mut doomed = Vec::new();
        for item in self.plan.prune.clone() {
            let target = &item.object;
            let kind = self
                .server
                .served(&target.group, &target.kind)
                .await
                .map_err(|e| Error::on("find the kind of", target, e))?;
            let live = match self.server.get(&kind, target.namespace.as_deref(), &target.name).await {
                Ok(live) => live,
                Err(error) if error.is_forbidden() => {
                    remaining.push(self.stays(item, &error));
                    continue;
                }
                Err(error) => return Err(Error::on("read", target, error)),
            };
            match live {
                Some(live) if uid(&live) == item.uid && self.engine.owner.labelled(&live) => {
                    doomed.push((item, kind, live));
                }
                // Someone made another one of that name, or took our labels off: it is theirs now.
                Some(_) => self.engine.events.send(Event::Object { object: target.clone(), done: Done::Kept }),
                None => {}
            }
        }
        let journal = self.ledger.lock().await.state.journal.clone();
        let mut entries = Vec::new();
        for (item, kind, live) in &doomed {
            let mut manifest = fields::ours(live).map_or_else(|| bare(live), |ours| fields::extract(live, ours));
            match journal.as_ref().and_then(|journal| journal.step(&item.object)).map(|step| &step.undo) {
                None => {}
                // A cut-off run changed it first: made again, it is as it was before that.
                Some(Undo::Reapply { patch, .. }) => fields::merge(&mut manifest, patch),
                Some(_) => continue,
            }
            let (object, api_version) = (item.object.clone(), kind.api_version());
            entries.push(JournalStep { object, api_version, policy: item.policy, undo: Undo::Recreate { manifest } });
        }
        if !entries.is_empty() {
            self.note(&entries).await?;
        } else if !doomed.is_empty() {
            self.ledger.lock().await.still_ours().await?;
        }
        for (item, kind, _) in doomed {
            let deleted = self.server.delete(&kind, &item.object, &item.uid).await;
            match deleted {
                Ok(_) => self.engine.events.send(Event::Object { object: item.object, done: Done::Deleted }),
                Err(error) if error.is_forbidden() => remaining.push(self.stays(item, &error)),
                Err(error) => return Err(Error::on("delete", &item.object, error)),
            }
        }
        Ok(remaining)
    }

    /// Says that an object stays because it may not be deleted. It is recorded still, and the next run tries again.
    fn stays(&self, item: Item, error: &ApiError) -> Item {
        let message = format!("it is planned no more, and stays: {error}");
        self.engine.events.send(Event::Warning { object: item.object.clone(), message });
        item
    }
}
