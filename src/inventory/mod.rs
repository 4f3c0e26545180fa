//! The inventory of an installation: owner labels, the record, the lock, and the journal of the current run.
//!
//! One Secret per installation, [`Owner::record_name`], contains all of it; a file on this machine repeats the journal.

mod applied_by;
mod error;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod journal_file;
pub(crate) mod lock;
pub(crate) mod locked_store;
pub(crate) mod operation;
pub(crate) mod operation_run;
pub(crate) mod owner;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod store;

pub use applied_by::applied_by;
pub use error::Error;
pub use history::{History, Outcome, Revision};
pub use journal::{Journal, JournalStep, Undo};
pub use lock::{HeldLock, Holder, Lock};
pub use operation::Operation;
pub use operation_run::{OperationRun, OperationTarget};
pub use owner::*;
pub use record::{Item, Origin, Phase, Record, State};
pub use release::{AWAITED_BACKUP, Policy, Release};
