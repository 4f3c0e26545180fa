//! The programs of a release: how each is compiled, so that its bytes depend on the sources and the tools alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use super::macos;
use crate::parts::cache::{Cache, remove_tree};
use crate::parts::packages::is_static;
use crate::parts::product::PROGRAMS;
use crate::run;
use crate::say::say;

/// The linker and C compiler for all targets, and what makes cargo use it, of the Python package index.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];
/// What writes the list of crates into a program, and what writes it into a file of its own.
const LISTS: [(&str, &str); 2] = [("cargo-auditable", "0.7.7"), ("cargo-cyclonedx", "0.5.9")];

/// Programs of others that builds need, in folders of the cache.
#[derive(Debug)]
pub(super) struct Tools {
    zig: PathBuf,
    lists: [PathBuf; 2],
}

impl Tools {
    /// Installs what the cache lacks.
    pub(super) fn install(cache: &Cache, checkout: &Path) -> Result<Self> {
        let zig = installed(cache, &ZIG.join("-").replace("==", "-"), |folder| {
            run::output_of(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            // Of an environment that was moved only its interpreter works.
            run::output_of(Command::new(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(ZIG))
        })?;
        let lists = LISTS.map(|(name, version)| {
            installed(cache, &format!("{name}-{version}"), |folder| {
                let mut install = run::cargo(checkout);
                install.args(["install", "--quiet", "--locked", "--debug", name, "--version", version, "--root"]);
                run::output_of(install.arg(folder))
            })
        });
        let [auditable, cyclonedx] = lists;
        Ok(Self { zig, lists: [auditable?, cyclonedx?] })
    }

    /// What `cargo cyclonedx` runs.
    pub(super) fn cyclonedx(&self) -> PathBuf {
        self.lists[1].join("cargo-cyclonedx")
    }
}

/// The folder of programs of a tool; `install` fills it where it is not there.
fn installed(cache: &Cache, name: &str, install: impl Fn(&Path) -> Result<String>) -> Result<PathBuf> {
    let folder = cache.root().join("tools").join(name);
    if !folder.is_dir() {
        let _lock = cache.lock("tools")?;
        if !folder.is_dir() {
            say(format!("installing {name}"));
            let half = folder.with_extension("new");
            remove_tree(&half)?;
            install(&half)?;
            fs::rename(&half, &folder)?;
        }
    }
    Ok(folder.join("bin"))
}

/// The variable that tells cargo the linker for a target.
pub(super) fn linker_variable(triple: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", triple.replace('-', "_").to_uppercase())
}

/// Where the sources are, and what their build depends on beside them.
#[derive(Debug)]
pub(super) struct Build<'a> {
    pub(super) checkout: &'a Path,
    pub(super) tools: &'a Tools,
    pub(super) profile: &'a str,
    /// The time of the commit, in seconds.
    pub(super) time: &'a str,
}

/// The `MARK` of `src/cli/commands/kubectl_install.rs`. A compiler may turn a comparison with a text into numbers, and did so
/// for arm64.
const MARK: &[u8] = b"fleet-scheduler.io/this-file-is-fleetctl";

impl Build<'_> {
    /// Builds `fleetctl` for a target as cargo-zigbuild takes it; gives where it is.
    pub(super) fn fleetctl(&self, target: &str) -> Result<PathBuf> {
        let triple = super::triple(target);
        let is_macos = triple.ends_with("apple-darwin");
        let mut command = self.cargo(triple, if is_macos { &macos::FOLDERLESS } else { &[] })?;
        command.env("CARGO_ZIGBUILD_PYTHON_PATH", self.tools.zig.join("python"));
        command.args(["zigbuild", "--bin", "fleetctl", "--target", target]);
        if is_macos {
            let names = self.checkout.join("target/release-build/macos");
            macos::link(&mut command, triple, &self.tools.zig.join("python"), &names)?;
        }
        let program = self.run(command, target, triple, "programs")?.join("fleetctl");
        if is_macos {
            macos::check(&program)?;
        }
        if !fs::read(&program)?.windows(MARK.len()).any(|bytes| bytes == MARK) {
            bail!("{} does not contain the text by which `kubectl-install` knows a copy of it", program.display());
        }
        Ok(program)
    }

    /// Builds the programs of the images for an architecture of Linux, static; gives where they are.
    ///
    /// GNU's own C library, as in the tests: only of it there are cross compilers everywhere, and its allocator is the faster.
    pub(super) fn daemons(&self, cpu: &str) -> Result<Vec<PathBuf>> {
        let triple = format!("{cpu}-unknown-linux-gnu");
        let compiler = format!("{cpu}-linux-gnu-gcc");
        let mut command = self.cargo(&triple, &["-C", "target-feature=+crt-static"])?;
        command.env(format!("CC_{}", triple.replace('-', "_")), &compiler);
        command.env(linker_variable(&triple), &compiler);
        command.args(["build", "--features", "daemons", "--target", &triple]);
        command.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
        let folder = self.run(command, &format!("{cpu}, static"), &triple, "images")?;
        let built: Vec<PathBuf> = PROGRAMS.iter().map(|program| folder.join(program)).collect();
        for program in &built {
            if is_static(&fs::read(program)?) != Some(true) {
                bail!("{} is not static", program.display());
            }
        }
        Ok(built)
    }

    /// `cargo auditable`, with everything in its environment that would else leave a trace of this machine.
    fn cargo(&self, triple: &str, flags: &[&str]) -> Result<Command> {
        let sysroot = run::output_of(Command::new("rustc").args(["--print", "sysroot"]).current_dir(self.checkout))?;
        let sysroot = Path::new(sysroot.trim());
        if !sysroot.join("lib/rustlib").join(triple).is_dir() {
            run::output("rustup", &["target", "add", triple])?;
        }
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("there is no HOME")?;
        let folders = [(self.checkout, "/fleetctl"), (&home, "/cargo"), (sysroot, "/rust")];
        if let Some((folder, _)) = folders.iter().find(|(folder, _)| folder.to_string_lossy().contains(' ')) {
            bail!("options for C compilers cannot name {}, for it has a space", folder.display());
        }
        let mapped = |option: &str| {
            let each = folders.iter().map(|(folder, name)| format!("{option}={}={name}", folder.display()));
            each.collect::<Vec<_>>()
        };
        let mut command = run::cargo(self.checkout);
        let folders = [&self.tools.zig, &self.tools.lists[0]].into_iter().cloned();
        let path =
            std::env::join_paths(folders.chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())))?;
        let flags = flags.iter().map(ToString::to_string).chain(mapped("--remap-path-prefix"));
        command.env("PATH", path).env("SOURCE_DATE_EPOCH", self.time);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\u{1f}"));
        command.env("CFLAGS", mapped("-ffile-prefix-map").join(" "));
        command.arg("auditable");
        Ok(command)
    }

    /// Runs a build in a folder of its own; gives that of its programs. In one folder, builds with other flags would
    /// overwrite each other's crates, whose names do not depend on flags.
    fn run(&self, mut command: Command, what: &str, triple: &str, folder: &str) -> Result<PathBuf> {
        say(format!("building for {what} (profile {})", self.profile));
        let folder = self.checkout.join("target/release-build").join(folder);
        command.args(["--locked", "--package", "fleetctl", "--profile", self.profile]);
        let status = command.arg("--target-dir").arg(&folder).status().context("cargo cannot be started")?;
        if !status.success() {
            bail!("the programs cannot be built for {what}");
        }
        Ok(folder.join(triple).join(if self.profile == "dev" { "debug" } else { self.profile }))
    }
}
