//! The API's own schemas of every Kubernetes minor that the service supports or brings, out of Kubernetes' source: rendered
//! objects of each can be validated without building its server.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use crate::parts::cache::{Cache, remove_tree};
use crate::run::output_of;
use crate::say::say;

/// Version and checksum of a source: the last patch of its minor whose modules can all be had. The checksums stand here
/// because some of these versions are unknown to Go's public database of them.
const SOURCES: [(&str, &str); 14] = [
    ("1.24.17", "h1:+4+5VIoxcDv35PnVELouMdDC58AQF/sWs+hjjr4Ra44="),
    ("1.25.4", "h1:M1+MR8IxE64zHhSSDn30twChLaOI+p0Kt77pvyQMKwU="),
    ("1.26.13", "h1:35SetZIBad4bsvQgLwLs8/m4isGB5aw+WGheuxqR2LU="),
    ("1.27.8", "h1:K848lTo/D0jvrxUlTvw4nNADixbhXLHgKNDP/KlFGy8="),
    ("1.28.15", "h1:d91N2Znk+E8REIJZlrD6za2JtIwvEypa0DB1IoU4fJ0="),
    ("1.29.15", "h1:hLcyf3XmxtfkubCEmmPX5QVD7lDclXjvEUrJeP283LM="),
    ("1.30.4", "h1:LfWX7JNmT9Hp8uFVHsB9gQCZesjcWTQ02PHwMz6dGqk="),
    ("1.31.4", "h1:VQDX52gTQnq8C/jCo48AQuDsWbWMh9XXxhQRDYjgakw="),
    ("1.32.13", "h1:5TGYdZ6YZqdp6h/Rp1vX/4TIoybMPdgv97LCZCtPuNQ="),
    ("1.33.13", "h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ="),
    ("1.34.4", "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk="),
    ("1.35.4", "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM="),
    ("1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="),
    ("1.37.2", "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="),
];

const MODULE: &str = "k8s.io/kubernetes";

/// What `go mod download` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    #[serde(default)]
    dir: String,
    #[serde(default)]
    sum: String,
    #[serde(default)]
    error: String,
}

fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// Fetches the schemas that the cache lacks, one source at a time; of each only the schemas stay.
pub(crate) fn fetch(cache: &Cache) -> Result<()> {
    let missing = || SOURCES.iter().filter(|(version, _)| !cache.openapi(minor(version)).is_dir());
    if missing().next().is_none() {
        return Ok(());
    }
    let _lock = cache.lock("schemas")?;
    let go = crate::run::find("go").context("`go` is not in PATH: install Go 1.26 or newer from https://go.dev/dl/")?;
    let work = cache.work().join("schemas");
    for (version, sum) in missing() {
        say(format!("fetching the API's schemas of Kubernetes {version}"));
        let fetched = fetch_one(cache, &go, &work, version, sum);
        remove_tree(&work)?;
        fetched.with_context(|| format!("cannot fetch the schemas of Kubernetes {version}"))?;
    }
    Ok(())
}

fn fetch_one(cache: &Cache, go: &Path, work: &Path, version: &str, sum: &str) -> Result<()> {
    fs::create_dir_all(work)?;
    let mut command = Command::new(go);
    command
        .args(["mod", "download", "-json", &format!("{MODULE}@v{version}")])
        .current_dir(work)
        .env("GOMODCACHE", work.join("gomod"))
        .env("GOFLAGS", "-modcacherw")
        .env("GONOSUMDB", MODULE)
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null());
    let text = output_of(&mut command)?;
    let downloaded: Downloaded = serde_json::from_str(&text).context("`go mod download` says something else")?;
    if !downloaded.error.is_empty() {
        bail!("{}", downloaded.error);
    }
    if downloaded.sum != sum {
        bail!("the source has the checksum {}, but {sum} is expected", downloaded.sum);
    }
    let source = Path::new(&downloaded.dir).join("api/openapi-spec/v3");
    let staged = work.join("staged");
    fs::create_dir_all(&staged)?;
    for file in fs::read_dir(source)? {
        let file = file?;
        fs::copy(file.path(), staged.join(file.file_name()))?;
    }
    let target = cache.openapi(minor(version));
    fs::create_dir_all(target.parent().context("a folder above")?)?;
    fs::rename(staged, target)?;
    Ok(())
}
