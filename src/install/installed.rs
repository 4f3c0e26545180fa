//! An installation that already exists, as a removal or a rollback works on it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;

use super::fleet_home::Home;
use super::progress::{self, Progress};
use crate::api::names::NamespaceName;
use crate::apply::{self, Charts, Engine, Options};
use crate::inventory::{HeldLock, Owner};
use crate::k8s::run_event::Events;

/// An installation, its place, and the time limits of a run that works on it; `N` is the type of its name.
pub struct Target<'a, N> {
    /// Its name.
    pub name: &'a N,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// The cluster that it is in.
    pub client: &'a Client,
    /// The home directory of the service.
    pub home: &'a Home,
    /// Time for everything together.
    pub timeout: Duration,
    /// Time to wait for another run.
    pub lock_wait: Duration,
    /// The lock that a run takes, to release it when the run is interrupted.
    pub held: HeldLock,
}

impl<N: fmt::Debug> fmt::Debug for Target<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", self.name).field("namespace", self.namespace).finish_non_exhaustive()
    }
}

impl<N: fmt::Display> Target<'_, N> {
    /// An engine that works on it and reports it; `kind` is the kind of its owner, `charts` are what its record and its
    /// journal may name, `journal` is a local file.
    pub fn build_engine(
        &self,
        kind: &str,
        charts: Arc<dyn Charts>,
        journal: PathBuf,
        progress: &Arc<dyn Progress>,
    ) -> Engine {
        let options = Options {
            charts,
            deadline: Some(Instant::now() + self.timeout),
            journal: Some(journal),
            lock_wait: self.lock_wait,
            held: self.held.clone(),
            ..Options::default()
        };
        Engine::new(self.client.clone(), self.owner(kind), options, progress::progress_events(progress))
    }

    /// An engine that only looks.
    pub fn build_reader(&self, kind: &str) -> Engine {
        Engine::new_reader(self.client.clone(), self.owner(kind))
    }

    /// Lets go of the lock of an interrupted run, where it has taken it.
    ///
    /// # Errors
    /// Whatever the server refuses; the lock then ends by itself.
    pub async fn release_lock(&self, kind: &str) -> Result<(), apply::Error> {
        let options = Options { held: self.held.clone(), ..Options::default() };
        Engine::new(self.client.clone(), self.owner(kind), options, Events::none()).release_lock().await
    }

    fn owner(&self, kind: &str) -> Owner {
        Owner::new(kind, &self.name.to_string(), self.namespace.as_str())
    }
}
