//! Following the objects of one kind in one namespace: list, then watch; or list again and again where watching is
//! forbidden.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::object::text_at;
use super::request::api_error::ApiError;
use super::request::server::{Selection, Server};
use super::request::transport_error::{AUTH, TLS};
use crate::api::kinds::Kind;

/// Time that one watch lives before it is reopened. Shorter than the read time-out of a connection.
const WATCH_SECONDS: u64 = 40;
/// Interval of lists where watching is forbidden.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(500);
/// A watch that ends sooner and brought nothing was closed by the server, or by a proxy that lets none through.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Message of a follower: objects that it saw, or an error.
#[derive(Debug)]
pub(crate) enum Update {
    /// Everything there is.
    All {
        /// The kind.
        kind: Kind,
        /// The namespace.
        namespace: Option<String>,
        /// The objects.
        objects: Vec<Value>,
    },
    /// One object as it is now, or as it was last.
    One {
        /// The object.
        object: Value,
        /// True if it is gone.
        deleted: bool,
    },
    /// An error that does not go away by itself.
    Failed(ApiError),
}

/// Reason that one watch ended.
enum End {
    /// Its time was up, or the connection broke: continue from this version.
    Again(String),
    /// The version is too old: list again.
    Stale,
    /// Watching is forbidden.
    Forbidden,
}

/// Follows until the receiver is gone.
pub(crate) async fn follow_objects(
    server: Server,
    kind: Kind,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    updates: UnboundedSender<Update>,
) {
    let selection = Selection {
        namespace: namespace.as_deref(),
        labels: labels.as_deref(),
        fields: fields.as_deref(),
        metadata_only: false,
    };
    let mut may_watch = true;
    // So many watches in a row ended at once.
    let mut ended_at_once = 0;
    loop {
        let mut version = match server.list_from(&kind, &selection).await {
            Ok((objects, version)) => {
                let all = Update::All { kind: kind.clone(), namespace: namespace.clone(), objects };
                if updates.send(all).is_err() {
                    return;
                }
                version
            }
            // The connection to the server may come back; the wait's own end limits this.
            Err(error) if error.code == 0 && !matches!(error.reason.as_str(), TLS | AUTH) || error.code >= 429 => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => {
                let _ = updates.send(Update::Failed(error));
                return;
            }
        };
        let mut pause = PAUSE;
        while may_watch {
            let opened = Instant::now();
            match watch_once(&server, &kind, &selection, &version, &updates).await {
                None => return,
                // What happens meanwhile may never come through such a watch, so it is listed again.
                Some(End::Again(next)) if next == version && opened.elapsed() < AT_ONCE => {
                    pause = pause_after(ended_at_once);
                    ended_at_once += 1;
                    break;
                }
                Some(End::Again(next)) => {
                    version = next;
                    ended_at_once = 0;
                }
                Some(End::Stale) => break,
                Some(End::Forbidden) => may_watch = false,
            }
        }
        tokio::time::sleep(if may_watch { pause } else { POLL_EVERY }).await;
    }
}

/// The pause after a watch that ended at once, as so many before it did.
fn pause_after(others: u32) -> Duration {
    PAUSE.saturating_mul(1 << others.min(3))
}

/// One watch. None when nobody listens any more.
async fn watch_once(
    server: &Server,
    kind: &Kind,
    selection: &Selection<'_>,
    version: &str,
    updates: &UnboundedSender<Update>,
) -> Option<End> {
    let mut version = version.to_owned();
    let mut body = match server.open_watch(kind, selection, &version, WATCH_SECONDS).await {
        Ok(body) => body,
        Err(error) if error.is_forbidden() || error.code == 405 => return Some(End::Forbidden),
        Err(error) if error.code == 410 => return Some(End::Stale),
        Err(_) => {
            tokio::time::sleep(PAUSE).await;
            return Some(End::Stale);
        }
    };
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { return Some(End::Stale) };
            let object = event.get_mut("object").map(Value::take).unwrap_or_default();
            let next = text_at(&object, "/metadata/resourceVersion").map(str::to_owned);
            match text_at(&event, "/type") {
                Some("ADDED" | "MODIFIED") => updates.send(Update::One { object, deleted: false }).ok()?,
                Some("DELETED") => updates.send(Update::One { object, deleted: true }).ok()?,
                Some("BOOKMARK") => {}
                _ => return Some(End::Stale),
            }
            version = next.unwrap_or(version);
        }
    }
    if updates.is_closed() { None } else { Some(End::Again(version)) }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::k8s::run_event::Events;

    /// Follows the pods of a server whose watches end at once, each after the next of these lines, if any. Gives so many of
    /// the requests, and when they came.
    async fn asked(lines: &'static [&'static str], requests: usize) -> Vec<(String, Instant)> {
        asked_of(200, lines, requests).await
    }

    /// The same of a server that answers every watch with this status.
    async fn asked_of(status: u16, lines: &'static [&'static str], requests: usize) -> Vec<(String, Instant)> {
        let (asked, mut asks) = mpsc::unbounded_channel();
        let mut lines = lines.iter();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let version = query.split("&resourceVersion=").nth(1).and_then(|rest| rest.split('&').next());
            let (status, said) = match version {
                None => (200, json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()),
                Some(_) => (status, lines.next().copied().unwrap_or_default().to_owned()),
            };
            let name = version.map_or_else(|| "list".to_owned(), |version| format!("watch {version}"));
            let _ = asked.send((name, Instant::now()));
            let answer = http::Response::builder().status(status).body(Body::from(said.into_bytes())).unwrap();
            async { Ok::<_, Infallible>(answer) }
        });
        let server = Server::new(kube::Client::new(service, "default"), Events::none());
        let (updates, _kept) = mpsc::unbounded_channel();
        let following = tokio::spawn(follow_objects(server, Kind::from_table("", "Pod"), None, None, None, updates));
        let mut all = Vec::new();
        while all.len() < requests {
            all.push(asks.recv().await.unwrap());
        }
        following.abort();
        all
    }

    fn names(asked: &[(String, Instant)]) -> Vec<&str> {
        asked.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[tokio::test]
    async fn a_server_that_ends_every_watch_at_once_is_asked_after_pauses_that_grow() {
        let asked = asked(&[], 5).await;
        assert_eq!(names(&asked), ["list", "watch 1", "list", "watch 1", "list"]);
        let [first, second] = [1, 3].map(|from: usize| asked[from + 1].1 - asked[from].1);
        assert!(first >= PAUSE && second >= 2 * PAUSE, "{asked:?}");
        let pauses: Vec<u128> = (0..6).map(|others| pause_after(others).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 4000, 4000]);
    }

    #[tokio::test]
    async fn a_watch_that_brought_something_is_opened_again_where_it_ended() {
        let lines = &[
            "{\"type\": \"BOOKMARK\", \"object\": {\"metadata\": {\"resourceVersion\": \"7\"}}}\n",
            "{\"type\": \"ADDED\", \"object\": {\"metadata\": {\"resourceVersion\": \"8\"}}}\n",
        ];
        assert_eq!(names(&asked(lines, 5).await), ["list", "watch 1", "watch 7", "watch 8", "list"]);
    }

    #[tokio::test]
    async fn a_server_that_forbids_watching_is_listed_again_and_again() {
        let refused = &["{\"kind\": \"Status\", \"code\": 403, \"reason\": \"Forbidden\"}\n"];
        let asked = asked_of(403, refused, 4).await;
        assert_eq!(names(&asked), ["list", "watch 1", "list", "list"]);
        assert!(asked[2..].iter().zip(&asked[1..]).all(|(next, last)| next.1 - last.1 >= POLL_EVERY), "{asked:?}");
    }
}
