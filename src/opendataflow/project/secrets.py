"""Credentials: AES-256-GCM under a key that scrypt derives from the passkey, once per process.

Format: enc:v1:<base64 of salt (16) + nonce (12) + ciphertext and tag>.
"""

import base64
import functools
import os

from opendataflow.errors import SecretError

PREFIX = "enc:v1:"
_SALT, _NONCE = 16, 12


def find_passkey() -> str | None:
    """The passkey from DATAFLOW_PASSKEY, PASSKEY or the file that DATAFLOW_PASSKEY_FILE names."""
    for name in ("DATAFLOW_PASSKEY", "PASSKEY"):
        if os.environ.get(name):
            return os.environ[name]
    file = os.environ.get("DATAFLOW_PASSKEY_FILE")
    if not file:
        return None
    try:
        with open(file, encoding="utf-8") as source:
            return source.read().strip("\r\n") or None
    except OSError as error:
        raise SecretError(f"the passkey file {file} cannot be read: {error.strerror}") from error


def get_passkey() -> str:
    passkey = find_passkey()
    if passkey is None:
        raise SecretError(
            "a credential is encrypted, but no passkey is given; set DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE"
        )
    return passkey


@functools.lru_cache(maxsize=32)
def _key(passkey: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=2**14, r=8, p=1).derive(passkey.encode())


def encrypt(plain: str, passkey: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    sealed = AESGCM(_key(passkey, salt)).encrypt(nonce, plain.encode(), PREFIX.encode())
    return PREFIX + base64.b64encode(salt + nonce + sealed).decode()


def decrypt(text: str, passkey: str) -> str:
    """The plain text, or raise SecretError; neither the passkey nor the credential is ever in the message."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        if not text.startswith(PREFIX) or len(raw) < _SALT + _NONCE + 16:
            raise ValueError
        salt, nonce, sealed = raw[:_SALT], raw[_SALT : _SALT + _NONCE], raw[_SALT + _NONCE :]
        return AESGCM(_key(passkey, salt)).decrypt(nonce, sealed, PREFIX.encode()).decode()
    except ValueError:
        raise SecretError("a credential is damaged: it is not text made by `dataflow crypt encrypt`") from None
    except InvalidTag:
        raise SecretError(
            "a credential cannot be decrypted: the passkey is not the one it was encrypted with"
        ) from None
