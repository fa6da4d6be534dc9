#!/bin/sh
# Good is a stock list with at least one item and no quantity below zero. Anything else ends with 1, and nothing is READY.
set -eu
awk -F, '
    NR > 1 {items++}
    NR > 1 && $2 < 0 {print "line " NR ": " $1 " has a quantity of " $2; bad = 1}
    END {if (!items) {print "there are no items"; bad = 1}; exit bad}
' "$STOCK" >&2
cp "$STOCK" "$validated_location"
echo "$dataid: $(($(wc -l < "$STOCK") - 1)) items are valid"
