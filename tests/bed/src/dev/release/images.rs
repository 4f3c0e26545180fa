//! The images of a release: an index of both architectures for each program, as a file that skopeo copies to any registry.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde_json::Value;

use super::programs::Build;
use super::smoke::Way;
use super::{contents, sha256, tar};
use crate::parts::cache::remove_tree;
use crate::parts::images::Builder;
use crate::parts::product::PROGRAMS;
use crate::run;
use crate::say::say;

/// The architectures of nodes, as images and as compilers call them.
const ARCHITECTURES: [(&str, &str); 2] = [("amd64", "x86_64"), ("arm64", "aarch64")];

/// The file that says which digest stands for which tag, as `show images --digests` reads it.
const DIGESTS: &str = "image-digests.txt";

/// Builds the images into a folder.
pub(super) fn make(build: &Build<'_>, out: &Path) -> Result<()> {
    let work = out.join(".images");
    for (architecture, cpu) in ARCHITECTURES {
        let context = work.join(architecture);
        fs::create_dir_all(&context)?;
        for program in build.daemons(cpu)? {
            let file = context.join(program.file_name().context("a program has a name")?);
            fs::copy(&program, &file)?;
            // Whatever umask it was built with: root owns it in the image, and somebody else runs it.
            fs::set_permissions(&file, PermissionsExt::from_mode(0o755))?;
        }
    }
    let builder = Builder::in_folder(work.join("store"));
    let recipe = build.checkout.join("src/bin/Containerfile");
    let mut digests =
        String::from("# The images of this release by their tags, for `fleetctl show images --digests`.\n");
    for program in PROGRAMS {
        for (architecture, _) in ARCHITECTURES {
            let platform = format!("linux/{architecture}");
            builder.build_for(&platform, &recipe, &work.join(architecture), program, program)?;
        }
        for (architecture, cpu) in ARCHITECTURES {
            let file = out.join(format!("{program}-{architecture}.cdx.json"));
            contents::write(build, program, &format!("{cpu}-unknown-linux-gnu"), &file)?;
        }
        let layout = work.join(program);
        builder.save_index(program, &layout)?;
        let digest = index(&layout)?;
        for said in answers(&layout, program)? {
            say(format!("{program}: {said}"));
        }
        say(format!("{program}: {digest}"));
        tar(&layout, &out.join(format!("{program}.oci.tar")), build.time, &["blobs", "index.json", "oci-layout"])?;
        for name in names(&fs::read_to_string(build.checkout.join("charts/versions.yaml"))?, program)? {
            writeln!(digests, "{name} {digest}")?;
        }
    }
    fs::write(out.join(DIGESTS), digests)?;
    remove_tree(&work)
}

/// Under which names the charts look for a program's image: one for each line of the table of versions.
fn names(table: &str, program: &str) -> Result<Vec<String>> {
    let table: Value = serde_saphyr::from_str(table)?;
    let lines = table["lines"].as_array().context("the table of versions has no lines")?;
    let images = lines.iter().filter_map(|line| line["images"].as_object()).flat_map(|images| images.values());
    let named = images.filter_map(|image| Some((image["repository"].as_str()?, image["tag"].as_str()?)));
    let ours = named.filter(|(repository, _)| repository.rsplit('/').next() == Some(program));
    Ok(ours.map(|(repository, tag)| format!("{repository}:{tag}")).collect())
}

/// A file of a layout by its digest, which has to be that of its bytes.
fn blob(layout: &Path, digest: &Value) -> Result<std::path::PathBuf> {
    let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("there is no digest")?;
    let file = layout.join("blobs/sha256").join(digest);
    if sha256(&file)? != digest {
        bail!("{} is not what its digest says", file.display());
    }
    Ok(file)
}

fn json(file: &Path) -> Result<Value> {
    serde_json::from_str(&fs::read_to_string(file)?).with_context(|| format!("{} is no JSON", file.display()))
}

/// The digest of the one index that a layout holds.
fn index(layout: &Path) -> Result<String> {
    let top = json(&layout.join("index.json"))?;
    let [only] = top["manifests"].as_array().map_or(&[][..], Vec::as_slice) else {
        bail!("{} does not hold one index", layout.display());
    };
    Ok(only["digest"].as_str().context("there is no digest")?.to_owned())
}

/// Runs the program out of each image of a layout, and gives what it says of its version.
fn answers(layout: &Path, program: &str) -> Result<Vec<String>> {
    let images = json(&blob(layout, &Value::String(index(layout)?))?)?;
    let mut said = Vec::new();
    for image in images["manifests"].as_array().context("an index has manifests")? {
        let architecture = image["platform"]["architecture"].as_str().context("an image has an architecture")?;
        let manifest = json(&blob(layout, &image["digest"])?)?;
        let folder = layout.with_extension("unpacked");
        fs::create_dir_all(&folder)?;
        for layer in manifest["layers"].as_array().context("an image has layers")? {
            let layer = blob(layout, &layer["digest"])?;
            run::output_of(Command::new("tar").arg("-xzf").arg(layer).arg("-C").arg(&folder))?;
        }
        let file = folder.join("usr/local/bin").join(program);
        said.push(match Way::of(&file, architecture) {
            Some(way) => {
                let version = run::output_of(way.command(&file).arg("--version"))?;
                format!("{architecture}: {}{}", version.trim(), way.remark())
            }
            None => format!("{architecture}: built, not run: this machine cannot"),
        });
        remove_tree(&folder)?;
    }
    if said.len() != ARCHITECTURES.len() {
        bail!("the index of {program} has {} images", said.len());
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_an_image_are_those_of_the_table() {
        let table = "lines:\n- version: v2\n  images:\n    scheduler: {repository: a/fleet-scheduler, tag: v2.0.0}\n    agent: \
                     {repository: a/fleet-agent, tag: v2.0.0}\n- version: v1\n  images:\n    agent: {repository: a/fleet-agent, \
                     tag: v1.4.0}\n";
        assert_eq!(names(table, "fleet-agent").unwrap(), ["a/fleet-agent:v2.0.0", "a/fleet-agent:v1.4.0"]);
        assert_eq!(names(table, "fleet-scheduler").unwrap(), ["a/fleet-scheduler:v2.0.0"]);
    }

    #[test]
    fn a_blob_with_other_bytes_than_its_digest_is_refused() {
        let layout = tempfile::TempDir::new().unwrap();
        let digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
        let file = layout.path().join("blobs/sha256").join(digest);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let value = Value::String(format!("sha256:{digest}"));
        fs::write(&file, "x").unwrap();
        assert_eq!(blob(layout.path(), &value).unwrap(), file);
        fs::write(&file, "y").unwrap();
        assert!(blob(layout.path(), &value).unwrap_err().to_string().contains("is not what its digest says"));
    }
}
