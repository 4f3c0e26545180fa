//! The snapshot out of the archive into a pod: a thread opens the archive while the connection is written, a few pieces apart.
//! Nothing of it is written to this machine.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc::channel;
use tokio::time::timeout;

use super::error::RestoreError;
use super::{ArchiveSource, RestoreTarget};
use crate::api::transfer::{MAX_LINE_BYTES, RECEIVE_PORT, TransferAnswer, TransferHead, format_line};
use crate::api::util::digest::full_digest;
use crate::api::util::text::visible_line;
use crate::backup::{Part, SNAPSHOT, read_archive};
use crate::install::progress::Progress;
use crate::k8s::connect::port_forward::{ForwardedPort, open_pod_port};
use crate::pki::SecretText;

/// Attempts to send a snapshot into one pod.
const ATTEMPTS: u32 = 4;
/// Longest time in which the other side takes a piece.
const TAKES_WITHIN: Duration = Duration::from_secs(60);
/// Longest time between the last piece and the answer: the file is written to disk.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);
/// Pieces between the archive and the connection.
const PIECES: usize = 16;
/// Bytes between two reports of progress.
const REPORT_EVERY: u64 = 16 * MIB;
const MIB: u64 = 1024 * 1024;

/// Sends the snapshot into a pod. A connection that breaks begins again.
pub(super) async fn send_snapshot(
    target: &RestoreTarget<'_>,
    pods: &Api<Pod>,
    pod: &str,
    source: &ArchiveSource,
) -> Result<(), RestoreError> {
    let parts = &source.verified.parts;
    let part = parts.iter().find(|part| part.name == SNAPSHOT);
    let part = part.ok_or_else(|| RestoreError::Unsuitable("the archive has no snapshot".to_owned()))?;
    let progress = target.progress.as_ref();
    send_until_taken(target, pods, pod, async |stream| send_part(stream, source, part, progress).await).await
}

/// Sends texts by their names into a pod, as one bundle. A connection that breaks begins again.
pub(super) async fn send_bundle(
    target: &RestoreTarget<'_>,
    pods: &Api<Pod>,
    pod: &str,
    bundle: &SecretText,
) -> Result<(), RestoreError> {
    let bytes = bundle.expose().as_bytes();
    let head = TransferHead { bytes: bytes.len() as u64, sha256: full_digest(bytes) };
    let sent = send_until_taken(target, pods, pod, async |mut stream| {
        write_piece(&mut stream, format_line(&head).as_bytes()).await?;
        write_piece(&mut stream, bytes).await?;
        stream.flush().await?;
        check_received(&mut stream, head.bytes).await
    });
    sent.await
}

async fn send_until_taken(
    target: &RestoreTarget<'_>,
    pods: &Api<Pod>,
    pod: &str,
    send: impl AsyncFn(ForwardedPort) -> io::Result<()>,
) -> Result<(), RestoreError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let sent = async { send(open_pod_port(pods, pod, RECEIVE_PORT).await?).await };
        match sent.await {
            Ok(()) => return Ok(()),
            Err(error) if attempt >= ATTEMPTS => return Err(RestoreError::Send { pod: pod.to_owned(), source: error }),
            Err(error) => target.wait_a_moment(&format!("pod {pod}: {error}; sending the data again")).await?,
        }
    }
}

/// Sends one part over a connection, and reads the answer.
pub(super) async fn send_part(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    source: &ArchiveSource,
    part: &Part,
    progress: &dyn Progress,
) -> io::Result<()> {
    let head = TransferHead { bytes: part.bytes, sha256: part.sha256.clone() };
    write_piece(&mut stream, format_line(&head).as_bytes()).await?;
    let (sender, mut receiver) = channel::<Vec<u8>>(PIECES);
    let (path, opening, name) = (source.path.clone(), Arc::clone(&source.opening), part.name.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let read = read_archive(File::open(path)?, &opening, &mut |found, bytes| {
            if found != name {
                return Ok(());
            }
            sender.blocking_send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
        });
        read.map_err(io::Error::other).map(drop)
    });
    let (mut passed, mut reported) = (0, 0);
    while let Some(piece) = receiver.recv().await {
        write_piece(&mut stream, &piece).await?;
        passed += piece.len() as u64;
        if passed - reported >= REPORT_EVERY {
            reported = passed;
            progress.update_step(&format!("{} of {} MiB", passed / MIB, part.bytes.div_ceil(MIB)));
        }
    }
    reading.await.map_err(io::Error::other)??;
    stream.flush().await?;
    check_received(&mut stream, part.bytes).await
}

/// Reads the answer of whoever has taken so many bytes.
async fn check_received(stream: &mut (impl AsyncRead + Unpin), sent: u64) -> io::Result<()> {
    match timeout(ANSWERS_WITHIN, read_receive_answer(stream)).await?? {
        TransferAnswer::Received(bytes) if bytes == sent => Ok(()),
        TransferAnswer::Received(bytes) => Err(io::Error::other(format!("{bytes} of {sent} bytes arrived"))),
        TransferAnswer::Refused(why) => {
            Err(io::Error::other(format!("the pod refused the data: {}", visible_line(&why))))
        }
    }
}

async fn write_piece(stream: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> io::Result<()> {
    timeout(TAKES_WITHIN, stream.write_all(piece)).await?
}

async fn read_receive_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<TransferAnswer> {
    let mut line = Vec::new();
    BufReader::new(stream).take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line).await?;
    serde_json::from_slice(&line).map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, "the pod did not answer"))
}
