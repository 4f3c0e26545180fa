//! Who can open an archive: the two kinds of recipients that every implementation of age has.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use age::secrecy::SecretString;
use age::stream::StreamWriter;
use age::{Encryptor, scrypt, x25519};

use super::error::WriteError;
use crate::pki::SecretText;

/// Work of scrypt for a passphrase, as a power of two: 256 MiB and about a second, which is what the program `age` takes. A
/// file that asks for more is refused.
pub(super) const WORK: u8 = 18;

/// Beginning of an identity. It is secret, so a text that begins so is never shown.
const IDENTITY: &str = "AGE-SECRET-KEY-";

/// The public key of somebody who can open an archive: `age1…`.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient(x25519::Recipient);

/// Reason that a text is no recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// It is a secret key.
    #[error("it is a secret key; give its public key, which `age-keygen -y FILE` prints")]
    Secret,
    /// It is something else.
    #[error("it is not an age public key, such as `age1…`")]
    Unreadable,
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        let text = text.trim();
        if text.to_ascii_uppercase().starts_with(IDENTITY) {
            return Err(RecipientError::Secret);
        }
        text.parse().map(Self).map_err(|_| RecipientError::Unreadable)
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A secret key that opens what was sealed for its recipient.
#[derive(Clone)]
pub struct Identity(x25519::Identity);

impl Identity {
    /// Makes a new one.
    pub fn generate() -> Self {
        Self(x25519::Identity::generate())
    }

    /// Its public key.
    pub fn to_recipient(&self) -> Recipient {
        Recipient(self.0.to_public())
    }

    /// Its text, a line of an identity file.
    pub fn to_text(&self) -> SecretText {
        use age::secrecy::ExposeSecret as _;
        SecretText::new(self.0.to_string().expose_secret().to_owned())
    }

    /// Reads a file as `age-keygen` writes it: an identity a line, empty lines and comments. None if a line is something
    /// else, or there is no identity.
    pub fn parse_file(text: &str) -> Option<Vec<Self>> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let identities: Option<Vec<Self>> = lines.map(|line| line.parse().ok().map(Self)).collect();
        identities.filter(|identities| !identities.is_empty())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// How an archive is sealed.
#[derive(Debug, Clone)]
pub enum Seal {
    /// Each of these can open it; at least one.
    Recipients(Vec<Recipient>),
    /// Whoever knows it can open it.
    Passphrase(SecretText),
    /// Anybody can: for archives without keys.
    Open,
}

impl Seal {
    /// Who can open it, as the file beside the archive names them.
    pub fn list_openers(&self) -> Vec<String> {
        match self {
            Self::Recipients(recipients) => recipients.iter().map(ToString::to_string).collect(),
            Self::Passphrase(_) => vec!["passphrase".to_owned()],
            Self::Open => Vec::new(),
        }
    }

    /// Begins a sealed stream. `work` is that of a passphrase.
    pub(super) fn begin_stream<W: Write>(&self, output: W, work: u8) -> Result<Sealed<W>, WriteError> {
        let encryptor = match self {
            Self::Open => return Ok(Sealed::Open(output)),
            Self::Recipients(recipients) => {
                Encryptor::with_recipients(recipients.iter().map(|recipient| &recipient.0 as &dyn age::Recipient))
            }
            Self::Passphrase(passphrase) => {
                let mut recipient = scrypt::Recipient::new(secret_string(passphrase));
                recipient.set_work_factor(work);
                Encryptor::with_recipients(std::iter::once(&recipient as &dyn age::Recipient))
            }
        };
        let encryptor = encryptor.map_err(|error| WriteError::Seal(error.to_string()))?;
        encryptor.wrap_output(output).map(Sealed::Age).map_err(WriteError::Output)
    }
}

/// Keys to open an archive with.
#[derive(Debug, Default)]
pub struct Opening {
    /// Secret keys, of which one has to fit.
    pub identities: Vec<Identity>,
    /// A passphrase.
    pub passphrase: Option<SecretText>,
}

impl Opening {
    /// Returns whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.identities.is_empty() && self.passphrase.is_none()
    }

    /// The keys as age takes them.
    pub(super) fn to_identities(&self) -> Vec<Box<dyn age::Identity>> {
        let mut all: Vec<Box<dyn age::Identity>> = Vec::new();
        all.extend(self.identities.iter().map(|identity| Box::new(identity.0.clone()) as Box<dyn age::Identity>));
        if let Some(passphrase) = &self.passphrase {
            let mut identity = scrypt::Identity::new(secret_string(passphrase));
            identity.set_max_work_factor(WORK);
            all.push(Box::new(identity));
        }
        all
    }
}

fn secret_string(text: &SecretText) -> SecretString {
    SecretString::from(text.expose().to_owned())
}

/// A stream that is sealed, or one that is not.
pub(super) enum Sealed<W: Write> {
    Age(StreamWriter<W>),
    Open(W),
}

impl<W: Write> Sealed<W> {
    /// Writes the end: without it, a sealed stream cannot be opened.
    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Self::Age(writer) => writer.finish(),
            Self::Open(writer) => Ok(writer),
        }
    }
}

impl<W: Write> Write for Sealed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Age(writer) => writer.write(bytes),
            Self::Open(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Age(writer) => writer.flush(),
            Self::Open(writer) => writer.flush(),
        }
    }
}
