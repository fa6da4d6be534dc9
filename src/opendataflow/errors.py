"""The errors of OpenDataFlow.

DataflowError                     exit
 ├─ UsageError                      2   wrong arguments, unknown job, dataset or dataid
 │   ├─ ConfigurationError          2   project.yml, environment, store address, script file
 │   └─ SecretError                 2   passkey missing or wrong
 ├─ Refused                     10–14   one of the five questions was answered no
 │   └─ NotReady (api)             10   nothing is published that could be read
 ├─ LeaseLost                       5   this run is no longer the owner; it changed nothing
 ├─ StoreUnavailable               75   the database cannot be reached, or stays busy
 ├─ JobChanged                     75   a job was registered anew while its work was looked for
 └─ JobFailed                       1   the job ran and failed

Every message says what is, and ends with the next step where there is one.
"""

TYPE_CHECKING = False  # without importing typing for it
if TYPE_CHECKING:
    from collections.abc import Iterable


class DataflowError(Exception):
    """Anything OpenDataFlow can explain; `exit_code` is what a command ends with."""

    exit_code = 70


class UsageError(DataflowError):
    exit_code = 2


class ConfigurationError(UsageError):
    pass


class SecretError(UsageError):
    pass


class Refused(DataflowError):
    """A question was answered no; the exit code is that question's."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LeaseLost(DataflowError):
    exit_code = 5


class StoreUnavailable(DataflowError):
    exit_code = 75


class JobChanged(DataflowError):
    """What a dataid reads or writes is no longer what the job says that was read before: read the job again."""

    exit_code = 75


class JobFailed(DataflowError):
    exit_code = 1


def find_no_text(arguments: "Iterable[str]") -> UsageError | None:
    """The error of an argument whose bytes are not valid UTF-8. No name and no dataid in a store has such bytes."""
    for one in arguments:
        try:
            one.encode()
        except UnicodeEncodeError:
            shown = one.encode("utf-8", "backslashreplace").decode()
            return UsageError(f"{shown} is not valid UTF-8, and names no job, dataset or dataid")
    return None
