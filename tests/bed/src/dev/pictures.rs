//! `cargo bed pictures`: what a terminal shows while an install is at work, of what it made, of a Deployment that has no place, and
//! of an install that has failed.
//!
//! A real terminal, of tmux, in which the program runs as a user would run it. What is drawn is what is on its screen.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cluster::process::MARK;
use crate::dev::steps::Steps;
use crate::dev::{demo, picture};
use crate::run::output_of;
use crate::{Bed, PROFILE};

const LEFT: &str = "a cluster may still run: `cargo bed status` shows it, `cargo bed down` removes it";
const CLUSTER: &str = "host";
const MEMBER: &str = "member-1";
/// Wide enough for what the program says in a line, as far as it can be known, and not for everything.
const COLUMNS: &str = "112";
const LINES: &str = "40";
const INSTALL: &str = "fleetctl install control-plane demo";
/// What is on the screen while the install waits for more than one component, and knows already what it waits for.
const AT_WORK: [&str; 3] = [
    " Installing the API server",
    "    Deployment fleet/apiserver: Pod fleet/apiserver-",
    "    Deployment fleet/fleet-scheduler: ",
];
/// The failure that users meet most: the cluster has no StorageClass. Preflight would refuse, and nothing be written.
const FAILING: &str = "fleetctl install control-plane demo --skip-preflight storage";
const STATUS: &str = "fleetctl status";
/// About a Deployment whose pods fit no cluster.
const WHY: &str = "fleetctl why deployment/web --namespace shop --context demo";
const PROMPT: &str = "$ ";

/// The steps, in order.
pub(crate) fn run(bed: &Bed, folder: &Path) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    let program = steps.run("build fleetctl", || demo::build(bed))?;
    steps.run("build the images of this project", || bed.images(PROFILE, &["v0.6.1".to_owned()]).map(drop))?;
    steps.run(&format!("start the clusters `{CLUSTER}` and `{MEMBER}`"), || bed.up(&[CLUSTER, MEMBER]))?;
    // A run that was interrupted may have taken it.
    bed.restore_storage_class(CLUSTER)?;
    let home = tempfile::tempdir()?;
    let files = [bed.kubeconfig(CLUSTER)?, bed.kubeconfig(MEMBER)?, home.path().join(".fleet/demo/fleet-kubeconfig")];
    let kubeconfig = std::env::join_paths(&files).context("paths without a colon")?;
    let environment = |command: &mut Command| {
        command.env("HOME", home.path()).env("KUBECONFIG", &kubeconfig);
    };
    fs::create_dir_all(folder)?;
    let draw = |file: &str, title: &str, screen: &str| {
        let screen = screen.replace(&home.path().display().to_string(), "/home/jane");
        fs::write(folder.join(file), picture::screen(title, &screen))
    };
    let path = program.parent().context("a program lies in a folder")?;
    let mut shell = Command::new("tmux");
    environment(&mut shell);
    let fleetctl = |arguments: &str| {
        let mut fleetctl = Command::new(&program);
        environment(&mut fleetctl);
        output_of(fleetctl.args(arguments.split(' ')))
    };
    let uninstall = || fleetctl("uninstall control-plane demo --delete-data --force --yes").map(drop);
    let terminal = Terminal::open(bed, shell, path)?;
    steps.run("an install at work", || {
        terminal.wait(at_prompt)?;
        terminal.type_line(INSTALL)?;
        let screen = terminal.wait(|screen| AT_WORK.iter().all(|line| screen.contains(line)))?;
        draw("install.svg", "An install at work", &screen)?;
        terminal.wait(at_prompt)?;
        terminal.clear()
    })?;
    steps.run("a workload cluster, and a Deployment that does not fit it", || {
        fleetctl(&format!("install agent west --context {MEMBER} --control-plane demo"))?;
        let examples = bed.checkout().join("examples/place-workloads");
        let mut manifests = fs::read_to_string(examples.join("policy.yaml"))? + "---\n";
        manifests += &fs::read_to_string(examples.join("shop.yaml"))?.replace("cpu: 10m", "cpu: \"64\"");
        let file = home.path().join("shop.yaml");
        fs::write(&file, manifests)?;
        let mut apply = Command::new(bed.kubectl_path()?);
        environment(&mut apply);
        output_of(apply.args(["--context", "demo", "apply", "-f"]).arg(&file))?;
        let end = Instant::now() + Duration::from_secs(60);
        let mut why = Command::new(&program);
        environment(&mut why);
        why.args(WHY.split(' ').skip(1)).env("LC_ALL", "C.UTF-8");
        // It ends with another code than 0 where something has no place.
        while !String::from_utf8_lossy(&why.output()?.stdout).contains("cpu") {
            if Instant::now() > end {
                bail!("`{WHY}` says nothing of room");
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    })?;
    for (line, file, title) in [
        (STATUS, "status.svg", "A control plane with its workload clusters"),
        (WHY, "why.svg", "Why a Deployment runs nowhere"),
    ] {
        steps.run(line, || {
            terminal.type_line(line)?;
            let ended = |screen: &str| at_prompt(screen) && screen.lines().count() > 2;
            draw(file, title, &terminal.wait(ended)?)?;
            terminal.clear()
        })?;
    }
    steps.run("uninstall", || {
        fleetctl(&format!("uninstall agent west --context {MEMBER}"))?;
        uninstall()
    })?;
    bed.remove_storage_class(CLUSTER)?;
    let drawn = steps.run("an install that fails", || {
        terminal.type_line(FAILING)?;
        terminal.wait(|screen| screen.contains("Error: "))?;
        Ok(draw("failed-install.svg", "An install that has failed", &terminal.wait(at_prompt)?)?)
    });
    bed.restore_storage_class(CLUSTER)?;
    drawn?;
    steps.run("uninstall", uninstall)?;
    steps.summary();
    Ok(())
}

/// Whether the shell waits for a command, of which nothing is typed yet.
fn at_prompt(screen: &str) -> bool {
    screen.lines().last().is_some_and(|last| last.trim_end() == PROMPT.trim_end())
}

/// A shell in a terminal of a tmux server of its own, which ends with this.
struct Terminal {
    server: String,
}

impl Terminal {
    fn open(bed: &Bed, mut tmux: Command, path: &Path) -> Result<Self> {
        let terminal = Self { server: format!("fleetbed-{}", bed.id()) };
        let search = std::env::join_paths([path, Path::new("/usr/bin"), Path::new("/bin")])?;
        tmux.args(["-L", &terminal.server, "-f", "/dev/null", "-u", "new-session", "-d", "-x", COLUMNS, "-y", LINES]);
        tmux.args(["bash", "--norc", "--noprofile"]);
        // So that `cargo bed down` finds it, should this program be ended before it ends the terminal.
        tmux.env(MARK, bed.id());
        tmux.env("PATH", search).env("PS1", PROMPT).env("LANG", "C.UTF-8").env_remove("TMUX").env_remove("NO_COLOR");
        output_of(&mut tmux).context("it takes the program tmux")?;
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        output_of(Command::new("tmux").args(["-L", &self.server]).args(arguments))
    }

    fn type_line(&self, line: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", line])?;
        self.tmux(&["send-keys", "Enter"]).map(drop)
    }

    /// Leaves an empty screen.
    fn clear(&self) -> Result<()> {
        self.type_line("clear")?;
        self.wait(|screen| screen.trim_end() == PROMPT.trim_end()).map(drop)
    }

    /// The screen with its colours, once its text is as expected.
    fn wait(&self, expected: impl Fn(&str) -> bool) -> Result<String> {
        let end = Instant::now() + Duration::from_secs(180);
        loop {
            let screen = self.tmux(&["capture-pane", "-p", "-e"])?;
            let text = picture::plain(&screen);
            if expected(text.trim_end()) {
                return Ok(screen);
            }
            if Instant::now() > end {
                bail!("the terminal shows something else:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut end = Command::new("tmux");
        let _ = end.args(["-L", &self.server, "kill-server"]).stderr(Stdio::null()).status();
    }
}
