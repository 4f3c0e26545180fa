//! Stage of the agent: the answer of `/readyz`.

use std::sync::{Mutex, PoisonError};

use crate::daemon::admin::Ready;

/// Stage of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Something that it needs is missing or fails.
    Blocked {
        /// One word.
        reason: String,
        /// For people.
        message: String,
    },
    /// Registered, and the Lease is held.
    Connected,
    /// Registered; another agent with our identity is active.
    Standby {
        /// Identity of the holder.
        holder: String,
    },
}

/// The reason at the beginning, when nothing has been tried.
const STARTING: &str = "Starting";

/// The stage. Begins as blocked.
#[derive(Debug)]
pub struct State(Mutex<Stage>);

impl Default for State {
    fn default() -> Self {
        Self(Mutex::new(Stage::Blocked { reason: STARTING.to_owned(), message: "not registered yet".to_owned() }))
    }
}

impl State {
    /// Sets the stage. Returns true where it changed.
    pub fn set_stage(&self, stage: Stage) -> bool {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = *current != stage;
        *current = stage;
        new
    }

    /// Sets the reason why the agent is blocked. Returns true where it changed.
    pub fn set_blocked(&self, reason: &str, message: impl Into<String>) -> bool {
        self.set_stage(Stage::Blocked { reason: reason.to_owned(), message: message.into() })
    }
}

impl Ready for State {
    fn describe_readiness(&self) -> Result<String, String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Connected => Ok("connected".to_owned()),
            // Otherwise a Deployment with two replicas would never be ready.
            Stage::Standby { holder } => Ok(format!("standing by: {holder} has this cluster's Lease")),
            Stage::Blocked { reason, message } => Err(format!("{reason}: {message}")),
        }
    }

    fn describe_failure(&self) -> Option<String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Blocked { reason, .. } if reason != STARTING => Some(reason.clone()),
            Stage::Blocked { .. } | Stage::Connected | Stage::Standby { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connected_and_standby_are_ready() {
        let state = State::default();
        assert!(state.describe_readiness().is_err() && state.describe_failure().is_none());
        assert!(state.set_stage(Stage::Standby { holder: "pod-1".to_owned() }));
        assert_eq!(state.describe_readiness(), Ok("standing by: pod-1 has this cluster's Lease".to_owned()));
        assert!(state.set_stage(Stage::Connected));
        assert_eq!(state.describe_readiness(), Ok("connected".to_owned()));
        assert!(state.set_blocked("ControlPlaneUnreachable", "tcp: refused"));
        assert_eq!(state.describe_readiness(), Err("ControlPlaneUnreachable: tcp: refused".to_owned()));
        assert_eq!(state.describe_failure().as_deref(), Some("ControlPlaneUnreachable"));
    }
}
