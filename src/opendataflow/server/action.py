"""Actions: what people do to the system, the same over the API and on the pages.

An action is described before it is done: `describe` says in words what would happen, and changes nothing; `perform`
does it, and says what became of it. Both run in a thread with the store, whose actor is the user: so the history names
them.

    RESUBMIT = Action("resubmit", "Resubmit", Role.OPERATOR, ResubmitAsked, describe_resubmit, resubmit)

Pages lead to `GET /actions/resubmit?project=…&job=…&dataid=…`, which shows the plan and asks; scripts call
`POST /v1/actions/resubmit` with a JSON object, and `POST /v1/actions/resubmit/plan` to see the plan only.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from opendataflow.project.address import Address
from opendataflow.server.access import User
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role


class Asked(BaseModel):
    """What an action is asked to do; fields of a form arrive as texts."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    @field_validator("*", mode="after")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        """What no store can keep is refused here: a null character, half a character."""
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str) and ("\0" in one or _is_broken(one)):
                raise ValueError("has a character that is none")
        return value


def _is_broken(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text)


_A = TypeVar("_A", bound=Asked)


class Acting(NamedTuple):
    """Who acts, where."""

    store: LoopStore
    address: Address
    user: User


class Field(NamedTuple):
    """Something the confirmation asks for before it goes on."""

    name: str
    label: str
    kind: str = "text"  # of an input, or checkbox
    value: str = ""
    hint: str = ""
    choices: Sequence[str] = ()
    required: bool = False


class Plan(NamedTuple):
    """What would happen."""

    says: str  # a sentence or two
    heads: Sequence[str] = ()  # of the rows
    rows: Sequence[Sequence[Any]] = ()  # what it would happen to, in order
    fields: Sequence[Field] = ()
    possible: bool = True  # False: there is nothing to do, and `says` tells why


class Done(NamedTuple):
    """What became of it."""

    says: str
    target: str  # what it was done to, for the record
    result: Any = None  # for scripts, JSON
    then: str = ""  # the page to go on with; empty: the one it came from
    once: str = ""  # a secret that is shown this once, never in an address; one that starts with / is a page of ours


class Action(NamedTuple, Generic[_A]):
    name: str
    title: str  # a verb, as on a button
    role: Role
    model: type[_A]
    describe: Callable[[Acting, _A], Plan]
    perform: Callable[[Acting, _A], Done]
    is_grave: bool = False  # it takes something away
    secret: frozenset[str] = frozenset()  # fields that are never shown, logged or recorded
