#!/bin/sh
# Installs fleetctl from the files of a release: downloads the program for this machine, checks its SHA-256, and puts it into
# place as a whole or not at all. It asks for no rights and changes nothing else.
#
#   FLEETCTL_URL      folder of the release: https://…, or a path; default: the folder of this script, if it holds a release
#                     and is run by its path: `sh ./install.sh`
#   FLEETCTL_VERSION  folder below it, such as v1.2.0, where there is one for each version
#   FLEETCTL_BIN_DIR  where the program goes; default: /usr/local/bin if it can be written to, else ~/.local/bin
#   FLEETCTL_KEY      public key of minisign: the signature of SHA256SUMS has to be of this key then
#
# It needs a POSIX shell; curl, GNU wget, or with FLEETCTL_KEY any wget; and sha256sum, shasum or openssl.

# Everything is in functions, and the last line calls them: of a script that was cut on its way nothing runs.
set -eu
LC_ALL=C
export LC_ALL

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    shift
    for hint in "$@"; do printf '  %s\n' "$hint" >&2; done
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# The name that the release has for this machine: linux-amd64.
machine() {
    os=$(uname -s)
    arch=$(uname -m)
    case $os in
    Linux) os=linux ;;
    Darwin) os=darwin ;;
    *) fail "there is no fleetctl for $os" "it runs on Linux and macOS" ;;
    esac
    case $arch in
    x86_64 | amd64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    i386 | i486 | i586 | i686) arch=386 ;;
    *) fail "there is no fleetctl for the processor $arch" "there are programs for x86_64, aarch64 and i386" ;;
    esac
    # A 32-bit system on a 64-bit kernel, and a shell that macOS translates.
    if [ "$os-$arch" = linux-amd64 ] && has getconf && [ "$(getconf LONG_BIT 2>/dev/null)" = 32 ]; then arch=386; fi
    if [ "$os-$arch" = darwin-amd64 ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then arch=arm64; fi
    if [ "$os-$arch" = darwin-386 ]; then fail "there is no fleetctl for macOS on i386"; fi
    printf '%s-%s\n' "$os" "$arch"
}

# fetch NAME FILE: one file of the release.
fetch() {
    case $from in
    https://* | http://*) ;;
    *)
        if ! [ -f "$from/$1" ]; then
            if [ -d "$from" ] && ! [ -x "$from" ]; then
                fail "$from cannot be opened: permission denied" "see its owner: ls -ld '$from'"
            fi
            fail "$from does not contain $1" "FLEETCTL_URL must name the folder of a release"
        fi
        cp -- "$from/$1" "$2" || fail "$from/$1 cannot be copied to $folder" "the line above gives the reason"
        return
        ;;
    esac
    if has curl; then
        curl --fail --silent --show-error --location --max-redirs 10 --proto '=http,https' --proto-redir '=https' \
            --connect-timeout 30 --output "$2" -- "$from/$1" || fail "$from/$1 cannot be downloaded"
    elif has wget; then
        fetch_by_wget "$from/$1" "$2" "$work/answer"
    else
        fail "there is neither curl nor wget" \
            "install one, or download the files of the release and run this script in their folder"
    fi
}

# fetch_by_wget URL FILE ANSWER: GNU's wget follows https to http, so redirects are followed here, one request each. Those of
# BusyBox and others do so too, and may take any certificate: what they bring needs a signature.
fetch_by_wget() {
    case $(wget --help 2>&1) in
    *BusyBox*) knows_https= ;;
    *--max-redirect*) knows_https=1 ;;
    *) knows_https= ;;
    esac
    if [ -z "$knows_https" ]; then
        if [ -z "${FLEETCTL_KEY:-}" ]; then
            fail "this wget may not verify certificates, so the program could be changed in transit" \
                "install curl or GNU wget, or give FLEETCTL_KEY, the key that the release is signed with"
        fi
        wget -q -O "$2" "$1" || fail "$1 cannot be downloaded (wget)"
        return
    fi
    next=$1
    for _ in 1 2 3 4 5 6 7 8 9 10 11; do
        # It tries twenty times by itself.
        ended=0
        wget -q --server-response --tries=1 --timeout=30 --max-redirect=0 -O "$2" -- "$next" 2>"$3" || ended=$?
        status=
        location=
        while read -r word value _ || [ -n "$word" ]; do
            case $word in
            HTTP/*)
                status=$value
                location=
                ;;
            [Ll][Oo][Cc][Aa][Tt][Ii][Oo][Nn]:) if [ -z "$location" ]; then location=${value%"$(printf '\r')"}; fi ;;
            esac
        done <"$3"
        case $status in
        30[12378]) ;;
        *)
            [ "$ended" -eq 0 ] || fail "$1 cannot be downloaded (wget)" "it ended with status $ended${status:+ after HTTP $status}"
            return
            ;;
        esac
        case $location in
        "") fail "$1 cannot be downloaded" "its server answers HTTP $status without a location" ;;
        //*) next=${next%%://*}:$location ;;
        *://*) next=$location ;;
        /*)
            host=${next#*://}
            next=${next%%://*}://${host%%/*}$location
            ;;
        *)
            next=${next%%[?#]*}
            next=${next%/*}/$location
            ;;
        esac
        case $next in
        https://*) ;;
        *) fail "$1 is redirected to an address that is not https://" ;;
        esac
    done
    fail "$1 is redirected too often"
}

# The SHA-256 of a file.
sum_of() {
    if has sha256sum; then
        sum=$(sha256sum <"$1")
    elif has shasum; then
        sum=$(shasum -a 256 <"$1")
    elif has openssl; then
        sum=$(openssl dgst -sha256 -r <"$1")
    else
        fail "neither sha256sum nor shasum nor openssl exists, so the program cannot be verified"
    fi
    printf '%s\n' "${sum%% *}"
}

# The sum that SHA256SUMS has for a name, in small letters. It takes what `sha256sum -c` takes: a name after two blanks or after
# a blank and a star, lines of `sha256sum --tag`, capitals, a backslash before a line, and `./` before a name.
wanted_sum() {
    found=
    return_mark=$(printf '\r')
    utf8_mark=$(printf '\357\273\277')
    utf16_little_mark=$(printf '\377\376')
    utf16_big_mark=$(printf '\376\377')
    tab=$(printf '\t')
    while IFS= read -r line || [ -n "$line" ]; do
        check_text "$line"
        while :; do
            case $line in
            " "* | "$tab"*) line=${line#?} ;;
            *) break ;;
            esac
        done
        case $line in
        "SHA256 ("*") = "*)
            sum=${line##*") = "}
            name=${line#"SHA256 ("}
            name=${name%") = $sum"}
            ;;
        *)
            # The backslash says that the name is escaped; the names of a release have nothing to escape.
            line=${line#\\}
            sum=${line%%[ "$tab"]*}
            name=${line#"$sum"}
            name=${name#?}
            case $name in
            " "* | "*"*) name=${name#?} ;;
            esac
            ;;
        esac
        while :; do
            case $name in
            ./*) name=${name#./} ;;
            *) break ;;
            esac
        done
        if [ "$name" != "$2" ]; then continue; fi
        sum=$(in_small_letters "$sum")
        if [ -n "$found" ] && [ "$found" != "$sum" ]; then
            fail "SHA256SUMS is damaged: it has two checksums of $2"
        fi
        found=${sum:-none}
    done <"$1"
    case $found in
    "") fail "SHA256SUMS has no $2" "this release has no program for this machine" ;;
    *[!0-9a-f]*) fail "SHA256SUMS is damaged: the checksum of $2 is not a SHA-256" ;;
    esac
    [ ${#found} -eq 64 ] || fail "SHA256SUMS is damaged: the checksum of $2 is not a SHA-256"
    printf '%s\n' "$found"
}

# Refuses a line of SHA256SUMS that another program has written in its own way: `sha256sum -c` would not know the name in it.
check_text() {
    case $1 in
    *"$return_mark")
        fail "SHA256SUMS has the line ends of Windows (CRLF)" \
            "download it again without conversion, or convert it: tr -d '\\r' <SHA256SUMS >sums && mv sums SHA256SUMS"
        ;;
    "$utf8_mark"*)
        fail "SHA256SUMS begins with a byte order mark (UTF-8)" "download it again without conversion"
        ;;
    "$utf16_little_mark"* | "$utf16_big_mark"*)
        fail "SHA256SUMS is a text in UTF-16" "download it again without conversion"
        ;;
    esac
}

# A sum in small letters. The shell does it, for not every machine has `tr`.
in_small_letters() {
    left=$1
    small=
    while [ -n "$left" ]; do
        letter=${left%"${left#?}"}
        left=${left#?}
        case $letter in
        A) letter=a ;;
        B) letter=b ;;
        C) letter=c ;;
        D) letter=d ;;
        E) letter=e ;;
        F) letter=f ;;
        esac
        small=$small$letter
    done
    printf '%s\n' "$small"
}

check_signature() {
    if [ -z "${FLEETCTL_KEY:-}" ]; then return; fi
    has minisign || fail "FLEETCTL_KEY is given, but minisign, which verifies the signature, is not installed"
    fetch SHA256SUMS.minisig "$1.minisig"
    minisign -Vqm "$1" -P "$FLEETCTL_KEY" || fail "the signature of SHA256SUMS was not made with that key"
}

# Whether this script was run by its path. Read from a pipe, it knows no folder of its own: the current one may be anybody's.
is_run_by_path() {
    case $0 in
    */*) [ -f "$0" ] || return 1 ;;
    *) return 1 ;;
    esac
    first=
    second=
    { read -r first && read -r second; } <"$0" || return 1
    case $first-$second in
    "#!/bin/sh-# Installs fleetctl from the files of a release:"*) ;;
    *) return 1 ;;
    esac
}

# Where the release is: as it is said, else beside this script.
source_of() {
    from=${FLEETCTL_URL:-}
    if [ -z "$from" ]; then
        beside=$(dirname -- "$0")
        if ! is_run_by_path || ! [ -f "$beside/SHA256SUMS" ]; then
            fail "the location of the release is unknown" \
                "give its folder: FLEETCTL_URL=https://… sh install.sh" \
                "or run the script of a release by its path: sh ./install.sh"
        fi
        from=$beside
    fi
    from=${from%/}
    if [ -n "${FLEETCTL_VERSION:-}" ]; then
        case $FLEETCTL_VERSION in
        *[!A-Za-z0-9.-]* | .*) fail "\`$FLEETCTL_VERSION\` in FLEETCTL_VERSION is not a version" ;;
        esac
        from=$from/$FLEETCTL_VERSION
    fi
    case $from in
    https://* | http://127.0.0.1:* | http://localhost:*) ;;
    http://*) fail "$from is not https://, so its checksums could be changed in transit" \
        "use https://, or download the files another way and give their folder" ;;
    *://*) fail "$from has a scheme that is not https://" ;;
    esac
}

target_of() {
    folder=${FLEETCTL_BIN_DIR:-}
    if [ -z "$folder" ]; then
        folder=/usr/local/bin
        if ! [ -d "$folder" ] || ! [ -w "$folder" ]; then
            folder=${HOME:?HOME is not set: give FLEETCTL_BIN_DIR}/.local/bin
        fi
    fi
    # What is printed has to be of use in other folders, too.
    case $folder in
    /*) ;;
    *) folder=$(pwd)/$folder ;;
    esac
    why=$(mkdir -p -- "$folder" 2>&1) || true
    if ! [ -d "$folder" ] || ! [ -w "$folder" ] || ! [ -x "$folder" ]; then
        fail "$folder cannot be written to${why:+: $why}" \
            "give another one: FLEETCTL_BIN_DIR=\$HOME/.local/bin sh install.sh" \
            "or run this script as a user who may write there"
    fi
    # Without the slashes, dots and links between; a folder whose name ends in a line break has no other name here.
    real=$(CDPATH='' cd -- "$folder" && pwd) && [ -d "$real" ] && folder=$real
    if [ -d "$folder/fleetctl" ]; then fail "$folder/fleetctl is a folder" "move it away, or give FLEETCTL_BIN_DIR"; fi
}

# Whether two paths are one folder or file, as the file system has it: through links, slashes and mounts.
is_same() {
    [ "$1" = "$2" ] || [ "$1" -ef "$2" ] 2>/dev/null
}

# Says what is missing for the program to be found on the PATH.
tell_path() {
    entries=${PATH:-}:
    while [ -n "$entries" ]; do
        # An empty entry is the current folder.
        entry=${entries%%:*}
        entries=${entries#*:}
        if is_same "${entry:-.}" "$folder"; then return; fi
        other=${entry:-.}/fleetctl
        if [ -f "$other" ] && [ -x "$other" ]; then
            if is_same "$other" "$folder/fleetctl"; then return; fi
            printf '%s comes first on the PATH: remove that file, or put %s first\n' "$other" "$folder"
            return
        fi
    done
    case $folder in
    *:*) printf 'The PATH cannot contain %s, because a colon ends an entry: give another folder with FLEETCTL_BIN_DIR\n' "$folder" ;;
    *[\"\$\`\\]*)
        quoted=
        left=$folder
        while [ -n "$left" ]; do
            letter=${left%"${left#?}"}
            left=${left#?}
            case $letter in [\"\$\`\\]) letter=\\$letter ;; esac
            quoted=$quoted$letter
        done
        printf 'Add the folder to the PATH: export PATH="%s:$PATH"\n' "$quoted"
        ;;
    *) printf 'Add the folder to the PATH: export PATH="%s:$PATH"\n' "$folder" ;;
    esac
}

main() {
    name=fleetctl-$(machine)
    source_of
    target_of
    # In the folder itself, so that putting it into place is one step.
    work=$(mktemp -d "$folder/.fleetctl-install.XXXXXX") || fail "$folder cannot be written to"
    trap 'rm -rf -- "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' HUP TERM
    fetch SHA256SUMS "$work/SHA256SUMS"
    check_signature "$work/SHA256SUMS"
    wanted=$(wanted_sum "$work/SHA256SUMS" "$name")
    fetch "$name" "$work/fleetctl"
    got=$(sum_of "$work/fleetctl")
    if [ "$got" != "$wanted" ]; then
        fail "$name does not match SHA256SUMS and was not installed" "expected $wanted" "found    $got"
    fi
    chmod 755 "$work/fleetctl"
    ended=0
    version=$("$work/fleetctl" --version) || ended=$?
    if [ "$ended" -ne 0 ]; then
        # Nothing may be run there, or this program does not.
        printf '#!/bin/sh\n' >"$work/try"
        chmod 755 "$work/try"
        "$work/try" 2>/dev/null ||
            fail "$folder does not allow programs to run, so nothing was installed" \
                "its file system may be mounted noexec: give another folder with FLEETCTL_BIN_DIR"
        fail "$name does not run on this machine and was not installed"
    fi
    mv -f -- "$work/fleetctl" "$folder/fleetctl" ||
        fail "$folder/fleetctl cannot be replaced" "it may be a mount point, or belong to another user: ls -l '$folder/fleetctl'"
    printf '%s is installed: %s\n' "$folder/fleetctl" "$version"
    tell_path
    printf 'For `kubectl fleet`: fleetctl kubectl-install\n'
}

main
