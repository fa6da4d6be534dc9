"""The environment of a job's child: built from data, never from text that a shell would read."""

from collections.abc import Mapping

from opendataflow.domain.dataset import DESCRIPTOR_FIELDS, VARIABLE_SUFFIXES, Dataset, variable_prefix
from opendataflow.domain.job import Job
from opendataflow.domain.run import Claim, Owner

_OURS = (
    "dataid", "jobid", "DATAFLOW_RUN_ID", "DATAFLOW_ATTEMPT", "DATAFLOW_TOKEN", "DATAFLOW_STORE_ID", "DATAFLOW_GUARD",
)  # fmt: skip
_SECRET = ("DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE", "DATAFLOW_NEW_PASSKEY", "DATAFLOW_FAULT_POINT")


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
    env = dict(parent)
    for name in (*_OURS, *_SECRET):
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
        values = _descriptors(link.dataset, link.itemtype, locations.get(key), passwords.get(key))
        values["dataid"] = dataids.get(key, claim.dataid)
        prefix = variable_prefix(link.dataset.datasetid)
        for suffix, value in values.items():
            env[f"{prefix}_{suffix}"] = value
            env[f"{prefix}_{suffix.upper()}"] = value
    env.update(
        dataid=claim.dataid,
        jobid=claim.jobid,
        DATAFLOW_RUN_ID=str(claim.runid),
        DATAFLOW_ATTEMPT=str(claim.attempt),
        DATAFLOW_TOKEN=str(claim.runid),
        DATAFLOW_STORE_ID=store_id,
        DATAFLOW_GUARD=_guard_name(owner),
    )
    return env


def guard_mark(owner: Owner) -> bytes:
    """The entry that every process below this owner's guard carries in its environment, whichever run started it."""
    return f"DATAFLOW_GUARD={_guard_name(owner)}".encode()


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


def _descriptors(dataset: Dataset, itemtype: str, location: str | None, password: str | None) -> dict[str, str]:
    values = {field: getattr(dataset, field) for field in DESCRIPTOR_FIELDS}
    values |= {
        "datasetid": dataset.datasetid,
        "itemtype": itemtype,
        "password": password,
        "location": location,
        "format": dataset.format,
    }
    return {suffix: value if value is not None else "" for suffix, value in values.items()}
