//! A backup of a running control plane: its keys and record from the hosting cluster, the snapshot from a member of etcd,
//! written as one archive while it streams.
//!
//! Nothing is changed anywhere: etcd, the API server and the hosting cluster are only read.

mod collect;
mod error;
mod member;
mod stream;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;

use self::collect::{Collected, collect_facts};
pub use self::error::BackupError;
use self::member::{ChosenMember, choose_member};
use self::stream::write_stream;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::backup::{Contents, FORMAT, Header, MemberName, RevisionRange, Seal, Versions, WriteError, Written};
use crate::etcd::{EtcdClient, EtcdError, Snapshot};
use crate::install::progress::Progress;

/// Number of times that a broken stream begins again.
const RESTARTS: u32 = 3;

/// A backup that is asked for.
#[derive(Clone)]
pub struct Request<'a> {
    /// The hosting cluster.
    pub client: &'a Client,
    /// A client for each member of etcd.
    pub members: &'a [EtcdClient],
    /// Largest size of the store, in bytes.
    pub quota_bytes: Option<u64>,
    /// Name of the control plane.
    pub name: &'a ControlPlaneName,
    /// Its namespace.
    pub namespace: &'a NamespaceName,
    /// The pod to read from; any that is in sync if there is none.
    pub from: Option<String>,
    /// How the archive is sealed.
    pub seal: Seal,
    /// Whether the keys are part of it.
    pub with_keys: bool,
}

/// Where an archive is written to.
pub trait Output {
    /// The stream to write to.
    type Stream: Write + Send + 'static;

    /// Begins at the start. None if what was written cannot be taken back.
    ///
    /// # Errors
    /// A target that refuses.
    fn restart(&mut self) -> io::Result<Option<Self::Stream>>;
}

impl Output for crate::api::util::new_file::NewFile {
    type Stream = File;

    fn restart(&mut self) -> io::Result<Option<File>> {
        self.restart_file().map(Some)
    }
}

/// A backup that was made.
#[derive(Debug)]
pub struct Backup {
    /// What the archive is of.
    pub header: Header,
    /// The archive as it was written.
    pub written: Written,
}

/// Writes an archive. A stream of etcd that breaks begins again, with whichever member is in sync then.
///
/// # Errors
/// [`BackupError`]. What was written until then is no archive.
pub async fn write_backup(
    request: &Request<'_>,
    output: &mut impl Output,
    progress: &Arc<dyn Progress>,
) -> Result<Backup, BackupError> {
    let taken = Timestamp::now();
    progress.begin_step("Reading keys and record");
    let collected = collect_facts(request, progress.as_ref()).await?;
    progress.begin_step("Writing the snapshot of etcd");
    for restart in 0.. {
        let Some(stream) = output.restart().map_err(|error| BackupError::Write(WriteError::Output(error)))? else {
            return Err(BackupError::NotRepeatable);
        };
        let opened = open_member(request).await?;
        let header = build_header(request, &collected, &opened, taken);
        let contents = Contents {
            header: header.clone(),
            keys: collected.keys.clone(),
            values: collected.values.clone(),
            record: collected.record.clone(),
        };
        let seal = request.seal.clone();
        let outcome = write_stream(opened.snapshot, contents, seal, stream, progress.as_ref()).await;
        match outcome {
            Ok(written) => return Ok(Backup { header, written }),
            Err(WriteError::Stream(error)) if restart < RESTARTS => {
                progress.report_warning(&format!("the stream of {} broke and begins again: {error}", header.read_from));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(BackupError::NotRepeatable)
}

/// A snapshot that has begun, and what its member says of itself.
struct Opened {
    member: ChosenMember,
    members: Vec<MemberName>,
    revision: RevisionRange,
    snapshot: Snapshot,
}

/// Chooses a member and begins its snapshot. etcd fixes what is in it before it sends the first byte, so the revision before
/// and behind that are known before anything is written.
async fn open_member(request: &Request<'_>) -> Result<Opened, BackupError> {
    let clients = request.members;
    let read = clients.iter().map(|client| async { (client.member().to_owned(), client.read_status().await) });
    let statuses = futures::future::join_all(read).await;
    let member = choose_member(statuses, request.from.as_deref())?;
    let client = clients.iter().find(|client| client.member() == member.pod);
    let client = client.ok_or_else(|| EtcdError::TimedOut { member: member.pod.clone() })?;
    let snapshot = client.open_snapshot().await?;
    let revision = RevisionRange { from: member.status.revision, to: client.read_status().await?.revision };
    let members = client.list_members().await?;
    let members =
        members.into_iter().map(|member| MemberName { id: member.id.to_string(), name: member.name }).collect();
    Ok(Opened { member, members, revision, snapshot })
}

fn build_header(request: &Request<'_>, collected: &Collected, opened: &Opened, taken: Timestamp) -> Header {
    Header {
        format: FORMAT,
        control_plane: request.name.to_string(),
        namespace: request.namespace.to_string(),
        taken,
        install_uid: collected.install_uid.clone(),
        control_plane_uid: collected.control_plane_uid.clone(),
        versions: Versions {
            fleetctl: env!("CARGO_PKG_VERSION").to_owned(),
            service: collected.service.clone(),
            api_server: collected.api_server.clone(),
            etcd: opened.member.status.version.clone(),
        },
        members: opened.members.clone(),
        read_from: opened.member.pod.clone(),
        quorum: opened.member.status.leader.is_some(),
        quota_bytes: request.quota_bytes,
        revision: opened.revision,
        snapshot_bytes: opened.snapshot.total_bytes(),
        keys: request.with_keys,
        fingerprints: crate::pki::fingerprint_keys(&collected.files),
        clusters: collected.clusters.clone(),
        patches: collected.patches.clone(),
    }
}
