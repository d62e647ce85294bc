"""The demonstration, small: every variant reads the same bytes, and nothing is left behind."""

from __future__ import annotations


def test_the_demonstration_compares_and_cleans_up(sds, tmp_path):
    figure = tmp_path / "figure.png"
    work = tmp_path / "work"
    result = sds(
        "demo", "--size", "24M", "--runs", "1", "--directory", work, "--output", figure, "--json"
    )  # fmt: skip
    assert result.code == 0, result.err
    found = result.json
    assert found["ok"] is True
    assert [(row["kind"], row["state"]) for row in found["rows"]] == [
        (kind, state) for state in ("cold", "warm") for kind in ("planes", "spectra", "series")
    ]
    for row in found["rows"]:
        assert row["equal"] is True
        assert row["cache"]
        for variant in ("original_s", "connector_s", "replica_s"):
            assert 0 < row[variant]["low"] <= row[variant]["median"] <= row[variant]["high"]
    assert {built["dataset"] for built in found["builds"]} == {"/image/cube", "/t2m"}
    assert {gain["kind"] for gain in found["gains"]} == {"planes", "spectra", "series"}
    assert all(len(program["sha256"]) == 64 for program in found["programs"])
    assert found["server"].startswith("http://")
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert list(work.iterdir()) == []
