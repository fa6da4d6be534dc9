#!/bin/sh
# Chromium, in which the tests of the pages run, and the library that Playwright's own part needs beside it.
missing=""
for name in "$DATAFLOW_CHROMIUM" chromium chromium-browser -; do
    [ "$name" = - ] && missing="chromium fonts-dejavu-core"
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && break
done
found=$(ls /usr/lib/*/libatomic.so.1 /usr/lib*/libatomic.so.1 2>/dev/null | head -n 1)
[ -n "$found" ] || missing="$missing libatomic1"
[ -n "$missing" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> Installing from Debian's packages, for the tests of the pages: $missing"
    apt-get update -qq >/dev/null 2>&1
    # shellcheck disable=SC2086  several packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && exit 0
fi
echo "The tests of the pages need Chromium and libatomic. On Debian or Ubuntu: sudo apt-get install -y $missing"
