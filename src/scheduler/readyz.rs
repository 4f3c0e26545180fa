//! Role and progress of the scheduler: the answer of `/readyz`.

use std::sync::{Mutex, PoisonError};

use super::election::Role;
use crate::daemon::admin::Ready;

/// Progress of one part of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Not tried yet.
    Pending,
    /// Done.
    Done {
        /// One word.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Failed; it is retried.
    Failed {
        /// One word.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

impl Progress {
    /// Returns the progress of a part that is done.
    pub fn from_success(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Done { reason, message: message.into() }
    }

    /// Returns the progress of a part that failed.
    pub fn from_failure(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }

    /// Returns true when it is done.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// Role and progress.
#[derive(Debug)]
pub struct Readiness {
    inner: Mutex<ReadinessState>,
}

#[derive(Debug)]
struct ReadinessState {
    role: Role,
    bootstrapped: Progress,
    init_secret: Progress,
}

impl Default for Readiness {
    fn default() -> Self {
        let inner =
            ReadinessState { role: Role::Starting, bootstrapped: Progress::Pending, init_secret: Progress::Pending };
        Self { inner: Mutex::new(inner) }
    }
}

impl Readiness {
    fn with_readiness_state<T>(&self, change: impl FnOnce(&mut ReadinessState) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the role. A process that does not lead has no progress.
    pub fn set_role(&self, role: Role) {
        self.with_readiness_state(|inner| {
            if role != Role::Leader {
                inner.bootstrapped = Progress::Pending;
                inner.init_secret = Progress::Pending;
            }
            inner.role = role;
        });
    }

    /// Sets the progress of the chart's objects.
    pub fn set_bootstrapped(&self, progress: Progress) {
        self.with_readiness_state(|inner| inner.bootstrapped = progress);
    }

    /// Sets the progress of the init Secret.
    pub fn set_init_secret(&self, progress: Progress) {
        self.with_readiness_state(|inner| inner.init_secret = progress);
    }
}

impl Ready for Readiness {
    fn describe_readiness(&self) -> Result<String, String> {
        self.with_readiness_state(|inner| {
            match &inner.role {
                Role::Starting => return Err("looking for the leader".to_owned()),
                Role::Unreachable { error } => return Err(format!("the control plane's API does not answer: {error}")),
                Role::Follower { leader } => return Ok(format!("standing by; the leader is {leader}")),
                Role::Leader => {}
            }
            for (name, progress) in [("Bootstrapped", &inner.bootstrapped), ("InitSecretReady", &inner.init_secret)] {
                match progress {
                    Progress::Pending => return Err(format!("{name}: in progress")),
                    Progress::Failed { reason, message } => return Err(format!("{name}: {reason}: {message}")),
                    Progress::Done { .. } => {}
                }
            }
            Ok("leading".to_owned())
        })
    }

    fn describe_failure(&self) -> Option<String> {
        self.with_readiness_state(|inner| match inner.role {
            Role::Leader => [&inner.bootstrapped, &inner.init_secret].into_iter().find_map(|progress| match progress {
                Progress::Failed { reason, message } => Some(format!("{reason}: {message}")),
                Progress::Pending | Progress::Done { .. } => None,
            }),
            // The election reports an API server that does not answer.
            Role::Unreachable { .. } | Role::Starting | Role::Follower { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_ready_when_all_is_done() {
        let state = Readiness::default();
        assert!(state.describe_readiness().is_err());
        state.set_role(Role::Leader);
        assert!(state.describe_readiness().unwrap_err().starts_with("Bootstrapped"));
        state.set_bootstrapped(Progress::from_success("Applied", ""));
        state.set_init_secret(Progress::from_failure("AgentEndpointUnknown", "no URL"));
        assert!(state.describe_readiness().unwrap_err().contains("AgentEndpointUnknown"));
        state.set_init_secret(Progress::from_success("Current", ""));
        assert!(state.describe_readiness().is_ok());
        state.set_role(Role::Unreachable { error: "refused".to_owned() });
        assert!(state.describe_readiness().unwrap_err().contains("refused"));
        state.set_role(Role::Leader);
        assert!(state.describe_readiness().is_err(), "a new term starts without progress");
        state.set_role(Role::Follower { leader: "other".to_owned() });
        assert!(state.describe_readiness().is_ok());
    }
}
