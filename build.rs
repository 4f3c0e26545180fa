//! Compiles the charts and the presets of values into the binary, as a list of (path, text).
//!
//! A list written here, rather than a folder macro: a new file leads to a new build, a file that
//! is not text or has an unexpected extension stops the build, and a missing folder is an empty one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The folders that are compiled in, and the extensions that each may hold.
const FOLDERS: [(&str, &[&str]); 2] = [("charts", &["yaml"]), ("values", &["yaml", "json"])];

/// Files for people that may lie beside the data; they are not compiled in.
const IGNORED: [&str; 2] = ["README.md", ".gitkeep"];

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
}

fn list(root: &Path, folder: &str, extensions: &[&str]) -> String {
    // Also watched while it does not exist, so that its creation is noticed.
    println!("cargo::rerun-if-changed={folder}");
    let mut found = Vec::new();
    files_below(&root.join(folder), &mut found);
    found.sort();
    let mut code = format!("pub(super) static {}: &[(&str, &str)] = &[\n", folder.to_uppercase());
    for path in found {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if IGNORED.contains(&name.as_ref()) {
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        assert!(
            extensions.contains(&extension.as_ref()),
            "{} does not belong into {folder}/: only files ending in {extensions:?} are compiled in",
            path.display()
        );
        let below = path.strip_prefix(root.join(folder)).expect("a path below its folder");
        let below = below.to_string_lossy().replace('\\', "/");
        writeln!(code, "    ({below:?}, include_str!({:?})),", path.display().to_string()).expect("writing to text");
    }
    code.push_str("];\n");
    code
}

/// What a git command prints, or nothing outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git").args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Gives `--version` the commit and its time. The commit's time, not the build's: the same source gives the same binary.
fn stamp() {
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=8", "HEAD"]).unwrap_or_else(|| "00000000".to_owned());
    let time = git(&["log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd"]);
    println!("cargo::rustc-env=FLEETCTL_GIT={commit}");
    println!("cargo::rustc-env=FLEETCTL_BUILT={}", time.unwrap_or_else(|| "00000000000000".to_owned()));
}

fn main() {
    stamp();
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let code: String = FOLDERS.iter().map(|(folder, extensions)| list(&root, folder, extensions)).collect();
    fs::write(out.join("embedded.rs"), code).expect("a writable OUT_DIR");
}
