"""The first start of a server: a link for one admin, however many start; and no secret is kept anywhere."""

import re
import subprocess
import threading
from pathlib import Path

from opendataflow.server.accounts.login import DEVICE
from support.people import PASSWORD, Person
from support.projects import DATAFLOW, Project
from support.web import Site, Visitor


def test_the_first_start_prints_a_link_that_makes_one_admin(project: Project) -> None:
    project.apply("name: crm\n")
    with Site(project) as one, Site(project) as two:
        links = [one.said["admin_link"], two.said["admin_link"]]
        assert links[0].startswith(f"{one.url}/welcome/")
        people = [Person(server.url) for server in (one, two) for _ in range(2)]
        ends: list[int] = []

        def use(number: int) -> None:
            ends.append(people[number].choose(links[number // 2], f"admin{number}").status)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == [303, 404, 404, 404]
        [winner] = [person for person in people if person.session]
        assert winner.get("/v1/me").json["role"] == "admin"
        assert len(winner.get("/v1/users").json) == 1
        assert Person(two.url).get(links[1].removeprefix(two.url)).status == 404
    with Site(project) as three:
        assert three.said["admin_link"] is None


def test_the_link_is_told_on_the_terminal(sqlite_project: Project) -> None:
    sqlite_project.apply("name: crm\n")
    process = sqlite_project.start(DATAFLOW, "serve", "--port", "0", "--root-path", "flow/")
    try:
        assert process.stdout is not None
        listening = process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=90)
    except BaseException:
        process.kill()
        raise
    url = listening.split()[-1]
    assert url.endswith("/flow")
    assert re.search(rf"^  {re.escape(url)}/welcome/[\w-]{{40,}}$", said, re.MULTILINE), said


def test_no_secret_is_in_the_store_the_output_or_the_arguments(sqlite_project: Project) -> None:
    sqlite_project.apply("name: crm\n")
    with Site(sqlite_project) as site:
        link = site.said["admin_link"].rpartition("/")[2]
        person = Person(site.url)
        assert person.choose(f"/welcome/{link}").status == 303
        other = Person(site.url)
        assert other.login("anna", PASSWORD).status == 303
        assert other.login("anna", "not my password").status == 403
        token = person.post("/v1/actions/token-new", {"name": "nightly"}).json["once"]
        assert Visitor(site.url, token=token).get("/v1/me").status == 200
        second = person.post("/v1/actions/user-link", {"username": "bob"}).json["once"].rpartition("/")[2]
        person.get(f"/v1/runs?password={PASSWORD.replace(' ', '+')}")
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        secrets = {
            "the link": link, "another link": second, "the session": person.session, "the token": token,
            "the password": PASSWORD, "the CSRF token": person.csrf, "the browser": person.cookies[DEVICE],
        }  # fmt: skip
        files = Path(sqlite_project.store.removeprefix("sqlite:///")).parent.iterdir()
        kept = b"".join(file.read_bytes() for file in files if file.is_file())
        code, said = site.stop()
        assert code == 0
        for what, secret in secrets.items():
            assert len(secret) > 10
            assert secret.encode() not in kept, f"{what} is in the store"
            assert secret not in said, f"{what} is in the log"
            assert secret not in shown, f"{what} is in somebody's arguments"
        assert b"$argon2id$v=19$m=65536,t=3,p=1$" in kept
