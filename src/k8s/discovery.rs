//! All kinds that a server lists, for the two questions that the compiled table cannot answer: is a namespace empty,
//! and is anything of ours left.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::object::items_at;
use super::request::api_error::ApiError;
use super::request::server::{Selection, Server, versions_of_group};
use crate::api::kinds::Kind;

/// Kinds, as group and kind, whose objects are never worth looking at: made by the cluster itself, short-lived, or a
/// view of something else. `*` stands for every kind of the group.
const IGNORED: &[(&str, &str)] =
    &[("", "Event"), ("events.k8s.io", "Event"), ("", "ComponentStatus"), ("metrics.k8s.io", "*")];

/// The listable kinds of a server, one version each, and the versions of groups that did not answer.
pub(crate) async fn list_kinds(server: &Server, parallel: usize) -> Result<(Vec<Kind>, Vec<String>), ApiError> {
    let groups = server.get_path("/apis").await?;
    let mut versions = vec!["v1".to_owned()];
    versions.extend(items_at(&groups, "/groups").iter().flat_map(versions_of_group));
    let answers: Vec<(String, Result<Vec<Kind>, ApiError>)> = stream::iter(versions)
        .map(|version| async move {
            let kinds = server.kinds_of_version(&version).await;
            (version, kinds)
        })
        .buffered(parallel)
        .collect()
        .await;
    let mut found: BTreeMap<(String, String), Kind> = BTreeMap::new();
    let mut silent = Vec::new();
    for (version, answer) in answers {
        match answer {
            Ok(kinds) => {
                for kind in kinds.into_iter().filter(|kind| !kind.plural.contains('/') && !is_ignored(kind)) {
                    found.entry((kind.group.to_string(), kind.plural.to_string())).or_insert(kind);
                }
            }
            // The last definition of that version has just gone.
            Err(error) if error.is_not_found() => {}
            // An aggregated API whose server is down must not stop an uninstall, but is said.
            Err(_) => silent.push(version),
        }
    }
    Ok((found.into_values().collect(), silent))
}

fn is_ignored(kind: &Kind) -> bool {
    IGNORED.iter().any(|(group, name)| kind.group == *group && (*name == "*" || kind.kind == *name))
}

/// The metadata of all objects of many kinds; a kind that may not be listed is named instead.
pub(crate) async fn list_metadata(
    server: &Server,
    kinds: &[Kind],
    selection: &Selection<'_>,
    parallel: usize,
) -> (Vec<(Kind, Value)>, Vec<String>) {
    let answers: Vec<(&Kind, Result<Vec<Value>, ApiError>)> = stream::iter(kinds)
        .map(|kind| async move { (kind, server.list_objects(kind, selection).await) })
        .buffer_unordered(parallel)
        .collect()
        .await;
    let (mut objects, mut refused) = (Vec::new(), Vec::new());
    for (kind, answer) in answers {
        match answer {
            Ok(found) => objects.extend(found.into_iter().map(|object| (kind.clone(), object))),
            // Kinds that cannot be listed at all (405), or whose definition has just gone, hold no objects.
            Err(error) if error.code == 405 || error.is_not_found() => {}
            Err(_) => refused.push(kind.group_kind()),
        }
    }
    (objects, refused)
}
