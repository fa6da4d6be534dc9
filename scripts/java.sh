#!/bin/sh
# Find Java 17 or newer; on a Debian-like machine where we may, install it; otherwise say the command.
version() {
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
    [ -n "$candidate" ] || continue
    found=$(version "$candidate") || continue
    [ "${found:-0}" -ge 17 ] && exit 0
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> Installing Java (openjdk, headless) from Debian's packages"
    apt-get update -qq >/dev/null 2>&1
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 && exit 0
    done
fi
echo "Java 17 or newer is needed for Spark and was not found."
echo "On Debian or Ubuntu: sudo apt-get install -y openjdk-17-jre-headless"
exit 2
