"""Writes docs/create_tables.sql from the migrations of PostgreSQL, one after the other."""

from pathlib import Path

from opendataflow.store.migrate import migrations

FILE = Path(__file__).parents[1] / "docs" / "create_tables.sql"
text = FILE.read_text(encoding="utf-8")
known = list(migrations("postgres"))
head = text[: text.index(known[0][2].strip())]
FILE.write_text(head + "\n\n".join(migration.strip() for _, _, migration in known) + "\n", encoding="utf-8")
