//! Whether a cluster's Kubernetes version is in the row of a service line, and which line would do instead.

use std::collections::BTreeMap;

use super::CheckResult;
use crate::api::remedy::{Action, Command, Flag, Place, Remedy};
use crate::api::version::KubeMinor;

/// Kubernetes minors that a service line supports, and the lines that support the rest.
#[derive(Debug, Clone, Default)]
pub struct Support {
    /// Service line, as shown: `v0.6`.
    pub line: String,
    /// The Kubernetes minors that the line supports.
    pub supported: Vec<KubeMinor>,
    /// Service lines that support each Kubernetes minor and can be installed, newest first.
    pub alternatives: BTreeMap<KubeMinor, Vec<String>>,
    /// Service lines that support each Kubernetes minor but have no chart in this program.
    pub unavailable: BTreeMap<KubeMinor, Vec<String>>,
}

impl Support {
    /// Judges the version that an API server reports.
    pub fn evaluate_version(&self, git_version: &str) -> CheckResult {
        let Ok(minor) = git_version.parse::<KubeMinor>() else {
            return CheckResult::new_failure(
                format!("the API server reports version `{git_version}`, which is not a Kubernetes version"),
                Remedy::new("check that ").flag(Flag::Context(None)).text(" names a Kubernetes cluster"),
            );
        };
        if self.supported.contains(&minor) {
            return CheckResult::Passed(format!("{git_version} is supported by service version {}", self.line));
        }
        let row: Vec<String> = self.supported.iter().map(ToString::to_string).collect();
        let what = format!(
            "service version {} supports Kubernetes {}; this cluster runs {git_version} ({minor})",
            self.line,
            row.join(", "),
        );
        let remedy = match (self.alternatives.get(&minor).map(Vec::as_slice), self.unavailable.get(&minor)) {
            (Some([newest, ..]), _) => Remedy::new("install with ")
                .flag(Flag::Version(newest.clone()))
                .text(" or ")
                .flag(Flag::Version("auto".to_owned())),
            (_, Some(lines)) => {
                Remedy::default().flag(Flag::Version(lines.first().cloned().unwrap_or_default())).text(format!(
                    " would support {minor}, but this release of fleetctl does not contain its chart yet; use a cluster of Kubernetes {}",
                    row.join(" or ")
                ))
            }
            _ => Remedy::new(format!("no service version supports {minor}; "))
                .command(Command::at_place(Place::Any, Action::Versions))
                .text(" lists the supported versions"),
        };
        CheckResult::new_failure(what, remedy)
    }
}
