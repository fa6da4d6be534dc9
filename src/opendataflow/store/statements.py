"""Named SQL statements: `-- name: x` in sql/<dialect>/<file>.sql starts statement x."""

from os.path import dirname, join

_loaded: dict[tuple[str, str], dict[str, str]] = {}


def statements(dialect: str, file: str) -> dict[str, str]:
    """All statements of one file, by name."""
    key = (dialect, file)
    if key not in _loaded:
        with open(join(dirname(__file__), "sql", dialect, f"{file}.sql"), encoding="utf-8") as source:
            parts = source.read().split("-- name: ")[1:]
        named = {}
        for part in parts:
            name, _, body = part.partition("\n")
            lines = [line for line in body.split("\n") if not line.startswith("--")]
            named[name.strip()] = "\n".join(lines).strip()
        _loaded[key] = named
    return _loaded[key]
