//! Following the objects of one kind in one namespace: list, then watch; or list again and again where watching is
//! forbidden.

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::api_error::ApiError;
use super::kinds::Kind;
use super::object::text;
use super::server::{Selection, Server};

/// How long one watch lives before it is opened anew. Shorter than the read time-out of a connection.
const WATCH_SECONDS: u64 = 40;
/// How often to list where watching is forbidden.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(500);

/// What a follower saw.
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
        /// Whether it is gone.
        deleted: bool,
    },
    /// An error that does not go away by itself.
    Failed(ApiError),
}

/// Why one watch ended.
enum End {
    /// Its time was up, or the connection broke: go on from this version.
    Again(String),
    /// The version is too old: list anew.
    Stale,
    /// Watching is forbidden.
    Forbidden,
}

/// Follows until the receiver is gone.
pub(crate) async fn follow(
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
    loop {
        let mut version = match server.list_from(&kind, &selection).await {
            Ok((objects, version)) => {
                let all = Update::All { kind: kind.clone(), namespace: namespace.clone(), objects };
                if updates.send(all).is_err() {
                    return;
                }
                version
            }
            // The way to the server may come back; the wait's own end limits this.
            Err(error) if error.code == 0 && !matches!(error.reason.as_str(), "Tls" | "Auth") || error.code >= 429 => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => {
                let _ = updates.send(Update::Failed(error));
                return;
            }
        };
        while may_watch {
            match watch(&server, &kind, &selection, &version, &updates).await {
                None => return,
                Some(End::Again(next)) => version = next,
                Some(End::Stale) => break,
                Some(End::Forbidden) => may_watch = false,
            }
        }
        tokio::time::sleep(if may_watch { PAUSE } else { POLL_EVERY }).await;
    }
}

/// One watch. None when nobody listens any more.
async fn watch(
    server: &Server,
    kind: &Kind,
    selection: &Selection<'_>,
    version: &str,
    updates: &UnboundedSender<Update>,
) -> Option<End> {
    let mut version = version.to_owned();
    let mut body = match server.watch(kind, selection, &version, WATCH_SECONDS).await {
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
            let next = text(&object, "/metadata/resourceVersion").map(str::to_owned);
            match text(&event, "/type") {
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
