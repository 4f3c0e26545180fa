//! What a removal keeps: claims with data, keys and other objects with the policy Keep, unless `--delete-data` deletes them too;
//! and what existed before the installation.

use serde_json::Value;

use super::found::Found;
use super::owned::{given_back, is_bound};
use super::report::ObjectReason;
use crate::inventory::owner::KEEP_ANNOTATION;
use crate::inventory::record::State;
use crate::inventory::release::Policy;
use crate::k8s::object::{ObjectRef, is_terminating, object_annotation};

/// Treatment of an object by a removal, before it is known whether there is data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    /// It is given back to those from whom it was taken over.
    GivenBack,
    /// It is of no use without the data, nor the data without it.
    StaysWithData,
}

pub(super) fn decide_deletion(found: &Found, state: &State, delete_data: bool) -> Fate {
    if is_adoption_pending(state, &found.object) {
        Fate::GivenBack
    } else if stays_with_data(found, state) && !delete_data {
        Fate::StaysWithData
    } else {
        Fate::Goes
    }
}

/// Separates what is deleted from what is kept.
///
/// Keys without data are worth nothing: where no claim keeps any and the installation never was complete, they go too.
/// Nor does anything stay that is being deleted.
pub(super) fn sort_out(
    found: Vec<Found>,
    state: &State,
    claims: &[Found],
    delete_data: bool,
) -> (Vec<Found>, Vec<ObjectReason>) {
    let never_complete = state.record.is_none() && !claims.iter().any(|claim| keeps_data(&claim.live));
    let (mut pending, mut kept) = (Vec::new(), Vec::new());
    for found in found {
        let going = is_terminating(&found.live);
        match decide_deletion(&found, state, delete_data) {
            // It is others' to delete, and to wait for.
            Fate::GivenBack if going => {}
            Fate::GivenBack => {
                kept.push(ObjectReason {
                    object: found.object,
                    reason: "it existed before this installation".to_owned(),
                });
            }
            Fate::StaysWithData if !never_complete && !going => kept.push(kept_data(&found)),
            Fate::StaysWithData | Fate::Goes => pending.push(found),
        }
    }
    (pending, kept)
}

/// Separates the claims to delete from those to keep, which contain data.
pub(super) fn without_data(claims: Vec<Found>, delete_data: bool) -> (Vec<Found>, Vec<Found>) {
    claims.into_iter().partition(|claim| delete_data || !keeps_data(&claim.live))
}

/// Returns whether a run that was interrupted has taken the object over from others.
pub(super) fn is_adoption_pending(state: &State, object: &ObjectRef) -> bool {
    given_back(state).any(|step| step.object == *object)
}

/// Returns whether it is kept unless the data is deleted too: the record, the journal or the object itself says so.
pub(super) fn stays_with_data(found: &Found, state: &State) -> bool {
    let recorded = state.record.as_ref().and_then(|r| r.find_item(&found.object)).map(|item| item.policy);
    let begun = state.journal.as_ref().and_then(|j| j.find_step(&found.object)).map(|step| step.policy);
    let marked = object_annotation(&found.live, KEEP_ANNOTATION) == Some("true");
    marked || recorded == Some(Policy::Keep) || begun == Some(Policy::Keep)
}

pub(super) fn kept_data(found: &Found) -> ObjectReason {
    let why =
        if found.object.kind == "PersistentVolumeClaim" { "it contains the data" } else { "it cannot be recreated" };
    ObjectReason { object: found.object.clone(), reason: why.to_owned() }
}

/// Returns whether a claim keeps its data: a terminating claim keeps it until its finalizers are removed.
pub(crate) fn keeps_data(claim: &Value) -> bool {
    is_bound(claim) && !is_terminating(claim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::kinds::Kind;

    fn found(group: &str, kind: &str, going: bool, mut live: Value) -> Found {
        let kind = Kind::from_table(group, kind);
        live["metadata"] = json!({"name": "x", "annotations": {KEEP_ANNOTATION: "true"}});
        if going {
            live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Found { object: ObjectRef::new(&kind, Some("fleet"), "x"), kind, live }
    }

    fn claim(phase: &str, going: bool) -> Found {
        found("", "PersistentVolumeClaim", going, json!({"status": {"phase": phase}}))
    }

    #[test]
    fn a_claim_stays_where_it_is_bound_and_nobody_deletes_it() {
        for (phase, going, stays) in
            [("Bound", false, true), ("Lost", false, true), ("Bound", true, false), ("Pending", false, false)]
        {
            assert_eq!(without_data(vec![claim(phase, going)], false).1.len(), usize::from(stays), "{phase} {going}");
            assert!(without_data(vec![claim(phase, going)], true).1.is_empty(), "{phase} {going}");
        }
    }

    fn keeps_keys(keys_go: bool, data_goes: bool) -> bool {
        let keys = vec![found("", "Secret", keys_go, json!({}))];
        let (pending, kept) = sort_out(keys, &State::default(), &[claim("Bound", data_goes)], false);
        assert_eq!(pending.len() + kept.len(), 1);
        !kept.is_empty()
    }

    #[test]
    fn keys_stay_while_there_is_data_and_nobody_deletes_either() {
        assert_eq!([keeps_keys(false, false), keeps_keys(true, false), keeps_keys(false, true)], [true, false, false]);
    }
}
