"""Environment variables that hold OpenDataFlow's own secrets: no project can name them, no script gets them."""

from collections.abc import Mapping

STORE = "DATAFLOW_STORE"
# Addresses with their passwords, the key to all others, and the lineage backend's key.
_NAMES = (STORE, "DATAFLOW_LINEAGE_URL", "PASSKEY", "OPENLINEAGE_API_KEY", "OPENLINEAGE__TRANSPORT__AUTH__APIKEY")
_PREFIX = "DATAFLOW_"
_WORDS = ("TOKEN", "SECRET", "PASS", "CREDENTIAL")


def is_platform_variable(name: str) -> bool:
    """Whether the variable of this name is for OpenDataFlow alone: its passkey, its store's address, its tokens."""
    return name in _NAMES or (name.startswith(_PREFIX) and any(word in name for word in _WORDS))


def without_platform_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The rest of the variables: for a child that runs a project's code, or somebody else's."""
    return {name: value for name, value in environ.items() if not is_platform_variable(name)}


def why_refused(name: str) -> str:
    """The sentence for a project that names such a variable."""
    return f"{name} is reserved for OpenDataFlow's own secrets and is never filled in; use a variable of another name"


def named_variables(text: str) -> list[str]:
    """The names in every ${NAME} and ${NAME:-default} of the text, those within defaults included."""
    return [part.partition("}")[0].partition(":-")[0] for part in text.split("${")[1:]]
