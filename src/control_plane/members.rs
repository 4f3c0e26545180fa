//! The number of etcd's members. Each knows the others from its first start, so it stays what it was then.

use serde_json::Value;

use super::install::InstallError;
use super::plan::{ETCD_CLAIM, MEMBERS, Plan};
use crate::apply::{self, Action, Engine, ObjectRef, State, Step};
use crate::check::hosting::HostingFacts;

/// Refuses another number over data that is there: what an uninstall kept of one member would run beside an empty store of
/// the others.
pub(super) async fn beside_data(
    plan: &Plan,
    engine: &Engine,
    state: &State,
    facts: &HostingFacts,
) -> Result<Option<InstallError>, apply::Error> {
    let recorded = state.record.as_ref().and_then(|record| record.release.facts.get(MEMBERS)?.parse().ok());
    let wanted = u64::try_from(plan.values.etcd.replicas).unwrap_or_default();
    // Where a record was lost, the claims tell; but not those of a set that stands, which may still be making them.
    let stands = facts.namespace.control_planes.contains(&plan.name.to_string());
    if recorded == Some(wanted) || recorded.is_none() && stands {
        return Ok(None);
    }
    let data = engine.data().await?;
    let now = if data.is_empty() { None } else { recorded.or_else(|| with_data(&data)) };
    Ok(now.filter(|now| *now != wanted).map(|now| InstallError::Members { now, wanted }))
}

/// How many members have left these claims. Their number is odd, also where the last claim is lost.
fn with_data(claims: &[ObjectRef]) -> Option<u64> {
    let numbers = claims.iter().filter_map(|claim| claim.name.strip_prefix(ETCD_CLAIM)?.parse::<u64>().ok());
    numbers.max().map(|last| (last + 1) | 1)
}

/// Refuses a plan that changes the number of an etcd that is installed.
pub(super) async fn changed(engine: &Engine, whole: &apply::Plan) -> Result<Option<InstallError>, apply::Error> {
    let is_etcd = |step: &&Step| {
        step.action == Action::Change && step.target.is("apps", "StatefulSet") && step.target.name == "etcd"
    };
    for step in whole.steps.iter().filter(is_etcd) {
        let live = engine.read(&step.target).await?;
        let members = |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_u64);
        let now = members(&live).unwrap_or(1);
        // None where an autoscaler has them.
        let wanted = members(&step.manifest).unwrap_or(now);
        if now != wanted {
            return Ok(Some(InstallError::Members { now, wanted }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Kind;

    #[test]
    fn the_claims_tell_how_many_members_there_were() {
        let members = |names: &[&str]| {
            let kind = Kind::known("", "PersistentVolumeClaim");
            let claims: Vec<ObjectRef> = names.iter().map(|name| ObjectRef::new(&kind, Some("fleet"), name)).collect();
            with_data(&claims)
        };
        assert_eq!(members(&["etcd-data-etcd-0"]), Some(1));
        assert_eq!(members(&["etcd-data-etcd-0", "etcd-data-etcd-1", "etcd-data-etcd-2"]), Some(3));
        // One was lost.
        assert_eq!(members(&["etcd-data-etcd-1", "etcd-data-etcd-2"]), Some(3));
        assert_eq!(members(&["etcd-data-etcd-0", "etcd-data-etcd-1"]), Some(3));
        // Nothing of etcd's.
        assert_eq!(members(&["backup", "etcd-data-etcd-old"]), None);
    }
}
