//! Suggestions for a word that is no command here: a command that stands elsewhere in the tree, or one that other
//! programs call so.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Words of Helm, kubectl and others for what is done here by another command, each with that command.
const ELSEWHERE: [(&str, &str); 17] = [
    ("apply", "install"),
    ("create", "install"),
    ("delete agent", "uninstall agent"),
    ("delete control-plane", "uninstall control-plane"),
    ("describe", "status"),
    ("doctor", "check"),
    ("init", "install control-plane"),
    ("join", "install agent"),
    ("list", "status"),
    ("ls", "status"),
    ("preflight", "check --pre"),
    ("register", "install agent"),
    ("remove", "uninstall"),
    ("pull", "show images"),
    ("render", "template"),
    ("rm", "uninstall"),
    ("update", "upgrade"),
];

/// Flags of Helm, each with its counterpart here or the reason that there is none.
const FLAGS: [(&str, &str); 46] = [
    ("--atomic", "'--rollback' undoes an install that fails"),
    ("--rollback-on-failure", "'--rollback' undoes an install that fails"),
    ("--cleanup-on-fail", "'--rollback' undoes an install that fails"),
    ("--create-namespace", "'install control-plane' creates a missing namespace; for an agent you create it first"),
    ("--wait", "an install always waits; '--timeout' sets how long"),
    ("--wait-for-jobs", "an install always waits; '--timeout' sets how long"),
    (
        "--reset-then-reuse-values",
        "'--reuse-values' lays the values of the last install over the chart's current defaults",
    ),
    ("--post-renderer", "'--patch FILE' changes rendered objects, checked before anything is written"),
    ("--take-ownership", "'--adopt' adopts existing objects"),
    ("--set-literal", "'--set-string' sets a value as text"),
    ("--skip-crds", "CustomResourceDefinitions are always part of the control plane"),
    ("--devel", "'--version' accepts any version of 'fleetctl versions'"),
    ("--no-hooks", "there are no hooks: every object is planned, shown and undone like the others"),
    (
        "--force",
        "'--take-fields' takes single fields from other field managers; immutable objects are never replaced silently",
    ),
    ("--force-conflicts", "'--take-fields' takes single fields from other field managers"),
    ("--force-replace", "immutable objects are never replaced silently: the error says what to do"),
    ("--server-side", "server-side apply is always used"),
    ("--disable-openapi-validation", "the server always validates objects"),
    ("--skip-schema-validation", "values are always validated; 'show schema' prints the schema"),
    ("--generate-name", "give a name: kubeconfigs, certificates and records contain it"),
    ("--name-template", "give a name: kubeconfigs, certificates and records contain it"),
    ("--dependency-update", "the charts are part of the program and have no dependencies"),
    ("--repo", "the charts are part of the program: '--version' chooses one"),
    ("--verify", "the charts are part of the program; '--image-lock' pins images to digests"),
    ("--keyring", "the charts are part of the program; '--image-lock' pins images to digests"),
    ("--history-max", "the record contains only what is needed to undo and to continue, and does not grow"),
    ("--recreate-pods", "pods are replaced if their template changes"),
    ("--install", "an install updates an existing installation"),
    ("--replace", "an install updates an existing installation"),
    (
        "--include-crds",
        "CustomResourceDefinitions are always part of the control plane; '--show-only bootstrap/…' prints them",
    ),
    ("--skip-tests", "the charts have no tests of their own: 'check' tests what is installed"),
    ("--validate", "'install --dry-run=server' has the API server check every object"),
    ("--api-versions", "'--kube-version' determines which APIs exist"),
    ("--is-upgrade", "the first and later installs render the same objects"),
    ("--strict", "'lint -o json' lists warnings as such"),
    ("--with-subcharts", "the charts have no dependencies"),
    ("--detailed-exitcode", "'diff' always exits with 1 if something would change"),
    ("--show-secrets", "values of Secrets are shown as hashes, always"),
    ("--three-way-merge", "the server computes the comparison"),
    ("--hide-secret", "'--dry-run' prints placeholders for keys"),
    ("--hide-notes", "only the result is printed; '--quiet' leaves out the progress"),
    ("--render-subchart-notes", "the charts have no dependencies"),
    ("--labels", "'--patch' adds labels to objects, 'podLabels' to pods"),
    ("--description", "the record contains who installed what and when"),
    ("--kube-context", "the flag is '--context'"),
    ("--debug", "the flag is '--verbose'"),
];

/// The end of a name that a file of values has.
const FILES: [&str; 3] = [".yaml", ".yml", ".json"];

/// Returns the tip on what was meant by an argument that is not known.
fn argument_tip(argument: &str) -> Option<String> {
    let flag = argument.split_once('=').map_or(argument, |(flag, _)| flag);
    let known = FLAGS.iter().find(|(theirs, _)| *theirs == flag).map(|(_, ours)| (*ours).to_owned());
    let is_file = !flag.starts_with('-') && FILES.iter().any(|end| flag.ends_with(end));
    known.or_else(|| is_file.then(|| format!("repeat the flag for each values file: '--values {argument}'")))
}

fn with_tip(mut error: Error, tip: String) -> Error {
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// Largest number of commands of the same name that are named; of more, none is.
const NAMED: usize = 5;

/// The error with the command that was meant, where that is known better than by the spelling.
pub(crate) fn add_suggestion(mut error: Error, argv: &[OsString], tree: &Command, name: &str) -> Error {
    if error.kind() == ErrorKind::UnknownArgument {
        let tip = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(argument)) => argument_tip(argument),
            _ => None,
        };
        return match tip {
            Some(tip) => with_tip(error, tip),
            None => error,
        };
    }
    if error.kind() == ErrorKind::ValueValidation {
        let tip = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) => argument_tip(value).filter(|_| !value.starts_with('-')),
            _ => None,
        };
        return match tip {
            Some(tip) => with_tip(error, tip),
            None => error,
        };
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let before = argv.iter().take_while(|given| *given != word.as_str()).last().and_then(|given| given.to_str());
    let meant = suggest_commands(before.unwrap_or_default(), word, tree);
    if meant.is_empty() {
        return error;
    }
    let commands: Vec<String> = meant.iter().map(|path| format!("'{name} {path}'")).collect();
    let tip = match commands.as_slice() {
        [one] => format!("the command is {one}"),
        many => format!("the commands for it are {}", many.join(", ")),
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// The commands that do what `word`, given behind `before`, asks for.
fn suggest_commands(before: &str, word: &str, tree: &Command) -> Vec<String> {
    let asked = [format!("{before} {word}"), word.to_owned()];
    if let Some((_, ours)) = asked.iter().find_map(|asked| ELSEWHERE.iter().find(|(theirs, _)| theirs == asked)) {
        return vec![(*ours).to_owned()];
    }
    let mut found = Vec::new();
    collect_commands(tree, "", word, &mut found);
    if found.len() > NAMED { Vec::new() } else { found }
}

/// The paths of the commands of this name, as they are typed.
fn collect_commands(tree: &Command, path: &str, word: &str, found: &mut Vec<String>) {
    for command in tree.get_subcommands().filter(|command| !command.is_hide_set()) {
        let path = format!("{path}{}", command.get_name());
        if command.get_name() == word || command.get_all_aliases().any(|alias| alias == word) {
            found.push(path.clone());
        }
        collect_commands(command, &format!("{path} "), word, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_call_it_leads_to_a_command_that_there_is_and_is_none_itself() {
        let tree = crate::cli::command_tree();
        for (theirs, ours) in ELSEWHERE {
            let mut command = &tree;
            for word in ours.split(' ').take_while(|word| !word.starts_with('-')) {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("{theirs}: no command {ours}"));
            }
            let there = theirs.split(' ').try_fold(&tree, |command, word| command.find_subcommand(word));
            assert!(there.is_none(), "{theirs} is a command itself");
        }
    }

    fn render_usage_error(tree: &Command, argv: &[&str]) -> String {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let error = tree.clone().try_get_matches_from(&argv).unwrap_err();
        add_suggestion(error, &argv, tree, "fleetctl").render().to_string()
    }

    #[test]
    fn flags_of_helm_lead_to_what_there_is() {
        let tree = crate::cli::command_tree();
        for (flag, ours) in FLAGS {
            let text = render_usage_error(&tree, &["fleetctl", "install", "control-plane", "demo", flag]);
            assert!(text.contains(&format!("tip: {ours}\n")), "{flag}: {text}");
            assert!(!text.contains("to pass"), "{text}");
        }
        let argv = ["fleetctl", "install", "control-plane", "demo", "-f", "a.yaml", "b.yaml"];
        let text = render_usage_error(&tree, &argv);
        assert!(text.contains("tip: repeat the flag for each values file: '--values b.yaml'"), "{text}");
        let text = render_usage_error(&tree, &["fleetctl", "lint", "-f", "a.yaml", "b.yaml"]);
        assert!(text.contains("--values b.yaml"), "{text}");
    }

    #[test]
    fn a_command_that_stands_elsewhere_is_found_by_its_name() {
        let tree = crate::cli::command_tree();
        assert_eq!(suggest_commands("fleetctl", "images", &tree), ["show images"]);
        assert_eq!(suggest_commands("fleetctl", "clusters", &tree), ["get clusters"]);
        assert_eq!(suggest_commands("delete", "control-plane", &tree), ["uninstall control-plane"]);
        assert!(suggest_commands("fleetctl", "instal", &tree).is_empty());
    }

    #[test]
    fn the_tip_takes_the_place_of_a_guess_by_spelling() {
        let argv = ["fleetctl", "rbac"].map(OsString::from);
        let tree = crate::cli::command_tree();
        let error = tree.clone().try_get_matches_from(&argv).unwrap_err();
        let text = add_suggestion(error, &argv, &tree, "kubectl fleet").render().to_string();
        assert!(text.contains("tip: the command is 'kubectl fleet show rbac'\n"), "{text}");
        assert!(!text.contains("rollback"), "{text}");
    }
}
