"""Exit codes of `dataflow` and `RunJob`; docs/reference/exit-codes.md lists the same, and a test compares them."""

EXIT_CODES: dict[int, str] = {
    0: "complete, or caught up: nothing is left to do",
    1: "the job failed",
    2: "usage or configuration: nothing was claimed",
    5: "lease lost: another owner has the work; nothing was published",
    10: "DATA_NOT_READY: an input chunk is not READY",
    11: "WRONG_DATA: an input is not the data that was published",
    12: "INVALID_PATH: an input or output place does not fit this environment",
    13: "NOT_VALIDATED: a declared check did not pass",
    14: "LOCKED: another run, reader, hold or limit is in the way",
    70: "internal error",
    75: "the store is unavailable; the end of a run is kept locally and recorded by the next one",
    128: "128+n: ended by signal n",
}
