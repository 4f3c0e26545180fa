//! Texts of remedies: the program's name, its commands and flags, and the flags that lead to the same place.

use std::fmt::Write as _;

use super::terminal::Ui;
use crate::api::remedy::{Access, Action, Command, Flag, Part, Place, Remedy, Subject};
use crate::api::shell::{foreign_word, kubeconfig_flag, quote_always, quote_word};
use crate::api::util::text::visible_cell;
use crate::cli::args::global::Global;

/// The flags that lead another command to the place of this run, with a space before each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Here {
    /// To the cluster and the namespace.
    pub(crate) run: String,
    /// To the cluster.
    pub(crate) cluster: String,
}

impl Here {
    /// The place that the global flags name.
    pub(crate) fn from_global(global: &Global) -> Self {
        Self { run: global.tail_flags(), cluster: global.cluster_flags() }
    }
}

impl Ui {
    /// A remedy as text.
    pub(crate) fn format_remedy(&self, remedy: &Remedy) -> String {
        let mut text = String::new();
        for part in remedy.parts() {
            match part {
                Part::Text(words) => text += words,
                Part::Command(command) => {
                    let _ = write!(text, "`{}`", self.format_command(command));
                }
                Part::Flags(flags) => {
                    let flags: Vec<String> = flags.iter().map(format_flag).collect();
                    let _ = write!(text, "`{}`", flags.join(" "));
                }
                Part::Kubectl(place) => text.extend(["kubectl", &*self.place_flags(place)]),
            }
        }
        text
    }

    /// A command as it is typed.
    pub(crate) fn format_command(&self, command: &Command) -> String {
        let mut text =
            format!("{} {}{}", self.program, format_action(&command.action), self.place_flags(&command.place));
        for flag in command.flags.iter().map(format_flag) {
            text.extend([" ", &*flag]);
        }
        text
    }

    /// The flags that lead to a place, a space before each.
    fn place_flags(&self, place: &Place) -> String {
        match place {
            Place::Any => String::new(),
            Place::Run => self.here.run.clone(),
            Place::Cluster => self.here.cluster.clone(),
            Place::ControlPlane(access) => way_to(access),
            Place::Context(context) => format!(" --context {context}"),
        }
    }
}

/// The flags that lead to the API of a control plane, for this program and for kubectl, a space before each.
pub(crate) fn way_to(access: &Access) -> String {
    match access {
        Access::Context(name) => context_flag(name),
        Access::Kubeconfig(file, name) => {
            kubeconfig_flag(file) + &name.as_deref().map(context_flag).unwrap_or_default()
        }
        Access::Unknown => context_flag("CONTROL_PLANE"),
    }
}

fn context_flag(name: &str) -> String {
    format!(" --context {}", quote_word(name))
}

fn format_subject_argument(subject: &Subject) -> String {
    match subject {
        Subject::ControlPlane(name) => format!("control-plane {}", foreign_word(name)),
        Subject::Agent(name) => format!("agent {}", foreign_word(name)),
    }
}

fn format_action(action: &Action) -> String {
    match action {
        Action::Install(what) => format!("install {}", format_subject_argument(what)),
        Action::Upgrade(what) => format!("upgrade {}", format_subject_argument(what)),
        Action::Uninstall(what) => format!("uninstall {}", format_subject_argument(what)),
        Action::Diff(what) => {
            what.as_ref().map_or_else(|| "diff".to_owned(), |what| format!("diff {}", format_subject_argument(what)))
        }
        Action::Template(what) => format!("template {}", format_subject_argument(what)),
        // A control plane is what is meant where nothing is said.
        Action::ShowRbac(Subject::ControlPlane(name)) => format!("show rbac {}", foreign_word(name)),
        Action::ShowRbac(what) => format!("show rbac {}", format_subject_argument(what)),
        Action::Rollback(name) => format!("rollback {}", foreign_word(name)),
        Action::Kubeconfig(name) => format!("kubeconfig {}", foreign_word(name)),
        Action::Status(name) => {
            name.as_ref().map_or_else(|| "status".to_owned(), |name| format!("status {}", foreign_word(name)))
        }
        Action::DeleteCluster(name) => format!("delete cluster {}", foreign_word(name)),
        Action::GetValues(name) => format!("get values {}", foreign_word(name)),
        Action::Versions => "versions".to_owned(),
        Action::Why(object) => format!("why {}", foreign_word(object)),
        Action::ContinueRemovals(cause) => format!("rebalance --continue {}", foreign_word(cause)),
        Action::CommitRestore(name) => format!("restore {} --commit", foreign_word(name)),
        Action::Release(name) => format!("restore {} --release", foreign_word(name)),
    }
}

fn format_flag(flag: &Flag) -> String {
    match flag {
        Flag::Adopt => "--adopt".to_owned(),
        Flag::Context(Some(context)) => format!("--context {}", foreign_word(context)),
        Flag::Context(None) => "--context".to_owned(),
        Flag::ControlPlane(name) => format!("--control-plane {}", quote_word(name)),
        Flag::DeleteData => "--delete-data".to_owned(),
        Flag::LockWait(duration) => format!("--lock-wait {duration}"),
        Flag::Namespace(Some(namespace)) => format!("--namespace {}", foreign_word(namespace)),
        Flag::Namespace(None) => "--namespace".to_owned(),
        Flag::Patch => "--patch FILE".to_owned(),
        Flag::ResetValues => "--reset-values".to_owned(),
        Flag::ReuseValues => "--reuse-values".to_owned(),
        Flag::Wide => "-o wide".to_owned(),
        Flag::Set(path, value) => format!("--set {}", quote_word(&visible_cell(&format!("{path}={value}")))),
        Flag::SkipPreflight(id) => format!("--skip-preflight {id}"),
        Flag::TakeFields(field) => format!("--take-fields {}", quote_always(&visible_cell(field))),
        Flag::Version(version) => format!("--version {}", foreign_word(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lead_to_the_same_place() {
        let here = Here { run: " --context west --namespace two".into(), cluster: " --context west".into() };
        let mut ui = Ui::for_tests();
        ui.here = here;
        ui.program = "kubectl fleet";
        let plane = Subject::ControlPlane("demo".into());
        let remedy = Remedy::new("run ")
            .command(Command::at_run_place(Action::Install(plane)).with_flag(Flag::Version("v0.7".into())))
            .text(", or\n  ")
            .kubectl(Place::Cluster)
            .text(" get pods\nand ")
            .command(Command::at_place(Place::ControlPlane(Access::Unknown), Action::DeleteCluster("a b".into())))
            .text(" with ")
            .flags(vec![Flag::Adopt, Flag::set_value("exposure.host", "HOST")]);
        let text = "run `kubectl fleet install control-plane demo --context west --namespace two --version v0.7`, or\n  \
                    kubectl --context west get pods\nand `kubectl fleet delete cluster 'a b' --context CONTROL_PLANE` \
                    with `--adopt --set exposure.host=HOST`";
        assert_eq!(ui.format_remedy(&remedy), text);
    }
}
