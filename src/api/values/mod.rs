//! Parts of the values that both charts share: pods, their scheduling, network policies, placement, lifetimes.

pub mod agent_certificate_lifetime;
pub mod lifetime;
pub mod network_policy;
pub mod placement_values;
pub mod pod_scheduling;
pub mod pod_values;
pub mod token_lifetime;
