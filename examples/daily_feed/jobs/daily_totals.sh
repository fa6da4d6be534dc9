#!/bin/bash
set -euo pipefail
if [ -e "$(dirname "$0")/../NETWORK_IS_DOWN" ]; then
    echo "cannot reach the warehouse" >&2
    exit 1
fi
awk -F, 'NR > 1 {sum[$2] += $3} END {print "shop,total"; for (s in sum) print s "," sum[s]}' "$orders_location" > "$totals_location"
echo "$dataid: $(($(wc -l < "$totals_location") - 1)) shops"
