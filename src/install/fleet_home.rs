//! The service's home directory `~/.fleet`, with a folder a control plane.

use std::path::{Path, PathBuf};

use crate::api::names::{ClusterName, ControlPlaneName};

/// The folder `~/.fleet`.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

/// There is no home directory to put `~/.fleet` into.
#[derive(Debug, thiserror::Error)]
#[error("the home directory is unknown")]
pub struct NoHome;

impl Home {
    /// `~/.fleet` of the user who runs the program; nothing is created.
    pub fn of_user() -> Result<Self, NoHome> {
        let home = std::env::home_dir().filter(|home| home.is_absolute()).ok_or(NoHome)?;
        Ok(Self { root: home.join(".fleet") })
    }

    /// One in another place.
    #[cfg(test)]
    pub(crate) fn from_path(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The folder of one control plane.
    pub fn control_plane(&self, name: &ControlPlaneName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// Path to which the kubeconfig of a control plane is written.
    pub fn kubeconfig_path(&self, name: &ControlPlaneName) -> PathBuf {
        self.control_plane(name).join("fleet-kubeconfig")
    }

    /// The folder in which `template` keeps the keys of a control plane.
    pub fn keys_folder(&self, name: &ControlPlaneName) -> PathBuf {
        self.control_plane(name).join("pki")
    }

    /// The local journal of an agent's installs. No control plane's name begins with a dot.
    pub fn agent_journal(&self, name: &ClusterName) -> PathBuf {
        self.root.join(".agents").join(name.as_str())
    }

    /// The values of the last install of a control plane from this machine.
    pub fn values_path(&self, name: &ControlPlaneName) -> PathBuf {
        self.control_plane(name).join("values")
    }

    /// The values of the last install of an agent from this machine. No cluster's name begins with a dot.
    pub fn agent_values(&self, name: &ClusterName) -> PathBuf {
        self.root.join(".agents").join(".values").join(name.as_str())
    }

    /// The local journal of a control plane's installs.
    pub fn journal_path(&self, name: &ControlPlaneName) -> PathBuf {
        self.control_plane(name).join("journal")
    }
}
