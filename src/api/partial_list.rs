//! Partial lists: parsed as a stream, and of each object only the requested fields are kept.
//!
//! A thousand workload clusters with all that they report are many megabytes of JSON, and several times that as objects.

use std::io;
use std::pin::Pin;

use futures::io::{AsyncBufRead, AsyncReadExt as _};
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;

/// The media type of a list as lines of cells.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

#[derive(Debug, Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// A list as the server prints it for people.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    column_definitions: Vec<Column>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Column {
    #[serde(default)]
    format: String,
}

#[derive(Debug, Deserialize)]
struct Row {
    cells: Vec<Value>,
}

/// Age that a list may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The state in the store of the server.
    Now,
    /// The state that the server has in memory, in any order: a moment old at most, and of many large objects in a
    /// quarter of the time.
    InMemory,
}

/// Returns all objects of the cluster-wide kind `K`, each read as `T`.
///
/// # Errors
/// Errors of the request: 404 where the kind is not defined.
pub async fn list_objects<K, T>(client: &Client, age: Age) -> Result<Vec<T>, kube::Error>
where
    K: Resource<DynamicType = ()>,
    T: DeserializeOwned + Send + 'static,
{
    list_at(client, &K::url_path(&(), None), age).await
}

/// Returns all objects of the cluster-wide kind with this path, such as `/apis/apps/v1/deployments`, each read as `T`.
///
/// # Errors
/// Errors of the request: 404 where the kind is not served.
pub async fn list_at<T>(client: &Client, path: &str, age: Age) -> Result<Vec<T>, kube::Error>
where
    T: DeserializeOwned + Send + 'static,
{
    let params = ListParams::default();
    let params = if age == Age::InMemory { params.match_any() } else { params };
    let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
    let body = Blocking { body: Box::pin(client.request_stream(request).await?), runtime: Handle::current() };
    let read = tokio::task::spawn_blocking(move || serde_json::from_reader(io::BufReader::new(body)));
    let list: List<T> =
        read.await.map_err(|error| kube::Error::Service(error.into()))?.map_err(kube::Error::SerdeError)?;
    Ok(list.items)
}

/// Returns the names of all objects of the cluster-wide kind `K`, in order, as the server has them in memory.
///
/// # Errors
/// Errors of the request: 404 where the kind is not defined.
pub async fn list_names<K: Resource<DynamicType = ()>>(client: &Client) -> Result<Vec<String>, kube::Error> {
    let path = format!("{}?resourceVersion=0&includeObject=None", K::url_path(&(), None));
    let request = http::Request::get(path).header(http::header::ACCEPT, TABLE).body(Vec::new());
    let request =
        request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    let table: Table = client.request(request).await?;
    let Some(name) = table.column_definitions.iter().position(|column| column.format == "name") else {
        return Ok(Vec::new());
    };
    let named = table.rows.iter().filter_map(|row| row.cells.get(name)?.as_str());
    let mut names: Vec<String> = named.map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Body of an answer for a reader that blocks, on a thread that may block.
struct Blocking {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    runtime: Handle,
}

impl io::Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(self.body.read(buffer))
    }
}
