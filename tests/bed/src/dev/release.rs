//! `cargo bed release`: the files that people download. The same commit gives the same bytes, in whatever folder and home it is
//! built.
//!
//! Programs for Linux are linked by zig against glibc 2.17, which is older than that of every distribution in use, so they need
//! nothing but what is there. What was built here and cannot be run here is named at the end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::parts::cache::{Cache, remove_tree};
use crate::run;
use crate::say::say;

/// What is released: the name in the names of the files, and the target as cargo-zigbuild takes it.
const TARGETS: [(&str, &str); 5] = [
    ("linux-amd64", "x86_64-unknown-linux-gnu.2.17"),
    ("linux-arm64", "aarch64-unknown-linux-gnu.2.17"),
    ("linux-386", "i686-unknown-linux-gnu.2.17"),
    ("darwin-amd64", "x86_64-apple-darwin"),
    ("darwin-arm64", "aarch64-apple-darwin"),
];

/// The linker and C compiler for all of them, and what makes cargo use it, of the Python package index.
const TOOLS: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// What a release is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Programs to build, such as `linux-amd64`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "linux-amd64,linux-arm64,linux-386")]
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
}

/// Shells for which there are completions, with the names of the files as their folders have them.
const SHELLS: [(&str, &str); 3] = [("bash", "fleetctl"), ("zsh", "_fleetctl"), ("fish", "fleetctl.fish")];

/// Builds the files of a release.
pub(crate) fn make(checkout: &Path, args: &Args) -> Result<()> {
    let targets: Vec<(&str, &str)> = args.targets.iter().map(|name| target(name)).collect::<Result<_>>()?;
    let tools = tools(&Cache::here()?)?;
    let out = checkout.join(&args.out);
    remove_tree(&out)?;
    fs::create_dir_all(&out)?;
    let time = run::output_of(Command::new("git").current_dir(checkout).args(["log", "-1", "--format=%ct"]))?;
    let time = time.trim();
    for (name, target) in &targets {
        let program = build(checkout, &tools, target, &args.profile, time)?;
        fs::copy(program, out.join(format!("fleetctl-{name}")))?;
    }
    let files = targets.iter().map(|(name, _)| out.join(format!("fleetctl-{name}")));
    let said: Vec<(PathBuf, Option<String>)> = files.map(|file| (file.clone(), runs(&file))).collect();
    let runs_here = said.iter().find(|(_, said)| said.is_some()).map(|(file, _)| file);
    let runs_here =
        runs_here.context("none of the programs runs here: add the target of this machine, for its pages")?;
    let pages = out.join(".pages");
    documentation(runs_here, &pages)?;
    for (file, _) in &said {
        archive(checkout, file, &pages, time)?;
    }
    remove_tree(&pages)?;
    fs::copy(checkout.join("install.sh"), out.join("install.sh"))?;
    let names: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    fs::write(out.join("krew.yaml"), krew(&out, &names, args.url.as_deref().unwrap_or("."))?)?;
    sums(&out)?;
    for (file, said) in &said {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let said = said.as_deref().unwrap_or("built, not run: this machine cannot");
        say(format!("{name}: {said}"));
    }
    say(format!("the files are in {}", out.display()));
    Ok(())
}

fn target(name: &str) -> Result<(&'static str, &'static str)> {
    let known = TARGETS.iter().find(|(known, _)| *known == name);
    let names = TARGETS.map(|(name, _)| name).join(", ");
    known.copied().with_context(|| format!("there is no target {name}; there are {names}"))
}

/// The folder of programs of an environment of Python that holds the tools; it is made where it is not there.
fn tools(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.root().join("tools").join(TOOLS.join("-").replace("==", "-"));
    if !folder.is_dir() {
        let _lock = cache.lock("tools")?;
        if !folder.is_dir() {
            say(format!("installing {}", TOOLS.join(" and ")));
            let half = folder.with_extension("new");
            remove_tree(&half)?;
            run::output_of(Command::new("python3").args(["-m", "venv"]).arg(&half))?;
            // Of an environment that was moved only its interpreter works.
            run::output_of(
                Command::new(half.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(TOOLS),
            )?;
            fs::rename(&half, &folder)?;
        }
    }
    Ok(folder.join("bin"))
}

/// Builds the program for a target; gives where it is.
fn build(checkout: &Path, tools: &Path, target: &str, profile: &str, time: &str) -> Result<PathBuf> {
    let triple = target.split_once(".2.").map_or(target, |(triple, _)| triple);
    let sysroot = run::output("rustc", &["--print", "sysroot"])?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(triple).is_dir() {
        run::output("rustup", &["target", "add", triple])?;
    }
    say(format!("building for {target} (profile {profile})"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("there is no HOME")?;
    let folders = [(checkout, "/fleetctl"), (&home, "/cargo"), (Path::new(sysroot.trim()), "/rust")];
    let mapped = |option: &str| {
        let each = folders.iter().map(|(folder, name)| format!("{option}={}={name}", folder.display()));
        each.collect::<Vec<_>>()
    };
    let mut command = run::cargo(checkout);
    let program = command.get_program().to_owned();
    let environment: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new(tools.join("cargo-zigbuild"));
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let path = std::env::join_paths(
        std::iter::once(tools.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    command.current_dir(checkout).env("CARGO", program).env("PATH", path);
    command.env("CARGO_ENCODED_RUSTFLAGS", mapped("--remap-path-prefix").join("\u{1f}"));
    command.env("CFLAGS", mapped("-ffile-prefix-map").join(" ")).env("SOURCE_DATE_EPOCH", time);
    command.env("CARGO_ZIGBUILD_PYTHON_PATH", tools.join("python"));
    let target_folder = checkout.join("target/release-build");
    command.args(["zigbuild", "--locked", "--package", "fleetctl", "--bin", "fleetctl"]);
    command.args(["--profile", profile, "--target", target]).arg("--target-dir").arg(&target_folder);
    let status = command.status().context("cargo-zigbuild cannot be started")?;
    if !status.success() {
        bail!("fleetctl cannot be built for {target}");
    }
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_folder.join(triple).join(folder).join("fleetctl"))
}

/// Has a program write its manual pages and completions into a folder.
fn documentation(program: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into.join("completions"))?;
    run::output_of(Command::new(program).arg("man").arg("--dir").arg(into.join("man")))?;
    for (shell, file) in SHELLS {
        let script = run::output_of(Command::new(program).args(["completion", shell]))?;
        fs::write(into.join("completions").join(file), script)?;
    }
    Ok(())
}

/// The plugin as krew installs it, out of the archives of a release: from a file, by
/// `kubectl krew install --manifest krew.yaml --archive fleetctl-linux-amd64.tar.gz`, or from where the release is.
fn krew(folder: &Path, names: &[&str], url: &str) -> Result<String> {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nmetadata:\n  name: fleet\nspec:\n  \
         version: v{}\n  shortDescription: Runs workloads of one API in many clusters\n  description: |\n    Installs, checks, \
         keeps and removes a control plane that places workloads onto\n    clusters, and the agents in these.\n  platforms:\n",
        env!("CARGO_PKG_VERSION")
    );
    for name in names {
        let (os, architecture) = name.split_once('-').context("a name is of a system and an architecture")?;
        let archive = format!("fleetctl-{name}.tar.gz");
        let digest = sha256(&folder.join(&archive))?;
        write!(
            text,
            "  - selector:\n      matchLabels: {{os: {os}, arch: \"{architecture}\"}}\n    uri: {url}/{archive}\n    sha256: \
             {digest}\n    bin: fleetctl\n    files:\n    - {{from: fleetctl, to: .}}\n    - {{from: LICENSE, to: .}}\n"
        )?;
    }
    Ok(text)
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
    let tar = file.with_file_name(format!("{name}.tar"));
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", "--format=ustar"]);
    command.arg(format!("--mtime=@{time}")).arg("-C").arg(&folder).arg("-cf").arg(&tar);
    command.args(["LICENSE", "completions", "fleetctl", "man"]);
    run::output_of(&mut command)?;
    run::output_of(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&tar))?;
    remove_tree(&folder)?;
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

/// What a program says of its version, where this machine can run it.
fn runs(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_krew_names_each_archive_with_its_digest() {
        let folder = std::env::temp_dir().join(format!("krew-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("fleetctl-linux-386.tar.gz"), "x").unwrap();
        let text = krew(&folder, &["linux-386"], "https://example.com/v1").unwrap();
        remove_tree(&folder).unwrap();
        for line in [
            "      matchLabels: {os: linux, arch: \"386\"}\n",
            "    uri: https://example.com/v1/fleetctl-linux-386.tar.gz\n",
            "    sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
