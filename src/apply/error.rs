//! The errors of the engine: what failed, why, what to do next, and a stable id for programs.

use super::conflict::Conflict;
use super::delete::report::{ObjectReason, RefusedStep, join_refused};
use crate::api::first_of::first_of;
use crate::api::remedy::{Flag, Remedy};
use crate::api::util::text::{visible_cell, visible_line};
use crate::diagnose::diagnosis::WaitFailure;
use crate::inventory;
use crate::k8s::connect::kubeconfig::ClientError;
use crate::k8s::object::ObjectRef;
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::request_error::RequestError;

/// Reason that the engine stopped. No variant carries a Secret's value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No client could be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server refused something, or was not reached.
    #[error(transparent)]
    Request(RequestError),
    /// Record, lock or journal could not be read or written.
    #[error(transparent)]
    Inventory(inventory::Error),
    /// Fields that we would set are held by others.
    #[error("{} of this installation {} owned by another field manager: {}", format_count(conflicts.len(), "field"), if conflicts.len() == 1 { "is" } else { "are" }, join_conflicts(conflicts))]
    Conflicts {
        /// The conflicts, one per field.
        conflicts: Vec<Conflict>,
    },
    /// Objects of our names exist and are not ours.
    #[error("{} already {} not created by this installation: {}", format_count(objects.len(), "object"), if objects.len() == 1 { "exists and was" } else { "exist and were" }, join_foreign(objects))]
    NotOurs {
        /// The objects.
        objects: Vec<Foreign>,
    },
    /// All that carries the labels of this installation was made by others, so that there is nothing of it to remove.
    #[error("{} the labels of this installation, but {} not created by an install: {}", with_labels(objects.len()), if objects.len() == 1 { "was" } else { "were" }, join_first(objects))]
    MadeByOthers {
        /// The objects.
        objects: Vec<Foreign>,
    },
    /// Waiting came to an end without success.
    #[error(transparent)]
    Wait(#[from] Box<WaitFailure>),
    /// The journal has steps that no run of this owner can have written.
    #[error("the journal {} was not written by this installation: {}", if *from_copy { "on this machine".to_owned() } else { format!("in Secret {namespace}/{name}") }, join_refused(steps))]
    JournalRefused {
        /// The Secret of the record.
        name: String,
        /// Its namespace.
        namespace: String,
        /// The journal is the copy on this machine.
        from_copy: bool,
        /// Each such step, with the reason.
        steps: Vec<RefusedStep>,
    },
    /// An object is restored from the recorded release only, and that cannot be rendered again.
    #[error("{object} is not restored: {why}")]
    NotRendered {
        /// The object that is not restored.
        object: Box<ObjectRef>,
        /// The recorded service version; empty where none is recorded.
        version: String,
        /// Reason that it is not restored, as a clause.
        why: String,
    },
    /// An input object lacks what every object has.
    #[error("invalid object: {}", visible_line(.0))]
    Input(String),
    /// Objects are still there at the end of the time for deleting.
    #[error("timed out waiting for the condition: {} not deleted: {}", format_count(objects.len(), "object"), join_stuck(objects))]
    Stuck {
        /// The objects, each with what holds it.
        objects: Vec<ObjectReason>,
    },
}

/// An object that exists and is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The object.
    pub object: ObjectRef,
    /// Its writers: the field managers, the newest first.
    pub managers: Vec<String>,
    /// The installation that it belongs to, when its labels name one.
    pub install: Option<String>,
}

impl Foreign {
    /// Returns the owner of the object, in words for messages: `created by kubectl-create`.
    pub fn describe_owner(&self) -> String {
        match (&self.install, self.managers.as_slice()) {
            (Some(install), _) => format!("of the installation `{}`", visible_cell(install)),
            (None, []) => "of unknown origin".to_owned(),
            (None, managers) => format!("created by {}", visible_line(&managers.join(", "))),
        }
    }
}

impl From<inventory::Error> for Error {
    fn from(error: inventory::Error) -> Self {
        match error {
            inventory::Error::Request(error) => Self::Request(error),
            error => Self::Inventory(error),
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        inventory::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn from_api_error(doing: impl Into<String>, source: ApiError) -> Self {
        RequestError::new(doing, source).into()
    }

    pub(crate) fn for_object(doing: &str, object: &ObjectRef, source: ApiError) -> Self {
        RequestError::about_object(doing, object, source).into()
    }

    /// A stable id for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Client(error) => error.reason(),
            Self::Request(error) => error.reason(),
            Self::Inventory(error) => error.reason(),
            Self::Conflicts { .. } => "FieldConflict",
            Self::NotOurs { .. } | Self::MadeByOthers { .. } => "NotOurs",
            Self::Wait(failure) => failure.reason(),
            Self::JournalRefused { .. } => "JournalRefused",
            Self::NotRendered { .. } => "NotRendered",
            Self::Input(_) => "InvalidObject",
            Self::Stuck { .. } => "DeletionStuck",
        }
    }

    /// The remedy, if there is one.
    pub fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Self::Client(error) => error.remedy(),
            Self::Request(error) => return error.remedy(),
            Self::Inventory(error) => return error.remedy(),
            Self::Conflicts { conflicts } => {
                let fields = conflicts.iter().map(|conflict| Flag::TakeFields(conflict.take_fields_flag())).collect();
                Remedy::new("to overwrite only these fields, add ").flags(fields)
            }
            Self::NotOurs { objects } if objects.iter().any(|object| object.install.is_some()) => Remedy::new(
                "choose another name or namespace; objects of another installation are not adopted, not even with ",
            )
            .flag(Flag::Adopt),
            Self::NotOurs { .. } => {
                Remedy::new("choose another name or namespace, delete the objects, or adopt them with ")
                    .flag(Flag::Adopt)
            }
            Self::MadeByOthers { .. } => Remedy::new(
                "remove them with the tool that created them, such as `kubectl delete -f`; or adopt them: \
                             install with ",
            )
            .flag(Flag::Adopt)
            .text(", then uninstall"),
            Self::Wait(failure) => return failure.remedy(),
            Self::JournalRefused { from_copy: true, .. } => {
                "inspect the journal in the folder `~/.fleet`, and move it away if this machine did not write it".into()
            }
            Self::JournalRefused { namespace, name, .. } => format!(
                "anyone who may edit Secrets in namespace {namespace} could have written it; inspect it with `kubectl \
                 -n {namespace} get secret {name} -o 'jsonpath={{.data.journal}}' | base64 -d`, and remove it with \
                 `kubectl -n {namespace} patch secret {name} --type=json -p '[{{\"op\": \"remove\", \"path\": \
                 \"/data/journal\"}}]'`; then install or uninstall again to repair or remove the objects of that run"
            )
            .into(),
            Self::NotRendered { version, .. } => {
                let version = if version.is_empty() { String::new() } else { format!(" `{}`", visible_line(version)) };
                format!(
                    "install the recorded version{version} again with its values: the install writes the object as \
                     the chart renders it"
                )
                .into()
            }
            Self::Stuck { .. } => {
                "run the command again when the finalizers are removed; it continues where it stopped".into()
            }
            Self::Input(_) => return None,
        })
    }

    /// The time of a run was up before the API server had answered what was asked outside of the engine.
    pub(crate) fn out_of_time() -> Self {
        let up = "the run timed out before the API server answered".to_owned();
        Self::from_api_error("read the cluster", ApiError::new_synthetic(0, "Timeout", up))
    }

    /// Returns whether time ran out, as opposed to a failure.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Wait(failure) => failure.timed_out,
            Self::Stuck { .. } => true,
            Self::Request(error) => error.is_timeout(),
            _ => false,
        }
    }
}

fn format_count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn with_labels(n: usize) -> String {
    if n == 1 { "1 object carries".to_owned() } else { format!("{n} objects carry") }
}

fn join_conflicts(conflicts: &[Conflict]) -> String {
    conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn join_foreign(objects: &[Foreign]) -> String {
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The first of many; they are those of one set of manifests.
fn join_first(objects: &[Foreign]) -> String {
    const SHOWN: usize = 3;
    first_of(objects, SHOWN, "; ")
}

fn join_stuck(objects: &[ObjectReason]) -> String {
    objects.iter().map(|o| format!("{} ({})", o.object, visible_line(&o.reason))).collect::<Vec<_>>().join("; ")
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.object)?;
        match (&self.install, self.managers.first()) {
            (Some(install), _) => write!(f, " (of the installation `{}`)", visible_cell(install)),
            (None, Some(manager)) => write!(f, " (written by `{}`)", visible_cell(manager)),
            (None, None) => Ok(()),
        }
    }
}
