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
            Stage::Blocked { reason, message } => Err(format!("{reason}: {message}")),
        }
    }
}
