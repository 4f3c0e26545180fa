//! Putting an image archive into the bed's registry.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cluster::registry::path_and_tag;
use crate::run;

/// Copies every image of a docker-archive to the registry, under the names that the archive gives them.
pub(crate) fn archive(file: &Path, endpoint: &str) -> Result<Vec<String>> {
    let shown = file.display().to_string();
    let manifest = run::output("tar", &["-xOf", &shown, "manifest.json"])
        .with_context(|| format!("{shown} is no docker-archive; write one with `docker save` or `buildah push IMAGE docker-archive:FILE:NAME`"))?;
    let images: Vec<serde_json::Value> =
        serde_json::from_str(&manifest).with_context(|| format!("manifest.json in {shown}"))?;
    let tags = images.iter().filter_map(|image| image["RepoTags"].as_array()).flatten();
    let names: Vec<_> = tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect();
    if names.is_empty() {
        bail!("{shown} names no image; write it again with a name, `docker save NAME:TAG`");
    }
    for name in &names {
        let (path, tag) = path_and_tag(name);
        let (from, to) = (format!("docker-archive:{shown}:{name}"), format!("docker://{endpoint}/{path}:{tag}"));
        run::output("skopeo", &["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false", &from, &to])?;
    }
    Ok(names)
}
