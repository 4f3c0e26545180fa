//! `check`: what stands in the way of an install, or of an installed control plane; for people, scripts and CI.

use std::io;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::install::{Way, prepare_install_plan};
use super::status;
use crate::apply::Engine;
use crate::chart::Object;
use crate::check::hosting::CHECKS;
use crate::check::pulls::{self, PullFacts};
use crate::check::{self, Judged, Judging, Report};
use crate::cli::args::control_plane::PlanArgs;
use crate::cli::args::global::Global;
use crate::cli::args::recorded::RecordedArgs;
use crate::cli::connect;
use crate::cli::output::check_table;
use crate::cli::output::check_table::Rows;
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::{control_plane_failed, engine_error};
use crate::cli::output::progress::Display;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::cli::signals::until_stopped;
use crate::control_plane::endpoint::exposure;
use crate::control_plane::endpoint::exposure::unknown_endpoint;
use crate::control_plane::{precheck, preflight};
use crate::install::failure::{Failure, FailureOutcome};
use crate::install::image_pulls::{ImagePulls, LIMIT};
use crate::install::recorded_values::Recorded;
use crate::k8s::Connected;
use crate::pki;

const EXAMPLES: &str = "\
Without `--pre`, the command checks the installed control plane (exit code 7 if it is not healthy). With `--pre`, it
checks whether an install would be accepted (exit code 3 if not). Both only read; `--pull-images` creates pods and
deletes them. `fleetctl explain ID` explains a check.

Examples:
  fleetctl check --pre
  fleetctl check --pre --version v1.1 --preset ha -o short
  fleetctl check --pre --preset airgap --set imageRegistry=mirror.example:5000 --pull-images
  fleetctl check demo -o junit > checks.xml";

/// Check a cluster before an install, or an installed control plane
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Check whether an install would be accepted; takes the flags for versions, images and values
    #[arg(long)]
    pre: bool,

    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    recorded: RecordedArgs,

    /// Checks to treat as warnings, by id, e.g. `storage`; may be repeated
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip_preflight: Vec<String>,

    /// Also pull every image, with one pod per workload in the namespace; the pods are deleted afterwards
    #[arg(long)]
    pull_images: bool,

    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: CheckFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// Every check, by category.
    Table,
    /// One line for each check that did not pass.
    Short,
    Json,
    Yaml,
    /// A JUnit report for CI systems.
    Junit,
}

/// The name that stands for a control plane of which only the shape matters.
const UNNAMED: &str = "control-plane";

pub(crate) async fn run(ui: &Ui, global: &Global, mut args: CheckArgs) -> Result<Exit, CliError> {
    if args.pre {
        return run_pre_install_checks(ui, global, &mut args).await;
    }
    let is_bare = args.plan.is_bare() && args.skip_preflight.is_empty() && !args.pull_images;
    if !is_bare || args.recorded.choice() != Recorded::Refuse {
        return Err(CliError::usage(
            "OnlyWithPre",
            "the flags for versions, images, values and preflight need `--pre`",
        )
        .hint("check before an install: `fleetctl check --pre …`; check what is installed: `fleetctl check NAME`"));
    }
    let mut printer = Printer::new(ui, args.output);
    let seen =
        status::observe_with_progress(global, args.plan.name_given(), &mut |judged| printer.print_results(judged))
            .await?;
    let exit = if seen.is_sound() { Exit::Ok } else { Exit::Unhealthy };
    printer.finish_report(&format!("control plane {}", seen.name), &seen.combined_report(), exit)
}

async fn run_pre_install_checks(ui: &Ui, global: &Global, args: &mut CheckArgs) -> Result<Exit, CliError> {
    args.plan.name_at_least(UNNAMED);
    let recorded = args.recorded.choice();
    let (plan, hosting, _) =
        prepare_install_plan(ui, global, &args.plan, &args.skip_preflight, Way::for_install(recorded)).await?;
    let shape = unknown_endpoint(exposure::expected_exposure_type(&plan.values.exposure));
    let rendered =
        plan.render_control_plane(&shape, &pki::placeholder_files()).map_err(|problems| wrong_values(&problems))?;
    let engine = Engine::new_reader(hosting.client.clone(), plan.package.owner());
    let mut judging = Judging::new(&CHECKS, &args.skip_preflight);
    let mut printer = Printer::new(ui, args.output);
    let resets = recorded == Recorded::Reset;
    let (facts, compared) =
        preflight::collect_preflight_facts(&plan, &hosting.client, &engine, &rendered.objects, resets, &mut |facts| {
            printer.print_results(judging.go_on(facts, &facts.ended));
        })
        .await
        .map_err(|error| connect::request_failed("cannot read the hosting cluster", &error))?;
    let mut report = judging.evaluate_rest(&facts);
    printer.go_on(&report);
    if args.pull_images {
        let pulled = try_image_pulls(ui, &hosting, plan.package.namespace.as_str(), &rendered.objects).await?;
        report.judged.extend(check::run_checks(&pulls::CHECKS, &pulled, &[]).judged);
    }
    let refused = report.failures().next().is_some();
    if let (Err(error), false) = (&compared, refused) {
        return Err(
            CliError::new(Exit::Failed, error.reason(), "the cluster cannot be compared with the plan").because(error)
        );
    }
    if let (Ok(compared), false) = (&compared, refused) {
        let barred =
            precheck::find_install_refusal(&plan, &hosting.client, &engine, (&facts, compared), &rendered.objects)
                .await;
        let barred = barred.map_err(|error| engine_error("the cluster cannot be compared with the plan", &error))?;
        if let Some(error) = barred {
            let failure = Failure { error, aftermath: FailureOutcome::NothingWritten };
            return Err(CliError { exit: Exit::Preflight, ..control_plane_failed(ui, &plan, failure) });
        }
    }
    let exit = if refused { Exit::Preflight } else { Exit::Ok };
    printer.finish_report(&format!("install of service version {}", plan.package.version), &report, exit)
}

/// Has the images of an installation pulled by pods, which are deleted however that ends.
async fn try_image_pulls(
    ui: &Ui,
    hosting: &Connected,
    namespace: &str,
    objects: &[Object],
) -> Result<PullFacts, CliError> {
    let pulls = ImagePulls::new(&hosting.client, namespace, objects);
    if pulls.has_login() {
        connect::require_verified_server(hosting)?;
    }
    ui.print_note(&format!("Pulling {} images on the nodes, for up to {} s", pulls.image_count(), LIMIT.as_secs()));
    let display = Arc::new(Display::new(ui));
    let work = async { Ok::<_, CliError>(pulls.pull_images(LIMIT).await) };
    let facts = until_stopped(ui, &display, "the check", work, std::future::ready(())).await;
    pulls.remove_created_objects().await;
    facts?
}

/// All verdicts as programs read them.
#[derive(Debug, Serialize)]
struct CheckDocument<'r> {
    subject: &'r str,
    ok: bool,
    exit_code: u8,
    checks: Vec<check_table::Entry<'r>>,
}

/// Shows verdicts as they are found, where the format says nothing of all of them before the first.
struct Printer<'u> {
    ui: &'u Ui,
    format: CheckFormat,
    rows: Rows<'u>,
    printed: usize,
    /// Error with which stdout failed; nothing is written to it after that.
    failed: Option<io::Error>,
}

impl<'u> Printer<'u> {
    const fn new(ui: &'u Ui, format: CheckFormat) -> Self {
        Self { ui, format, rows: Rows::new(ui), printed: 0, failed: None }
    }

    fn print_results(&mut self, judged: &[Judged]) {
        let text = match self.format {
            CheckFormat::Table => self.rows.format_rows(judged),
            CheckFormat::Short => check_table::format_short(self.ui, judged),
            CheckFormat::Json | CheckFormat::Yaml | CheckFormat::Junit => String::new(),
        };
        self.printed += judged.len();
        if !text.is_empty() && self.failed.is_none() {
            self.failed = self.ui.write_stdout(&text).err();
        }
    }

    /// Shows the verdicts that a report has gained since the last call.
    fn go_on(&mut self, report: &Report) {
        self.print_results(report.judged.get(self.printed..).unwrap_or_default());
    }

    /// Shows what is left.
    fn finish_report(mut self, subject: &str, report: &Report, exit: Exit) -> Result<Exit, CliError> {
        self.go_on(report);
        let checks = check_table::check_entries(self.ui, report);
        let document = CheckDocument { subject, ok: exit == Exit::Ok, exit_code: exit as u8, checks };
        let rest = match self.format {
            CheckFormat::Table => self.rows.format_summary(subject, report),
            CheckFormat::Short => String::new(),
            CheckFormat::Json => crate::chart::output::format_json(&document),
            CheckFormat::Yaml => crate::chart::output::format_yaml(&document),
            CheckFormat::Junit => check_table::format_junit(self.ui, subject, report),
        };
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            // Whoever reads no further has not changed the verdict.
            Some(_) => Ok(exit),
            None => self.ui.write_last_result(&rest, exit),
        }
    }
}
