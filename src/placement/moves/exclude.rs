//! Clusters that a group leaves because its pods find no node there, or because a kind of it is not served.

use super::record::{ExcludedCluster, ExclusionReason, MoveRecord};

/// Seconds for which such a cluster is left out.
const EXCLUDED_SECONDS: i64 = 600;

/// Returns the record that leaves a cluster out from now on; `None` during a move, and where it is left out already.
pub fn exclude_cluster(
    record: &MoveRecord,
    (cluster, uid): (&str, &str),
    reason: ExclusionReason,
    now: i64,
) -> Option<MoveRecord> {
    if record.running.is_some()
        || record.excluded.iter().any(|one| one.cluster == cluster && one.uid == uid && one.until > now)
    {
        return None;
    }
    let mut next = record.clone();
    next.excluded.retain(|one| one.until > now && one.cluster != cluster);
    let until = now.saturating_add(EXCLUDED_SECONDS);
    next.excluded.push(ExcludedCluster { cluster: cluster.to_owned(), uid: uid.to_owned(), reason, until });
    next.excluded.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    Some(next)
}

/// Returns the record without the exclusions for want of nodes in clusters that have grown since; `None` during a move, and
/// where there are none.
pub fn forget_exclusions(record: &MoveRecord, grown_at: impl Fn(&str) -> Option<i64>) -> Option<MoveRecord> {
    if record.running.is_some() {
        return None;
    }
    let mut next = record.clone();
    next.excluded.retain(|one| {
        one.reason != ExclusionReason::Unschedulable
            || grown_at(&one.cluster).is_none_or(|at| at < one.until.saturating_sub(EXCLUDED_SECONDS))
    });
    (next.excluded.len() < record.excluded.len()).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_left_out_once_and_until_it_grows() {
        let record = MoveRecord::default();
        let out = exclude_cluster(&record, ("east", "e"), ExclusionReason::Unschedulable, 1_000).unwrap();
        assert_eq!((out.excluded.len(), out.excluded[0].until), (1, 1_600));
        assert_eq!(exclude_cluster(&out, ("east", "e"), ExclusionReason::Unschedulable, 1_599), None);
        assert!(exclude_cluster(&out, ("east", "another"), ExclusionReason::Unschedulable, 1_599).is_some());
        let again = exclude_cluster(&out, ("east", "e"), ExclusionReason::Unschedulable, 1_600).unwrap();
        assert_eq!((again.excluded.len(), again.excluded[0].until), (1, 2_200));
        assert_eq!(forget_exclusions(&out, |_| None), None);
        assert_eq!(forget_exclusions(&out, |_| Some(999)), None, "it grew before");
        assert!(forget_exclusions(&out, |_| Some(1_000)).unwrap().excluded.is_empty());
        let kind = exclude_cluster(&record, ("east", "e"), ExclusionReason::KindNotServed, 1_000).unwrap();
        assert_eq!(forget_exclusions(&kind, |_| Some(1_100)), None, "nodes serve no kinds");
    }
}
