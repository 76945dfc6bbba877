"""The benchmark of GPUs runs where there are some, and says why not elsewhere."""

import pytest
from distributed.standing_in import several_devices

from benchmarks.distributed import command, gpus
from fdbr.core import devices


def test_it_is_skipped_with_a_reason_where_there_is_nothing_to_measure(capsys, monkeypatch):
    def none():
        raise ImportError("no cupy")

    monkeypatch.setattr(devices, "accelerator", none)
    command.main(["--backend", "nccl", "--quick"])
    assert capsys.readouterr().out == "skipped: CuPy is not installed\n"


def test_its_calls_are_those_of_nccl(capsys):
    with several_devices(2) as module:
        command.main(["--backend", "nccl", "--quick"])
        assert module.wrong == []
    out = capsys.readouterr().out
    assert "2 GPUs" in out
    assert "| 100,000 |" in out


def test_it_measures_gpus(capsys):
    if why := gpus.missing():
        pytest.skip(why)
    command.main(["--backend", "nccl", "--quick"])
    assert "| 1,000 |" in capsys.readouterr().out
