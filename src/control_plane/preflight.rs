//! The facts that preflight judges: what the hosting cluster is, and which of the planned names are taken.

use kube::Client;

use super::plan::Plan;
use crate::apply::{self, Engine, Foreign, State};
use crate::chart::Object;
use crate::check::hosting::{Collision, HostingFacts, read};
use crate::install::package;

/// What the cluster holds of the plan.
#[derive(Debug)]
pub struct Compared {
    /// What is known of earlier runs.
    pub state: State,
    /// Objects of others that the install takes over, if it may.
    pub adopted: Vec<Foreign>,
    /// How many objects were found by their labels, where the record is lost.
    pub found: usize,
}

/// Reads all that the checks need, and what is known of earlier runs. `objects` are any rendering of the plan.
///
/// The second part fails where something may not be read, or while the namespace is being deleted; the checks then
/// tell so together with all else that is wrong, which is why it does not fail the first part. `seen` is told what is known
/// whenever that has become more.
pub async fn examine(
    plan: &Plan,
    client: &Client,
    engine: &Engine,
    objects: &[Object],
    seen: &mut dyn FnMut(&HostingFacts),
) -> Result<(HostingFacts, Result<Compared, apply::Error>), kube::Error> {
    let mut facts = HostingFacts::collect(client, plan.wanted(objects), &mut *seen).await?;
    if facts.namespace.terminating {
        // A comparison would wait for its end.
        let state = engine.state().await;
        return Ok((facts, state.map(|state| Compared { state, adopted: Vec::new(), found: 0 })));
    }
    let compared = engine.plan_part(&package::planned(objects)).await.map(|compared| {
        facts.collisions = compared.foreign.iter().map(collision).collect();
        Compared { found: compared.found_by_labels(), adopted: compared.adopted, state: compared.state }
    });
    if let Err(error) = &compared {
        facts.unread.insert(read::NAMES, error.to_string());
    }
    facts.ended.insert(read::NAMES);
    seen(&facts);
    Ok((facts, compared))
}

fn collision(foreign: &Foreign) -> Collision {
    Collision { object: format!("{}/{}", foreign.object.kind, foreign.object.name), owner: foreign.owner() }
}
