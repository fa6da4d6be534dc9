"""Credentials: AES-256-GCM under a key that comes from the passkey.

Ours:         enc:v1:<base64 of salt (16) + nonce (12) + ciphertext and tag>; scrypt derives the key, once per process.
The original: <base64 of nonce (12) + ciphertext and tag>; the key is the first 32 bytes of the passkey's SHA-512.
New text is always ours; the original's is only read.
"""

import base64
import functools
import os

from opendataflow.errors import SecretError, UsageError

PREFIX = "enc:v1:"
_SALT, _NONCE, _TAG = 16, 12, 16
_Scalars = dict[tuple[int, int], tuple[str, tuple[str, ...]]]  # start and end in the text → value, keys above it

# The passkey ----------------------------------------------------------------------------------------------------------


def find_passkey() -> str | None:
    """The passkey from DATAFLOW_PASSKEY, PASSKEY or the file that DATAFLOW_PASSKEY_FILE names."""
    for name in ("DATAFLOW_PASSKEY", "PASSKEY"):
        if os.environ.get(name):
            return os.environ[name]
    file = os.environ.get("DATAFLOW_PASSKEY_FILE")
    return read_passkey_file(file) if file else None


def get_passkey() -> str:
    passkey = find_passkey()
    if passkey is None:
        raise SecretError(
            "a credential is encrypted, but no passkey is given; set DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE"
        )
    return passkey


def get_new_passkey(file: str | None) -> str:
    """The passkey to change to, from this file or DATAFLOW_NEW_PASSKEY."""
    passkey = read_passkey_file(file) if file else os.environ.get("DATAFLOW_NEW_PASSKEY")
    if not passkey:
        raise SecretError("no new passkey is given; set DATAFLOW_NEW_PASSKEY or use --new-passkey-file")
    return passkey


def read_passkey_file(file: str) -> str | None:
    """The passkey in a file, without the line's end; None when the file is empty."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as source:
            return source.read().strip("\r\n") or None
    except OSError as error:
        raise SecretError(f"the passkey file {file} cannot be read: {error.strerror}") from error


def others_can_read(file: str) -> bool:
    """True when the group or everybody may read the file."""
    try:
        return bool(os.stat(file).st_mode & 0o044)
    except OSError:
        return False


# Encrypting and decrypting --------------------------------------------------------------------------------------------


def is_encrypted(text: str) -> bool:
    """True when the text has the form of a credential: ours, or the original's."""
    return text.startswith(PREFIX) or _original(text) is not None


def encrypt(plain: str, passkey: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    sealed = AESGCM(_key(passkey, salt)).encrypt(nonce, _bytes(plain), PREFIX.encode())
    return PREFIX + base64.b64encode(salt + nonce + sealed).decode()


def decrypt(text: str, passkey: str) -> str:
    """The plain text, or raise SecretError; neither the passkey nor the credential is ever in the message."""
    from cryptography.exceptions import InvalidTag

    try:
        plain = _open(text, passkey) if text.startswith(PREFIX) else _open_original(text, passkey)
        return plain.decode("utf-8", "surrogateescape")
    except ValueError:
        raise SecretError("a credential is damaged: it is not text made by `dataflow crypt encrypt`") from None
    except InvalidTag:
        raise SecretError(
            "a credential cannot be decrypted: the passkey is not the one it was encrypted with; "
            "give that one in DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE"
        ) from None


def _open(text: str, passkey: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    if len(raw) < _SALT + _NONCE + _TAG:
        raise ValueError
    salt, nonce, sealed = raw[:_SALT], raw[_SALT : _SALT + _NONCE], raw[_SALT + _NONCE :]
    return AESGCM(_key(passkey, salt)).decrypt(nonce, sealed, PREFIX.encode())


def _open_original(text: str, passkey: str) -> bytes:
    """What the original's AESCryptor made: no version, no salt, no additional data."""
    import hashlib

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    raw = _original(text)
    if raw is None:
        raise ValueError
    key = hashlib.sha512(_bytes(passkey)).digest()[:32]
    return AESGCM(key).decrypt(raw[:_NONCE], raw[_NONCE:], None)


def _original(text: str) -> bytes | None:
    """The bytes of text that has the original's form, else None."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if len(raw) >= _NONCE + _TAG else None


@functools.lru_cache(maxsize=32)
def _key(passkey: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=2**14, r=8, p=1).derive(_bytes(passkey))


def _bytes(text: str) -> bytes:
    """The bytes that came in: a variable may hold some that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


# Another passkey ------------------------------------------------------------------------------------------------------


class Rotation:
    """Credentials from an old passkey to a new one. One that is under the new one already stays as it is."""

    def __init__(self, old: str, new: str) -> None:
        if old == new:
            raise UsageError("the new passkey is the old one; nothing would change")
        self._old, self._new = old, new
        self._made: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """The credential under the new passkey, the same for the same text; SecretError if neither passkey opens it."""
        if text not in self._made:
            self._made[text] = self._rotated(text)
        return self._made[text]

    def _rotated(self, text: str) -> str:
        try:
            return encrypt(decrypt(text, self._old), self._new)
        except SecretError:
            plain = decrypt(text, self._new)
            return text if text.startswith(PREFIX) else encrypt(plain, self._new)


def rotate_yaml(text: str, rotate: Rotation, *, file: str) -> tuple[str, int, int]:
    """The YAML text with its credentials under the new passkey, how many changed, and how many already were.

    Nothing else of the text changes. One in a comment that neither passkey opens is left.
    """
    import re

    import yaml

    from opendataflow.errors import ConfigurationError

    try:
        scalars = _scalars(yaml.compose(text, Loader=yaml.SafeLoader), {})
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    found = [(one.start(), one.end(), one.group()) for one in re.finditer(rf"{PREFIX}[A-Za-z0-9+/]+=*", text)]
    for (start, end), (value, keys) in scalars.items():
        if _is_credential(keys) and value and not value.startswith(PREFIX):
            at = text.find(value, start, end)
            found.append((at, at + len(value), value) if at >= 0 else (start, end, value))
    made, already = [], 0
    for start, end, old in sorted(found):
        try:
            new = rotate(old)
        except SecretError as error:
            if any(first <= start < last for first, last in scalars):
                raise SecretError(f"{file}:{text.count(chr(10), 0, start) + 1}: {error}; nothing was changed") from None
            continue
        already += new == old
        if new != old:
            made.append((start, end, new))
    for start, end, new in reversed(made):
        text = text[:start] + new + text[end:]
    return text, len(made), already


def _is_credential(keys: tuple[str, ...]) -> bool:
    """True for encryptedpass, and for the password of a dataset."""
    return keys[-1:] == ("encryptedpass",) or (keys[-1:] == ("password",) and keys[-3:-2] == ("datasets",))


def _scalars(node: object, found: _Scalars, keys: tuple[str, ...] = ()) -> _Scalars:
    """Where each scalar of the document stands in its text, with its value and the keys it stands under."""
    import yaml

    match node:
        case yaml.MappingNode():
            for name, value in node.value:
                _scalars(name, found)
                _scalars(value, found, (*keys, str(name.value)))
        case yaml.SequenceNode():
            for item in node.value:
                _scalars(item, found, keys)
        case yaml.ScalarNode():
            found[node.start_mark.index, node.end_mark.index] = (node.value, keys)
    return found
