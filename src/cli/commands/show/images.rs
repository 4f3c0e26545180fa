//! `show images`: every image that a service version runs, for a mirror or an air gap.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::json;

use crate::api::shell::quote_word;
use crate::chart::inspect::show::{UsedImage, list_used_images};
use crate::chart::values::ImageLock;
use crate::chart::{Kind, output, read_file};
use crate::cli::args::chart_choice::ChartArgs;
use crate::cli::args::global::Global;
use crate::cli::args::images::ImageArgs;
use crate::cli::args::lock::LockArgs;
use crate::cli::args::own_image::OwnImageArgs;
use crate::cli::args::patches::PatchArgs;
use crate::cli::args::values::{ValuesArgs, with_precedence};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_values;
use crate::cli::render_offline::{NoPreview, render_preview};

/// List all images, for a mirror
#[derive(Debug, Args)]
#[command(after_help = with_precedence!("Examples:
  fleetctl show images --version v1.1
  fleetctl show images -o name | sort -u
  fleetctl show images --image-registry mirror.example:5000 -o skopeo > copy.sh
  fleetctl show images cp --values my.yaml --image-registry mirror.example:5000 -o json"))]
pub(crate) struct ShowImagesArgs {
    #[command(flatten)]
    chart: ChartArgs,

    /// Output format [default: a table]; `skopeo` and `crane` print one command per image; it copies all platforms of
    /// the image to the registry of `--image-registry`, by digest if `--image-lock` has the digest
    #[arg(short, long, alias = "format", value_enum, value_name = "FORMAT")]
    output: Option<ImagesFormat>,

    #[command(flatten)]
    own_image: OwnImageArgs,

    /// Print an image lock for `--image-lock` instead, with the digests from this file; it has one line per image,
    /// `IMAGE:TAG sha256:…`, as registry tools print them; `-` for standard input
    #[arg(long, value_name = "FILE")]
    digests: Option<PathBuf>,

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
enum ImagesFormat {
    Table,
    Json,
    Yaml,
    /// The images alone, each once.
    Name,
    /// Commands of skopeo that copy the images to the mirror.
    Skopeo,
    /// The same of crane.
    Crane,
    /// The images as hauler takes them into a store.
    Hauler,
}

/// An image and what runs it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedImage {
    image: String,
    used_by: Vec<User>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User {
    chart: Kind,
    object: String,
    container: String,
    pull_policy: Option<String>,
    pull_secrets: Vec<String>,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &ShowImagesArgs) -> Result<Exit, CliError> {
    let selection = args.chart.selection_with(&args.values, args.own_image.image_tag.as_deref())?;
    let kinds = match args.chart.chart {
        Some(kind) => vec![kind],
        // Values are of one chart; without any, a mirror wants the images of all.
        None if args.values.is_empty() && args.own_image.is_empty() && args.patches.is_empty() => {
            selection.row.charts.keys().copied().collect()
        }
        None => {
            return Err(CliError::usage("ChartMissing", "name the chart that the values are for")
                .hint("`fleetctl show images control-plane …` or `fleetctl show images agent …`"));
        }
    };
    let patches = args.patches.read_patches()?;
    let mut listed: BTreeMap<String, Vec<User>> = BTreeMap::new();
    let mut mirror = None;
    for kind in kinds {
        let preview = render_preview(kind, &selection, &global.namespace, &patches, |builder| {
            let builder = args.images.apply_image_flags(args.values.apply_values(builder));
            mirror = builder.peek_text("imageRegistry").map_err(|problems| wrong_values(&problems))?;
            args.lock.apply_image_lock(args.own_image.apply_own_image(kind, builder)?)
        });
        let preview = preview.map_err(|why| match why {
            NoPreview::Values(problems) => wrong_values(&problems),
            NoPreview::Other(error) => error,
        })?;
        for UsedImage { image, object, container, pull_policy, pull_secrets } in list_used_images(&preview.rendered) {
            listed.entry(image).or_default().push(User { chart: kind, object, container, pull_policy, pull_secrets });
        }
    }
    if let Some(file) = &args.digests {
        ui.write_stdout(&lock_images(file, args.output, listed.keys().map(String::as_str))?)?;
        return Ok(Exit::Ok);
    }
    let listed: Vec<ListedImage> = listed.into_iter().map(|(image, used_by)| ListedImage { image, used_by }).collect();
    ui.write_stdout(&match args.output.unwrap_or(ImagesFormat::Table) {
        ImagesFormat::Json => output::format_json(&listed),
        ImagesFormat::Yaml => output::format_yaml(&listed),
        ImagesFormat::Name => listed.iter().map(|listed| format!("{}\n", listed.image)).collect(),
        ImagesFormat::Table => format_images(&listed),
        ImagesFormat::Skopeo => format_copy_commands(&listed, mirror.as_deref(), |from, to| {
            format!("skopeo copy --all --preserve-digests docker://{from} docker://{to}")
        })?,
        ImagesFormat::Crane => {
            format_copy_commands(&listed, mirror.as_deref(), |from, to| format!("crane copy {from} {to}"))?
        }
        ImagesFormat::Hauler => hauler_manifest(&listed, mirror.as_deref()),
    })?;
    Ok(Exit::Ok)
}

/// A line for each image that copies it from where it is to the mirror.
fn format_copy_commands(
    listed: &[ListedImage],
    mirror: Option<&str>,
    line: impl Fn(&str, &str) -> String,
) -> Result<String, CliError> {
    let mirror = mirror.ok_or_else(|| {
        CliError::usage("Usage", "`-o skopeo` and `-o crane` need `--image-registry MIRROR`")
            .hint("for example: --image-registry mirror.example:5000")
    })?;
    let lines = listed.iter().map(|listed| {
        let image = strip_mirror(&listed.image, Some(mirror));
        let to = format!("{mirror}/{}", without_digest(image));
        line(&quote_word(&without_tag(image)), &quote_word(&to)) + "\n"
    });
    Ok(lines.collect())
}

/// The images where they come from, as a manifest of hauler.
fn hauler_manifest(listed: &[ListedImage], mirror: Option<&str>) -> String {
    let images: Vec<_> =
        listed.iter().map(|listed| json!({ "name": strip_mirror(&listed.image, mirror).to_owned() })).collect();
    output::format_yaml(&json!({
        "apiVersion": "content.hauler.cattle.io/v1",
        "kind": "Images",
        "metadata": { "name": "fleet" },
        "spec": { "images": images },
    }))
}

/// An image as it is named where it comes from.
fn strip_mirror<'i>(image: &'i str, mirror: Option<&str>) -> &'i str {
    mirror.and_then(|mirror| image.strip_prefix(mirror)?.strip_prefix('/')).unwrap_or(image)
}

/// An image by its tag, unless it has a digest alone.
fn without_digest(image: &str) -> &str {
    match image.split_once('@') {
        Some((name, _)) if without_tag(image).len() < image.len() => name,
        _ => image,
    }
}

/// An image by its digest, where it has one: no tool takes both.
fn without_tag(image: &str) -> String {
    let Some((name, digest)) = image.split_once('@') else { return image.to_owned() };
    let folder = name.rfind('/').map_or(0, |slash| slash + 1);
    let end = name[folder..].find(':').map_or(name.len(), |colon| folder + colon);
    format!("{}@{digest}", &name[..end])
}

/// The lock of these images, with digests out of a file.
fn lock_images<'i>(
    file: &Path,
    format: Option<ImagesFormat>,
    images: impl IntoIterator<Item = &'i str>,
) -> Result<String, CliError> {
    let path = file.display().to_string();
    let name = if path == "-" { "standard input" } else { &path };
    let digests = read_file(&path).map_err(Into::into).and_then(|bytes| ImageLock::of_lines(name, &bytes));
    let lock = digests.and_then(|digests| digests.of_images(images)).map_err(|problems| wrong_values(&problems))?;
    let between = match format {
        Some(ImagesFormat::Json) => return Ok(output::format_json(&lock.to_json())),
        Some(ImagesFormat::Name) => "@",
        Some(ImagesFormat::Table) => " ",
        // Of a lock there are no copies.
        Some(ImagesFormat::Yaml | ImagesFormat::Skopeo | ImagesFormat::Crane | ImagesFormat::Hauler) | None => {
            return Ok(lock.to_yaml());
        }
    };
    Ok(lock.digest_entries().map(|(image, digest)| format!("{image}{between}{digest}\n")).collect())
}

fn format_images(listed: &[ListedImage]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["IMAGE", "USED BY", "PULL POLICY", "PULL SECRETS"]);
    for ListedImage { image, used_by } in listed {
        for user in used_by {
            let secrets = if user.pull_secrets.is_empty() { "-".to_owned() } else { user.pull_secrets.join(", ") };
            table.add_row([
                image.clone(),
                format!("{} {}", user.object, user.container),
                user.pull_policy.clone().unwrap_or_else(|| "-".to_owned()),
                secrets,
            ]);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_copied_by_its_digest_to_its_tag() {
        for (image, from, to) in [
            ("r.example:5000/a/b:1", "r.example:5000/a/b:1", "r.example:5000/a/b:1"),
            ("r.example:5000/a/b:1@sha256:0", "r.example:5000/a/b@sha256:0", "r.example:5000/a/b:1"),
            ("r.example:5000/a/b@sha256:0", "r.example:5000/a/b@sha256:0", "r.example:5000/a/b@sha256:0"),
        ] {
            assert_eq!((without_tag(image).as_str(), without_digest(image)), (from, to), "{image}");
        }
    }
}
