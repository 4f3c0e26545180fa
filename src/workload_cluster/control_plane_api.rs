//! The control plane as the one who installs an agent reaches it, where that is possible: its API with rights to read.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::labels::INIT_SECRET;
use crate::api::names::ControlPlaneName;
use crate::api::remedy::Access;
use crate::api::util::file;
use crate::install::admin_access;
use crate::install::fleet_home::Home;
use crate::k8s::connect::init_kubeconfig::Init;
use crate::k8s::connect::kubeconfig::Target;
use crate::pki::is_same_authority;

/// A control plane that can be asked.
#[derive(Clone)]
pub struct Hub {
    /// Its name.
    pub name: String,
    /// Way in which it is reached, for commands that are shown.
    pub access: Access,
    /// A client of its API.
    pub client: Client,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Hub {
    /// Returns the way in which a control plane is reached; [`Access::Unknown`] without one.
    pub fn access_to(hub: Option<&Self>) -> Access {
        hub.map_or(Access::Unknown, |hub| hub.access.clone())
    }

    /// The Secret that agents start from, wherever its namespace is.
    ///
    /// # Errors
    /// An API that does not answer or refuses.
    pub async fn init_secret(&self) -> Result<Option<Secret>, kube::Error> {
        init_secret(&self.client).await
    }

    /// The control plane that an init kubeconfig leads to, if it was installed from this machine: the one of the
    /// service's home whose kubeconfig trusts the same authority.
    pub async fn of_init(home: &Home, init: &Init) -> Option<Self> {
        // If a folder or file cannot be read, only this shortcut is lost.
        for name in file::list_names(home.path()).unwrap_or_default() {
            let Ok(name) = name.parse::<ControlPlaneName>() else { continue };
            let Ok(Some(kubeconfig)) = admin_access::read_local_kubeconfig(home, &name) else { continue };
            if !std::str::from_utf8(&init.ca).is_ok_and(|ca| is_same_authority(&kubeconfig.authority, ca)) {
                continue;
            }
            if let Ok(connected) = admin_access::connect_kubeconfig(&kubeconfig).await {
                // Where kubectl finds it under its name, nobody has to be told of the file.
                let by_name = Target { kubeconfig: Vec::new(), context: Some(name.to_string()) };
                let merged =
                    by_name.server_address().is_some_and(|server| server.trim_end_matches('/') == connected.server);
                let access = if merged {
                    Access::Context(name.to_string())
                } else {
                    Access::Kubeconfig(home.kubeconfig_path(&name), None)
                };
                return Some(Self { name: name.to_string(), access, client: connected.client });
            }
        }
        None
    }
}

/// The Secret that agents start from, in the API of a control plane, wherever its namespace is.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn init_secret(client: &Client) -> Result<Option<Secret>, kube::Error> {
    let secrets: Api<Secret> = Api::all(client.clone());
    let found = secrets.list(&ListParams::default().fields(&format!("metadata.name={INIT_SECRET}"))).await?;
    Ok(found.items.into_iter().min_by_key(ResourceExt::namespace))
}
