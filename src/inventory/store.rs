//! Reading and writing the Secret with record, journal and lock: taking the lock, renewing it once, noticing its loss.
//!
//! Every write carries the resource version of the last read, so two runs can never both hold the lock. A write whose
//! answer was lost is recognised by its random id.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::Error;
use super::history::Outcome;
use super::lock::{HeldLock, Holder, LOCK_LIFE, Lock, LockLife, LockObserver};
use super::owner::Owner;
use super::record::State;
use super::release::random_id;
use crate::api::kinds::Kind;
use crate::k8s::object::{ObjectRef, is_terminating};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::request_error::RequestError;
use crate::k8s::request::server::{Server, Written};
use crate::k8s::run_event::Event;

/// The most that record and journal may take, in bytes; the API server refuses Secrets from 1 MiB on.
const LARGEST: usize = 1_000 * 1024;
/// Interval of its renewals.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Interval at which a lock that is waited for is polled.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time in which an API server sees a recreated namespace; it takes milliseconds.
const NEW_NAMESPACE: Duration = Duration::from_secs(10);
/// Interval at which that is polled.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Time that the last write of a run may take, even when its deadline has passed.
const LAST_WORD: Duration = Duration::from_secs(30);

/// Options of taking the lock.
pub(crate) struct LockOptions<'a> {
    /// Time to wait for another run's lock.
    pub(crate) wait: Duration,
    /// Holder that is written into the lock; each run puts a fresh nonce into it.
    pub(crate) holder: &'a Holder,
    /// Remembers the nonce of the run.
    pub(crate) held: &'a HeldLock,
    /// Set from the first write on, when there may be something of this run.
    pub(crate) begun: &'a AtomicBool,
    /// Run of the operation that this one continues with; any other one that is open is in the way.
    pub(crate) goes_on_with: Option<&'a str>,
}

/// The open store of a run that holds the lock.
#[derive(Debug)]
pub(crate) struct Store {
    server: Server,
    owner: Owner,
    holder: Holder,
    /// The resource version of the Secret as the lock was taken over it; empty where there was none.
    pub(crate) found: String,
    /// State in the cluster, as this run last read or wrote it.
    pub(crate) state: State,
    /// Time before the last write that renewed the lock.
    pub(super) renewed: RenewalTime,
}

/// A time by both clocks of this machine: one stands still while the machine sleeps, the other can be set.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenewalTime {
    pub(super) steady: Instant,
    pub(super) wall: jiff::Timestamp,
}

impl RenewalTime {
    fn now() -> Self {
        Self { steady: Instant::now(), wall: jiff::Timestamp::now() }
    }

    /// Returns whether less than `limit` has passed since, by either clock; not where the clock was set back.
    fn is_within(&self, limit: Duration) -> bool {
        let passed = Duration::try_from(jiff::Timestamp::now().duration_since(self.wall));
        self.steady.elapsed() < limit && passed.is_ok_and(|passed| passed < limit)
    }
}

fn secret_kind() -> Kind {
    Kind::from_table("", "Secret")
}

fn record_reference(owner: &Owner) -> ObjectRef {
    ObjectRef::new(&secret_kind(), Some(&owner.namespace), &owner.record_name())
}

/// Reads record, journal and lock; an empty state when there is no Secret.
pub(crate) async fn load_state(server: &Server, owner: &Owner) -> Result<State, Error> {
    let found = server.get_object(&secret_kind(), Some(&owner.namespace), &owner.record_name()).await;
    match found.map_err(|e| Error::from_request("read the record", &record_reference(owner), e))? {
        None => Ok(State::default()),
        Some(secret) => State::read_of(owner, &secret).map_err(|why| Error::Record {
            name: owner.record_name(),
            namespace: owner.namespace.clone(),
            why,
        }),
    }
}

impl Store {
    /// Takes the lock and, in the same write, makes a first change to the state.
    ///
    /// What the caller has `seen` needs no second look where nobody held the lock then: the write is refused if it is not
    /// like that any more. A lock that nobody renews in front of this run, or whose process is gone, is taken over; a
    /// live one is waited for, at most `wait`, and not up to the deadline, for then nobody would say who holds it. One of
    /// which its date does not say that it is renewed is observed for its whole life, whatever `wait`. Who was slower
    /// than another has written nothing.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::OperationOpen`]; [`Error::PlanOutdated`] where the namespace went meanwhile, with the run that was waited for or seen.
    pub(crate) async fn acquire_lock(
        server: &Server,
        owner: &Owner,
        options: LockOptions<'_>,
        seen: &State,
        change: impl Fn(&mut State),
    ) -> Result<Self, Error> {
        let began = Instant::now();
        let end = server.deadline.and_then(|deadline| deadline.checked_sub(2 * LOOK_EVERY));
        let holder = Holder { nonce: random_id(), since: jiff::Timestamp::now().to_string(), ..options.holder.clone() };
        let events = server.events();
        let mut told = false;
        let was_there = !seen.uid.is_empty();
        let mut seen = Some(seen).filter(|seen| seen.lock.is_none() && seen.is_one_look()).cloned();
        let mut observer = LockObserver::default();
        loop {
            let state = match seen.take() {
                Some(seen) => seen,
                None => load_state(server, owner).await?,
            };
            let read = Instant::now();
            if let Some(lock) = &state.lock {
                let life = observer.observe_lock(lock, read, server.server_time(), &holder);
                let is_waited_for = life == LockLife::Unknown || began.elapsed() < options.wait;
                if life == LockLife::Over {
                    events.send_event(Event::Lock { holder: lock.holder.to_string(), taken_over: true });
                } else if !is_waited_for || end.is_some_and(|end| Instant::now() >= end) {
                    return Err(Error::Locked { holder: lock.holder.to_string(), expires: lock.expires.clone() });
                } else {
                    if !told {
                        events.send_event(Event::Lock { holder: lock.holder.to_string(), taken_over: false });
                        told = true;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
            }
            if let Some(open) = state.blocking_operation(options.goes_on_with) {
                return Err(Error::OperationOpen { operation: Box::new(open.clone()) });
            }
            let found = state.version.clone();
            let (server, owner, renewed) = (server.clone(), owner.clone(), RenewalTime::now());
            let mut store = Self { server, owner, holder: holder.clone(), found, state, renewed };
            let mut next = store.state.clone();
            next.lock = Some(store.fresh_lock());
            change(&mut next);
            let is_new = next.uid.is_empty();
            options.held.set_nonce(&holder.nonce);
            let before = options.begun.swap(true, Ordering::SeqCst);
            match store.write_record_secret(next).await {
                Ok(true) => return Ok(store),
                Ok(false) => options.begun.store(before, Ordering::SeqCst),
                Err(Error::Request(RequestError { source, .. }))
                    if is_new
                        && (told || was_there)
                        && (source.is_namespace_terminating() || source.is_not_found()) =>
                {
                    options.begun.store(before, Ordering::SeqCst);
                    return Err(Error::PlanOutdated);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets go of the lock that this process tried to take, by what is in the cluster: the run's own memory of it may be
    /// behind a write whose answer did not come.
    pub(crate) async fn release_lock(server: &Server, owner: &Owner, held: &HeldLock) -> Result<(), Error> {
        if held.is_unset() {
            return Ok(());
        }
        let server = server.with_deadline(Some(Instant::now() + LAST_WORD));
        let state = load_state(&server, owner).await?;
        let Some(lock) = state.lock.clone().filter(|lock| held.is_of(lock)) else { return Ok(()) };
        let (owner, found, renewed) = (owner.clone(), state.version.clone(), RenewalTime::now());
        let mut store = Self { server, owner, holder: lock.holder, found, state, renewed };
        store.fail_run().await
    }

    /// Goes on whatever the deadline: what was begun is being undone.
    pub(crate) fn without_deadline(&mut self) {
        self.server = self.server.with_deadline(None);
    }

    /// Returns whether the lock is ours for certain, without a request: it was written a moment ago, and lives much
    /// longer.
    pub(crate) fn is_fresh(&self) -> bool {
        self.renewed.is_within(LOCK_LIFE.saturating_sub(2 * RENEW_EVERY))
    }

    /// Renews the lock, and fails where it is not ours any more.
    pub(crate) async fn still_ours(&mut self) -> Result<(), Error> {
        self.update_state(|_| {}).await
    }

    /// Changes the state and renews the lock, in one write.
    pub(crate) async fn update_state(&mut self, change: impl Fn(&mut State)) -> Result<(), Error> {
        self.write_state(|state, lock| {
            state.lock = Some(lock);
            change(state);
        })
        .await
    }

    /// Changes the state and lets go of the lock, in one write. Where nothing is left to remember, the Secret goes.
    ///
    /// A run that used up its time still has to say what it did.
    pub(crate) async fn finish_run(&mut self, change: impl Fn(&mut State)) -> Result<(), Error> {
        let mut left = self.state.clone();
        change(&mut left);
        if left.is_empty() && left.operation.is_none_or(|operation| !operation.open) {
            return self.delete_record().await;
        }
        self.server = self.server.with_grace(LAST_WORD);
        self.write_state(|state, _| {
            state.lock = None;
            change(state);
        })
        .await
    }

    /// Ends a run that did not come to its end: its revision has failed, its journal stays, and the lock is let go.
    pub(crate) async fn fail_run(&mut self) -> Result<(), Error> {
        self.finish_run(|state| {
            let release = state.journal.as_ref().and_then(|journal| journal.release.as_ref());
            state.history.end_revision(Outcome::Failed, release);
        })
        .await
    }

    /// Deletes the Secret: nothing is left to remember. What another run has started in it since the lock was lost is
    /// kept.
    pub(crate) async fn delete_record(&mut self) -> Result<(), Error> {
        let target = record_reference(&self.owner);
        self.server = self.server.with_grace(LAST_WORD);
        if let Err(error) = self.still_ours().await {
            let gone = load_state(&self.server, &self.owner).await.is_ok_and(|state| state.uid.is_empty());
            return if gone { Ok(()) } else { Err(error) };
        }
        self.server
            .delete_object(&secret_kind(), &target, &self.state.uid)
            .await
            .map_err(|e| Error::from_request("delete", &target, e))?;
        Ok(())
    }

    async fn write_state(&mut self, change: impl Fn(&mut State, Lock)) -> Result<(), Error> {
        loop {
            let mut next = self.state.clone();
            change(&mut next, self.fresh_lock());
            if self.write_record_secret(next).await? {
                return Ok(());
            }
            // Someone wrote in between. If the lock is still ours it was only a label or an annotation.
            let found = load_state(&self.server, &self.owner).await?;
            match &found.lock {
                Some(lock) if lock.holder.nonce == self.holder.nonce => {}
                Some(lock) => return Err(Error::LockLost { holder: lock.holder.to_string() }),
                None => return Err(Error::LockLost { holder: "a run that has already ended".to_owned() }),
            }
            self.state.version = found.version;
            self.state.uid = found.uid;
        }
    }

    /// Creates the Secret.
    ///
    /// If the namespace was recreated a moment ago, the API server may still have the former one in its
    /// cache, and refuses it as one that is being deleted: it is asked again until it has seen the new one.
    async fn create_record_secret(&self, secret: &Value) -> Result<Written, ApiError> {
        let end = Instant::now() + NEW_NAMESPACE;
        let namespaces = Kind::from_table("", "Namespace");
        loop {
            let answer = self.server.create_object(&secret_kind(), secret).await;
            if !answer.as_ref().is_err_and(ApiError::is_namespace_terminating) || Instant::now() >= end {
                return answer;
            }
            let live = self.server.get_metadata(&namespaces, None, &self.owner.namespace).await?;
            if live.is_none_or(|live| is_terminating(&live)) {
                return answer;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Writes the Secret once. Returns false when it is not the one that was read.
    async fn write_record_secret(&mut self, mut next: State) -> Result<bool, Error> {
        next.write = random_id();
        let before = RenewalTime::now();
        let target = record_reference(&self.owner);
        let mut secret = next.to_record_secret(&self.owner);
        let size = next.content_size();
        // The server would refuse it too, but in the middle of a run and with words about a Secret nobody wrote.
        if size > LARGEST {
            return Err(Error::Record {
                name: self.owner.record_name(),
                namespace: self.owner.namespace.clone(),
                why: format!(
                    "the journal to undo this run needs {} KiB, but a Secret can contain {} KiB; this step was not \
                     recorded",
                    size / 1024,
                    LARGEST / 1024
                ),
            });
        }
        let answer = if next.uid.is_empty() {
            drop_nulls(&mut secret);
            self.create_record_secret(&secret).await
        } else {
            // The type of a Secret cannot be changed, and need not be said again.
            if let Some(map) = secret.as_object_mut() {
                map.remove("type");
            }
            secret["metadata"]["resourceVersion"] = next.version.clone().into();
            secret["metadata"]["uid"] = next.uid.clone().into();
            self.server.patch_object(&secret_kind(), &target, &secret).await
        };
        let stored = match answer {
            Ok(written) => written.object,
            // Ours after all, if the first answer was lost; otherwise somebody was faster.
            Err(error) if error.code == 409 || error.is_not_found() && !next.uid.is_empty() => {
                let found = load_state(&self.server, &self.owner).await?;
                if found.write == next.write {
                    self.renewed = before;
                    self.state = State { uid: found.uid, version: found.version, ..next };
                    return Ok(true);
                }
                return Ok(false);
            }
            Err(error) => return Err(Error::from_request("write the record", &target, error)),
        };
        crate::k8s::object::object_uid(&stored).clone_into(&mut next.uid);
        crate::k8s::object::text_at(&stored, "/metadata/resourceVersion")
            .unwrap_or_default()
            .clone_into(&mut next.version);
        (self.state, self.renewed) = (next, before);
        Ok(true)
    }

    fn fresh_lock(&self) -> Lock {
        let expires = self.server.server_time() + jiff::SignedDuration::try_from(LOCK_LIFE).unwrap_or_default();
        Lock { holder: self.holder.clone(), expires: expires.to_string() }
    }
}

/// Removes nulls, which delete in a merge patch but have no place in a new object.
fn drop_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;

    use super::*;
    use crate::inventory::Operation;
    use crate::k8s::run_event::Events;
    use crate::k8s::test_api;

    /// Takes the lock where the namespace has this deletion time, or none, and the first two creations are refused as in
    /// one that is being deleted. Returns the result and the number of creations.
    async fn in_a_namespace(deletion: Value) -> (Result<Store, Error>, usize) {
        let created = Arc::new(AtomicUsize::new(0));
        let creations = Arc::clone(&created);
        let client = test_api::api(move |uri, brought| {
            if !uri.path().ends_with("/secrets") {
                return match uri.path() {
                    "/api/v1/namespaces/fleet" => {
                        json!({"kind": "Namespace", "metadata": {"name": "fleet", "deletionTimestamp": deletion.clone()}})
                    }
                    _ => test_api::failure(404),
                };
            }
            if creations.fetch_add(1, Ordering::SeqCst) >= 2 {
                return brought;
            }
            let mut refused = test_api::failure(403);
            refused["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
            refused
        });
        let server = Server::new(client, Events::none());
        let options = LockOptions {
            wait: Duration::ZERO,
            holder: &Holder::from_this_process(),
            held: &HeldLock::default(),
            begun: &AtomicBool::new(false),
            goes_on_with: None,
        };
        let owner = Owner::new("control-plane", "demo", "fleet");
        let store = Store::acquire_lock(&server, &owner, options, &State::default(), |_| {}).await;
        (store, created.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_namespace_that_was_made_anew_is_waited_for_until_the_api_server_has_seen_it() {
        let (store, creations) = in_a_namespace(Value::Null).await;
        store.unwrap();
        assert_eq!(creations, 3);
    }

    #[tokio::test]
    async fn a_namespace_that_is_being_deleted_takes_no_lock() {
        let (store, creations) = in_a_namespace("2026-01-01T00:00:00Z".into()).await;
        assert_eq!(store.unwrap_err().reason(), "NamespaceTerminating");
        assert_eq!(creations, 1);
    }

    /// Takes the lock of an installation with an operation, which is open or not.
    async fn acquire_beside_operation(open: bool, goes_on_with: Option<&str>) -> Result<(), &'static str> {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let server = Server::new(test_api::api(|_, brought| brought), Events::none());
        let operation = Operation { open, ..Operation::new("restore", "r1".to_owned(), "swap", Value::Null) };
        let seen =
            State { operation: Some(operation), uid: "u".to_owned(), version: "1".to_owned(), ..State::default() };
        let options = LockOptions {
            wait: Duration::ZERO,
            holder: &Holder::from_this_process(),
            held: &HeldLock::default(),
            begun: &AtomicBool::new(false),
            goes_on_with,
        };
        Store::acquire_lock(&server, &owner, options, &seen, |_| {}).await.map(drop).map_err(|error| error.reason())
    }

    #[tokio::test]
    async fn an_open_operation_is_gone_on_with_by_itself_alone() {
        assert_eq!(acquire_beside_operation(true, None).await, Err("OperationOpen"));
        assert_eq!(acquire_beside_operation(true, Some("r2")).await, Err("OperationOpen"));
        assert_eq!(acquire_beside_operation(true, Some("r1")).await, Ok(()));
        assert_eq!(acquire_beside_operation(false, None).await, Ok(()));
    }

    /// Releases a lock as the run with a nonce, and returns what is written.
    async fn release_as_run(nonce: Option<&str>) -> Vec<Value> {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let holder = Holder { nonce: "n".to_owned(), ..Holder::from_this_process() };
        let journal = crate::inventory::Journal::new("uninstall", "u");
        let state =
            State { lock: Some(Lock { holder, expires: String::new() }), journal: Some(journal), ..State::default() };
        let mut secret = state.to_record_secret(&owner);
        secret["metadata"]["uid"] = "u".into();
        secret["metadata"]["resourceVersion"] = "1".into();
        drop_nulls(&mut secret);
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        let writes = Arc::clone(&written);
        let client = test_api::api(move |_, brought| {
            if !brought.is_null() {
                writes.lock().unwrap().push(brought);
            }
            secret.clone()
        });
        let held = HeldLock::default();
        if let Some(nonce) = nonce {
            held.set_nonce(nonce);
        }
        Store::release_lock(&Server::new(client, Events::none()), &owner, &held).await.unwrap();
        written.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn the_lock_of_a_run_that_ended_is_let_go_of_and_no_other() {
        let written = release_as_run(Some("n")).await;
        assert_eq!(written.len(), 1);
        assert_eq!(written[0]["metadata"]["annotations"]["fleet-scheduler.io/lock"], Value::Null);
        assert!(written[0]["data"]["journal"].is_string(), "the journal is kept");
        assert!(release_as_run(Some("another")).await.is_empty());
        assert!(release_as_run(None).await.is_empty(), "no run has tried to take it");
    }
}
