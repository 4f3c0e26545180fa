//! The errors of record, lock and journal.

use std::path::PathBuf;

use super::operation::Operation;
use crate::api::remedy::{Flag, Remedy};
use crate::api::util::file::FileError;
use crate::api::util::file_fault::FileFault;
use crate::api::util::text::{visible_cell, visible_line};
use crate::k8s::object::ObjectRef;
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::request_error::RequestError;

/// Reason of a write that was not sent because the lock was lost; the message is its present holder.
pub(crate) const LOCK_LOST: &str = "LockLost";

/// Reason that record, lock or journal could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused something, or was not reached.
    #[error(transparent)]
    Request(RequestError),
    /// Another run is at work.
    #[error("another run holds the lock: {}, until {}", visible_line(holder), visible_cell(expires))]
    Locked {
        /// Holder of the lock: user, host, process, since when.
        holder: String,
        /// Time at which the lock expires if it is not renewed.
        expires: String,
    },
    /// A long operation was begun and is not complete.
    #[error("an operation on this installation is open: {operation}")]
    OperationOpen {
        /// The operation.
        operation: Box<Operation>,
    },
    /// Another run took the lock while this one worked.
    #[error("the lock was taken by {}; nothing more was written", visible_line(holder))]
    LockLost {
        /// Its current holder.
        holder: String,
    },
    /// Another run changed the installation after the plan was made. Nothing of the plan was written.
    #[error("another run changed the installation since the plan was made")]
    PlanOutdated,
    /// The record or journal in the cluster cannot be read.
    #[error("the record `{name}` in namespace `{namespace}` cannot be used: {}", visible_line(why))]
    Record {
        /// The Secret.
        name: String,
        /// Its namespace.
        namespace: String,
        /// The problem with it.
        why: String,
    },
    /// The journal file on this machine cannot be written or read.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason that the file cannot be used.
        #[source]
        source: std::io::Error,
    },
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        if error.source.reason == LOCK_LOST {
            return Self::LockLost { holder: error.source.message };
        }
        Self::Request(error)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let said = error.to_string();
        match error {
            FileError::Io { path, source, .. } => Self::File { path, source },
            FileError::Unexpected { path, .. } => Self::File { path, source: std::io::Error::other(said) },
        }
    }
}

impl Error {
    pub(crate) fn from_request(doing: &str, object: &ObjectRef, source: ApiError) -> Self {
        RequestError::about_object(doing, object, source).into()
    }

    /// A stable id for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request(error) => error.reason(),
            Self::Locked { .. } => "Locked",
            Self::LockLost { .. } => "LockLost",
            Self::OperationOpen { .. } => "OperationOpen",
            Self::PlanOutdated => "PlanOutdated",
            Self::Record { .. } => "BadRecord",
            Self::File { .. } => "FileError",
        }
    }

    /// The remedy, if there is one.
    pub fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Self::Request(error) => return error.remedy(),
            Self::Locked { .. } => Remedy::new("wait for the other run (")
                .flag(Flag::LockWait("5m"))
                .text("); a lock that is not renewed expires, and another run can then take it"),
            Self::PlanOutdated => "run the command again".into(),
            Self::LockLost { .. } => "run the command again when the other run has ended".into(),
            Self::OperationOpen { .. } => "complete or undo it with the command that began it".into(),
            Self::Record { namespace, name, .. } => {
                format!("inspect it with `kubectl -n {namespace} get secret {name} -o yaml`").into()
            }
            Self::File { source, .. } => return FileFault::in_error(source)?.remedy().map(Remedy::new),
        })
    }
}
