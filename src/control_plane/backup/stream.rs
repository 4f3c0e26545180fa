//! The stream of etcd into an archive: a thread seals and writes while the connection is read, a few pieces apart.

use std::io::{self, Read, Write};

use futures::{Stream, StreamExt as _};
use tokio::sync::mpsc::{Receiver, channel};

use crate::backup::{Contents, Seal, WriteError, Written, write_archive};
use crate::etcd::{Bytes, EtcdError};
use crate::install::progress::Progress;

/// Pieces between the connection and the target. etcd sends pieces of 32 KiB.
const PIECES: usize = 16;
/// Bytes between two reports of progress.
const REPORT_EVERY: u64 = 16 * MIB;
const MIB: u64 = 1024 * 1024;

/// Writes an archive with the bytes of a stream.
pub(super) async fn write_stream<W: Write + Send + 'static>(
    mut snapshot: impl Stream<Item = Result<Bytes, EtcdError>> + Unpin,
    contents: Contents,
    seal: Seal,
    output: W,
    progress: &dyn Progress,
) -> Result<Written, WriteError> {
    let (sender, receiver) = channel(PIECES);
    let total = contents.header.snapshot_bytes;
    // What is in memory does not grow with the store, nor does a slow target keep the connection from answering pings.
    let writing = tokio::task::spawn_blocking(move || {
        let snapshot = PieceReader { receiver, piece: Bytes::new() };
        write_archive(output, &seal, &contents, snapshot).map(|(_, written)| written)
    });
    let (mut passed, mut reported) = (0_u64, 0_u64);
    while let Some(piece) = snapshot.next().await {
        let is_last = piece.is_err();
        passed += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        // The thread has ended with an error of its own, which is the one that counts.
        if sender.send(piece.map_err(io::Error::other)).await.is_err() || is_last {
            break;
        }
        if passed - reported >= REPORT_EVERY {
            reported = passed;
            progress.update_step(&format!("{} of {} MiB", passed / MIB, total.div_ceil(MIB)));
        }
    }
    drop(sender);
    writing.await.unwrap_or_else(|lost| Err(WriteError::Output(io::Error::other(lost))))
}

/// The pieces of a stream as a reader; a stream that is given up ends early.
struct PieceReader {
    receiver: Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let read = self.piece.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.piece.split_to(read));
        Ok(read)
    }
}
