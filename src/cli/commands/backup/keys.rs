//! Flags with keys: who can open a backup that is made, and what opens one that is read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::api::shell::quote_word;
use crate::api::util::file::{self, FileError, wrap_io_error};
use crate::api::util::text::visible_word;
use crate::backup::{Identity, Opening, Recipient, RecipientError, Seal};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::local_file_error;
use crate::pki::SecretText;

/// Largest size of a file with keys, in bytes.
const MOST_BYTES: u64 = 64 * 1024;
/// Largest number of recipients: the seal names each.
const MOST_RECIPIENTS: usize = 100;

/// How a backup is sealed.
#[derive(Debug, Args)]
pub(super) struct SealArgs {
    /// Public key of somebody who can open the backup, `age1…`, as `age-keygen` prints it (repeatable)
    #[arg(long = "recipient", value_name = "KEY", conflicts_with = "passphrase_file")]
    recipients: Vec<String>,

    /// File with a passphrase that opens the backup; nobody else may be able to read the file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,

    /// Leave the keys out: the backup is useless without the existing Secrets; the backup is not sealed unless you also give a recipient or a passphrase
    #[arg(long)]
    no_keys: bool,
}

impl SealArgs {
    /// Whether the keys are part of the backup.
    pub(super) const fn has_keys(&self) -> bool {
        !self.no_keys
    }

    /// Reads how the backup is sealed, before anything else is read.
    pub(super) fn read_seal(&self) -> Result<Seal, CliError> {
        if let Some(path) = &self.passphrase_file {
            return Ok(Seal::Passphrase(read_closed_passphrase(path)?));
        }
        if self.recipients.len() > MOST_RECIPIENTS {
            let headline =
                format!("{} recipients are given; a backup takes at most {MOST_RECIPIENTS}", self.recipients.len());
            return Err(CliError::usage("BadRecipient", headline));
        }
        let recipients: Vec<Recipient> =
            self.recipients.iter().map(|text| parse_recipient(text)).collect::<Result<_, _>>()?;
        match (recipients.is_empty(), self.no_keys) {
            (false, _) => Ok(Seal::Recipients(recipients)),
            (true, true) => Ok(Seal::Open),
            (true, false) => Err(undecided_error()),
        }
    }
}

/// The error of a backup with keys that anybody could open.
fn undecided_error() -> CliError {
    CliError::usage(
        "SealUndecided",
        "a backup contains the keys of the control plane, and no recipient or passphrase is given",
    )
    .hint("`--recipient age1…` seals it for a public key, as `age-keygen -o backup.key` prints it")
    .hint("`--passphrase-file FILE` seals it with a passphrase")
    .hint("`--no-keys` leaves the keys out: the backup is then useless without the existing Secrets")
}

fn parse_recipient(text: &str) -> Result<Recipient, CliError> {
    text.parse().map_err(|error| {
        // A secret key is repeated nowhere.
        let shown = if error == RecipientError::Secret { "…".into() } else { visible_word(text) };
        CliError::usage("BadRecipient", format!("`--recipient {shown}`: {error}"))
            .hint("make a key with `age-keygen -o backup.key`, and give the public key that it prints")
    })
}

/// Reads a passphrase from a file that nobody else can read.
fn read_closed_passphrase(path: &Path) -> Result<SecretText, CliError> {
    let metadata = std::fs::metadata(path).map_err(wrap_io_error("read", path));
    let metadata = metadata.map_err(|error| local_file_error(&error))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        let headline = format!("other users can read the passphrase in `{}`", path.display());
        let command = format!("chmod 600 {}", quote_word(&path.to_string_lossy()));
        return Err(CliError::usage("BadRecipient", headline).hint(format!("restrict its permissions: `{command}`")));
    }
    read_passphrase(path)
}

/// Reads a passphrase: the text of a file without the line break at its end.
fn read_passphrase(path: &Path) -> Result<SecretText, CliError> {
    let text = read_key_file(path)?;
    let passphrase = text.expose().trim_end_matches(['\r', '\n']);
    if passphrase.is_empty() {
        return Err(CliError::usage("BadRecipient", format!("the passphrase in `{}` is empty", path.display())));
    }
    Ok(SecretText::new(passphrase.to_owned()))
}

fn read_key_file(path: &Path) -> Result<SecretText, CliError> {
    let read = file::read_linked_text(path, MOST_BYTES)
        .and_then(|text| text.ok_or_else(|| wrap_io_error("read", path)(std::io::ErrorKind::NotFound.into())));
    read.map(SecretText::new).map_err(|error: FileError| local_file_error(&error))
}

/// What opens a backup.
#[derive(Debug, Args)]
pub(in crate::cli) struct OpeningArgs {
    /// File with the secret key of a recipient, as `age-keygen` writes it
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,

    /// File with the passphrase
    #[arg(long, value_name = "FILE", conflicts_with = "identity")]
    passphrase_file: Option<PathBuf>,
}

impl OpeningArgs {
    /// Reads the keys.
    pub(in crate::cli) fn read_opening(&self) -> Result<Opening, CliError> {
        let identities = match &self.identity {
            Some(path) => Identity::parse_file(read_key_file(path)?.expose()).ok_or_else(|| {
                let headline = format!("`{}` is not an identity file of age", path.display());
                CliError::new(Exit::Refused, "KeysMissing", headline)
                    .hint("give the file that `age-keygen -o FILE` wrote: it contains `AGE-SECRET-KEY-1…`")
            })?,
            None => Vec::new(),
        };
        let passphrase = self.passphrase_file.as_deref().map(read_passphrase).transpose()?;
        Ok(Opening { identities, passphrase })
    }
}
