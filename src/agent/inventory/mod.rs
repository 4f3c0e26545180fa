//! The inventory: what the workload cluster's nodes have, what is free on them, and when the control plane is told.

pub mod cluster_reports;
pub mod facts;
pub mod nodes;
pub mod publish;
pub mod shards;
pub mod watch;
