//! Help under the name that the user typed: examples are copied from it.

use clap::Command;
use clap::builder::StyledStr;

/// Name of the program in the texts of the tree as they are written.
const WRITTEN: &str = "fleetctl";

/// The tree with its texts as the user of `name` has to type what they show.
pub(crate) fn rename_tree(tree: Command, name: &'static str) -> Command {
    if name == WRITTEN { tree } else { rename_command(tree, name) }
}

fn rename_command(mut command: Command, name: &'static str) -> Command {
    if let Some(about) = command.get_about() {
        let about = rename_styled_text(about, name);
        command = command.about(about);
    }
    if let Some(after) = command.get_after_help() {
        let after = rename_styled_text(after, name);
        command = command.after_help(after);
    }
    let command = command.mut_args(|arg| match arg.get_help() {
        Some(help) => {
            let help = rename_styled_text(help, name);
            arg.help(help)
        }
        None => arg,
    });
    command.mut_subcommands(|sub| rename_command(sub, name))
}

fn rename_styled_text(text: &StyledStr, name: &str) -> StyledStr {
    StyledStr::from(replace_program_name(&text.ansi().to_string(), name))
}

/// A text with another name wherever the program is run: where its name is a word of its own, with something behind it.
fn replace_program_name(text: &str, name: &str) -> String {
    let mut parts = text.split("fleetctl ");
    let mut typed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let starts = typed.chars().next_back().is_none_or(|c| c.is_whitespace() || "`(\"'".contains(c));
        typed.push_str(if starts { name } else { WRITTEN });
        typed.push(' ');
        typed.push_str(part);
    }
    // The plugin, where a text names it, is the one that was started.
    if name.starts_with("kubectl ") { typed.replace("`kubectl fleet`", &format!("`{name}`")) } else { typed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn the_name_is_put_in_where_the_program_is_run() {
        let text = "fleetctl a | `fleetctl b`, <(fleetctl c) > fleetctl.fish, _fleetctl  # x";
        let expected = "kubectl fleet a | `kubectl fleet b`, <(kubectl fleet c) > fleetctl.fish, _fleetctl  # x";
        assert_eq!(replace_program_name(text, "kubectl fleet"), expected);
        let text = "so that `kubectl fleet` works: fleetctl a";
        assert_eq!(
            replace_program_name(text, "kubectl fleet-two"),
            "so that `kubectl fleet-two` works: kubectl fleet-two a"
        );
    }

    /// Every command below `command` with its path.
    fn all(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((path.to_owned(), after));
        for sub in command.get_subcommands() {
            all(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    #[test]
    fn no_line_of_an_example_is_so_long_that_it_is_wrapped() {
        let mut found = Vec::new();
        all(&cli::command_tree(), "", &mut found);
        let long: Vec<(&String, &str)> = found
            .iter()
            .flat_map(|(path, after)| after.lines().map(move |line| (path, line)))
            .filter(|(_, line)| {
                let start = line.trim_start();
                let runs = start.starts_with("kubectl ") || start.starts_with("fleetctl ");
                line.chars().count() > 100 && (runs || line.starts_with("    "))
            })
            .collect();
        assert_eq!(long, Vec::new());
    }
}
