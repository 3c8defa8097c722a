"""`make bench` measures the rows that are asked for, and tells how far it is."""

from contextlib import asynccontextmanager

import pytest
from bench import rows
from bench.__main__ import STAGES
from bench.measurements import Missing, Stage, UnknownRow, measures, run, select


class Bench:
    """Two stages with three measurements, which write down what is done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stages = (
            Stage(
                "an engine",
                self._open("an engine"),
                (self._measure("create, warm", "create, cold"), self._measure("exec of `true`")),
            ),
            Stage("a server", self._open("a server"), (self._measure("exec by HTTP"),)),
        )

    def _open(self, name):
        @asynccontextmanager
        async def opened():
            self.done.append(f"open {name}")
            yield name
            self.done.append(f"close {name}")

        return opened

    def _measure(self, *names):
        @measures(*names)
        async def measurement(setup):
            self.done.append(f"measure with {setup}")
            return [rows.at_most(number, 1, "ms") for number, _ in enumerate(names)]

        return measurement

    async def run(self, *words: str) -> None:
        tell = self.done.append
        await run(select(self.stages, words), tell, lambda row: tell(f"{row.name}: {row.ours}"))


async def test_without_words_everything_is_measured_and_each_row_shown_at_once():
    bench = Bench()
    await bench.run()
    assert bench.done == [
        "setting up an engine",
        "open an engine",
        "measuring create, warm; create, cold",
        "measure with an engine",
        "create, warm: 0",
        "create, cold: 1",
        "measuring exec of `true`",
        "measure with an engine",
        "exec of `true`: 0",
        "close an engine",
        "setting up a server",
        "open a server",
        "measuring exec by HTTP",
        "measure with a server",
        "exec by HTTP: 0",
        "close a server",
    ]


async def test_what_no_chosen_row_needs_is_not_set_up():
    bench = Bench()
    await bench.run("http")
    assert bench.done[0] == "setting up a server"
    assert "open an engine" not in bench.done


async def test_only_chosen_rows_of_a_measurement_are_shown():
    bench = Bench()
    await bench.run("COLD", "by HTTP")
    assert [line for line in bench.done if ": " in line] == ["create, cold: 1", "exec by HTTP: 0"]


def test_an_unknown_name_is_an_error_that_lists_all_names():
    with pytest.raises(UnknownRow, match="No row has 'fork' in its name") as caught:
        select(Bench().stages, ["exec", "fork"])
    for name in ("create, warm", "create, cold", "exec of `true`", "exec by HTTP"):
        assert f"  {name}" in str(caught.value).splitlines()


async def test_a_stage_whose_program_is_missing_is_told_and_the_rest_is_measured():
    bench = Bench()

    @asynccontextmanager
    async def without_nginx():
        raise Missing("previews need nginx")
        yield

    first, *rest = bench.stages
    bench.stages = (Stage("web servers", without_nginx, first.measurements), *rest)
    await bench.run()
    assert "not measured: previews need nginx" in bench.done
    assert "exec by HTTP: 0" in bench.done


def test_no_two_rows_have_the_same_name():
    names = [name for stage in STAGES for each in stage.measurements for name in each.names]
    assert sorted(set(names)) == sorted(names)
