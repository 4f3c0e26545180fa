//! Assignment of an object to what decides about it.

use super::facts::ObjectKey;
use super::follow::is_follower;
use super::matching::{Match, Policy};

/// Assignment of an object to what decides about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignment {
    /// Nothing is to be done, and nothing is there.
    Unplaced,
    /// Its copies go: its annotation keeps it here.
    Withdrawn,
    /// Its own annotation.
    Direct,
    /// The group of this name.
    Group(String),
    /// It goes where what uses it goes.
    Follows,
    /// No policy matches any more: its copies stay, in the group that they are in.
    Left(Option<String>),
}

/// Assigns an object to what decides about it. A follower that `is_alone` is decided by its own policy; `leave` gives the
/// assignment of an object about which nobody decides.
pub fn assign_to_decider(
    key: &ObjectKey,
    found: &Match<'_>,
    is_alone: bool,
    name_group: impl FnOnce(&Policy) -> String,
    leave: impl FnOnce() -> Assignment,
) -> Assignment {
    match found {
        Match::Nowhere { .. } => Assignment::Withdrawn,
        Match::Annotation { .. } => Assignment::Direct,
        Match::Never(never) if never.is_taken_back() => Assignment::Withdrawn,
        Match::Policy { policy, .. } if policy.duplicates() && !key.is_of_kind("", "Namespace") => {
            Assignment::Group(name_group(policy))
        }
        _ if is_follower(key) && !is_alone => Assignment::Follows,
        Match::Policy { policy, .. } => Assignment::Group(name_group(policy)),
        // What runs stays, also where it would not be placed again.
        Match::Never(_) | Match::Nothing { .. } => leave(),
    }
}
