//! Where a bed lives. Everything that two checkouts on one machine must not share derives from the checkout's path.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::parts::cache::Cache;

/// The folder that holds every bed's state. Not /run: images, etcd and volumes would then sit in memory.
/// Not below /var/lib or /var/log either, which a node covers with folders of its own.
const STATES: &str = "/var/cache";
const PREFIX: &str = "fleetbed-";
/// The variable that names a second bed of the same checkout: a test that takes a bed down must not take the one that
/// somebody works with.
pub(crate) const NAME: &str = "FLEETBED_NAME";

/// The identity of one checkout's bed: its name on this machine and its folders.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The root of the checkout.
    pub checkout: PathBuf,
    /// Eight hexadecimal digits, in the name of everything that the bed makes.
    pub id: String,
    /// Everything that `down` takes away, in one folder.
    pub state: PathBuf,
}

impl Place {
    /// The place of the checkout that this crate was compiled in; `FLEETBED_NAME` names a second one.
    pub(crate) fn here() -> Result<Self> {
        Self::named(&std::env::var(NAME).unwrap_or_default())
    }

    /// A further place of this checkout; the one without a name is the first.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let checkout = fs::canonicalize(&checkout).context(
            "the checkout that this program was built in has moved; build it again there with `cargo build -p bed`",
        )?;
        Ok(Self::of(checkout, name))
    }

    fn of(checkout: PathBuf, name: &str) -> Self {
        let mut identity = checkout.as_os_str().as_encoded_bytes().to_vec();
        if !name.is_empty() {
            identity.push(0);
            identity.extend(name.bytes());
        }
        let digest = Sha256::digest(identity);
        let id = digest.iter().take(4).fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
        let state = Path::new(STATES).join(format!("{PREFIX}{id}"));
        Self { checkout, id, state }
    }

    /// This crate's folder in the checkout.
    pub(crate) fn crate_dir(&self) -> PathBuf {
        self.checkout.join("tests/bed")
    }

    /// The name of the one network interface that the bed has in the machine's own namespace.
    pub(crate) fn link(&self) -> String {
        format!("fb{}", self.id)
    }

    /// The cgroup of a cluster's pods, relative to the root of each hierarchy.
    pub(crate) fn cgroup(&self, cluster: &str) -> String {
        format!("fb{}-{cluster}", self.id)
    }

    /// X in 10.200.X.0/24, once it was chosen.
    pub(crate) fn known_subnet(&self) -> Result<u8> {
        let file = self.state.join("subnet");
        let Ok(text) = fs::read_to_string(&file) else {
            bail!("the bed is not up; start a cluster with `cargo bed up NAME`")
        };
        text.trim().parse().with_context(|| format!("{} holds no number; run `cargo bed down`", file.display()))
    }

    /// X in 10.200.X.0/24. Chosen once, by hash, past the ones that other beds have; kept in the state folder.
    pub(crate) fn subnet(&self, cache: &Cache) -> Result<u8> {
        let file = self.state.join("subnet");
        if file.exists() {
            return self.known_subnet();
        }
        let _lock = cache.lock("subnets")?;
        let taken = self.subnets_of_others()?;
        let first = u32::from_str_radix(&self.id, 16).context("the bed's id is hexadecimal")? % 254;
        let free =
            (0..254).map(|step| u8::try_from((first + step) % 254 + 1).unwrap_or(1)).find(|x| !taken.contains(x));
        let Some(subnet) = free else {
            bail!(
                "every subnet of 10.200.0.0/16 is taken by another bed; stop one with `cargo bed down` in its checkout"
            )
        };
        fs::create_dir_all(&self.state)?;
        fs::write(&file, subnet.to_string())?;
        Ok(subnet)
    }

    fn subnets_of_others(&self) -> Result<Vec<u8>> {
        let mut taken = Vec::new();
        for entry in fs::read_dir(STATES)?.filter_map(Result::ok) {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(PREFIX)
                && entry.path() != self.state
                && let Ok(text) = fs::read_to_string(entry.path().join("subnet"))
            {
                taken.extend(text.trim().parse::<u8>());
            }
        }
        // What else has an address there (a container network, another tool) is left alone as well.
        for line in crate::run::line("ip -o -4 addr show")?.lines() {
            let mut words = line.split_whitespace().skip(1);
            let link = words.next().unwrap_or_default();
            let address = words.nth(1).unwrap_or_default();
            if link != self.link()
                && let Some(rest) = address.strip_prefix("10.200.")
            {
                taken.extend(rest.split('.').next().and_then(|x| x.parse::<u8>().ok()));
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_checkouts_share_no_name() {
        let (a, b) = (Place::of("/src/a".into(), ""), Place::of("/src/b".into(), ""));
        assert_ne!(a.id, b.id);
        assert_ne!(a.link(), b.link());
        assert_ne!(a.state, b.state);
        assert_ne!(Place::of("/src/a".into(), "second").id, a.id);
    }

    #[test]
    fn names_fit_the_limits_of_the_kernel() {
        let place = Place::of("/src/a".into(), "");
        assert!(place.link().len() <= 15, "an interface's name has at most 15 bytes");
        let longest = place.state.join("member-1/run/containerd.sock.ttrpc");
        assert!(longest.as_os_str().len() < 108, "a socket's path has at most 108 bytes");
    }
}
