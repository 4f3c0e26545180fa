//! A request that failed, with what it was for.

use super::api_error::ApiError;
use super::transport_error::{AUTH, CHECK_SERVER, NOT_KUBERNETES, TLS};
use crate::api::remedy::{Action, Command, Place, Remedy, Subject};
use crate::k8s::object::ObjectRef;

/// A request that the server refused, or that did not reach it. Holds no Secret's value.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub struct RequestError {
    /// Action that failed, as `apply StatefulSet fleet/etcd`.
    pub doing: String,
    /// The object, when it was about one.
    pub object: Option<Box<ObjectRef>>,
    /// The server's answer.
    #[source]
    pub source: Box<ApiError>,
}

impl RequestError {
    /// A failure that is about no single object.
    pub(crate) fn new(doing: impl Into<String>, source: ApiError) -> Self {
        Self { doing: doing.into(), object: None, source: Box::new(source) }
    }

    /// A failure about an object; what the server says about a Secret is left out where it can hold values.
    pub(crate) fn about_object(doing: &str, object: &ObjectRef, source: ApiError) -> Self {
        let source = if object.is_secret() { source.without_values() } else { source };
        Self { doing: format!("{doing} {object}"), object: Some(Box::new(object.clone())), source: Box::new(source) }
    }

    /// A stable id for programs.
    pub fn reason(&self) -> &'static str {
        let source = &self.source;
        match (source.code, source.reason.as_str()) {
            _ if source.is_namespace_terminating() => "NamespaceTerminating",
            _ if source.is_immutable() => "ImmutableField",
            (_, NOT_KUBERNETES) => "NotKubernetes",
            (0, TLS) => "TlsFailed",
            (0, AUTH) | (401, _) => "Unauthorized",
            (0, _) => "ServerUnreachable",
            (403, _) => "Forbidden",
            (404, _) => "NotFound",
            (422 | 400, _) => "Invalid",
            _ => "ServerRefused",
        }
    }

    /// The remedy, if there is one.
    pub fn remedy(&self) -> Option<Remedy> {
        let source = &self.source;
        Some(match &self.object {
            _ if source.is_namespace_terminating() => {
                "the namespace is terminating: wait until it is deleted, then run the command again".into()
            }
            Some(object) if source.is_immutable() => format!(
                "a field of {object} cannot be changed once it is set; delete the object and run the command again, or restore the previous value"
            )
            .into(),
            _ if source.is_forbidden() => {
                let [control_plane, agent] =
                    [Subject::ControlPlane("NAME".to_owned()), Subject::Agent("NAME".to_owned())]
                        .map(|subject| Command::at_place(Place::Any, Action::ShowRbac(subject)));
                Remedy::new("ask an administrator of the cluster for this right (")
                    .command(control_plane)
                    .text(", or ")
                    .command(agent)
                    .text(", prints all required rights), or use a context that has it")
            }
            _ if source.reason == NOT_KUBERNETES => CHECK_SERVER.into(),
            _ if source.code == 0 || source.code == 401 => {
                "run `kubectl version` to check that the cluster answers in this context".into()
            }
            _ => return None,
        })
    }

    /// Returns whether time ran out, as opposed to a refusal.
    pub fn is_timeout(&self) -> bool {
        self.source.reason == "Timeout"
    }
}
