//! addons
use anyhow::Result;
use super::Cluster;
impl Cluster {
    pub(super) fn apply_addons(&self) -> Result<()> { Ok(()) }
    pub(super) fn wait_addons(&self) -> Result<()> { Ok(()) }
}
