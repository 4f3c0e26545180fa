//! `fleet-scheduler receive`: takes one file from whoever reaches the loopback address of its pod, which is a port-forward.
//!
//! Length and SHA-256 come first, then the bytes. The file has its name only when it is complete and on disk. A
//! connection that breaks is forgotten, and the next one begins again; after the first whole file the program ends. A
//! bundle, which is an object of names and texts in JSON, becomes one file for each name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::transfer::{MAX_LINE_BYTES, RECEIVE_PORT, TransferAnswer, TransferHead, format_line};
use crate::api::util::text::visible_word;
use crate::daemon::log::{self, LogFormat};
use crate::daemon::stop::Stop;

/// Longest time without a byte before a connection is given up.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// Size of the pieces that are read.
const PIECE: usize = 64 * 1024;

/// The file to take, and the bounds.
#[derive(Debug, Clone, Args)]
pub struct ReceiveArgs {
    /// File to write
    #[arg(long)]
    pub file: PathBuf,

    /// Largest size of the file, in bytes
    #[arg(long)]
    pub max_bytes: u64,

    /// Seconds within which the file must arrive
    #[arg(long, default_value_t = 1800)]
    pub within_seconds: u64,

    /// Treat the file as a bundle: write its files next to it, each under its own name
    #[arg(long)]
    pub bundle: bool,

    /// Port to listen on, on the loopback address
    #[arg(long, default_value_t = RECEIVE_PORT)]
    pub port: u16,
}

/// Runs `fleet-scheduler receive`: returns once the file is complete and on disk.
///
/// # Errors
/// A port that is taken; no whole file in time; the signal to stop.
pub fn main(format: LogFormat, args: &ReceiveArgs) -> anyhow::Result<()> {
    log::start_logging(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::default();
        stop.on_signals()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await?;
        tokio::select! {
            received = receive_file(&listener, args) => received,
            () = stop.wait_for_stop() => anyhow::bail!("stopped before the file was complete"),
        }
    })
}

/// Takes connections one after another, until one has brought the whole file.
///
/// # Errors
/// The last connection's error, once the time has passed.
pub async fn receive_file(listener: &TcpListener, args: &ReceiveArgs) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(args.within_seconds);
    let mut last = "nobody has connected".to_owned();
    loop {
        let Ok(accepted) = timeout_at(end, listener.accept()).await else {
            anyhow::bail!("no complete file within {} s: {last}", args.within_seconds);
        };
        let (mut stream, _) = accepted?;
        let received = timeout_at(end, take_file(&mut stream, args)).await;
        let received = received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let received = received.and_then(|bytes| {
            if args.bundle {
                unpack_bundle(&args.file)?;
            }
            Ok(bytes)
        });
        let answer = match &received {
            Ok(bytes) => TransferAnswer::Received(*bytes),
            Err(error) => TransferAnswer::Refused(error.to_string()),
        };
        // Whoever has gone asks again, and gets the same answer from whoever comes next.
        let _ = timeout(SILENT_FOR, answer_sender(&mut stream, &answer)).await;
        match received {
            Ok(bytes) => {
                tracing::info!(bytes, "the file is complete");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(%error, "a connection did not deliver a complete file");
                last = error.to_string();
            }
        }
    }
}

async fn answer_sender(stream: &mut (impl AsyncWrite + Unpin), answer: &TransferAnswer) -> io::Result<()> {
    stream.write_all(format_line(answer).as_bytes()).await?;
    stream.flush().await?;
    stream.shutdown().await
}

/// Takes the file from one connection. Returns its size.
async fn take_file(stream: &mut (impl AsyncRead + Unpin), args: &ReceiveArgs) -> io::Result<u64> {
    let mut input = BufReader::with_capacity(PIECE, stream);
    let head = read_head(&mut input).await?;
    if head.bytes > args.max_bytes {
        return Err(invalid(format!("it has {} bytes; at most {} are accepted", head.bytes, args.max_bytes)));
    }
    let part = part_path(&args.file);
    let mut file = File::create(&part)?;
    let (mut hash, mut rest) = (Sha256::new(), head.bytes);
    let mut piece = vec![0; PIECE];
    while rest > 0 {
        let most = usize::try_from(rest).unwrap_or(PIECE).min(PIECE);
        let count = timeout(SILENT_FOR, input.read(&mut piece[..most])).await??;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&piece[..count]);
        file.write_all(&piece[..count])?;
        rest -= count as u64;
    }
    let found = format!("{:x}", hash.finalize());
    if found != head.sha256 {
        return Err(invalid(format!("its SHA-256 is {found}, but {} was announced", visible_word(&head.sha256))));
    }
    file.sync_all()?;
    std::fs::rename(&part, &args.file)?;
    if let Some(folder) = args.file.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(head.bytes)
}

/// Writes the texts of a bundle into files of their names, and deletes it.
fn unpack_bundle(file: &Path) -> io::Result<()> {
    let texts: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(file)?)
        .map_err(|error| invalid(format!("it is not a bundle: {error}")))?;
    std::fs::remove_file(file)?;
    for (name, text) in &texts {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
        if !is_plain || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(invalid(format!("`{}` is not a valid file name in a bundle", visible_word(name))));
        }
        std::fs::write(file.with_file_name(name), text)?;
    }
    Ok(())
}

async fn read_head(input: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<TransferHead> {
    let mut line = Vec::new();
    let mut bounded = input.take(MAX_LINE_BYTES as u64);
    timeout(SILENT_FOR, bounded.read_until(b'\n', &mut line)).await??;
    serde_json::from_slice(&line).map_err(|error| invalid(format!("its first line cannot be read: {error}")))
}

fn part_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::api::util::digest::full_digest;

    /// What one connection is answered that sends this head and these bytes.
    async fn send(port: u16, head: &str, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // Whoever refuses the head does not read the rest.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn head_line(bytes: u64, sha256: &str) -> String {
        format_line(&TransferHead { bytes, sha256: sha256.to_owned() })
    }

    fn unpack_text(file: &Path, text: &str) -> Result<(), String> {
        std::fs::write(file, text).unwrap();
        unpack_bundle(file).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot.db");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let args = ReceiveArgs { file: file.clone(), max_bytes: 300_000, within_seconds: 30, bundle: false, port };
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let whole = head_line(200_000, &full_digest(&bytes));
        let sending = async {
            assert!(send(port, "{}\n", &[]).await.contains("first line"));
            assert!(send(port, &"x".repeat(MAX_LINE_BYTES * 2), &[]).await.contains("first line"));
            assert!(send(port, &head_line(300_001, "a"), &[]).await.contains("at most 300000"));
            assert!(send(port, &head_line(200_000, "a"), &bytes).await.contains("SHA-256"));
            assert!(send(port, &whole, &bytes[..150_000]).await.contains("refused"));
            assert!(!file.exists());
            assert_eq!(send(port, &whole, &bytes).await, "{\"received\":200000}\n");
        };
        let (received, ()) = tokio::join!(receive_file(&listener, &args), sending);
        received.unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_bundle_becomes_files_of_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.json");
        unpack_text(&file, r#"{"ca.crt": "one", "sa.key": "two"}"#).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("sa.key")).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        for outside in [r#"{"../a": ""}"#, r#"{"/a": ""}"#, r#"{".a": ""}"#, r#"{"": ""}"#] {
            assert!(unpack_text(&file, outside).unwrap_err().contains("not a valid file name"), "{outside}");
        }
        assert!(unpack_text(&file, "[]").unwrap_err().contains("not a bundle"));
    }

    #[tokio::test]
    async fn who_brings_no_file_in_time_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let args = ReceiveArgs { file: folder.path().join("f"), max_bytes: 10, within_seconds: 0, bundle: false, port };
        let error = receive_file(&listener, &args).await.unwrap_err().to_string();
        assert_eq!(error, "no complete file within 0 s: nobody has connected");
    }
}
