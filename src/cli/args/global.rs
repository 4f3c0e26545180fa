//! Flags that every command takes.

use std::path::PathBuf;

use clap::{ArgAction, Args, ColorChoice};

use super::environment;
use crate::api::names::{DEFAULT_NAMESPACE, NamespaceName};
use crate::api::shell::{foreign_word, kubeconfig_flag, quote_word};
use crate::cli::output::log::LogFormat;

/// The flags that every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(in crate::cli) struct Global {
    /// Kubernetes context to act on [default: the current context]
    #[arg(long, global = true, value_name = "CONTEXT", env = environment::CONTEXT, hide_env = true)]
    pub(in crate::cli) context: Option<String>,

    /// Namespace of the service's components
    #[arg(long, short = 'n', global = true, value_name = "NAMESPACE", default_value = DEFAULT_NAMESPACE, env = environment::NAMESPACE, hide_env = true)]
    pub(in crate::cli) namespace: NamespaceName,

    /// Whether the namespace was asked for, rather than left at its default.
    #[arg(skip)]
    pub(in crate::cli) namespace_given: bool,

    /// Undo the changes of this run if it fails or is interrupted
    #[arg(long, global = true)]
    pub(in crate::cli) rollback: bool,

    /// Kubeconfig file to use [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,

    /// Print results, warnings and errors only
    #[arg(long, short = 'q', global = true)]
    pub(in crate::cli) quiet: bool,

    /// Log each request on stderr; a second `--verbose` adds the steps before a request, a third one messages of
    /// libraries
    #[arg(long, global = true, action = ArgAction::Count)]
    pub(in crate::cli) verbose: u8,

    /// Format of the lines of `--verbose` and RUST_LOG
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(in crate::cli) log_format: LogFormat,

    /// When to use colours: `auto`, `always` or `never`
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(in crate::cli) color: ColorChoice,
}

impl Global {
    /// The flags that lead another command to the same place, with a space before each.
    pub(in crate::cli) fn tail_flags(&self) -> String {
        self.tail_in(self.namespace.as_str())
    }

    /// The same for a namespace of the same cluster.
    pub(in crate::cli) fn tail_in(&self, namespace: &str) -> String {
        let mut tail = self.cluster_flags();
        if namespace != DEFAULT_NAMESPACE {
            tail += &format!(" --namespace {}", foreign_word(namespace));
        }
        tail
    }

    /// The flags that lead to the same cluster, for this program and for kubectl, with a space before each.
    pub(in crate::cli) fn cluster_flags(&self) -> String {
        let mut flags = self.kubeconfig.as_deref().map(kubeconfig_flag).unwrap_or_default();
        if let Some(context) = &self.context {
            flags += &format!(" --context {}", quote_word(context));
        }
        flags
    }
}
