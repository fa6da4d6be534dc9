#!/bin/sh
# Chromium, in which the tests of the pages run.
for name in "$DATAFLOW_CHROMIUM" chromium chromium-browser; do
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && exit 0
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> Installing Chromium from Debian's packages (for the tests of the pages)"
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 && exit 0
fi
echo "The tests of the pages need Chromium. On Debian or Ubuntu: sudo apt-get install -y chromium"
