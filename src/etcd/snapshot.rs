//! The stream of a snapshot: the bytes of a member's store, and behind them etcd's own SHA-256 of them.
//!
//! The hash is checked while the bytes pass, so a stream that ends is a snapshot that is whole: its last item is an error
//! otherwise. A file of all items is what `etcdctl snapshot restore` takes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use prost::bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::error::EtcdError;
use super::messages::SnapshotResponse;

/// Length of the hash at the end.
const HASH_BYTES: usize = 32;
/// The store consists of pages of a multiple of this size.
const PAGE_BYTES: u64 = 512;
/// Longest time without a byte of a stream that is read.
const SILENCE: Duration = Duration::from_secs(60);

/// A snapshot that a member sends. Items are pieces of the file, in order; memory holds one of them and the windows of the
/// connection, however large the store is.
///
/// After an error the stream ends, and nothing that came before is to be used.
pub struct Snapshot {
    member: String,
    total_bytes: u64,
    answers: Streaming<SnapshotResponse>,
    first: Option<Bytes>,
    verifier: Option<Verifier>,
    silent_until: Pin<Box<tokio::time::Sleep>>,
}

impl Snapshot {
    /// Waits for the first piece, which tells how large the whole is.
    pub(super) async fn open(member: String, mut answers: Streaming<SnapshotResponse>) -> Result<Self, EtcdError> {
        let first = match tokio::time::timeout(SILENCE, answers.message()).await {
            Ok(Ok(Some(first))) => first,
            Ok(Ok(None)) => return Err(EtcdError::SnapshotDamaged { member, why: Damage::NoHash.to_string() }),
            Ok(Err(status)) => return Err(EtcdError::from_status(&member, &status)),
            Err(_) => return Err(EtcdError::TimedOut { member }),
        };
        let store = first.remaining_bytes.saturating_add(first.blob.len() as u64);
        Ok(Self {
            member,
            total_bytes: store.saturating_add(HASH_BYTES as u64),
            answers,
            first: Some(first.blob),
            verifier: Some(Verifier::new(store)),
            silent_until: Box::pin(tokio::time::sleep(SILENCE)),
        })
    }

    /// Number of bytes of all items together, as the member announces it; a stream with another number ends with an error.
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The member that sends it.
    pub fn member(&self) -> &str {
        &self.member
    }

    fn end_with(&mut self, error: EtcdError) -> Poll<Option<Result<Bytes, EtcdError>>> {
        self.verifier = None;
        Poll::Ready(Some(Err(error)))
    }

    fn damaged(&mut self, damage: &Damage) -> Poll<Option<Result<Bytes, EtcdError>>> {
        let error = EtcdError::SnapshotDamaged { member: self.member.clone(), why: damage.to_string() };
        self.end_with(error)
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failed>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        match Pin::new(&mut self.answers).poll_next(context) {
            Poll::Ready(next) => {
                // Time in which nobody asks does not count.
                self.silent_until.as_mut().reset(Instant::now() + SILENCE);
                Poll::Ready(next.map(|next| next.map(|answer| answer.blob).map_err(Failed::Status)))
            }
            Poll::Pending => {
                ready!(self.silent_until.as_mut().poll(context));
                Poll::Ready(Some(Err(Failed::Silent)))
            }
        }
    }
}

/// Reason that the next piece does not come.
enum Failed {
    Status(Status),
    Silent,
}

impl Stream for Snapshot {
    type Item = Result<Bytes, EtcdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.verifier.is_none() {
                return Poll::Ready(None);
            }
            match ready!(this.poll_piece(context)) {
                Some(Ok(piece)) => {
                    let Some(verifier) = &mut this.verifier else { return Poll::Ready(None) };
                    match verifier.take_piece(piece) {
                        Ok(passed) if passed.is_empty() => {}
                        Ok(passed) => return Poll::Ready(Some(Ok(passed))),
                        Err(damage) => return this.damaged(&damage),
                    }
                }
                Some(Err(Failed::Status(status))) => {
                    let error = EtcdError::from_status(&this.member, &status);
                    return this.end_with(error);
                }
                Some(Err(Failed::Silent)) => {
                    let error = EtcdError::TimedOut { member: this.member.clone() };
                    return this.end_with(error);
                }
                None => {
                    let Some(verifier) = this.verifier.take() else { return Poll::Ready(None) };
                    return match verifier.finish() {
                        Ok(hash) => Poll::Ready(Some(Ok(hash))),
                        Err(damage) => this.damaged(&damage),
                    };
                }
            }
        }
    }
}

/// Something wrong with the bytes of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Damage {
    #[error("it ended before its hash arrived")]
    NoHash,
    #[error("{received} of {expected} bytes arrived")]
    Length { received: u64, expected: u64 },
    #[error("the store has {0} bytes, which is not a multiple of the page size")]
    Pages(u64),
    #[error("its hash does not match the {0} bytes that arrived")]
    Hash(u64),
}

/// Passes the bytes of a snapshot on, except for the last 32: those are the hash of all others, and pass when they fit.
struct Verifier {
    hash: Sha256,
    /// The last bytes that came, up to 32 of them.
    retained: BytesMut,
    passed: u64,
    /// Size of the store, as it was announced.
    expected: u64,
}

impl Verifier {
    fn new(expected: u64) -> Self {
        Self { hash: Sha256::new(), retained: BytesMut::with_capacity(2 * HASH_BYTES), passed: 0, expected }
    }

    /// Takes the next piece. Returns bytes that are no part of the hash.
    fn take_piece(&mut self, mut piece: Bytes) -> Result<Bytes, Damage> {
        let too_many = self.retained.len() + piece.len();
        let released = too_many.saturating_sub(HASH_BYTES);
        let passed = if released <= self.retained.len() {
            let passed = self.retained.split_to(released).freeze();
            self.retained.extend_from_slice(&piece);
            passed
        } else if self.retained.is_empty() {
            let passed = piece.split_to(released);
            self.retained.extend_from_slice(&piece);
            passed
        } else {
            let mut passed = BytesMut::with_capacity(released);
            passed.extend_from_slice(&self.retained.split());
            passed.extend_from_slice(&piece.split_to(released - passed.len()));
            self.retained.extend_from_slice(&piece);
            passed.freeze()
        };
        self.hash.update(&passed);
        self.passed += passed.len() as u64;
        if self.passed > self.expected {
            return Err(Damage::Length { received: self.passed, expected: self.expected });
        }
        Ok(passed)
    }

    /// Returns the hash, if it is that of what passed.
    fn finish(self) -> Result<Bytes, Damage> {
        if self.retained.len() < HASH_BYTES {
            return Err(Damage::NoHash);
        }
        if self.passed != self.expected {
            return Err(Damage::Length { received: self.passed, expected: self.expected });
        }
        if self.passed == 0 || !self.passed.is_multiple_of(PAGE_BYTES) {
            return Err(Damage::Pages(self.passed));
        }
        if self.hash.finalize()[..] != self.retained[..] {
            return Err(Damage::Hash(self.passed));
        }
        Ok(self.retained.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a file to the verifier in pieces: what it passes on, or what it finds.
    fn verify(file: &[u8], store: u64, piece: usize) -> Result<Vec<u8>, Damage> {
        let mut verifier = Verifier::new(store);
        let mut passed = Vec::new();
        for piece in file.chunks(piece) {
            passed.extend_from_slice(&verifier.take_piece(Bytes::copy_from_slice(piece))?);
        }
        passed.extend_from_slice(&verifier.finish()?);
        Ok(passed)
    }

    fn snapshot_file() -> Vec<u8> {
        let mut file: Vec<u8> = (0..4096_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
        let hash = Sha256::digest(&file);
        file.extend_from_slice(&hash);
        file
    }

    #[test]
    fn a_whole_snapshot_passes_in_pieces_of_any_size() {
        let file = snapshot_file();
        for piece in [1, 7, 31, 32, 33, 100, 4096, 4097, 5000] {
            assert_eq!(verify(&file, 4096, piece).as_deref(), Ok(&file[..]), "{piece}");
        }
    }

    #[test]
    fn a_snapshot_that_is_cut_anywhere_is_found_and_never_ends_well() {
        let file = snapshot_file();
        for end in 0..file.len() {
            assert!(verify(&file[..end], 4096, 1000).is_err(), "{end}");
            // Also where the announced size is forged to fit.
            let announced = end.saturating_sub(HASH_BYTES) as u64;
            assert!(verify(&file[..end], announced, 1000).is_err(), "{end}");
        }
        assert_eq!(verify(&file[..31], 4096, 1000), Err(Damage::NoHash));
        let short = Damage::Length { received: 4064, expected: 4096 };
        assert_eq!(verify(&file[..4096], 4096, 1000), Err(short));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let file = snapshot_file();
        for at in (0..file.len()).step_by(61).chain([file.len() - 1]) {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert_eq!(verify(&flipped, 4096, 1000), Err(Damage::Hash(4096)), "{at}");
        }
    }

    #[test]
    fn more_bytes_than_were_announced_and_half_pages_are_found() {
        let file = snapshot_file();
        assert!(matches!(verify(&file, 4000, 100), Err(Damage::Length { expected: 4000, .. })));
        let mut odd = vec![1_u8; 100];
        odd.extend_from_slice(&Sha256::digest(&odd[..]));
        assert_eq!(verify(&odd, 100, 10), Err(Damage::Pages(100)));
    }
}
