#!/bin/sh
# Sums up one day of orders. All it knows of OpenDataFlow is where to read and where to write.
set -eu
awk -F, -v day="$dataid" '
    NR > 1 {orders++; total += $3}
    END {printf "%s: %d orders, %.2f in all\n", day, orders, total}
' "$orders_location" > "$loaded_location"
cat "$loaded_location"
