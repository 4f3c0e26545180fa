//! The loop of an install: after `--lock-wait` it plans again, and a run that fails or is interrupted is ended.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;

use super::failure::{Failure, FailureOutcome, ignoring_signals};
use super::progress::Progress;
use super::session::{InstallOptions, Session, Stopped};
use crate::apply::Engine;

/// Reason that an install of one kind ended without success.
pub(crate) trait InstallFailure {
    /// Returns the reason of an install that SIGINT or SIGTERM interrupted.
    fn from_interruption() -> Self;

    /// Returns the engine's error, where that is the whole reason.
    fn as_stopped(&self) -> Option<&Stopped>;
}

/// Steps of an install of one kind, from its first read to its record, and its own end of a run that failed.
pub(crate) trait InstallSteps {
    type Installed;
    type Error: InstallFailure;

    /// Installs. What was written when it fails, or is dropped, is left to [`InstallSteps::end_failed_run`].
    async fn run_steps(&mut self) -> Result<Self::Installed, Self::Error>;

    /// Ends the run that failed with `error`: undoes it if requested, else releases the lock.
    async fn end_failed_run(self, error: &Self::Error) -> FailureOutcome;
}

/// Runs the steps that `new` makes of a session, until they end or `interrupted` does.
///
/// # Errors
/// The error that the steps met, or the interruption, with the outcome of the changes.
pub(crate) async fn run_until_interrupted<'a, S: InstallSteps>(
    engine: &'a Engine,
    options: &InstallOptions,
    progress: &'a Arc<dyn Progress>,
    deadline: Instant,
    interrupted: impl Future<Output = ()>,
    new: impl Fn(Session<'a>) -> S,
) -> Result<S::Installed, Failure<S::Error>> {
    let mut interrupted = pin!(interrupted.fuse());
    let mut waited = options.lock_wait.is_zero();
    loop {
        let mut steps = new(Session::new(engine, progress, deadline));
        let outcome = tokio::select! {
            outcome = steps.run_steps() => outcome,
            () = &mut interrupted => Err(S::Error::from_interruption()),
        };
        match outcome {
            Ok(installed) => return Ok(installed),
            // After `--lock-wait`, the plan is made again from the state that the other run left.
            Err(error) if !waited && error.as_stopped().is_some_and(Stopped::is_outdated) => waited = true,
            Err(error) => {
                let aftermath = ignoring_signals(steps.end_failed_run(&error), interrupted).await;
                return Err(Failure { error, aftermath });
            }
        }
    }
}
