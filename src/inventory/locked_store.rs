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
    use crate::inventory::lock::{HeldLock, Holder, LOCK_LIFE, Lock};
    use crate::inventory::owner::Owner;
    use crate::inventory::record::State;
    use crate::inventory::store::LockOptions;
    use crate::k8s::object::ObjectRef;
    use crate::k8s::request::server::{ApplyOptions, Server};
    use crate::k8s::request::server_clock::tests::dated;
    use crate::k8s::run_event::Events;

    const HOUR: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

    /// A server on which another run has taken the lock over. Counts what is applied.
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
                ("PATCH", false) => (
                    409,
                    json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "it is another by now"}),
                ),
                ("POST", _) => (201, ours),
                _ => (200, taken.clone()),
            };
            let answer = http::Response::builder().status(code).body(Body::from(said.to_string().into_bytes()));
            let mut answer = answer.unwrap();
            // The clocks of API servers do not count: this one is an hour ahead.
            *answer.headers_mut() = dated(jiff::Timestamp::now() + HOUR);
            async { Ok::<_, Infallible>(answer) }
        });
        Server::new(kube::Client::new(service, "default"), Events::none())
    }

    /// The lock, just taken.
    async fn acquired(server: &Server, owner: &Owner) -> Store {
        let (holder, begun) = (Holder::from_this_process(), AtomicBool::new(false));
        let options = LockOptions {
            wait: Duration::ZERO,
            holder: &holder,
            held: &HeldLock::default(),
            begun: &begun,
            goes_on_with: None,
        };
        Store::acquire_lock(server, owner, options, &State::default(), |_| {}).await.unwrap()
    }

    fn map() -> (Kind, Value) {
        let metadata = json!({"name": "config", "namespace": "fleet"});
        (Kind::from_table("", "ConfigMap"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    }

    /// Applies a ConfigMap by a store; the reason of its refusal, and how many times something was applied.
    async fn apply_by(server: &Server, store: Store, applied: &Arc<AtomicUsize>) -> (Option<&'static str>, usize) {
        let fenced = server.with_write_guard(LockedStore::new(store).write_guard());
        let (kind, map) = map();
        let answer = fenced.apply_object(&kind, &map, ApplyOptions::default()).await;
        let target = ObjectRef::new(&kind, Some("fleet"), "config");
        let refused = answer.err().map(|refused| Error::from_request("apply", &target, refused).reason());
        // Reading needs no lock.
        fenced.get_object(&kind, Some("fleet"), "config").await.unwrap();
        (refused, applied.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn nothing_more_is_written_once_the_lock_may_be_anothers() {
        let owner = Owner::new("control-plane", "demo", "fleet");
        let applied = Arc::new(AtomicUsize::new(0));
        let server = taken_over(&owner, &applied);
        let fresh = acquired(&server, &owner).await;
        assert_eq!(apply_by(&server, fresh, &applied).await, (None, 1), "taken a moment ago, it needs no look");
        // This machine has slept for an hour; its steady clock has not gone on, or is all that has.
        let (mut slept, mut old) = (acquired(&server, &owner).await, acquired(&server, &owner).await);
        slept.renewed.wall -= HOUR;
        old.renewed.steady = old.renewed.steady.checked_sub(LOCK_LIFE).expect("the machine is up for longer");
        let mut set_back = acquired(&server, &owner).await;
        set_back.renewed.wall += HOUR;
        for store in [slept, old, set_back] {
            assert_eq!(apply_by(&server, store, &applied).await, (Some("LockLost"), 1));
        }
    }
}
