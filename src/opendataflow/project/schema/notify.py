"""The shape of `notify:` in project.yml, for the project and for each job, and what of it a job's definition keeps.

An address holds passwords and tokens. So the store gets none of it: a definition keeps the place in project.yml where
the address stands, and its scheme.
"""

import difflib
import json
import re
import warnings
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag

from opendataflow.domain.registration import JobSpec
from opendataflow.project.problems import Problems
from opendataflow.project.schema.values import Duration, Strict
from opendataflow.project.secrets import PREFIX
from opendataflow.project.source import Path, Source

SHORT, LONG = "[list]", "[mapping]"  # no keys of the file: they are left out where an error names a key
EVENTS = ("failed", "recovered", "late", "stuck")
# The best known; apprise has many more, and is asked where it is installed.
SCHEMES = (
    "discord", "gchat", "gotify", "gotifys", "json", "jsons", "mailgun", "mailto", "mailtos", "matrix", "matrixs",
    "mattermost", "mmost", "mmosts", "msteams", "ntfy", "ntfys", "opsgenie", "pagerduty", "pover", "rocket", "rockets",
    "sendgrid", "ses", "signal", "signals", "slack", "sns", "tgram", "twilio", "webex", "workflows", "xml", "xmls",
    "zulip",
)  # fmt: skip
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")


class _Strict(Strict, BaseModel):  # BaseModel again: linters look for models file by file
    pass


def _address(text: str) -> str:
    """The address, or ValueError; what stands there is not repeated, it may be a secret."""
    text = text.strip()
    if text.startswith(PREFIX) or _VARIABLE.match(text):
        return text
    found = _SCHEME.match(text)
    if found is None:
        raise ValueError("is not an address like mailto://ops@example.com or json://hooks.example.com/dataflow")
    scheme = found[1].lower()
    near = difflib.get_close_matches(scheme, SCHEMES, n=1, cutoff=0.75) if scheme not in SCHEMES else []
    if near and not _is_known_to_apprise(scheme):
        raise ValueError(f"nothing can be sent by `{scheme}://`; did you mean `{near[0]}://`?")
    return text


def _is_known_to_apprise(scheme: str) -> bool:
    try:
        from apprise.manager_plugins import NotificationManager
    except ImportError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its plugins, which are none of the user's business
        return scheme in NotificationManager()  # type: ignore[no-untyped-call]


def _listed(value: object) -> object:
    """One address stands for a list of one."""
    return [value] if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address)]
Addresses = Annotated[list[Address], BeforeValidator(_listed)]


class NotifyEntry(_Strict):
    """Who is told, of what, and when."""

    to: Addresses | None = None
    on: Annotated[list[Literal["failed", "recovered", "late", "stuck"]], BeforeValidator(_listed)] | None = Field(
        default=None, min_length=1
    )
    late_after: Duration | None = None
    stuck_after: Duration | None = None
    gather: Duration | None = None
    quiet: Duration | None = None

    def over(self, default: "NotifyEntry | None") -> "NotifyEntry":
        """What this one says, and the default's for the rest; but for its addresses, which are all or none."""
        rest = default.model_dump(exclude_none=True) if default is not None else {}
        return NotifyEntry.model_construct(**{**rest, **self.model_dump(exclude_none=True)})


def _form(value: object) -> str:
    return LONG if isinstance(value, dict | NotifyEntry) else SHORT


Notify = Annotated[
    Annotated[NotifyEntry, Tag(LONG)] | Annotated[Addresses, Tag(SHORT)],
    Discriminator(_form),
]


# What a definition keeps ----------------------------------------------------------------------------------------------
def with_notify(
    source: Source, default: "NotifyEntry | list[str] | None", entries: dict[str, Any], jobs: tuple[JobSpec, ...],
    places: dict[str, Path], problems: Problems,
) -> tuple[JobSpec, ...]:  # fmt: skip
    """The jobs with what their `notify:`, or the project's, says; `entries` are theirs by job or slug."""
    known: dict[str, list[str]] = {}  # an address → the first place where it stands, and its scheme
    whole = _entry(default)
    _place(known, "notify", default)
    for jobid, entry in entries.items():
        section = "pipelines" if places[jobid][0] == "pipelines" else "jobs"
        _place(known, f"{section}/{jobid}/notify", entry.notify)
    found = []
    for job in jobs:
        definition = json.loads(job.definition)
        name = definition.get("seal", {}).get("stream", job.jobid)
        own = entries[name].notify if name in entries else None
        merged = _entry(own).over(whole) if own is not None else whole
        if merged.to is None and own is not None:
            told = "names nobody; give `to: [mailto://…]` here, or a `notify:` for the whole project"
            problems.add(str(source.error((*places[name], "notify"), told)))
        if merged.to:
            definition["notify"] = {
                "to": [known[one] for one in dict.fromkeys(merged.to)],
                **merged.model_dump(exclude_none=True, exclude={"to"}),
            }
            job = job._replace(definition=json.dumps(definition, sort_keys=True))  # noqa: PLW2901
        found.append(job)
    return tuple(found)


def _entry(value: "NotifyEntry | list[str] | None") -> NotifyEntry:
    if isinstance(value, NotifyEntry):
        return value
    return NotifyEntry() if value is None else NotifyEntry.model_construct(to=value)


def _place(known: dict[str, list[str]], at: str, value: "NotifyEntry | list[str] | None") -> None:
    entry = _entry(value)
    below = f"{at}/to" if isinstance(value, NotifyEntry) else at
    for number, address in enumerate(entry.to or ()):
        known.setdefault(address, [f"{below}/{number}", shown(address)])


def shown(address: str) -> str:
    """What of an address may be shown: its scheme, or the variable that holds it."""
    if address.startswith(PREFIX):
        return "encrypted"
    variable = _VARIABLE.match(address)
    if variable is not None:
        return variable.group().partition(":-")[0].rstrip("}") + "}"
    found = _SCHEME.match(address)
    return found[1].lower() if found else "?"
