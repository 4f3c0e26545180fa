//! The removal of a control plane: reversible by default, with its data only on request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;

use super::home::Home;
use super::keys;
use super::plan::OWNER_KIND;
use super::progress::{self, Progress};
use super::{health, secrets};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::apply::{self, Engine, Owner};
use crate::check::inside::{self, Member};

/// What a caller can choose.
#[derive(Debug, Clone, Default)]
pub struct UninstallOptions {
    /// Remove the data and its keys too, and the local folder.
    pub delete_data: bool,
    /// Time for everything together.
    pub timeout: Duration,
    /// How long to wait for another run.
    pub lock_wait: Duration,
}

/// What a removal would meet: asked before anything is deleted.
#[derive(Debug)]
pub struct Outlook {
    /// Registered workload clusters, or why they could not be listed.
    pub members: Result<Vec<Member>, String>,
}
