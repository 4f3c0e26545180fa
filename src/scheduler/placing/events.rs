//! Events about objects and copies: once a change.

use k8s_openapi::api::core::v1::ObjectReference;

use super::write::Write;
use crate::api::labels::cluster_of_namespace;
use crate::api::{Schedule, kinds};
use crate::placement::copy_state;
use crate::placement::explain;

/// An event about an object.
pub(super) fn event_about(about: ObjectReference, warning: bool, reason: &'static str, message: &str) -> Write {
    Write::Event { about, warning, reason, message: explain::shorten_event_text(message.to_owned()), agent: None }
}

/// The events about a copy, of what is new in its Schedule's status.
pub(super) fn copy_events(old: &Schedule, new: &Schedule) -> Vec<Write> {
    let source = &new.spec.source_ref;
    let about = ObjectReference {
        api_version: Some(kinds::api_version(&source.group, &source.version)),
        kind: Some(source.kind.clone()),
        namespace: source.namespace.clone(),
        name: Some(source.name.clone()),
        uid: Some(source.uid.clone()),
        ..ObjectReference::default()
    };
    let namespace = new.metadata.namespace.as_deref().unwrap_or_default();
    let cluster = cluster_of_namespace(namespace).unwrap_or_default();
    let news = copy_state::find_copy_events(old, new).into_iter();
    news.map(|news| Write::Event {
        about: about.clone(),
        warning: news.warning,
        reason: news.reason,
        message: explain::shorten_event_text(format!("On {cluster:?}: {}", news.message)),
        agent: Some(cluster.to_owned()),
    })
    .collect()
}
