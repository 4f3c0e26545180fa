//! How the agent stands; the answer of `/readyz`.

use std::sync::{Mutex, PoisonError};

use crate::daemon::admin::Ready;

/// Where the agent is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Something that it needs is missing or fails.
    Blocked {
        /// One word.
        reason: String,
        /// For people.
        message: String,
    },
    /// Registered, and the heartbeat is taken.
    Connected,
    /// Registered, and another agent with our identity works; ours is to be there.
    Standby {
        /// By what it holds the Lease.
        holder: String,
    },
}

/// The stage. Begins as blocked.
#[derive(Debug)]
pub struct State(Mutex<Stage>);

impl Default for State {
    fn default() -> Self {
        Self(Mutex::new(Stage::Blocked { reason: "Starting".to_owned(), message: "not registered yet".to_owned() }))
    }
}

impl State {
    /// Notes a stage. Returns whether it is new.
    pub fn set(&self, stage: Stage) -> bool {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = *current != stage;
        *current = stage;
        new
    }

    /// Notes what is missing. Returns whether that is new.
    pub fn blocked(&self, reason: &str, message: impl Into<String>) -> bool {
        self.set(Stage::Blocked { reason: reason.to_owned(), message: message.into() })
    }
}

impl Ready for State {
    fn ready(&self) -> Result<String, String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Connected => Ok("connected".to_owned()),
            // Else a Deployment of two would never be ready.
            Stage::Standby { holder } => Ok(format!("standing by: {holder} holds this cluster's Lease")),
            Stage::Blocked { reason, message } => Err(format!("{reason}: {message}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_ready_when_it_is_connected_or_stands_by_for_one_that_is() {
        let state = State::default();
        assert!(state.ready().is_err());
        assert!(state.set(Stage::Standby { holder: "pod-1".to_owned() }));
        assert_eq!(state.ready(), Ok("standing by: pod-1 holds this cluster's Lease".to_owned()));
        assert!(state.set(Stage::Connected));
        assert_eq!(state.ready(), Ok("connected".to_owned()));
        assert!(state.blocked("ControlPlaneUnreachable", "tcp: refused"));
        assert_eq!(state.ready(), Err("ControlPlaneUnreachable: tcp: refused".to_owned()));
    }
}
