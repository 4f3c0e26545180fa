//! `kubeconfig`: writes the kubeconfig of a control plane again.

pub(in crate::cli) mod merge;
use clap::Args;

use crate::api::names::ControlPlaneName;
use crate::cli::args::global::Global;
use crate::cli::connect::{connect_cluster, find_home};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::{add_file_remedy, engine_error};
use crate::cli::output::terminal::Ui;
use crate::cli::output::values_error::wrong_name;
use crate::control_plane::kubeconfig::{self, KubeconfigError, Source};
use crate::pki::PkiError;

/// Restore the kubeconfig of a control plane from the keys in its hosting cluster or on this machine
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fleetctl kubeconfig demo --context hosting\n  fleetctl kubeconfig demo --show > demo.kubeconfig\n  fleetctl kubeconfig demo --merge --use\n  fleetctl kubeconfig demo --remove"
)]
pub(crate) struct KubeconfigArgs {
    /// Name of the control plane
    #[arg(value_name = "CONTROL_PLANE_NAME")]
    name: String,

    /// Print the kubeconfig instead of writing the file; the output contains a private key
    #[arg(long)]
    show: bool,

    /// Merge the kubeconfig into the file that kubectl reads (`--kubeconfig`, else KUBECONFIG, else ~/.kube/config); all
    /// other entries and the current context are unchanged
    #[arg(long, conflicts_with = "show")]
    merge: bool,

    /// Make the merged context the current one
    #[arg(long = "use", requires = "merge")]
    make_current: bool,

    /// Remove the entries that `--merge` added
    #[arg(long, conflicts_with_all = ["merge", "show"])]
    remove: bool,
}

pub(crate) async fn run(ui: &Ui, global: &Global, args: KubeconfigArgs) -> Result<Exit, CliError> {
    let name: ControlPlaneName = args.name.parse().map_err(|error| wrong_name(&error))?;
    let home = find_home()?;
    if args.remove {
        return merge::remove_context(ui, global, &home, &name);
    }
    // The local folder does without a cluster, but a context that was named must exist.
    let hosting = match connect_cluster(global).await {
        Ok(connected) => Some(connected),
        Err(error) if error.reason == "NoKubeconfig" => None,
        Err(error) if global.context.is_none() && error.reason == "NoSuchContext" => None,
        Err(error) => return Err(error),
    };
    let client = hosting.as_ref().map(|hosting| &hosting.client);
    let found = match kubeconfig::find_kubeconfig(client, &home, &name, &global.namespace).await {
        // A cluster that does not answer must not hide what is on this machine.
        Err(KubeconfigError::Cluster(error)) => {
            ui.warn(&format!(
                "the hosting cluster could not be read: {}",
                crate::control_plane::health::format_error_chain(&error)
            ));
            kubeconfig::find_kubeconfig(None, &home, &name, &global.namespace).await
        }
        found => found,
    };
    let (kubeconfig, source) = found.map_err(|error| kubeconfig_error(&error))?;
    let from = match source {
        Source::Cluster => "the hosting cluster",
        Source::Issued => "newly issued by the CA in the hosting cluster, because its Secret was missing there",
        Source::Folder => "the folder on this machine",
    };
    if args.merge {
        return merge::merge_into_kubeconfig(ui, global, &home, &name, &kubeconfig, args.make_current);
    }
    if args.show {
        ui.print_note(&format!("The output contains a private key (source: {from})"));
        let text = kubeconfig.to_yaml("fleet-kubeconfig").map_err(|error| kubeconfig_error(&error.into()))?;
        ui.write_stdout(text.expose())?;
        return Ok(Exit::Ok);
    }
    let placed =
        kubeconfig::place_kubeconfig(&home, &name, &kubeconfig).map_err(|error| kubeconfig_error(&error.into()))?;
    if let Some(warning) = placed.replaced_file_warning() {
        ui.warn(&warning);
    }
    ui.print_note(&format!("Source: {from}"));
    ui.write_stdout(&format!(
        "The kubeconfig of {name} is {0}\n\n  export KUBECONFIG=\"${{KUBECONFIG:-$HOME/.kube/config}}:{0}\"\n  kubectl get clusters --context {name}\n",
        placed.file.display()
    ))?;
    Ok(Exit::Ok)
}

fn kubeconfig_error(error: &KubeconfigError) -> CliError {
    match error {
        KubeconfigError::NotFound { name, .. } => own_kubeconfig_failure("NoKubeconfigFound", error).hint(format!(
            "install it with `fleetctl install control-plane {name}`, or choose another cluster or namespace with `--context` and `--namespace`"
        )),
        KubeconfigError::Cluster(error) => crate::cli::connect::request_failed("cannot read the hosting cluster", error),
        KubeconfigError::Record(error) => engine_error("cannot read the record of the control plane", error),
        KubeconfigError::Changed { is_existing: true, .. } => own_kubeconfig_failure("KubeconfigChanged", error).hint(
            "find out who changed it: it is your own Secret (`pki.existingSecret`), and no install writes it",
        ),
        KubeconfigError::Changed { source: PkiError::Empty { .. } | PkiError::Cut { .. }, .. } => {
            own_kubeconfig_failure("KubeconfigChanged", error).hint(
                "remove this file, then run the same command with the `--context` of the hosting cluster: it restores \
                 the kubeconfig",
            )
        }
        KubeconfigError::Changed { .. } => own_kubeconfig_failure("KubeconfigChanged", error).hint(
            "find out who changed it; then `fleetctl install control-plane` with the former values writes it again",
        ),
        KubeconfigError::Keys(_) => own_kubeconfig_failure("BadKeys", error)
            .hint("restore the Secrets of the control plane from a backup; new keys would lock every agent out"),
        KubeconfigError::Local(source) => add_file_remedy(own_kubeconfig_failure("LocalFile", error), source),
    }
}

fn own_kubeconfig_failure(reason: &'static str, error: &KubeconfigError) -> CliError {
    let failure = CliError::new(Exit::Failed, reason, error.to_string());
    match std::error::Error::source(error) {
        Some(source) => failure.because(source),
        None => failure,
    }
}
