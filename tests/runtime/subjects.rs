//! Requests for certificates with every wrong subject, sent to the real thing: all refused, each with a reason.

use fleetctl::api::Cluster;
use fleetctl::api::labels::{ANNOTATION_AGENT_VERSION, ANNOTATION_CLUSTER_ID};
use fleetctl::api::util::digest;
use fleetctl::k8s::connect::daemon_client;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use rand::seq::IndexedRandom as _;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PKCS_ECDSA_P384_SHA384, PublicKeyData as _,
    SanType, SigningKey as _,
};

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Stage, wait};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Placeholder in a common name for the digits of the key that the request is made with.
const KEY: &str = "{key}";

/// A common name with the digits of its key.
fn of_key(common_name: &str, pair: &KeyPair) -> String {
    common_name.replace(KEY, &digest::short_digest(&pair.subject_public_key_info()))
}

/// A request that is right but for what a test changes.
#[derive(Clone)]
struct Asked {
    common_names: Vec<String>,
    organisations: Vec<String>,
    alternatives: Vec<SanType>,
    key: fn() -> KeyPair,
    signer: &'static str,
    usages: &'static [&'static str],
    seconds: Option<i32>,
    annotations: Vec<(&'static str, String)>,
    /// The text itself, in place of what the above make.
    text: Option<String>,
}

impl Asked {
    fn by(applicant: &Applicant) -> Self {
        Self {
            common_names: vec![format!("fleet:agent:{}:{}:{KEY}", applicant.name, &applicant.id[..8])],
            organisations: vec!["fleet:agents".to_owned()],
            alternatives: Vec::new(),
            key: || KeyPair::generate().unwrap(),
            signer: SIGNER,
            usages: &["digital signature", "client auth"],
            seconds: Some(3600),
            annotations: vec![(ANNOTATION_CLUSTER_ID, applicant.id.clone())],
            text: None,
        }
    }

    fn named(&self, common_name: &str) -> Self {
        Self { common_names: vec![common_name.to_owned()], ..self.clone() }
    }

    fn of(&self, organisations: &[&str]) -> Self {
        Self { organisations: organisations.iter().map(|o| (*o).to_owned()).collect(), ..self.clone() }
    }

    fn also_for(&self, alternative: SanType) -> Self {
        Self { alternatives: vec![alternative], ..self.clone() }
    }

    fn written(&self, text: String) -> Self {
        Self { text: Some(text), ..self.clone() }
    }

    fn pem(&self) -> String {
        let pair = (self.key)();
        let mut subject = DistinguishedName::new();
        // The library keeps one value for each type of attribute, unless the type is spelled in another way.
        let kinds = |known, oid| [known, DnType::CustomDnType(oid)];
        for (kind, value) in kinds(DnType::OrganizationName, vec![2, 5, 4, 10]).into_iter().zip(&self.organisations) {
            subject.push(kind, DnValue::Utf8String(value.clone()));
        }
        for (kind, value) in kinds(DnType::CommonName, vec![2, 5, 4, 3]).into_iter().zip(&self.common_names) {
            subject.push(kind, DnValue::Utf8String(of_key(value, &pair)));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        params.subject_alt_names.clone_from(&self.alternatives);
        params.serialize_request(&pair).unwrap().pem().unwrap()
    }

    fn object(&self, name: &str) -> CertificateSigningRequest {
        let pem = self.text.clone().unwrap_or_else(|| self.pem());
        CertificateSigningRequest {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some(self.annotations.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(pem.into_bytes()),
                signer_name: self.signer.to_owned(),
                usages: Some(self.usages.iter().map(|u| (*u).to_owned()).collect()),
                expiration_seconds: self.seconds,
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }
}

/// An element of DER.
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

/// A request whose subject holds one set for each of these; an attribute is the last byte of its kind, and its text.
fn written(sets: &[&[(u8, &str)]]) -> String {
    use base64::Engine as _;
    let pair = KeyPair::generate().unwrap();
    let attribute = |(kind, text): &(u8, &str)| {
        let text = of_key(text, &pair);
        element(0x30, &[&element(0x06, &[&[0x55, 4, *kind]]), &element(0x0c, &[text.as_bytes()])])
    };
    let sets: Vec<_> =
        sets.iter().map(|set| element(0x31, &[&set.iter().flat_map(attribute).collect::<Vec<_>>()])).collect();
    let subject = element(0x30, &[&sets.concat()]);
    let info = element(0x30, &[&[2, 1, 0], &subject, &pair.subject_public_key_info(), &element(0xa0, &[])]);
    let algorithm = element(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let signature = element(0x03, &[&[0], &pair.sign(&info).unwrap()]);
    let text = base64::engine::general_purpose::STANDARD.encode(element(0x30, &[&info, &algorithm, &signature]));
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

/// Requests in which one reader sees the right subject, and another one, who signs, something else.
fn ambiguous(good: &Asked) -> Vec<(String, Asked)> {
    const COMMON_NAME: u8 = 3;
    const ORGANISATION: u8 = 10;
    let (user, right) = (good.common_names[0].as_str(), good.pem());
    let admins = good.of(&["fleet:admins"]).pem();
    let (agent, name) = ((ORGANISATION, "fleet:agents"), (COMMON_NAME, user));
    let admin = (ORGANISATION, "fleet:admins");
    let all = [
        ("a block that ends as another, before another", right.replace("END CERT", "END OF A CERT") + &admins),
        ("two blocks", format!("{right}{admins}")),
        ("something behind the block", format!("{right}{right}")),
        ("an empty set before another organisation", written(&[&[agent], &[name], &[], &[admin]])),
        ("an empty set", written(&[&[agent], &[name], &[]])),
        ("two attributes in a set", written(&[&[agent], &[name, admin]])),
        ("two names", written(&[&[agent], &[name], &[(COMMON_NAME, "fleet:scheduler")]])),
    ];
    all.map(|(what, text)| (what.to_owned(), good.written(text))).into()
}

/// Every wrong request, with what is wrong about it.
fn wrong(good: &Asked, id: &str) -> Vec<(String, Asked)> {
    let digits = &id[..8];
    let mut all: Vec<(String, Asked)> = Vec::new();
    let long = |length: usize| format!("fleet:agent:{}:{digits}:{KEY}", "x".repeat(length));
    for name in [
        "fleet:scheduler",
        "fleet:admin",
        "system:admin",
        "system:kube-controller-manager",
        "system:node:node-1",
        "system:serviceaccount:kube-system:default",
        "kube-apiserver-client",
        "",
        " ",
        "fleet:agent",
        "fleet:agent:",
        &format!("fleet:agent::{digits}:{KEY}"),
        &format!("fleet:agent:a:{digits}:{KEY} "),
        &format!(" fleet:agent:a:{digits}:{KEY}"),
        &format!("fleet:agent:a:{digits}:{KEY}\n"),
        &format!("fleet:agent:a:{digits}:{KEY}:x"),
        &format!("fleet:agent:a:b:{digits}:{KEY}"),
        &format!("fleet:agent:A:{digits}:{KEY}"),
        &format!("fleet:agent:a.b:{digits}:{KEY}"),
        &format!("fleet:agent:-a:{digits}:{KEY}"),
        &format!("fleet:agent:a-:{digits}:{KEY}"),
        &format!("fleet:agent:../kube-system:{digits}:{KEY}"),
        &format!("fleet:agent:a%2fb:{digits}:{KEY}"),
        &format!("fleet:agent:a\u{0}:{digits}:{KEY}"),
        &format!("fleet:agent:ä:{digits}:{KEY}"),
        &format!("fleet:agent:a\u{200b}:{digits}:{KEY}"),
        &format!("fleet:agent:\u{202e}a:{digits}:{KEY}"),
        &format!("fleet:agent:\u{430}:{digits}:{KEY}"),
        &format!("\u{fb02}eet:agent:a:{digits}:{KEY}"),
        &format!("fleet:agent:a:{}:{KEY}", digits.to_uppercase() + "g"),
        &format!("fleet:agent:a:{digits}"),
        &format!("fleet:agent:a:{digits}:"),
        &format!("fleet:agent:a:{digits}:0123456789abcdef"),
        &format!("fleet:agent:a:{digits}:{KEY}0"),
        &format!("fleet:agent:a:{KEY}:{digits}"),
        &format!("fleet:agent:a:ffffffff:{KEY}"),
        &format!("fleet:agent:a::{KEY}"),
        "fleet:agent:a:",
        &long(51),
        &long(4000),
    ] {
        all.push((format!("common name {:?}", name.chars().take(60).collect::<String>()), good.named(name)));
    }
    for organisations in [
        &[][..],
        &[""],
        &["fleet:admins"],
        &["fleet:agents", "fleet:admins"],
        &["fleet:admins", "fleet:agents"],
        &["fleet:agents", "fleet:agents"],
        &["fleet:agents", "system:masters"],
        &["system:masters"],
        &["system:nodes"],
        &["system:bootstrappers:fleet"],
        &["Fleet:Agents"],
        &["fleet:agents "],
        &["fleet:\u{430}gents"],
    ] {
        all.push((format!("organisations {organisations:?}"), good.of(organisations)));
    }
    let twice = vec![good.common_names[0].clone(), "fleet:scheduler".to_owned()];
    all.push(("two common names".to_owned(), Asked { common_names: twice, ..good.clone() }));
    all.push(("no common name".to_owned(), Asked { common_names: Vec::new(), ..good.clone() }));
    for alternative in [
        SanType::DnsName("apiserver.fleet.svc".try_into().unwrap()),
        SanType::IpAddress("10.0.0.1".parse().unwrap()),
        SanType::Rfc822Name("a@example.com".try_into().unwrap()),
        SanType::URI("spiffe://fleet/scheduler".try_into().unwrap()),
    ] {
        all.push((format!("alternative name {alternative:?}"), good.also_for(alternative)));
    }
    let p384: fn() -> KeyPair = || KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    all.push(("another kind of key".to_owned(), Asked { key: p384, ..good.clone() }));
    for signer in
        ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet", "example.com/anything"]
    {
        all.push((format!("signer {signer}"), Asked { signer, ..good.clone() }));
    }
    for usages in [&["client auth"][..], &["digital signature", "client auth", "server auth"], &["any"]] {
        all.push((format!("usages {usages:?}"), Asked { usages, ..good.clone() }));
    }
    for seconds in [None, Some(91 * 86_400), Some(i32::MAX)] {
        all.push((format!("life {seconds:?}"), Asked { seconds, ..good.clone() }));
    }
    for (key, value) in [
        (ANNOTATION_CLUSTER_ID, "not-a-uuid".to_owned()),
        (ANNOTATION_CLUSTER_ID, format!("{digits}-1111-4222-8333-00000000000Z")),
        (ANNOTATION_AGENT_VERSION, "9.9.0".to_owned()),
        (ANNOTATION_AGENT_VERSION, "newest".to_owned()),
    ] {
        let mut asked = good.clone();
        asked.annotations.retain(|(known, _)| *known != key);
        asked.annotations.push((key, value.clone()));
        all.push((format!("{key} {value}"), asked));
    }
    all.extend(ambiguous(good));
    let none = Asked { annotations: Vec::new(), ..good.clone() };
    all.push(("no cluster ID".to_owned(), none));
    all.extend((0..60).map(|_| {
        let name = scrambled(&good.common_names[0]);
        (format!("common name {name:?}"), good.named(&name))
    }));
    all
}

/// The right name with one to three characters changed, doubled or left out.
fn scrambled(name: &str) -> String {
    const OTHERS: &[char] =
        &['a', 'Z', '0', ':', '-', '.', '/', '*', ' ', '\t', 'ß', '中', '\u{301}', '🦀', '\u{feff}'];
    let mut rng = rand::rng();
    loop {
        let mut text: Vec<char> = name.chars().collect();
        for _ in 0..rand::random_range(1..=3) {
            let at = rand::random_range(0..text.len());
            match rand::random_range(0..3) {
                0 => text[at] = *OTHERS.choose(&mut rng).unwrap(),
                1 => text.insert(at, *OTHERS.choose(&mut rng).unwrap()),
                _ => drop(text.remove(at)),
            }
        }
        let text: String = text.into_iter().collect();
        let end = name.rsplitn(3, ':').take(2).collect::<Vec<_>>();
        if !is_an_agents(&text, &format!("{}:{}", end[1], end[0])) {
            return text;
        }
    }
}

/// Whether a scrambled name is, by chance, that of another cluster with the same ID, which nobody could refuse unseen.
fn is_an_agents(text: &str, end: &str) -> bool {
    let middle = text.strip_prefix("fleet:agent:").and_then(|t| t.strip_suffix(&format!(":{end}")));
    middle.is_some_and(|name| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        name.chars().all(|c| plain(c) || c == '-') && name.starts_with(plain) && name.ends_with(plain)
    })
}

/// Posts all of them and waits for the answers; complains about everything that is not a refusal with a reason.
async fn all_refused(admin: &Client, asker: &Client, wrong: Vec<(String, Asked)>) {
    let before = Api::<Cluster>::all(admin.clone()).list_metadata(&ListParams::default()).await.unwrap().items.len();
    let posts: Api<CertificateSigningRequest> = Api::all(asker.clone());
    let mut open = Vec::new();
    for (what, asked) in wrong {
        let name = fresh("wrong");
        match posts.create(&PostParams::default(), &asked.object(&name)).await {
            Ok(_) => open.push((what, name)),
            // Some are refused by the API server before anybody sees them.
            Err(kube::Error::Api(status)) => {
                assert!([403, 422].contains(&status.code) && !status.message.is_empty(), "{what}: {status:?}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(open.len() > 100, "{}", open.len());
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    wait("every wrong request is answered", async || {
        let all = requests.list(&ListParams::default()).await.unwrap();
        open.retain(|(what, name)| {
            let found = all.items.iter().find(|r| r.metadata.name.as_ref() == Some(name)).expect("it was posted");
            let status = found.status.clone().unwrap_or_default();
            assert!(status.certificate.is_none(), "{what}: a certificate");
            let conditions = status.conditions.unwrap_or_default();
            assert!(conditions.iter().all(|c| c.type_ != "Approved"), "{what}: {conditions:?}");
            let denied = conditions.iter().find(|c| c.type_ == "Denied");
            if let Some(denied) = denied {
                let told = denied.reason.as_ref().zip(denied.message.as_ref());
                assert!(told.is_some_and(|(r, m)| !r.is_empty() && !m.is_empty()), "{what}: {denied:?}");
            }
            denied.is_none()
        });
        open.is_empty()
    })
    .await;
    let after = Api::<Cluster>::all(admin.clone()).list_metadata(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(after, before, "a refused request left a Cluster behind");
}

#[tokio::test]
async fn with_an_init_token_every_subject_but_an_agents_own_is_refused() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("subject"));
    let good = Asked::by(&applicant);
    let token = daemon_client::token_client(&control_plane.init).unwrap();
    all_refused(&stage.hub.client, &token, wrong(&good, &applicant.id)).await;
    // What they all were changed from is right: it is the change that was refused.
    let requests: Api<CertificateSigningRequest> = Api::all(token);
    let other = Asked::by(&Applicant::new(&fresh("subject")));
    let by_hand = written(&[&[(10, "fleet:agents")], &[(3, &other.common_names[0])]]);
    for right in [good, other.written(by_hand)] {
        let name = fresh("right");
        requests.create(&PostParams::default(), &right.object(&name)).await.unwrap();
        wait("the right request is granted", async || {
            requests.get(&name).await.unwrap().status.is_some_and(|status| status.certificate.is_some())
        })
        .await;
    }
}

#[tokio::test]
async fn with_a_members_certificate_every_name_but_its_own_is_refused() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let (a, b) = (Applicant::new(&fresh("subject")), Applicant::new(&fresh("subject")));
    let member = a.join(&control_plane.init).await;
    b.join(&control_plane.init).await;
    let mut all = wrong(&Asked::by(&a), &a.id);
    all.push(("the name of another".to_owned(), Asked::by(&b)));
    all.push(("a new name".to_owned(), Asked::by(&a.named(&fresh("subject")))));
    all.push(("its name with another ID".to_owned(), Asked::by(&Applicant::new(&a.name))));
    all_refused(&stage.hub.client, &member, all).await;
}
