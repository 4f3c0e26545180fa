//! The operator's kubeconfig, written again: from the cluster's own Secrets, else from the local folder.

pub mod write_shared;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use kube::Client;

use super::keys::find_keys;
use super::keys::find_keys::KeysInSecrets;
use super::keys::local_files::Written;
use super::plan::OWNER_KIND;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::util::file;
use crate::api::util::file::wrap_io_error;
use crate::apply::{self, Engine};
use crate::install::admin_access;
use crate::install::admin_access::LocalKubeconfigError;
use crate::install::fleet_home::Home;
use crate::inventory::{self, Owner};
use crate::pki::secrets::{ADMIN_KUBECONFIG, ADMIN_SECRET};
use crate::pki::{self, FolderError, Kubeconfig, PkiError, SecretText, Subject};

/// Origin of a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The Secret in the hosting cluster.
    Cluster,
    /// Issued now, by the authority that the hosting cluster keeps.
    Issued,
    /// The folder in the home directory.
    Folder,
}

/// Reason that there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// No kubeconfig was found, neither in the hosting cluster nor on this machine.
    #[error("no kubeconfig of control plane {name} was found in namespace {namespace} or in {}", folder.display())]
    NotFound {
        /// The control plane.
        name: ControlPlaneName,
        /// Namespace of the hosting cluster that was searched.
        namespace: NamespaceName,
        /// Folder of this machine that was searched.
        folder: PathBuf,
    },
    /// The hosting cluster refuses the read.
    #[error("cannot read the Secrets of the control plane")]
    Cluster(#[from] kube::Error),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] apply::Error),
    /// The kubeconfig is not what an install writes.
    #[error("the kubeconfig of the control plane {}", describe_change(source))]
    Changed {
        /// The problem with it.
        source: PkiError,
        /// Whether it lies in a Secret of the user's own, which no install writes.
        is_existing: bool,
    },
    /// The keys are damaged.
    #[error("the keys of the control plane cannot be used")]
    Keys(#[from] PkiError),
    /// A local file cannot be used.
    #[error("a local file cannot be used")]
    Local(#[from] FolderError),
}

impl From<LocalKubeconfigError> for KubeconfigError {
    fn from(error: LocalKubeconfigError) -> Self {
        match error {
            LocalKubeconfigError::File(error) => Self::Local(error),
            LocalKubeconfigError::Content(source) => Self::Changed { source, is_existing: false },
        }
    }
}

const fn describe_change(source: &PkiError) -> &'static str {
    match source {
        PkiError::Empty { .. } | PkiError::Cut { .. } => "is damaged and is not used",
        _ => "was changed and is not used",
    }
}

/// Finds the kubeconfig. `hosting` is the hosting cluster, where it can be reached.
///
/// # Errors
/// [`KubeconfigError`].
pub async fn find_kubeconfig(
    hosting: Option<&Client>,
    home: &Home,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Result<(Kubeconfig, Source), KubeconfigError> {
    if let Some(client) = hosting {
        let KeysInSecrets { files, existing, .. } =
            find_keys::from_secrets(client, namespace.as_str(), name.as_str()).await?;
        if let Some(text) = files.get(ADMIN_KUBECONFIG) {
            let entry = format!("Secret {namespace}/{}", existing.as_deref().unwrap_or(ADMIN_SECRET));
            let is_existing = existing.is_some();
            let read = Kubeconfig::parse(&entry, text);
            let read = read.map_err(|source| KubeconfigError::Changed { source, is_existing })?;
            return Ok((read.of_control_plane(name.as_str()), Source::Cluster));
        }
        if pki::Authorities::any_in(&files)
            && let Some(endpoint) = recorded_endpoint(client, name, namespace).await?
        {
            let subject = Subject {
                control_plane: name.to_string(),
                namespace: namespace.to_string(),
                public: endpoint,
                internal: Subject::internal_endpoint(namespace.as_str()),
                extra_sans: Vec::new(),
            };
            let completed = pki::ensure_key_set(&files, &subject, Timestamp::now(), &pki::Lifetimes::default())?;
            if let Some(text) = completed.files.get(ADMIN_KUBECONFIG) {
                return Ok((Kubeconfig::parse(ADMIN_KUBECONFIG, text)?, Source::Issued));
            }
        }
    }
    let kept = find_keys::from_folder(&home.keys_folder(name))?;
    let found = match kept.get(ADMIN_KUBECONFIG) {
        Some(text) => {
            let file = home.keys_folder(name).join(ADMIN_KUBECONFIG);
            let read = Kubeconfig::parse(&file.to_string_lossy(), text).map_err(LocalKubeconfigError::Content);
            Some(read?.of_control_plane(name.as_str()))
        }
        None => admin_access::read_local_kubeconfig(home, name)?,
    };
    found.map(|kubeconfig| (kubeconfig, Source::Folder)).ok_or_else(|| KubeconfigError::NotFound {
        name: name.clone(),
        namespace: namespace.clone(),
        folder: home.control_plane(name),
    })
}

/// Returns the recorded endpoint of the API; nothing when nothing is installed.
async fn recorded_endpoint(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
) -> Result<Option<pki::Endpoint>, KubeconfigError> {
    let owner = Owner::new(OWNER_KIND, name.as_str(), namespace.as_str());
    let state = Engine::new_reader(client.clone(), owner).read_state().await?;
    let record = state.record.filter(|record| record.phase == inventory::Phase::Installed);
    let Some(url) = record.and_then(|record| record.release.facts.get("server").cloned()) else { return Ok(None) };
    Ok(Some(pki::Endpoint::from_url(&url)?))
}

/// Name of the file, beside the keys that `template` keeps, with the digest of the kubeconfig that it wrote. A name
/// with a dot in front is no part of a set of keys.
pub const TEMPLATE_MARK: &str = ".kubeconfig-of-template";

/// A kubeconfig in its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file.
    pub file: PathBuf,
    /// Path under which the former file is kept, where that was of another control plane.
    pub aside: Option<PathBuf>,
}

impl Placed {
    /// Returns the warning that the former file was of another control plane and where it is kept; nothing where none
    /// was renamed.
    pub fn replaced_file_warning(&self) -> Option<String> {
        let kept = self.aside.as_ref()?.display();
        Some(format!("{} belonged to another control plane; it was renamed to {kept}", self.file.display()))
    }
}

/// Writes the kubeconfig to the folder of the control plane. A file that trusts another authority is renamed: it is
/// of a control plane of this name that is gone, or that is in another cluster.
///
/// # Errors
/// A file that cannot be written or renamed; what was there is then there still.
pub fn place_kubeconfig(home: &Home, name: &ControlPlaneName, kubeconfig: &Kubeconfig) -> Result<Placed, FolderError> {
    let file = home.kubeconfig_path(name);
    let text = kubeconfig
        .to_yaml("fleet-kubeconfig")
        .map_err(|error| wrap_io_error("write", &file)(io::Error::other(error)))?;
    let is_other = is_anothers(home, name, kubeconfig, &text)?;
    let aside = is_other.then(|| write_shared::set_aside(&file)).transpose().map_err(wrap_io_error("rename", &file))?;
    match pki::write_file(&home.control_plane(name), "fleet-kubeconfig", text.expose()) {
        Ok(file) => {
            // From now on it is an install's, which `template` leaves alone.
            let _ = fs_err::remove_file(home.keys_folder(name).join(TEMPLATE_MARK));
            Ok(Placed { file, aside })
        }
        Err(error) => {
            if let Some(aside) = aside {
                let _ = fs_err::rename(aside, &file);
            }
            Err(error)
        }
    }
}

/// Returns whether the file that exists may be of another control plane than this kubeconfig.
///
/// # Errors
/// A file that cannot be read: it may be of another one, and is not replaced.
fn is_anothers(home: &Home, name: &ControlPlaneName, own: &Kubeconfig, text: &SecretText) -> Result<bool, FolderError> {
    let file = home.kubeconfig_path(name);
    // What is no file is refused by what writes it, and the same text is no other's.
    let is_file = file::read_metadata(&file)?.is_some_and(|found| found.is_file());
    if !is_file || fs_err::read_to_string(&file).is_ok_and(|former| former == text.expose()) {
        return Ok(false);
    }
    Ok(match Written::read_from_home(home, name)? {
        Written::Nothing | Written::Unreadable(PkiError::Empty { .. }) => false,
        former => !former.is_trusting_ca(&own.authority),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::pki::KubeconfigUser;

    /// A kubeconfig that trusts this authority.
    fn trusting(authority: &str, server: &str) -> Kubeconfig {
        Kubeconfig {
            context: "demo".to_owned(),
            server: server.to_owned(),
            authority: authority.to_owned(),
            user: "admin".to_owned(),
            credential: KubeconfigUser::Token(SecretText::new("t".to_owned())),
        }
    }

    /// Text of a kubeconfig that trusts this authority.
    pub(crate) fn kubeconfig(authority: &str, server: &str) -> String {
        format_kubeconfig_text(&trusting(authority, server))
    }

    fn format_kubeconfig_text(kubeconfig: &Kubeconfig) -> String {
        kubeconfig.to_yaml(ADMIN_KUBECONFIG).unwrap().expose().to_owned()
    }

    fn read_file_text(file: impl AsRef<std::path::Path>) -> String {
        fs_err::read_to_string(file).unwrap()
    }

    #[test]
    fn only_the_kubeconfig_of_another_control_plane_is_put_aside_and_none_takes_the_place_of_another() {
        let root = tempfile::tempdir().unwrap();
        let (home, name) = (Home::from_path(root.path()), "demo".parse().unwrap());
        let file = home.kubeconfig_path(&name);
        let own = trusting("one", "https://192.0.2.10:32222");
        assert_eq!(place_kubeconfig(&home, &name, &own).unwrap(), Placed { file: file.clone(), aside: None });
        // The same control plane at another address.
        let moved = trusting("one", "https://192.0.2.11:32222");
        assert_eq!(place_kubeconfig(&home, &name, &moved).unwrap(), Placed { file: file.clone(), aside: None });
        let other = trusting("two", "https://192.0.2.10:32222");
        let placed = place_kubeconfig(&home, &name, &other).unwrap();
        let first = placed.aside.clone().unwrap();
        assert_eq!([&file, &first].map(read_file_text), [&other, &moved].map(format_kubeconfig_text));
        assert!(placed.replaced_file_warning().unwrap().ends_with(&format!("it was renamed to {}", first.display())));
        // One that cannot be read may be anybody's.
        fs_err::write(&file, "clusters: [\n").unwrap();
        let second = place_kubeconfig(&home, &name, &own).unwrap().aside.unwrap();
        assert_eq!([&file, &first].map(read_file_text), [&own, &moved].map(format_kubeconfig_text));
        assert_eq!(read_file_text(&second), "clusters: [\n");
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_written_leaves_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        let (home, name): (_, ControlPlaneName) = (Home::from_path(root.path()), "demo".parse().unwrap());
        let text = trusting("one", "https://192.0.2.10:32222");
        // What others could lead elsewhere is never written to.
        let elsewhere = tempfile::tempdir().unwrap();
        fs_err::write(elsewhere.path().join("fleet-kubeconfig"), "theirs").unwrap();
        fs_err::create_dir_all(home.control_plane(&name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), home.control_plane(&name)).unwrap();
        assert!(place_kubeconfig(&home, &name, &text).is_err());
        assert_eq!(fs_err::read_to_string(home.kubeconfig_path(&name)).unwrap(), "theirs");
        assert_eq!(fs_err::read_dir(elsewhere.path()).unwrap().count(), 1);

        let folder = home.kubeconfig_path(&"other".parse().unwrap());
        fs_err::create_dir_all(folder.join("kept")).unwrap();
        assert!(place_kubeconfig(&home, &"other".parse().unwrap(), &text).is_err());
        assert!(folder.join("kept").is_dir());
    }
}
