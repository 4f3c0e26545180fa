//! The registry: where every image of every cluster comes from, so that no pull leaves the machine.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cluster::network;
use crate::cluster::process::{Record, State, Supervisor};
use crate::parts::cache::Cache;
use crate::place::Place;
use crate::run;

/// The port, at the hub's address.
const PORT: u16 = 5000;

/// The port of a second registry, which asks everybody for a password that nobody has.
const LOCKED_PORT: u16 = 5001;
/// The name of that one, as a component of the hub.
const LOCKED: &str = "registry-locked";

/// Where the bed's registry listens.
pub(crate) fn endpoint(subnet: u8) -> String {
    format!("{}:{PORT}", network::address(subnet, network::HUB))
}

/// Starts the bed's registry with the images of the cache in it; one that runs is left alone.
pub(crate) fn up(place: &Place, cache: &Cache, hub: &Supervisor, subnet: u8) -> Result<()> {
    let root = place.state.join("hub/registry");
    // Images that were built after the registry came up are added to it; one that a test took away stays away.
    let filled = place.state.join("hub/registry.filled");
    fs::create_dir_all(&filled)?;
    for image in crate::parts::images::stored(cache) {
        let mark = filled.join(image.file_name().unwrap_or_default());
        if !mark.exists() {
            fill(&image, &root)?;
            fs::write(mark, "")?;
        }
    }
    let endpoint = endpoint(subnet);
    if hub.state("registry") != State::Running {
        let config = hub.dir.join("registry.yaml");
        fs::write(&config, configuration(&root, &endpoint))?;
        serve(cache, hub, "registry", &config)?;
    }
    wait(&endpoint).with_context(|| format!("see {}", hub.log("registry").display()))
}

/// Starts the second registry, beside the first and over the same images; gives where it listens.
pub(crate) fn up_locked(cache: &Cache, hub: &Supervisor, subnet: u8) -> Result<String> {
    let endpoint = format!("{}:{LOCKED_PORT}", network::address(subnet, network::HUB));
    let (config, users) = (hub.dir.join("registry-locked.yaml"), hub.dir.join("registry.users"));
    fs::write(&users, "")?;
    let open = configuration(&hub.dir.join("registry"), &endpoint);
    fs::write(&config, format!("{open}auth: {{htpasswd: {{realm: bed, path: '{}'}}}}\n", users.display()))?;
    serve(cache, hub, LOCKED, &config)?;
    wait(&endpoint).with_context(|| format!("see {}", hub.log(LOCKED).display()))?;
    Ok(endpoint)
}

/// Ends the second registry.
pub(crate) fn down_locked(hub: &Supervisor) -> Result<()> {
    hub.stop(LOCKED, Duration::from_secs(10))
}

/// Runs a registry with a configuration as a component of the hub.
fn serve(cache: &Cache, hub: &Supervisor, component: &str, config: &Path) -> Result<()> {
    let program = hub.dir.join("cache/bin").join(cache.registry_folder()).join("registry");
    let argv = vec![program.display().to_string(), "serve".to_owned(), config.display().to_string()];
    hub.start(component, Record { argv, env: quiet(), inside: true, process: None })
}

/// Has a node pull every image from a registry, by the folder of its configuration; containerd reads it at each pull.
pub(crate) fn point(conf: &Path, endpoint: &str) -> Result<()> {
    let folder = conf.join("certs.d/_default");
    fs::create_dir_all(&folder)?;
    // The `server` line keeps containerd from going on to the public registry after a 404.
    let hosts = format!(
        "server = \"http://{endpoint}\"\n[host.\"http://{endpoint}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    fs::write(folder.join("hosts.toml"), hosts)?;
    Ok(())
}

/// The folder that holds a tag in the bed's registry.
pub(crate) fn tag_folder(place: &Place, image: &str) -> Result<PathBuf> {
    let (path, tag) = path_and_tag(image);
    let folder =
        place.state.join("hub/registry/docker/registry/v2/repositories").join(path).join("_manifests/tags").join(tag);
    if folder.parent().and_then(Path::parent).is_some_and(Path::is_dir) {
        return Ok(folder);
    }
    bail!("the bed's registry has no image `{image}`; put one there with `cargo bed load FILE.tar`")
}

/// The configuration of a registry with its data in `root`.
pub(crate) fn configuration(root: &Path, endpoint: &str) -> String {
    format!(
        "version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: '{}'}}
  delete: {{enabled: true}}
http: {{addr: '{endpoint}'}}
",
        root.display()
    )
}

/// It would otherwise look for a collector of traces.
pub(crate) fn quiet() -> std::collections::BTreeMap<String, String> {
    [("OTEL_TRACES_EXPORTER".to_owned(), "none".to_owned())].into()
}

/// Waits until somebody listens.
pub(crate) fn wait(endpoint: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(endpoint).is_err() {
        if Instant::now() > end {
            bail!("the registry at {endpoint} does not answer");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// An image's path in the registry and its tag. The node's containerd drops the registry's own name, as it does for
/// every mirror: `registry.k8s.io/pause:3.9` is `pause`, `3.9`, and `busybox` is `library/busybox`, `latest`.
pub(crate) fn path_and_tag(image: &str) -> (String, String) {
    let (name, tag) = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    };
    let path = match name.split_once('/') {
        Some((domain, path)) if domain.contains(['.', ':']) || domain == "localhost" => path.to_owned(),
        Some(_) => name.to_owned(),
        None => format!("library/{name}"),
    };
    (path, tag.to_owned())
}

/// Puts a stored image into a registry's folder. Blobs never change, so they are linked where the file system can;
/// the small files beside them are written in place by the registry, so they are copied.
fn fill(image: &Path, root: &Path) -> Result<()> {
    let (from, to) = (image.join("docker/registry/v2"), root.join("docker/registry/v2"));
    fs::create_dir_all(&to)?;
    let copy = |how: &str, folder: &str| {
        let (from, to) = (from.join(folder).display().to_string(), to.display().to_string());
        run::output("cp", &[how, "--no-clobber", &from, &to])
    };
    if copy("-al", "blobs").is_err() {
        copy("-a", "blobs")?;
    }
    copy("-a", "repositories")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_a_node_reads_them() {
        let of = |image| {
            let (path, tag) = path_and_tag(image);
            format!("{path} {tag}")
        };
        assert_eq!(of("registry.k8s.io/coredns/coredns:v1.13.2"), "coredns/coredns v1.13.2");
        assert_eq!(of("docker.io/fleetscheduler/fleet-agent:v0.6.1"), "fleetscheduler/fleet-agent v0.6.1");
        assert_eq!(of("rancher/local-path-provisioner:v0.0.30"), "rancher/local-path-provisioner v0.0.30");
        assert_eq!(of("busybox"), "library/busybox latest");
        assert_eq!(of("localhost:5000/a/b"), "a/b latest");
    }
}
