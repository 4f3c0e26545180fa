//! One cluster's API as this room uses it: a few verbs on JSON values, each with our own retries and deadline.
//!
//! Requests are built here rather than with kube's typed API because the engine needs what that hides: whether a PATCH
//! created the object (201), the `Retry-After` and `Warning` headers, and metadata-only lists.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::api_error::ApiError;
use super::call::Call;
use super::foreign::is_foreign_head;
use super::retry::Retries;
use super::send::{read_answer, with_time_limit};
use super::server_clock::Clock;
use super::transport_error::NOT_KUBERNETES;
use crate::api::applyset::TOOL;
use crate::api::kinds::Kind;
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::run_event::Events;

/// The field manager of every write, and the value of the label `app.kubernetes.io/managed-by`.
pub const MANAGER: &str = TOOL;

/// Time that one request may take before it counts as lost: more than an API server takes, which gives up by itself after
/// 60 s (its flag `--request-timeout`). Admission webhooks may take 30 s each, one after the other, and conversions too.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);
/// The content type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";
/// Number of objects in one page of a list.
const PAGE: u32 = 500;
const METADATA_OF_ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Decides before each write whether it may be sent; the lock of an installation is one.
pub(crate) trait WriteGuard: Send + Sync {
    /// Checks that a write may be sent; it fails with the error that the write then fails with.
    fn check_write(&self) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + '_>>;
}

/// A cluster to talk to. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    pub(crate) client: Client,
    pub(crate) events: Events,
    pub(crate) deadline: Option<Instant>,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: Clock,
    /// Asked before each write; writes without one are not guarded.
    pub(crate) guard: Option<Arc<dyn WriteGuard>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The answer to a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object as stored, or the `Status` of a delete.
    pub object: Value,
    /// True if this request made it (201).
    pub created: bool,
    /// True if a former try of it, whose answer was lost, may have done so.
    pub repeated: bool,
    /// The server's warnings: Pod Security, deprecated versions.
    pub warnings: Vec<String>,
}

/// Selection of objects of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'a> {
    /// One namespace, or the whole cluster.
    pub namespace: Option<&'a str>,
    /// A label selector.
    pub labels: Option<&'a str>,
    /// A field selector.
    pub fields: Option<&'a str>,
    /// Leaves out everything but metadata: no Secret's value travels.
    pub metadata_only: bool,
}

/// Options of a PATCH with server-side apply.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Takes fields from other managers instead of refusing.
    pub force: bool,
    /// Has the server answer as if it had applied the object, and store nothing (dry run).
    pub dry_run: bool,
}

impl Server {
    /// Builds the API of a cluster on a client that does not retry: requests are sent again here, and that is reported
    /// to `events`.
    pub fn new(client: Client, events: Events) -> Self {
        Self { client, events, deadline: None, request_timeout: REQUEST_TIMEOUT, clock: Clock::default(), guard: None }
    }

    /// The same cluster with a point in time after which nothing is sent or tried again.
    #[must_use]
    pub fn with_deadline(&self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same cluster with at least `grace` left, whatever the deadline.
    #[must_use]
    pub(crate) fn with_grace(&self, grace: Duration) -> Self {
        self.with_deadline(self.deadline.map(|deadline| deadline.max(Instant::now() + grace)))
    }

    /// The same cluster, to which nothing is written, nor written again, that the guard does not let pass.
    #[must_use]
    pub(crate) fn with_write_guard(&self, guard: Arc<dyn WriteGuard>) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }

    /// Returns the receiver of its events.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The time by the clock of the API server, by which all machines go that share something in it.
    pub(crate) fn server_time(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The kube client, for callers that need typed reads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one object; nothing when it does not exist.
    ///
    /// # Errors
    /// Whatever the server refuses but 404.
    pub async fn get_object(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let path = format!("{}/{name}", kind.collection_path(namespace));
        match self.call_for_object(&Call::new_get(path, "application/json")).await {
            Ok(written) => Ok(Some(written.object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the metadata of one object; nothing when it does not exist.
    ///
    /// # Errors
    /// Whatever the server refuses but 404.
    pub async fn get_metadata(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let path = format!("{}/{name}", kind.collection_path(namespace));
        match self.call_for_object(&Call::new_get(path, METADATA_OF_ONE)).await {
            Ok(answer) => Ok(Some(kind.complete_item(answer.object))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads any path of the API, such as `/version` or `/apis`.
    ///
    /// # Errors
    /// Whatever the server refuses, 404 included.
    pub async fn get_path(&self, path: &str) -> Result<Value, ApiError> {
        Ok(self.call_for_object(&Call::new_get(path.to_owned(), "application/json")).await?.object)
    }

    /// Reads text that can be done without, such as the log of a container. What the server answers counts at once: behind
    /// its errors is a node that does not answer. Only a connection that breaks is opened again, without a report.
    ///
    /// # Errors
    /// Whatever the server refuses.
    pub async fn get_text(&self, path: &str) -> Result<String, ApiError> {
        let call = Call::new_get(path.to_owned(), "*/*");
        let mut retries = Retries::new(self.deadline);
        loop {
            let error = match self.send_once(&call).await {
                Ok((_, _, body)) => return Ok(String::from_utf8_lossy(&body).into_owned()),
                Err(error) => error,
            };
            let pause = retries.next_pause(&error).filter(|_| matches!(error.code, 0 | 429));
            tokio::time::sleep(pause.ok_or(error)?).await;
        }
    }

    /// Lists objects, page after page. A kind that the server does not serve has no objects.
    ///
    /// Items get `apiVersion` and `kind`, which lists leave out.
    ///
    /// # Errors
    /// Whatever the server refuses but 404.
    pub async fn list_objects(&self, kind: &Kind, selection: &Selection<'_>) -> Result<Vec<Value>, ApiError> {
        Ok(self.list_from(kind, selection).await?.0)
    }

    /// As [`Server::list_objects`], with the resource version from which a watch continues.
    pub(crate) async fn list_from(
        &self,
        kind: &Kind,
        selection: &Selection<'_>,
    ) -> Result<(Vec<Value>, String), ApiError> {
        let mut items = Vec::new();
        let mut page = String::new();
        loop {
            let path = format!("{}?{}{page}", kind.collection_path(selection.namespace), selection.query_string(PAGE));
            let accept = if selection.metadata_only { METADATA_ONLY } else { "application/json" };
            let mut answer = match self.call_for_object(&Call::new_get(path, accept)).await {
                Ok(answer) => answer.object,
                Err(error) if error.is_not_found() => return Ok((items, "0".to_owned())),
                // The page's token outlived its snapshot: begin again.
                Err(error) if error.code == 410 && !page.is_empty() => {
                    items.clear();
                    page.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(list) = answer.get_mut("items").and_then(Value::as_array_mut) {
                items.extend(list.drain(..).map(|item| kind.complete_item(item)));
            }
            let token = text_at(&answer, "/metadata/continue").unwrap_or_default();
            if token.is_empty() {
                let version = text_at(&answer, "/metadata/resourceVersion").unwrap_or("0").to_owned();
                return Ok((items, version));
            }
            page = format!("&continue={}", percent_encode(token));
        }
    }

    /// Applies an object server-side under our field manager.
    ///
    /// # Errors
    /// A conflict (409 with causes) unless forced, and whatever else the server refuses.
    pub async fn apply_object(&self, kind: &Kind, object: &Value, options: ApplyOptions) -> Result<Written, ApiError> {
        let name = text_at(object, "/metadata/name").unwrap_or_default();
        let path = format!(
            "{}/{name}?fieldManager={}&force={}&fieldValidation=Strict{}",
            kind.collection_path(text_at(object, "/metadata/namespace")),
            MANAGER,
            options.force,
            if options.dry_run { "&dryRun=All" } else { "" }
        );
        self.send_write(Method::PATCH, path, APPLY, object).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// 409 `AlreadyExists` when it is there, also when a former try of this very call made it.
    pub async fn create_object(&self, kind: &Kind, object: &Value) -> Result<Written, ApiError> {
        let path = format!("{}?fieldManager={}", kind.collection_path(text_at(object, "/metadata/namespace")), MANAGER);
        self.send_write(Method::POST, path, "application/json", object).await
    }

    /// Changes an object with an RFC 7396 merge patch.
    ///
    /// # Errors
    /// Whatever the server refuses; 409 where the patch carries an old resource version.
    pub async fn patch_object(&self, kind: &Kind, target: &ObjectRef, patch: &Value) -> Result<Written, ApiError> {
        self.merge_as(MANAGER, kind, target, patch).await
    }

    /// As [`Server::patch_object`], under the name of another field manager, who gets what he had.
    pub(crate) async fn merge_as(
        &self,
        manager: &str,
        kind: &Kind,
        target: &ObjectRef,
        patch: &Value,
    ) -> Result<Written, ApiError> {
        let address = format!(
            "{}/{}?fieldManager={}",
            kind.collection_path(target.namespace.as_deref()),
            target.name,
            percent_encode(manager)
        );
        self.send_write(Method::PATCH, address, "application/merge-patch+json", patch).await
    }

    /// Changes an object with an RFC 6902 JSON patch.
    ///
    /// # Errors
    /// Whatever the server refuses; 422 where a `test` fails.
    pub async fn json_patch(&self, kind: &Kind, target: &ObjectRef, patch: &Value) -> Result<Written, ApiError> {
        let address =
            format!("{}/{}?fieldManager={}", kind.collection_path(target.namespace.as_deref()), target.name, MANAGER);
        self.send_write(Method::PATCH, address, "application/json-patch+json", patch).await
    }

    /// Deletes exactly the object with this uid, in the background. False when it is gone already or is another one.
    ///
    /// # Errors
    /// Whatever the server refuses but 404 and a uid that does not match.
    pub async fn delete_object(&self, kind: &Kind, target: &ObjectRef, uid: &str) -> Result<bool, ApiError> {
        let path = format!("{}/{}", kind.collection_path(target.namespace.as_deref()), target.name);
        let options = serde_json::json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        match self.send_write(Method::DELETE, path, "application/json", &options).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The kind of an object: from the table, else from the server's discovery of that one group version.
    ///
    /// # Errors
    /// [`ApiError`] 404 when the server has no such kind.
    pub async fn kind_of(&self, api_version: &str, kind: &str) -> Result<Kind, ApiError> {
        if let Some(found) = Kind::find_known_kind(api_version, kind) {
            return Ok(found);
        }
        self.kinds_of_version(api_version).await?.into_iter().find(|found| found.kind == kind).ok_or_else(|| {
            ApiError::new_synthetic(404, "NotFound", format!("the server has no kind {kind} in {api_version}"))
        })
    }

    /// The kind of a group and kind in the version that this server serves.
    ///
    /// # Errors
    /// [`ApiError`] 404 when the server has no such kind.
    pub async fn find_served_kind(&self, group: &str, kind: &str) -> Result<Kind, ApiError> {
        let mut rows = Kind::needed_versions(group, kind);
        if rows.len() == 1 {
            return Ok(rows.remove(0));
        }
        let answer = self.get_path(&format!("/apis/{group}")).await?;
        let mut found =
            Err(ApiError::new_synthetic(404, "NotFound", format!("the server has no kind {kind} in {group}")));
        for version in versions_of_group(&answer) {
            found = self.kind_of(&version, kind).await;
            if !found.as_ref().is_err_and(ApiError::is_not_found) {
                break;
            }
        }
        found
    }

    /// All kinds of one group version that can be listed.
    pub(crate) async fn kinds_of_version(&self, api_version: &str) -> Result<Vec<Kind>, ApiError> {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let answer = self.get_path(&format!("{root}/{api_version}")).await?;
        let (group, version) = crate::api::kinds::split_api_version(api_version);
        Ok(crate::k8s::object::items_at(&answer, "/resources")
            .iter()
            .filter(|r| crate::k8s::object::items_at(r, "/verbs").iter().any(|verb| verb == "list"))
            .filter_map(|r| {
                Some(Kind {
                    group: group.to_owned().into(),
                    version: version.to_owned().into(),
                    kind: text_at(r, "/kind")?.to_owned().into(),
                    plural: text_at(r, "/name")?.to_owned().into(),
                    namespaced: r.get("namespaced")?.as_bool()?,
                })
            })
            .collect())
    }

    /// Opens a watch; the caller reads newline-separated JSON from the body.
    pub(crate) async fn open_watch(
        &self,
        kind: &Kind,
        selection: &Selection<'_>,
        version: &str,
        seconds: u64,
    ) -> Result<Body, ApiError> {
        let path = format!(
            "{}?{}&watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
            kind.collection_path(selection.namespace),
            selection.query_string(0)
        );
        let request = Call::new_get(path.clone(), "application/json").build_request()?;
        let answer = tokio::time::timeout(self.request_timeout, self.client.send(request))
            .await
            .map_err(|_| ApiError::from_timeout(self.request_timeout))?
            .map_err(|error| ApiError::from_transport_error(&error))?;
        let (parts, body) = answer.into_parts();
        if parts.status.is_success() && !is_foreign_head(&path, parts.status.as_u16(), &parts.headers) {
            return Ok(body);
        }
        let refused = with_time_limit(self.request_timeout, read_answer(&path, &parts, body)).await;
        Err(refused.err().unwrap_or_else(|| {
            ApiError::new_synthetic(0, NOT_KUBERNETES, "the answer is not a watch stream".to_owned())
        }))
    }
}

/// The versions in which a server serves a group (an `APIGroup`), the preferred one first. Some kinds are in another only.
pub(crate) fn versions_of_group(group: &Value) -> Vec<String> {
    let preferred = text_at(group, "/preferredVersion/groupVersion");
    let served =
        crate::k8s::object::items_at(group, "/versions").iter().filter_map(|version| text_at(version, "/groupVersion"));
    preferred.into_iter().chain(served.filter(|version| Some(*version) != preferred)).map(str::to_owned).collect()
}

impl Selection<'_> {
    fn query_string(&self, limit: u32) -> String {
        let mut query = if limit > 0 { format!("limit={limit}") } else { String::from("pretty=false") };
        for (key, value) in [("labelSelector", self.labels), ("fieldSelector", self.fields)] {
            if let Some(value) = value {
                query.extend(["&", key, "=", &percent_encode(value)]);
            }
        }
        query
    }
}

impl Kind {
    /// Gives an item of a list the `apiVersion` and `kind` that it has when read alone.
    pub(crate) fn complete_item(&self, mut item: Value) -> Value {
        if let Some(map) = item.as_object_mut() {
            map.insert("apiVersion".to_owned(), self.api_version().into());
            map.insert("kind".to_owned(), self.kind.to_string().into());
        }
        item
    }
}

/// Percent-encodes a query's value; only unreserved characters of RFC 3986 stay.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_encoded_so_that_no_character_ends_the_query() {
        let selection = Selection { labels: Some("a=b,c in (d)"), ..Selection::default() };
        assert_eq!(selection.query_string(0), "pretty=false&labelSelector=a%3Db%2Cc%20in%20%28d%29");
    }
}
