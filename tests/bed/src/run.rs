//! Running other programs to their end, with errors that say what was run and what it answered.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

thread_local! {
    static CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The CPU of all programs that this thread has waited for, with that of the programs that those waited for.
pub(crate) fn cpu_of_programs() -> Duration {
    CPU.get()
}

/// Waits for the end of a program and counts its CPU.
pub(crate) fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // As long as nobody has taken its status, the kernel still knows what it used.
        let ended = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while matches!(ended(), Err(Errno::INTR)) {}
    }
    CPU.set(CPU.get() + cpu_of(child.id()).unwrap_or_default());
    child.wait()
}

/// Runs `program` and returns its stdout. Anything but exit code 0 is an error that carries its stderr.
pub(crate) fn output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    output_of(&mut command)
}

/// As [`output`], for a command that is already put together.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let pipes = (child.stdout.take(), child.stderr.take());
    let read = std::thread::scope(|scope| {
        let errors = scope.spawn(|| pipes.1.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stderr)));
        let read = pipes.0.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout));
        read.and(errors.join().unwrap_or(Ok(0)))
    });
    let status = wait(&mut child)?;
    read.with_context(|| format!("cannot read what `{shown}` prints"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}): {}", last_lines(&String::from_utf8_lossy(&stderr), 12));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The stdout of a command whose stderr the user sees.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let mut text = String::new();
    let read = child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text));
    let status = wait(&mut child)?;
    read.with_context(|| format!("cannot read what `{shown}` prints"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(text)
}

/// Runs a shell-like line whose words hold no spaces: `line("ip link set lo up")`.
pub(crate) fn line(words: &str) -> Result<String> {
    let mut words = words.split_whitespace();
    let program = words.next().context("an empty command")?;
    output(program, &words.collect::<Vec<_>>())
}

/// The same command for when the processor has nothing else to do.
pub(crate) fn gently(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// The CPU that a running program has taken, with that of the programs that it has waited for.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold anything: the fields from the third on.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().ok()?;
    // Linux counts in hundredths there, on every machine.
    Some(Duration::from_millis(ticks * 10))
}

/// The last `count` lines of a text: what a reader needs of a long log.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The first file of this name in PATH or in the folders where system programs live.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/go/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Cargo, in a folder, as the user would start it there.
///
/// This process was itself started by cargo, which describes the package that it runs in the environment. Build
/// scripts of dependencies watch some of that (`CARGO_PKG_NAME`, `OUT_DIR` …), so handing it on would build them anew
/// each time.
pub(crate) fn cargo(folder: &std::path::Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let described = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "OUT_DIR"]
            .iter()
            .any(|p| described.starts_with(p))
        {
            cargo.env_remove(&name);
        }
    }
    // The bed gives it to programs of tests; cargo would build anew whatever looks at it.
    cargo.env_remove("RUSTC_BOOTSTRAP");
    cargo
}
