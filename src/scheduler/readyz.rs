//! What the scheduler knows about itself: its role and how far the control plane's inside is; the answer of `/readyz`.

use std::sync::{Mutex, PoisonError};

use super::election::Role;
use crate::daemon::admin::Ready;

/// How one part of the work stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not tried yet.
    Pending,
    /// Done.
    Done {
        /// One word.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Not possible now.
    Failed {
        /// One word.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

impl Verdict {
    /// A part that is done.
    pub fn done(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Done { reason, message: message.into() }
    }

    /// A part that failed.
    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }

    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// Role and progress.
#[derive(Debug)]
pub struct State {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    role: Role,
    bootstrapped: Verdict,
    init_secret: Verdict,
}

impl Default for State {
    fn default() -> Self {
        let inner = Inner { role: Role::Starting, bootstrapped: Verdict::Pending, init_secret: Verdict::Pending };
        Self { inner: Mutex::new(inner) }
    }
}

impl State {
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The election's result. Who does not lead knows nothing about the progress.
    pub fn set_role(&self, role: Role) {
        self.with(|inner| {
            if role != Role::Leader {
                inner.bootstrapped = Verdict::Pending;
                inner.init_secret = Verdict::Pending;
            }
            inner.role = role;
        });
    }

    /// How the objects of the chart stand.
    pub fn set_bootstrapped(&self, verdict: Verdict) {
        self.with(|inner| inner.bootstrapped = verdict);
    }

    /// How the init Secret stands.
    pub fn set_init_secret(&self, verdict: Verdict) {
        self.with(|inner| inner.init_secret = verdict);
    }
}

impl Ready for State {
    fn ready(&self) -> Result<String, String> {
        self.with(|inner| {
            match &inner.role {
                Role::Starting => return Err("looking for the leader".to_owned()),
                Role::Cut { error } => return Err(format!("the control plane's API does not answer: {error}")),
                Role::Follower { leader } => return Ok(format!("standing by; {leader} leads")),
                Role::Leader => {}
            }
            for (name, verdict) in [("Bootstrapped", &inner.bootstrapped), ("InitSecretReady", &inner.init_secret)] {
                match verdict {
                    Verdict::Pending => return Err(format!("{name}: in progress")),
                    Verdict::Failed { reason, message } => return Err(format!("{name}: {reason}: {message}")),
                    Verdict::Done { .. } => {}
                }
            }
            Ok("leading".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_ready_only_with_everything_applied_and_the_init_secret_there() {
        let state = State::default();
        assert!(state.ready().is_err());
        state.set_role(Role::Leader);
        assert!(state.ready().unwrap_err().starts_with("Bootstrapped"));
        state.set_bootstrapped(Verdict::done("Applied", ""));
        state.set_init_secret(Verdict::failed("AgentEndpointUnknown", "no URL"));
        assert!(state.ready().unwrap_err().contains("AgentEndpointUnknown"));
        state.set_init_secret(Verdict::done("Current", ""));
        assert!(state.ready().is_ok());
        state.set_role(Role::Cut { error: "refused".to_owned() });
        assert!(state.ready().unwrap_err().contains("refused"));
        state.set_role(Role::Leader);
        assert!(state.ready().is_err(), "a new term starts from nothing");
        state.set_role(Role::Follower { leader: "other".to_owned() });
        assert!(state.ready().is_ok());
    }
}
