//! Candidates for a word of the command line: contexts, namespaces, names, versions, presets, paths of values.
//!
//! Files and compiled-in tables are always asked; a cluster only for [`PATIENCE`], since a user waits for the key press.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::Value;

use crate::api::shell::is_plain;
use crate::api::util::file;
use crate::api::{Cluster, partial_list};
use crate::chart::patch::Patches;
use crate::chart::versions::select::{Request, select_row};
use crate::chart::{self, Object};
use crate::check::{hosting, workload};
use crate::cli::args::global::Global;
use crate::cli::commands::explain::pages;
use crate::cli::connect::{connect_cluster, control_plane_client};
use crate::cli::output::log::LogFormat;
use crate::cli::render_offline::render_preview;
use crate::install::fleet_home::Home;
use crate::k8s::Target;
use crate::workload_cluster::install::PROBE;

/// Time that a cluster may take to answer. With the start of the program this stays below 300 ms.
const PATIENCE: Duration = Duration::from_millis(220);

/// The flags in the words before the cursor that say whom to ask, and about which version.
#[derive(Debug, Clone, Default)]
struct Words {
    context: Option<String>,
    kubeconfig: Option<PathBuf>,
    version: Option<String>,
}

impl Words {
    fn from_command_line(words: &[OsString]) -> Self {
        let context = last_flag_value(words, "--context").or_else(|| std::env::var("FLEET_CONTEXT").ok());
        Self {
            context: context.filter(|context| !context.is_empty()),
            kubeconfig: last_flag_value(words, "--kubeconfig").map(PathBuf::from),
            version: last_flag_value(words, "--version"),
        }
    }

    fn global_flags(&self) -> Option<Global> {
        let namespace = "fleet".parse().ok()?;
        Some(Global {
            context: self.context.clone(),
            namespace,
            namespace_given: false,
            kubeconfig: self.kubeconfig.clone(),
            rollback: false,
            quiet: true,
            verbose: 0,
            log_format: LogFormat::Text,
            color: clap::ColorChoice::Never,
        })
    }

    fn kubeconfig_target(&self) -> Target {
        Target { kubeconfig: self.kubeconfig.iter().cloned().collect(), context: None }
    }
}

/// The value of a flag that is given last, as `--flag value` or as `--flag=value`.
fn last_flag_value(words: &[OsString], flag: &str) -> Option<String> {
    words.iter().enumerate().rev().find_map(|(at, word)| {
        let word = word.to_str()?;
        match word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => Some(value.to_owned()),
            None if word == flag => words.get(at + 1)?.to_str().map(str::to_owned),
            None => None,
        }
    })
}

/// The command tree with what completes its arguments; `words` are those of the command line so far.
pub(crate) fn with_completers(command: Command, words: &[OsString]) -> Command {
    add_completers(command, &Words::from_command_line(words), "")
}

fn add_completers(command: Command, words: &Words, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| complete_argument(arg, words, parent, &name));
    command.mut_subcommands(|sub| add_completers(sub, words, &name))
}

/// An argument is known by its identifier and, for names, by what it names.
fn complete_argument(arg: Arg, words: &Words, parent: &str, command: &str) -> Arg {
    let words = words.clone();
    let value_name = arg.get_value_names().unwrap_or_default().first().map(ToString::to_string).unwrap_or_default();
    let agent = command == "agent";
    let lists = ["show_only", "include_kind", "exclude_kind"].contains(&arg.get_id().as_str());
    let found: Box<dyn Fn() -> Vec<Candidate> + Send + Sync> = match arg.get_id().as_str() {
        "context" => {
            Box::new(move || words.kubeconfig_target().list_contexts().into_iter().map(Candidate::from).collect())
        }
        "namespace" => Box::new(move || fetch_candidates(list_namespace_names, words.clone())),
        "name"
            if matches!(
                (parent, command),
                ("get", "clusters") | (_, "accept") | ("delete" | "drain" | "cordon" | "uncordon" | "taint", "cluster")
            ) =>
        {
            Box::new(move || fetch_candidates(list_cluster_names, words.clone()))
        }
        "name" | "control_plane" if value_name == "CONTROL_PLANE_NAME" => Box::new(control_planes),
        "version" if value_name == "VERSION" && !arg.is_global_set() => Box::new(version_candidates),
        "skip_preflight" if agent => {
            Box::new(|| explained_candidates(workload::CHECKS.iter().map(|check| check.id).chain([PROBE])))
        }
        "skip_preflight" => Box::new(|| explained_candidates(hosting::CHECKS.iter().map(|check| check.id))),
        "id" if command == "explain" => Box::new(|| explained_candidates(pages::explain_pages().map(|page| page.id))),
        "name" | "preset" if parent == "show" && command.starts_with("preset") => Box::new(preset_candidates),
        "show_only" => Box::new(move || object_candidates(agent, &words, "")),
        "explain" if value_name == "OBJECT#PATH" => Box::new(move || object_candidates(agent, &words, "#")),
        "include_kind" | "exclude_kind" => Box::new(move || kind_candidates(agent, &words)),
        "set" | "set-string" | "set-file" | "set-json" => Box::new(move || value_paths(agent)),
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(move |current: &OsStr| {
        let start = current.to_string_lossy();
        // Of a list with commas the last word is completed.
        let (before, start) = start
            .rsplit_once(',')
            .filter(|_| lists)
            .map_or((String::new(), &*start), |(list, last)| (format!("{list},"), last));
        let fitting =
            found().into_iter().filter(|candidate| candidate.word.starts_with(start) && is_safe(&candidate.word));
        fitting
            .map(|found| {
                CompletionCandidate::new(format!("{before}{}", found.word)).help(found.help.map(StyledStr::from))
            })
            .collect()
    }))
}

/// Returns whether a word can be put into a command line: shells insert it without quotes, and kubeconfigs, folders and
/// clusters give names such as `a$(reboot)b`. One that begins with a dash would be a flag, and `=ls` is a path for zsh.
fn is_safe(word: &str) -> bool {
    // What is explained ends in a `#`, which begins a comment at the start of a word only.
    is_plain(word.strip_suffix('#').unwrap_or(word)) && !word.starts_with(['-', '='])
}

/// One word that could stand there, with what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    word: String,
    help: Option<String>,
}

impl From<String> for Candidate {
    fn from(word: String) -> Self {
        Self { word, help: None }
    }
}

fn explained_candidates(ids: impl Iterator<Item = &'static str>) -> Vec<Candidate> {
    ids.map(|id| Candidate { word: id.to_owned(), help: pages::find_page(id).map(|page| page.summary().to_owned()) })
        .collect()
}

fn control_planes() -> Vec<Candidate> {
    let Ok(home) = Home::of_user() else { return Vec::new() };
    let mut names = file::list_names(home.path()).unwrap_or_default();
    names.retain(|name| !name.starts_with('.') && home.path().join(name).is_dir());
    names.into_iter().map(Candidate::from).collect()
}

fn version_candidates() -> Vec<Candidate> {
    let rows = chart::embedded_versions().rows().iter().map(|row| Candidate {
        word: row.version.to_string(),
        help: Some(format!("Kubernetes {}", row.format_minor_range())),
    });
    let auto = Candidate { word: "auto".to_owned(), help: Some("the newest that supports the cluster".to_owned()) };
    rows.chain([auto]).collect()
}

fn preset_candidates() -> Vec<Candidate> {
    chart::embedded_presets().map(|preset| Candidate::from(preset.name.to_owned())).collect()
}

fn value_paths(agent: bool) -> Vec<Candidate> {
    let file = if agent { "agent.schema.json" } else { "control-plane.schema.json" };
    let schema: Value = chart::values_file(file).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut found = Vec::new();
    collect_value_paths(&schema, &schema, "", "", &mut found);
    found
}

/// Renders the chart of the version in the words by its defaults; nothing where that fails.
fn render_default_objects(agent: bool, words: &Words) -> Option<Vec<Object>> {
    let kind = if agent { chart::Kind::Agent } else { chart::Kind::ControlPlane };
    let version = words.version.as_deref().filter(|version| *version != "auto");
    let selection = select_row(chart::embedded_versions(), Request { version, ..Request::default() }).ok()?;
    let namespace = "fleet".parse().ok()?;
    Some(render_preview(kind, &selection, &namespace, &Patches::default(), Ok).ok()?.rendered.objects)
}

/// The objects that can be shown or explained, each with what follows its name.
fn object_candidates(agent: bool, words: &Words, end: &str) -> Vec<Candidate> {
    let objects = render_default_objects(agent, words).unwrap_or_default();
    objects.iter().map(|object| Candidate::from(format!("{}{end}", object.id()))).collect()
}

/// Their kinds.
fn kind_candidates(agent: bool, words: &Words) -> Vec<Candidate> {
    let objects = render_default_objects(agent, words).unwrap_or_default();
    let kinds: BTreeSet<String> = objects.iter().map(|object| object.kind().to_owned()).collect();
    kinds.into_iter().map(Candidate::from).collect()
}

/// Every path of a schema that is not a mapping with known keys, with the first sentence of its description.
fn collect_value_paths(root: &Value, at: &Value, path: &str, help: &str, found: &mut Vec<Candidate>) {
    let target = at.get("$ref").and_then(Value::as_str).and_then(|target| root.pointer(target.trim_start_matches('#')));
    let options = at["anyOf"].as_array().into_iter().flatten();
    let node = target.or_else(|| options.into_iter().find(|option| option["type"] != "null")).unwrap_or(at);
    if !std::ptr::eq(node, at) {
        return collect_value_paths(root, node, path, help, found);
    }
    match node["properties"].as_object() {
        Some(properties) if path.split('.').count() < 8 => {
            for (key, below) in properties {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let own = below["description"].as_str().unwrap_or_default();
                collect_value_paths(root, below, &path, own.split('\n').next().unwrap_or_default(), found);
            }
        }
        _ => found.push(Candidate { word: format!("{path}="), help: Some(help.to_owned()) }),
    }
}

/// Asks a cluster on a thread of its own, for a log-in helper of the kubeconfig can block; late answers are dropped.
fn fetch_candidates<F>(question: fn(Global) -> F, words: Words) -> Vec<Candidate>
where
    F: Future<Output = Option<Vec<String>>> + 'static,
{
    let Some(global) = words.global_flags() else { return Vec::new() };
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        answer.send(runtime.block_on(question(global))).ok()
    });
    let names = answered.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default();
    names.into_iter().map(Candidate::from).collect()
}

async fn list_namespace_names(global: Global) -> Option<Vec<String>> {
    partial_list::list_names::<Namespace>(&connect_cluster(&global).await.ok()?.client).await.ok()
}

async fn list_cluster_names(global: Global) -> Option<Vec<String>> {
    partial_list::list_names::<Cluster>(&control_plane_client(&global).await.ok()?).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_the_cursor_say_whom_to_ask() {
        let words: Vec<OsString> =
            ["fleetctl", "--kubeconfig=/a", "get", "--context", "one", "clusters", "--context", "two"]
                .map(Into::into)
                .into();
        let found = Words::from_command_line(&words);
        assert_eq!(found.context.as_deref(), Some("two"));
        assert_eq!(found.kubeconfig, Some(PathBuf::from("/a")));
    }

    #[test]
    fn a_name_on_which_a_shell_would_act_is_no_candidate() {
        for safe in ["kubernetes-admin@kubernetes", "arn:aws:eks:eu-1:1:cluster/west", "Deployment/apiserver#", "a.b="]
        {
            assert!(is_safe(safe), "{safe}");
        }
        for acted_on in [
            "a$(touch PWN)b",
            "a`b`",
            "a b",
            "a;b",
            "a&b",
            "a|b",
            "a>b",
            "~x",
            "*",
            "#",
            "a#b",
            "'",
            "\\",
            "",
            "-x",
            "=ls",
            "a\nb",
            "é",
        ] {
            assert!(!is_safe(acted_on), "{acted_on}");
        }
    }

    #[test]
    fn all_that_the_program_itself_offers_is_a_candidate() {
        let words = Words::default();
        let own = [
            version_candidates(),
            preset_candidates(),
            value_paths(false),
            value_paths(true),
            object_candidates(false, &words, "#"),
        ];
        let own =
            own.into_iter().chain([object_candidates(true, &words, ""), kind_candidates(false, &words)]).flatten();
        let left_out: Vec<Candidate> = own.filter(|candidate| !is_safe(&candidate.word)).collect();
        assert_eq!(left_out, []);
    }

    #[test]
    fn every_leaf_of_the_schema_is_a_path_that_can_be_set() {
        let paths = value_paths(false);
        for path in
            ["exposure.type=", "etcd.storage.size=", "imageRegistry=", "etcd.resources.requests=", "nodeSelector="]
        {
            assert!(paths.iter().any(|candidate| candidate.word == path), "{path} in {paths:?}");
        }
    }
}
