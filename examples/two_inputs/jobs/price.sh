#!/bin/sh
# Joins the day's orders with the day's exchange rates. A currency without a rate ends the job with 1.
set -eu
awk -F, -v OFS=, '
    BEGIN {print "id", "eur"}
    FNR == 1 {next}
    FILENAME == ARGV[1] {rate[$1] = $2; next}
    !($2 in rate) {print "there is no rate for " $2 > "/dev/stderr"; exit 1}
    {print $1, sprintf("%.2f", $3 * rate[$2])}
' "$rates_location" "$orders_location" > "$priced_location"
echo "$dataid: $(($(wc -l < "$priced_location") - 1)) orders in EUR"
