//! Faults, as tests and the command line ask for them. Each has a counterpart that mends it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use rustix::process::Signal;

use crate::cluster::network::inside;
use crate::cluster::process::{State, Supervisor};
use crate::cluster::registry;
use crate::{Bed, run};

/// The name that stands for all that makes a node: kubelet, kube-proxy, containerd and every container.
pub const NODE: &str = "node";
const NODE_COMPONENTS: &[&str] = &["kubelet", "kube-proxy", "containerd"];
/// How long a component may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// Components. `cluster` is a cluster's name, or `hub` for the registry; `component` is `etcd`, `kube-apiserver`,
/// `kube-controller-manager`, `kube-scheduler`, `kubelet`, `kube-proxy`, `containerd`, `load-balancer`, `registry`,
/// or `node` for the whole node.
impl Bed {
    /// Ends a component in good order (SIGTERM). A node loses its containers with it.
    pub fn stop(&self, cluster: &str, component: &str) -> Result<()> {
        let unit = self.unit(cluster)?;
        for component in parts(component) {
            unit.stop(component, GRACE)?;
        }
        self.kill_containers_of(cluster, component)
    }

    /// Ends a component without warning (SIGKILL).
    pub fn kill(&self, cluster: &str, component: &str) -> Result<()> {
        let unit = self.unit(cluster)?;
        for component in parts(component) {
            let process = unit.record(component)?.process;
            unit.signal(component, Signal::KILL)?;
            if process.is_some_and(|process| !process.wait(GRACE)) {
                bail!("{component} of `{cluster}` does not end");
            }
        }
        self.kill_containers_of(cluster, component)
    }

    /// Halts a component where it stands (SIGSTOP): it keeps its connections and answers nobody.
    pub fn pause(&self, cluster: &str, component: &str) -> Result<()> {
        let unit = self.unit(cluster)?;
        for component in parts(component) {
            unit.signal(component, Signal::STOP)?;
            // On a busy machine the kernel takes its time to halt every thread.
            let end = Instant::now() + GRACE;
            while unit.state(component) != State::Paused {
                if Instant::now() > end {
                    bail!("{component} of `{cluster}` does not halt");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Lets a paused component go on.
    pub fn resume(&self, cluster: &str, component: &str) -> Result<()> {
        let unit = self.unit(cluster)?;
        parts(component).iter().try_for_each(|component| unit.signal(component, Signal::CONT))
    }

    /// Ends a component if it runs, starts it again, and waits until the cluster is ready.
    pub fn restart(&self, cluster: &str, component: &str) -> Result<()> {
        self.restart_all(cluster, &[component])
    }

    /// The same with several together: none of them need be up for another to come up.
    pub fn restart_all(&self, cluster: &str, components: &[&str]) -> Result<()> {
        let unit = self.unit(cluster)?;
        let components: Vec<_> = components.iter().flat_map(|component| parts(component)).collect();
        components.iter().try_for_each(|component| unit.stop(component, GRACE))?;
        if cluster == "hub" {
            return components.iter().try_for_each(|component| unit.start(component, unit.record(component)?));
        }
        let components: Vec<_> = components.into_iter().map(str::to_owned).collect();
        self.cluster(cluster)?.start_again(&components)
    }

    /// What a component does.
    pub fn component(&self, cluster: &str, component: &str) -> Result<State> {
        let unit = self.unit(cluster)?;
        unit.record(component)?;
        Ok(unit.state(component))
    }

    pub(crate) fn unit(&self, cluster: &str) -> Result<Supervisor> {
        if cluster == "hub" { Ok(self.hub()) } else { Ok(self.cluster(cluster)?.supervisor()) }
    }

    fn kill_containers_of(&self, cluster: &str, component: &str) -> Result<()> {
        if component != NODE {
            return Ok(());
        }
        crate::cluster::teardown::containers(&self.place, cluster)
    }
}

/// What the API of a cluster has stored.
impl Bed {
    /// Keeps a copy of it. The API stands still meanwhile, for a second or two.
    pub fn back_up(&self, cluster: &str) -> Result<()> {
        self.stop(cluster, "etcd")?;
        let (store, kept) = self.store(cluster)?;
        run::output("rm", &["-rf", &kept])?;
        run::output("cp", &["-a", &store, &kept])?;
        self.restart(cluster, "etcd")
    }

    /// Puts the copy back, as an operator does who has lost the store, and starts the API from it.
    pub fn restore_back_up(&self, cluster: &str) -> Result<()> {
        let (store, kept) = self.store(cluster)?;
        if !PathBuf::from(&kept).exists() {
            bail!("nothing of cluster `{cluster}` was backed up");
        }
        let users = ["kube-controller-manager", "kube-apiserver", "etcd"];
        users.iter().try_for_each(|component| self.stop(cluster, component))?;
        run::output("rm", &["-rf", &store])?;
        run::output("cp", &["-a", &kept, &store])?;
        self.cluster(cluster)?.start_again(&users.map(str::to_owned))
    }

    fn store(&self, cluster: &str) -> Result<(String, String)> {
        let store = self.cluster(cluster)?.dir().join("var/lib/etcd").display().to_string();
        Ok((store.clone(), store + ".kept"))
    }

    /// The process of a component.
    pub fn pid(&self, cluster: &str, component: &str) -> Result<i32> {
        let process = self.unit(cluster)?.record(component)?.process;
        Ok(process.with_context(|| format!("{component} of `{cluster}` was not started"))?.pid)
    }
}

/// Traffic, storage, images and quotas.
impl Bed {
    /// Drops every packet between two clusters, silently, as a broken network does.
    pub fn drop_traffic(&self, a: &str, b: &str) -> Result<()> {
        self.restore_traffic(a, b)?;
        self.traffic_rules(a, b, "-I")
    }

    /// Lets two clusters reach one another again.
    pub fn restore_traffic(&self, a: &str, b: &str) -> Result<()> {
        for (a, b) in [(a, b), (b, a)] {
            // Taken out one by one until none is left; iptables says by an error that there is none.
            while self.traffic_rules(a, b, "-D").is_ok() {}
        }
        Ok(())
    }

    /// Rules in the namespace of `a` against all addresses of `b`; in the raw table, where kube-proxy has none.
    fn traffic_rules(&self, a: &str, b: &str, verb: &str) -> Result<()> {
        let holder = self.cluster(a)?.supervisor().record("holder")?.process;
        let holder = holder.with_context(|| format!("cluster `{a}` is not up; start it with `cargo bed up {a}`"))?.pid;
        let b = self.cluster(b)?;
        let mut rules = "*raw\n".to_owned();
        for ip in std::iter::once(b.ip()).chain(b.load_balancer_ips()) {
            for (chain, side) in [("PREROUTING", "-s"), ("PREROUTING", "-d"), ("OUTPUT", "-d")] {
                rules += &format!("{verb} {chain} {side} {ip}/32 -j DROP\n");
            }
        }
        rules += "COMMIT\n";
        inside(holder, &format!("iptables-restore --noflush --wait <<'END'\n{rules}END\n")).map(drop)
    }

    /// Takes the default StorageClass away.
    pub fn remove_storage_class(&self, cluster: &str) -> Result<()> {
        self.kubectl(cluster, &["delete", "storageclass", "local-path", "--ignore-not-found"]).map(drop)
    }

    /// Puts the default StorageClass (back) in place.
    pub fn restore_storage_class(&self, cluster: &str) -> Result<()> {
        self.cluster(cluster)?.apply_storage_class()
    }

    /// Makes an image (`registry.k8s.io/etcd:3.5.35-0`) missing, for every cluster: its tag goes from the registry,
    /// and the nodes forget it. Containers that run go on.
    pub fn remove_image(&self, image: &str) -> Result<()> {
        let tag = registry::tag_folder(&self.place, image)?;
        let kept = self.kept(image);
        if tag.exists() {
            fs::create_dir_all(kept.parent().context("a kept image has a folder")?)?;
            fs::rename(&tag, &kept)?;
        } else if !kept.exists() {
            bail!("the bed's registry has no image `{image}`; `cargo bed load FILE.tar` puts one there");
        }
        for cluster in self.clusters()? {
            if cluster.spec.node && cluster.supervisor().state("containerd") == State::Running {
                self.ctr(&cluster.name, &["images", "remove", "--sync", &full_name(image)])?;
            }
        }
        Ok(())
    }

    /// Puts a removed image back into the registry.
    pub fn restore_image(&self, image: &str) -> Result<()> {
        let kept = self.kept(image);
        if kept.exists() {
            fs::rename(kept, registry::tag_folder(&self.place, image)?)?;
        }
        Ok(())
    }

    /// Has a cluster's node pull from a registry that asks for a password which nobody has.
    pub fn lock_registry(&self, cluster: &str) -> Result<()> {
        let endpoint = registry::up_locked(&self.cache, &self.hub(), self.place.known_subnet()?)?;
        registry::point(&self.unit(cluster)?.dir.join("conf"), &endpoint)
    }

    /// Has it pull from the bed's registry again.
    pub fn unlock_registry(&self, cluster: &str) -> Result<()> {
        registry::point(&self.unit(cluster)?.dir.join("conf"), &self.registry()?)?;
        registry::down_locked(&self.hub())
    }

    /// Fills a namespace's quota: nothing more of these resources (`pods`, `persistentvolumeclaims`, `secrets` …) can
    /// be made there.
    pub fn fill_quota(&self, cluster: &str, namespace: &str, resources: &[&str]) -> Result<()> {
        let hard = resources.iter().map(|resource| format!("{resource}=0")).collect::<Vec<_>>().join(",");
        self.free_quota(cluster, namespace)?;
        self.kubectl(cluster, &["create", "quota", QUOTA, "--namespace", namespace, &format!("--hard={hard}")])?;
        // It counts only once the controller has looked at it.
        let end = Instant::now() + GRACE;
        let looked = ["get", "quota", QUOTA, "--namespace", namespace, "-o", "jsonpath={.status.hard}"];
        while self.kubectl(cluster, &looked)?.is_empty() {
            if Instant::now() > end {
                bail!("cluster `{cluster}`: the quota in {namespace} has no effect; does kube-controller-manager run?");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Takes that quota away.
    pub fn free_quota(&self, cluster: &str, namespace: &str) -> Result<()> {
        self.kubectl(cluster, &["delete", "quota", QUOTA, "--namespace", namespace, "--ignore-not-found"]).map(drop)
    }

    /// Runs containerd's own client on a cluster's node, in the namespace of its pods.
    pub fn ctr(&self, cluster: &str, args: &[&str]) -> Result<String> {
        let holder = self.unit(cluster)?.record("holder")?.process;
        let pid = holder.with_context(|| format!("cluster `{cluster}` is not up"))?.pid.to_string();
        let mut words = vec!["--target", &pid, "--mount", "--net", "--", "ctr", "--namespace", "k8s.io"];
        words.extend(args);
        run::output("nsenter", &words)
    }

    fn kept(&self, image: &str) -> PathBuf {
        self.place.state.join("hub/missing").join(image.replace(['/', ':'], "_"))
    }
}

const QUOTA: &str = "fleetbed-full";

fn parts(component: &str) -> Vec<&str> {
    if component == NODE { NODE_COMPONENTS.to_vec() } else { vec![component] }
}

/// An image's name as containerd keeps it.
fn full_name(image: &str) -> String {
    let (path, tag) = registry::path_and_tag(image);
    match image.split_once('/') {
        Some((domain, _)) if domain.contains(['.', ':']) => format!("{domain}/{path}:{tag}"),
        _ => format!("docker.io/{path}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_locked_registry_asks_for_a_password_beside_one_that_does_not() {
        let bed = Bed::here().unwrap();
        let (_lock, open) = bed.open_registry().unwrap();
        let status = |endpoint: &str| {
            let mut stream = TcpStream::connect(endpoint).unwrap();
            stream.write_all(b"GET /v2/ HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        let locked = registry::up_locked(&bed.cache, &bed.hub(), bed.place.known_subnet().unwrap()).unwrap();
        let statuses = [&locked, &open].map(|endpoint| status(endpoint));
        registry::down_locked(&bed.hub()).unwrap();
        assert_eq!(statuses, ["401", "200"]);
        assert!(TcpStream::connect(&locked).is_err(), "it is gone");
    }

    #[test]
    fn short_names_are_the_nodes_long_ones() {
        assert_eq!(full_name("busybox"), "docker.io/library/busybox:latest");
        assert_eq!(full_name("rancher/a:v1"), "docker.io/rancher/a:v1");
        assert_eq!(full_name("registry.k8s.io/etcd:3.5.35-0"), "registry.k8s.io/etcd:3.5.35-0");
    }
}
