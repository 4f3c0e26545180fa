//! Whose the local folder of a control plane is: clusters that know nothing of each other can each have one of its name.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Service;

use super::exposure::{self, Endpoint};
use super::install::{InstallError, unknown};
use super::keys::ADMIN_KUBECONFIG;
use super::plan::Plan;
use super::survey::Survey;
use crate::api::names::ControlPlaneName;
use crate::chart::Diagnostics;
use crate::install::home::Home;
use crate::pki::{self, AuthorityKind, Files, Kubeconfig, SecretText};

/// The kubeconfig in the folder.
#[derive(Debug)]
pub(super) enum Written {
    /// There is none.
    Nothing,
    /// It cannot be read, and may be anybody's.
    Unreadable,
    /// It can be read.
    Kubeconfig(Kubeconfig),
}

impl Written {
    /// That of a control plane.
    pub(super) fn of(home: &Home, name: &ControlPlaneName) -> Self {
        let text = match fs_err::read_to_string(home.kubeconfig(name)) {
            Ok(text) => SecretText::new(text),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Self::Nothing;
            }
            Err(_) => return Self::Unreadable,
        };
        Kubeconfig::parse(ADMIN_KUBECONFIG, text.expose()).map_or(Self::Unreadable, Self::Kubeconfig)
    }

    /// Whether it trusts this authority, given by its certificate.
    pub(super) fn trusts(&self, authority: &str) -> bool {
        matches!(self, Self::Kubeconfig(kubeconfig) if kubeconfig.authority.trim() == authority.trim())
    }

    /// Whether the control plane that it leads to may be another one, which goes on without it: neither are its keys known
    /// here, nor is another now reached at its address. The `servers` are looked for only where they are needed.
    fn is_anothers<E>(
        &self,
        authority: Option<&str>,
        servers: impl FnOnce() -> Result<Vec<String>, E>,
    ) -> Result<bool, E> {
        Ok(match self {
            Self::Nothing => false,
            Self::Unreadable => true,
            Self::Kubeconfig(_) if authority.is_some_and(|authority| self.trusts(authority)) => false,
            Self::Kubeconfig(kubeconfig) => !servers()?.contains(&kubeconfig.server),
        })
    }
}

/// Refuses an install whose kubeconfig would take the place of another control plane's.
///
/// # Errors
/// [`InstallError::OtherKeys`], and values that cannot be rendered.
pub(super) fn not_anothers(plan: &Plan, home: &Home, seen: &Survey, found: &Files) -> Result<(), InstallError> {
    let authority = found.get(AuthorityKind::Cluster.certificate_file());
    // Where a part of a set is left, its use tells what is missing.
    if authority.is_none() && pki::Authorities::any_in(found) {
        return Ok(());
    }
    if Written::of(home, &plan.name).is_anothers(authority, || servers(plan, seen))? {
        return Err(InstallError::OtherKeys { file: home.kubeconfig(&plan.name) });
    }
    Ok(())
}

/// Where the control plane is reached, as far as that is known before anything is written.
fn servers(plan: &Plan, seen: &Survey) -> Result<Vec<String>, Diagnostics> {
    let recorded = seen.state.record.as_ref().and_then(|record| record.release.facts.get("server").cloned());
    let (kind, wanted) = (seen.decision.kind, &plan.values.exposure);
    let shape = Endpoint { node_port: exposure::wanted_node_port(kind, wanted), ..unknown(kind) };
    let rendered = plan.render(&shape, &pki::placeholders())?;
    let service = rendered.objects.iter().find(|object| object.kind() == "Service" && object.name() == "apiserver");
    let service = service.and_then(|object| serde_json::from_value::<Service>(object.json.clone()).ok());
    let host = seen.known_host();
    let endpoint = |service| exposure::endpoint(kind, wanted, &service, &seen.facts.nodes, host.as_deref()).ok();
    let foreseen = service.and_then(endpoint).or_else(|| exposure::endpoint_from_values(wanted).ok());
    // Any of its addresses, for the first of the nodes may be another by now.
    let urls = foreseen.into_iter().flat_map(|endpoint| {
        let at = |host: &String| Endpoint { host: host.clone(), ..endpoint.clone() }.url();
        endpoint.sans.iter().map(at).collect::<Vec<_>>()
    });
    Ok(recorded.into_iter().chain(urls).collect())
}

/// The folder, as a removal of a control plane with its data treats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// There is none.
    None,
    /// It goes too.
    Goes {
        /// Where it is.
        path: PathBuf,
        /// Whether keys are in it that `template` keeps.
        keys: bool,
    },
    /// It may be that of a control plane in another cluster.
    Stays(PathBuf),
}

impl Folder {
    /// That of the control plane with this authority, as far as the cluster still has its certificate, and else with this
    /// address.
    pub(super) fn of(home: &Home, name: &ControlPlaneName, authority: Option<&str>, server: Option<&str>) -> Self {
        let path = home.control_plane(name);
        if path.symlink_metadata().is_err() {
            return Self::None;
        }
        let written = Written::of(home, name);
        let others = match (&written, authority, server) {
            // Nothing in it, or left in the cluster, says otherwise.
            (Written::Nothing, ..) | (Written::Kubeconfig(_), None, None) => false,
            (Written::Unreadable, ..) => true,
            (_, Some(authority), _) => !written.trusts(authority),
            (Written::Kubeconfig(kubeconfig), None, Some(server)) => kubeconfig.server != server,
        };
        let keys = home.keys(name);
        if others || authority.is_some_and(|authority| !is_of(&keys, authority)) {
            return Self::Stays(path);
        }
        Self::Goes { path, keys: keys.exists() }
    }
}

/// Whether a folder of keys holds no other authority than this one.
fn is_of(keys: &Path, authority: &str) -> bool {
    let kept = pki::read_file(keys, AuthorityKind::Cluster.certificate_file());
    kept.is_ok_and(|kept| kept.is_none_or(|kept| kept.expose().trim() == authority.trim()))
}

/// The authority of a key set: its certificate, else the one that the operator's kubeconfig trusts.
pub(super) fn authority(files: &Files) -> Option<String> {
    let certificate = files.get(AuthorityKind::Cluster.certificate_file()).map(str::to_owned);
    certificate.or_else(|| Some(Kubeconfig::parse(ADMIN_KUBECONFIG, files.get(ADMIN_KUBECONFIG)?).ok()?.authority))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::pki::KubeconfigUser;

    const SERVER: &str = "https://192.0.2.10:32222";

    /// A home with these files in the folder of `demo`.
    fn home(files: &[(&str, &str)]) -> (tempfile::TempDir, Home, ControlPlaneName) {
        let root = tempfile::tempdir().unwrap();
        let (home, name) = (Home::at(root.path()), "demo".parse().unwrap());
        for (file, text) in files {
            let file = home.control_plane(&name).join(file);
            fs_err::create_dir_all(file.parent().unwrap()).unwrap();
            fs_err::write(file, text).unwrap();
        }
        (root, home, name)
    }

    fn kubeconfig(authority: &str) -> String {
        let kubeconfig = Kubeconfig {
            context: "demo".to_owned(),
            server: SERVER.to_owned(),
            authority: authority.to_owned(),
            user: "admin".to_owned(),
            credential: KubeconfigUser::Token(SecretText::new("t".to_owned())),
        };
        kubeconfig.to_yaml(ADMIN_KUBECONFIG).unwrap().expose().to_owned()
    }

    #[test]
    fn a_kubeconfig_is_another_ones_unless_it_trusts_the_keys_or_leads_to_the_place_of_the_install() {
        let anothers = |text: Option<&str>, authority: Option<&str>, servers: &[&str]| {
            let (_root, home, name) =
                home(&text.map(|text| ("fleet-kubeconfig", text)).into_iter().collect::<Vec<_>>());
            let servers = servers.iter().map(|&server| server.to_owned()).collect();
            Written::of(&home, &name).is_anothers(authority, || Ok::<_, Infallible>(servers)).unwrap()
        };
        let one = kubeconfig("one\n");
        let one = Some(one.as_str());
        assert!(!anothers(None, Some("one"), &[]), "no file, nothing to lose");
        assert!(!anothers(one, Some("one"), &[]));
        assert!(anothers(one, Some("two"), &[]));
        assert!(anothers(one, None, &["https://192.0.2.10:32223"]), "a new one somewhere else");
        assert!(!anothers(one, None, &["https://192.0.2.10:32223", SERVER]), "a new one in its place");
        assert!(!anothers(one, Some("two"), &[SERVER]));
        for unreadable in ["", "clusters: [\n"] {
            assert!(anothers(Some(unreadable), Some("one"), &[SERVER]), "{unreadable:?}");
        }
    }

    #[test]
    fn a_folder_goes_with_its_own_control_plane_and_stays_for_that_of_another_cluster() {
        let one = kubeconfig("one\n");
        let own = [("fleet-kubeconfig", one.as_str())];
        let goes = |files: &[(&str, &str)], authority: Option<&str>, server: Option<&str>| {
            let (_root, home, name) = home(files);
            match Folder::of(&home, &name, authority, server) {
                Folder::None => panic!("{files:?}"),
                Folder::Goes { keys, .. } => Some(keys),
                Folder::Stays(path) => {
                    assert_eq!(path, home.control_plane(&name));
                    None
                }
            }
        };
        assert_eq!(goes(&own, Some("one"), None), Some(false));
        assert_eq!(goes(&own, Some("one"), Some("https://moved:1")), Some(false), "the keys say more than an address");
        assert_eq!(goes(&own, Some("two"), Some(SERVER)), None);
        assert_eq!(goes(&[("fleet-kubeconfig", "clusters: [\n")], Some("one"), None), None);
        // A removal that was cut off after the keys, or lost them before: what there is must not say otherwise.
        assert_eq!(goes(&own, None, Some(SERVER)), Some(false));
        assert_eq!(goes(&own, None, None), Some(false));
        assert_eq!(goes(&own, None, Some("https://192.0.2.10:32223")), None);
        // Of an install that was cut off, or of `template`.
        assert_eq!(goes(&[("journal", "")], Some("one"), None), Some(false));
        assert_eq!(goes(&[own[0], ("pki/ca.crt", "one")], Some("one"), None), Some(true));
        assert_eq!(goes(&[own[0], ("pki/ca.crt", "two")], Some("one"), None), None);

        let (_root, home, name) = home(&[]);
        assert_eq!(Folder::of(&home, &name, Some("one"), None), Folder::None);
    }

    #[test]
    fn the_authority_of_a_set_whose_kept_part_is_lost_is_the_one_that_its_kubeconfig_trusts() {
        let of = |file: &str, text: &str| authority(&Files::from_iter([(file.to_owned(), text.to_owned())]));
        assert_eq!(of("ca.crt", "one").as_deref(), Some("one"));
        assert_eq!(of(ADMIN_KUBECONFIG, &kubeconfig("one")).as_deref(), Some("one"));
        assert_eq!(of(ADMIN_KUBECONFIG, "clusters: [\n"), None);
        assert_eq!(of("sa.pub", "one"), None);
    }
}
