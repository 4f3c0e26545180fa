//! Removes objects: uninstall, rollback of a run that was interrupted, and what both need to know before they delete.

mod data_retention;
pub(super) mod found;
pub(super) mod journal_check;
mod lost_journal;
mod namespace;
pub(super) mod orphans;
pub(super) mod owned;
pub(super) mod owner_refs;
pub(super) mod recorded_release;
pub(super) mod report;
pub(super) mod rollback;
pub(super) mod rollback_plan;
mod stuck_deletion;
mod undo_step;
pub(super) mod uninstall;
pub(super) mod wait_deleted;
