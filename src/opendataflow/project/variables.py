"""${NAME} in project.yml, filled from the environment."""

import os

from opendataflow.domain.variables import is_platform_variable, named_variables, why_refused
from opendataflow.errors import ConfigurationError


def expand(text: str, *, allowed: str = "") -> str:
    """Replace ${NAME} and ${NAME:-default} from the environment, or raise ConfigurationError for a missing one.

    OpenDataFlow's own secrets are refused, except the variable `allowed`.
    """
    if "${" not in text:
        return text
    for one in named_variables(text):
        if one != allowed and is_platform_variable(one):
            raise ConfigurationError(why_refused(one))
    head, _, rest = text.partition("${")
    name, closed, tail = rest.partition("}")
    if not closed:
        raise ConfigurationError(f"a ${{…}} is not closed in {text!r}")
    name, has_default, default = name.partition(":-")
    value = os.environ.get(name)
    if not value:
        if not has_default:
            raise ConfigurationError(f"the environment variable {name} is not set, and project.yml asks for it")
        value = default
    return head + value + expand(tail, allowed=allowed)
