//! Waiting for one object through watches that break.

use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt as _;
use kube::Resource;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Error, watch_object};
use serde::de::DeserializeOwned;

use super::is_not_kubernetes;

/// Waits until the object satisfies `holds`, which is called for every state that is seen, the missing object included. It
/// does not end by itself: the caller's time-out ends it.
///
/// # Errors
/// A server that does not let it be watched.
pub(crate) async fn await_object<K>(
    api: Api<K>,
    name: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut states = pin!(watch_object(api, name).default_backoff());
    loop {
        match states.next().await {
            Some(Ok(object)) if holds(object.as_ref()) => return Ok(object),
            Some(Err(error)) if is_refused(&error) => return Err(error),
            Some(_) => {}
            None => return Err(Error::NoResourceVersion),
        }
    }
}

/// Returns true for errors that no other try changes.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) => {
            is_not_kubernetes(error)
                || matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 405))
        }
        Error::WatchError(_) | Error::WatchFailed(_) | Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::k8s::test_api::{api, failure};

    /// Waits for a ConfigMap that comes with the second watch; the first one fails with this status.
    async fn wait(first: u16) -> Result<Option<ConfigMap>, Error> {
        let watches = AtomicUsize::new(0);
        let client = api(move |uri, _| {
            let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
            match is_watch.then(|| watches.fetch_add(1, Ordering::SeqCst)) {
                None => json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []}),
                Some(0) => failure(first),
                Some(_) => {
                    let metadata = json!({"name": "a", "namespace": "default", "resourceVersion": "2"});
                    json!({"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
                }
            }
        });
        await_object(Api::default_namespaced(client), "a", |found: Option<&ConfigMap>| found.is_some()).await
    }

    #[tokio::test]
    async fn a_watch_that_breaks_is_opened_again() {
        assert!(wait(503).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_watch_that_is_forbidden_ends_the_wait() {
        assert!(wait(403).await.is_err());
    }
}
