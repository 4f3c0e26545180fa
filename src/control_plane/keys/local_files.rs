//! Owner of the local folder of a control plane: clusters that know nothing of each other can each have a control plane
//! of its name.

use std::path::{Path, PathBuf};

use crate::api::names::ControlPlaneName;
use crate::api::util::file;
use crate::control_plane::kubeconfig::write_shared;
use crate::install::admin_access::{LocalKubeconfigError, read_local_kubeconfig};
use crate::install::fleet_home::Home;
use crate::k8s::error_sentences;
use crate::pki::secrets::ADMIN_KUBECONFIG;
use crate::pki::{self, AuthorityKind, CertificateFacts, Files, FolderError, Kubeconfig, PkiError};

/// The kubeconfig in the folder.
#[derive(Debug)]
pub(in crate::control_plane) enum Written {
    /// There is no kubeconfig.
    Nothing,
    /// It can be read and is not what an install writes: it may be anybody's.
    Unreadable(PkiError),
    /// It can be read.
    Kubeconfig(Kubeconfig),
}

impl Written {
    /// Reads the kubeconfig in the folder of a control plane.
    ///
    /// # Errors
    /// A file that cannot be read: which does not show its owner.
    pub(in crate::control_plane) fn read_from_home(home: &Home, name: &ControlPlaneName) -> Result<Self, FolderError> {
        match read_local_kubeconfig(home, name) {
            Ok(read) => Ok(read.map_or(Self::Nothing, Self::Kubeconfig)),
            Err(LocalKubeconfigError::Content(error)) => Ok(Self::Unreadable(error)),
            Err(LocalKubeconfigError::File(error)) => Err(error),
        }
    }

    /// Returns whether the kubeconfig trusts this authority, given by its certificate.
    pub(in crate::control_plane) fn is_trusting_ca(&self, authority: &str) -> bool {
        matches!(self, Self::Kubeconfig(kubeconfig) if pki::is_same_authority(&kubeconfig.authority, authority))
    }
}

/// The folder, as a removal of a control plane with its data treats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// There is no folder.
    None,
    /// The folder is removed too.
    Goes {
        /// Path of the folder.
        path: PathBuf,
        /// Whether keys are in it that `template` keeps.
        keys: bool,
    },
    /// The folder stays: it may be that of a control plane in another cluster.
    Stays(PathBuf),
    /// The folder stays: it cannot be read.
    Unreadable {
        /// Path of the folder.
        path: PathBuf,
        /// Reason that it cannot be read, as a sentence.
        why: String,
    },
}

impl Folder {
    /// Judges the folder: it goes where it is that of the control plane with this authority, as far as the cluster
    /// still has its certificate, and else with this server URL.
    pub(in crate::control_plane) fn from_home(
        home: &Home,
        name: &ControlPlaneName,
        authority: Option<&str>,
        server: Option<&str>,
    ) -> Self {
        let judged = Self::judge_folder(home, name, authority, server);
        judged.unwrap_or_else(|error| Self::from_file_error(home.control_plane(name), &error))
    }

    /// The folder where nothing in the cluster shows its owner.
    pub(in crate::control_plane) fn of_unknown_owner(path: PathBuf) -> Self {
        match file::read_metadata(&path) {
            Ok(None) => Self::None,
            Ok(Some(_)) => Self::Stays(path),
            Err(error) => Self::from_file_error(path, &error),
        }
    }

    fn from_file_error(path: PathBuf, error: &FolderError) -> Self {
        Self::Unreadable { path, why: error_sentences(error).join(": ") }
    }

    fn judge_folder(
        home: &Home,
        name: &ControlPlaneName,
        authority: Option<&str>,
        server: Option<&str>,
    ) -> Result<Self, FolderError> {
        let path = home.control_plane(name);
        if file::read_metadata(&path)?.is_none() {
            return Ok(Self::None);
        }
        let written = Written::read_from_home(home, name)?;
        let others = match (&written, authority, server) {
            (Written::Nothing, ..) => false,
            // One that nothing in the cluster tells to be its own can be that of a namesake: an install that was interrupted
            // before its keys has written none.
            (Written::Unreadable(_), ..) | (Written::Kubeconfig(_), None, None) => true,
            (_, Some(authority), _) => !written.is_trusting_ca(authority),
            (Written::Kubeconfig(kubeconfig), None, Some(server)) => kubeconfig.server != server,
        };
        let own = authority.or(match &written {
            Written::Kubeconfig(kubeconfig) => Some(kubeconfig.authority.as_str()),
            _ => None,
        });
        let keys = home.keys_folder(name);
        let has_keys = file::is_present(&keys)?;
        let keys_of_others = match own {
            Some(authority) => !is_of(&keys, authority)?,
            None => has_keys,
        };
        if others || keys_of_others || write_shared::has_set_aside(&home.kubeconfig_path(name))? {
            return Ok(Self::Stays(path));
        }
        Ok(Self::Goes { path, keys: has_keys })
    }
}

/// Returns whether a folder of keys holds no other authority than this one.
fn is_of(keys: &Path, authority: &str) -> Result<bool, FolderError> {
    let kept = pki::read_file(keys, AuthorityKind::Cluster.certificate_file())?;
    Ok(kept.is_none_or(|kept| pki::is_same_authority(kept.expose(), authority)))
}

/// Returns whether a key set is of another authority than this one. A certificate that is missing or damaged tells nothing.
pub(in crate::control_plane) fn is_of_another(keys: &Files, authority: &str) -> bool {
    let entry = AuthorityKind::Cluster.certificate_file();
    keys.get(entry).is_some_and(|own| !pki::is_same_authority(own, authority) && is_whole_certificate(own))
}

/// Returns whether a text is a certificate that can be read.
pub(in crate::control_plane) fn is_whole_certificate(text: &str) -> bool {
    !CertificateFacts::from_pem("", text).is_err_and(|error| error.is_of_damaged_text())
}

/// The authority of a key set: its certificate, else the one that the operator's kubeconfig trusts.
pub(in crate::control_plane) fn find_ca_certificate(files: &Files) -> Option<String> {
    let certificate = files.get(AuthorityKind::Cluster.certificate_file()).map(str::to_owned);
    certificate.or_else(|| Some(Kubeconfig::parse(ADMIN_KUBECONFIG, files.get(ADMIN_KUBECONFIG)?).ok()?.authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://192.0.2.10:32222";

    /// A home with these files in the folder of `demo`.
    fn home(files: &[(&str, &str)]) -> (tempfile::TempDir, Home, ControlPlaneName) {
        let root = tempfile::tempdir().unwrap();
        let (home, name) = (Home::from_path(root.path()), "demo".parse().unwrap());
        for (file, text) in files {
            let file = home.control_plane(&name).join(file);
            fs_err::create_dir_all(file.parent().unwrap()).unwrap();
            fs_err::write(file, text).unwrap();
        }
        (root, home, name)
    }

    fn kubeconfig(authority: &str) -> String {
        crate::control_plane::kubeconfig::tests::kubeconfig(authority, SERVER)
    }

    /// Whether a folder with these files is deleted with keys; none if it is kept.
    fn judge_folder_of_files(files: &[(&str, &str)], authority: Option<&str>, server: Option<&str>) -> Option<bool> {
        let (_root, home, name) = home(files);
        match Folder::from_home(&home, &name, authority, server) {
            Folder::None => panic!("{files:?}"),
            Folder::Goes { keys, .. } => Some(keys),
            Folder::Unreadable { why, .. } => panic!("{files:?}: {why}"),
            Folder::Stays(path) => {
                assert_eq!(path, home.control_plane(&name));
                None
            }
        }
    }

    #[test]
    fn a_folder_goes_with_its_own_control_plane_and_stays_for_that_of_another_cluster() {
        let one = kubeconfig("one\n");
        let own = [("fleet-kubeconfig", one.as_str())];
        assert_eq!(judge_folder_of_files(&own, Some("one"), None), Some(false));
        assert_eq!(
            judge_folder_of_files(&own, Some("one"), Some("https://moved:1")),
            Some(false),
            "the keys say more than an address"
        );
        assert_eq!(judge_folder_of_files(&own, Some("two"), Some(SERVER)), None);
        assert_eq!(judge_folder_of_files(&[("fleet-kubeconfig", "clusters: [\n")], Some("one"), None), None);
        // A removal that was interrupted after the keys, or lost them before: what there is must not say otherwise.
        assert_eq!(judge_folder_of_files(&own, None, Some(SERVER)), Some(false));
        assert_eq!(
            judge_folder_of_files(&own, None, None),
            None,
            "a first install that was interrupted has written none"
        );
        assert_eq!(judge_folder_of_files(&own, None, Some("https://192.0.2.10:32223")), None);
        // Of an install that was interrupted, or of `template`.
        assert_eq!(judge_folder_of_files(&[("journal", "")], Some("one"), None), Some(false));
        assert_eq!(judge_folder_of_files(&[("journal", "")], None, None), Some(false));
        assert_eq!(judge_folder_of_files(&[("journal", ""), ("pki/ca.crt", "two")], None, None), None);
        assert_eq!(judge_folder_of_files(&[own[0], ("pki/ca.crt", "two")], None, Some(SERVER)), None);
        // The file of another control plane was kept beside it.
        assert_eq!(judge_folder_of_files(&[own[0], ("fleet-kubeconfig.before-fleetctl", "")], Some("one"), None), None);
        assert_eq!(judge_folder_of_files(&[own[0], ("pki/ca.crt", "one")], Some("one"), None), Some(true));
        assert_eq!(judge_folder_of_files(&[own[0], ("pki/ca.crt", "two")], Some("one"), None), None);

        let (_root, home, name) = home(&[]);
        assert_eq!(Folder::from_home(&home, &name, Some("one"), None), Folder::None);
        // One that cannot be read is not one that is not there.
        std::os::unix::fs::symlink("demo", home.control_plane(&name)).unwrap();
        let unreadable = Folder::from_home(&home, &name, Some("one"), None);
        assert!(matches!(&unreadable, Folder::Unreadable { why, .. } if why.contains("form a loop")), "{unreadable:?}");
    }

    #[test]
    fn the_authority_of_a_set_whose_kept_part_is_lost_is_the_one_that_its_kubeconfig_trusts() {
        for (file, text, authority) in [
            ("ca.crt", "one", Some("one")),
            (ADMIN_KUBECONFIG, &*kubeconfig("one"), Some("one")),
            (ADMIN_KUBECONFIG, "clusters: [\n", None),
            ("sa.pub", "one", None),
        ] {
            let found = find_ca_certificate(&Files::from_iter([(file.to_owned(), text.to_owned())]));
            assert_eq!(found.as_deref(), authority, "{file}");
        }
    }
}
