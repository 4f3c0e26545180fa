//! Distance between the lines of an agent and of its control plane: at most one. The control plane applies the rule itself in
//! `scheduler/registration/agent_version`, without the table.

use super::Versions;
use crate::api::version::ServiceLine;

/// Control plane and agent are too far apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an agent of {agent} cannot join a control plane of {control_plane}: it may be at most one line older or newer"
)]
pub struct TooFarApart {
    /// The agent's line.
    pub agent: ServiceLine,
    /// The control plane's line.
    pub control_plane: ServiceLine,
}

/// Checks that an agent is of the control plane's line or of a neighbouring one (v0.9 and v1.0 are neighbours).
///
/// # Errors
/// [`TooFarApart`]; also when one of the lines is not in the table.
pub fn check_skew(table: &Versions, control_plane: ServiceLine, agent: ServiceLine) -> Result<(), TooFarApart> {
    match table.row_distance(control_plane, agent) {
        Some(0 | 1) => Ok(()),
        _ => Err(TooFarApart { agent, control_plane }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::versions::tests::table;

    #[test]
    fn agents_may_be_one_line_older_or_newer_than_their_control_plane() {
        let table = table();
        for (plane, agent, fine) in [
            ("v0.6", "v0.6", true),
            ("v0.9", "v1.0", true),
            ("v1.0", "v0.9", true),
            ("v0.6", "v0.8", false),
            ("v1.1", "v0.9", false),
        ] {
            assert_eq!(
                check_skew(&table, plane.parse().unwrap(), agent.parse().unwrap()).is_ok(),
                fine,
                "{plane} {agent}"
            );
        }
        let error = check_skew(&table, "v0.6".parse().unwrap(), "v1.1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("v0.6") && error.contains("v1.1"));
    }
}
