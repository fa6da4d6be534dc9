"""`dataflow crypt`: credentials for project.yml. Secrets come from standard input, never from the argument list."""

import sys

import typer

from opendataflow.cli.render import put

app = typer.Typer(help="Encrypt credentials for project.yml.", no_args_is_help=True)


def _secret(prompt: str) -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\r\n")


@app.command()
def encrypt() -> None:
    """Read a password from standard input and print it encrypted under the passkey.

    The passkey comes from DATAFLOW_PASSKEY, PASSKEY or the file DATAFLOW_PASSKEY_FILE.
    Example: printf '%s' "$pw" | dataflow crypt encrypt
    """
    from opendataflow.project.secrets import encrypt as seal
    from opendataflow.project.secrets import get_passkey

    passkey = get_passkey()
    put(seal(_secret("Password to encrypt: "), passkey))


@app.command()
def decrypt() -> None:
    """Read an encrypted text (enc:v1:…) from standard input and print the password."""
    from opendataflow.project.secrets import decrypt as open_
    from opendataflow.project.secrets import get_passkey

    passkey = get_passkey()
    put(open_(_secret("Encrypted text: "), passkey))
