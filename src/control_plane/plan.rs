//! The plan of an install: name, namespace, version, chart and checked values; from there to objects, without a cluster.
//! The order in which components are installed is that of `stages:` in the chart's `chart.yaml`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::endpoint::exposure;
use super::endpoint::exposure::Endpoint;
use super::endpoint::recorded_endpoint;
use super::origin::Origin;
use super::validate;
use super::values::{ControlPlaneValues, ExposureType, PkiRenewal, PkiSource};
use super::version::recorded_minor;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::api::remedy::Remedy;
use crate::apply::{self, Engine, Planned};
use crate::chart::inspect::explain::{DecidedBy, ExplainError, Explanation};
use crate::chart::patch::Patches;
use crate::chart::values::proxy_ports;
use crate::chart::versions::select::Selection;
use crate::chart::{Chart, Diagnostics, Object, Rendered, ValuesBuilder};
use crate::check::hosting::Wanted;
use crate::check::pod_references::PodReferences;
use crate::check::quota::Taken;
use crate::check::quota::needs::{self, Needs};
use crate::install::release_spec::{Package, list_needed_writes};
use crate::install::validate_registry;
use crate::inventory::{AWAITED_BACKUP, Release, State};
use crate::pki;
use crate::pki::secrets::{ETCD_CLAIM, SECRET_ENTRIES};

/// The stages that come before everything else: they decide where the API will be reached.
pub const FIRST_STAGES: [&str; 2] = ["namespace", "exposure"];

/// CPU architectures for which every component image exists.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The kind of owner that a control plane is to the engine.
pub const OWNER_KIND: &str = "control-plane";

/// The fact of a record that says how many members etcd has.
pub(super) const MEMBERS: &str = "etcdMembers";

/// The values that decide which ports are open to a proxy, and what certificates answer for by values alone.
const OTHERS_DECIDED_BY: &[DecidedBy] = &[
    ("proxyPorts", &["proxy.http", "proxy.https"]),
    ("renewal", &["pki.renewal", "pki.source"]),
    ("sans", &["exposure.extraSANs", "exposure.agentEndpoint"]),
];

/// Everything, except the cluster, that decides what is installed.
#[derive(Debug)]
pub struct Plan {
    /// Name of the control plane.
    pub name: ControlPlaneName,
    /// Chart, version and namespace.
    pub package: Package,
    /// The checked values.
    pub values: ControlPlaneValues,
    /// The control plane that is built again, if one is.
    pub(super) origin: Option<Origin>,
}

impl Plan {
    /// A plan from the chosen version and the user's values on top of the chart's.
    ///
    /// # Errors
    /// Wrong values, each at its place.
    pub fn new(
        name: ControlPlaneName,
        namespace: NamespaceName,
        selection: &Selection<'_>,
        chart: Chart,
        values: ValuesBuilder,
    ) -> Result<Self, Diagnostics> {
        let mut tree = values.build(ControlPlaneValues::schema)?;
        let values: ControlPlaneValues = tree.deserialize()?;
        validate::check_values(&values, &tree)?;
        tree.add_warning(validate_registry::check_registry_credentials(values.registry_credentials.as_ref(), &tree));
        let values = values.with_derived_values();
        let package = Package::new(name.as_str(), namespace, selection, chart, tree);
        Ok(Self { name, package, values, origin: None })
    }

    /// The same with patches of the rendered objects.
    #[must_use]
    pub fn with_patches(self, patches: Patches) -> Self {
        Self { package: self.package.with_patches(patches), ..self }
    }

    /// The same as an install that builds a lost control plane again.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// The same for manifests that are applied again and again. If they hold certificates, nothing renews these by itself: the
    /// next apply would put the former ones back.
    #[must_use]
    pub fn for_printing(mut self) -> Self {
        if self.values.pki.source == PkiSource::Installer {
            self.values.pki.renewal = PkiRenewal::Manual;
        }
        self
    }

    /// Explains the origin of a field of an object, such as `deployment/fleet-scheduler#spec.replicas`.
    ///
    /// # Errors
    /// A field that is not there, or values that the templates cannot be rendered with.
    pub fn explain_object_field(
        &self,
        endpoint: &Endpoint,
        keys: &pki::Files,
        field: &str,
    ) -> Result<Vec<Explanation>, ExplainError> {
        let decided_by = [exposure::DECIDED_BY, OTHERS_DECIDED_BY].concat();
        let keys = self.rendered_keys(keys);
        self.package.explain_field(&self.values, self.template_facts(endpoint), &keys, &decided_by, field)
    }

    /// Renders the chart and applies the patches. The same inputs give the same objects.
    ///
    /// # Errors
    /// Values that the templates cannot be rendered with, and patches that cannot be applied, each at its place.
    pub fn render_control_plane(&self, endpoint: &Endpoint, keys: &pki::Files) -> Result<Rendered, Diagnostics> {
        self.package.render_chart(&self.values, self.template_facts(endpoint), &self.rendered_keys(keys))
    }

    /// Renders the same objects, without those of the inside, as YAML documents; `adjust` may change each before it is
    /// written.
    ///
    /// # Errors
    /// Those of [`Plan::render_control_plane`].
    pub fn control_plane_manifests(
        &self,
        endpoint: &Endpoint,
        keys: &pki::Files,
        adjust: fn(&mut Object),
    ) -> Result<Vec<String>, Diagnostics> {
        self.package.render_manifests(&self.values, self.template_facts(endpoint), &self.rendered_keys(keys), adjust)
    }

    /// Builds the facts that templates see as `facts`. Without a server in them, whoever makes the keys waits for its
    /// address.
    fn template_facts(&self, endpoint: &Endpoint) -> Value {
        let pki = &self.values.pki;
        let renews = pki.source != PkiSource::Existing && pki.renewal == PkiRenewal::CronJob;
        let exposure = &self.values.exposure;
        let agents = exposure.agent_endpoint.as_deref().map(exposure::host_of);
        let sans: BTreeSet<String> = exposure.extra_sans.iter().cloned().chain(agents).collect();
        json!({
            "exposure": endpoint,
            "server": (!self.address_is_awaited(endpoint.kind)).then(|| endpoint.url()),
            "proxyPorts": proxy_ports(&self.values.proxy),
            "renewal": renews,
            "sans": sans,
        })
    }

    /// Returns whether the objects contain no address of the API server, because the Job that generates the keys reads
    /// it from the Service.
    pub fn address_is_awaited(&self, kind: ExposureType) -> bool {
        self.values.pki.source == PkiSource::InCluster
            && kind == ExposureType::LoadBalancer
            && self.values.exposure.host.is_none()
    }

    /// Returns the amounts that these objects take from quotas. The `first` install makes the Secret of its record
    /// beside them, and a Job inside the cluster those of the keys.
    pub(super) fn quota_needs<'o>(&self, objects: impl IntoIterator<Item = &'o Value>, first: bool) -> Needs {
        let mut needs = needs::collect_needs(objects);
        if first {
            let made_inside = match self.values.pki.source {
                PkiSource::InCluster => SECRET_ENTRIES.iter().map(|entry| entry.secret).collect(),
                PkiSource::Installer | PkiSource::Existing => BTreeSet::new(),
            };
            needs.add_objects("secrets", 1 + made_inside.len());
        }
        needs
    }

    /// Returns the keys that are rendered: placeholders where this program does not make the keys, because those are in
    /// the cluster, and objects do not depend on them.
    fn rendered_keys<'k>(&self, keys: &'k pki::Files) -> Cow<'k, pki::Files> {
        match self.values.pki.source {
            PkiSource::Installer => Cow::Borrowed(keys),
            PkiSource::Existing | PkiSource::InCluster => Cow::Owned(pki::placeholder_files()),
        }
    }

    /// Compares the objects with the cluster, and plans what is applied. Secrets with keys are never pruned: if they
    /// are no longer rendered, something else manages them.
    pub(super) async fn plan_apply(
        &self,
        engine: &Engine,
        release: &Release,
        objects: &[Planned],
    ) -> Result<apply::Plan, apply::Error> {
        let mut whole = engine.plan_install(release, objects).await?;
        whole.prune.retain(|item| {
            let object = &item.object;
            !object.is_kind("", "Secret") || SECRET_ENTRIES.iter().all(|entry| entry.secret != object.name)
        });
        Ok(whole)
    }

    /// Builds the release that the record keeps of this install.
    pub fn control_plane_release(&self, endpoint: &Endpoint) -> Release {
        let mut facts = recorded_endpoint::endpoint_facts(endpoint);
        facts.insert(MEMBERS.to_owned(), self.values.etcd.replicas.to_string());
        let minor = recorded_minor::of_tag(&self.values.apiserver.image.tag);
        facts.extend(minor.map(|minor| (recorded_minor::FACT.to_owned(), minor.to_string())));
        facts.extend(self.origin.as_ref().map(|origin| (AWAITED_BACKUP.to_owned(), origin.archive.clone())));
        self.package.build_release(facts)
    }

    /// Facts of what was installed before: of the record in the cluster, else of the lost control plane.
    pub(super) fn former_facts<'f>(&'f self, state: &'f State) -> Option<&'f BTreeMap<String, String>> {
        let release = state.record.as_ref().map(|record| &record.release);
        release.or_else(|| Some(&self.origin.as_ref()?.release)).map(|release| &release.facts)
    }

    /// The server that agents start from, as the chart's configuration of `fleet-scheduler` has it.
    pub(super) fn agents_call(&self, endpoint: &Endpoint) -> String {
        self.values.exposure.agent_endpoint.as_ref().map_or_else(|| endpoint.url(), |host| format!("https://{host}"))
    }

    /// Returns the warning, to be shown before anything follows from it, that a control plane which is installed or
    /// kept is reached at another address from now on.
    pub(super) fn warn_moved_endpoint(&self, state: &State, endpoint: &Endpoint) -> Option<Remedy> {
        recorded_endpoint::moved_endpoint_warning(
            self.former_facts(state)?,
            endpoint,
            &self.values.exposure,
            self.name.as_str(),
        )
    }

    /// Returns the demands of the plan on the hosting cluster; `objects` are any rendering of the chart.
    pub fn build_wanted(&self, objects: &[Object]) -> Wanted {
        let etcd = &self.values.etcd;
        Wanted {
            support: self.package.support(),
            namespace: self.package.namespace.to_string(),
            name: self.name.to_string(),
            storage_class: etcd.storage.storage_class.clone(),
            claims: (0..etcd.replicas).map(|member| format!("{ETCD_CLAIM}{member}")).collect(),
            node_port: exposure::wanted_node_port(ExposureType::NodePort, &self.values.exposure)
                .filter(|_| matches!(self.values.exposure.kind, ExposureType::NodePort | ExposureType::Auto)),
            writes: list_needed_writes(objects),
            load_balancer: self.values.exposure.kind == ExposureType::LoadBalancer,
            network_policies: self.values.network_policy.enabled,
            taken: Taken {
                needs: self.quota_needs(objects.iter().map(|object| &object.json), true),
                ..Taken::default()
            },
            references: PodReferences::from_objects(objects.iter().map(|object| &object.json)),
            architectures: ARCHITECTURES.map(str::to_owned).to_vec(),
        }
    }
}
