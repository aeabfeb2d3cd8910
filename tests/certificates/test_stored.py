"""Certificates that an older version stored are still accepted, and still checked."""

import json
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.certificates.certify import certify, recheck
from steadyrnn.errors import CertificateError
from tests.certificates.stored import STORED

CERTIFICATES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "stored.json").read_text())
NUMBERED = "MATH"  # how an older version cited a theorem, with its number behind it


@pytest.mark.parametrize("name", STORED)
def test_a_certificate_that_names_theorems_by_number_is_accepted(name: str) -> None:
    build, bound = STORED[name]
    stored = CERTIFICATES[name]
    assert all(NUMBERED in claim["theorem"] for claim in stored["claims"])
    fresh = recheck(stored, build())
    assert not any(NUMBERED in claim.theorem for claim in fresh.claims)
    assert fresh.input_bound == bound


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("theorem", [f"{NUMBERED} 5.4", "a theorem of mine", None])
def test_a_theorem_that_is_not_the_one_behind_a_claim_is_refused(name: str, theorem: str | None) -> None:
    stored = json.loads(json.dumps(CERTIFICATES[name]))
    stored["claims"][0]["theorem"] = theorem
    with pytest.raises(CertificateError, match="is not proven"):
        recheck(stored, STORED[name][0]())


@pytest.mark.parametrize("name", STORED)
def test_a_certificate_written_now_is_accepted(name: str) -> None:
    build, bound = STORED[name]
    fresh = certify(build(), bound)
    assert recheck(json.loads(fresh.to_json()), build()).to_dict() == fresh.to_dict()
