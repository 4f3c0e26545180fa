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
        [ -f "$from/$1" ] || fail "$from holds no $1" "FLEETCTL_URL has to name the folder of a release"
        cp -- "$from/$1" "$2" || fail "$from/$1 cannot be read"
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
            "install one, or download the files of the release and run this beside them"
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
            fail "this wget may not check certificates, so the program could be changed on the way" \
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
        "") fail "$1 cannot be downloaded" "its server answers HTTP $status without a place" ;;
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
        *) fail "$1 is redirected to what is not https://" ;;
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
        fail "there is none of sha256sum, shasum and openssl, so the program cannot be checked"
    fi
    printf '%s\n' "${sum%% *}"
}

# The sum that SHA256SUMS has for a name, which has to stand there once.
wanted_sum() {
    found=
    while read -r sum name rest || [ -n "$sum" ]; do
        name=${name#\*}
        if [ "$name" = "$2" ]; then
            if [ -n "$found$rest" ]; then fail "SHA256SUMS is damaged: $2 is not there once"; fi
            found=$sum
        fi
        rest=
    done <"$1"
    case $found in
    "") fail "SHA256SUMS has no $2" "this release has no program for this machine" ;;
    *[!0-9a-f]*) fail "SHA256SUMS is damaged: the sum of $2 is none" ;;
    esac
    [ ${#found} -eq 64 ] || fail "SHA256SUMS is damaged: the sum of $2 is none"
    printf '%s\n' "$found"
}

check_signature() {
    if [ -z "${FLEETCTL_KEY:-}" ]; then return; fi
    has minisign || fail "FLEETCTL_KEY is given, and there is no minisign to check the signature with"
    fetch SHA256SUMS.minisig "$1.minisig"
    minisign -Vqm "$1" -P "$FLEETCTL_KEY" || fail "the signature of SHA256SUMS is not of that key"
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
            fail "it is not known where the release is" \
                "give its folder: FLEETCTL_URL=https://… sh install.sh" \
                "or run the script of a release by its path: sh ./install.sh"
        fi
        from=$beside
    fi
    from=${from%/}
    if [ -n "${FLEETCTL_VERSION:-}" ]; then
        case $FLEETCTL_VERSION in
        *[!A-Za-z0-9.-]* | .*) fail "\`$FLEETCTL_VERSION\` in FLEETCTL_VERSION is no version" ;;
        esac
        from=$from/$FLEETCTL_VERSION
    fi
    case $from in
    https://* | http://127.0.0.1:* | http://localhost:*) ;;
    http://*) fail "$from is not https://, and its sums could be changed on the way" \
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
    mkdir -p -- "$folder" 2>/dev/null || true
    if ! [ -d "$folder" ] || ! [ -w "$folder" ]; then
        fail "$folder cannot be written to" \
            "give another one: FLEETCTL_BIN_DIR=\$HOME/.local/bin sh install.sh" \
            "or run this as somebody who may write there"
    fi
    if [ -d "$folder/fleetctl" ]; then fail "$folder/fleetctl is a folder" "move it away, or give FLEETCTL_BIN_DIR"; fi
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
        fail "$name is not what SHA256SUMS says, and was not installed" "expected $wanted" "found    $got"
    fi
    chmod 755 "$work/fleetctl"
    version=$("$work/fleetctl" --version) || fail "$name does not run on this machine, and was not installed"
    mv -f -- "$work/fleetctl" "$folder/fleetctl"
    printf '%s is installed: %s\n' "$folder/fleetctl" "$version"
    case :${PATH:-}: in
    *:"$folder":*) ;;
    *) printf 'Add it to the PATH: export PATH="%s:$PATH"\n' "$folder" ;;
    esac
    printf 'For `kubectl fleet`: fleetctl kubectl-install\n'
}

main
