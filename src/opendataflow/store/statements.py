"""Named SQL statements: `-- name: x` in sql/<dialect>/<file>.sql starts statement x."""

from os.path import dirname, join

_loaded: dict[tuple[str, str], dict[str, str]] = {}


def statements(dialect: str, file: str) -> dict[str, str]:
    """All statements of one file, by name."""
    key = (dialect, file)
    if key not in _loaded:
        with open(join(dirname(__file__), "sql", dialect, f"{file}.sql"), encoding="utf-8") as source:
            _loaded[key] = read_statements(source.read())
    return _loaded[key]


def read_statements(text: str) -> dict[str, str]:
    """The statements of such a text, by name, without their comments."""
    named = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.split("\n") if not line.startswith("--")]
        named[name.strip()] = "\n".join(lines).strip()
    return named
