//! Where the stores are: what a pod on the volume of a member takes over from etcd's own pods.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use kube::Client;
use kube::api::Api;

use super::components::ETCD;
use super::error::RestoreError;
use crate::api::names::{ControlPlaneName, NamespaceName};

/// The Deployment with the image of this project's own program, and its container.
const PROGRAM: (&str, &str) = ("fleet-scheduler", "scheduler");
/// The volume of etcd's data, and of its claims.
const DATA_VOLUME: &str = "etcd-data";
/// Arguments of etcd.
const DATA_DIR: &str = "--data-dir=";
const PEER_URLS: &str = "--initial-advertise-peer-urls=";
/// Word in these arguments that stands for the name of a member.
const POD_NAME: &str = "$(POD_NAME)";

/// What pods on the volumes of etcd need.
#[derive(Debug)]
pub(super) struct StoreSite {
    pub(super) name: String,
    pub(super) namespace: String,
    /// Specification of etcd's own pods.
    pub(super) pod: PodSpec,
    /// Container of etcd.
    pub(super) etcd: Container,
    /// Image of `fleet-scheduler`, and when it is pulled.
    pub(super) program: (String, Option<String>),
    /// Resources of its container there.
    pub(super) program_resources: Option<ResourceRequirements>,
    /// Number of members.
    pub(super) members: usize,
    /// Folder of a member's store, such as `/data/etcd`.
    pub(super) data_dir: String,
    /// Place of the volume, such as `/data`.
    pub(super) mount_path: String,
    /// URL for peers, with [`POD_NAME`] in it.
    peer_url: String,
}

impl StoreSite {
    /// Reads it from the workloads of a control plane.
    pub(super) async fn read_from_cluster(
        client: &Client,
        name: &ControlPlaneName,
        namespace: &NamespaceName,
        members: usize,
    ) -> Result<Self, RestoreError> {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace.as_str());
        let (set, program) = (sets.get(ETCD).await?, deployments.get(PROGRAM.0).await?);
        let site = Self::from_workloads(set, program, members);
        let site = site.map_err(|what| RestoreError::Unsuitable(format!("etcd cannot be restored: {what}")))?;
        Ok(Self { name: name.to_string(), namespace: namespace.to_string(), ..site })
    }

    /// The same from the two workloads; without one of the parts, a clause.
    pub(super) fn from_workloads(set: StatefulSet, program: Deployment, members: usize) -> Result<Self, &'static str> {
        let pod = set.spec.and_then(|spec| spec.template.spec).ok_or("its StatefulSet has no pods")?;
        let etcd = pod.containers.iter().find(|container| container.name == ETCD).cloned();
        let etcd = etcd.ok_or("its pods have no container etcd")?;
        let program = program.spec.and_then(|spec| spec.template.spec).map(|pod| pod.containers).unwrap_or_default();
        let program = program.into_iter().find(|container| container.name == PROGRAM.1);
        let program_resources = program.as_ref().and_then(|container| container.resources.clone());
        let program = program.and_then(|container| Some((container.image?, container.image_pull_policy)));
        let data_dir = find_last_argument(&etcd, DATA_DIR).ok_or("no argument names its data directory")?;
        let peer_url = find_last_argument(&etcd, PEER_URLS).ok_or("no argument names the URL for its peers")?;
        let mounts = etcd.volume_mounts.iter().flatten();
        let mount = mounts.filter(|mount| mount.name == DATA_VOLUME).map(|mount| mount.mount_path.clone()).next();
        let mount_path = mount.ok_or("it mounts no volume etcd-data")?;
        if data_dir.rsplit_once('/').is_none_or(|(parent, _)| parent != mount_path.trim_end_matches('/')) {
            return Err("its data directory is not a direct subdirectory of its volume");
        }
        Ok(Self {
            name: String::new(),
            namespace: String::new(),
            program: program.ok_or("fleet-scheduler has no image")?,
            program_resources,
            etcd,
            pod,
            members,
            data_dir,
            mount_path,
            peer_url,
        })
    }

    /// Names of the members.
    pub(super) fn member_names(&self) -> impl Iterator<Item = String> {
        (0..self.members).map(|number| format!("{ETCD}-{number}"))
    }

    /// URL of a member for its peers.
    pub(super) fn peer_url(&self, member: &str) -> String {
        self.peer_url.replace(POD_NAME, member)
    }

    /// All members, as etcd begins with them.
    pub(super) fn initial_cluster(&self) -> String {
        let members = self.member_names().map(|member| format!("{member}={}", self.peer_url(&member)));
        members.collect::<Vec<_>>().join(",")
    }

    /// The claim of a member.
    pub(super) fn claim(member: &str) -> String {
        format!("{DATA_VOLUME}-{member}")
    }
}

/// The value of the last argument that begins with `prefix`, as etcd itself takes it.
fn find_last_argument(etcd: &Container, prefix: &str) -> Option<String> {
    let arguments = etcd.command.iter().chain(&etcd.args).flatten();
    arguments.filter_map(|argument| argument.strip_prefix(prefix)).next_back().map(str::to_owned)
}
