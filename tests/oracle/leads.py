"""The pandas example by a plain loop."""

from pathlib import Path

from oracle.told import Sheet, Told, write_csv

COLUMNS = ("email", "first_name", "country", "visits", "signed_up")
LEADS = [
    ("ada@example.com", "Ada", "GB", "3", "2025-10-01"),
    ("", "Nobody", "FR", "1", "2025-10-02"),
    ("grace@example.com", "Grace", "US", "12", "2025-10-03"),
    ("linus@example.com", 'Linus "T."', "FI", "", "2025-10-05"),
    ("  MARIE@example.com ", "Marie", "FR", "7", ""),
    ("Ada@Example.com", "Ada the second", "FR", "4", "2025-10-06"),
    ("alan@example.com", "Alan, M.", "GB", "5", "2025-10-09"),
    ("grace@example.com", "Grace", "US", "13", "2025-10-10"),
    ("zoë@example.com", "Zoë", "", "0", "2025-10-11"),
]
COUNTRIES = [("GB", "United Kingdom"), ("FR", "France"), ("US", "United States")]


def leads(folder: Path) -> Told:
    """The first lead of each address, with its country's name."""
    write_csv(folder / "sources/leads.csv", COLUMNS, LEADS)
    write_csv(folder / "sources/countries.csv", ("code", "name"), COUNTRIES)
    rows, seen = [], set()
    for email, first_name, country, visits, signed_up in LEADS:
        address = email.strip().lower()
        if not address or address in seen:
            continue
        seen.add(address)
        name = "unknown"
        for code, full_name in COUNTRIES:
            if code == country:
                name = full_name
        # Some visits are not known, so that pandas has the column as floats.
        rows.append((address, first_name, name, f"{float(visits)}" if visits else "", signed_up))
    made = {("clean_leads", "full"): Sheet(path="output/clean_leads.csv", columns=COLUMNS, rows=rows)}
    step = "pipelines/clean_leads/drop_without_email.py"
    return Told(jobs={"clean_leads": ["full"]}, made=made, step=step)
