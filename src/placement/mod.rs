//! Placement: from policies and objects to the clusters that get copies of them, and why.
//!
//! Everything here is a pure function over plain data: no clock, no network, no randomness. The scheduler, the agent and
//! the command line ask the same code, and the same input always gives the same answer.
//!
//! [`facts`] reduces a manifest to its requests, [`matching`] finds the policy that decides, [`names`] makes the names
//! of groups and copies. [`fleet`] holds the clusters, each with its [`room`] from an [`inventory`]; [`decide`] finds the targets of a group,
//! [`divide`] its shares. [`copy`] writes the manifest of one copy, [`copy_state`] reads its progress, [`dependencies`]
//! finds missing objects that it needs, [`aggregate`] makes the status of a source, and [`explain`] formats a decision as text. [`moves`]
//! moves a group from one cluster to another. [`simulate`] decides everything at once, for an assumed state.

pub mod aggregate;
pub mod assignment;
pub mod canonical;
pub mod copy;
pub mod copy_state;
pub mod decide;
pub mod dependencies;
pub mod divide;
pub mod explain;
pub mod facts;
pub mod field_path;
pub mod fleet;
pub mod follow;
pub mod fraction;
pub mod inventory;
pub mod live;
pub mod matching;
pub mod moves;
pub mod names;
pub mod pods;
pub mod policy_fault;
pub mod proposal;
pub mod reason;
pub mod room;
pub mod selector;
pub mod simulate;
pub mod spread_proposal;
pub mod stuck;
pub mod tenant;

#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile;
