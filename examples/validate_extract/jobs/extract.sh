#!/bin/sh
# What has to be ordered again: everything of which fewer than ten are left.
set -eu
awk -F, 'NR == 1 || $2 < 10' "$validated_location" > "$reorder_location"
echo "$dataid: $(($(wc -l < "$reorder_location") - 1)) items to order"
