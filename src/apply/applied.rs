//! An object of a run as the server has it.

use serde_json::Value;

use super::step::Step;
use crate::inventory::record::{Item, Origin};
use crate::k8s::managed_fields;
use crate::k8s::object::{number_at, object_uid};
use crate::k8s::run_event::Done;

/// An object of the run as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Inventory entry of the object.
    pub item: Item,
    /// The generation that our write gave it; waits demand that its controller has seen at least this one.
    pub generation: Option<i64>,
    /// Action that was taken.
    pub done: Done,
}

impl Applied {
    /// The object of a step as the server answered.
    pub(crate) fn new(step: &Step, live: &Value, done: Done, origin: Origin) -> Self {
        let item = Item {
            object: step.target.clone(),
            uid: object_uid(live).to_owned(),
            origin,
            policy: step.policy,
            digest: step.digest.clone(),
            fields: managed_fields::count_owned_fields(live),
        };
        Self { item, generation: number_at(live, "/metadata/generation"), done }
    }
}
