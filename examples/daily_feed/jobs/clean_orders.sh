#!/bin/bash
# An existing script, as it always was: all it knows of OpenDataFlow is a few variables.
set -euo pipefail
if [ -e "$(dirname "$0")/../NETWORK_IS_DOWN" ]; then
    echo "cannot reach the file server" >&2
    exit 1
fi
sleep "${PAUSE:-0}"
awk -F, 'NR == 1 || ($1 != "" && $3 > 0)' "$raw_orders_location" > "$orders_location"
echo "$dataid: kept $(($(wc -l < "$orders_location") - 1)) of $(($(wc -l < "$raw_orders_location") - 1)) orders"
