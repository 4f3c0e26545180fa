//! Copies of Secrets, which the agent may read by their names and not list: it looks now and then whether each is there.

use std::time::Duration;

use tokio::time::Instant;

use super::context::{Context, is_listed};
use super::task::Target;
use super::worker::{Done, Worker};
use crate::k8s::backoff::add_jitter;
use crate::k8s::connect::daemon_client::call_with_timeout;

/// Time between two looks at all of them.
const EVERY: Duration = Duration::from_secs(15);
/// Most copies that are looked at in a second; with more, the looks are further apart.
const PER_SECOND: u32 = 10;

/// A copy that was applied.
#[derive(Debug)]
pub struct Unlisted {
    /// Its Schedule.
    pub schedule: String,
    /// UID of the copy.
    pub uid: String,
    target: Target,
}

/// Returns those of the copies that are gone. What cannot be read is not.
pub async fn find_gone_copies(context: &Context, copies: Vec<Unlisted>) -> Vec<Unlisted> {
    let mut gone = Vec::new();
    for copy in copies {
        let found = call_with_timeout(context.copies_api(&copy.target).get_metadata_opt(&copy.target.key.name)).await;
        match found {
            Ok(found) => {
                let is_gone = found.and_then(|found| found.metadata.uid).as_ref() != Some(&copy.uid);
                gone.extend(is_gone.then_some(copy));
            }
            // What is refused is no proof; where nothing answers, the others would not be answered either.
            Err(error) if error.to_api_error().is_some() => {}
            Err(_) => break,
        }
    }
    gone
}

impl Worker {
    /// Looks for the copies that are not listed, when it is time.
    pub(super) fn start_look_for_unlisted(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        let idle = self.entries.values().filter(|entry| !entry.running && !entry.task.deleting);
        let copies: Vec<Unlisted> = idle
            .filter_map(|entry| {
                let target = entry.task.target.as_ref().ok().filter(|target| !is_listed(target.kind))?;
                let uid = entry.baseline.as_ref()?.uid.clone();
                Some(Unlisted { schedule: entry.task.name.clone(), uid, target: target.clone() })
            })
            .collect();
        self.look_at = None;
        let count = u32::try_from(copies.len()).unwrap_or(u32::MAX);
        let wait = add_jitter(EVERY.max(Duration::from_secs(u64::from(count / PER_SECOND))), 0.1);
        let context = self.context.clone();
        self.operations.spawn(async move {
            let gone = find_gone_copies(&context, copies).await;
            Done::LookedForUnlisted { gone, next: now + wait }
        });
    }

    /// Requests that deleted copies are recreated.
    pub(super) fn on_looked_for_unlisted(&mut self, gone: Vec<Unlisted>, next: Instant) {
        self.look_at = Some(next);
        for copy in gone {
            // It may have been applied meanwhile.
            let entry = self.entries.get(&copy.schedule);
            let entry = entry.filter(|entry| entry.copy_uid().is_some_and(|uid| uid == copy.uid));
            if let Some(key) = entry.and_then(|entry| entry.task.key()).cloned() {
                self.on_copy_gone(&key, &copy.uid, false);
            }
        }
    }
}
