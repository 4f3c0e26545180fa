//! The engine: plan, apply, wait, record, roll back, prune, delete. The room knows objects, not their purpose.
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
//! resumes, or for [`Engine::rollback_interrupted_run`] or [`Engine::uninstall`].
//!
//! If an early object must exist before later objects can be rendered, begin with [`Engine::plan_part`] and continue
//! with [`Run::extend_plan`].
//!
//! # What is written where
//! Every object gets the labels of [`Owner::owner_labels`](crate::inventory::Owner::owner_labels). The Secret
//! [`Owner::record_name`](crate::inventory::Owner::record_name) in the owner's namespace holds
//! the record (installed objects with their uids) and, during a run, the journal and the lock. A second run with
//! the same inputs writes nothing at all, not even the lock.

mod adopt;
mod applied;
mod autoscaler;
mod charts;
mod claim_templates;
mod conflict;
mod delete;
mod diff;
mod drift;
mod engine;
mod error;
mod object;
mod plan;
mod prune;
mod rbac;
mod run;
mod step;
mod stuck_statefulset;
mod wait;

pub use applied::Applied;
pub use charts::{Charts, Planned, Renderable, Rendering};
pub use conflict::Conflict;
pub use delete::journal_check::Source;
pub use delete::report::{ObjectReason, RefusedStep, Removed};
pub use delete::rollback::RolledBack;
pub use delete::rollback_plan::{Deed, PlannedUndo, UndoPlan};
pub use delete::uninstall::Removal;
pub use diff::{Change, Difference, FieldChange};
pub use drift::{Drift, Drifted};
pub use engine::{Engine, Options};
pub use error::{Error, Foreign};
pub use plan::Plan;
pub use rbac::{engine_rights, rights_elsewhere};
pub use run::Run;
pub use step::{Action, Step};
#[cfg(test)]
pub(crate) use wait::target::deleted_diagnosis;
pub use wait::{WaitOptions, WaitTarget};
