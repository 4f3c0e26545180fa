//! The number of etcd's members. Each knows the others from its first start, so it stays what it was then.

use serde_json::Value;

use super::install::InstallError;
use super::plan::{MEMBERS, Plan};
use crate::apply::{self, Action, Engine, State, Step};

/// Refuses another number over data that is there: what an uninstall kept of one member would run beside an empty store of
/// the others.
pub(super) async fn beside_data(
    plan: &Plan,
    engine: &Engine,
    state: &State,
) -> Result<Option<InstallError>, apply::Error> {
    let recorded = state.record.as_ref().and_then(|record| record.release.facts.get(MEMBERS)?.parse().ok());
    let wanted = u64::try_from(plan.values.etcd.replicas).unwrap_or_default();
    match recorded {
        Some(now) if now != wanted && !engine.data().await?.is_empty() => {
            Ok(Some(InstallError::Members { now, wanted }))
        }
        _ => Ok(None),
    }
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
