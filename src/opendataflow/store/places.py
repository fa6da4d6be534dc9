"""Where the projects of a store are for this process: their folders and roots.

A row of `project` has both as they were when it was applied. Where the root is relative to the project's folder, or the
folder to that of a SQLite store's file, they are resolved anew by each process: a project may have moved since.
"""

import os
from typing import NamedTuple

from opendataflow.domain.job import Mark
from opendataflow.store.rows import Row

Here = tuple[str, str]  # the project of the folder that a command works in, and that folder


class Place(NamedTuple):
    """A project's folder and root."""

    project: str
    root: str
    home: str
    row_root: str  # as the store's row has them
    row_home: str
    moves_with_store: bool  # the store's file is in the project's folder
    is_marked: bool

    @property
    def is_row_old(self) -> bool:
        """True when the project has moved together with its store since the row was written."""
        return self.moves_with_store and (self.root, self.home) != (self.row_root, self.row_home)

    def mark(self, *, store_id: str, store: str, has_published: bool) -> Mark:
        """What the root's marker must say."""
        other = self.row_root if self.root != self.row_root and not self.moves_with_store else ""
        return Mark(store_id, store, self.is_marked and has_published, self.is_row_old, other)


def resolve(row: Row, *, store_folder: str | None, here: Here | None) -> Place:
    """The place that a row of the statement `places` stands for, in this process."""
    project, row_root, row_home, root_below_home, home_below_store, is_marked, is_git = row
    root, home, moves = row_root, row_home, store_folder is not None and home_below_store is not None
    if store_folder is not None and home_below_store is not None:
        home = os.path.normpath(os.path.join(store_folder, home_below_store))
    if here is not None and here[0] == project and not is_git:  # versions of a git project are where the store says
        home = here[1]
    if root_below_home is not None:
        root = os.path.normpath(os.path.join(home, root_below_home))
    return Place(project, root, home, row_root, row_home, moves, bool(is_marked))


def home_below(store_folder: str | None, home: str) -> str | None:
    """The project's folder from that of the store's file, where one of them is in the other and both move together."""
    if store_folder is None or not os.path.isabs(home):
        return None
    common = os.path.commonpath([home, store_folder])
    return os.path.relpath(home, store_folder) if common in (os.path.normpath(home), store_folder) else None
