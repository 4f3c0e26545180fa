//! node
use anyhow::Result;
use super::Cluster;
impl Cluster {
    pub(super) fn prepare_node(&self) -> Result<()> { Ok(()) }
    pub(super) fn start_node(&self) -> Result<()> { Ok(()) }
    pub(super) fn wait_node(&self) -> Result<()> { Ok(()) }
}
