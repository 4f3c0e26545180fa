//! The one shape of a PKCS #10 request that an agent makes, byte by byte.
//!
//! What is checked here is signed elsewhere, by a program that reads PEM and DER in its own way: a block, an element or a
//! byte that one of the two skips makes them see different subjects. So nothing is skipped. Every byte is either fixed or
//! part of one of the values that are taken out, and whatever else there is, is refused.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::denial::Denial;
use crate::api::labels::AGENTS_GROUP;
use crate::api::protocol::key_fingerprint;

/// The first line, and the last one with the end of the line before it.
const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----\n";
const END: &str = "\n-----END CERTIFICATE REQUEST-----";

/// Tags.
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const ATTRIBUTES: u8 = 0xa0;

/// Kinds of attributes of a subject.
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const ORGANISATION: [u8; 3] = [0x55, 4, 10];

/// The version, which is the first one, as an element.
const VERSION: [u8; 3] = [2, 1, 0];
/// Algorithm identifier of an ECDSA P-256 key.
const P256: [u8; 19] = [6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// Algorithm identifier of a signature by ECDSA with SHA-256.
const ECDSA_SHA256: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// Bytes of a point of P-256 that is not compressed, and the first of them.
const POINT: (usize, u8) = (65, 4);

/// Contents of a request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) common_name: String,
    /// Digest of the public key.
    pub(super) fingerprint: String,
}

/// Reads a request: one common name and one organisation, which is that of agents; a P-256 key whose owner signed the
/// request; and no extension, so no alternative names.
pub(super) fn parse_pkcs10(pem: &[u8]) -> Result<Asked, Denial> {
    let malformed =
        || Denial::new("RequestMalformed", "the request must be exactly one PEM block with a PKCS #10 request");
    let der = decode_pem(pem).ok_or_else(malformed)?;
    let parts = Parts::from_der(&der).ok_or_else(malformed)?;
    let common_name = parse_subject(parts.subject)?;
    if !parts.attributes.is_empty() {
        return Err(Denial::new(
            "ExtensionsNotAllowed",
            "the request must not contain extensions or alternative names",
        ));
    }
    let point = parts.public_key_point().ok_or_else(|| Denial::new("KeyNotAllowed", "the key must be ECDSA P-256"))?;
    let signed = parts.algorithm == ECDSA_SHA256
        && UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(parts.info, parts.signature).is_ok();
    if !signed {
        return Err(Denial::new("SignatureInvalid", "the request is not signed with its own key and SHA-256"));
    }
    Ok(Asked { common_name, fingerprint: key_fingerprint(parts.key) })
}

/// The content of a PEM text that holds one block and nothing else: no headers, nothing before and nothing behind.
fn decode_pem(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?.trim_end_matches('\n');
    let body = text.strip_prefix(BEGIN)?.strip_suffix(END)?;
    // The decoder takes its own alphabet only: neither spaces, nor what begins another block or a header.
    STANDARD.decode(body.replace('\n', "")).ok()
}

/// Rest of some DER that is still to be read.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes an element of a kind; what is in it.
    fn take_element(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.take_whole(tag).map(|(_, content)| content)
    }

    /// Takes an element of a kind; the whole of it, and what is in it. Its length must be written in the shortest way.
    fn take_whole(&mut self, tag: u8) -> Option<(&'a [u8], &'a [u8])> {
        let (&found, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81 => rest.split_first().map(|(&byte, rest)| (usize::from(byte), rest)).filter(|(n, _)| *n >= 0x80)?,
            0x82 => {
                let (bytes, rest) = rest.split_first_chunk()?;
                Some((usize::from(u16::from_be_bytes(*bytes)), rest)).filter(|(n, _)| *n >= 0x100)?
            }
            // Longer than any request of an agent, or not DER.
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        let (whole, _) = self.0.split_at(self.0.len() - after.len());
        self.0 = after;
        (found == tag).then_some((whole, content))
    }

    /// Takes bits; full bytes of them only.
    fn take_bits(&mut self) -> Option<&'a [u8]> {
        self.take_element(BIT_STRING)?.strip_prefix(&[0])
    }

    /// There must be nothing left.
    fn expect_end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// A request taken apart, down to where each part needs a reason of its own.
struct Parts<'a> {
    /// Signed part.
    info: &'a [u8],
    subject: &'a [u8],
    /// The whole of the key.
    key: &'a [u8],
    attributes: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Parts<'a> {
    fn from_der(der: &'a [u8]) -> Option<Self> {
        let mut outer = Der(der);
        let mut request = Der(outer.take_element(SEQUENCE)?);
        outer.expect_end()?;
        let (info, content) = request.take_whole(SEQUENCE)?;
        let algorithm = request.take_element(SEQUENCE)?;
        let signature = request.take_bits()?;
        request.expect_end()?;
        let mut content = Der(content.strip_prefix(&VERSION)?);
        let subject = content.take_element(SEQUENCE)?;
        let (key, _) = content.take_whole(SEQUENCE)?;
        let attributes = content.take_element(ATTRIBUTES)?;
        content.expect_end()?;
        Some(Self { info, subject, key, attributes, algorithm, signature })
    }

    /// The public key, if it is one of P-256.
    fn public_key_point(&self) -> Option<&'a [u8]> {
        let mut key = Der(Der(self.key).take_element(SEQUENCE)?);
        let curve = key.take_element(SEQUENCE)?;
        let point = key.take_bits()?;
        key.expect_end()?;
        (curve == P256 && (point.len(), *point.first()?) == POINT).then_some(point)
    }
}

/// The common name in a subject, beside which there may be the organisation of agents and nothing else.
fn parse_subject(der: &[u8]) -> Result<String, Denial> {
    let all = parse_attributes(der).ok_or_else(|| {
        deny_subject(
            "the subject must contain only a common name and an organisation, each in its own RDN and as plain text",
        )
    })?;
    if texts_of_kind(&all, ORGANISATION) != [AGENTS_GROUP] {
        return Err(deny_subject(format!("the only organisation must be {AGENTS_GROUP}")));
    }
    let [common_name] = texts_of_kind(&all, COMMON_NAME)[..] else {
        return Err(deny_subject("the subject must have exactly one common name"));
    };
    Ok(common_name.to_owned())
}

fn deny_subject(message: impl Into<String>) -> Denial {
    Denial::new("SubjectNotAllowed", message)
}

fn texts_of_kind<'a>(attributes: &[([u8; 3], &'a str)], kind: [u8; 3]) -> Vec<&'a str> {
    attributes.iter().filter(|(found, _)| *found == kind).map(|(_, text)| *text).collect()
}

/// The attributes of a subject: every set holds one of them, of a kind that is known, as UTF8String or PrintableString.
fn parse_attributes(der: &[u8]) -> Option<Vec<([u8; 3], &str)>> {
    let mut sets = Der(der);
    let mut all = Vec::new();
    while sets.expect_end().is_none() {
        let mut set = Der(sets.take_element(SET)?);
        let mut attribute = Der(set.take_element(SEQUENCE)?);
        set.expect_end()?;
        let kind: [u8; 3] = attribute.take_element(OBJECT_IDENTIFIER)?.try_into().ok()?;
        let tag = *attribute.0.first()?;
        let text = attribute.take_element(tag)?;
        attribute.expect_end()?;
        let known = [COMMON_NAME, ORGANISATION].contains(&kind) && [UTF8_STRING, PRINTABLE_STRING].contains(&tag);
        all.push((kind, std::str::from_utf8(text).ok().filter(|_| known)?));
    }
    Some(all)
}

#[cfg(test)]
#[path = "pkcs10_tests.rs"]
mod tests;
