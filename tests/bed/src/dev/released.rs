//! `cargo bed newcomer --released FOLDER`: the way of somebody who has the files of a release and a cluster, and neither a
//! checkout nor Rust: in a Debian with nothing but its base system, on the bed's cluster of the newest Kubernetes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cluster::registry::path_and_tag;
use crate::dev::steps::Steps;
use crate::parts::packages;
use crate::parts::product::PROGRAMS;
use crate::say::say;
use crate::{Bed, run};

const LEFT: &str = "the cluster `current` may be left: `cargo bed down` stops it";

/// The hosting cluster.
const HOST: &str = "current";

/// Where the files are in the Debian.
const RELEASE: &str = "/release";

/// The file of a release that names its images.
const DIGESTS: &str = "image-digests.txt";

/// The steps, in order.
pub(crate) fn run(bed: &Bed, release: &Path) -> Result<()> {
    crate::require_root()?;
    let mut steps = Steps::new(LEFT);
    let result = follow(bed, release, &mut steps);
    let stopped = steps.run("stop the cluster", || bed.down(&[HOST]));
    steps.summary();
    result.and(stopped)
}

fn follow(bed: &Bed, release: &Path, steps: &mut Steps) -> Result<()> {
    let images = fs::read_to_string(release.join(DIGESTS)).context("a release with `--images` is needed")?;
    let folder = tempfile::tempdir()?;
    let debian = steps.run("a Debian of nothing but its base system", || Debian::make(&folder.path().join("root")))?;
    steps.run("the files of the release", || debian.take(release))?;
    steps.run("sha256sum -c", || {
        debian.says(&format!("cd {RELEASE} && sha256sum --quiet -c SHA256SUMS && echo OK"), "OK")
    })?;
    steps.run("a download with a wrong sum, or cut short, leaves nothing", || debian.refuses_damaged_files())?;
    steps
        .run("install.sh", || debian.says(&format!("sh {RELEASE}/install.sh && fleetctl --version"), "is installed"))?;
    steps.run("a cluster with the released images in its reach (not in the README's time)", || {
        // A node that runs already may hold other images of these names.
        bed.down(&[HOST])?;
        bed.up(&[HOST])?;
        push_images(release, &images, &bed.registry()?)?;
        bed.merge_kubeconfigs(&[bed.kubeconfig(HOST)?], &debian.root.join("root"))
    })?;
    let install = "fleetctl install control-plane demo --version auto";
    steps.run(install, || debian.says(install, "Control plane demo is healthy"))?;
    steps.run("fleetctl status", || debian.says("fleetctl status", "Control plane demo is healthy"))?;
    let uninstall = "fleetctl uninstall control-plane demo --delete-data --yes";
    steps.run(uninstall, || debian.says(uninstall, "Removed control plane demo"))
}

/// Pushes the images of a release under all the names that its list has.
fn push_images(release: &Path, names: &str, endpoint: &str) -> Result<()> {
    for name in names.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next()) {
        let (path, tag) = path_and_tag(name);
        let program = PROGRAMS.iter().find(|program| path.rsplit('/').next() == Some(**program));
        let program = program.with_context(|| format!("{DIGESTS} names {name}, which is no image of a release"))?;
        let from = format!("oci-archive:{}", release.join(format!("{program}.oci.tar")).display());
        let to = format!("docker://{endpoint}/{path}:{tag}");
        run::output(
            "skopeo",
            &["copy", "--all", "--quiet", "--insecure-policy", "--dest-tls-verify=false", &from, &to],
        )?;
    }
    Ok(())
}

/// A Debian in a folder.
struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Makes one of the release that this machine has, with essential packages and apt.
    fn make(root: &Path) -> Result<Self> {
        packages::debian()?;
        let system = fs::read_to_string("/etc/os-release")?;
        let suite = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let suite = suite.context("/etc/os-release does not say which Debian this is")?;
        let mut debootstrap = Command::new("debootstrap");
        run::output_of(debootstrap.args(["--variant=minbase", suite]).arg(root))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Copies the files of a release, but for images, which no machine of a user needs.
    fn take(&self, release: &Path) -> Result<()> {
        let to = self.inside(RELEASE);
        fs::create_dir_all(&to)?;
        let listed = fs::read_to_string(release.join("SHA256SUMS")).context("no release is there")?;
        let (images, files): (Vec<&str>, Vec<&str>) = listed.lines().partition(|line| line.ends_with(".oci.tar"));
        for name in files.iter().filter_map(|line| line.split_whitespace().nth(1)).chain(["install.sh"]) {
            let name = name.trim_start_matches('*');
            fs::copy(release.join(name), to.join(name))?;
        }
        say(format!("{} files, without {} images", files.len(), images.len()));
        fs::write(to.join("SHA256SUMS"), files.join("\n") + "\n")?;
        Ok(())
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Runs a line in a shell, with a /proc and an empty environment, in the network of this machine.
    fn sh(&self, line: &str) -> Command {
        let mut unshare = Command::new("unshare");
        unshare.args(["--fork", "--pid", "--mount", "--mount-proc", "--root"]).arg(&self.root);
        unshare.args(["/bin/sh", "-ec", line]).env_clear();
        unshare.envs([("HOME", "/root"), ("LC_ALL", "C.UTF-8")]);
        unshare.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        unshare
    }

    /// Runs a line whose output has to have this text.
    fn says(&self, line: &str, text: &str) -> Result<()> {
        let said = run::output_of(&mut self.sh(line))?;
        say(said.trim_end());
        if said.contains(text) { Ok(()) } else { bail!("`{line}` does not say `{text}`") }
    }

    /// Has `install.sh` meet a program of which a byte is another, and one of which the half is missing.
    fn refuses_damaged_files(&self) -> Result<()> {
        let damage = [
            ("another byte", "printf x | dd of=\"$file\" bs=1 seek=4096 conv=notrunc status=none"),
            ("half of it", "truncate -s 1048576 \"$file\""),
        ];
        for (what, damage) in damage {
            let line = format!(
                "rm -rf /damaged; cp -r {RELEASE} /damaged; for file in /damaged/fleetctl-linux-*; do {damage}; done\n\
                 if sh /damaged/install.sh 2>/damaged/said; then echo installed; fi\n\
                 cat /damaged/said; rm -rf /damaged; find / -xdev -name 'fleetctl*' -not -path '{RELEASE}/*'"
            );
            let said = run::output_of(&mut self.sh(&line))?;
            if !said.contains("does not match SHA256SUMS") {
                bail!("install.sh says of a program with {what}: {said}");
            }
            if said.lines().any(|line| line == "installed" || line.starts_with('/')) {
                bail!("install.sh leaves something of a program with {what}: {said}");
            }
        }
        Ok(())
    }
}
