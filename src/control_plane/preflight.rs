//! The facts that preflight judges: what the hosting cluster is, and which of the planned names are taken.

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::Api;

use super::charts::SECRET_VALUES;
use super::endpoint::{exposure, recorded_endpoint};
use super::plan::Plan;
use super::values::ExposureType;
use crate::apply::{self, Action, Engine, Foreign};
use crate::chart::Object;
use crate::check::hosting::{Collision, HostingFacts, read};
use crate::check::quota::{Taken, needs};
use crate::install::recorded_values::ValuesForgotten;
use crate::install::release_spec;
use crate::inventory::State;

/// Comparison of the plan with the cluster.
#[derive(Debug)]
pub struct Compared {
    /// State that is known of earlier runs.
    pub state: State,
    /// Objects of others that the install takes over, if it may.
    pub adopted: Vec<Foreign>,
    /// Number of objects that were found by their labels, where the record is lost.
    pub found: usize,
    /// Recorded values that the plan would reset.
    pub forgotten: Option<ValuesForgotten>,
}

/// Reads all that the checks need, and what is known of earlier runs. `objects` are any rendering of the plan;
/// `resets` says that recorded values may be reset.
///
/// The second part fails where something may not be read, or while the namespace is being deleted; the checks then
/// tell so together with all else that is wrong, which is why it does not fail the first part. `seen` is told what is known
/// whenever that has become more.
pub async fn collect_preflight_facts(
    plan: &Plan,
    client: &Client,
    engine: &Engine,
    objects: &[Object],
    resets: bool,
    seen: &mut dyn FnMut(&HostingFacts),
) -> Result<(HostingFacts, Result<Compared, apply::Error>), kube::Error> {
    let former = former_node_port(plan, client, engine);
    let mut facts = HostingFacts::from_hosting_cluster(client, plan.build_wanted(objects), former, &mut *seen).await?;
    if facts.namespace.terminating {
        // A comparison would wait for its end.
        let state = engine.read_state().await;
        return Ok((facts, state.map(|state| Compared { state, adopted: Vec::new(), found: 0, forgotten: None })));
    }
    let compared = match engine.plan_part(&release_spec::to_planned_objects(objects)).await {
        Ok(compared) => {
            facts.collisions = compared.foreign.iter().map(to_collision).collect();
            let forgotten = if resets {
                None
            } else {
                ValuesForgotten::find_forgotten_values(&plan.package, &compared.state, client, &SECRET_VALUES).await?
            };
            let [created, changed] = [Action::Create, Action::Change].map(|action| {
                let steps = compared.steps.iter().filter(move |step| step.action == action);
                steps.map(|step| &step.manifest)
            });
            facts.wanted.taken = Taken {
                needs: plan.quota_needs(created, compared.state.record.is_none()),
                replaced: needs::collect_needs(changed).pods,
            };
            facts.forgotten = forgotten.as_ref().map(ValuesForgotten::format_clauses).unwrap_or_default();
            let found = compared.found_by_labels();
            Ok(Compared { found, adopted: compared.adopted, state: compared.state, forgotten })
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &compared {
        facts.unread.insert(read::NAMES, error.to_string());
    }
    facts.ended.insert(read::NAMES);
    seen(&facts);
    Ok((facts, compared))
}

/// Returns the node port that the API server is to have again. What cannot be read for it is told by the comparison.
async fn former_node_port(plan: &Plan, client: &Client, engine: &Engine) -> Option<u16> {
    if exposure::expected_exposure_type(&plan.values.exposure) != ExposureType::NodePort {
        return None;
    }
    let state = engine.read_state().await.ok()?;
    let recorded = recorded_endpoint::recorded_node_port(plan.former_facts(&state)?)?;
    let services: Api<Service> = Api::namespaced(client.clone(), plan.package.namespace.as_str());
    let service = services.get_opt("apiserver").await.ok()?;
    recorded_endpoint::former_node_port(service.as_ref(), recorded)
}

fn to_collision(foreign: &Foreign) -> Collision {
    Collision {
        object: format!("{}/{}", foreign.object.kind, foreign.object.name),
        owner: foreign.describe_owner(),
        installed: foreign.install.is_some(),
    }
}
