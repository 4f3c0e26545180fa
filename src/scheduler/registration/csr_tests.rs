//! Requests of every wrong shape, made by the library that the agent uses.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use kube::api::ObjectMeta;
use proptest::prelude::*;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, PublicKeyData as _, SanType,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use super::*;

const ID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

fn pem(
    key: &KeyPair,
    common_names: &[&str],
    organisations: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for name in common_names {
        params.distinguished_name.push(DnType::CommonName, *name);
    }
    // The library keeps one value for each type of attribute, unless the type is spelled in another way.
    let spellings = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, name) in spellings.into_iter().zip(organisations) {
        params.distinguished_name.push(kind, *name);
    }
    change(&mut params);
    params.serialize_request(key).unwrap().pem().unwrap().into_bytes()
}

fn request(pem: Vec<u8>) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta {
            annotations: Some([(ANNOTATION_CLUSTER_ID.to_owned(), ID.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(90 * 86_400),
            groups: Some(vec![BOOTSTRAP_GROUP.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// User name that the agent of the cluster `a` with this key asks for.
fn user_of(key: &KeyPair) -> String {
    let digest = crate::api::util::digest::short_digest(&key.subject_public_key_info());
    format!("fleet:agent:a:0a1b2c3d:{digest}")
}

fn good_of(key: &KeyPair) -> CertificateSigningRequest {
    request(pem(key, &[&user_of(key)], &["fleet:agents"], |_| {}))
}

fn good() -> CertificateSigningRequest {
    good_of(&KeyPair::generate().unwrap())
}

fn reason(request: &CertificateSigningRequest) -> &'static str {
    match parse_request(request, Requester::Token, LONGEST) {
        Ok(_) => "accepted",
        Err(denial) => denial.reason,
    }
}

/// Returns why a good request is denied after a change.
fn reason_of_changed(change: impl FnOnce(&mut CertificateSigningRequest)) -> &'static str {
    let mut request = good();
    change(&mut request);
    reason(&request)
}

fn parse_as_agent(key: &KeyPair, user: &str) -> Result<Request, Denial> {
    parse_request(&good_of(key), Requester::Agent { user: user.to_owned() }, LONGEST)
}

#[test]
fn an_agents_request_is_read() {
    let key = KeyPair::generate().unwrap();
    let first = parse_request(&good_of(&key), Requester::Token, LONGEST).unwrap();
    assert_eq!((first.cluster.as_str(), first.id.as_str()), ("a", ID));
    assert_eq!(user_name("a", ID, &first.fingerprint), user_of(&key));
    assert!(!first.leaves && !first.rejoins);
    let again = parse_request(&good_of(&key), Requester::Token, LONGEST).unwrap();
    assert_eq!(first.fingerprint, again.fingerprint, "the same key has the same fingerprint");
    let other = parse_request(&good(), Requester::Token, LONGEST).unwrap();
    assert_ne!(first.fingerprint, other.fingerprint);
}

#[test]
fn foreign_subjects_are_denied() {
    let key = KeyPair::generate().unwrap();
    let user = user_of(&key);
    let digits = user.rsplit_once(':').unwrap().1;
    let [long, empty, capital, umlaut, path, zero] = [&*"x".repeat(51), "", "A", "ä", "../b", "a\0"]
        .map(|cluster| format!("fleet:agent:{cluster}:0a1b2c3d:{digits}"));
    let (spaced, further, other_id) =
        (format!("{user} "), format!("{user}:x"), format!("fleet:agent:a:ffffffff:{digits}"));
    let (of_another_key, cut) = (user_of(&KeyPair::generate().unwrap()), user[..user.len() - 1].to_owned());
    let agents: &[&str] = &["fleet:agents"];
    let cases: &[(&[&str], &[&str])] = &[
        (&["fleet:scheduler"], agents),
        (&[&user], &[]),
        (&[&user], &["system:masters"]),
        (&[&user], &["fleet:admins"]),
        (&[&user], &["Fleet:Agents"]),
        (&[&user], &["fleet:agents", "system:masters"]),
        (&[&user], &["fleet:agents", "fleet:agents"]),
        (&[], agents),
        (&[&other_id], agents),
        (&[&spaced], agents),
        (&[&further], agents),
        (&[&empty], agents),
        (&[&capital], agents),
        (&[&umlaut], agents),
        (&[&path], agents),
        (&[&zero], agents),
        (&[&long], agents),
        (&["system:admin"], agents),
        (&["fleet:agent:a"], agents),
        (&[&of_another_key], agents),
        (&[&cut], agents),
    ];
    for (common_names, organisations) in cases {
        let reason = reason(&request(pem(&key, common_names, organisations, |_| {})));
        assert!(
            ["SubjectNotAllowed", "CommonNameNotAllowed"].contains(&reason),
            "{common_names:?} {organisations:?}: {reason}"
        );
    }
    let unit = request(pem(&key, &[&user], agents, |p| {
        p.distinguished_name.push(DnType::OrganizationalUnitName, "x");
    }));
    assert_eq!(reason(&unit), "SubjectNotAllowed");
}

#[test]
fn sans_other_keys_and_garbage_are_denied() {
    let key = KeyPair::generate().unwrap();
    let user = user_of(&key);
    let names = [user.as_str()];
    let agents = ["fleet:agents"];
    let alternative = pem(&key, &names, &agents, |p| {
        p.subject_alt_names.push(SanType::DnsName("apiserver".try_into().unwrap()));
    });
    assert_eq!(reason(&request(alternative)), "ExtensionsNotAllowed");
    let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    assert_eq!(reason(&request(pem(&other, &names, &agents, |_| {}))), "KeyNotAllowed");
    assert_eq!(
        reason(&request(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n".to_vec())),
        "RequestMalformed"
    );
    assert_eq!(reason(&request(Vec::new())), "RequestMalformed");
}

#[test]
fn a_foreign_signature_is_denied() {
    use base64::Engine as _;
    let good = good().spec.request.0;
    let (_, block) = x509_parser::pem::parse_x509_pem(&good).unwrap();
    let mut der = block.contents.clone();
    let position = der.windows(5).position(|w| w == b"agent").unwrap();
    // A name that is as well-formed as the one that was signed.
    let letter = position + "agent:".len();
    der[letter] = b'b';
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
    assert_eq!(reason(&request(forged.into_bytes())), "SignatureInvalid");
}

#[test]
fn usages_validity_signer_id_are_checked() {
    assert_eq!(reason(&good()), "accepted");
    assert_eq!(
        reason_of_changed(|r| r.spec.signer_name = "kubernetes.io/kubelet-serving".to_owned()),
        "SignerNotAllowed"
    );
    assert_eq!(
        reason_of_changed(|r| r.spec.usages.as_mut().unwrap().push("server auth".to_owned())),
        "UsagesNotAllowed"
    );
    assert_eq!(reason_of_changed(|r| r.spec.usages = None), "UsagesNotAllowed");
    for seconds in [None, Some(599), Some(90 * 86_400 + 1), Some(-1)] {
        assert_eq!(reason_of_changed(|r| r.spec.expiration_seconds = seconds), "LifetimeNotAllowed", "{seconds:?}");
    }
    for id in [
        "",
        "0a1b2c3d",
        "0A1B2C3D-1111-2222-3333-444455556666",
        "0a1b2c3d-1111-2222-3333-44445555666g",
        "éa1b2c3-1111-2222-3333-444455556666",
    ] {
        let reason = reason_of_changed(|r| {
            r.metadata.annotations.as_mut().unwrap().insert(ANNOTATION_CLUSTER_ID.to_owned(), id.to_owned());
        });
        assert_eq!(reason, "ClusterIdInvalid", "{id}");
    }
}

#[test]
fn a_denied_validity_names_the_maximum() {
    let two_days = Duration::from_secs(2 * 86_400);
    let denial = parse_request(&good(), Requester::Token, two_days).unwrap_err();
    assert_eq!((denial.reason, denial.max_validity), (validity::NOT_ALLOWED, Some(172_800)), "{denial:?}");
    assert_eq!(validity::max_in_message(&denial.message), Some(172_800), "agents of the line before read the message");
    let mut again = good();
    again.spec.expiration_seconds = denial.max_validity;
    assert!(parse_request(&again, Requester::Token, two_days).is_ok());
}

#[test]
fn an_agent_renews_its_own_name_only() {
    let key = KeyPair::generate().unwrap();
    assert!(parse_as_agent(&key, &user_of(&key)).is_ok());
    let of_another_key = user_of(&KeyPair::generate().unwrap());
    for other in [&user_of(&key).replace(":a:", ":b:"), &of_another_key, "fleet:agent:a:0a1b2c3d"] {
        assert_eq!(parse_as_agent(&key, other).unwrap_err().reason, "IdentityMismatch", "{other}");
    }
}

#[test]
fn a_name_without_key_is_outdated() {
    let key = KeyPair::generate().unwrap();
    let old = request(pem(&key, &["fleet:agent:a:0a1b2c3d"], &["fleet:agents"], |_| {}));
    let denial = parse_request(&old, Requester::Token, LONGEST).unwrap_err();
    assert!(denial.reason == "AgentOutdated" && denial.message.contains("upgrade"), "{denial:?}");
}

#[test]
fn only_who_joins_is_asked_for_its_version() {
    // A registered cluster is not lost by an upgrade of its control plane.
    let key = KeyPair::generate().unwrap();
    let mut far = good_of(&key);
    far.metadata.annotations.get_or_insert_default().insert(ANNOTATION_AGENT_VERSION.to_owned(), "0.1.0".to_owned());
    assert_eq!(reason(&far), "AgentVersionSkew");
    let registered = Requester::Agent { user: user_of(&key) };
    assert_eq!(
        parse_request(&far, registered, LONGEST).unwrap().fingerprint,
        parse_request(&good_of(&key), Requester::Token, LONGEST).unwrap().fingerprint
    );
}

#[test]
fn foreign_requests_are_ignored() {
    let mut request = good();
    assert_eq!(find_requester(&request), Some(Requester::Token));
    request.spec.groups = Some(vec!["system:authenticated".to_owned()]);
    assert_eq!(find_requester(&request), None);
}

/// Common names near and far from the right one.
fn common_names() -> impl Strategy<Value = String> {
    prop_oneof![
        // KEY stands for the digits of the key that is made then.
        "fleet:agent:[a-z0-9-]{0,53}:0a1b2c3d:KEY",
        "fleet:agent:[a-z0-9-]{0,20}:0a1b2c3d:[0-9a-f]{16}",
        "fleet:agent:[a-zA-Z0-9:./_ -]{0,20}:[0-9a-f]{7,9}:?(KEY)?",
        "[fF]leet:(agent|agents|scheduler|admin):.{0,10}",
        "\\PC{0,80}",
    ]
}

/// The rule in other words than the code's: letters, digits and inner hyphens, at most 50.
fn is_right(common_name: &str, key: &str, organisations: &[String]) -> bool {
    let end = format!(":0a1b2c3d:{key}");
    let name = common_name.strip_prefix("fleet:agent:").and_then(|rest| rest.strip_suffix(end.as_str()));
    organisations == ["fleet:agents"] && name.is_some_and(is_short_label)
}

fn is_short_label(name: &str) -> bool {
    (1..=50).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_subjects_are_denied(
        common_name in common_names(),
        organisations in prop_oneof![
            4 => Just(vec!["fleet:agents".to_owned()]),
            1 => proptest::collection::vec("(fleet:agents|system:masters|\\PC{0,12})", 0..3),
        ],
    ) {
        let key = KeyPair::generate().unwrap();
        let user = user_of(&key);
        let digits = user.rsplit_once(':').unwrap().1;
        let common_name = common_name.replace("KEY", digits);
        let parts: Vec<_> = organisations.iter().map(String::as_str).collect();
        let answer = parse_request(&request(pem(&key, &[&common_name], &parts, |_| {})), Requester::Token, LONGEST);
        match answer {
            Ok(read) => {
                prop_assert!(is_right(&common_name, digits, &organisations));
                prop_assert_eq!(format!("fleet:agent:{}:0a1b2c3d:{digits}", read.cluster.as_str()), common_name);
            }
            Err(denial) => {
                prop_assert!(!is_right(&common_name, digits, &organisations), "{denial:?}");
                prop_assert!(!denial.message.is_empty());
            }
        }
    }

    #[test]
    fn a_modified_request_is_denied(at in any::<proptest::sample::Index>(), flip in 1..=255_u8) {
        let good = good().spec.request.0;
        let (_, block) = x509_parser::pem::parse_x509_pem(&good).unwrap();
        let mut der = block.contents;
        let signed = {
            let (_, parsed) = X509CertificationRequest::from_der(&der).unwrap();
            parsed.certification_request_info.raw.to_vec()
        };
        let start = der.windows(signed.len()).position(|window| window == signed).unwrap();
        let position = start + at.index(signed.len());
        der[position] ^= flip;
        let text = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(der)
        };
        let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
        prop_assert_ne!(reason(&request(forged.into_bytes())), "accepted");
    }
}
