//! The engine and its settings: cluster, owner of the installation, permissions to take things over, deadline.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;

use super::charts::{Charts, NoCharts};
use super::error::Error;
use crate::inventory::lock::{HeldLock, Holder, Lock};
use crate::inventory::owner::Owner;
use crate::inventory::record::State;
use crate::inventory::store;
use crate::inventory::store::{LockOptions, Store};
use crate::k8s::object::ObjectRef;
use crate::k8s::request::server::Server;
use crate::k8s::run_event::Events;

/// Options of a caller.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time at which requests, retries and waits end. None: every request has its own limit only.
    pub deadline: Option<Instant>,
    /// The journal's copy on this machine.
    pub journal: Option<PathBuf>,
    /// Adopts objects with our names that kubectl or Helm created. Never those of another installation.
    pub adopt: bool,
    /// Fields to take from other managers: `.spec.replicas`, or `Deployment/apiserver:.spec.replicas`.
    pub take_fields: Vec<String>,
    /// Time to wait for another run's lock.
    pub lock_wait: Duration,
    /// Command under which the history lists a run that writes: `install`, `upgrade`.
    pub command: &'static str,
    /// Holder that is written into the lock. Each run puts a fresh nonce into it.
    pub holder: Holder,
    /// The lock that a run of this engine holds; callers that share it can release it.
    pub held: HeldLock,
    /// Number of requests that are in progress at once. The server shares 400 reads and 200 writes among all clients.
    pub parallel: usize,
    /// The charts of the owner: what a record or a journal may name. Without any, no step of a journal is undone.
    pub charts: Arc<dyn Charts>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: None,
            journal: None,
            adopt: false,
            take_fields: Vec::new(),
            lock_wait: Duration::ZERO,
            command: "install",
            holder: Holder::from_this_process(),
            held: HeldLock::default(),
            parallel: 32,
            charts: Arc::new(NoCharts::default()),
        }
    }
}

/// Applies, waits for, records, undoes and deletes the objects of one installation.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) server: Server,
    pub(crate) owner: Owner,
    pub(crate) options: Options,
    pub(crate) events: Events,
    /// A run of this engine may have written something.
    pub(super) begun: Arc<AtomicBool>,
}

impl Engine {
    /// An engine. The client must have its own retries off, as those of [`crate::k8s::connect::kubeconfig`] have.
    pub fn new(client: Client, owner: Owner, options: Options, events: Events) -> Self {
        Self { server: Server::new(client, events.clone()), owner, options, events, begun: Arc::default() }
    }

    /// An engine for reads: it has no deadline and sends no events.
    pub fn new_reader(client: Client, owner: Owner) -> Self {
        Self::new(client, owner, Options::default(), Events::none())
    }

    /// Owner of the installation.
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the same engine with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Option<Instant>) -> Self {
        let mut engine = self.clone();
        engine.options.deadline = deadline;
        engine
    }

    /// Returns whether a run of this engine may have written something: its [`Engine::begin_run`] got as far as its first
    /// write, whether or not it returned. One that waited for the lock in vain has not.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn lock_options(&self) -> LockOptions<'_> {
        let Options { lock_wait: wait, holder, held, .. } = &self.options;
        LockOptions { wait: *wait, holder, held, begun: &self.begun, goes_on_with: None }
    }

    /// Lets go of the lock of a run of this engine that ended before it did so itself: it failed, its future was dropped,
    /// or the answer to its first write was lost. Its journal is kept. Without such a lock nothing is written.
    ///
    /// # Errors
    /// Whatever the server refuses; the lock then ends by itself.
    pub async fn release_lock(&self) -> Result<(), Error> {
        Ok(Store::release_lock(&self.server, &self.owner, &self.options.held).await?)
    }

    /// The same after a run that may have failed, where the cluster is there to write to.
    pub(super) async fn release_failed_run<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome.is_err() {
            // The first error is the one to report, and the lock ends by itself.
            let _ = self.release_lock().await;
        }
        outcome
    }

    /// The cluster, with the deadline of this engine.
    pub fn server(&self) -> Server {
        self.server.with_deadline(self.options.deadline)
    }

    /// An object as it is.
    ///
    /// # Errors
    /// Refusals of the server; an object that is not there.
    pub async fn read_object(&self, object: &ObjectRef) -> Result<Value, Error> {
        let server = self.server();
        let kind = server
            .find_served_kind(&object.group, &object.kind)
            .await
            .map_err(|e| Error::for_object("find the kind of", object, e))?;
        let live = server.get_object(&kind, object.namespace.as_deref(), &object.name).await;
        let live = live.map_err(|e| Error::for_object("read", object, e))?;
        live.ok_or_else(|| Error::Input(format!("{object} does not exist")))
    }

    /// Returns whether a lock looks like one that nobody renews, to describe it: one look cannot know it.
    pub fn seems_over(&self, lock: &Lock) -> bool {
        lock.seems_over(self.server.server_time(), &Holder::from_this_process())
    }

    pub(super) async fn state_of(&self, server: &Server) -> Result<State, Error> {
        Ok(store::load_state(server, &self.owner).await?)
    }

    /// Record, journal and lock as the cluster has them.
    ///
    /// # Errors
    /// A record that cannot be read, or a server that refuses.
    pub async fn read_state(&self) -> Result<State, Error> {
        self.state_of(&self.server()).await
    }
}
