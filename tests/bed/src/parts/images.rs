//! The images that the clusters run: each from scratch, with one static program, under the name that charts use.
//!
//! They are built once, kept in the cache in the registry's own layout, and linked into each bed's registry.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cluster::registry;
use crate::parts::Part;
use crate::parts::cache::{Cache, remove_tree};
use crate::parts::packages::BUSYBOX;
use crate::run;
use crate::say::say;

/// What a pod's sandbox runs.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.9";

/// One image: its names, and what is in it.
struct Image {
    names: Vec<String>,
    contents: Contents,
}

enum Contents {
    /// Programs of a part, in /usr/local/bin; the first is the default command.
    Programs(Part, Vec<&'static str>),
    /// A shell with the usual small programs, and a default command. Not among those that work: `wget`, which ends with
    /// a segmentation fault in Debian's static build; `nc` does.
    Shell(&'static [&'static str]),
}

/// The images of the given parts, and the two that every node needs.
fn images(parts: &[Part]) -> Vec<Image> {
    let image = |names: &[&str], contents| Image { names: names.iter().map(ToString::to_string).collect(), contents };
    let mut images = vec![
        image(&[PAUSE, "registry.k8s.io/pause:3.10"], Contents::Shell(&["sleep", "2147483647"])),
        image(&["busybox:1.35", "busybox:latest"], Contents::Shell(&["sh"])),
    ];
    for part in parts {
        let version = part.version;
        let mut one = |name: String, programs: &[&'static str]| {
            images.push(Image { names: vec![name], contents: Contents::Programs(*part, programs.to_vec()) });
        };
        match part.name {
            "kube" => {
                for program in ["kube-apiserver", "kube-controller-manager"] {
                    one(format!("registry.k8s.io/{program}:v{version}"), &[program]);
                }
            }
            "etcd" => one(format!("registry.k8s.io/etcd:{version}-0"), &["etcd", "etcdctl"]),
            "coredns" => one(format!("registry.k8s.io/coredns/coredns:v{version}"), &["coredns"]),
            "local-path-provisioner" => {
                one(format!("rancher/local-path-provisioner:v{version}"), &["local-path-provisioner"]);
            }
            _ => {}
        }
    }
    images
}

/// The stored images of the cache.
pub(crate) fn stored(cache: &Cache) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.images()).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Builds the images of these parts that the cache lacks. The programs must be there.
pub(crate) fn build(cache: &Cache, parts: &[Part]) -> Result<()> {
    let missing = |image: &Image| !image.folder(cache).is_dir();
    if !images(parts).iter().any(missing) {
        return Ok(());
    }
    let _lock = cache.lock("images")?;
    let missing: Vec<_> = images(parts).into_iter().filter(missing).collect();
    let work = cache.work().join("images");
    for image in &missing {
        say(format!("building image {}", image.names.join(", ")));
        remove_tree(&work)?;
        fs::create_dir_all(&work)?;
        build_one(cache, &work, image).with_context(|| format!("cannot build the image {}", image.names[0]))?;
        fs::create_dir_all(cache.images())?;
        fs::rename(work.join("registry"), image.folder(cache))?;
    }
    remove_tree(&work)
}

fn build_one(cache: &Cache, work: &Path, image: &Image) -> Result<()> {
    let context = work.join("context");
    let recipe = image.contents.lay_out(cache, &context)?;
    let file = work.join("Containerfile");
    fs::write(&file, recipe)?;
    let builder = Builder::in_folder(work.join("store"));
    builder.build(&file, &context, &image.names[0], None)?;
    let registry = Temporary::start(cache, work)?;
    for name in &image.names {
        builder.push(&image.names[0], name, &registry.endpoint)?;
    }
    Ok(())
}

impl Image {
    fn folder(&self, cache: &Cache) -> PathBuf {
        cache.images().join(self.names[0].replace(['/', ':'], "_"))
    }
}

impl Contents {
    /// Fills the build context and returns the recipe.
    fn lay_out(&self, cache: &Cache, context: &Path) -> Result<String> {
        let bin = context.join("bin");
        fs::create_dir_all(&bin)?;
        match self {
            Self::Programs(part, programs) => {
                for program in programs {
                    fs::copy(cache.program(part, program), bin.join(program))?;
                }
                let first = programs.first().context("an image needs a program")?;
                Ok(format!(
                    "FROM scratch\nCOPY bin /usr/local/bin\nENV PATH=/usr/local/bin\nCMD [\"/usr/local/bin/{first}\"]\n"
                ))
            }
            Self::Shell(command) => {
                fs::copy(BUSYBOX, bin.join("busybox"))?;
                for applet in run::line(&format!("{BUSYBOX} --list"))?.lines().filter(|name| *name != "busybox") {
                    fs_err::os::unix::fs::symlink("busybox", bin.join(applet))?;
                }
                let command = serde_json::to_string(command)?;
                Ok(format!("FROM scratch\nCOPY bin /bin\nENV PATH=/bin\nCMD {command}\n"))
            }
        }
    }
}

/// buildah with a store of its own, so that images of the user's are neither seen nor touched.
pub(crate) struct Builder {
    store: PathBuf,
}

impl Builder {
    /// A builder whose store is this folder, which the caller removes.
    pub(crate) fn in_folder(store: PathBuf) -> Self {
        Self { store }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.store.join("root")).arg("--runroot").arg(self.store.join("run"));
        command.args(["--storage-driver", "vfs"]);
        command
    }

    /// Builds a Containerfile, or one stage of it. No network, no cache, no base image to pull.
    pub(crate) fn build(&self, file: &Path, context: &Path, name: &str, stage: Option<&str>) -> Result<()> {
        let mut command = self.command();
        command.args(["bud", "--isolation", "chroot", "--quiet", "--tag", name]);
        // The same bytes give the same image, whenever it is built.
        command.args(["--timestamp", "0"]);
        if let Some(stage) = stage {
            command.args(["--target", stage]);
        }
        run::output_of(command.arg("--file").arg(file).arg(context))?;
        Ok(())
    }

    /// Builds a stage of a Containerfile for a platform, such as `linux/arm64`, and adds it to an index.
    pub(crate) fn build_for(
        &self,
        platform: &str,
        file: &Path,
        context: &Path,
        stage: &str,
        index: &str,
    ) -> Result<()> {
        let mut command = self.command();
        command.args(["bud", "--isolation", "chroot", "--quiet", "--timestamp", "0", "--platform", platform]);
        // Without a label that names the version of buildah: another one gives the same image.
        command.args(["--identity-label=false", "--target", stage, "--manifest", index, "--file"]);
        run::output_of(command.arg(file).arg(context))?;
        Ok(())
    }

    /// Writes an index with its images into a folder, as an OCI layout.
    pub(crate) fn save_index(&self, index: &str, layout: &Path) -> Result<()> {
        let mut command = self.command();
        command.args(["manifest", "push", "--all", "--quiet", "--format", "oci", index]);
        run::output_of(command.arg(format!("oci:{}", layout.display())))?;
        Ok(())
    }

    /// Pushes a built image to a registry, under the path and tag of `name`.
    pub(crate) fn push(&self, built: &str, name: &str, endpoint: &str) -> Result<()> {
        let (path, tag) = registry::path_and_tag(name);
        let mut command = self.command();
        command.args(["push", "--quiet", "--tls-verify=false", "--compression-level", "1", built]);
        run::output_of(command.arg(format!("docker://{endpoint}/{path}:{tag}")))?;
        Ok(())
    }
}

/// A registry that runs while an image is built.
struct Temporary {
    child: Child,
    endpoint: String,
}

impl Temporary {
    fn start(cache: &Cache, work: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let endpoint = format!("127.0.0.1:{port}");
        let config = work.join("registry.yaml");
        fs::write(&config, registry::configuration(&work.join("registry"), &endpoint))?;
        let child = Command::new(cache.root().join("bin").join(cache.registry_folder()).join("registry"))
            .arg("serve")
            .arg(&config)
            .envs(registry::quiet())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(work.join("registry.log"))?.into_parts().0)
            .spawn()?;
        let mut started = Self { child, endpoint };
        registry::wait(&started.endpoint)?;
        if let Some(status) = started.child.try_wait()? {
            bail!("the registry ended ({status}); see {}", work.join("registry.log").display());
        }
        Ok(started)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
