"""A machine's file says what it is made of; what cannot be is refused by its name."""

from dataclasses import replace

import pytest

from sds.errors import FormatError, FormatVersionError
from sds.geometry import RaidLayout, StripeLayout
from sds.machines.machine_file import format_machine, parse_machine
from sds.simulator import hopper
from sds.simulator.parameter_fit import FittedMachine

OTHER = replace(
    hopper(),
    stripes=StripeLayout(stripe_size_bytes=1 << 16, stripe_count=3),
    raid=RaidLayout(unit_bytes=1 << 14, data_disks=5, min_request_bytes=1 << 12),
    n_osts=4,
    ost_forgets=True,
    disk_first_s=1 / 300,
    client_jitter_s=1e-7 / 3,
)
ERRORS = {
    "log_error": 0.25,
    "ratio_error": 0.125,
    "median_error": 0.1,
    "interval_error": 0.15,
    "p95_error": 0.5,
    "n_fitted": 90,
    "n_left_out": 30,
}


def test_what_is_left_out_is_as_in_hopper():
    found = parse_machine("", name="empty")
    assert found.parameters == hopper()
    assert found.fitted is None


def test_what_is_said_replaces_it():
    text = """
    n_osts = 7
    disk_full_stroke_s = 1   # whole seconds are numbers, too
    ost_forgets = true
    [stripes]
    stripe_count = 7
    [raid]
    data_disks = 3
    """
    known = hopper()
    assert parse_machine(text, name="m").parameters == replace(
        known,
        n_osts=7,
        disk_full_stroke_s=1.0,
        ost_forgets=True,
        stripes=replace(known.stripes, stripe_count=7),
        raid=replace(known.raid, data_disks=3),
    )


def test_a_fitted_machine_is_read_as_it_was_written():
    """To the last bit: a prediction by the file is that of the fit."""
    machine = FittedMachine(parameters=OTHER, **ERRORS)
    text = format_machine(machine)
    found = parse_machine(text, name="m")
    assert found.fitted == machine
    assert found.parameters == OTHER
    assert format_machine(found.fitted) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n_osts", "m.toml is no TOML: "),
        ("n_ost = 3", r"m.toml: there is no n_ost: n_osts\?"),
        ("colour = 3", "there is no colour; there are n_osts, page_bytes, "),
        ("n_osts = 1.5", "n_osts is 1.5; give a whole number"),
        ("n_osts = true", "n_osts is True; give a whole number"),
        ("n_osts = 0", "n_osts is 0; give 1 to "),
        ("disk_settle_s = '1 ms'", "disk_settle_s is '1 ms'; give a number"),
        ("disk_settle_s = nan", "disk_settle_s is nan; give 0 to 1000"),
        ("disk_settle_s = true", "disk_settle_s is True; give a number"),
        ("disk_settle_s = 99", "the longest seek, 0.015 s, is shorter than the shortest, 99.0 s"),
        ("ost_forgets = 1", "ost_forgets is 1; give true or false"),
        ("raid = 3", r"raid is 3; write a table, \[raid\]"),
        ("[raid]\nunit_byte = 3", r"there is no raid.unit_byte: unit_bytes\?"),
        ("[raid]\nunit_bytes = 0", "unit_bytes is 0; give 1 to"),
        ("[stripes]\nstripe_count = 500", "striped over 500 OSTs does not fit 156"),
        ("[fit]\nlog_error = 0.1", r"there is \[fit\], but no n_osts, of what was fitted"),
        (f"disk_settle_s = {'9' * 400}", "disk_settle_s has 400 digits; give fewer"),
        (f"n_osts = -{'9' * 400}", "n_osts has 400 digits; give fewer"),
        (f"n_osts = {'9' * 5000}", "m.toml is no TOML: "),
        pytest.param("n_osts = " + "[" * 100_000, "m.toml is nested too deeply: ", id="nested"),
        (f"n_osts{'.a' * 2000} = 1", r"n_osts is \{'a': \{.{,60}; give a whole number"),
        (f"raid = {'[' * 200}{']' * 200}", r"raid is \[\[.{,60}; write a table, "),
        (f"version{'.a' * 2000} = 1", r"version is \{'a': \{.{,60}; write a whole number"),
        ("version = 0", "m.toml: version is 0; write a whole number, 1"),
        ("version = 1.5", "m.toml: version is 1.5; write a whole number, 1"),
        ("fit = 0.1", r"fit is 0.1; write a table, \[fit\]"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(text, words):
    with pytest.raises(FormatError, match=words):
        parse_machine(text, name="m.toml")


def test_a_fit_without_one_of_its_errors_is_refused():
    whole = format_machine(FittedMachine(parameters=OTHER, **ERRORS))
    cut = "\n".join(line for line in whole.splitlines() if not line.startswith("ratio_error"))
    with pytest.raises(FormatError, match=r"\[fit\] has no ratio_error: leave the table out"):
        parse_machine(cut, name="m.toml")


def test_a_newer_version_is_refused_with_what_to_do():
    with pytest.raises(
        FormatVersionError, match=r"m.toml is of version 2, this SDS reads up to 1: "
    ):
        parse_machine("version = 2\ncolour = 3", name="m.toml")


@pytest.mark.parametrize("key", ["disk_settle_s", "n_osts", "stripe_count", "data_disks"])
def test_a_fitted_machine_without_one_of_its_numbers_is_none(key):
    whole = format_machine(FittedMachine(parameters=OTHER, **ERRORS))
    cut = "\n".join(line for line in whole.splitlines() if not line.startswith(f"{key} = "))
    with pytest.raises(FormatError, match=rf"there is \[fit\], but no [a-z.]*{key}, of what was"):
        parse_machine(cut, name="m.toml")


@pytest.mark.parametrize("value", ["nan", "inf", "-0.5"])
@pytest.mark.parametrize("key", ["log_error", "p95_error"])
def test_an_error_that_is_no_number_is_refused(key, value):
    whole = format_machine(FittedMachine(parameters=OTHER, **ERRORS))
    bad = "\n".join(
        f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in whole.splitlines()
    )
    with pytest.raises(FormatError, match=rf"fit.{key} is {value}; give a number"):
        parse_machine(bad, name="m.toml")
