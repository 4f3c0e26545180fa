//! Mass-removal protection: an edit of a policy, or of the labels or taints of a cluster, that would remove many copies
//! removes none before an operator allows it.
//!
//! [`class`] says which deletions it is about, [`cause`] names what they are for, [`hold`] holds them back by the limits of
//! [`crate::placement::moves::limit_removals`], and [`record`] keeps what was removed for the next leader.

pub(super) mod cause;
pub(super) mod class;
pub(super) mod hold;
pub(super) mod record;
