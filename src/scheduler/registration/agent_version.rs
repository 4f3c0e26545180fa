//! The versions of agents that may register: at most one line before or after that of the control plane.

use super::denial::Denial;
use crate::api::util::text::visible_word;

/// Returns the position of a version: v0.9 is followed by v1.0.
fn version_ordinal(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let minor: u32 = parts.next()?.parse().ok()?;
    major.checked_mul(10)?.checked_add(minor)
}

/// Checks that the agent is at most one line older or newer than the control plane, whose version is `own`.
pub(super) fn check_agent_version(agent: &str, own: &str) -> Result<(), Denial> {
    let (Some(a), Some(b)) = (version_ordinal(agent), version_ordinal(own)) else {
        return Err(Denial::new("AgentVersionInvalid", "the agent's version cannot be read"));
    };
    if a.abs_diff(b) <= 1 {
        return Ok(());
    }
    let agent = visible_word(agent);
    let message = format!("agent v{agent} and control plane v{own} are more than one minor version apart");
    Err(Denial::new("AgentVersionSkew", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_skew_is_limited() {
        assert!(check_agent_version("0.6.1", "0.6.9").is_ok() && check_agent_version("0.7.0", "0.6.1").is_ok());
        assert!(check_agent_version("1.0.0", "0.9.0").is_ok(), "v1.0 follows v0.9");
        assert_eq!(check_agent_version("0.8.0", "0.6.1").unwrap_err().reason, "AgentVersionSkew");
        let long = check_agent_version(&format!("0.8.\u{1b}[2J\n{}", "9".repeat(250 << 10)), "0.6.1").unwrap_err();
        assert!(long.message.starts_with(r"agent v0.8.\u{1b}[2J\n999") && long.message.len() < 200, "{}", long.message);
        assert_eq!(check_agent_version("latest", "0.6.1").unwrap_err().reason, "AgentVersionInvalid");
    }
}
