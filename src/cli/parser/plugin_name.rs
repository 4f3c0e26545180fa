//! Names of kubectl plugins, as users type them and as files have them.
//!
//! For `kubectl fleet-two` kubectl runs `kubectl-fleet_two`, and asks `kubectl_complete-fleet_two` for the next words: a
//! dash in a file name would begin a subcommand of the plugin.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Begin of the name of each plugin's file.
const PLUGIN: &str = "kubectl-";
/// Begin of the name of the program that completes a plugin.
const COMPLETER: &str = "kubectl_complete-";
/// The name without a choice.
const USUAL: &str = "fleet";
/// Length of the longest name.
const LONGEST: usize = 63;

/// Commands of kubectl's own, of all releases: none of them is left to a plugin.
const OWN_COMMANDS: &[&str] = &[
    "alpha",
    "annotate",
    "api-resources",
    "api-versions",
    "apply",
    "attach",
    "auth",
    "autoscale",
    "certificate",
    "cluster-info",
    "completion",
    "config",
    "cordon",
    "cp",
    "create",
    "debug",
    "delete",
    "describe",
    "diff",
    "drain",
    "edit",
    "events",
    "exec",
    "explain",
    "expose",
    "get",
    "help",
    "kuberc",
    "kustomize",
    "label",
    "logs",
    "options",
    "patch",
    "plugin",
    "port-forward",
    "proxy",
    "replace",
    "rollout",
    "run",
    "scale",
    "set",
    "taint",
    "top",
    "uncordon",
    "version",
    "wait",
];

/// Name of the plugin: what is typed behind `kubectl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginName(String);

impl Default for PluginName {
    fn default() -> Self {
        Self(USUAL.to_owned())
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PluginName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix(PLUGIN).filter(|name| !name.is_empty());
        if let Some(name) = name {
            return Err(format!("leave out `{PLUGIN}`: `{name}`"));
        }
        if !is_name(text) {
            return Err("use lower-case letters and digits, with dashes between them".to_owned());
        }
        if OWN_COMMANDS.contains(&text) {
            return Err(format!("kubectl has its own command `{text}` and would never run the plugin"));
        }
        Ok(Self(text.to_owned()))
    }
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl PluginName {
    /// The name by which a program was started; none where it was not as a plugin.
    pub(crate) fn from_program(argv0: &OsStr) -> Option<Self> {
        Self::from_file(argv0, PLUGIN)
    }

    /// The name of the plugin that a program was started to complete; none where it was not.
    pub(crate) fn from_completer(argv0: &OsStr) -> Option<Self> {
        Self::from_file(argv0, COMPLETER)
    }

    /// The name by which this program was started; none where it was not as a plugin.
    pub(crate) fn of_this_run() -> Option<Self> {
        Self::from_program(&std::env::args_os().next()?)
    }

    fn from_file(argv0: &OsStr, begin: &str) -> Option<Self> {
        let name = Path::new(argv0).file_stem()?.to_str()?.strip_prefix(begin)?;
        // What is behind a dash is typed as a word of its own.
        let is_typed = name.split('-').all(|word| is_name(&word.replace('_', "-")));
        is_typed.then(|| Self(name.replace('-', " ").replace('_', "-")))
    }

    /// The command that users type: `kubectl fleet`.
    pub(crate) fn typed_command(&self) -> String {
        format!("kubectl {}", self.0)
    }

    /// Name of the plugin's file.
    pub(crate) fn file_name(&self) -> String {
        self.add_to(PLUGIN)
    }

    /// Name of the file that completes the plugin.
    pub(crate) fn completer_name(&self) -> String {
        self.add_to(COMPLETER)
    }

    fn add_to(&self, begin: &str) -> String {
        let name = self.0.replace('-', "_").replace(' ', "-");
        format!("{begin}{name}{}", std::env::consts::EXE_SUFFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_typed_and_stored_as_kubectl_has_it() {
        for (typed, file) in [("fleet", "kubectl-fleet"), ("fleet-two", "kubectl-fleet_two"), ("f2", "kubectl-f2")] {
            let name: PluginName = typed.parse().unwrap();
            assert_eq!((name.file_name(), name.typed_command()), (file.to_owned(), format!("kubectl {typed}")));
            assert_eq!(PluginName::from_program(OsStr::new(&format!("/a/b/{file}"))), Some(name.clone()));
            assert_eq!(PluginName::from_completer(OsStr::new(&name.completer_name())), Some(name));
        }
        assert_eq!(PluginName::default().completer_name(), "kubectl_complete-fleet");
        let below = PluginName::from_program(OsStr::new("kubectl-ours-fleet_two")).unwrap();
        assert_eq!(
            (below.typed_command(), below.file_name()),
            ("kubectl ours fleet-two".into(), "kubectl-ours-fleet_two".into())
        );
        for other in
            ["fleetctl", "kubectl", "kubectl-", "kubectl_complete-fleet", "kubectl-A", "kubectl-a--b", "kubectl-a b"]
        {
            assert_eq!(PluginName::from_program(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_name_that_kubectl_never_runs_is_refused() {
        for name in ["", "-a", "a-", "Fleet", "a b", "a.b", "a/b", "../a", "get", "api-versions", "kubectl-fleet"] {
            assert!(name.parse::<PluginName>().is_err(), "{name}");
        }
        assert!("a".repeat(64).parse::<PluginName>().is_err());
    }
}
