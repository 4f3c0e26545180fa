//! The inventory: capacity and free resources of the workload cluster's nodes, and when they are reported.

pub mod cluster_reports;
pub mod facts;
pub mod node_labels;
pub mod nodes;
pub mod pods;
pub mod publish;
pub mod server;
pub mod shards;
pub mod unready;
pub mod watch;
