"""A script as a job's work: its argv, and what it declared to write."""

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Job
from opendataflow.domain.run import Claim
from opendataflow.runner.runjob import Locations, Work


def script_work(job: Job, script: str, args: list[str]) -> Work:
    """Run the script with these arguments, exactly as given; its outputs are recorded where they were declared."""

    def argv(_claim: Claim, _locations: Locations) -> list[str]:
        return [script, *args]

    def manifests(_claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        found = []
        for link in job.outputs:
            place = locations[link.dataset.project, link.dataset.datasetid]
            if place is None or "://" in place:
                manifest = Manifest(location=place)  # known by its connection: asserted by its producer
            else:
                from opendataflow.runner.files import manifest_of

                manifest = manifest_of(place)
            found.append((link.dataset.project, link.dataset.datasetid, manifest))
        return tuple(found)

    return Work(argv, manifests)
