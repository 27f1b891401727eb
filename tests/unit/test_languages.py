"""Code in many languages is read from archives and folders; what is neither is named."""

import io
import json.decoder
import tarfile

import numpy as np
import pytest

from jaxlab.data import languages

FILES = {
    "rust/b.rs": b"fn b() {}",
    "rust/a.rs": b"fn a() {}",
    "rust/a.rs.output": b"tokens",
    "ada/x.adb": b"begin end;",
    "sml/short.sml": b"1",
    "hexdump/h.txt": b"00 11 22 33 44",
}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "unpacked"
    for name, content in FILES.items():
        path = root / "tests/examplefiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "small.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"pygments/tests/examplefiles/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_files_of_a_language_are_joined_in_order(kind, request):
    found = languages.code_examples(request.getfixturevalue(kind), least_bytes=5)
    assert found.names == ("ada", "rust")
    assert [bytes(text.astype(np.uint8)) for text in found.texts] == [
        b"begin end;",
        b"fn a() {}\nfn b() {}",
    ]


def test_module_sources_are_the_files():
    with open(json.decoder.__file__, "rb") as file:
        expected = file.read()
    found = languages.module_sources((json.decoder,))
    assert bytes(found.astype(np.uint8)) == expected


def test_what_holds_no_examples_is_named(tmp_path):
    with pytest.raises(ValueError, match="must hold Pygments' tests/examplefiles/, got no file"):
        languages.code_examples(tmp_path)
    with pytest.raises(FileNotFoundError):
        languages.code_examples(tmp_path / "nowhere")


def test_cut_archives_are_named(archive):
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"small\.tar\.gz' must be a whole tar archive"):
        languages.code_examples(archive)


def test_another_file_of_the_name_is_refused(tmp_path):
    path = tmp_path / f"pygments-{languages.VERSION}.tar.gz"
    path.write_bytes(b"another")
    with pytest.raises(ValueError, match=f"must have the sha256 {languages.DIGEST}, got "):
        languages.code_examples(path)
    with pytest.raises(ValueError, match="remove it"):
        languages.fetch_code_archive(tmp_path)
