//! The store of a run at work: its lock is renewed beside the run, and keeps writes from being sent once it is lost.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::error::{Error, LOCK_LOST};
use super::store::{RENEW_EVERY, Store};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::server::WriteGuard;

/// A store shared with the task that renews the lock.
#[derive(Debug)]
pub(crate) struct LockedStore {
    store: Arc<Mutex<Store>>,
    renewal: JoinHandle<()>,
}

impl Drop for LockedStore {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl LockedStore {
    pub(crate) fn new(store: Store) -> Self {
        let store = Arc::new(Mutex::new(store));
        let renewed = Arc::clone(&store);
        let renewal = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                // A failure shows at the run's next own write, which says what it was doing.
                let _ = renewed.lock().await.still_ours().await;
            }
        });
        Self { store, renewal }
    }

    pub(crate) async fn lock_store(&self) -> tokio::sync::MutexGuard<'_, Store> {
        self.store.lock().await
    }

    /// Keeps writes from being sent when the lock is lost.
    pub(crate) fn write_guard(&self) -> Arc<dyn WriteGuard> {
        Arc::new(LockGuard(Arc::clone(&self.store)))
    }
}

/// Lets writes pass while the lock is held.
struct LockGuard(Arc<Mutex<Store>>);

impl WriteGuard for LockGuard {
    /// Fails where the lock is not ours any more; asks only where that is not certain.
    fn check_write(&self) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + '_>> {
        Box::pin(async {
            let mut store = self.0.lock().await;
            if store.is_fresh() {
                return Ok(());
            }
            store.still_ours().await.map_err(|error| match error {
                Error::LockLost { holder } => ApiError::new_synthetic(0, LOCK_LOST, holder),
                Error::Request(error) => *error.source,
                other => ApiError::new_synthetic(0, "Invalid", other.to_string()),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::kinds::Kind;
    use crate::inventory::owner::Owner;
    use crate::inventory::record::{Holder, Lock, State};
    use crate::inventory::store::{LOCK_LIFE, LockOptions};
    use crate::k8s::event::Events;
    use crate::k8s::object::ObjectRef;
    use crate::k8s::request::server::{ApplyOptions, Server};
    use crate::k8s::request::server_clock::tests::dated;

    /// A server on which another run takes the lock over as soon as the time there is an hour later, which an answer to
    /// `/late` says. Counts what is applied.
    fn taken_over(owner: &Owner, applied: &Arc<AtomicUsize>) -> Server {
        let lock =
            Lock { holder: Holder { nonce: "another".into(), ..Holder::from_this_process() }, expires: String::new() };
        let mut taken = State { lock: Some(lock), write: "w".into(), ..State::default() }.to_record_secret(owner);
        taken["metadata"]["uid"] = "u".into();
        taken["metadata"]["resourceVersion"] = "2".into();
        let applied = Arc::clone(applied);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            let ours = json!({"metadata": {"uid": "u", "resourceVersion": "1"}});
            let (code, said) = match (request.method().as_str(), path.contains("/configmaps/")) {
                ("PATCH", true) => {
                    applied.fetch_add(1, Ordering::SeqCst);
                    (200, ours)
                }
                ("PATCH", false) => {
                    (409, json!({"code": 409, "reason": "Conflict", "message": "it is another by now"}))
                }
                ("POST", _) => (201, ours),
                _ => (200, taken.clone()),
            };
            let hours = i64::from(path == "/late");
            let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
            let answer = http::Response::builder().status(code).body(Body::from(said.to_string().into_bytes()));
            let mut answer = answer.unwrap();
            *answer.headers_mut() = dated(time);
            async { Ok::<_, Infallible>(answer) }
        });
        Server::new(kube::Client::new(service, "default"), Events::none())
    }

    /// The lock, just taken.
    async fn acquired(server: &Server, owner: &Owner) -> Store {
        let (holder, begun) = (Holder::from_this_process(), AtomicBool::new(false));
        let options = LockOptions { wait: Duration::ZERO, holder: &holder, begun: &begun };
        Store::acquire_lock(server, owner, options, &State::default(), |_| {}).await.unwrap()
    }

    fn map() -> (Kind, Value) {
        let metadata = json!({"name": "config", "namespace": "fleet"});
        (Kind::from_table("", "ConfigMap"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    }

    #[tokio::test]
    async fn nothing_more_is_written_once_the_lock_may_be_anothers_by_the_clock_of_the_server() {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let applied = Arc::new(AtomicUsize::new(0));
        let server = taken_over(&owner, &applied);
        let fenced = server.with_write_guard(LockedStore::new(acquired(&server, &owner).await).write_guard());
        let (kind, map) = map();
        fenced.apply_object(&kind, &map, ApplyOptions::default()).await.unwrap();
        assert_eq!(applied.load(Ordering::SeqCst), 1, "a lock that was taken a moment ago needs no look");
        server.get_path("/late").await.unwrap();
        let refused = fenced.apply_object(&kind, &map, ApplyOptions::default()).await.unwrap_err();
        let target = ObjectRef::new(&kind, Some("fleet"), "config");
        assert_eq!(Error::from_request("apply", &target, refused).reason(), "LockLost");
        assert_eq!(applied.load(Ordering::SeqCst), 1);
        // Reading needs no lock.
        fenced.get_object(&kind, Some("fleet"), "config").await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_came_before_a_sleep_makes_no_expired_lock_fresh_again() {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let applied = Arc::new(AtomicUsize::new(0));
        let server = taken_over(&owner, &applied);
        let mut store = acquired(&server, &owner).await;
        // It was taken an hour ago, and this machine has slept since; an answer from then is read only now.
        let then = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
        let life = jiff::SignedDuration::try_from(LOCK_LIFE).unwrap();
        store.state.lock.as_mut().unwrap().expires = (then + life).to_string();
        server.clock.observe_date(&dated(then), then);
        let fenced = server.with_write_guard(LockedStore::new(store).write_guard());
        let (kind, map) = map();
        let refused = fenced.apply_object(&kind, &map, ApplyOptions::default()).await.unwrap_err();
        let target = ObjectRef::new(&kind, Some("fleet"), "config");
        assert_eq!(Error::from_request("apply", &target, refused).reason(), "LockLost");
        assert_eq!(applied.load(Ordering::SeqCst), 0);
    }
}
