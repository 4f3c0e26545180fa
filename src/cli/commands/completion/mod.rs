//! `completion`: the scripts for shells, and the answers to what they and kubectl ask while a user types.

mod candidates;
use std::ffi::OsString;
use std::io::Write as _;

use clap::{Args, Command, ValueEnum};
use clap_complete::env::{EnvCompleter, Fish, Powershell, Shells};

use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::terminal::Ui;
use crate::cli::parser::plugin_name::PluginName;
use crate::cli::parser::program_name::rename_tree;
use candidates::with_completers;

/// The variable by which a script of ours says that it asks, and for which shell.
const ASKING: &str = "FLEET_COMPLETE";
/// cobra's directives, which are added: what is completed continues, so no space follows; no file names are to be
/// offered.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// The library's script for bash takes the words as bash has split them: `--context=` and what follows it are three.
const BASH: &str = r#"_fleetctl() {
    # Bash ends a word at `=`, `:` and `@` too (COMP_WORDBREAKS); what stands together in the line is one word here.
    local rest=${COMP_LINE:0:COMP_POINT} before= whole word answer reply
    local -a words=()
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 0 && $rest == "$word"* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("$word")
        fi
        rest=${rest#"$word"}
    done
    if [[ $rest != [[:space:]]* ]]; then
        before=${words[${#words[@]} - 1]}
        words=("${words[@]:0:${#words[@]} - 1}")
    fi
    # Only `$2` is replaced by an answer: what is before it must not be in there, nor the quote that opens it.
    whole=${rest#"${rest%%[![:space:]]*}"}
    [[ $2 != [\"\']* ]] && whole=${whole#[\"\']}
    whole=$before$whole
    [[ $whole == *"$2" ]] && before=${whole%"$2"}
    words+=("$before$2")
    answer=$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) FLEET_COMPLETE=bash fleetctl -- "${words[@]}" 2>/dev/null) || return
    while IFS= read -r reply; do
        [[ $reply == "$before"?* ]] || continue
        COMPREPLY+=("${reply#"$before"}")
        [[ $reply == *[=/] ]] && compopt -o nospace 2>/dev/null
    done <<<"$answer"
}
complete -o nosort -o bashdefault -F _fleetctl fleetctl 2>/dev/null || complete -o nospace -o bashdefault -F _fleetctl fleetctl
"#;

/// The library's script for zsh ends `exposure.type=` with a space. As a file of $fpath this is the body of the function
/// that it defines, and so has to answer at once.
const ZSH: &str = r#"#compdef fleetctl
_fleetctl() {
    local -a found on whole
    found=("${(@f)$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) FLEET_COMPLETE=zsh fleetctl -- "${words[@]}" 2>/dev/null)}")
    local each
    for each in $found; do
        if [[ ${each%%:*} == *[=/] ]]; then on+=("$each"); else whole+=("$each"); fi
    done
    (( $#on )) && _describe -V values on -S ''
    (( $#whole )) && _describe -V values whole
}
if [[ $funcstack[1] == _fleetctl ]]; then _fleetctl "$@"; else compdef _fleetctl fleetctl; fi
"#;

/// The library writes nushell no more than a list of commands and flags. A completer of a whole command is known to it from
/// 0.108 on; it is answered as fish is, whose form is the plainest.
const NUSHELL: &str = r#"# Completion of fleetctl, for nushell 0.108 or newer.
def "nu-complete fleetctl" [spans: list<string>] {
    let answer = with-env {FLEET_COMPLETE: fish} { do { ^fleetctl -- ...$spans } | complete }
    $answer.stdout | lines | each {|line|
        let parts = $line | split row "\t"
        {value: $parts.0, description: ($parts | get -o 1 | default "")}
    }
}

@complete "nu-complete fleetctl"
export extern fleetctl []
"#;

const EXAMPLES: &str = "\
Examples:
  fleetctl completion bash > ~/.local/share/bash-completion/completions/fleetctl
  source <(fleetctl completion bash)
  fleetctl completion zsh > ~/.zfunc/_fleetctl      # a folder of $fpath
  fleetctl completion fish > ~/.config/fish/completions/fleetctl.fish
  fleetctl completion powershell >> $PROFILE
  fleetctl completion nushell > ~/.config/nushell/autoload/fleetctl.nu

`kubectl fleet` is completed by kubectl's own completion; `fleetctl kubectl-install` sets that up.";

/// Print a script that completes commands, flags and names in a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Nushell,
}

pub(crate) fn run(ui: &Ui, args: &CompletionArgs) -> Result<Exit, CliError> {
    ui.write_stdout(&match args.shell {
        Shell::Bash => BASH.to_owned(),
        Shell::Zsh => ZSH.to_owned(),
        Shell::Fish => of_library(&Fish)?,
        Shell::Powershell => of_library(&Powershell)?,
        Shell::Nushell => NUSHELL.to_owned(),
    })?;
    Ok(Exit::Ok)
}

/// A script that asks the program by its name on PATH, so that it outlives an upgrade.
fn of_library(shell: &dyn EnvCompleter) -> Result<String, CliError> {
    let mut script = Vec::new();
    shell.write_registration(ASKING, "fleetctl", "fleetctl", "fleetctl", &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Answers a shell or kubectl that asks for completions. Nothing when nobody does.
pub(crate) fn answer_completion(argv: &[OsString], command: impl Fn() -> Command) -> Option<Exit> {
    let plugin = argv.first().and_then(|argv0| PluginName::from_completer(argv0));
    let answered = if let Some(plugin) = plugin {
        for_kubectl(&argv[1..], rename_tree(command(), plugin.typed_command().leak()))
    } else {
        let shell = std::env::var_os(ASKING).filter(|shell| !shell.is_empty())?;
        for_shell(&shell.to_string_lossy(), argv, command())
    };
    // Whatever goes wrong: a message in the middle of a line being typed helps nobody.
    Some(if answered.is_some() { Exit::Ok } else { Exit::Failed })
}

fn for_shell(shell: &str, argv: &[OsString], command: Command) -> Option<()> {
    let words = argv.iter().position(|word| word == "--").map(|at| argv[at + 1..].to_vec())?;
    let mut command = with_completers(command, &words);
    let folder = std::env::current_dir().ok();
    let mut answer = Vec::new();
    let shells = Shells::builtins();
    shells.completer(shell)?.write_complete(&mut command, words, folder.as_deref(), &mut answer).ok()?;
    std::io::stdout().write_all(&answer).ok()
}

/// One word a line, its meaning behind a tab, and cobra's directive in the last line.
fn for_kubectl(typed: &[OsString], command: Command) -> Option<()> {
    let words: Vec<OsString> = std::iter::once("fleetctl".into()).chain(typed.iter().cloned()).collect();
    let last = words.len().max(2) - 1;
    let words = if words.len() < 2 { [words, vec![OsString::new()]].concat() } else { words };
    let mut command = with_completers(command, &words);
    let folder = std::env::current_dir().ok();
    let found = clap_complete::engine::complete(&mut command, words, last, folder.as_deref()).ok()?;
    let mut answer = String::new();
    // For kubectl `--flag=` is a word of its own.
    let typed = typed.last().map(|word| word.to_string_lossy()).unwrap_or_default();
    let flag = typed.split_inclusive('=').next().filter(|flag| flag.starts_with('-') && flag.ends_with('='));
    let mut values = found.iter().map(|candidate| candidate.get_value().to_string_lossy());
    let no_space = !found.is_empty() && values.all(|value| value.ends_with(['=', '/']));
    for candidate in found {
        let value = candidate.get_value().to_string_lossy();
        answer.push_str(flag.and_then(|flag| value.strip_prefix(flag)).unwrap_or(&value));
        if let Some(help) = candidate.get_help() {
            answer.push('\t');
            answer.push_str(help.to_string().lines().next().unwrap_or_default());
        }
        answer.push('\n');
    }
    answer.push_str(&format!(":{}\n", NO_FILES + if no_space { NO_SPACE } else { 0 }));
    std::io::stdout().write_all(answer.as_bytes()).ok()
}
