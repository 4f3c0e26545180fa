//! Clusters that a group leaves out for a while, because its pods find no node there or a kind is not served.

use kube::ResourceExt as _;

use super::proposal::Proposal;
use crate::placement::moves::{MoveRecord, exclude_cluster, forget_exclusions};
use crate::scheduler::placing::decide::Clusters;
use crate::scheduler::placing::events::event_about;
use crate::scheduler::placing::group_events::group_reference;
use crate::scheduler::placing::write::Write;

/// Returns the record with the clusters that are left out from now on, or no longer, and the event about that; `None` if it
/// stays as it is.
pub(super) fn plan_exclusions(
    clusters: &Clusters,
    name: &str,
    record: &MoveRecord,
    proposal: &Proposal,
    now: i64,
) -> Option<(MoveRecord, Vec<Write>)> {
    if let Some(next) = forget_exclusions(record, |cluster| clusters.grown_at.get(cluster).copied()) {
        return Some((next, Vec::new()));
    }
    let (key, stuck) = proposal.stuck.as_ref().filter(|_| !proposal.decided.suspended)?;
    let cluster = record.target.keys().next()?;
    let uid = clusters.known.get(cluster)?.uid().unwrap_or_default();
    let next = exclude_cluster(record, (cluster, &uid), stuck.exclusion(), now)?;
    let text = stuck.format_event(key, cluster, now);
    Some((next, vec![event_about(group_reference(name), true, "ReschedulingTriggered", &text)]))
}
