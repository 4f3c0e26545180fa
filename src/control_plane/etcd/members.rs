//! The number of etcd's members. Each knows the others from its first start, so it stays what it was then.

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::apply;
use crate::apply::{Action, Engine};
use crate::check::hosting::HostingFacts;
use crate::control_plane::error::InstallError;
use crate::control_plane::plan::{MEMBERS, Plan};
use crate::inventory::State;
use crate::k8s::ObjectRef;
use crate::pki::secrets::ETCD_CLAIM;

/// Name of etcd's StatefulSet.
const ETCD: &str = "etcd";

/// Refuses a number of members other than that of the data that exists: what an uninstall kept of one member would
/// run beside empty stores of the others.
pub(in crate::control_plane) async fn beside_data(
    plan: &Plan,
    engine: &Engine,
    state: &State,
    facts: &HostingFacts,
) -> Result<Option<InstallError>, apply::Error> {
    let recorded = recorded_replica_count(state);
    let wanted = u64::try_from(plan.values.etcd.replicas).unwrap_or_default();
    if recorded == Some(wanted) {
        return Ok(None);
    }
    let now = if facts.namespace.control_planes.contains(&plan.name.to_string()) {
        // Its claims may still be on their way.
        let set = ObjectRef::new(&Kind::from_table("apps", "StatefulSet"), Some(plan.package.namespace.as_str()), ETCD);
        replica_count(&engine.read_object(&set).await?)
    } else {
        let data = engine.list_bound_volume_claims().await?;
        // Where a record was lost, the claims tell.
        if data.is_empty() { None } else { recorded.or_else(|| with_data(&data)) }
    };
    Ok(now.filter(|now| *now != wanted).map(|now| InstallError::Members { now, wanted }))
}

/// Returns the number of members by the record, else by the journal of a first install that was interrupted.
fn recorded_replica_count(state: &State) -> Option<u64> {
    let recorded = state.record.as_ref().map(|record| &record.release);
    let release = recorded.or_else(|| state.journal.as_ref()?.release.as_ref())?;
    release.facts.get(MEMBERS)?.parse().ok()
}

fn replica_count(set: &Value) -> Option<u64> {
    set.pointer("/spec/replicas").and_then(Value::as_u64)
}

/// Returns the number of members that have left these PersistentVolumeClaims. It is odd, also where the last claim is
/// lost.
fn with_data(claims: &[ObjectRef]) -> Option<u64> {
    let numbers = claims.iter().filter_map(|claim| claim.name.strip_prefix(ETCD_CLAIM)?.parse::<u64>().ok());
    numbers.max().map(|last| (last + 1) | 1)
}

/// Refuses a plan that changes the number of members of an installed etcd.
pub(in crate::control_plane) async fn refuse_replica_change(
    engine: &Engine,
    whole: &apply::Plan,
) -> Result<Option<InstallError>, apply::Error> {
    let of_etcd = whole.steps.iter().filter(|step| {
        matches!(step.action, Action::Change | Action::Adopt)
            && step.target.is_kind("apps", "StatefulSet")
            && step.target.name == ETCD
    });
    for step in of_etcd {
        let live = engine.read_object(&step.target).await?;
        let now = replica_count(&live).unwrap_or(1);
        // None where an autoscaler has them.
        let wanted = replica_count(&step.manifest).unwrap_or(now);
        if now != wanted {
            return Ok(Some(InstallError::Members { now, wanted }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::{Journal, Record};

    fn describe_release(members: &str) -> Value {
        json!({"chart": "", "version": "", "valuesDigest": "", "facts": {MEMBERS: members}})
    }

    #[test]
    fn the_number_of_a_first_install_that_was_interrupted_is_that_of_its_journal() {
        let journal: Journal = serde_json::from_value(json!({"run": "", "command": "install", "started": "",
            "installUid": "u", "release": describe_release("3"), "steps": []}))
        .unwrap();
        let record: Record = serde_json::from_value(json!({"format": 1, "installUid": "u", "phase": "installed",
            "owner": {"kind": "control-plane", "name": "demo", "namespace": "fleet"}, "namespaceCreated": true,
            "written": "", "inventory": [], "release": describe_release("1")}))
        .unwrap();
        assert_eq!(recorded_replica_count(&State::default()), None);
        let mut state = State { journal: Some(journal), ..State::default() };
        assert_eq!(recorded_replica_count(&state), Some(3));
        // What a run that was interrupted would have made of a finished one was refused.
        state.record = Some(record);
        assert_eq!(recorded_replica_count(&state), Some(1));
    }

    fn count_claimed_members(claims: &[&str]) -> Option<u64> {
        let kind = Kind::from_table("", "PersistentVolumeClaim");
        let claims: Vec<ObjectRef> = claims.iter().map(|name| ObjectRef::new(&kind, Some("fleet"), name)).collect();
        with_data(&claims)
    }

    #[test]
    fn the_claims_tell_how_many_members_there_were() {
        assert_eq!(count_claimed_members(&["etcd-data-etcd-0"]), Some(1));
        assert_eq!(count_claimed_members(&["etcd-data-etcd-0", "etcd-data-etcd-1", "etcd-data-etcd-2"]), Some(3));
        // One was lost.
        assert_eq!(count_claimed_members(&["etcd-data-etcd-1", "etcd-data-etcd-2"]), Some(3));
        assert_eq!(count_claimed_members(&["etcd-data-etcd-0", "etcd-data-etcd-1"]), Some(3));
        // Nothing of etcd's.
        assert_eq!(count_claimed_members(&["backup", "etcd-data-etcd-old"]), None);
    }
}
