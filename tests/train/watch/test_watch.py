"""The live page: it shows what the files of runs say, and hands out nothing else."""

import contextlib
import json
import shutil
import subprocess
import threading
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import train
from fdbr.train.watch.runs import Runs, _Curve

pytest.importorskip("bottle", reason="the page is served by bottle")
from fdbr.train.watch.server import serve

finite = st.floats(-1e9, 1e9)

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154"
    "789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture
def folder(tmp_path):
    """A folder with two runs, of which one has samples."""
    batches = train.Batches(np.arange(4.0), 2)
    for name, rate in (("slow", 0.1), ("fast", 0.5)):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        reports = train.fit(
            lambda state, batch, rate=rate: (state * (1 - rate), {"loss": state**2}),
            1.0,
            batches,
            epochs=3,
        )
        for _ in train.pipe(reports, train.log(run / "log.jsonl", train.every(iterations=1))):
            pass
        (run / "config.json").write_text(json.dumps({"optimizer": {"rate": rate}}))
    (tmp_path / "runs/fast/digits.png").write_bytes(PIXEL)
    (tmp_path / "runs/fast/poem.txt").write_text("a sample <b>of text</b>")
    (tmp_path / "runs/fast/weights.bin").write_bytes(b"1234")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "runs/fast/link.txt").symlink_to(tmp_path / "secret.txt")
    return tmp_path / "runs"


@contextlib.contextmanager
def served(folder):
    server = serve(folder, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def get(address, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.read().decode(errors="replace"), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_a_run_has_its_configuration_its_last_report_and_its_samples(folder):
    summary = Runs(folder).summary("fast")
    assert summary["config"] == {"optimizer": {"rate": 0.5}}
    assert (summary["last"]["iteration"], summary["last"]["epoch"]) == (6, 3)
    assert [one["name"] for one in summary["pictures"]] == ["digits.png"]
    assert [one["name"] for one in summary["texts"]] == ["poem.txt"]


def test_curves_grow_with_the_log_and_a_line_that_is_not_whole_waits(folder):
    runs = Runs(folder)
    assert len(runs.curves("slow")["loss"]) == 6
    with (folder / "slow/log.jsonl").open("a") as log:
        log.write('{"iteration": 7, "loss": 0.5}\n{"iteration": 8, "lo')
        log.flush()
        assert runs.curves("slow")["loss"][-1] == [7, 0.5]
        log.write('ss": 0.25}\n')
    assert runs.curves("slow")["loss"][-1] == [8, 0.25]
    assert len(runs.curves("slow")["loss"]) == 8


def test_a_log_that_is_written_anew_is_read_anew(folder):
    runs = Runs(folder)
    runs.curves("slow")
    (folder / "slow/log.jsonl").write_text('{"iteration": 1, "loss": 9.0}\n')
    assert runs.curves("slow") == {"loss": [[1, 9.0]]}


def test_what_is_no_report_or_no_number_is_passed_by(folder):
    (folder / "slow/log.jsonl").write_text('no json\n[1]\n{"iteration": 1, "loss": null, "a": 2}\n')
    assert Runs(folder).curves("slow") == {"a": [[1, 2]]}


def test_long_curves_are_thinned_and_keep_their_last_point(folder):
    lines = [json.dumps({"iteration": i, "loss": 1.0}) for i in range(1, 5000)]
    (folder / "slow/log.jsonl").write_text("\n".join(lines) + "\n")
    points = Runs(folder).curves("slow")["loss"]
    assert len(points) <= 1000
    assert points[-1] == [4999, 1.0]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 30_000), st.lists(st.tuples(st.integers(0, 29_999), finite), max_size=3), finite
)
def test_a_thinned_curve_has_the_extremes_and_the_last_point(count, spikes, level):
    values = np.full(count, level)
    for place, value in spikes:
        values[place % count] = value
    curve = _Curve()
    for x, y in enumerate(values.tolist()):
        curve.add(x, y)
    points = curve.points()
    assert len(points) <= 1000
    assert points[-1] == [count - 1, values[-1]]
    assert [x for x, _ in points] == sorted({x for x, _ in points})
    assert all(values[x] == y for x, y in points)
    assert {min(y for _, y in points), max(y for _, y in points)} == {values.min(), values.max()}
    if count <= 900:
        assert len(points) == count


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=4), st.integers(2, 5))
def test_several_threads_see_each_point_of_a_growing_log_once(tmp_path_factory, grows, readers):
    folder = tmp_path_factory.mktemp("run")
    runs, log = Runs(folder), folder / "log.jsonl"
    log.touch()
    done = threading.Event()
    wrong = []

    def look():
        while not done.is_set():
            found = [x for x, _ in runs.curves(".").get("loss", [])]
            if found != list(range(1, len(found) + 1)):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(readers)]
    for thread in threads:
        thread.start()
    count = 0
    for more in grows:
        with log.open("a") as file:
            for _ in range(more):
                count += 1
                file.write(json.dumps({"iteration": count, "loss": 1.0 / count}) + "\n")
                if count % 50 == 0:
                    file.flush()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(runs.curves(".").get("loss", [])) == count


def test_requests_at_a_time_get_the_whole_curve(folder):
    lines = [json.dumps({"iteration": i, "loss": i}) for i in range(1, 900)]
    (folder / "slow/log.jsonl").write_text("\n".join(lines) + "\n")
    with served(folder) as address, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(get, [f"{address}/api/curves?run=slow"] * 16))
    assert {status for status, _, _ in answers} == {200}
    for _, text, _ in answers:
        assert json.loads(text)["loss"] == [[i, i] for i in range(1, 900)]


def test_a_log_that_was_cut_and_has_grown_since_is_read_anew(folder):
    log = folder / "slow/log.jsonl"
    runs = Runs(folder)
    first = [json.dumps({"iteration": i, "loss": 1.5, "seconds": i}) for i in range(1, 21)]
    log.write_text("\n".join(first) + "\n")
    assert len(runs.curves("slow")["loss"]) == 20
    rest = [json.dumps({"iteration": i, "loss": 1.5, "seconds": 9.5}) for i in range(11, 61)]
    log.write_text("\n".join(first[:10] + rest) + "\n")  # as by a resumed run
    assert [x for x, _ in runs.curves("slow")["loss"]] == list(range(1, 61))


def test_a_log_takes_a_bounded_amount_of_memory(folder):
    line = json.dumps({"iteration": 7, "loss": 0.25, "note": "x" * 400}) + "\n"
    with (folder / "slow/log.jsonl").open("w") as file:
        for _ in range(20):
            file.write(line * 1000)  # 9 MB
        file.write("y" * 9_000_000 + "\n" + line)
    tracemalloc.start()
    try:
        found = Runs(folder).curves("slow")
        assert tracemalloc.get_traced_memory()[1] < 3_500_000
    finally:
        tracemalloc.stop()
    assert found == {"loss": [[7, 0.25]] * len(found["loss"])}


def test_the_server_answers_with_the_page_the_runs_and_the_samples(folder):
    with served(folder) as address:
        status, page, headers = get(address)
        assert status == 200
        assert "<title>fdbr: runs</title>" in page
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert get(f"{address}/page/script.js")[0] == get(f"{address}/page/style.css")[0] == 200
        runs = json.loads(get(f"{address}/api/runs")[1])
        assert [run["name"] for run in runs] == ["fast", "slow"]
        assert len(json.loads(get(f"{address}/api/curves?run=fast")[1])["loss"]) == 6
        assert get(f"{address}/api/file?run=fast&name=poem.txt")[1] == "a sample <b>of text</b>"


@pytest.mark.parametrize(
    "path",
    [
        "/api/file?run=fast&name=weights.bin",
        "/api/file?run=fast&name=link.txt",
        "/api/file?run=fast&name=../../secret.txt",
        "/api/file?run=..&name=secret.txt",
        "/api/file?run=fast&name=config.json",
        "/api/file",
        "/api/curves?run=nothing",
        "/page/../server.py",
        "/page/index.html",
        "/secret.txt",
    ],
)
def test_nothing_else_is_handed_out(folder, path):
    with served(folder) as address:
        assert get(address + path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:8000"])
def test_another_name_for_this_machine_is_refused(folder, host):
    with served(folder) as address:
        assert get(address, Host=host)[0] == 403


def test_it_listens_on_this_machine_alone(folder):
    server = serve(folder, 0)
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        serve(tmp_path / "nothing", 0)


def test_a_browser_draws_the_curves_the_configurations_and_the_samples(folder, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    quiet = ("gpu", "quic", "sync", "component-update", "background-networking", "extensions")
    with served(folder) as address:
        command = [
            *(browser, "--headless", "--no-sandbox", "--no-first-run"),
            *(f"--disable-{what}" for what in quiet),
            f"--user-data-dir={tmp_path / 'browser'}",
            *("--virtual-time-budget=3000", "--dump-dom", address),
        ]
        page = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert page.count('data-run="fast"') == page.count('data-run="slow"') == 1  # the loss of each
    assert "<td>0.5</td>" in page
    assert "optimizer.rate" in page
    assert "a sample &lt;b&gt;of text&lt;/b&gt;" in page
    assert "api/file?run=fast&amp;name=digits.png" in page
    assert ">2 runs<" in page
