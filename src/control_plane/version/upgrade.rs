//! Upgrade paths of an installed control plane: one line at a time, and upwards only.
//!
//! A line may change the format of what etcd holds, so its successor is the only one that is known to read it. Within
//! a line any version follows any other: they share their chart and their data.

use crate::api::kinds;
use crate::api::remedy::{Action, Command, Flag, Remedy, Subject};
use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};
use crate::chart::{Row, Versions};

/// A change of version that is refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefused {
    /// The wanted line is older.
    #[error(
        "service version {to} is older than the installed {from}; an older line cannot read the data of a newer one"
    )]
    Downgrade {
        /// Version that is installed.
        from: ServiceVersion,
        /// The version that was asked for.
        to: ServiceVersion,
    },
    /// Lines lie between the two.
    #[error("service version {to} is more than one line newer than the installed {from}")]
    Jump {
        /// Version that is installed.
        from: ServiceVersion,
        /// The version that was asked for.
        to: ServiceVersion,
        /// Every line to install, in order, with the Kubernetes minors that it supports.
        path: Vec<(ServiceLine, Vec<KubeMinor>)>,
    },
    /// The API server has run, and has stored objects that the one that it would become does not read.
    #[error(
        "the API server of the control plane has run Kubernetes {now}; Kubernetes {former} cannot read every object stored since then"
    )]
    Stored {
        /// Kubernetes minor that the API server has run as.
        now: KubeMinor,
        /// Older Kubernetes minor that it would become.
        former: KubeMinor,
        /// Service version of the API server that has run; empty where it is not known.
        version: String,
    },
    /// The API server would skip a minor of Kubernetes, or go to another one than the version brings.
    #[error("the API server of the control plane runs Kubernetes {now} and would change to {wanted}, which is {}", explain_minor_refusal(*now, *wanted, *hub))]
    MinorSkipped {
        /// Kubernetes minor of the API server.
        now: KubeMinor,
        /// Kubernetes minor that it would become.
        wanted: KubeMinor,
        /// Kubernetes minor of the API server that the version asked for brings.
        hub: KubeMinor,
    },
    /// The installed version is of a line that this program does not know.
    #[error("this program does not know the installed service version {from}")]
    Unknown {
        /// Version that is installed.
        from: String,
    },
}

/// Returns the reason that an API server of one minor does not become one of another.
fn explain_minor_refusal(now: KubeMinor, wanted: KubeMinor, hub: KubeMinor) -> String {
    if now.next_minor() < wanted {
        "more than one minor at a time".to_owned()
    } else {
        format!("not {hub}, the Kubernetes minor of the service version")
    }
}

/// Checks the way from the minor of an API server that has run to another: as Kubernetes has it, one at a time, and not
/// beyond that of the version, which is `hub`. Down is for others to judge where it leads to that one.
///
/// # Errors
/// [`UpgradeRefused::MinorSkipped`].
pub(in crate::control_plane) fn check_minor(
    now: KubeMinor,
    wanted: KubeMinor,
    hub: KubeMinor,
) -> Result<(), UpgradeRefused> {
    let goes = if wanted < now { wanted == hub } else { wanted <= now.next_minor() && wanted <= hub };
    if wanted == now || goes { Ok(()) } else { Err(UpgradeRefused::MinorSkipped { now, wanted, hub }) }
}

/// Returns whether the objects inside of a control plane are served by an API server of that minor.
fn is_served_inside(minor: KubeMinor) -> bool {
    kinds::check_served("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", minor.minor).is_ok()
}

/// Checks the way from what is installed to what is wanted.
///
/// # Errors
/// [`UpgradeRefused`], with the path that works where there is one.
pub fn check_upgrade(table: &Versions, installed: &str, to: &ServiceVersion) -> Result<(), UpgradeRefused> {
    let Ok(from) = installed.parse::<ServiceVersion>() else {
        return Err(UpgradeRefused::Unknown { from: installed.to_owned() });
    };
    if from.service_line() == to.service_line() {
        return Ok(());
    }
    // The table has the newest line first.
    let rows: Vec<&Row> = table.rows().iter().rev().collect();
    let places = [&from, to].map(|version| rows.iter().position(|row| row.version == version.service_line()));
    let [Some(old), Some(new)] = places else {
        return Err(UpgradeRefused::Unknown { from: installed.to_owned() });
    };
    if new < old {
        return Err(UpgradeRefused::Downgrade { from, to: to.clone() });
    }
    if new == old + 1 {
        return Ok(());
    }
    let path = rows[old + 1..=new].iter().map(|row| (row.version, row.kubernetes.clone())).collect();
    Err(UpgradeRefused::Jump { from, to: to.clone(), path })
}

impl UpgradeRefused {
    /// Returns the remedy for the control plane `name`, whose hosting cluster runs `cluster`, where that is known.
    pub fn remedy(&self, name: &str, cluster: Option<KubeMinor>) -> Remedy {
        match self {
            Self::Downgrade { from, .. } => Remedy::new("keep the installed version: ")
                .command(build_upgrade_command(name, from.to_string()))
                .text("; to install an older line, first run ")
                .command(build_delete_command(name)),
            Self::Jump { path, .. } => {
                let begin = Remedy::new("upgrade one line at a time: ");
                path.iter().enumerate().fold(begin, |remedy, (step, (line, minors))| {
                    let here = cluster.is_none_or(|minor| minors.contains(&minor));
                    let names: Vec<String> = minors.iter().map(ToString::to_string).collect();
                    let first = if here {
                        String::new()
                    } else {
                        format!(" (for this the hosting cluster must run Kubernetes {})", names.join(", "))
                    };
                    let then = if step == 0 { "" } else { ", then " };
                    remedy.text(then).command(build_upgrade_command(name, line.to_string())).text(first)
                })
            }
            Self::Stored { version, .. } => {
                Remedy::new("install the newer version with the values of the interrupted run: ")
                    .command(build_install_command(name, version.clone()))
            }
            // What goes beyond, or down, is what values ask for.
            Self::MinorSkipped { now, hub, .. } if now.next_minor() >= *hub => Remedy::new(format!(
                "leave out `apiserver.image.tag` and `controllerManager.image.tag` to get Kubernetes {hub}"
            )),
            Self::MinorSkipped { now, .. } if is_served_inside(now.next_minor()) => Remedy::new(format!(
                "upgrade one minor at a time and wait until each is healthy: first set the newest patch of {} in `apiserver.image.tag` and `controllerManager.image.tag`",
                now.next_minor()
            )),
            Self::MinorSkipped { .. } => Remedy::new("delete the control plane with its data: ")
                .command(build_delete_command(name))
                .text(", then install it again and register the workload clusters with it"),
            Self::Unknown { .. } => "use the newest release of fleetctl".into(),
        }
    }
}

/// What an uninstall has kept is not upgraded, but has its values too.
fn build_upgrade_command(name: &str, version: String) -> Command {
    build_install_command(name, version).with_flag(Flag::ReuseValues)
}

fn build_install_command(name: &str, version: String) -> Command {
    let plane = Subject::ControlPlane(name.to_owned());
    Command::at_run_place(Action::Install(plane)).with_flag(Flag::Version(version))
}

fn build_delete_command(name: &str) -> Command {
    let plane = Subject::ControlPlane(name.to_owned());
    Command::at_run_place(Action::Uninstall(plane)).with_flag(Flag::DeleteData)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::embedded_versions;

    fn way(from: &str, to: &str) -> Result<(), UpgradeRefused> {
        check_upgrade(embedded_versions(), from, &to.parse().unwrap())
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
        let expected = ["v0.7", "v0.8", "v0.9"].map(|line| {
            let plane = Subject::ControlPlane("demo".to_owned());
            Command::at_run_place(Action::Install(plane))
                .with_flag(Flag::Version(line.to_owned()))
                .with_flag(Flag::ReuseValues)
        });
        assert_eq!(remedy.commands(), expected.each_ref());
        let first = " (for this the hosting cluster must run Kubernetes v1.26, v1.27, v1.28, v1.29)";
        assert_eq!(remedy.joined_text(), format!("upgrade one line at a time: , then {first}, then {first}"));
    }

    #[test]
    fn who_stays_with_what_is_installed_keeps_its_version_and_its_values() {
        let remedy = way("v1.0.3", "v0.9.0").unwrap_err().remedy("demo", None);
        assert_eq!(remedy.commands()[0].flags, [Flag::Version("v1.0.3".to_owned()), Flag::ReuseValues]);
    }

    #[test]
    fn an_api_server_goes_one_minor_at_a_time_and_to_that_of_the_version() {
        let hub = KubeMinor::new(1, 36);
        for (now, wanted) in [(36, 36), (35, 36), (31, 31), (31, 32), (37, 36)] {
            let [now, wanted] = [now, wanted].map(|minor| KubeMinor::new(1, minor));
            assert_eq!(check_minor(now, wanted, hub), Ok(()), "{now} → {wanted}");
        }
        let newest = "leave out `apiserver.image.tag` and `controllerManager.image.tag` to get Kubernetes v1.36";
        for (now, wanted, why, remedy) in [
            (
                31,
                36,
                "runs Kubernetes v1.31 and would change to v1.36, which is more than one minor",
                "newest patch of v1.32",
            ),
            (
                25,
                36,
                "more than one minor at a time",
                "delete the control plane with its data: , then install it again",
            ),
            (36, 38, "more than one minor at a time", newest),
            (36, 37, "would change to v1.37, which is not v1.36, the Kubernetes minor of the service version", newest),
            (36, 35, "would change to v1.35, which is not v1.36, the Kubernetes minor of the service version", newest),
        ] {
            let [now, wanted] = [now, wanted].map(|minor| KubeMinor::new(1, minor));
            let refused = check_minor(now, wanted, hub).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            let words = refused.remedy("demo", None).joined_text();
            assert!(words.contains(remedy), "{words}");
        }
    }

    #[test]
    fn a_downgrade_and_an_unknown_version_are_refused() {
        assert!(matches!(way("v1.0.0", "v0.9.0").unwrap_err(), UpgradeRefused::Downgrade { .. }));
        assert!(matches!(way("v7.3.0", "v1.1.0").unwrap_err(), UpgradeRefused::Unknown { .. }));
        assert!(matches!(way("nonsense", "v1.1.0").unwrap_err(), UpgradeRefused::Unknown { .. }));
    }
}
