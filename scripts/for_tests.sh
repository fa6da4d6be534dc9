#!/bin/sh
# What the tests use beside Python and Java: a browser for the pages and the library that Playwright's own part needs, curl
# as README's reader has it, PostgreSQL's JDBC driver.
missing=""
need() { # package: commands or files of which one is enough
    package=$1
    shift
    for one in "$@"; do
        [ -n "$one" ] && { command -v "$one" >/dev/null 2>&1 || [ -e "$one" ]; } && return
    done
    missing="$missing $package"
}
need chromium "$DATAFLOW_CHROMIUM" chromium chromium-browser
need fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
need libatomic1 /usr/lib/*/libatomic.so.1 /usr/lib*/libatomic.so.1
need curl curl
need libpostgresql-jdbc-java /usr/share/java/postgresql.jar
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> Installing from Debian's packages, for the tests:$missing"
    apt-get update -qq >/dev/null 2>&1
    # shellcheck disable=SC2086  several packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && exit 0
fi
echo "Some tests need what is not here. On Debian or Ubuntu: sudo apt-get install -y$missing"
