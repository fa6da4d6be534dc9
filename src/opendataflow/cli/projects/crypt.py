"""`dataflow crypt`: credentials for project.yml. Secrets come from standard input, never from the argument list."""

import os
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from opendataflow.cli.opened import existing
from opendataflow.cli.render import ask_secret, put, put_json, say
from opendataflow.errors import ConfigurationError, SecretError

if TYPE_CHECKING:
    from opendataflow.project.address import Address
    from opendataflow.project.secrets import Rotation

app = typer.Typer(help="Encrypt credentials for project.yml.", no_args_is_help=True)


def _passkey() -> str:
    from opendataflow.project.secrets import get_passkey

    passkey = get_passkey()
    if not any(os.environ.get(name) for name in ("DATAFLOW_PASSKEY", "PASSKEY")):
        _warn_of(os.environ["DATAFLOW_PASSKEY_FILE"])
    return passkey


def _warn_of(file: str) -> None:
    from opendataflow.project.secrets import others_can_read

    if others_can_read(file):
        say(f"dataflow: others can read the passkey file {file}; run `chmod 600 {file}`")


@app.command()
def encrypt() -> None:
    """Read a password from standard input and print it encrypted under the passkey.

    The passkey comes from DATAFLOW_PASSKEY, PASSKEY or the file DATAFLOW_PASSKEY_FILE.
    Example: printf '%s' "$pw" | dataflow crypt encrypt
    """
    from opendataflow.project.secrets import encrypt as seal

    passkey = _passkey()
    put(seal(ask_secret("Password to encrypt: "), passkey))


@app.command()
def decrypt() -> None:
    """Read an encrypted text (enc:v1:…, or one of the original OpenDataFlow) from standard input, print the password.

    Example: dataflow crypt decrypt < credential.txt
    """
    from opendataflow.project.secrets import decrypt as open_

    passkey = _passkey()
    put(open_(ask_secret("Encrypted text: ").strip(), passkey))


@app.command()
def rotate(
    new_passkey_file: Annotated[
        str | None, typer.Option(help="A file with the new passkey; otherwise DATAFLOW_NEW_PASSKEY.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decrypt everything, change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Bring every credential of this project under a new passkey: in the store, in project.yml, in dataflow.properties.

    All are decrypted first: if one cannot be, nothing changes. Stopped half-way, run it again.
    Example: DATAFLOW_NEW_PASSKEY=… dataflow crypt rotate --dry-run
    """
    from opendataflow.project.secrets import Rotation, get_new_passkey

    old, new = _passkey(), get_new_passkey(new_passkey_file)
    if new_passkey_file:
        _warn_of(new_passkey_file)
    rotation = Rotation(old, new)
    found = _address(old, new)
    files = _rotated_files(found, rotation)
    places = [_rotate_store(found, rotation, dry_run=dry_run)]
    for file in files:
        if not dry_run:
            file.replace()
        places.append({"place": file.path, "rotated": file.rotated, "already": file.already})
    rotated, already = (sum(place[key] for place in places) for key in ("rotated", "already"))
    if as_json:
        put_json({"rotated": rotated, "already": already, "places": places, "applied": not dry_run})
        return
    for place in places:
        say(f"{place['place']}: {place['rotated']} {'would change' if dry_run else 'changed'}")
    known = f", {already} already under the new passkey" if already else ""
    say(f"{'would rotate' if dry_run else 'rotated'} {rotated} credentials{known}")
    if rotated and not dry_run:
        say("give the new passkey to every place that runs jobs; in other environments run `dataflow apply`")


def _address(old: str, new: str) -> "Address":
    """The project's address; a dataflow.properties may be under the new passkey already."""
    from opendataflow.project.address import get_address

    try:
        found = get_address(os.getcwd(), passkey=old)
    except SecretError:
        found = get_address(os.getcwd(), passkey=new)
    if found.home is None:
        raise ConfigurationError(
            "found no project.yml in this folder or above; go to a project's folder; `dataflow init DIR` makes one"
        )
    return found


def _rotate_store(found: "Address", rotation: "Rotation", *, dry_run: bool) -> dict[str, Any]:
    from opendataflow.store.base import without_password
    from opendataflow.store.records.credentials import rotate_credentials
    from opendataflow.store.records.git import rotate_git_secrets

    rotated, already = 0, 0
    store = existing(found)
    if store is not None:
        rotate_git_secrets(store, rotation, dry_run=True)  # one that cannot be opened is told before anything changes
        rotated, already = rotate_credentials(store, found.project or "", rotation, dry_run=dry_run)
        more = rotate_git_secrets(store, rotation, dry_run=dry_run)
        rotated, already = rotated + more[0], already + more[1]
        store.close()
    return {"place": without_password(found.store), "rotated": rotated, "already": already}


class _Rotated(NamedTuple):
    """A file and what it will hold; `path` is not a link."""

    path: str
    before: bytes
    after: bytes
    rotated: int
    already: int

    def replace(self) -> None:
        """Put the new text in the file's place at once, or raise and leave the file as it was."""
        if self.after == self.before:
            return
        import contextlib
        import tempfile

        with open(self.path, "rb") as source:
            if source.read() != self.before:
                raise ConfigurationError(f"{self.path} was changed meanwhile; run `dataflow crypt rotate` again")
            mode = os.fstat(source.fileno()).st_mode & 0o7777
        folder, name = os.path.split(self.path)
        handle, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(handle, "wb") as file:
                file.write(self.after)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


def _rotated_files(found: "Address", rotation: "Rotation") -> list[_Rotated]:
    """project.yml, and last the dataflow.properties that the store's address comes from."""
    from opendataflow.project import PROJECT_FILE
    from opendataflow.project.address import find_properties_in_use
    from opendataflow.project.properties import rotate_properties
    from opendataflow.project.secrets import rotate_yaml

    path, before = _read(os.path.join(found.home or "", PROJECT_FILE))
    try:
        text, rotated, already = rotate_yaml(before.decode(), rotation, file=path)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text: {error}") from error
    files = [_Rotated(path, before, text.encode(), rotated, already)]
    properties = find_properties_in_use(os.getcwd())
    if properties is not None:
        path, before = _read(properties)
        files.append(_Rotated(path, before, *rotate_properties(before, rotation, file=path)))
    for file in files:
        if file.rotated and not os.access(os.path.dirname(file.path), os.W_OK):
            raise ConfigurationError(f"{file.path} cannot be replaced: its folder is not writable; nothing was changed")
    return files


def _read(path: str) -> tuple[str, bytes]:
    """The file that a path leads to, links followed, and what is in it."""
    path = os.path.realpath(path)
    try:
        with open(path, "rb") as source:
            return path, source.read()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
