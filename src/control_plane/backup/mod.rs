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
use std::time::Duration;

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
use crate::k8s::backoff::Backoff;

/// Number of times that a broken stream begins again.
const RESTARTS: u32 = 3;
/// First and longest wait before it does: a member that was restarted answers within it.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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

    /// Returns whether what was written can be withdrawn.
    fn is_repeatable(&self) -> bool;

    /// Begins at the start.
    ///
    /// # Errors
    /// A target that refuses.
    fn restart(&mut self) -> io::Result<Self::Stream>;
}

impl Output for crate::api::util::unfinished_file::UnfinishedFile {
    type Stream = File;

    fn is_repeatable(&self) -> bool {
        true
    }

    fn restart(&mut self) -> io::Result<File> {
        self.restart_file()
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
    progress.begin_step("Reading the keys and the record of the control plane");
    let collected = collect_facts(request, progress.as_ref()).await?;
    progress.begin_step("Writing the snapshot of etcd");
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut restarts = 0;
    loop {
        let error = match write_once(request, &collected, taken, output, progress.as_ref()).await {
            Ok(backup) => return Ok(backup),
            Err(error) => error,
        };
        if matches!(error, BackupError::Write(WriteError::Stream(_))) && !output.is_repeatable() {
            return Err(BackupError::NotRepeatable);
        }
        if !may_begin_again(&error, restarts) {
            return Err(error);
        }
        restarts += 1;
        progress.report_warning(&format!("{error}; taking the snapshot again"));
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

/// Returns whether a snapshot begins again after so many restarts: if its stream broke, and if no member can be read just
/// after that, for most often etcd is being restarted.
fn may_begin_again(error: &BackupError, restarts: u32) -> bool {
    let may_return = match error {
        BackupError::Write(WriteError::Stream(_)) => true,
        BackupError::NoQuorum(_) | BackupError::NotInSync(_) => restarts > 0,
        BackupError::Etcd(error) => restarts > 0 && error.is_transient(),
        _ => false,
    };
    may_return && restarts < RESTARTS
}

/// Writes an archive from its start, of whichever member is in sync now.
async fn write_once(
    request: &Request<'_>,
    collected: &Collected,
    taken: Timestamp,
    output: &mut impl Output,
    progress: &dyn Progress,
) -> Result<Backup, BackupError> {
    let opened = open_member(request).await?;
    let stream = output.restart().map_err(WriteError::Output)?;
    let header = build_header(request, collected, &opened, taken);
    let contents = Contents {
        header: header.clone(),
        keys: collected.keys.clone(),
        values: collected.values.clone(),
        record: collected.record.clone(),
    };
    let written = write_stream(opened.snapshot, contents, request.seal.clone(), stream, progress).await?;
    Ok(Backup { header, written })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_broke_begins_again_and_nothing_else_does() {
        let broken = BackupError::Write(WriteError::Stream(io::Error::other("reset")));
        assert!(may_begin_again(&broken, 0) && may_begin_again(&broken, 2) && !may_begin_again(&broken, 3));
        let away = EtcdError::TimedOut { member: "etcd-0".to_owned() };
        // Just after a stream broke, its member may be restarting.
        for error in
            [BackupError::Etcd(away), BackupError::NoQuorum(String::new()), BackupError::NotInSync(String::new())]
        {
            assert!(
                !may_begin_again(&error, 0) && may_begin_again(&error, 1) && !may_begin_again(&error, 3),
                "{error}"
            );
        }
        let full = BackupError::Write(WriteError::Output(io::ErrorKind::StorageFull.into()));
        assert!(!may_begin_again(&full, 1), "it is full the next time, too");
    }
}
