//! `cargo bed fault …`: the faults of the library, by hand.

use anyhow::Result;
use clap::Subcommand;

use crate::Bed;

/// One fault, or its remedy.
#[derive(Debug, Subcommand)]
pub(super) enum Fault {
    /// End a component in good order; `node` is kubelet, kube-proxy, containerd and all containers
    Stop(Component),
    /// End a component without warning
    Kill(Component),
    /// Halt a component where it stands
    Pause(Component),
    /// Let a paused component go on
    Resume(Component),
    /// End a component, start it again, and wait until the cluster is ready
    Restart(Component),
    /// Drop all packets between two clusters
    Cut(Two),
    /// Let two clusters reach one another again
    Join(Two),
    /// Take the default StorageClass away
    NoStorage {
        /// The cluster
        cluster: String,
    },
    /// Put the default StorageClass back
    Storage {
        /// The cluster
        cluster: String,
    },
    /// Make an image missing, for every cluster
    NoImage {
        /// As the charts name it
        image: String,
    },
    /// Put a removed image back
    Image {
        /// As the charts name it
        image: String,
    },
    /// Allow no more of some resources in a namespace
    Quota {
        /// The cluster
        cluster: String,
        /// The namespace
        namespace: String,
        /// What is full
        #[arg(default_value = "pods")]
        resources: Vec<String>,
    },
    /// Take that quota away
    NoQuota {
        /// The cluster
        cluster: String,
        /// The namespace
        namespace: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Component {
    /// The cluster, or `hub`
    cluster: String,
    /// etcd, kube-apiserver, kubelet …, node; in `hub`, registry
    component: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Two {
    /// One cluster
    a: String,
    /// The other
    b: String,
}

pub(super) fn run(bed: &Bed, fault: Fault) -> Result<()> {
    match fault {
        Fault::Stop(Component { cluster, component }) => bed.stop(&cluster, &component),
        Fault::Kill(Component { cluster, component }) => bed.kill(&cluster, &component),
        Fault::Pause(Component { cluster, component }) => bed.pause(&cluster, &component),
        Fault::Resume(Component { cluster, component }) => bed.resume(&cluster, &component),
        Fault::Restart(Component { cluster, component }) => bed.restart(&cluster, &component),
        Fault::Cut(Two { a, b }) => bed.drop_traffic(&a, &b),
        Fault::Join(Two { a, b }) => bed.restore_traffic(&a, &b),
        Fault::NoStorage { cluster } => bed.remove_storage_class(&cluster),
        Fault::Storage { cluster } => bed.restore_storage_class(&cluster),
        Fault::NoImage { image } => bed.remove_image(&image),
        Fault::Image { image } => bed.restore_image(&image),
        Fault::Quota { cluster, namespace, resources } => {
            bed.fill_quota(&cluster, &namespace, &resources.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Fault::NoQuota { cluster, namespace } => bed.free_quota(&cluster, &namespace),
    }
}
