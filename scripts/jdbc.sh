#!/bin/sh
# PostgreSQL's JDBC driver, which only the tests of jdbc: addresses and two benches need.
[ -e /usr/share/java/postgresql.jar ] && exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> Installing PostgreSQL's JDBC driver from Debian's packages (for the tests)"
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libpostgresql-jdbc-java >/dev/null 2>&1 && exit 0
fi
echo "The tests of jdbc: addresses need PostgreSQL's JDBC driver. On Debian or Ubuntu: sudo apt-get install -y libpostgresql-jdbc-java"
