//! The control plane as the one who installs an agent reaches it, where that is possible: its API with rights to read.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt};

use crate::api::init_kubeconfig::Init;
use crate::api::keys::INIT_SECRET;
use crate::api::shell::{kubeconfig_flag, word};
use crate::apply::client::{Target, connect_with};
use crate::check::workload::SOME_CONTROL_PLANE;
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

impl Hub {
    /// The flags that lead to a control plane, a stand-in where it is not known how it is reached.
    pub fn flags_to(hub: Option<&Self>) -> &str {
        hub.map_or(SOME_CONTROL_PLANE, |hub| &hub.flags)
    }

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
            let same = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()).find(|cluster| {
                use base64::Engine as _;
                let data = cluster.certificate_authority_data.as_deref().unwrap_or_default();
                base64::engine::general_purpose::STANDARD.decode(data).is_ok_and(|ca| ca == init.ca)
            });
            let Some(server) = same.map(|cluster| cluster.server.clone()) else { continue };
            if let Ok(connected) = connect_with(kubeconfig).await {
                let name = folder.file_name().to_string_lossy().into_owned();
                // Where kubectl finds it under its name, nobody has to be told of the file.
                let by_name = Target { kubeconfig: Vec::new(), context: Some(name.clone()) };
                let merged = server.is_some() && by_name.server() == server;
                let flags = if merged { format!(" --context {}", word(&name)) } else { kubeconfig_flag(&file) };
                return Some(Self { name, flags, client: connected.client });
            }
        }
        None
    }
}
