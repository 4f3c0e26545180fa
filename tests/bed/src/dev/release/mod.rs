//! `cargo bed release`: the files that people download. The same commit gives the same bytes, in whatever folder and home it is
//! built.
//!
//! Programs for Linux are linked by zig against glibc 2.17, which is older than that of every distribution in use, so they need
//! nothing but what is there; those for macOS by the linker of Rust. What was built here and cannot be run here is named at the end.

mod contents;
mod images;
mod krew;
mod macos;
mod programs;
mod served;
mod smoke;
mod twice;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::parts::cache::{Cache, remove_tree};
use crate::parts::packages;
use crate::run;
use crate::say::say;
use programs::{Build, Tools};
use smoke::Way;

/// What is released: the name in the names of the files, and the target as cargo-zigbuild takes it.
const TARGETS: [(&str, &str); 5] = [
    ("linux-amd64", "x86_64-unknown-linux-gnu.2.17"),
    ("linux-arm64", "aarch64-unknown-linux-gnu.2.17"),
    ("linux-386", "i686-unknown-linux-gnu.2.17"),
    ("darwin-amd64", "x86_64-apple-darwin"),
    ("darwin-arm64", "aarch64-apple-darwin"),
];

/// What a release is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Programs to build, such as `linux-amd64`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = TARGETS.map(|(name, _)| name))]
    targets: Vec<String>,
    /// Folder for the files; what is in it goes
    #[arg(long, value_name = "FOLDER", default_value = "target/release-files")]
    out: PathBuf,
    /// Profile of Cargo.toml
    #[arg(long, default_value = "release")]
    profile: String,
    /// Where the files will be, for the manifest of krew
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Name of the plugin in the manifest of krew: `kubectl NAME` runs it
    #[arg(long, value_name = "NAME", default_value = krew::NAME)]
    krew_name: String,
    /// Also the images of fleet-scheduler and fleet-agent, for amd64 and arm64 as one index each; takes root
    #[arg(long)]
    images: bool,
    /// Build all of it again, in another folder, with another home and umask, and compare
    #[arg(long)]
    twice: bool,
    /// Where the sources are
    #[arg(long, value_name = "FOLDER", hide = true)]
    checkout: Option<PathBuf>,
}

/// Shells for which there are completions, with the names of the files as their folders have them.
const SHELLS: [(&str, &str); 3] = [("bash", "fleetctl"), ("zsh", "_fleetctl"), ("fish", "fleetctl.fish")];

/// Builds the files of a release.
pub(crate) fn make(checkout: &Path, args: &Args) -> Result<()> {
    let checkout = args.checkout.as_deref().unwrap_or(checkout);
    let targets: Vec<(&str, &str)> = args.targets.iter().map(|name| target(name)).collect::<Result<_>>()?;
    if args.images {
        packages::cross_linker()?;
    }
    packages::emulators();
    let tools = Tools::install(&Cache::here()?, checkout)?;
    let out = checkout.join(&args.out);
    remove_tree(&out)?;
    fs::create_dir_all(&out)?;
    let time = time(checkout)?;
    let build = Build { checkout, tools: &tools, profile: &args.profile, time: &time };
    let mut files = Vec::new();
    for (name, target) in &targets {
        let file = out.join(format!("fleetctl-{name}"));
        fs::copy(build.fleetctl(target)?, &file)?;
        contents::write(&build, "fleetctl", triple(target), &out.join(format!("fleetctl-{name}.cdx.json")))?;
        files.push(file);
    }
    let ways = targets.iter().zip(&files).map(|((name, _), file)| Way::of(file, architecture(name)));
    let ways: Vec<(&Path, Option<Way>)> = files.iter().map(PathBuf::as_path).zip(ways).collect();
    let said = smoke::alike(&ways)?;
    let runs_here = ways.iter().find_map(|(file, way)| Some((*file, (*way)?)));
    let (file, way) =
        runs_here.context("none of the programs runs here: add the target of this machine, for its pages")?;
    let pages = out.join(".pages");
    documentation(|| way.command(file), &pages)?;
    for file in &files {
        archive(checkout, file, &pages, &time)?;
    }
    remove_tree(&pages)?;
    if args.images {
        images::make(&build, &out)?;
    }
    fs::copy(checkout.join("install.sh"), out.join("install.sh"))?;
    let names: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    let url = args.url.as_deref().unwrap_or(".");
    fs::write(out.join("krew.yaml"), krew::manifest(&out, &args.krew_name, &names, url)?)?;
    sums(&out)?;
    let own = own_architecture().map(|own| out.join(format!("fleetctl-linux-{own}")));
    if let Some(own) = own.filter(|own| files.contains(own)) {
        say(format!("install.sh from a server of these files: {}", served::install(&out, &own)?));
    }
    let krew = krew::program()?;
    for ((file, way), name) in ways.iter().zip(&names) {
        if let Some(way) = way {
            say(format!("krew install for {name}: {}", krew::install(&krew, &out, &args.krew_name, name, file, *way)?));
        }
    }
    for (file, said) in files.iter().zip(&said) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let said = said.as_deref().unwrap_or("built, not run: this machine cannot");
        say(format!("{name}: {said}"));
    }
    say(format!("the files are in {}", out.display()));
    if args.twice { twice::compare(checkout, args, &time, &out) } else { Ok(()) }
}

/// The time that everything made here has: that of the commit, in seconds, or `SOURCE_DATE_EPOCH` where there is no commit.
fn time(checkout: &Path) -> Result<String> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let time = run::output_of(Command::new("git").current_dir(checkout).args(["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

/// The target as rustc knows it, without the version of the C library.
fn triple(target: &str) -> &str {
    target.split_once(".2.").map_or(target, |(triple, _)| triple)
}

/// The architecture of this machine as releases call it.
fn own_architecture() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some("amd64"),
        "aarch64" => Some("arm64"),
        "x86" => Some("386"),
        _ => None,
    }
}

/// The architecture of a name such as `linux-arm64`.
fn architecture(name: &str) -> &str {
    name.split_once('-').map_or(name, |(_, architecture)| architecture)
}

fn target(name: &str) -> Result<(&'static str, &'static str)> {
    let known = TARGETS.iter().find(|(known, _)| *known == name);
    let names = TARGETS.map(|(name, _)| name).join(", ");
    known.copied().with_context(|| format!("there is no target {name}; there are {names}"))
}

/// Has a program write its manual pages and completions into a folder.
fn documentation(program: impl Fn() -> Command, into: &Path) -> Result<()> {
    fs::create_dir_all(into.join("completions"))?;
    run::output_of(program().arg("man").arg("--dir").arg(into.join("man")))?;
    for (shell, file) in SHELLS {
        let script = run::output_of(program().args(["completion", shell]))?;
        fs::write(into.join("completions").join(file), script)?;
    }
    Ok(())
}

/// The program with its licence, its manual pages and its completions, for tools that want an archive.
fn archive(checkout: &Path, file: &Path, pages: &Path, time: &str) -> Result<()> {
    let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
    let folder = file.with_file_name(".archive");
    remove_tree(&folder)?;
    fs::create_dir_all(&folder)?;
    fs::copy(file, folder.join("fleetctl"))?;
    fs::copy(checkout.join("LICENSE"), folder.join("LICENSE"))?;
    for part in ["man", "completions"] {
        fs::create_dir_all(folder.join(part))?;
        for entry in fs::read_dir(pages.join(part))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(part).join(entry.file_name()))?;
        }
    }
    let file = file.with_file_name(format!("{name}.tar"));
    tar(&folder, &file, time, &["LICENSE", "completions", "fleetctl", "man"])?;
    run::output_of(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&file))?;
    remove_tree(&folder)
}

/// Archives these parts of a folder, so that the same files give the same bytes.
fn tar(folder: &Path, file: &Path, time: &str, parts: &[&str]) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", "--format=ustar"]);
    command.arg(format!("--mtime=@{time}")).arg("-C").arg(folder).arg("-cf").arg(file);
    run::output_of(command.args(parts))?;
    Ok(())
}

/// `SHA256SUMS`, as sha256sum reads it.
fn sums(folder: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        writeln!(text, "{}  {name}", sha256(&folder.join(&name))?)?;
    }
    fs::write(folder.join("SHA256SUMS"), text)?;
    Ok(())
}

/// Digits of the SHA-256 of a file.
fn sha256(file: &Path) -> Result<String> {
    let digest = Sha256::digest(fs::read(file)?);
    Ok(digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}
