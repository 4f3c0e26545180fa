//! Our side of `cargo bed bench apply`: the engine alone, on the objects of a file.
//!
//! `bench-apply apply|remove KUBECONFIG FILE NAME`; the file is a JSON list, its first object the namespace NAME.

use std::process::ExitCode;

use fleetctl::apply::{Engine, Error, Options, Planned, Removal};
use fleetctl::inventory::{Owner, Release};
use fleetctl::k8s::{Events, Target};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, kubeconfig, file, name] = &args[..] else { return ExitCode::from(2) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(run(what, kubeconfig, file, name))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        failed => {
            #[expect(clippy::print_stderr, reason = "a program of its own")]
            {
                eprintln!("{failed:?}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(what: &str, kubeconfig: &str, file: &str, name: &str) -> Result<(), Error> {
    let connected = Target { kubeconfig: vec![kubeconfig.into()], context: None }.connect_client().await?;
    let owner = Owner::new("control-plane", name, name);
    let engine = Engine::new(connected.client, owner, Options::default(), Events::none());
    if what == "remove" {
        return engine.uninstall(Removal { delete_data: true, ..Removal::default() }).await.map(drop);
    }
    let input = |why: String| Error::Input(why);
    let text = std::fs::read_to_string(file).map_err(|error| input(error.to_string()))?;
    let objects: Vec<serde_json::Value> = serde_json::from_str(&text).map_err(|error| input(error.to_string()))?;
    let stage = |kind: &str| u32::from(kind != "Namespace");
    let planned: Vec<Planned> = objects
        .into_iter()
        .map(|object| Planned::new(stage(object["kind"].as_str().unwrap_or_default()), object))
        .collect();
    let release = Release { chart: "bench/v1".into(), version: "v1.0.0".into(), ..Release::default() };
    let plan = engine.plan_install(&release, &planned).await?;
    if plan.is_noop() {
        return Ok(());
    }
    let mut run = engine.begin_run(plan).await?;
    run.apply_all_stages().await?;
    run.commit_run().await.map(drop)
}
