//! `cargo bed pictures`: what a terminal shows while an install is at work, and when it has failed.
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
const PROMPT: &str = "$ ";

/// The steps, in order.
pub(crate) fn run(bed: &Bed, folder: &Path) -> Result<()> {
    let mut steps = Steps::new(LEFT);
    let program = steps.run("build fleetctl", || demo::build(bed))?;
    steps.run("build the images of this project", || bed.images(PROFILE, &["v0.6.1".to_owned()]).map(drop))?;
    steps.run(&format!("start the cluster `{CLUSTER}`"), || bed.up(&[CLUSTER]))?;
    // A run that was interrupted may have taken it.
    bed.restore_storage_class(CLUSTER)?;
    let home = tempfile::tempdir()?;
    let kubeconfig = bed.kubeconfig(CLUSTER)?;
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
    let uninstall = || {
        let mut uninstall = Command::new(&program);
        environment(&mut uninstall);
        output_of(uninstall.args(["uninstall", "control-plane", "demo", "--delete-data", "--yes"])).map(drop)
    };
    let terminal = Terminal::open(bed, shell, path)?;
    steps.run("an install at work", || {
        terminal.wait(at_prompt)?;
        terminal.type_line(INSTALL)?;
        let screen = terminal.wait(|screen| AT_WORK.iter().all(|line| screen.contains(line)))?;
        draw("install.svg", "An install at work", &screen)?;
        terminal.wait(at_prompt)?;
        terminal.type_line("clear")?;
        terminal.wait(|screen| screen.trim_end() == PROMPT.trim_end()).map(drop)
    })?;
    steps.run("uninstall", uninstall)?;
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
