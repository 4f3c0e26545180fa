//! The commands of the program in groups, as its help and the reference show them.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;

/// Every command that is not hidden, in the order in which it is shown.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    ("Install and remove", &["install", "upgrade", "uninstall", "diff", "rollback", "history", "backup", "restore"]),
    ("Inspect", &["check", "status", "certs", "etcd", "get", "why", "simulate", "version", "explain"]),
    ("Placed workloads", &["logs", "exec", "port-forward", "top"]),
    ("Workload clusters", &["accept", "token", "cordon", "drain", "uncordon", "taint", "rebalance", "delete"]),
    ("Charts and values, without a cluster", &["template", "lint", "show", "versions"]),
    ("This machine", &["kubeconfig", "kubectl-install", "completion", "help"]),
];

/// A tree whose own help shows the commands in groups. clap knows one list of commands, so that is rendered by clap,
/// in the right order, and gets a heading before the first of each group.
pub(crate) fn group_help(tree: Command) -> Command {
    let mut whole = tree.clone();
    whole.build();
    for (place, name) in GROUPS.iter().flat_map(|(_, names)| *names).enumerate() {
        whole = whole.mut_subcommand(name, |command| command.display_order(place));
    }
    let list = render_help_part(whole.clone(), "{subcommands}");
    let head = render_help_part(whole.clone(), "{about-with-newline}\n{usage-heading} {usage}\n");
    let rest = render_help_part(whole.mut_subcommands(|command| command.hide(true)), "{all-args}{after-help}");

    let header = tree.get_styles().get_header();
    let mut help = head;
    for line in list.lines() {
        let plain = anstream::adapter::strip_str(line).to_string();
        let first = plain.split_whitespace().next().filter(|_| !plain.starts_with("   "));
        if let Some((title, _)) = GROUPS.iter().find(|(_, names)| names.first().copied() == first) {
            let _ = write!(help, "\n{header}{title}:{header:#}\n");
        }
        let _ = writeln!(help, "{line}");
    }
    let _ = write!(help, "\n{rest}");
    tree.override_help(StyledStr::from(help))
}

fn render_help_part(command: Command, template: &'static str) -> String {
    command.help_template(template).render_help().ansi().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_tree;

    #[test]
    fn every_command_that_is_shown_is_in_one_group() {
        let mut tree = command_tree();
        tree.build();
        let mut shown: Vec<&str> =
            tree.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }
}
