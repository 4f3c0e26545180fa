//! `lint`: everything that can be known about values without a cluster, for one service version or all of them.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::api::version::{KubeMinor, ServiceLine};
use crate::chart::inspect::lint::lint_objects;
use crate::chart::versions::select;
use crate::chart::versions::select::{Request, Selection};
use crate::chart::{self, Diagnostic, Kind, Severity, output};
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::global::Global;
use crate::cli::args::images::ImageArgs;
use crate::cli::args::lock::LockArgs;
use crate::cli::args::own_image::OwnImageArgs;
use crate::cli::args::patches::PatchArgs;
use crate::cli::args::values::{ValuesArgs, with_precedence};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::{Mark, Ui};
use crate::cli::render_offline::{NoPreview, render_preview};

/// Check values, and the objects rendered with them, without a cluster
#[derive(Debug, Args)]
#[command(after_help = with_precedence!("Examples:
  fleetctl lint --values my.yaml
  fleetctl lint agent --values agent.yaml --version v1.1
  fleetctl lint --values my.yaml --all-versions -o json"))]
pub(crate) struct LintArgs {
    #[command(flatten)]
    chart: ChartArgs,

    /// Check against every service version that has the chart
    #[arg(long, conflicts_with = "version")]
    all_versions: bool,

    /// Kubernetes version that the service version has to support
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<KubeMinor>,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: LintFormat,

    #[command(flatten)]
    own_image: OwnImageArgs,

    #[command(flatten)]
    images: ImageArgs,

    #[command(flatten)]
    lock: LockArgs,

    #[command(flatten)]
    values: ValuesArgs,

    #[command(flatten)]
    patches: PatchArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LintFormat {
    Text,
    Json,
    Yaml,
}

/// Problems that were found with one service version.
#[derive(Debug, Serialize)]
struct Outcome {
    chart: Kind,
    version: ServiceLine,
    objects: usize,
    problems: Vec<Diagnostic>,
}

impl Outcome {
    fn count_problems(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &LintArgs) -> Result<Exit, CliError> {
    let kind = args.chart.kind();
    let values = args.values.read_files();
    let patches = args.patches.read_patches()?;
    let mut outcomes = Vec::new();
    for selection in select_lint_versions(args, kind)? {
        let preview = render_preview(kind, &selection, &global.namespace, &patches, |builder| {
            let builder = args.images.apply_image_flags(values.apply_read_values(builder));
            args.lock.apply_image_lock(args.own_image.apply_own_image(kind, builder)?)
        });
        let (objects, mut problems) = match preview {
            Ok(preview) => {
                let found = lint_objects(&preview.chart, &preview.rendered, selection.row);
                (preview.rendered.objects.len(), [preview.warnings, found].concat())
            }
            Err(NoPreview::Values(problems)) => (0, problems.0),
            Err(NoPreview::Other(error)) if error.exit == Exit::Usage => {
                (0, vec![Diagnostic::error("invalid-name", error.headline)])
            }
            Err(NoPreview::Other(error)) => return Err(error),
        };
        if let Some(minor) = args.kube_version.filter(|minor| !selection.row.supports_minor(*minor)) {
            let range = selection.row.format_minor_range();
            let text = format!("service version {} supports Kubernetes {range}, not {minor}", selection.row.version);
            problems.push(Diagnostic::error("kubernetes-version", text));
        }
        outcomes.push(Outcome { chart: kind, version: selection.row.version, objects, problems });
    }
    ui.write_stdout(&match args.output {
        LintFormat::Json => output::format_json(&outcomes),
        LintFormat::Yaml => output::format_yaml(&outcomes),
        LintFormat::Text => outcomes.iter().map(|outcome| format_lint_report(ui, outcome)).collect(),
    })?;
    let clean = outcomes.iter().all(|outcome| outcome.count_problems(Severity::Error) == 0);
    Ok(if clean { Exit::Ok } else { Exit::Usage })
}

fn select_lint_versions(args: &LintArgs, kind: Kind) -> Result<Vec<Selection<'static>>, CliError> {
    if !args.all_versions {
        return Ok(vec![args.chart.selection_with(&args.values, args.own_image.image_tag.as_deref())?]);
    }
    let rows = chart::embedded_versions().rows().iter().filter(|row| row.charts.contains_key(&kind));
    rows.map(|row| {
        let version = row.version.to_string();
        let request = Request { version: Some(&version), image_tag: None, server: None };
        select::select_row(chart::embedded_versions(), request)
            .map_err(|error| crate::cli::args::chart_choice::no_version(&error))
    })
    .collect()
}

fn format_lint_report(ui: &Ui, outcome: &Outcome) -> String {
    let (errors, warnings) = (outcome.count_problems(Severity::Error), outcome.count_problems(Severity::Warning));
    let (mark, count, what) = match (errors, warnings) {
        (0, 0) => (Mark::Good, outcome.objects, "object"),
        (0, n) => (Mark::Warning, n, "warning"),
        (n, _) => (Mark::Bad, n, "error"),
    };
    let plural = if count == 1 { "" } else { "s" };
    let mut text = format!("{} {} {}: {count} {what}{plural}\n", ui.mark(mark), outcome.chart, outcome.version);
    for problem in &outcome.problems {
        text.push('\n');
        text.push_str(problem.render_diagnostic(false).trim_end());
        text.push('\n');
    }
    if !outcome.problems.is_empty() {
        text.push('\n');
    }
    text
}
