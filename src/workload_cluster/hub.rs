//! The control plane as the one who installs an agent reaches it, where that is possible: its API with rights to read.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt};

use crate::api::init_kubeconfig::Init;
use crate::api::keys::INIT_SECRET;
use crate::api::shell::word;
use crate::apply::client::{Target, connect_with};
use crate::install::home::Home;

/// A control plane that can be asked.
#[derive(Clone)]
pub struct Hub {
    /// Its name.
    pub name: String,
    /// The flags that lead this program and kubectl to it, a space before each; for commands that are shown.
    pub flags: String,
    /// A client of its API.
    pub client: Client,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The flags that lead to a control plane by the file that its install wrote, whose only context is its own.
pub fn by_file(kubeconfig: &Path) -> String {
    format!(" --kubeconfig {}", word(&kubeconfig.to_string_lossy()))
}

impl Hub {
    /// The Secret that agents start from, wherever its namespace is.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn init_secret(&self) -> Result<Option<Secret>, kube::Error> {
        let secrets: Api<Secret> = Api::all(self.client.clone());
        let found = secrets.list(&ListParams::default().fields(&format!("metadata.name={INIT_SECRET}"))).await?;
        Ok(found.items.into_iter().min_by_key(ResourceExt::namespace))
    }

    /// The control plane that an init kubeconfig leads to, if it was installed from this machine: the one of the
    /// service's home whose kubeconfig trusts the same authority.
    pub async fn of_init(home: &Home, init: &Init) -> Option<Self> {
        for folder in fs_err::read_dir(home.path()).ok()?.flatten() {
            let file = folder.path().join("fleet-kubeconfig");
            let Ok(text) = fs_err::read_to_string(&file) else { continue };
            let Ok(kubeconfig) = Kubeconfig::from_yaml(&text) else { continue };
            let same = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()).any(|cluster| {
                use base64::Engine as _;
                let data = cluster.certificate_authority_data.as_deref().unwrap_or_default();
                base64::engine::general_purpose::STANDARD.decode(data).is_ok_and(|ca| ca == init.ca)
            });
            if same && let Ok(connected) = connect_with(kubeconfig).await {
                let name = folder.file_name().to_string_lossy().into_owned();
                let flags = if is_context(&name, &file) { format!(" --context {name}") } else { by_file(&file) };
                return Some(Self { name, flags, client: connected.client });
            }
        }
        None
    }
}

/// Whether kubectl finds the control plane of `file` under its name, without being told of the file.
fn is_context(name: &str, file: &Path) -> bool {
    let found = Target { kubeconfig: Vec::new(), context: Some(name.to_owned()) }.server();
    found.is_some() && found == Target { kubeconfig: vec![file.to_owned()], context: None }.server()
}
