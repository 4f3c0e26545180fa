//! What `docs/security.md` says that each credential may do.

/// A credential of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credential {
    /// Whoever the API server knows by a name.
    Everybody,
    /// The init kubeconfig.
    InitToken,
    /// The certificate of an agent.
    Agent,
    /// The agent's service account in its workload cluster.
    ServiceAccount,
}

/// Something that a credential is meant to be good for.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    /// Resource with its group and subresource, as people write it.
    pub(super) title: String,
    /// The one namespace; else all, and what has none.
    namespace: Option<String>,
    /// The one name; else all, and all together.
    pub(super) name: Option<String>,
    verbs: Vec<String>,
}

impl Grant {
    /// A grant on all objects of a resource, in one namespace or everywhere.
    pub(super) fn new(title: String, namespace: Option<&str>, verbs: Vec<String>) -> Self {
        Self { title, namespace: namespace.map(str::to_owned), name: None, verbs }
    }

    /// The same on one namespace by its name, where it is about namespaces.
    pub(super) fn on_namespace(&self, name: &str) -> Option<Self> {
        let is_about = ["namespaces", "namespaces/status"].contains(&self.title.as_str());
        is_about.then(|| Self { namespace: None, name: Some(name.to_owned()), ..self.clone() })
    }

    pub(super) fn covers(&self, verb: &str, title: &str, namespace: &str, name: Option<&str>) -> bool {
        self.title == title
            && self.namespace.as_ref().is_none_or(|own| own == namespace)
            && self.verbs.iter().any(|own| own == verb)
            && (self.name.is_none() || self.name.as_deref() == name)
    }
}

/// Reads what a credential of the cluster may do, with what everybody may.
pub(super) fn grants(credential: Credential, cluster: &str) -> Vec<Grant> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md");
    let text = fs_err::read_to_string(path).expect("the page is there");
    let section = text.split_once("### Exact rights").expect("it has this section").1;
    let section = section.split_once("\n## ").expect("others follow").0;
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Who "));
    let read: Vec<(Credential, Grant)> = rows.map(|row| read(row, cluster)).collect();
    let of = |wanted: Credential| read.iter().any(|(credential, _)| *credential == wanted);
    assert!(
        [Credential::Everybody, Credential::InitToken, Credential::Agent, Credential::ServiceAccount]
            .into_iter()
            .all(of),
        "a credential has no row"
    );
    let is_its = |(row, _): &(Credential, Grant)| *row == credential || *row == Credential::Everybody;
    read.into_iter().filter(is_its).map(|(_, grant)| grant).collect()
}

fn read(row: &str, cluster: &str) -> (Credential, Grant) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [who, title, verbs, which] = cells[..] else { panic!("not four cells: {row}") };
    let credential = match who {
        "everybody known" => Credential::Everybody,
        "init token" => Credential::InitToken,
        "agent" => Credential::Agent,
        "agent's service account" => Credential::ServiceAccount,
        other => panic!("no credential: {other}"),
    };
    let word = |text: &str| text.trim_matches('`').replace("CLUSTER", cluster);
    let (name, namespace) = match which.split_once("in ") {
        Some((name, namespace)) => (name.trim(), Some(word(namespace))),
        None => (which, None),
    };
    let name = (!name.is_empty() && name != "all").then(|| word(name));
    let verbs = verbs.split(", ").map(str::to_owned).collect();
    (credential, Grant { title: title.trim_matches('`').to_owned(), namespace, name, verbs })
}
