//! What keeps a group or an object from moving: the condition MoveBlocked with its reasons and messages. The message of a
//! group that stays as a whole is the sentence of its decision, see [`explain::format_decision`].

use std::collections::BTreeSet;

use super::decide::Decided;
use super::group_context::GroupContext;
use super::place::cluster_of;
use super::store::Store;
use crate::api::labels::ANNOTATION_ALLOW_VOLUME_MOVE;
use crate::placement::explain;
use crate::placement::facts::ObjectKey;

/// Data cannot be moved: a part of the group, or all of it, stays where its volumes are.
const HAS_VOLUMES: &str = "HasVolumes";
/// What runs once has started, and would start again elsewhere.
const STARTED: &str = "Started";

/// Most objects that a message names.
const NAMED: usize = 3;

impl GroupContext<'_> {
    /// Returns what keeps the group, or members of it, from moving: reason and message of the condition; `None` where
    /// nothing does.
    pub(super) fn find_move_blocked(&self, decided: &Decided) -> Option<(&'static str, String)> {
        match decided.record.how.as_str() {
            "Volumes" => Some((HAS_VOLUMES, decided.message.clone())),
            "Started" => Some((STARTED, decided.message.clone())),
            _ => self.format_held_members().map(|text| (HAS_VOLUMES, text)),
        }
    }

    /// Returns what says that data of members stays outside the targets; `None` where none does.
    fn format_held_members(&self) -> Option<String> {
        let decided = self.active_decision()?;
        let targets: BTreeSet<&str> = decided.targets.iter().map(|target| target.cluster.as_str()).collect();
        let members = self.members.iter();
        let held: Vec<&&ObjectKey> = members.filter(|key| self.kept_place(key, &targets).is_some()).collect();
        if held.is_empty() {
            return None;
        }
        let names: Vec<String> = held.iter().take(NAMED).map(|key| key.format_title()).collect();
        let more = held.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let clusters: BTreeSet<&str> = self.recorded_clusters().filter(|name| !targets.contains(name)).collect();
        let at = if clusters.is_empty() {
            String::new()
        } else {
            format!(" ({})", clusters.into_iter().collect::<Vec<_>>().join(", "))
        };
        Some(explain::shorten_event_text(format!(
            "these objects stay with their data{at}: {}{more}; annotate them with {ANNOTATION_ALLOW_VOLUME_MOVE} to \
             begin with an empty volume elsewhere",
            names.join(", ")
        )))
    }
}

/// Returns the text that says that an object placed by annotation stays where its data is, or in the `lost` clusters where it
/// was last; `None` where it does not.
pub(super) fn format_held_object(
    store: &Store,
    key: &ObjectKey,
    targets: &BTreeSet<&str>,
    lost: &BTreeSet<&str>,
) -> Option<String> {
    let remedy = format!("annotate it with {ANNOTATION_ALLOW_VOLUME_MOVE} to begin with an empty volume elsewhere");
    if !lost.is_empty() {
        let lost = lost.iter().copied().collect::<Vec<_>>().join(", ");
        return Some(format!("its data was on {lost}, where it has no copy any more: {remedy}"));
    }
    let kept = store.kept_copies(key);
    let outside: Vec<&str> =
        kept.iter().map(|(at, _)| cluster_of(at)).filter(|cluster| !targets.contains(cluster)).collect();
    (!outside.is_empty()).then(|| format!("its data stays on {}: {remedy}", outside.join(", ")))
}
