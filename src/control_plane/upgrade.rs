//! Upgrade paths of an installed control plane: one line at a time, and upwards only.
//!
//! A line may change the format of what etcd holds, so its successor is the only one that is known to read it. Within
//! a line any version follows any other: they share their chart and their data.

use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};
use crate::chart::Versions;

/// A change of version that is refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefused {
    /// The wanted line is older.
    #[error(
        "service version {to} is older than the installed {from}, and data of a newer line is not read by an older one"
    )]
    Downgrade {
        /// What is installed.
        from: ServiceVersion,
        /// The version that was asked for.
        to: ServiceVersion,
    },
    /// Lines lie between the two.
    #[error("from service version {from} to {to} is more than one line at a time")]
    Jump {
        /// What is installed.
        from: ServiceVersion,
        /// The version that was asked for.
        to: ServiceVersion,
        /// Every line to install, in order, with the Kubernetes minors that it supports.
        path: Vec<(ServiceLine, Vec<KubeMinor>)>,
    },
    /// The API server has run, and has stored what the one that it would become does not read.
    #[error(
        "the API server of the control plane has run as Kubernetes {now}, and {former} does not read everything that it \
         has stored since"
    )]
    Stored {
        /// What it is.
        now: KubeMinor,
        /// What it would be.
        former: KubeMinor,
        /// The service version that it is of.
        version: String,
    },
    /// The installed version is of a line that this program does not know.
    #[error("the installed service version {from} is not known to this program")]
    Unknown {
        /// What is installed.
        from: String,
    },
}

/// Checks the way from what is installed to what is wanted.
///
/// # Errors
/// [`UpgradeRefused`], with the path that works where there is one.
pub fn check(table: &Versions, installed: &str, to: &ServiceVersion) -> Result<(), UpgradeRefused> {
    let unknown = || UpgradeRefused::Unknown { from: installed.to_owned() };
    let from: ServiceVersion = installed.parse().map_err(|_| unknown())?;
    if from.line() == to.line() {
        return Ok(());
    }
    // The table has the newest line first.
    let place = |line: ServiceLine| table.rows().iter().rev().position(|row| row.version == line);
    let (Some(old), Some(new)) = (place(from.line()), place(to.line())) else { return Err(unknown()) };
    if new < old {
        return Err(UpgradeRefused::Downgrade { from, to: to.clone() });
    }
    if new == old + 1 {
        return Ok(());
    }
    let rows = table.rows().iter().rev().skip(old + 1).take(new - old);
    let path = rows.map(|row| (row.version, row.kubernetes.clone())).collect();
    Err(UpgradeRefused::Jump { from, to: to.clone(), path })
}

impl UpgradeRefused {
    /// The way on for the control plane `name`, whose hosting cluster runs `cluster`, where that is known.
    pub fn remedy(&self, name: &str, cluster: Option<KubeMinor>) -> Remedy {
        let plane = || Subject::ControlPlane(name.to_owned());
        let install = |version: String| Command::here(Action::Install(plane())).with(Flag::Version(version));
        // What an uninstall has kept is not upgraded, but has its values too.
        let again = |version: String| install(version).with(Flag::ReuseValues);
        match self {
            Self::Downgrade { from, .. } => Remedy::new("stay with it: ")
                .command(again(from.to_string()))
                .text("; an older line can only be installed anew, after ")
                .command(Command::here(Action::Uninstall(plane())).with(Flag::DeleteData)),
            Self::Jump { path, .. } => {
                let begin = Remedy::new("go line by line: ");
                path.iter().enumerate().fold(begin, |remedy, (step, (line, minors))| {
                    let here = cluster.is_none_or(|minor| minors.contains(&minor));
                    let names: Vec<String> = minors.iter().map(ToString::to_string).collect();
                    let first = if here {
                        String::new()
                    } else {
                        format!(" (the hosting cluster has to run Kubernetes {} then)", names.join(", "))
                    };
                    let then = if step == 0 { "" } else { ", then " };
                    remedy.text(then).command(again(line.to_string())).text(first)
                })
            }
            Self::Stored { version, .. } => {
                Remedy::new("go on to the newer version, with the values of the run that began it: ")
                    .command(install(version.clone()))
            }
            Self::Unknown { .. } => "use the newest release of the program".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::versions;

    fn way(from: &str, to: &str) -> Result<(), UpgradeRefused> {
        check(versions(), from, &to.parse().unwrap())
    }

    #[test]
    fn the_next_line_and_any_version_of_the_same_line_are_allowed() {
        for (from, to) in
            [("v0.6.1", "v0.6.1"), ("v0.6.1", "v0.6.0"), ("v0.6.1", "v0.7.0"), ("v0.9.0", "v1.0.0"), ("v0.6", "v0.7")]
        {
            assert_eq!(way(from, to), Ok(()), "{from} → {to}");
        }
    }

    #[test]
    fn a_jump_is_refused_with_every_step_of_the_way() {
        let refused = way("v0.6.1", "v0.9.0").unwrap_err();
        let remedy = refused.remedy("demo", Some(KubeMinor::new(1, 25)));
        let again = |line: &str| {
            let plane = Subject::ControlPlane("demo".to_owned());
            Command::here(Action::Install(plane)).with(Flag::Version(line.to_owned())).with(Flag::ReuseValues)
        };
        assert_eq!(remedy.commands(), [&again("v0.7"), &again("v0.8"), &again("v0.9")]);
        let first = " (the hosting cluster has to run Kubernetes v1.26, v1.27, v1.28, v1.29 then)";
        assert_eq!(remedy.words(), format!("go line by line: , then {first}, then {first}"));
    }

    #[test]
    fn who_stays_with_what_is_installed_keeps_its_version_and_its_values() {
        let remedy = way("v1.0.3", "v0.9.0").unwrap_err().remedy("demo", None);
        assert_eq!(remedy.commands()[0].flags, [Flag::Version("v1.0.3".to_owned()), Flag::ReuseValues]);
    }

    #[test]
    fn a_downgrade_and_an_unknown_version_are_refused() {
        assert!(matches!(way("v1.0.0", "v0.9.0").unwrap_err(), UpgradeRefused::Downgrade { .. }));
        assert!(matches!(way("v7.3.0", "v1.1.0").unwrap_err(), UpgradeRefused::Unknown { .. }));
        assert!(matches!(way("nonsense", "v1.1.0").unwrap_err(), UpgradeRefused::Unknown { .. }));
    }
}
