"""Locations as a store keeps them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.locations import stored_location, whole_location
from opendataflow.store.places import home_below, resolve

ROOT = "/w/prod/data"


@pytest.mark.parametrize(
    ("root", "location", "stored"),
    [
        (ROOT, f"{ROOT}/orders/2025-11-12.csv", "orders/2025-11-12.csv"),
        (ROOT, ROOT, "."),
        (ROOT, "/w/prod/database/x", "/w/prod/database/x"),
        (ROOT, f"{ROOT}/../test/x", f"{ROOT}/../test/x"),
        (ROOT, "s3://bucket/x", "s3://bucket/x"),
        ("s3://bucket/prod", "s3://bucket/prod/a/b", "a/b"),
        ("s3://bucket/prod", "s3://bucket/production/a", "s3://bucket/production/a"),
        ("/", "/x", "x"),
        (ROOT, f"sqlite:///{ROOT}/crm.db#orders?dataid=7", "sqlite:///crm.db#orders?dataid=7"),
        (ROOT, "sqlite:////srv/crm.db#orders", "sqlite:////srv/crm.db#orders"),
        (ROOT, "postgresql://h/db#t", "postgresql://h/db#t"),
    ],
)
def test_a_location_below_the_root_is_kept_without_it(root: str, location: str, stored: str) -> None:
    assert stored_location(location, root) == stored
    assert whole_location(stored, root) == location


def test_what_moved_is_found_below_the_new_root() -> None:
    assert whole_location("out/dataid=1/_runs/5", "/w/test/data") == "/w/test/data/out/dataid=1/_runs/5"
    assert whole_location("sqlite:///crm.db#orders", "/w/test/data") == "sqlite:////w/test/data/crm.db#orders"


@given(
    st.lists(st.text(alphabet="ab./:= ", min_size=1), max_size=4),
    st.sampled_from(["/", "/w", "/w/a b", "s3://b/k", "s3://b"]),
    st.booleans(),
)
def test_every_location_comes_back_as_it_was(parts: list[str], root: str, is_inside: bool) -> None:
    path = "/".join(parts)
    location = f"{root.rstrip('/')}/{path}" if is_inside else f"/{path}"
    assert whole_location(stored_location(location, root), root) == location


def test_a_project_beside_its_sqlite_store_is_found_where_the_store_is() -> None:
    row = ("shop", "/w/a/data", "/w/a", "data", "..", 1, 0)
    moved = resolve(row, store_folder="/w/b/.dataflow", here=None)
    assert (moved.root, moved.home, moved.is_row_old) == ("/w/b/data", "/w/b", True)


def test_a_project_with_another_store_is_where_the_command_works() -> None:
    row = ("shop", "/w/a/data", "/w/a", "data", None, 1, 0)
    assert resolve(row, store_folder=None, here=("shop", "/w/b")).root == "/w/b/data"
    assert resolve(row, store_folder=None, here=("other", "/w/b")).root == "/w/a/data"
    assert resolve((*row[:6], 1), store_folder=None, here=("shop", "/w/b")).home == "/w/a", "a version from git"


def test_a_root_that_was_given_whole_stays() -> None:
    row = ("shop", "/srv/data", "/w/a", None, "..", 1, 0)
    assert resolve(row, store_folder="/w/b/.dataflow", here=None).root == "/srv/data"


@pytest.mark.parametrize(
    ("store_folder", "home", "below"),
    [
        ("/w/a/.dataflow", "/w/a", ".."),
        ("/w/a/.dataflow", "/w/a/.dataflow/projects/shop/c0ffee", "projects/shop/c0ffee"),
        ("/var/lib/dataflow", "/w/a", None),
        (None, "/w/a", None),
    ],
)
def test_a_folder_moves_with_a_store_that_is_in_it_or_holds_it(
    store_folder: str | None, home: str, below: str | None
) -> None:
    assert home_below(store_folder, home) == below
