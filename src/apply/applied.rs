//! An object of a run as the server has it.

use crate::inventory::record::Origin;
use crate::inventory::release::Policy;
use crate::k8s::event::Done;

/// An object of the run as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its uid.
    pub uid: String,
    /// The generation that our write gave it; waits demand that its controller has seen at least this one.
    pub generation: Option<i64>,
    /// Action that was taken.
    pub done: Done,
    pub(crate) origin: Origin,
    pub(crate) policy: Policy,
    pub(crate) digest: String,
    pub(crate) fields: u32,
}
