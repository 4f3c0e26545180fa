//! Completing a set of keys and certificates: what was found is kept while it is good, the rest is made.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::kubeconfig::admin_user;
use super::{
    Authorities, AuthorityKind, Endpoint, Files, Kubeconfig, KubeconfigUser, Leaf, LeafStore, Lifetimes, PkiError,
    Renewal, San, SecretText, issue_leaf, still_good,
};
use crate::pki::leaf::reissue_leaf;

/// Number of etcd's members whose names are in its certificates ahead of time, so that a cluster can grow to this size
/// without a new certificate.
const ETCD_MEMBERS: usize = 5;

/// The control plane that the certificates are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its name: the context of every kubeconfig.
    pub control_plane: String,
    /// Its namespace in the hosting cluster.
    pub namespace: String,
    /// Address at which operators reach its API server.
    pub public: Endpoint,
    /// Address at which components in the same namespace reach it; usually [`Subject::internal_endpoint`].
    pub internal: Endpoint,
    /// Further addresses that its API server answers for.
    pub extra_sans: Vec<San>,
}

impl Subject {
    /// The API server's Service, seen from inside the hosting cluster.
    pub fn internal_endpoint(namespace: &str) -> Endpoint {
        Endpoint { host: San::Dns(format!("apiserver.{namespace}.svc")), port: 443 }
    }

    fn leaf_sans(&self, leaf: Leaf) -> Vec<San> {
        let namespace = &self.namespace;
        let mut sans = match leaf {
            Leaf::ApiServer => {
                let mut sans = service_names("apiserver", namespace);
                sans.extend(service_names("kubernetes", "default"));
                sans.push(San::Ip([10, 96, 0, 1].into()));
                sans.extend([self.public.host.clone(), self.internal.host.clone()]);
                sans.extend(self.extra_sans.iter().cloned());
                sans.extend(loopback_sans());
                sans
            }
            Leaf::EtcdServer => {
                let mut sans = service_names("etcd-client", namespace);
                sans.extend(etcd_members(namespace));
                sans.extend(loopback_sans());
                sans
            }
            // A peer looks every name of the other's certificate up to find the address it comes from:
            // members' own names only, and no wildcard, which would need reverse look-ups.
            Leaf::EtcdPeer => etcd_members(namespace),
            _ => Vec::new(),
        };
        sans.sort();
        sans.dedup();
        sans
    }

    /// The server that a leaf's kubeconfig names.
    fn kubeconfig_server(&self, leaf: Leaf) -> String {
        match leaf {
            Leaf::Admin => self.public.endpoint_url(),
            _ => self.internal.endpoint_url(),
        }
    }
}

fn service_names(service: &str, namespace: &str) -> Vec<San> {
    [
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
    .map(San::Dns)
    .into()
}

fn etcd_members(namespace: &str) -> Vec<San> {
    (0..ETCD_MEMBERS)
        .flat_map(|member| {
            let short = format!("etcd-{member}.etcd.{namespace}.svc");
            [San::Dns(format!("{short}.cluster.local")), San::Dns(short)]
        })
        .collect()
}

fn loopback_sans() -> [San; 3] {
    [San::Dns("localhost".to_owned()), San::Ip([127, 0, 0, 1].into()), San::Ip(std::net::Ipv6Addr::LOCALHOST.into())]
}

/// Certificates that are issued again.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Those that are due.
    #[default]
    Due,
    /// All that a CA issues, and CAs that are due.
    All,
    /// Those in these files, due or not, and no other one.
    Only(BTreeSet<String>),
}

impl Choice {
    /// The lifetimes by which the certificate in a file is judged.
    fn judging_lifetimes(&self, file: &str, usual: &Lifetimes) -> Lifetimes {
        let (renew_before, renew_authority_before) = match self {
            Self::Due => (usual.renew_before, usual.renew_authority_before),
            Self::All => (Duration::MAX, usual.renew_authority_before),
            Self::Only(files) if files.contains(file) => (Duration::MAX, Duration::MAX),
            Self::Only(_) => (Duration::ZERO, Duration::ZERO),
        };
        Lifetimes { renew_before, renew_authority_before, ..*usual }
    }

    /// Returns whether the certificate in a file is left as it is, even if it has ended.
    fn leaves(&self, file: &str) -> bool {
        matches!(self, Self::Only(files) if !files.contains(file))
    }
}

/// A complete set, and what had to be made for it.
#[derive(Debug, Clone)]
pub struct Completed {
    /// Every file of the set.
    pub files: Files,
    /// True if the authorities were made: the control plane is new.
    pub new_authorities: bool,
    /// The CAs that were signed again, with the same keys.
    pub renewed_authorities: Vec<AuthorityKind>,
    /// The leaves that were issued, each with the reason.
    pub issued: Vec<(Leaf, Renewal)>,
    /// The kubeconfigs that changed only in the server or the names in them.
    pub rewritten: Vec<Leaf>,
}

impl Completed {
    /// Returns whether the set is what was found.
    pub fn is_unchanged(&self) -> bool {
        !self.new_authorities
            && self.renewed_authorities.is_empty()
            && self.issued.is_empty()
            && self.rewritten.is_empty()
    }
}

/// Completes what was found to a full set for `subject`.
///
/// A CA that ends soon is signed again with its own key. Authorities are made only where no part of them was found; a damaged set is an error that names the entry,
/// because a new one would break everything that trusts it.
pub fn ensure_key_set(
    found: &Files,
    subject: &Subject,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Completed, PkiError> {
    ensure_chosen(found, subject, now, lifetimes, &Choice::Due, false)
}

/// As [`ensure_key_set`], of the certificates that are chosen. With `new_admin_key` the operator's certificate gets a new
/// key, and so names another user.
pub fn ensure_chosen(
    found: &Files,
    subject: &Subject,
    now: Timestamp,
    lifetimes: &Lifetimes,
    choice: &Choice,
    new_admin_key: bool,
) -> Result<Completed, PkiError> {
    let new_authorities = !Authorities::any_in(found);
    let (authorities, renewed_authorities) = if new_authorities {
        (Authorities::generate_authorities(now, lifetimes)?, Vec::new())
    } else {
        let mut authorities = Authorities::from_map(found)?;
        let renewed = authorities.renew_authorities(now, |file| choice.judging_lifetimes(file, lifetimes))?;
        (authorities, renewed)
    };
    let mut completed = Completed {
        files: authorities.to_map(),
        new_authorities,
        renewed_authorities,
        issued: Vec::new(),
        rewritten: Vec::new(),
    };
    for leaf in Leaf::ALL {
        let file = leaf.leaf_store().stored_file();
        let judging = choice.judging_lifetimes(file, lifetimes);
        let usable = match find_usable_leaf(found, leaf, &authorities, subject, now, &judging) {
            Ok(_) | Err(Renewal::Ends(_)) if new_admin_key && leaf == Leaf::Admin => Err(Renewal::NewKey),
            Err(Renewal::Ends(_)) if choice.leaves(file) => read_leaf(found, leaf),
            usable => usable,
        };
        let (certificate, key) = match usable {
            Ok(pair) => pair,
            Err(reason) => {
                let spec = leaf.to_spec(subject.leaf_sans(leaf));
                // The name of the operator's user contains a digest of the key, and bindings name that user.
                let kept = if leaf == Leaf::Admin && matches!(reason, Renewal::Ends(_)) {
                    read_leaf(found, leaf).ok()
                } else {
                    None
                };
                completed.issued.push((leaf, reason));
                match kept {
                    Some((_, key)) => reissue_leaf(&authorities, &spec, &key, now, lifetimes)?,
                    None => issue_leaf(&authorities, &spec, now, lifetimes)?,
                }
            }
        };
        match leaf.leaf_store() {
            LeafStore::Pair { certificate: certificate_file, key: key_file } => {
                completed.files.insert(certificate_file, certificate);
                completed.files.insert(key_file, key);
            }
            LeafStore::Kubeconfig(name) => {
                let kubeconfig = Kubeconfig {
                    context: subject.control_plane.clone(),
                    server: subject.kubeconfig_server(leaf),
                    authority: authorities.authority_certificate(AuthorityKind::Cluster).to_owned(),
                    user: match leaf {
                        Leaf::Admin => admin_user(&subject.control_plane),
                        _ => leaf.common_name().to_owned(),
                    },
                    credential: KubeconfigUser::Certificate { certificate, key },
                };
                let text = kubeconfig.to_yaml(name)?;
                let issued = completed.issued.last().is_some_and(|(last, _)| *last == leaf);
                if !issued && found.get(name) != Some(text.expose()) {
                    completed.rewritten.push(leaf);
                }
                completed.files.insert(name, text);
            }
        }
    }
    Ok(completed)
}

/// The certificate and key that were found for a leaf, if they can continue being used.
fn find_usable_leaf(
    found: &Files,
    leaf: Leaf,
    authorities: &Authorities,
    subject: &Subject,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(String, SecretText), Renewal> {
    let (certificate, key) = read_leaf(found, leaf)?;
    still_good(authorities, &leaf.to_spec(subject.leaf_sans(leaf)), &certificate, key.expose(), now, lifetimes)?;
    Ok((certificate, key))
}

/// The certificate and key that were found for a leaf.
fn read_leaf(found: &Files, leaf: Leaf) -> Result<(String, SecretText), Renewal> {
    match leaf.leaf_store() {
        LeafStore::Pair { certificate, key } => {
            let pair = found.get(certificate).zip(found.get(key));
            let (certificate, key) = pair.ok_or(Renewal::Missing)?;
            Ok((certificate.to_owned(), SecretText::new(key.to_owned())))
        }
        LeafStore::Kubeconfig(name) => {
            let text = found.get(name).ok_or(Renewal::Missing)?;
            let kubeconfig = Kubeconfig::parse(name, text).map_err(|_| Renewal::Unreadable)?;
            let (certificate, key) = kubeconfig.client_certificate().ok_or(Renewal::Unreadable)?;
            Ok((certificate.to_owned(), key.clone()))
        }
    }
}
