//! Objects that a chart can render, and the Secrets in which the secret values of a release are found again.

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ResourceExt as _};
use serde_json::{Map, Value};

use super::release_spec::load_chart;
use crate::chart::versions::select::{Request, Selection, select_row};
use crate::chart::{self, Chart, Diagnostics, Object, Row, ValuesBuilder};
use crate::k8s::ObjectRef;

/// A value that is kept in a Secret of the namespace, and in no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretEntry {
    /// The Secret's name.
    pub secret: &'static str,
    /// The key in its `data`.
    pub key: &'static str,
    /// The value, as a JSON pointer.
    pub value: &'static str,
}

/// The objects that `render` makes of the chart of a row; none where the row has no chart of that kind.
pub fn objects_of(
    kind: chart::Kind,
    row: &Row,
    render: impl FnOnce(&Selection<'_>, Chart, ValuesBuilder) -> Result<Vec<Object>, Diagnostics>,
) -> Vec<ObjectRef> {
    let version = row.version.to_string();
    let request = Request { version: Some(&version), ..Request::default() };
    let Ok(selection) = select_row(chart::embedded_versions(), request) else { return Vec::new() };
    let Ok(chart) = load_chart(kind, &selection) else { return Vec::new() };
    let values = chart.values_of(&selection.version);
    // Charts that cannot be rendered with their own defaults do not come through the tests.
    let objects = render(&selection, chart, values).unwrap_or_default();
    objects.iter().filter_map(|object| ObjectRef::of(&object.json)).collect()
}

/// The secret values that are in the cluster, as values. Only Secrets with that label are read.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn secret_values(
    client: &Client,
    namespace: &str,
    (label, whose): (&str, &str),
    entries: &[SecretEntry],
) -> Result<Value, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut secrets = Vec::new();
    for entry in entries {
        let found = api.get_opt(entry.secret).await?;
        secrets.extend(found.filter(|secret| secret.labels().get(label).map(String::as_str) == Some(whose)));
    }
    Ok(collect_secret_values(&secrets, entries))
}

/// The secret values that are in these Secrets, as values.
pub fn collect_secret_values(secrets: &[Secret], entries: &[SecretEntry]) -> Value {
    let mut values = Value::Object(Map::new());
    for entry in entries {
        let Some(secret) = secrets.iter().find(|secret| secret.name_any() == entry.secret) else { continue };
        let bytes = secret.data.as_ref().and_then(|data| data.get(entry.key)).map(|bytes| bytes.0.clone());
        let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
        let mut place = &mut values;
        for part in entry.value.split('/').skip(1) {
            place = &mut place[part];
        }
        *place = Value::String(text);
    }
    values
}
