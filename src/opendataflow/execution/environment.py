"""The environment of a job's child: built from data, never from text that a shell would read."""

import functools
import os
from collections.abc import Iterable, Mapping

from opendataflow.domain.chunk import ChunkKey
from opendataflow.domain.dataset import DESCRIPTOR_FIELDS, VARIABLE_SUFFIXES, Dataset, variable_prefix
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Claim, Owner
from opendataflow.domain.variables import is_platform_variable, why_refused, without_platform_variables
from opendataflow.errors import ConfigurationError

_OURS = (
    "dataid", "jobid", "DATAFLOW_RUN_ID", "DATAFLOW_ATTEMPT", "DATAFLOW_TOKEN", "DATAFLOW_STORE_ID", "DATAFLOW_GUARD",
)  # fmt: skip
_FAULTS = "DATAFLOW_FAULT_POINT"

_prefix = functools.lru_cache(maxsize=1024)(variable_prefix)


def child_environment(
    parent: Mapping[str, str],
    *,
    job: Job,
    claim: Claim,
    owner: Owner,
    store_id: str,
    locations: Mapping[tuple[str, str], str | None],
    dataids: Mapping[tuple[str, str], str],
    passwords: Mapping[tuple[str, str], str],
) -> dict[str, str]:
    """What the child sees: the parent's variables without anything stale or secret, then this run's."""
    common = common_environment(parent, job=job, store_id=store_id, passwords=passwords)
    return {**common, **own_environment(job=job, claim=claim, owner=owner, locations=locations, dataids=dataids)}


def common_environment(
    parent: Mapping[str, str], *, job: Job, store_id: str, passwords: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    """The part that is the same for every run of the job from one process."""
    env = without_platform_variables(parent)
    for name in (*_OURS, _FAULTS):
        env.pop(name, None)
    prefixes = {variable_prefix(link.dataset.datasetid) for link in job.links} | _earlier_prefixes(parent)
    for prefix in prefixes:
        for suffix in VARIABLE_SUFFIXES:
            env.pop(f"{prefix}_{suffix}", None)
            env.pop(f"{prefix}_{suffix.upper()}", None)
    extra = job.definition.get("env")
    if isinstance(extra, dict):
        env.update({str(name): str(value) for name, value in extra.items()})
    for link in job.links:
        key = (link.dataset.project, link.dataset.datasetid)
        values = _descriptors(link.dataset, link.itemtype, passwords.get(key), parent)
        env.update(_in_both_cases(variable_prefix(link.dataset.datasetid), values))
    env.update(jobid=job.jobid, DATAFLOW_STORE_ID=store_id)
    return env


def own_environment(
    *,
    job: Job,
    claim: Claim,
    owner: Owner,
    locations: Mapping[tuple[str, str], str | None],
    dataids: Mapping[tuple[str, str], str],
) -> dict[str, str]:
    """The part that is this run's alone, and the guard's mark; it comes after what is common to all."""
    env = run_environment(job=job, claim=claim, locations=locations, dataids=dataids)
    env.update(guard_environment(owner))
    return env


def run_environment(
    *,
    job: Job,
    claim: Claim,
    locations: Mapping[tuple[str, str], str | None],
    dataids: Mapping[tuple[str, str], str],
) -> dict[str, str]:
    """What changes from run to run."""
    env: dict[str, str] = {}
    for link in job.links:
        key = (link.dataset.project, link.dataset.datasetid)
        values = {"location": locations.get(key) or "", "dataid": dataids.get(key, claim.dataid)}
        env.update(_in_both_cases(_prefix(link.dataset.datasetid), values))
    run = str(claim.runid)
    env.update(
        dataid=claim.dataid,
        DATAFLOW_RUN_ID=run,
        DATAFLOW_ATTEMPT=str(claim.attempt),
        DATAFLOW_TOKEN=run,
    )
    return env


def dataids_of(inputs: Iterable[ChunkKey]) -> dict[tuple[str, str], str]:
    """Which dataids of each input a run reads, one a line."""
    found: dict[tuple[str, str], str] = {}
    for project, datasetid, dataid in inputs:
        key = project, datasetid
        found[key] = f"{found[key]}\n{dataid}" if key in found else dataid
    return found


def guard_environment(owner: Owner) -> dict[str, str]:
    return {"DATAFLOW_GUARD": _guard_name(owner)}


def _in_both_cases(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for suffix, value in values.items():
        found[f"{prefix}_{suffix}"] = found[f"{prefix}_{suffix.upper()}"] = value
    return found


def guard_mark(owner: Owner) -> bytes:
    """The entry that every process below this owner's guard carries in its environment, whichever run started it."""
    ((name, value),) = guard_environment(owner).items()
    return f"{name}={value}".encode()


def _guard_name(owner: Owner) -> str:
    return f"{owner.guard_pid}.{owner.guard_started}"


def _earlier_prefixes(parent: Mapping[str, str]) -> set[str]:
    """Datasets of a RunJob that started this one: their variables are not this job's."""
    ending = "_datasetid"
    return {
        name.removesuffix(ending)
        for name, value in parent.items()
        if name.endswith(ending) and variable_prefix(value) == name.removesuffix(ending)
    }


def _descriptors(dataset: Dataset, itemtype: str, password: str | None, parent: Mapping[str, str]) -> dict[str, str]:
    values = {field: getattr(dataset, field) for field in DESCRIPTOR_FIELDS}
    variable = _address_variable(dataset)
    if variable is not None:
        values |= _parts_of_address(parent.get(variable, ""))
    values |= {
        "datasetid": dataset.datasetid,
        "itemtype": itemtype,
        "password": password,
        "format": dataset.format,
    }
    return {suffix: value if value is not None else "" for suffix, value in values.items()}


# Secrets --------------------------------------------------------------------------------------------------------------
def find_passwords(datasets: Iterable[Dataset]) -> dict[tuple[str, str], str]:
    """The credentials of these datasets, decrypted or from the addresses that variables hold.

    Raises before anything is claimed: SecretError for one that cannot be opened, ConfigurationError for a variable that
    is not set. A password that an address holds in its own spelling is there a second time as that, to be masked too.
    """
    found: dict[tuple[str, str], str] = {}
    passkey = ""
    for dataset in datasets:
        if (variable := _address_variable(dataset)) is not None:
            found |= _passwords_in(dataset, variable)
        if dataset.encryptedpass:
            from opendataflow.project.secrets import decrypt, get_passkey

            passkey = passkey or get_passkey()
            found[dataset[:2]] = decrypt(dataset.encryptedpass, passkey)
    return found


def _address_variable(dataset: Dataset) -> str | None:
    """The variable that holds the address of the dataset's database; ConfigurationError for one of OpenDataFlow's."""
    if dataset.definition is None or not dataset.declares("url_env"):
        return None
    import json

    name = json.loads(dataset.definition).get("url_env")
    if name and is_platform_variable(str(name)):
        raise ConfigurationError(f"dataset {dataset.datasetid}: url_env: {why_refused(str(name))}")
    return str(name) if name else None


def _passwords_in(dataset: Dataset, variable: str) -> dict[tuple[str, str], str]:
    url = os.environ.get(variable)
    if not url:
        raise ConfigurationError(
            f"dataset {dataset.datasetid}: the environment variable {variable}, which holds the address of its "
            "database, is not set"
        )
    import re
    from urllib.parse import unquote

    rest = url.partition("://")[2]
    written = rest.partition("/")[0].rpartition("@")[0].partition(":")[2]
    # Of an address that is not written as it should be, all that may be its password.
    others = [rest.rpartition("@")[0].partition(":")[2], *re.findall(r"(?i)[?&](?:ssl)?password=([^&]+)", rest)]
    found = {dataset[:2]: unquote(written), ("", variable): written}
    found |= {(variable, other): other for other in others}
    return {key: password for key, password in found.items() if password}


def _parts_of_address(url: str) -> dict[str, str | None]:
    """Host, database and user of an address, as those of a `url` in project.yml."""
    from urllib.parse import unquote, urlsplit

    try:
        place = urlsplit(url)
        host, user = place.hostname, place.username
    except ValueError:
        return {}
    found = {"hostname": host, "database": unquote(place.path.lstrip("/")), "username": unquote(user or "")}
    return {field: value or None for field, value in found.items()}
