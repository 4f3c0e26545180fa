//! Errors of an install of an agent.

use std::time::Duration;

use crate::api::labels::INIT_SECRET;
use crate::api::probe::Outcome;
use crate::api::registration::Registration;
use crate::api::util::text::visible_cell;
use crate::chart::Diagnostics;
use crate::check::Report;
use crate::install::recorded_values::ValuesForgotten;
use crate::install::session::Stopped;

/// Reason that an install ended without success.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Preflight refused; nothing was written.
    #[error("preflight refused the install")]
    Preflight(Box<Report>),
    /// Recorded values would be reset; nothing was written.
    #[error(transparent)]
    Forgotten(#[from] ValuesForgotten),
    /// The workload cluster does not answer or refuses a read.
    #[error("cannot read the workload cluster")]
    Cluster(#[from] kube::Error),
    /// The control plane that was named does not answer or refuses.
    #[error("cannot read the init Secret of control plane {name}")]
    Hub {
        /// Its name.
        name: String,
        /// Error of the request.
        #[source]
        source: kube::Error,
    },
    /// The control plane that was named says nothing; the workload cluster has not been asked yet.
    #[error("control plane {name} did not answer within {} s", .waited.as_secs())]
    HubSilent {
        /// Its name.
        name: String,
        /// Time that its answer was waited for.
        waited: Duration,
    },
    /// The control plane that was named has no init Secret.
    #[error("control plane {0} has no Secret {INIT_SECRET} yet")]
    NoInitSecret(String),
    /// The engine stopped; with what the agent last said.
    #[error(transparent)]
    Engine(#[from] Stopped),
    /// The agent's pod does not become ready; with what the agent last said.
    #[error("the agent does not connect to the control plane")]
    NotConnected {
        /// Step during which the engine stopped, with its error.
        stopped: Stopped,
        /// Registration as the agent last reported it.
        said: Option<Registration>,
    },
    /// The chart cannot be rendered with these values.
    #[error("the chart cannot be rendered")]
    Render(#[from] Diagnostics),
    /// From inside the workload cluster the control plane is not reached.
    #[error("the control plane cannot be reached from inside the workload cluster")]
    Probe(Outcome),
    /// The control plane refused the registration, in its own words.
    #[error("the control plane refused the registration: {}", visible_cell(&.0.reason))]
    Refused(Registration),
    /// Connected, and not Ready in time; with what the agent last said.
    #[error("timed out waiting for the condition: the control plane does not report the cluster as Ready")]
    NotReady(Option<Registration>),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}
