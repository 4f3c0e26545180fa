//! The engine: plan, apply, wait, record, roll back, prune, delete. Knows objects, not what they are for.
//!
//! # How an installation is made
//! ```text
//! let connected = Target { kubeconfig, context }.connect().await?;
//! let engine = Engine::new(connected.client, Owner::new("control-plane", "demo", "fleet"), Options { .. }, Events::new(sink));
//! let plan = engine.plan(&release, &objects).await?;      // reads only
//! if plan.is_noop() { /* nothing to write; wait or finish */ }
//! let mut run = engine.begin(plan).await?;                // namespace, lock, journal
//! run.apply().await?;                                     // or apply_stage(n), with waits in between
//! engine.wait(&run.targets(), WaitOptions::default()).await?; // ends early with a Diagnosis
//! run.commit().await?;                                    // prune, record, lock released
//! ```
//! On an error: `run.rollback().await` undoes the run, `run.release().await` leaves it for a later `begin`, which
//! resumes, or for [`Engine::rollback`] or [`Engine::uninstall`].
//!
//! Where an early object must exist before the later ones can be rendered, begin with [`Engine::plan_part`] and go on
//! with [`Run::extend`].
//!
//! # What is written where
//! Every object gets the labels of [`Owner::labels`]. The Secret [`Owner::record_name`] in the owner's namespace holds
//! the record (what is installed, with uids), and while a run is under way its journal and lock. A second run with
//! the same inputs writes nothing at all, not even the lock.

mod absence;
mod adopt;
mod answer_limit;
mod api_error;
mod audit;
pub mod causes;
mod charts;
pub mod client;
mod clock;
mod conflict;
mod diagnosis;
mod diff;
mod discovery;
mod drift;
mod engine;
mod error;
mod event;
mod evidence;
mod fields;
mod former;
mod found;
mod inventory_error;
mod journal;
mod journal_copy;
mod journal_file;
mod ledger;
mod leftovers;
mod log_in;
mod namespace;
mod object;
mod others;
mod owner;
mod patience;
mod plan;
mod prune;
mod record;
mod request_error;
mod retry;
mod rights;
mod rollback;
mod rollout;
mod run;
mod scale;
mod server;
pub mod status;
mod trace;
mod transport;
mod undo_plan;
mod uninstall;
mod wait;
mod watch;
mod watched;
mod write;

pub use api_error::{ApiError, Cause, sentences};
pub use audit::{RefusedStep, Source};
pub use charts::{Charts, Planned, Renderable, Rendering};
pub use client::{ClientError, Connected, Target};
pub use conflict::Conflict;
pub use diagnosis::{CauseId, Diagnosis, Link, WaitFailure};
pub use diff::{Change, Difference, FieldChange};
pub use drift::{Drift, Strayed};
pub use engine::{Engine, Options};
pub use error::{Error, Foreign, StuckObject};
pub use event::{Done, Event, Events, Numbered};
pub(crate) use fields::{merge, merge_diff};
pub use inventory_error::Error as InventoryError;
pub use journal::{Journal, JournalStep, Undo};
pub use leftovers::Leftover;
pub use object::ObjectRef;
pub use owner::*;
pub use plan::{Action, Plan, Step};
pub use record::{Holder, Item, Lock, Origin, Phase, Policy, Record, Release, State};
pub use request_error::RequestError;
pub use rights::{rights, rights_elsewhere};
pub use rollback::RolledBack;
pub use run::{Applied, Run};
pub use server::{ApplyOptions, MANAGER, Selection, Server, Written};
pub use undo_plan::{Deed, PlannedUndo, UndoPlan};
pub use uninstall::{Kept, Removal, Removed};
pub use wait::{WaitOptions, WaitTarget};
#[cfg(test)]
pub(crate) use watched::deleted as deleted_example;
