//! Stages of a restore.

/// Stage of a restore that is being undone.
pub(super) const ROLLBACK: &str = "rollback";

/// Stages in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestoreStage {
    /// Nobody reaches the API, and nothing of the control plane but etcd runs.
    Fence,
    /// Each member has a second store.
    Prepare,
    /// The second store is in the place of the first one.
    Swap,
    /// etcd and the API server run.
    Start,
    /// Everything runs, and everybody reaches the API.
    Open,
}

impl RestoreStage {
    /// All, in order.
    pub const ALL: [Self; 5] = [Self::Fence, Self::Prepare, Self::Swap, Self::Start, Self::Open];

    /// Its name, as it is recorded.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Prepare => "prepare",
            Self::Swap => "swap",
            Self::Start => "start",
            Self::Open => "open",
        }
    }

    /// The stage of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// What it does, as the title of a step.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Fence => "Stopping the API server and the controllers",
            Self::Prepare => "Preparing the restored etcd stores",
            Self::Swap => "Swapping the present and the restored etcd stores",
            Self::Start => "Starting etcd and the API server",
            Self::Open => "Starting the controllers and opening the API",
        }
    }
}
