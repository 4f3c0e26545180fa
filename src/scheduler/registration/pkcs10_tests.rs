//! Requests that two readers could read differently, written byte by byte and signed as they stand.

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use super::*;

const USER: &str = "fleet:agent:a:0a1b2c3d";

fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}

/// The same element with one byte more for its length than it needs; a short one.
fn stretched(element: &[u8]) -> Vec<u8> {
    [&[element[0], 0x81][..], &element[1..]].concat()
}

fn attribute(kind: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&element(OBJECT_IDENTIFIER, &[kind]), &element(tag, &[text])])
}

fn text_attribute(kind: &[u8], text: &str) -> Vec<u8> {
    attribute(kind, UTF8_STRING, text.as_bytes())
}

/// The common name as text of another type.
fn tagged_name(tag: u8) -> Vec<u8> {
    set(&[&attribute(&COMMON_NAME, tag, USER.as_bytes())])
}

fn set(attributes: &[&[u8]]) -> Vec<u8> {
    element(SET, attributes)
}

fn organisation(name: &str) -> Vec<u8> {
    set(&[&text_attribute(&ORGANISATION, name)])
}

fn common_name(name: &str) -> Vec<u8> {
    set(&[&text_attribute(&COMMON_NAME, name)])
}

/// The elements of a request, of which a test replaces some.
#[derive(Clone)]
struct Draft {
    version: Vec<u8>,
    subject: Vec<u8>,
    key: Vec<u8>,
    attributes: Vec<u8>,
    algorithm: Vec<u8>,
    unused_bits: u8,
}

impl Draft {
    fn good(pair: &KeyPair) -> Self {
        Self {
            version: VERSION.to_vec(),
            subject: element(SEQUENCE, &[&organisation(AGENTS_GROUP), &common_name(USER)]),
            key: pair.subject_public_key_info(),
            attributes: element(ATTRIBUTES, &[]),
            algorithm: element(SEQUENCE, &[&ECDSA_SHA256]),
            unused_bits: 0,
        }
    }

    fn of(pair: &KeyPair, sets: &[&[u8]]) -> Self {
        Self { subject: element(SEQUENCE, sets), ..Self::good(pair) }
    }

    fn with_version(&self, version: &[u8]) -> Self {
        Self { version: version.to_vec(), ..self.clone() }
    }

    fn with_subject(&self, subject: Vec<u8>) -> Self {
        Self { subject, ..self.clone() }
    }

    fn with_key(&self, curve: &[u8], bits: &[&[u8]], more: &[u8]) -> Self {
        let key = element(SEQUENCE, &[&element(SEQUENCE, &[curve]), &element(BIT_STRING, bits), more]);
        Self { key, ..self.clone() }
    }

    fn with_attributes(&self, attributes: Vec<u8>) -> Self {
        Self { attributes, ..self.clone() }
    }

    fn with_algorithm(&self, content: &[&[u8]]) -> Self {
        Self { algorithm: element(SEQUENCE, content), ..self.clone() }
    }

    fn der(&self, pair: &KeyPair) -> Vec<u8> {
        let info = element(SEQUENCE, &[&self.version, &self.subject, &self.key, &self.attributes]);
        let signature = element(BIT_STRING, &[&[self.unused_bits], &pair.sign(&info).unwrap()]);
        element(SEQUENCE, &[&info, &self.algorithm, &signature])
    }

    fn pem(&self, pair: &KeyPair) -> String {
        pem(&self.der(pair))
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("{BEGIN}{}{END}\n", lines.join("\n"))
}

fn reason(pem: &str) -> &'static str {
    parse_pkcs10(pem.as_bytes()).map_or_else(|denial| denial.reason, |_| "accepted")
}

#[test]
fn subjects_are_read_in_any_encoding() {
    let pair = KeyPair::generate().unwrap();
    let (agents, user) = (organisation(AGENTS_GROUP), common_name(USER));
    let printable = tagged_name(PRINTABLE_STRING);
    for sets in [[&agents[..], &user], [&user[..], &agents], [&agents[..], &printable]] {
        let asked = parse_pkcs10(Draft::of(&pair, &sets).pem(&pair).as_bytes()).unwrap();
        assert_eq!(asked.common_name, USER);
        assert_eq!(asked.fingerprint, key_fingerprint(&pair.subject_public_key_info()));
    }
}

#[test]
fn ambiguous_subjects_are_denied() {
    let pair = KeyPair::generate().unwrap();
    let (agents, user) = (organisation(AGENTS_GROUP), common_name(USER));
    let (admins, nothing) = (organisation("fleet:admins"), set(&[]));
    let (in_agents, is_user) = (text_attribute(&ORGANISATION, AGENTS_GROUP), text_attribute(&COMMON_NAME, USER));
    let in_admins = text_attribute(&ORGANISATION, "fleet:admins");
    let kind = element(OBJECT_IDENTIFIER, &[&COMMON_NAME]);
    let text = element(UTF8_STRING, &[USER.as_bytes()]);
    let cases: &[(&str, &[&[u8]])] = &[
        ("an empty set, and another organisation behind it", &[&agents, &user, &nothing, &admins]),
        ("an empty set at the end", &[&agents, &user, &nothing]),
        ("an empty set at the beginning", &[&nothing, &agents, &user]),
        ("an empty set in between", &[&agents, &nothing, &user]),
        ("nothing", &[]),
        ("two organisations", &[&agents, &user, &admins]),
        ("the same organisation twice", &[&agents, &agents, &user]),
        ("the same name twice", &[&agents, &user, &user]),
        ("another name behind", &[&agents, &user, &common_name("fleet:scheduler")]),
        ("both in one set", &[&set(&[&in_agents, &is_user])]),
        ("another organisation in the set of the name", &[&agents, &set(&[&is_user, &in_admins])]),
        ("another organisation in the set of ours", &[&set(&[&in_agents, &in_admins]), &user]),
        ("a unit", &[&agents, &user, &set(&[&text_attribute(&[0x55, 4, 11], "x")])]),
        (
            "an organisation by a longer identifier",
            &[&agents, &user, &set(&[&text_attribute(&[0x55, 4, 0x80, 10], "x")])],
        ),
        ("another kind of attribute", &[&agents, &user, &set(&[&text_attribute(&[0x55, 4, 3, 1], "x")])]),
        ("a sequence among the sets", &[&agents, &user, &in_admins]),
        ("something else among the sets", &[&agents, &user, &[5, 0]]),
        ("a byte among the sets", &[&agents, &user, &[0]]),
        ("a text behind the text", &[&agents, &set(&[&element(SEQUENCE, &[&kind, &text, &text])])]),
        ("no text", &[&agents, &set(&[&element(SEQUENCE, &[&kind])])]),
        ("a set of a long length", &[&agents, &stretched(&user)]),
        ("an attribute of a long length", &[&agents, &set(&[&stretched(&is_user)])]),
        ("a text of a long length", &[&agents, &set(&[&element(SEQUENCE, &[&kind, &stretched(&text)])])]),
        ("a set without a length", &[&agents, &[&[SET, 0x80][..], &is_user[..], &[0, 0]].concat()]),
        ("a set that is longer than the subject", &[&agents, &[&[SET, 0x7f][..], &is_user].concat()]),
        ("no text in UTF-8", &[&agents, &set(&[&attribute(&COMMON_NAME, UTF8_STRING, &[0xff])])]),
        ("TeletexString", &[&agents, &tagged_name(0x14)]),
        ("IA5String", &[&agents, &tagged_name(0x16)]),
        ("VisibleString", &[&agents, &tagged_name(0x1a)]),
        ("UniversalString", &[&agents, &tagged_name(0x1c)]),
        ("BMPString", &[&agents, &tagged_name(0x1e)]),
        ("OCTET STRING", &[&agents, &tagged_name(0x04)]),
        ("an implicit tag", &[&agents, &tagged_name(0x80)]),
    ];
    for (what, sets) in cases {
        assert_eq!(reason(&Draft::of(&pair, sets).pem(&pair)), "SubjectNotAllowed", "{what}");
    }
}

#[test]
fn additional_content_is_denied() {
    let pair = KeyPair::generate().unwrap();
    let good = Draft::good(&pair);
    let (whole, point) = (good.der(&pair), pair.der_bytes());

    // A request for the extensions of nothing.
    let asks = element(
        SEQUENCE,
        &[
            &element(OBJECT_IDENTIFIER, &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14]]),
            &set(&[&element(SEQUENCE, &[])]),
        ],
    );
    let compressed = [&[2 + (point[64] & 1)][..], &point[1..33]].concat();
    let sha384 = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
    let empty = element(ATTRIBUTES, &[]);
    let drafts = [
        ("nothing", "accepted", good.clone()),
        ("attributes", "ExtensionsNotAllowed", good.with_attributes(element(ATTRIBUTES, &[&asks]))),
        ("attributes twice", "ExtensionsNotAllowed", good.with_attributes(element(ATTRIBUTES, &[&asks, &asks]))),
        ("an attribute that is none", "ExtensionsNotAllowed", good.with_attributes(element(ATTRIBUTES, &[&[5, 0]]))),
        ("no attributes", "RequestMalformed", good.with_attributes(Vec::new())),
        ("two lists of attributes", "RequestMalformed", good.with_attributes([empty.clone(), empty.clone()].concat())),
        (
            "attributes, and something behind them",
            "RequestMalformed",
            good.with_attributes([empty, vec![5, 0]].concat()),
        ),
        ("attributes under another tag", "RequestMalformed", good.with_attributes(element(0xa1, &[]))),
        ("another version", "RequestMalformed", good.with_version(&[2, 1, 1])),
        ("a long version", "RequestMalformed", good.with_version(&[2, 2, 0, 0])),
        ("no version", "RequestMalformed", good.with_version(&[])),
        ("a subject of a long length", "RequestMalformed", good.with_subject(stretched(&good.subject))),
        ("two subjects", "RequestMalformed", good.with_subject(good.subject.repeat(2))),
        ("a subject that is a set", "RequestMalformed", good.with_subject(element(SET, &[]))),
        ("a compressed key", "KeyNotAllowed", good.with_key(&P256, &[&[0], &compressed], &[])),
        ("a key with unused bits", "KeyNotAllowed", good.with_key(&P256, &[&[1], point], &[])),
        ("a key of another curve", "KeyNotAllowed", good.with_key(&[&P256[..18], &[6]].concat(), &[&[0], point], &[])),
        ("a key with parameters", "KeyNotAllowed", good.with_key(&[&P256[..], &[5, 0]].concat(), &[&[0], point], &[])),
        ("a key with something behind it", "KeyNotAllowed", good.with_key(&P256, &[&[0], point], &[5, 0])),
        ("another digest", "SignatureInvalid", good.with_algorithm(&[&sha384])),
        ("a signature with parameters", "SignatureInvalid", good.with_algorithm(&[&ECDSA_SHA256, &[5, 0]])),
        ("a signature with unused bits", "RequestMalformed", Draft { unused_bits: 1, ..good.clone() }),
    ];
    for (what, expected, draft) in drafts {
        assert_eq!(reason(&draft.pem(&pair)), expected, "{what}");
    }
    let other = KeyPair::generate().unwrap();
    assert_eq!(reason(&good.pem(&other)), "SignatureInvalid");
    let (head, body) = whole.split_at(3);
    assert_eq!(head[..2], [SEQUENCE, 0x81]);
    for (what, der) in [
        ("a byte behind it", [&whole[..], &[0]].concat()),
        ("another one behind it", whole.repeat(2)),
        ("an element behind the signature", element(SEQUENCE, &[body, &[5, 0]])),
        ("a long length", [&[SEQUENCE, 0x82, 0][..], &whole[2..]].concat()),
        ("no length", [&[SEQUENCE, 0x80][..], body, &[0, 0]].concat()),
        ("a set", element(SET, &[body])),
        ("less", whole[..whole.len() - 1].to_vec()),
        ("nothing", Vec::new()),
    ] {
        assert_eq!(reason(&pem(&der)), "RequestMalformed", "{what}");
    }
}

#[test]
fn more_than_one_pem_block_is_denied() {
    let pair = KeyPair::generate().unwrap();
    let good = Draft::good(&pair).pem(&pair);
    let evil = Draft::of(&pair, &[&organisation("fleet:admins"), &common_name(USER)]).pem(&pair);
    let unlike = good.replace("END CERTIFICATE", "END OF A CERTIFICATE");
    let body = good.strip_prefix(BEGIN).unwrap();
    for (what, text) in [
        ("a block that ends as another, and one behind it", format!("{unlike}{evil}")),
        ("a block that ends as another", unlike),
        ("two", format!("{good}{evil}")),
        ("two alike", good.repeat(2)),
        ("two beginnings", format!("{BEGIN}{good}")),
        ("two ends", format!("{good}{}", &END[1..])),
        ("a line before it", format!("x\n{good}")),
        ("an empty line before it", format!("\n{good}")),
        ("a space before it", format!(" {good}")),
        ("a line behind it", format!("{good}x\n")),
        ("a space behind it", format!("{} \n", good.trim_end())),
        ("a header", format!("{BEGIN}Proc-Type: 4,ENCRYPTED\n\n{body}")),
        ("another header", format!("{BEGIN}a:b\n{body}")),
        ("another name", good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")),
        ("lines that end as elsewhere", good.replace('\n', "\r\n")),
        ("a space in it", format!("{BEGIN} {body}")),
        ("a byte that is no text", format!("{BEGIN}\u{0}{body}")),
        ("nothing in it", format!("{BEGIN}{}\n", &END[1..])),
        ("nothing", String::new()),
    ] {
        assert_eq!(reason(&text), "RequestMalformed", "{what}");
    }
    for text in [good.trim_end().to_owned(), format!("{good}\n\n")] {
        assert_eq!(reason(&text), "accepted", "{text:?}");
    }
}
