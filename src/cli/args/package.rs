//! The flags that decide which chart is installed and with which values: version, images, values files and settings.

use clap::Args;

use super::chart_choice::choose_version;
use super::images::ImageArgs;
use super::lock::LockArgs;
use super::patches::PatchArgs;
use super::values::ValuesArgs;
use crate::api::version::{KubeMinor, ServiceVersion};
use crate::chart::values::still_locked;
use crate::chart::versions::select::Selection;
use crate::chart::{self, Chart, ValuesBuilder};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::{too_large, wrong_values};
use crate::install::recorded_values::{RecordedRelease, next_version};
use crate::install::release_spec::{Package, PackageError, load_chart};

/// Base that the flags are laid over.
#[derive(Debug)]
pub(crate) enum Base {
    /// The chart alone.
    Chart,
    /// The values of the last install.
    Recorded(RecordedRelease),
    /// The values of the last install, in the line that follows its own where no version is given.
    Upgrade(RecordedRelease),
}

impl Base {
    /// The last install.
    pub(crate) const fn recorded_release(&self) -> Option<&RecordedRelease> {
        match self {
            Self::Chart => None,
            Self::Recorded(release) | Self::Upgrade(release) => Some(release),
        }
    }

    /// The version where none is given.
    fn default_version(&self) -> Option<String> {
        match self {
            Self::Upgrade(release) => next_version(chart::embedded_versions(), &release.version),
            Self::Chart | Self::Recorded(_) => None,
        }
    }

    /// The values of a chart of that version with those of the last install over them, and the paths of images that these had
    /// locked to digests of another version.
    pub(crate) fn base_values(&self, chart: &Chart, version: &ServiceVersion) -> (ValuesBuilder, Vec<String>) {
        let builder = chart.values_of(version);
        let Some(release) = self.recorded_release() else { return (builder, Vec::new()) };
        let (values, unlocked) = release.values_for_version(chart, version);
        (builder.with_recorded(&values), unlocked)
    }
}

/// Flags that decide what is installed; help texts that differ by command are put in there.
#[derive(Debug, Args)]
pub(crate) struct PackageArgs {
    /// Service version: a line (`v0.6`), a version (`v0.6.1`), or `auto` for the newest that supports the cluster
    /// [default: `version` of the values, else that of `--image-tag`, else v0.6.1]
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,

    /// Image repository of the component [default: that of the chart]
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<String>,

    /// Image tag of the component [default: the service version, v0.6.1]
    #[arg(long, value_name = "TAG")]
    image_tag: Option<String>,

    #[command(flatten)]
    images: ImageArgs,

    #[command(flatten)]
    lock: LockArgs,

    #[command(flatten)]
    values: ValuesArgs,

    #[command(flatten)]
    pub(crate) patches: PatchArgs,
}

impl PackageArgs {
    /// Returns whether the cluster's version must be known before a plan can be made.
    pub(crate) fn asks_cluster(&self) -> bool {
        match self.version.as_deref() {
            Some(version) => version == "auto",
            None => self.values.peek_version().is_some_and(|(version, _)| version == "auto"),
        }
    }

    /// Returns whether none was given.
    pub(crate) fn is_bare(&self) -> bool {
        let given = [&self.version, &self.image_repository, &self.image_tag];
        given.iter().all(|flag| flag.is_none())
            && self.images.is_empty()
            && self.lock.is_empty()
            && self.values.is_empty()
            && self.patches.is_empty()
    }

    /// The version that the flags and values choose, else that of the base, and its chart; `server` is the version of the
    /// cluster for `--version auto`.
    pub(crate) fn choose_chart(
        &self,
        kind: chart::Kind,
        server: Option<KubeMinor>,
        base: &Base,
    ) -> Result<(Selection<'static>, Chart), CliError> {
        let next = base.default_version();
        let selection =
            choose_version(self.version.as_deref(), &self.values, self.image_tag.as_deref(), server, next.as_deref())?;
        let chart = load_chart(kind, &selection).map_err(|error| no_chart(&error))?;
        Ok((selection, chart))
    }

    /// The values in their order, over those of a base, and images locked; the image flags go to the image at the path
    /// `image`, such as `scheduler.image`.
    pub(crate) fn merge_package_values(
        &self,
        (mut builder, unlocked): (ValuesBuilder, Vec<String>),
        image: &str,
    ) -> Result<ValuesBuilder, CliError> {
        builder = self.images.apply_image_flags(self.values.apply_values(builder));
        builder = set_flag_value(
            builder,
            "--image-repository",
            &format!("{image}.repository"),
            self.image_repository.as_deref(),
        )?;
        let builder = set_flag_value(builder, "--image-tag", &format!("{image}.tag"), self.image_tag.as_deref())?;
        let builder = self.lock.apply_image_lock(builder)?;
        still_locked(&builder, &unlocked).map_err(|problems| wrong_values(&problems))?;
        Ok(builder)
    }
}

/// Puts the argument of a flag into the values; one that exists and is empty is an error.
pub(crate) fn set_flag_value(
    builder: ValuesBuilder,
    flag: &str,
    path: &str,
    value: Option<&str>,
) -> Result<ValuesBuilder, CliError> {
    match value {
        None => Ok(builder),
        Some("") => Err(CliError::usage("EmptyFlag", format!("`{flag}` is empty"))
            .hint("leave it out to use the value of the chart or of your files")),
        // The builder keeps the flag's name as the origin of the value.
        Some(value) => Ok(builder.flag(flag, path, value)),
    }
}

/// The name given as argument, else `name` of the values.
pub(crate) fn resolve_name(given: Option<&str>, values: &ValuesBuilder) -> Result<Option<String>, CliError> {
    if let Some(name) = given {
        return Ok(Some(name.to_owned()));
    }
    // As it was written: `name: 2024` is a name, and no number.
    values.peek_text("name").map_err(|problems| wrong_values(&problems))
}

/// Refuses values that no record would hold, before anything is made of them.
pub(crate) fn refuse_too_large(package: &Package) -> Result<(), CliError> {
    package.too_large().map_or(Ok(()), |size| Err(too_large(size)))
}

/// Prints warnings about valid values.
pub(crate) fn warn_of_values(ui: &Ui, package: &Package) {
    for warning in package.value_warnings() {
        ui.write_stderr(&warning.render_diagnostic(false));
    }
}

/// The error where `--version auto` meets a command that asks no cluster.
pub(crate) fn auto_needs_cluster() -> CliError {
    CliError::usage("AutoNeedsCluster", "`--version auto` needs the cluster, which `--dry-run` does not contact")
        .hint("give the version: `--version v0.6`")
}

fn no_chart(error: &PackageError) -> CliError {
    let shown = CliError::new(Exit::Preflight, "NoChart", error.to_string());
    match error {
        PackageError::NoChart { installable, .. } => {
            shown.hint(format!("installable versions: {}", installable.join(", ")))
        }
        PackageError::Chart { source, .. } => shown.because(source),
    }
}
