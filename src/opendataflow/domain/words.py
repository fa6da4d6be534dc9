"""Numbers in sentences."""


def number_of(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `1,000 retries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
