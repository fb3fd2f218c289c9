# What checks in a browser need: Chromium, Node.js, playwright-core. Sourced by scripts/check_pages and scripts/check_glass, which set
# `checker` (their name) and `if_possible`; sets `chromium` and `cache`.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vitreous-check-pages
playwright=playwright-core@1.49.1

missing() {
    if $if_possible; then
        echo "skipped: $1" >&2
        exit 0
    fi
    echo "$checker: $1" >&2
    exit 1
}

find_chromium() {
    local name
    for name in ${CHROMIUM:-} chromium chromium-browser google-chrome; do
        command -v "$name" && return
    done
    return 1
}

if ! chromium=$(find_chromium); then
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        apt-get update -q >&2 && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core >&2 || true
    fi
    chromium=$(find_chromium) || missing "there is no Chromium; install it (on Debian: apt-get install chromium), or set CHROMIUM"
fi
has_node() { command -v npm >/dev/null && command -v node >/dev/null; }
if ! has_node && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -q >&2 && apt-get install -qy --no-install-recommends nodejs npm >&2 || true
fi
has_node ||
    missing "there is no Node.js with npm; install them (on Debian: apt-get install nodejs npm)"

if [[ ! -d $cache/node_modules/playwright-core ]]; then
    mkdir -p "$cache"
    npm install --prefix "$cache" --no-audit --no-fund --no-save "$playwright" >&2 ||
        missing "npm cannot install $playwright"
fi
